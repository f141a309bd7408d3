"""A member of a channel who seals with sender keys, and a key port in RAM."""

import random

from drupelet.base.aes import Aes
from drupelet.base.ccm import Ccm
from drupelet.base.errors import E_STORAGE, OK
from drupelet.channel.sender_keys import OVERHEAD, SenderKeys
from drupelet.seal.record import RECORD_SIZE, is_sound
from drupelet_host.base.aead import Aead


class Keys:
    """A key port in RAM."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}
        self.saves = 0
        self.fails = False

    def load(self, row: int, out: bytearray) -> int:
        if row not in self.records:
            return E_STORAGE
        out[:] = self.records[row]
        return OK

    def save(self, row: int, record: bytearray) -> int:
        if self.fails:
            return E_STORAGE
        self.saves += 1
        self.records[row] = bytes(record)
        return OK

    def drop(self, row: int) -> int:
        self.records.pop(row, None)
        return OK


class Member:
    """Somebody with sender keys."""

    def __init__(
        self, seed: int, keys: Keys | None = None, fallback: bool = False, id: int = 0
    ) -> None:
        draw = random.Random(seed)
        self._seed = seed
        self._id = id or seed
        self.keys = keys or Keys()
        aead = Ccm(Aes) if fallback else Aead()
        self.seal = SenderKeys(
            aead, self.keys, self._id.to_bytes(4), lambda: draw.randrange(256), 3
        )
        if self.seal.load() != OK:
            assert self.seal.create() == OK

    def switched_on_again(self) -> "Member":
        """The same member after a restart: its next frame opens an epoch."""
        return Member(self._seed + 1000, self.keys, id=self._id)

    def record(self) -> bytes:
        out = bytearray(RECORD_SIZE)
        assert self.seal.record_into(out, 0) and is_sound(out)
        return bytes(out)

    def say(self, text: bytes) -> bytes:
        out = bytearray(200)
        size = self.seal.seal_into(out, text, len(text))
        assert size == len(text) + OVERHEAD
        return bytes(out[:size])

    def hear(self, frame: bytes, now_ms: int = 0) -> bytes | int:
        buf = bytearray(frame)
        size = self.seal.open(buf, len(buf), now_ms)
        return bytes(buf[self.seal.at : self.seal.at + size]) if size >= 0 else size
