"""What the board's own writer makes must decode to what was told to it."""

import random

import pytest

from drupelet.base import events as recorded
from drupelet.telemetry.black_box import BlackBox
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.tables.summary import summarise
from telemetry.segment_log import damages_of, log_of, times

WALL = 1_795_000_000_000
CLOCK = (1 << 30) - 1  # a board's clock is modulo this
DEVICE = b"\xa1\xb2\xc3\xd4"


class Owner:
    """Stores finished blocks as segments, as a node does."""

    def __init__(self, box):
        self.box = box
        self.segments = []
        self.current = bytearray()

    def collect(self):
        while self.box.ready:
            if self.box.starts:
                self.current = bytearray(self.box.header)
            self.current += self.box.block
            if self.box.ends:
                self.segments.append(bytes(self.current))
            self.box.take()

    def write_counters(self, now_ms):
        for _ in range(9):
            if self.box.flush_counters(now_ms):
                return
            self.collect()
        raise AssertionError("the counters never fit")


def test_codes_are_those_of_the_writer():
    for number, name in codes.MESSAGE_EVENTS.items():
        assert getattr(recorded, f"CODE_{name.upper()}") == number
    for name in ("STATE", "HEAP_LOW", "BATTERY", "BOOT", "ERROR", "DESCRIPTOR", "COUNTER"):
        assert getattr(recorded, f"CODE_{name}") == getattr(codes, name)
    short = {"flash_programs": "programs", "flash_erases": "erases"}
    short |= {"messages_created": "created", "messages_delivered": "delivered"}
    short |= {"damaged_frames": "damaged", "malformed_records": "malformed"}
    short |= {"events_lost": "lost"}
    for number, name in codes.HEALTH_COUNTERS.items():
        assert getattr(recorded, f"COUNT_{short.get(name, name).upper()}") == number
    assert recorded.COUNT_CARRIERS == codes.TRAFFIC_BASE


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_what_the_writer_writes_is_read_back(blocks):
    rng = random.Random(blocks)
    box = BlackBox(DEVICE, 7, blocks)
    owner = Owner(box)
    start = then = now = (1 << 30) - 5_000  # the board's clock wraps on the way
    box.state(now & CLOCK, 2)
    box.wall(now & CLOCK, WALL.to_bytes(6, "little"), 5)
    spent, state = dict.fromkeys(range(4), 0), 2
    created = set()
    for turn in range(700):
        now += rng.randrange(1, 3_000)
        spent[state] += now - then
        then, state = now, rng.randrange(4)
        box.state(now & CLOCK, state)
        if turn % 7 == 0:
            message = rng.randbytes(32)
            created.add((message[:4].hex(), now - start))
            box.log_id(now & CLOCK, recorded.CODE_CREATED, 0, 0, message, 0)
        box.count(codes.TRAFFIC_BASE + 32 + 1, 1_000_003)
        if turn % 50 == 49:
            owner.write_counters(now & CLOCK)
        owner.collect()
    assert box.finish()
    owner.collect()
    assert box.lost == 0
    log = log_of(*owner.segments)
    tables = summarise(log)
    assert damages_of(log) == []
    assert times(log) == spent
    rows = tables["messages"]
    assert {(row["message"], row["boot_ms"]) for row in rows} == created
    assert {(row["wall_ms"] - row["boot_ms"], row["wall_uncertainty_ms"]) for row in rows} == {
        (WALL, 50)
    }
    assert [row["value"] for row in tables["traffic"]] == [700 * 1_000_003]
    assert {row["number"] for row in tables["segments"]} == set(range(len(owner.segments)))
    assert {(row["device"], row["boot"]) for row in tables["segments"]} == {("a1b2c3d4", 7)}


def test_refused_events_are_reported():
    box = BlackBox(DEVICE, 1)
    owner = Owner(box)
    for at in range(100):
        box.log(at, recorded.CODE_HEAP_LOW, 0, 0, 0, 9)
    owner.collect()
    owner.write_counters(100)
    assert box.finish()
    owner.collect()
    row = summarise(log_of(*owner.segments))["health"][0]
    assert (row["events_lost"], box.lost) == (18, 18)


@pytest.mark.parametrize("jump_ms", [-86_400_000, 3_600_000, 30 * 86_400_000])
def test_a_clock_that_jumps_changes_no_time_in_a_state(jump_ms):
    """States go on over segments and over jumps of the wall clock: both count ms since boot."""
    logs = []
    for jump in (0, jump_ms):
        box = BlackBox(DEVICE, 2, 1)
        owner = Owner(box)
        now = 0
        for turn in range(400):
            wall = WALL + now + (jump if turn >= 200 else 0)
            box.wall(now, wall.to_bytes(6, "little"), 5)
            box.state(now, turn % 3)
            if turn % 60 == 59:
                owner.write_counters(now)
            owner.collect()
            now += 1000 + turn
        assert box.finish()
        owner.collect()
        logs.append(log_of(*owner.segments))
    assert times(logs[0]) == times(logs[1])
    assert len(summarise(logs[1])["segments"]) > 5
