"""Runs on a board: a channel's hot path under `heap_lock`, kept messages in preallocated RAM.

Prints a line `name calls frames bytes` per part; bytes is what a run allocates without the lock.
Any allocation under the lock ends the program. Ids are given, because SHA-256 is an occasion of
its own: `hash` has what a published id, a T_req and a T_resp cost.
"""

import sys

import heap_check

import drupelet.wire.sds.bloom  # noqa: F401 - leaves first: imports nest deeply else
from drupelet.channel.channel import Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom

MESSAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
IDLE = 1000
WARM_UP = 40

frame = bytearray(512)
copied = bytearray(512)
ident = bytearray(b"0123456789abcdef" * 4)
content = bytearray(b"reading 0000")
START = (1_790_000_000_000).to_bytes(8, "little")


class Clock:
    """What all share."""

    now_ms = 0
    published = 0
    frames = 0
    lose = 0


clock = Clock()


def make(name, repair):
    settings = Settings()
    settings.repair = repair
    settings.send_bloom = True
    channel = Channel(
        b"heap", name, RamKeeper(128, 512), Bloom(100, 10, 7), lambda: 7, settings, 0
    )
    channel.clock.set_wall(START, 0, True)
    return channel


channels = [make(b"anna", False), make(b"ben", False), make(b"cleo", False)]


def exchange():
    for index in range(3):
        here = channels[index]
        size = here.poll_into(frame, clock.now_ms)
        while size:
            clock.frames += 1
            for other in range(3):
                if other != index and (clock.frames + other) % 10 >= clock.lose:
                    channels[other].receive(frame, size, clock.now_ms)
            size = here.poll_into(frame, clock.now_ms)
        here.wake_ms(clock.now_ms)
        while here.next_event():
            pass


def publish(count):
    for _ in range(count):
        clock.published += 1
        at = 8
        number = clock.published
        while at < 16:
            ident[at] = 97 + (number & 15)
            content[at - 4] = 48 + (number & 7)
            number >>= 4
            at += 1
        here = channels[clock.published % 3]
        here.publish(content, 0, 12, clock.now_ms, ident)
        clock.now_ms = (clock.now_ms + 1000) & 0x3FFFFFFF
        exchange()


def idle(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + 7000) & 0x3FFFFFFF
        exchange()


def lossy(count):
    clock.lose = 3
    publish(count)
    clock.lose = 0
    idle(200)


def bad_frames():
    size = 0
    made = []
    here = make(b"mallory", False)
    here.publish(b"x", 0, 1, 0, b"first")
    size = here.poll_into(frame, 0)
    good = bytes(frame[:size])
    made += [bytearray(good[:cut]) for cut in range(0, size, 9)]
    for at in range(0, size, 7):
        item = bytearray(good)
        item[at] ^= 0x41
        made.append(item)
    history = b"".join([b"\x5a\x05\x0a\x03%03d" % number for number in range(60)])
    made.append(bytearray(b"\x0a\x01m\x12\x01z\x1a\x04heap\x50\x01" + history + b"\xa2\x01\x01y"))
    ones = b"\x62\x80\x01" + b"\xff" * 128
    made.append(bytearray(b"\x0a\x01m\x12\x01y\x1a\x04heap\x50\x01" + ones))
    made.append(
        bytearray(b"\x0a\x01m\x12\x01x\x1a\x04heap\x50" + b"\xff" * 9 + b"\x01\xa2\x01\x01y")
    )
    return made


bad = bad_frames()


def invalid(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + 500) & 0x3FFFFFFF
        for item in bad:
            channels[0].receive(item, len(item), clock.now_ms)
            clock.frames += 1
        while channels[0].next_event():
            pass


def check(name, call, count, warm_up):
    heap_check.run(name, call, count, warm_up, lambda: clock.frames)


check("publish", publish, MESSAGES, WARM_UP)
check("idle", idle, IDLE, 20)
check("lossy", lossy, 200, WARM_UP)
check("invalid", invalid, 60, 5)


def ask(count):
    for _ in range(count):
        asking.repair.identity.t_req_ms(ident, 0, 64, 30000, 300000)


asking = make(b"dora", True)
used = heap_check.open_bytes(ask, 1)
print("hash", 1, 1, used)
print("delivered", *[channel.delivered for channel in channels])
