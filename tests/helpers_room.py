"""A real channel of either dialect as a participant of a simulated room, which may be rebooted."""

import random

from drupelet.base.errors import E_CAPACITY
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE, Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom
from drupelet.wire.sds.nim import from_sds
from drupelet_host.channel.nim_dialect import NimChannel
from helpers_channel import START_MS

ROOM = b"room"
KEPT = 512
FRAME_SIZE = 2048
NOW_MASK = (1 << 30) - 1


class Ours:
    """The real channel; a reboot makes it anew over what its keeper holds."""

    def __init__(self, name: str, dialect: str, seed: int) -> None:
        self.name = name
        self.dialect = dialect
        self.draw = random.Random(seed)
        self.keeper = RamKeeper(KEPT, FRAME_SIZE)
        self.delivered: list[str] = []
        self.now = 0
        self._boot()

    def _boot(self) -> None:
        name = self.name.encode()
        random_byte = lambda: self.draw.randrange(256)  # noqa: E731
        self.nim: NimChannel | None = None
        if self.dialect == "sds-nim":
            self.nim = NimChannel(
                ROOM, name, self.keeper, random_byte, Settings(), self.now_ms, capacity=100,
                error_rate=0.01,
            )  # fmt: skip
            self.channel = self.nim.channel
        else:
            bloom = Bloom(100, 10, 7)
            self.channel = Channel(
                ROOM, name, self.keeper, bloom, random_byte, Settings(), self.now_ms
            )
        self._set_wall()

    @property
    def now_ms(self) -> int:
        return self.now * 1000 & NOW_MASK

    @property
    def wall(self) -> int:
        return (START_MS // 1000 + self.now) * (1 if self.nim else 1000)

    def _set_wall(self) -> None:
        self.channel.clock.set_wall(self.wall.to_bytes(8, "little"), self.now_ms, True)

    def reboot(self) -> None:
        self._boot()
        if self.nim is None:
            self.channel.restore(self.now_ms)

    def publish(self, content: bytes) -> bool:
        code = self.channel.publish(content, 0, len(content), self.now_ms)
        assert code > 0 or code == E_CAPACITY
        return code > 0

    def frames(self) -> list[bytes]:
        self._set_wall()
        out = []
        while True:
            if self.nim is not None:
                frame = self.nim.poll(self.now_ms)
            else:
                buffer = bytearray(FRAME_SIZE)
                frame = bytes(buffer[: self.channel.poll_into(buffer, self.now_ms)])
            self._drain()
            if not frame:
                return out
            out.append(frame)

    def receive(self, frame: bytes) -> None:
        if self.nim is not None:
            self.nim.receive(frame, self.now_ms)
        else:
            self.channel.receive(bytearray(frame), len(frame), self.now_ms)
        self._drain()

    def _drain(self) -> None:
        while event := self.channel.next_event():
            assert event != EVENT_GAP
            if event == EVENT_MESSAGE:
                size = self.keeper.load(self.channel.event_handle)
                message = from_sds(bytes(self.keeper.work[:size]))
                self.delivered.append(message.content.decode())
