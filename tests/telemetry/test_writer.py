"""What the board's own writer makes must decode to what was told to it."""

import random

import pytest
from drupelet import blackbox
from drupelet.blackbox import BlackBox
from telemetry.test_decode import log_of, times

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.summary import summarise

WALL = 1_795_000_000_000
DEVICE = b"\xa1\xb2\xc3\xd4"


class Owner:
    """Stores finished blocks as segments of a few blocks, as a node does."""

    def __init__(self, box, blocks_max):
        self.box, self.blocks_max = box, blocks_max
        self.segments = []
        self.current = bytearray()
        self.blocks = 0

    def collect(self):
        if not self.box.ready:
            return
        if not self.blocks:
            self.current = bytearray(32)
            self.box.header_into(self.current, 0)
        self.current += self.box.block
        self.blocks += 1
        self.box.taken()
        if self.blocks == self.blocks_max:
            self.end()

    def end(self):
        if self.blocks:
            self.segments.append(bytes(self.current))
            self.box.end_segment()
            self.blocks = 0


def test_codes_are_those_of_the_writer():
    for number, name in codes.MESSAGE_EVENTS.items():
        assert getattr(blackbox, f"CODE_{name.upper()}") == number
    for name in ("STATE", "HEAP_LOW", "BATTERY", "BOOT", "ERROR", "DESCRIPTOR", "COUNTER"):
        assert getattr(blackbox, f"CODE_{name}") == getattr(codes, name)
    short = {"flash_programs": "programs", "flash_erases": "erases"}
    short |= {"messages_created": "created", "messages_delivered": "delivered"}
    short |= {"damaged_frames": "damaged", "malformed_records": "malformed"}
    for number, name in codes.HEALTH_COUNTERS.items():
        assert getattr(blackbox, f"COUNT_{short.get(name, name).upper()}") == number
    assert blackbox.COUNT_CARRIERS == codes.TRAFFIC_BASE


@pytest.mark.parametrize("blocks_max", [1, 3, 8])
def test_what_the_writer_writes_is_read_back(blocks_max):
    rng = random.Random(blocks_max)
    box = BlackBox(DEVICE, 7)
    owner = Owner(box, blocks_max)
    start = now = (1 << 30) - 5_000  # the board's clock wraps on the way
    box.wall(now & 0x3FFFFFFF, WALL.to_bytes(6, "little"), 5)
    spent = dict.fromkeys(range(4), 0)
    created, state = [], None
    sent = codes.TRAFFIC_BASE + 32 + 1
    for turn in range(700):
        entered = rng.randrange(4)
        if state is not None:
            spent[state] += now - then
        then, state = now, entered
        box.state(now & 0x3FFFFFFF, entered)
        owner.collect()
        if turn % 7 == 0:
            message = rng.randbytes(32)
            created.append((message[:4].hex(), now - start))
            box.log_id(now & 0x3FFFFFFF, blackbox.CODE_CREATED, 0, 0, message, 0)
            owner.collect()
        box.count(sent, 1_000_003)
        if turn % 50 == 49:
            box.flush_counters(now & 0x3FFFFFFF)
            owner.collect()
        now += rng.randrange(1, 3_000)
    spent[state] += now - then
    box.flush_counters(now & 0x3FFFFFFF)
    owner.collect()
    box.flush(now & 0x3FFFFFFF)
    owner.collect()
    owner.end()
    assert box.lost == 0
    log = log_of(*owner.segments)
    tables = summarise(log)
    assert log.damages == []
    assert times(log) == spent
    born = {(r["message"], r["boot_ms"]) for r in tables["messages"] if r["event"] == "created"}
    assert born == set(created)
    assert {r["wall_ms"] - r["boot_ms"] for r in tables["messages"]} == {WALL}
    assert {r["wall_uncertainty_ms"] for r in tables["messages"]} == {50}
    assert [r["value"] for r in tables["traffic"]] == [700 * 1_000_003]
    assert {s["number"] for s in tables["segments"]} == set(range(len(owner.segments)))
    assert {(s["device"], s["boot"]) for s in tables["segments"]} == {("a1b2c3d4", 7)}
