# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed of SDS: the decoder of messages, and a whole channel."""

import gc

import drupelet.channel.lamport  # leaves first: imports nest deeply else
import drupelet.wire.sds.bloom  # noqa: F401 - likewise
from drupelet.channel.channel import Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom
from drupelet.wire.sds.message import Decoder

# What CPython remembers of ids (base/_murmur_ints.py): filled at once, so that nothing grows.
HASHES_KEPT = 4096
START = (1_790_000_000_000).to_bytes(8, "little")
SOUND_MAX = 24


class SdsFuzz:
    """The decoder of channel messages."""

    def __init__(self, parser, draw):
        self.decoder = Decoder()
        head = b"\x0a\x05alice\x12\x04id-1\x1a\x04chan\x50\x96\x01"
        entry = b"\x0a\x04id-0\x12\x04hint\x1a\x03bob"
        causal = b"\x5a" + bytes((len(entry),)) + entry
        self.sound = [
            head + causal + b"\x62\x10" + bytes(draw(256) for _ in range(16)),
            head + causal + causal + b"\x6a" + bytes((len(entry),)) + entry,
            head + b"\xa2\x01\x05hello",
        ]

    def fix(self, buf, size, word):
        return size

    def feed(self, buf, size):
        decoder = self.decoder
        if decoder.open(buf, 0, size):
            return 0
        entries = 0
        for kind in (11, 13):
            decoder.rewind()
            while decoder.next(kind):
                entries += 1
        return 3 if entries else 1


def make(name, draw):
    """A channel with a small memory that repairs."""
    settings = Settings()
    settings.repair = True
    keeper = RamKeeper(24, 400)
    channel = Channel(b"chan", name, keeper, Bloom(50, 10, 7), lambda: draw(256), settings, 0)
    channel.clock.set_wall(START, 0, True)
    return channel


class ChannelFuzz:
    """A participant that hears what two others never said like this."""

    def __init__(self, parser, draw):
        self.channel = make(b"anna", draw)
        others = [make(b"ben", draw), make(b"cleo", draw)]
        self.frame = bytearray(512)
        self.sound = []
        self.now_ms = 0
        for number in range(24):
            self.now_ms += 4000
            here = others[number & 1]
            here.publish(b"text", 0, 4, self.now_ms, b"id-%02d" % number)
            size = here.poll_into(self.frame, self.now_ms)
            while size:
                if len(self.sound) < SOUND_MAX:
                    self.sound.append(bytes(self.frame[:size]))
                if number % 3:  # what is not heard has to be asked for
                    others[1 - (number & 1)].receive(self.frame, size, self.now_ms)
                size = here.poll_into(self.frame, self.now_ms)
            for other in others:
                while other.next_event():
                    pass
        self.count = 0
        for number in range(0 if hasattr(gc, "mem_alloc") else HASHES_KEPT):
            self.channel.bloom.key_into(self.frame, 0, bytearray(b"kept %04d" % number), 0, 9)

    def fix(self, buf, size, word):
        return size

    def feed(self, buf, size):
        self.now_ms = now_ms = (self.now_ms + 70) & 0x3FFFFFFF
        channel = self.channel
        result = 0 if channel.receive(buf, size, now_ms) < 0 else 1
        self.count += 1
        if not self.count & 7:
            if channel.poll_into(self.frame, now_ms):
                result |= 2
            channel.wake_ms(now_ms)
        while channel.next_event():
            pass
        if not self.count & 0xFF and channel.outbox.rows.count < 4:
            channel.publish(b"mine", 0, 4, now_ms)
        return result
