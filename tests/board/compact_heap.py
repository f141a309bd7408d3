"""Runs on a board: two nodes that speak `compact-1`, with the heap locked.

Arguments: batch or interactive. Prints a line `name calls frames bytes` per part of the hot path;
bytes is what a whole run of it allocates without the lock, and any allocation under the lock ends
the program with an exception.
"""

import sys

import heap_check

from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore

# Named constants are numbers in compiled firmware: their names are not there.
BATCH, INTERACTIVE = 0, 1
PROFILE_COMPACT_1 = 4
SILENT_EPOCHS = 8  # COMPACT_SILENT_EPOCHS of drupelet.base.limits
# Flags: drupelet.wire.compact.hello
FULL = 8
FULL_ASKED = 16
SHARED = 2
MESSAGES = 240
WARM_UP = 12
IDLE_EPOCHS = 1000
INVALID_ROUNDS = 60
BODY_SIZE = 40

mode = BATCH if sys.argv[1] == "batch" else INTERACTIVE
frame = bytearray(1024)
stamp = bytearray(8)
payload = bytearray(BODY_SIZE)


class End:
    """One of two nodes, and its link to the other."""

    def __init__(self, other):
        # One segment takes the whole run: making a file is an occasion of its own.
        store = FlashStore(RamFiles(1 << 20, 65535, 6), segment_size=65535, segments_max=4)
        store.open()
        self.node = Node(store, lambda: 7, 2, 2, 16, 16)
        self.group = self.node.join(READINGS_CLIENT_ID, b"heap")
        peer = self.node.add_peer(other)
        self.node.share(self.group, peer, SHARED)
        self.node.boot(0)
        self.author = Author(self.node, self.group)
        self.link = self.node.link(peer, PROFILE_COMPACT_1, 0, 1000, mode)
        self.frames = 0


a = End(b"BBBB")
b = End(b"AAAA")


class Clock:
    """What both ends share."""

    now_ms = 0
    published = 0


clock = Clock()


def exchange(here, there):
    size = here.link.poll_into(frame, clock.now_ms)
    while size:
        there.frames += 1
        assert frame[0] & 0xFB == 0x40, "compact-1, or bsp-1 where the peer seems to know no other"
        assert there.link.receive(frame, size, clock.now_ms) == 0
        size = here.link.poll_into(frame, clock.now_ms)


def take(end):
    while end.node.next_event():
        end.author.saw(end.node.event_handle)
        end.node.done(end.node.event_handle)
    end.node.wake_ms(clock.now_ms)


def epoch():
    clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
    exchange(a, b)
    exchange(b, a)
    take(a)
    take(b)


def publish(end):
    clock.published += 1
    payload[0] = clock.published & 255
    payload[1] = clock.published >> 8
    stamp[5] = clock.published & 7
    stamp[6] = clock.published >> 8
    stamp[7] = clock.published & 255
    size = end.author.compose(payload, BODY_SIZE)
    handle = end.node.publish(end.group, end.author.body, size, stamp, clock.now_ms)
    assert handle > 0, handle
    end.author.published(handle)


def run_records(count):
    """Publish on both sides, and exchange until all is acknowledged."""
    target = clock.published + count
    while clock.published < target:
        for _ in range(3):
            publish(a)
            publish(b)
        epoch()
        epoch()
    for _ in range(20):
        epoch()


def run_idle(count):
    for _ in range(count):
        epoch()


def run_contacts(count):
    """HELLOs and their answers; a generation that ends."""
    for number in range(count):
        a.link.codec.greet(a.link.exchange)
        a.link.exchange.attention = True
        if number % 3 == 0:
            b.link.codec.use(b.link.exchange)
            b.link.codec.restart()
            publish(b)
        for _ in range(4):
            epoch()


def run_losses(count):
    """Frames that are lost and repeated: back-off, retransmission, duplicates, sets with gaps."""
    for step in range(count):
        if step % 4 == 0:
            publish(a)
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        size = a.link.poll_into(frame, clock.now_ms)
        while size:
            if step % 3:
                b.frames += 1
                b.link.receive(frame, size, clock.now_ms)
                b.link.receive(frame, size, clock.now_ms)
            size = a.link.poll_into(frame, clock.now_ms)
        a.node.wake_ms(clock.now_ms)
        exchange(b, a)
        take(b)
    for _ in range(40):
        epoch()


def run_conflicts(count):
    """Whole ids, and the amnesty that follows them."""
    for _ in range(count):
        a.link.codec.use(a.link.exchange)
        a.link.codec.mark(FULL_ASKED, True)
        b.link.codec.use(b.link.exchange)
        b.link.codec.mark(FULL, False)
        publish(a)
        publish(b)
        for _ in range(6):
            epoch()
    a.link.codec.use(a.link.exchange)
    a.link.codec.mark(FULL, False)
    b.link.codec.use(b.link.exchange)
    b.link.codec.mark(FULL, False)


def run_plain(count):
    """A peer that seems to have bsp-1 only: no frame of it but what is asked for."""
    codec = a.link.codec
    for _ in range(count):
        codec.use(a.link.exchange)
        epoch = a.link.exchange.epoch
        codec.heard_plain(epoch)
        codec.sent(epoch)
        assert codec.plain(epoch + SILENT_EPOCHS, 1)
        publish(a)
        for _ in range(6):
            clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
            size = a.link.poll_into(frame, clock.now_ms)
            while size:
                b.frames += 1
                b.link.receive(frame, size, clock.now_ms)
                size = a.link.poll_into(frame, clock.now_ms)
            exchange(b, a)
            take(b)


def invalid_frames():
    generation = b"\x77\x77"
    base = b"\xa0" + generation + b"\x05"
    unknown = bytes(range(1, 33))
    made = (
        b"", base, base + b"\xc3" + unknown, base + b"\x22\x04\x02body",
        base + b"\x2e\x04\x04\x02body",
        base + b"\x20\x01", base + b"\x44" + bytes(20), base + b"\x44" + unknown,
        base + b"\x43" + unknown, b"\x04\x00\x10\x05abcd", b"\x01\x00\x10\x05\x03\xff\x01\x11abcd",
        b"\x64\x00\x10\x05abcd", b"\x00\x00\x10\x05\x7fabcd", b"\x06" + unknown, b"\x66" + unknown,
        b"\x67" + unknown, b"\x84\x00\x10\x00\x00", b"\x86\x00\x10\x00\x00" + unknown[:8],
        b"\x83\x77\x77\x00\x00" + unknown[:8], b"\x80\x00\x00",
        b"\xe0\x00\x03\x00\x10\x00", b"\xe0\x01\x02ab",
        b"\xe0\x63\x01x", b"\xe1", b"\xd0", b"\x30", b"\xff" * 50,
        base + b"\x20\x04" + b"\xff" * 9,
        base + b"\x20\x04" + b"\xff" * 9 + b"\x01body", b"\x00", b"\x01\x00\x10\xff\xff\x7f",
    )  # fmt: skip
    return [bytearray(b"\x44" + item) for item in made]


bad = invalid_frames()


def run_invalid(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        for item in bad:
            b.link.receive(item, len(item), clock.now_ms)
            b.frames += 1
        exchange(b, a)
        take(b)


def check(name, call, count, warm_up):
    heap_check.run(name, call, count, warm_up, lambda: a.frames + b.frames)


check("records", run_records, MESSAGES, WARM_UP)
assert a.node.delivered == b.node.delivered == clock.published
check("idle", run_idle, IDLE_EPOCHS, 10)
check("contacts", run_contacts, 30, 3)
check("losses", run_losses, 60, 24)
check("conflicts", run_conflicts, 10, 3)
check("plain", run_plain, 10, 3)
for _ in range(80):
    epoch()
assert a.node.delivered == b.node.delivered == clock.published
check("invalid", run_invalid, INVALID_ROUNDS, 10)
assert b.node.malformed > 500, b.node.malformed
ignored = a.link.codec.ignored + b.link.codec.ignored
print("delivered", a.node.delivered, b.node.delivered, "ignored", ignored)
