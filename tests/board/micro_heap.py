"""Runs on a board: two micro members over a lossy wire of bytes, all of it under `heap_lock`.

Prints a line `name calls records bytes` per part: bytes is what a run allocates without the lock;
any allocation under it ends the program with an exception. Argument: batch or interactive.
"""

import sys

import heap_check

from boards.micro.board import CLIENT_ID
from drupelet.base.memory import copy
from drupelet.micro.link import MicroLink
from drupelet.micro.member import Micro
from drupelet.micro.serial_line import MicroSerial

MODE = 1 if sys.argv[1] == "interactive" else 0
EPOCH_MS = 500
PIPE_SIZE = 4096
stamp = bytearray(8)
payload = bytearray(8)


class Pipe:
    """Bytes one way; a write in `loss` of them loses its first byte."""

    def __init__(self):
        self.data = bytearray(PIPE_SIZE)
        self.end = self.at = self.writes = 0
        self.loss = 7

    def take(self, buf, at, size):
        self.writes += 1
        skip = 1 if self.loss and self.writes % self.loss == 0 else 0
        if size <= skip or self.end + size > PIPE_SIZE:
            return size
        copy(self.data, self.end, buf, at + skip, size - skip)
        self.end += size - skip
        return size

    def give(self, buf):
        size = min(len(buf), self.end - self.at)
        copy(buf, 0, self.data, self.at, size)
        self.at += size
        if self.at == self.end:
            self.at = self.end = 0
        return size


class Stream:
    """One end of two pipes."""

    def __init__(self, inward, outward):
        self._inward = inward
        self._outward = outward

    def readinto(self, buf):
        return self._inward.give(buf)

    def write(self, buf, at, size):
        return self._outward.take(buf, at, size)


class Counted(MicroLink):
    """Counts records, in and out."""

    records = 0

    def count_record(self, sent, kind, size):  # noqa: ARG002
        self.records += 1


class End:
    """A member and its line."""

    def __init__(self, inward, outward):
        self.node = Micro(CLIENT_ID, b"heap", epoch_ms=EPOCH_MS)
        self.link = Counted(self.node, MODE)
        self.link.records = 0
        self.line = MicroSerial(self.link, Stream(inward, outward))
        self.taken = 0

    def turn(self, now_ms):
        wait = self.line.pump(now_ms)
        node = self.node
        row = node.next_event()
        while row >= 0:
            self.taken += 1
            node.done(row)
            row = node.next_event()
        return wait


there = Pipe()
back = Pipe()
a = End(back, there)
b = End(there, back)


class Clock:
    """What both ends share."""

    now_ms = 0
    published = 0


clock = Clock()


def turn():
    clock.now_ms = (clock.now_ms + 125) & 0x3FFFFFFF
    a.turn(clock.now_ms)
    b.turn(clock.now_ms)


def publish(end):
    payload[0] = clock.published >> 8
    payload[1] = clock.published & 255
    if end.node.publish(payload, 8, stamp) >= 0:
        clock.published += 1


def run_records(count):
    target = clock.published + count
    while clock.published < target:
        publish(a)
        publish(b)
        for _ in range(8):
            turn()
    settle(0)


def settle(left):
    for _ in range(4000):
        if a.node.outstanding() + b.node.outstanding() <= left:
            return
        turn()
    raise AssertionError("not settled")


def run_idle(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + EPOCH_MS) & 0x3FFFFFFF
        a.turn(clock.now_ms)
        b.turn(clock.now_ms)


def record(kind, content, version=1):
    return bytes([version, kind, len(content) >> 8, len(content) & 255]) + content


def invalid_frames():
    unknown = bytes(range(1, 33))
    head = bytes(b.node.group_ids) + bytes(8)
    made = [b"\x40" + record(kind, content, version) for kind, content, version in (
        (0, b"", 1), (2, b"x", 1), (3, bytes(33), 1), (0, unknown, 0), (1, bytes(39), 1),
        (1, bytes(32) + b"\xff" * 8, 1), (77, b"skipped", 1), (0, unknown, 1), (2, unknown, 1),
        (3, unknown, 1), (0, bytes(32), 1), (2, bytes(32), 1), (3, bytes(32), 1),
        (1, bytes(40) + b"\x00other group", 1), (1, head + b"\x05", 1), (1, head + b"\xff", 1),
        (1, head + b"\x01" + bytes(5), 1), (1, head + b"\x01" + unknown + b"orphan", 1),
        (1, head, 1), (1, head + bytes(210), 1),
    )]  # fmt: skip
    made += [b"", b"\x40", b"\x41\x01", b"\x40\x01\x00\x00", b"\x40\x01\x00\x01\x00abc", b"\x50"]
    made += [b"\x50" + bytes(70), b"\x51", b"\xff" * 50]
    return [bytearray(item) for item in made]


bad = invalid_frames()


def run_invalid(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + EPOCH_MS) & 0x3FFFFFFF
        for item in bad:
            b.link.receive(item, len(item), clock.now_ms)
            b.link.records += 1
        b.turn(clock.now_ms)
        a.turn(clock.now_ms)


def check(name, call, count, warm_up):
    heap_check.run(name, call, count, warm_up, lambda: a.link.records + b.link.records)


check("records", run_records, 400, 10)
assert a.taken + b.taken == a.node.delivered + b.node.delivered == clock.published
there.loss = back.loss = 0
settle(0)
check("idle", run_idle, 1000, 10)
malformed = b.node.malformed
check("invalid", run_invalid, 100, 10)
assert b.node.malformed - malformed > 1000
print("delivered", clock.published, "damaged", a.line.damaged + b.line.damaged)
