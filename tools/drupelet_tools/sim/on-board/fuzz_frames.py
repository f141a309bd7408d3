# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""Feeds one parser mutated frames, on CPython and MicroPython alike; prints one line of JSON.

stdin: {"parser", "frames", "seed"}. Sound frames come from the real thing: two nodes that talk,
two seals, a COBS encoder. Each frame that is fed has been flipped, cut, joined or made of noise.
Heap in use after a collection is taken when a tenth is done and at the end: it must not grow.
"""

import gc
import json
import sys

from drupelet.files import RamFiles
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    SHARED,
    Node,
)
from drupelet.store import FlashStore

PROFILES = {"bsp-1": 0, "mvds-1": 1, "mvds-nested": 2, "mvds-5001": 3, "compact-1": 4}
SIZE = 1024
SOUND_MAX = 24


class Draw:
    """Numbers of a seed, the same on every interpreter; small ints of a 32-bit board."""

    def __init__(self, seed):
        self.state = (seed * 7919 + 12345) & 0x3FFFFFFF

    def __call__(self, below):
        """A number 0 <= n < below (.. 2^12)."""
        state = self.state
        low = (state & 0x7FFF) * 0x3D09 + 0x1537
        high = (state >> 15) * 0x3D09 + (low >> 15)
        self.state = state = (low & 0x7FFF) | (high & 0x7FFF) << 15
        return ((state >> 12) & 0xFFF) * below >> 12


def make_node(profile, peer, draw):
    """A node with one link; its store is in RAM, and small: the parsers are looked at here."""
    store = FlashStore(RamFiles(1 << 20, 2048, 10), 1024, 4, 4, 2, 512)
    store.open()
    node = Node(store, lambda: draw(256), 1, 1, 8, 8, parts_max=1)
    family = FAMILY_MVDS if 1 <= profile <= 3 else FAMILY_BSP
    group = node.join_id(bytes(range(32)), family)
    number = node.add_peer(peer)
    node.share(group, number, SHARED)
    node.boot(0)
    link = node.link(number, profile, CARRIER_SERIAL, 1000, INTERACTIVE if profile else BATCH)
    return node, group, link


class LinkFuzz:
    """A whole link: frame kinds, the profile's records, segments, states."""

    def __init__(self, profile, draw):
        self.node, group, self.link = make_node(profile, b"B___", draw)
        self.sound = []
        self.frame = bytearray(200)
        other, there, back = make_node(profile, b"A___", draw)
        sides = ((self.node, group, self.link, b"a"), (other, there, back, b"b"))
        for node, number, link, name in sides:
            for size in (3, 40, 400):
                body = b"\x00" + name + bytes(size)
                node.publish(number, body, len(body), bytes(6) + b"\x01" + name, 0)
            link.greet()
        for epoch in range(10):
            for node, _, link, _ in sides:
                target = back if link is self.link else self.link
                for _ in range(8):
                    size = link.poll_into(self.frame, epoch * 1000)
                    if not size:
                        break
                    if len(self.sound) < SOUND_MAX:
                        self.sound.append(bytes(self.frame[:size]))
                    target.receive(self.frame, size, epoch * 1000)
                while node.next_event():
                    node.done(node.event_handle)
        self.now_ms = 20_000
        self.count = 0

    def feed(self, buf, size):
        """One frame; whether it was taken."""
        self.now_ms = (self.now_ms + 70) & 0x3FFFFFFF
        code = self.link.receive(buf, size, self.now_ms)
        self.count += 1
        if not self.count & 7:
            while self.link.poll_into(self.frame, self.now_ms):
                pass
            while self.node.next_event():
                self.node.done(self.node.event_handle)
        return code == 0


class CobsFuzz:
    """The decoder of a serial line."""

    def __init__(self, draw):
        from drupelet_transports.framing import Decoder, encode_into, wire_size_max

        self.decoder = Decoder(256)
        self.sound = []
        for size in (1, 5, 60, 254, 255, 256):
            frame = bytearray(draw(256) for _ in range(size))
            wire = bytearray(wire_size_max(size))
            self.sound.append(bytes(wire[: encode_into(wire, frame, size)]))

    def feed(self, buf, size):
        at = 0
        whole = False
        while at < size:
            at = self.decoder.feed(buf, at, size)
            whole = whole or self.decoder.size > 0
        return whole


class MqttFuzz:
    """The packet reader of the boards' MQTT client."""

    def __init__(self, draw):
        from drupelet_transports.mqtt_packet import PacketReader, payload_start, publish_into

        self.reader = PacketReader(256)
        self.payload_start = payload_start
        out = bytearray(300)
        self.sound = [b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x00", b"\xd0\x00"]
        for size in (1, 60, 200):
            frame = bytes(draw(256) for _ in range(size))
            self.sound.append(bytes(out[: publish_into(out, b"t/0000/1111", frame, size)]))

    def feed(self, buf, size):
        reader = self.reader
        at = 0
        taken = False
        while at < size:
            at = reader.feed(buf, at, size)
            if reader.broken:
                reader.reset()
                break
            if reader.ready:
                start = self.payload_start(reader.body, reader.size)
                taken = taken or start >= 0
                reader.release()
        return taken


class RamKeys:
    """A key port without a medium."""

    def __init__(self, own, peer):
        self.own_id = own
        self.peer_id = peer
        self.records = {}

    def load(self, row, out):
        if row not in self.records:
            return -3
        out[:52] = self.records[row]
        return 0

    def save(self, row, record):
        self.records[row] = bytes(record[:52])
        return 0

    def drop(self, row):
        self.records.pop(row, None)
        return 0

    def revoke(self, id, at):
        return -1


class SealFuzz:
    """The opening of sealed frames."""

    def __init__(self, draw):
        from drupelet.aes import Aes
        from drupelet.ccm import Ccm
        from drupelet.seal import CLASS_LIVE, Seal, SealContext
        from drupelet.seal_record import install

        seals = []
        for own, peer in ((b"A___", b"B___"), (b"B___", b"A___")):
            keys = RamKeys(own, peer)
            install(keys, bytes(range(32)), 0x0124, 0, 0)
            context = SealContext(Ccm(Aes), lambda: draw(256), bytes(4))
            seals.append(Seal(context, keys, CLASS_LIVE))
            seals[-1].load()
        self.seal = seals[0]
        self.sound = []
        out = bytearray(SIZE)
        for size in (1, 20, 60, 200, 60, 20):
            seals[1].prepare()
            made = seals[1].seal_into(out, bytearray(size), size, 0)
            self.sound.append(bytes(out[:made]))
        self.now_ms = 0

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 5) & 0x3FFFFFFF
        return self.seal.open(buf, size, self.now_ms) >= 0


class SdsFuzz:
    """The decoder of channel messages."""

    def __init__(self, draw):
        from drupelet.wire.sds import Decoder

        self.decoder = Decoder()
        one = b"\x0a\x05alice\x12\x04id-1\x1a\x04chan\x50\x96\x01"
        entry = b"\x0a\x04id-0\x12\x04hint\x1a\x03bob"
        causal = b"\x5a" + bytes((len(entry),)) + entry
        self.sound = [
            one + causal + b"\x62\x10" + bytes(draw(256) for _ in range(16)),
            one + causal + causal + b"\x6a" + bytes((len(entry),)) + entry,
            one + b"\xa2\x01\x05hello",
        ]

    def feed(self, buf, size):
        decoder = self.decoder
        if decoder.open(buf, 0, size):
            return False
        for kind in (11, 13):
            decoder.rewind()
            while decoder.next(kind):
                pass
        return True


def make(parser, draw):
    """The parser of a name."""
    if parser in PROFILES:
        return LinkFuzz(PROFILES[parser], draw)
    return {"cobs": CobsFuzz, "mqtt": MqttFuzz, "seal": SealFuzz, "sds": SdsFuzz}[parser](draw)


def mutate(draw, sound, buf):
    """Put a frame that was changed into the buffer; its size, at least 1."""
    one = sound[draw(len(sound))]
    size = len(one)
    buf[:size] = one
    how = draw(16)
    if how == 0:
        size = 1 + draw(200)
        for at in range(size):
            buf[at] = draw(256)
    elif how == 1:
        two = sound[draw(len(sound))]
        more = min(len(two), SIZE - size)
        buf[size : size + more] = two[:more]
        size += more
    elif how < 5:
        size = 1 + draw(size)
    if how != 5:
        for _ in range(1 + draw(3)):
            buf[draw(min(size, 4096))] = draw(256) if draw(2) else 255 * draw(2)
    return size


def heap():
    """Bytes (CPython: blocks) in use after a collection."""
    gc.collect()
    if hasattr(gc, "mem_alloc"):
        return gc.mem_alloc()
    return sys.getallocatedblocks()


def main():
    """Read the task, feed, print."""
    task = json.loads(sys.stdin.readline())
    draw = Draw(task["seed"])
    frames = task["frames"]
    target = make(task["parser"], draw)
    sound = target.sound
    feed = target.feed
    buf = bytearray(SIZE)
    taken = early = 0
    tenth = frames // 10
    for number in range(frames):
        if number == tenth:
            early = heap()
        taken += feed(buf, mutate(draw, sound, buf))
    late = heap()
    print(
        json.dumps(
            {
                "parser": task["parser"],
                "frames": frames,
                "taken": taken,
                "heap_early": early,
                "heap_late": late,
            }
        )
    )


main()
