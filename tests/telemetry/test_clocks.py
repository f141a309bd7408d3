"""Wall clocks: anchors that jump, and boots whose time comes from what they exchanged."""

import numpy as np
import pytest

from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import clocks, delta
from drupelet_tools.telemetry.tables.anchors import SLACK_MS
from drupelet_tools.telemetry.tables.summary import read, summarise
from telemetry import box_writer as box

WALL = 1_795_000_000_000
HOUR = 3_600_000
A, B, C = (bytes([0xA0 + at, 0, 0, 1]) for at in range(3))


def segments_of(*datas):
    return summarise(read(datas))["segments"]


def quiet(at_ms):
    return [[(at_ms, box.HEAP_LOW, 0, 0, 1)]]


def test_an_anchor_that_most_contradict_is_set_aside():
    offsets = [0, 40, 5 * HOUR, -30, 5 * HOUR + 20, 10]
    datas = [
        box.segment(A, 1, at, quiet(at * 60_000), WALL + offset, 50)
        for at, offset in enumerate(offsets)
    ]
    rows = segments_of(*datas)
    assert [row["clock_jump"] for row in rows] == [abs(offset) > HOUR for offset in offsets]
    assert all(abs(row["wall_offset_ms"] - WALL) <= 40 for row in rows)
    assert [row["wall_source"] for row in rows] == [
        "boot" if jump else "anchor" for jump in (0, 0, 1, 0, 1, 0)
    ]


def test_of_equally_many_the_later_anchors_are_right():
    """A clock that is set while the device runs."""
    offsets = [-HOUR, -HOUR, 0, 0]
    rows = segments_of(
        *(
            box.segment(A, 1, at, quiet(at * 60_000), WALL + offset, 50)
            for at, offset in enumerate(offsets)
        )
    )
    assert [row["clock_jump"] for row in rows] == [True, True, False, False]
    assert {row["wall_offset_ms"] for row in rows} == {WALL}


def test_a_crystal_that_drifts_does_not_jump():
    rows = segments_of(
        *(box.segment(A, 1, at, quiet(at * 24 * HOUR), WALL + at * 8_640, 50) for at in range(30))
    )
    assert not any(row["clock_jump"] for row in rows)
    assert all(row["wall_source"] == "anchor" for row in rows)


def boots(*rows):
    """Boots of (low, high) or None, one device each."""
    known = np.array([row is not None for row in rows])
    open_ = clocks.OPEN
    return clocks.Boots(
        names=[str(at) for at in range(len(rows))],
        device=np.arange(len(rows)),
        boot=np.ones(len(rows), dtype=np.int64),
        low=np.array([-open_ if row is None else row[0] for row in rows]),
        high=np.array([open_ if row is None else row[1] for row in rows]),
        known=known,
        suspect=np.zeros(len(rows), dtype=np.bool_),
    )


def bounds(*rows):
    earlier, later, least = (
        np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)
    )
    return clocks.Bounds(earlier, later, least)


def test_bounds_both_ways_make_an_interval_and_go_on_over_a_third():
    told = boots((1_000, 1_000), None, None, None)
    low, high, _ = clocks.align(
        told, bounds((0, 1, 10), (1, 0, -30), (1, 2, 5), (2, 1, -7), (0, 3, 1))
    )
    assert (low[1], high[1]) == (1_010, 1_030)
    assert (low[2], high[2]) == (1_015, 1_037)
    assert low[3] == 1_001 and high[3] == clocks.OPEN, "one way only: no estimate"


def test_a_device_that_went_back_keeps_what_the_others_bear_out():
    told = boots((0, 10), (500, 510), (9_000, 9_010))
    told.suspect[1:] = True
    exchanged = bounds((0, 1, 490), (1, 0, -520), (0, 2, 100), (2, 0, -140))
    low, high, jumped = clocks.align(told, exchanged)
    assert jumped.tolist() == [False, False, True]
    assert (low[1], high[1]) == (500, 510)
    assert (low[2], high[2]) == (100, 150)


@pytest.mark.parametrize("delay", [200, 4_000])
def test_a_boot_without_a_clock_is_timed_by_messages_both_ways(tmp_path, delay):
    """B never knows the time; C has heard from nobody."""
    truth = WALL + 77_000  # when B started
    ours, theirs = [], []
    for turn in range(20):
        sent = 100_000 + turn * 9_000
        ours.append((sent, box.CREATED, 0, 0, 1_000 + turn))
        theirs.append((sent + delay - 77_000, box.RECEIVED, 1, 0, 1_000 + turn))
        answered = sent + 3_000
        theirs.append((answered - 77_000, box.CREATED, 0, 0, 2_000 + turn))
        ours.append((answered + delay, box.RECEIVED, 1, 0, 2_000 + turn))
    ours.sort()
    theirs.sort()
    files = {
        "a": box.segments(A, 1, ours, wall_ms=WALL, uncertainty_ms=20),
        "b": box.segments(B, 1, theirs),
        "c": box.segments(C, 1, [(5, box.CREATED, 0, 0, 9)]),
    }
    for name, datas in files.items():
        for at, data in enumerate(datas):
            (tmp_path / f"{name}{at}.dbx").write_bytes(data)
    job.ingest([tmp_path], tmp_path / "lake", {}, None)
    state = delta.open_lake(tmp_path / "lake")
    (row,) = state.read("clocks").to_pylist()
    assert (row["device"], row["source"], row["jumps"]) == (B.hex(), "pairs", 0)
    assert abs(row["wall_offset_ms"] - truth) <= row["wall_uncertainty_ms"]
    assert row["wall_uncertainty_ms"] <= delay + SLACK_MS + 20
    sources = {r["device"]: r["wall_source"] for r in state.read("segments").to_pylist()}
    assert sources == {A.hex(): "anchor", B.hex(): "pairs", C.hex(): None}
    for message in state.read("messages").to_pylist():
        if message["device"] == B.hex():
            assert message["wall_ms"] == message["boot_ms"] + row["wall_offset_ms"]
            assert message["wall_uncertainty_ms"] == row["wall_uncertainty_ms"]
        if message["device"] == C.hex():
            assert message["wall_ms"] is None
