"""Runs on a board: the core's hot path under `heap_lock`, with a store in preallocated RAM.

Arguments: batch or interactive. Prints a line `name calls records bytes` per part of the hot path;
bytes is what a whole run of it allocates without the lock, and any allocation under the lock ends
the program with an exception.
"""

import sys

import heap_check

from drupelet.base.memory import copy
from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox

# Named constants are numbers in compiled firmware: their names are not there.
BATCH, INTERACTIVE = 0, 1
PROFILE_BSP_1 = 0
SHARED = 2
AUTHORED = 120
MESSAGES = 560
WARM_UP = 12
IDLE_EPOCHS = 1000
BODY_SIZE = 4
INVALID_ROUNDS = 100

mode = BATCH if sys.argv[1] == "batch" else INTERACTIVE
frame = bytearray(1024)
stamp = bytearray(8)
payload = bytearray(BODY_SIZE)


class End:
    """One of two nodes, and its link to the other."""

    def __init__(self, name, other):
        # One segment takes the whole run: making a file is an occasion of its own.
        store = FlashStore(RamFiles(1 << 20, 65535, 6), segment_size=65535, segments_max=4)
        store.open()
        self.box = BlackBox(name, 1)
        self.node = Node(store, lambda: 7, 2, 2, 16, 16, self.box)
        self.group = self.node.join(READINGS_CLIENT_ID, b"heap")
        peer = self.node.add_peer(other)
        self.node.share(self.group, peer, SHARED)
        self.node.boot(0)
        self.author = Author(self.node, self.group)
        self.link = self.node.link(peer, PROFILE_BSP_1, 0, 1000, mode)
        self.records = 0


a = End(b"AAAA", b"BBBB")
b = End(b"BBBB", b"AAAA")


class Clock:
    """What both ends share."""

    now_ms = 0
    published = 0


clock = Clock()


def exchange(here, there):
    size = here.link.poll_into(frame, clock.now_ms)
    while size:
        here.link.sent(size + 4)
        there.link.received(size + 4)
        there.link.receive(frame, size, clock.now_ms)
        at = 1
        while at < size and frame[0] == 0x40:
            there.records += 1
            at += 4 + (frame[at + 2] << 8 | frame[at + 3])
        size = here.link.poll_into(frame, clock.now_ms)


def take(end):
    while end.node.next_event():
        end.author.saw(end.node.event_handle)
        end.node.done(end.node.event_handle)
    if end.box.ready:
        end.box.take()
    if clock.now_ms % 20000 == 0:
        end.node.save(clock.now_ms)
    end.node.wake_ms(clock.now_ms)


def epoch():
    clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
    exchange(a, b)
    exchange(b, a)
    take(a)
    take(b)


def publish(end, authored):
    clock.published += 1
    payload[1] = clock.published >> 8
    payload[2] = clock.published & 255
    size = BODY_SIZE
    if authored:
        size = end.author.compose(payload, BODY_SIZE)
    else:
        copy(end.author.body, 0, payload, 0, size)  # a body without dependencies
    handle = end.node.publish(end.group, end.author.body, size, stamp, clock.now_ms)
    assert handle > 0, handle
    end.author.published(handle)


def run_records(count):
    """Publish on both sides, and exchange until all is acknowledged."""
    exchange_all(count, False)


def run_authored(count):
    """The same with messages that depend on one another."""
    exchange_all(count, True)


def exchange_all(count, authored):
    target = clock.published + count
    while clock.published < target:
        publish(a, authored)
        publish(b, authored)
        epoch()
        epoch()
    for _ in range(60):
        epoch()


def run_idle(count):
    for _ in range(count):
        epoch()


def run_losses(count):
    """Frames that are lost: back-off, retransmission, duplicates."""
    publish(a, True)
    for step in range(count):
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        size = a.link.poll_into(frame, clock.now_ms)
        while size:
            if step > count // 2:
                b.link.receive(frame, size, clock.now_ms)
                b.link.receive(frame, size, clock.now_ms)
                b.records += 2
            size = a.link.poll_into(frame, clock.now_ms)
        a.node.wake_ms(clock.now_ms)
        exchange(b, a)
    for _ in range(60):
        epoch()


def record(kind, content, version=1):
    return bytes([version, kind, len(content) >> 8, len(content) & 255]) + content


def invalid_frames():
    group = bytes(b.node.core.members.group_ids[:32])
    unknown = bytes(range(1, 33))
    head = group + bytes(8)
    made = [b"\x40" + record(kind, content, version) for kind, content, version in (
        (0, b"", 1), (2, b"x", 1), (3, bytes(33), 1), (0, unknown, 0), (1, bytes(39), 1),
        (1, bytes(32) + b"\xff" * 8, 1), (77, b"skipped", 1), (0, unknown, 1), (2, unknown, 1),
        (3, unknown, 1), (0, bytes(32), 1), (2, bytes(32), 1), (3, bytes(32), 1),
        (1, bytes(40) + b"\x00other group", 1), (1, head + b"\x05", 1),
        (1, head + b"\x01" + bytes(5), 1), (1, head + b"\x01" + unknown + b"orphan", 1),
        (1, head + b"\x00known", 1),
    )]  # fmt: skip
    made += [b"", b"\x40", b"\x41\x01", b"\x40\x01\x00\x00", b"\x40\x01\x00\x01\x00abc", b"\x50"]
    made += [b"\x50" + unknown[:8] + b"\x00\x64\x00\x00", b"\x50" + bytes(70), b"\x51" + bytes(10)]
    made += [b"\x51" + unknown[:8] + b"\x00\x10", b"\x51", b"\xff" * 50]
    # A first piece of a group that is not ours, and one beyond its total.
    made += [b"\x50" + unknown[:8] + b"\x02\x00\x00\x00" + bytes(60)]
    made += [b"\x50" + unknown[:8] + b"\x00\x30\x00\x20" + bytes(60)]
    return [bytearray(item) for item in made]


bad = invalid_frames()


def run_invalid(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        for item in bad:
            b.link.receive(item, len(item), clock.now_ms)
            b.records += 1
        exchange(b, a)
        take(b)


def long_message(size):
    """Begin one long message from A; outside of the lock, for files are opened."""
    body = bytearray(size)
    body[1] = clock.published & 255
    handle = a.node.publish(a.group, body, size, stamp, clock.now_ms)
    assert handle > 0, handle
    for _ in range(20):
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        size = a.link.poll_into(frame, clock.now_ms)
        while size:
            b.link.receive(frame, size, clock.now_ms)
            if frame[0] == 0x50:
                return
            size = a.link.poll_into(frame, clock.now_ms)
        exchange(b, a)
    raise AssertionError("no piece came")


def run_pieces(count):
    """Pieces into a part file that is open: all but the first and the last."""
    for _ in range(count):
        size = a.link.poll_into(frame, clock.now_ms)
        if not size:
            clock.now_ms = (clock.now_ms + 1000) & 0x3FFFFFFF
            size = a.link.poll_into(frame, clock.now_ms)
        assert size and frame[0] == 0x50, "a piece"
        assert b.link.receive(frame, size, clock.now_ms) == 0


def check(name, call, count, warm_up):
    heap_check.run(name, call, count, warm_up, lambda: a.records + b.records)


check("authored", run_authored, AUTHORED, WARM_UP)
check("records", run_records, MESSAGES, WARM_UP)
assert a.node.delivered == b.node.delivered == clock.published
check("idle", run_idle, IDLE_EPOCHS, 10)
check("losses", run_losses, 40, 40)
check("invalid", run_invalid, INVALID_ROUNDS, 10)
malformed = b.node.malformed
assert malformed > 1000, malformed
for _ in range(3):
    epoch()
long_message(30000)
check("pieces", run_pieces, 15, 5)
for _ in range(60):
    epoch()
assert [incoming.peer for incoming in b.node.core.long.incoming] == [-1, -1]
print("delivered", a.node.delivered, b.node.delivered, "malformed", malformed)
