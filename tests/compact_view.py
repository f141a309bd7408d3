"""What a `compact-1` codec knows of one link, for tests: the codec is one for all links."""

from drupelet.link.link import Link
from drupelet.wire.compact.codec import Compact1


class Spoken:
    """One link's side of its codec, whichever link the codec has served last."""

    def __init__(self, link: Link) -> None:
        codec = link.codec
        assert isinstance(codec, Compact1)
        self.link = link
        self._codec = codec

    @property
    def codec(self) -> Compact1:
        """The codec, turned to this link."""
        self._codec.use(self.link.exchange)
        return self._codec

    def has(self, flag: int) -> bool:
        return self.codec.has(flag)

    def mark(self, flag: int, is_set: bool) -> None:
        self.codec.mark(flag, is_set)

    @property
    def generation(self) -> int:
        return self.codec.generation()

    @generation.setter
    def generation(self, value: int) -> None:
        self.link.exchange.core.clocks.generation = value - 1
        self.codec.restart()

    @property
    def peer_generation(self) -> int:
        return self.codec.peer_generation()

    @property
    def peer_store_gen(self) -> int:
        return self._codec.peer_store_gen(self.link.exchange)

    @property
    def speaks(self) -> int:
        return self._codec.spoken(self.link.exchange)

    def greet(self) -> None:
        self._codec.greet(self.link.exchange)
