"""Channels for tests: a participant, frames made by hand, and what a frame says."""

import random
from functools import partial

from drupelet.base.errors import OK
from drupelet.channel.channel import EVENT_MESSAGE, Channel
from drupelet.channel.ports import KeeperPort
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.relay import repeat_newest_into
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom
from drupelet.wire.sds.message import (
    BLOOM,
    CAUSAL,
    CHANNEL_ID,
    CONTENT,
    MESSAGE_ID,
    REPAIR,
    SENDER_ID,
    Decoder,
    Encoder,
)

START_MS = 1_790_000_000_000
CHANNEL = b"0"
FRAME_SIZE = 1024
Entry = tuple[bytes, bytes | None, bytes | None]  # id, hint, sender


class Said:
    """A frame taken apart."""

    def __init__(self, wire: bytes) -> None:
        got = Decoder()
        assert got.open(wire, 0, len(wire)) == OK

        def part(at: int, size: int) -> bytes | None:
            return bytes(wire[at : at + size]) if at >= 0 else None

        self.wire = wire
        self.sender = part(got.sender_at, got.sender_size)
        self.id = part(got.id_at, got.id_size) or b""
        self.channel = part(got.channel_at, got.channel_size)
        self.lamport = int.from_bytes(got.lamport, "little") if got.has_lamport else None
        self.bloom = part(got.bloom_at, got.bloom_size)
        self.content = part(got.content_at, got.content_size)
        self.entries: dict[int, list[Entry]] = {}
        for kind in (CAUSAL, REPAIR):
            got.rewind()
            self.entries[kind] = []
            while got.next(kind):
                self.entries[kind].append(
                    (
                        bytes(wire[got.entry_at : got.entry_at + got.entry_size]),
                        part(got.hint_at, got.hint_size),
                        part(got.entry_sender_at, got.entry_sender_size),
                    )
                )

    @property
    def causal(self) -> list[bytes]:
        return [id for id, _, _ in self.entries[CAUSAL]]

    @property
    def requests(self) -> list[bytes]:
        return [id for id, _, _ in self.entries[REPAIR]]


def wire(
    id: bytes, sender: bytes = b"eve", content: bytes | None = b"x",
    lamport: int | None = START_MS, causal: tuple[bytes, ...] = (), bloom: bytes | None = None,
    repair: tuple[bytes, ...] = (), channel: bytes = CHANNEL, hint: bytes | None = None,
    author: bytes | None = None,
) -> bytearray:  # fmt: skip
    """A frame made by hand."""
    out = Encoder()
    size = (
        2000 + sum(map(len, (*causal, *repair, content or b"", bloom or b""))) + 20 * len(causal)
    )
    out.open(bytearray(size + 20 * len(repair)), size)
    code = out.put_text(SENDER_ID, sender, 0, len(sender))
    code |= out.put_text(MESSAGE_ID, id, 0, len(id))
    code |= out.put_text(CHANNEL_ID, channel, 0, len(channel))
    if lamport is not None:
        code |= out.put_lamport(lamport.to_bytes(8, "little"))
    for kind, ids in ((CAUSAL, causal), (BLOOM, ()), (REPAIR, repair)):
        if kind == BLOOM and bloom is not None:
            code |= out.put_bytes(BLOOM, bloom, 0, len(bloom))
        for one in ids:
            code |= out.put_entry(
                kind, one, 0, len(one), hint or b"", 0, -1 if hint is None else len(hint),
                author or b"", 0, -1 if author is None else len(author),
            )  # fmt: skip
    if content is not None:
        code |= out.put_bytes(CONTENT, content, 0, len(content))
    assert code == OK
    return out.buf[: out.at]


class Talker:
    """A participant at a time of its own."""

    def __init__(
        self, name: bytes = b"ann", seed: int = 1, kept: int = 128, trusted: bool = True,
        channel: bytes = CHANNEL, keeper: KeeperPort | None = None, **settings: int | bool,
    ) -> None:  # fmt: skip
        made = Settings()
        for key, value in settings.items():
            assert hasattr(made, key), key
            setattr(made, key, value)
        self.draw = random.Random(seed)
        self.now_ms = 0
        self.channel = Channel(
            channel, name, keeper or RamKeeper(kept, FRAME_SIZE), Bloom(100, 10, 7),
            lambda: self.draw.randrange(256), made, 0,
        )  # fmt: skip
        if not made.send_sync:
            made.ask_into = partial(repeat_newest_into, self.channel)
        if trusted:
            self.channel.clock.set_wall(START_MS.to_bytes(8, "little"), 0, True)
        self.frame = bytearray(FRAME_SIZE)
        self.events: list[tuple[int, bytes]] = []

    def publish(self, content: bytes, id: bytes | None = None) -> int:
        return self.channel.publish(content, 0, len(content), self.now_ms, id)

    def hear(self, frame: bytes | bytearray) -> int:
        frame = bytearray(frame)
        code = self.channel.receive(frame, len(frame), self.now_ms)
        self.drain()
        return code

    def drain(self) -> None:
        while event := self.channel.next_event():
            self.events.append((event, self.id_of(self.channel.event_handle)))

    def say(self) -> list[Said]:
        """All that is due now."""
        found = []
        while size := self.channel.poll_into(self.frame, self.now_ms):
            found.append(Said(bytes(self.frame[:size])))
            assert len(found) < 100
        self.drain()
        return found

    def wait(self, ms: int) -> None:
        self.now_ms = (self.now_ms + ms) & 0x3FFFFFFF

    def later(self, ms: int) -> list[Said]:
        """What is said at the times at which the channel wakes, up to `ms` from now."""
        end_ms = self.now_ms + ms
        found = []
        for _ in range(10_000):
            wait_ms = self.channel.wake_ms(self.now_ms)
            if self.now_ms + wait_ms > end_ms:
                break
            self.now_ms += wait_ms
            found += self.say()
        self.now_ms = end_ms
        return found

    def id_of(self, handle: int) -> bytes:
        size = self.channel.keeper.load(handle)
        return Said(bytes(self.channel.keeper.work[:size])).id if size else b""

    @property
    def log(self) -> list[bytes]:
        rows = self.channel.log.rows
        return [self.id_of(rows.handle(row)) for row in range(rows.count)]

    @property
    def delivered(self) -> list[bytes]:
        return [id for event, id in self.events if event == EVENT_MESSAGE]

    @property
    def state(self) -> dict[bytes, int]:
        """Outgoing messages and their states."""
        rows = self.channel.outbox.rows
        return {self.id_of(rows.handle(row)): rows.state(row) for row in range(rows.count)}


def publish_one(talker: Talker, content: bytes, id: bytes | None = None) -> Said:
    """Publish, and what goes out."""
    assert talker.publish(content, id) > 0
    [said] = talker.say()
    return said


def filter_of(*ids: bytes) -> bytes:
    """The bytes of a filter that has these ids."""
    bloom = Bloom(100, 10, 7)
    key = bytearray(8)
    for id in ids:
        bloom.key_into(key, 0, id, 0, len(id))
        bloom.add(key, 0)
    return bytes(bloom.bits)
