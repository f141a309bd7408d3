"""A black-box writer for tests, made from docs/SPEC.md 6 and nothing of the code under test."""

import struct
import zlib

STATE, COUNTER, HEAP_LOW, BATTERY, BOOT, DESCRIPTOR = 1, 40, 30, 31, 32, 34
CREATED, OFFERED, SENT, ACKED, DELIVERED, RECEIVED = 10, 11, 13, 14, 15, 16
EVENTS_MAX = 41


def u48(value):
    return struct.pack("<Q", value)[:6]


def header(device, boot, number, wall_ms=None, uncertainty_ms=None):
    spread = 65535 if uncertainty_ms is None else uncertainty_ms // 10
    head = b"DRBX" + struct.pack("<BBH", 1, int(wall_ms is not None), boot)
    head += device.ljust(8, b"\0") + struct.pack("<I", number) + u48(wall_ms or 0)
    head += struct.pack("<H", spread)
    return head + struct.pack("<I", zlib.crc32(head))


def block(boot, number, events):
    """Events are (time since boot in ms, code, a, b, c), at most 41, not before the first."""
    t0 = events[0][0] if events else 0
    body = b"".join(struct.pack("<IBBHI", t - t0, code, a, b, c) for t, code, a, b, c in events)
    head = struct.pack("<BBHH", 0xB1, len(events), number, boot) + u48(t0)
    whole = (head + bytes(4) + body).ljust(512, b"\0")
    return whole[:12] + struct.pack("<I", zlib.crc32(whole)) + whole[16:]


def segment(device, boot, number, blocks, wall_ms=None, uncertainty_ms=None):
    """`wall_ms` is the Unix time of the boot; the anchor is of the first block."""
    anchor = None if wall_ms is None else wall_ms + (blocks[0][0][0] if blocks[0] else 0)
    parts = [header(device, boot, number, anchor, uncertainty_ms)]
    return b"".join(parts + [block(boot, at, events) for at, events in enumerate(blocks)])


def segments(device, boot, events, per_block=41, per_segment=8, first=0, **wall):
    """Cut a boot's events into blocks and segments of the given sizes."""
    blocks = [events[at : at + per_block] for at in range(0, len(events), per_block)]
    return [
        segment(device, boot, first + at // per_segment, blocks[at : at + per_segment], **wall)
        for at in range(0, len(blocks), per_segment)
    ]


def counter(time_ms, index, value):
    return (time_ms, COUNTER, index, value >> 32, value & 0xFFFFFFFF)


def state(time_ms, power_state):
    return (time_ms, STATE, power_state, 0, 0)


def traffic_index(carrier, direction, kind):
    return 64 + carrier * 32 + direction * 16 + kind


class Duty:
    """A device that goes idle, sends, sleeps, and writes its counters every few rounds."""

    def __init__(self, start_ms=0):
        self.now = start_ms
        self.events = []
        self.ms = {}

    def run(self, rounds, counters_every=0):
        for turn in range(rounds):
            for power_state, length in ((2, 7), (4, 3 + turn % 5), (1, 50 + turn % 7)):
                self.enter(power_state, length)
            if counters_every and turn % counters_every == counters_every - 1:
                self.write_counters()
        return self

    def enter(self, power_state, length):
        self.events.append(state(self.now, power_state))
        self.now += length
        self.ms[power_state] = self.ms.get(power_state, 0) + length

    def write_counters(self):
        for power_state, ms in self.ms.items():
            self.events.append(counter(self.now, power_state, ms))
