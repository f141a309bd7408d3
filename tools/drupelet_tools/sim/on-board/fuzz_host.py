# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed of hosts, on CPython: bsp-0, sketches, filters, remote logs, black boxes."""

import binascii
import hashlib
import struct

import fuzz_links

from drupelet.base.errors import PeerError
from drupelet.base.memory import copy, crc32_into
from drupelet.clients.bsp0 import join
from drupelet.node import CARRIER_SERIAL, INTERACTIVE, SHARED, Node
from drupelet.wire.bsp0 import records as bsp0
from drupelet.wire.bsp0.session import Session
from drupelet.wire.protobuf_bytes import varint
from drupelet.wire.sds.nim import Entry, Message, decode, encode, from_sds, read_filter, to_sds
from drupelet.wire.sketch.recovery import Recovery, shared_ids
from drupelet.wire.sketch.sketch import Sketch
from drupelet_host.remote.log import take_message
from drupelet_host.remote.log_bytes import (
    SEAL_MESSAGE,
    SEAL_PAGE,
    FeedKeys,
    Page,
    Pair,
    decode_message,
    decode_page,
    put_field,
)
from drupelet_host.remote.log_bytes import Message as LogMessage
from drupelet_host.remote.store_service import ADD, FETCH, GET, UPDATE, StoreService, frames_of
from drupelet_tools.telemetry.blackbox.decode import read_header
from drupelet_tools.telemetry.tables.summary import read, summarise

PROFILE_BSP_0 = 5
# Segments that are decoded together, as in a job.
BATCH_SEGMENTS = 64


class Bsp0Fuzz:
    """A connection as Briar's: the stream in pieces, a new session when one is over."""

    def __init__(self, parser, draw):
        store = fuzz_links.QuickStore(
            fuzz_links.CountingFiles(1 << 20, 2048, 10), 1024, 4, 4, 2, 512
        )
        store.open()
        self.node = Node(store, lambda: draw(256), 1, 1, 8, 8, parts_max=1)
        group = join(self.node, "org.example.readings", 1, b"fuzz")
        number = self.node.add_peer(b"B___")
        self.node.share(group, number, SHARED)
        self.node.boot(0)
        self.node.publish(group, b"own", 3, bytes(7) + b"\x01", 0)
        self.link = self.node.link(number, PROFILE_BSP_0, CARRIER_SERIAL, 1000, INTERACTIVE)
        self.rivals = []
        self.session = None
        self.now_ms = 0
        row = self.node.core.members.group_row(group)
        id = bytes(self.node.core.members.group_ids[32 * row : 32 * row + 32])
        ids = [bytes((n,)) * 32 for n in range(1, 5)]
        message = id + bytes(7) + b"\x05" + b"body"
        parts = [bsp0.record(kind, b"".join(ids[:n])) for kind in (0, 2, 3) for n in (1, 3)]
        parts += [bsp0.record(1, message), bsp0.record(4, b"\x00"), bsp0.record(5, bytes(16))]
        self.sound = [*parts, b"".join(parts)]

    def fix(self, buf, size, word):
        if word >> 18 and size >= 4:  # a record of what is there
            buf[0] = 0
            buf[1] %= 8
            if buf[1] in (0, 2, 3):
                size = 4 + max(1, (size - 4) // 32) * 32
            buf[2:4] = (size - 4).to_bytes(2)
        return size

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 70) & 0x3FFFFFFF
        if self.session is None:
            self.session = Session(self.link, self.rivals)
            self.session.feed(b"\x00\x04\x00\x01\x00", self.now_ms)
        session = self.session
        code = 0
        malformed = self.node.malformed
        for at in range(0, size, 200):
            code = code or session.feed(bytes(buf[at : min(size, at + 200)]), self.now_ms)
        result = 0 if code or self.node.malformed != malformed else 1
        if session.poll(self.now_ms):
            result |= 2
        fuzz_links.drain(self.node)
        if code or self.now_ms & 15 == 0:
            session.end()
            self.session = None
        return result


def bare(draw, parser="compact-1"):
    """A node with a link and some messages in its log."""
    profile = fuzz_links.PROFILES[parser]
    node, group, links = fuzz_links.make_node(profile, [b"B___"], draw)
    for number in range(12):
        body = b"\x00" + bytes((number,)) * 20
        node.publish(group, body, len(body), bytes(7) + bytes((number + 1,)), 0)
    fuzz_links.drain(node)
    return node, group, links[0]


class SketchFuzz:
    """SKETCH records at a host: those of a peer that lost state, and answers to its own."""

    def __init__(self, parser, draw):
        self.draw = draw
        self.node, _, self.link = bare(draw)
        self.recovery = Recovery(self.link, self.salt)
        ids = shared_ids(self.link.exchange)
        more = [hashlib.blake2s(bytes((n,))).digest() for n in range(40)]
        self.sound = []
        for held in (ids, ids[:8] + more, more):
            sketch = Sketch(held, b"salt")
            while record := sketch.next(200):
                self.sound.append(record)
        prefixes = b"".join(id[:8] for id in ids[:2])
        self.sound.append(b"\x02salt" + bytes(4) + varint(2) + prefixes)
        self.sound.append(b"\x01salt" + varint(0) + varint(8))
        self.sound.append(b"\x03salt")
        self.own = self.salt()
        self.frame = bytearray(300)
        self.recovery.begin()

    def salt(self):
        self.own = bytes(self.draw(256) for _ in range(4))
        return self.own

    def fix(self, buf, size, word):
        if word >> 17 and buf[0] in (1, 2, 3) and size >= 5:
            buf[1:5] = self.own  # an answer to what is under way
        return size

    def feed(self, buf, size):
        epochs = self.link.core.clocks.epochs
        epochs[self.link.peer] = (self.link.exchange.epoch + 1) & 0xFFFF
        taken = self.recovery.take(buf, 0, size)
        if not self.recovery.is_open():
            self.recovery.begin()
        left = self.recovery.put_into(self.frame, 0, len(self.frame))
        return (1 if taken else 0) | (2 if left else 0)


class NimFuzz:
    """Messages of dialect sds-nim, their filters, and their way into dialect sds and back."""

    def __init__(self, parser, draw):
        bits = (
            b"\x0a\x10" + bytes(draw(256) & 0x55 for _ in range(16)) + b"\x10\x0a\x20\x05\x28\x60"
        )
        entries = [Entry(b"id-0", b"hint", b"bob"), Entry(b"id-9")]
        self.sound = []
        for causal, repair in ((entries, []), ([], entries), (entries, entries)):
            for bloom in (None, bits):
                message = Message(b"alice", b"id-1", b"chan", 300, causal, bloom, repair, b"text")
                self.sound.append(encode(message))

    def fix(self, buf, size, word):
        return size

    def feed(self, buf, size):
        try:
            message = decode(bytes(buf[:size]))
        except PeerError:
            return 0
        result = 1
        if message.bloom and read_filter(message.bloom) is not None:
            result = 3
        if message.lamport is None or message.lamport >= 0:
            from_sds(to_sds(message))
        return result


class RemoteLogFuzz:
    """Pages, messages and pointers of a remote log, sealed by somebody who holds its root."""

    def __init__(self, parser, draw):
        self.keys = FeedKeys(bytes(range(32)))
        self.node, self.group, self.link = bare(draw, "bsp-1")
        pair = Pair(b"i" * 32, address=b"a" * 32)
        page = Page([pair, Pair(b"j" * 32, data=b"body"), Pair(b"k" * 32)], b"t" * 32)
        messages = [
            LogMessage(fuzz_links.GROUP, stamp, b"\x00body").encode()
            for stamp in (0, 300, 1 << 40)
        ]
        self.sound = [page.encode(), Page([pair], b"").encode(), *messages]
        self.sound.append(bytes(8) + b"h" * 32 + bytes(12))
        self.turn = 0

    def fix(self, buf, size, word):
        self.turn = (2 if buf[1] == 32 else 1) if buf[0] == 10 else 0
        if word >> 17 == 0:  # what nobody sealed
            self.turn |= 4
        elif not self.turn:
            size = 52 if word & 3 else size
        elif self.turn == 2 and word & 1:
            copy(buf, 2, fuzz_links.GROUP, 0, 32)
            size = max(size, 34)
        return size

    def feed(self, buf, size):
        content = bytes(buf[:size])
        keys = self.keys
        try:
            if self.turn & 4:
                keys.open(SEAL_PAGE, content)
            elif self.turn == 0:
                keys.open_pointer(content[:8] + keys.seal(1, content[8:], content[:8]))
            elif self.turn == 1:
                decode_page(keys.open(SEAL_PAGE, keys.seal(SEAL_PAGE, content)))
            else:
                sealed = keys.seal(SEAL_MESSAGE, content)
                message = decode_message(keys.open(SEAL_MESSAGE, sealed))
                if message.group == fuzz_links.GROUP:
                    take_message(self.node, self.group, self.link, message, 0)
                    fuzz_links.drain(self.node)
                    return 3
        except PeerError:
            return 0
        return 1


class RamRemote:
    """A remote store of a few contents."""

    def __init__(self):
        self.held = {}

    def add(self, content):
        return self.put(hashlib.blake2s(content).digest(), content)

    def put(self, name, content):
        self.held[name] = content
        if len(self.held) > 8:
            self.held.pop(next(iter(self.held)))
        return name

    def get(self, address):
        return self.held.get(address)

    fetch = get

    def drop(self, address):
        self.held.pop(address, None)

    def update(self, name, content):
        self.put(name, content)
        return True


class RemoteStoreFuzz:
    """Calls of a remote store, in frames."""

    def __init__(self, parser, draw):
        self.key = bytes(range(32))
        self.service = StoreService(RamRemote(), self.key)
        self.sound = []
        for verb in (ADD, GET, UPDATE, FETCH, 3, 9):
            content = bytearray((verb,))
            put_field(content, 1, bytes(32))
            put_field(content, 2, b"content of a page")
            self.sound.append(bytes(content))
        self.number = 0

    def fix(self, buf, size, word):
        if word >> 18 == 0:
            return size
        self.number = self.number + (word & 1) & 0xFFFFFFFF
        frames = frames_of(self.key, b"B___", self.number, bytes(buf[:size]))
        frame = bytearray(frames[word >> 1 & 3 if len(frames) > word >> 1 & 3 else 0])
        if word & 0x38 == 8:
            frame[(word >> 6) % 12] ^= 1
        buf[: len(frame)] = frame
        return len(frame)

    def feed(self, buf, size):
        refused = self.service.assembler.refused
        answers = self.service.answer(bytes(buf[:size]))
        return (1 if self.service.assembler.refused == refused else 0) | (2 if answers else 0)


class BlackBoxFuzz:
    """Segments of black boxes: header, blocks, and all that is added up from them."""

    def __init__(self, parser, draw):
        self.batch = []
        self.good = 0
        self.number = 0
        self.sound = []
        for boot in (1, 2, 700):
            for count in (1, 9, 41):
                head = struct.pack(
                    "<4sBBH8sIHIH", b"DRBX", 1, 1, boot, b"\xa1\xb2\xc3\xd4", 1, 0, 27_000_000, 5
                )
                events = b"".join(
                    struct.pack("<IBBHI", at * 50, 1 + draw(44), draw(256), draw(256), draw(4096))
                    for at in range(count)
                )
                block = struct.pack("<BBHHHI", 0xB1, count, 0, boot, 9, 0) + bytes(4) + events
                box_frame = bytearray(head + bytes(4) + block + bytes(512 - len(block)))
                self.sound.append(bytes(box_frame))

    def fix(self, buf, size, word):
        if word >> 17 == 0:
            return size
        if word & 7:
            size = 544
            buf[:6] = b"DRBX\x01\x01"
            buf[16:20] = (self.number & 0xFF).to_bytes(4, "little")
            self.number += word >> 3 & 1
            buf[32] = 0xB1
            buf[33] %= 48
            buf[34:36] = bytes(2)
            copy(buf, 36, buf, 6, 2)
        crc32_into(buf, 28, buf, 0, 28, True)
        if size == 544:
            buf[44:48] = bytes(4)
            buf[44:48] = binascii.crc32(buf[32:544]).to_bytes(4, "little")
        return size

    def feed(self, buf, size):
        data = bytes(buf[:size])
        if isinstance(read_header(data), str):
            return 0
        self.batch.append(data)
        if len(self.batch) == BATCH_SEGMENTS:
            log = read(self.batch)
            summarise(log)
            self.good += len(set(log.chunk.owner.tolist()))
            self.batch.clear()
        if self.good:  # of the batch before
            self.good -= 1
            return 3
        return 1
