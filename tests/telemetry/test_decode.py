"""Segments made by hand, whole and damaged, against what they must decode to."""

import random
import struct
from types import SimpleNamespace

import pytest

from drupelet_tools.telemetry.blackbox.decode import read_header
from drupelet_tools.telemetry.tables.summary import summarise
from telemetry import box_writer as box
from telemetry.segment_log import damages_of, events_of, log_of, spoil, times

DEVICE = bytes.fromhex("a1b2c3d4")
WALL = 1_795_000_000_000


def segments_of(log):
    return [SimpleNamespace(**row) for row in summarise(log)["segments"]]


def test_header_fields():
    head = read_header(box.header(DEVICE, 513, 70_000, WALL, 250))
    assert (head.device, head.boot, head.number) == ("a1b2c3d4", 513, 70_000)
    assert (head.wall_ms, head.wall_uncertainty_ms) == (WALL, 250)
    head = read_header(box.header(bytes(range(1, 9)), 1, 1))
    assert head.device == "0102030405060708"
    assert head.wall_ms is None
    assert head.wall_uncertainty_ms is None


def test_header_damage_has_its_reason():
    good = box.header(DEVICE, 1, 1)
    assert read_header(good[:31]) == "short header"
    assert read_header(b"X" + good[1:]) == "no segment magic"
    assert read_header(good[:9] + b"\xff" + good[10:]) == "header crc"
    other = good[:4] + b"\x02" + good[5:28]
    assert read_header(other + struct.pack("<I", box.zlib.crc32(other))) == "unknown version 2"


def test_events_have_absolute_times_and_values():
    t0 = 5_000_000_000  # past 32 bits
    data = box.segment(DEVICE, 3, 1, [[(t0, 10, 1, 2, 3), (t0 + 9, 31, 4, 3300, 2**32 - 1)]])
    log = log_of(data)
    assert events_of(log).time_ms == [t0, t0 + 9]
    assert events_of(log).code == [10, 31]
    assert events_of(log).a == [1, 4]
    assert events_of(log).b == [2, 3300]
    assert events_of(log).c == [3, 2**32 - 1]
    assert events_of(log).boot == [3, 3]
    assert damages_of(log) == []


def test_a_flipped_block_is_a_reason_and_the_rest_goes_on():
    duty = box.Duty().run(200)
    data = box.segments(DEVICE, 1, duty.events)[0]
    whole, log = log_of(data), log_of(spoil(data, 3))
    assert len(events_of(log).code) == len(events_of(whole).code) - 41
    assert damages_of(log) == [(3, "block crc")]
    assert (segments_of(log)[0].blocks, segments_of(log)[0].blocks_bad) == (8, 1)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [(0, 0xB2, "not a block"), (1, 42, "record count"), (2, 9, "block number"), (4, 7, "boot")],
)
def test_a_block_that_lies_with_a_right_crc(at, value, reason):
    good = bytearray(box.block(1, 0, [box.state(0, 2)]))
    good[at] = value
    good[12:16] = bytes(4)
    good[12:16] = struct.pack("<I", box.zlib.crc32(bytes(good)))
    log = log_of(box.header(DEVICE, 1, 1) + bytes(good))
    assert len(events_of(log).code) == 0
    assert damages_of(log)[0][1].startswith(reason)


def test_a_cut_tail_loses_the_last_block_only():
    data = box.segments(DEVICE, 1, box.Duty().run(200).events)[0]
    log = log_of(data[:-200])
    assert len(events_of(log).code) == 7 * 41
    assert damages_of(log) == [(7, "cut block")]
    assert segments_of(log)[0].blocks_bad == 1


def test_only_a_header():
    log = log_of(box.header(DEVICE, 1, 1))
    assert (len(events_of(log).code), damages_of(log)) == (0, [])
    tables = summarise(log)
    assert tables["state_time"] == []
    assert tables["segments"][0]["blocks"] == 0


def test_repeats_count_once_and_copies_mend_each_other():
    datas = box.segments(DEVICE, 1, box.Duty().run(400, counters_every=9).events)
    whole = log_of(*datas)
    again = log_of(*datas, *datas[::-1])
    assert events_of(again).code == events_of(whole).code
    mended = log_of(spoil(datas[0], 2), *datas[1:], spoil(datas[0], 5))
    assert events_of(mended).time_ms == events_of(whole).time_ms
    assert segments_of(mended)[0].blocks_bad == 0
    assert segments_of(mended)[0].copies == 2
    assert len(damages_of(mended)) == 2
    shorter = datas[0][: 32 + 512 * 3]
    assert events_of(log_of(shorter, *datas)).code == events_of(whole).code


def test_other_bytes_under_a_used_number_are_not_added_up():
    first = box.segments(DEVICE, 1, box.Duty().run(30).events)
    other = box.segments(DEVICE, 1, box.Duty(9).run(50).events)
    log = log_of(*first, *other)
    assert {reason for _, reason in damages_of(log)} == {"other bytes under a number already seen"}
    assert sum(s.events for s in segments_of(log)) == len(events_of(log).code)
    assert len(events_of(log).code) in (90, 150)
    assert events_of(log_of(*other, *first)).code == events_of(log).code


def test_arrival_order_plays_no_part():
    datas = box.segments(DEVICE, 1, box.Duty().run(900, counters_every=7).events, wall_ms=WALL)
    datas += box.segments(DEVICE, 2, box.Duty().run(300).events)
    whole = summarise(log_of(*datas))
    for seed in range(5):
        mixed = list(datas)
        random.Random(seed).shuffle(mixed)
        assert summarise(log_of(*mixed)) == whole


@pytest.mark.parametrize("counters_every", [0, 1, 13])
def test_splitting_a_log_anywhere_changes_nothing(counters_every):
    duty = box.Duty().run(150, counters_every)
    duty.events.append((duty.now, box.HEAP_LOW, 0, 0, 4096))
    wanted = None
    for per_block, per_segment in ((41, 8), (41, 1), (1, 1), (3, 2), (17, 5), (40, 3)):
        log = log_of(*box.segments(DEVICE, 1, duty.events, per_block, per_segment))
        tables = summarise(log)
        found = {name: tables[name] for name in ("state_time", "messages", "traffic", "health")}
        wanted = wanted or found
        assert found == wanted
    assert times(log) == duty.ms


def test_state_is_carried_over_a_segment_boundary():
    events = [box.state(0, 2), box.state(100, 1), (5_000, box.HEAP_LOW, 0, 0, 9)]
    log = log_of(*box.segments(DEVICE, 1, events, per_block=2, per_segment=1))
    assert times(log) == {2: 100, 1: 4_900}


def test_state_is_not_carried_over_a_boot_nor_over_a_loss():
    first = box.segments(DEVICE, 1, [box.state(0, 2), (60, 30, 0, 0, 1)])
    second = box.segments(DEVICE, 2, [(50, 30, 0, 0, 1), box.state(70, 1), (90, 30, 0, 0, 1)])
    rows = summarise(log_of(*first, *second))["state_time"]
    found = [(row["boot"], row["state"], row["ms"]) for row in rows]
    assert found == [(1, 2, 60), (2, 1, 20), (2, -1, 70)]
    events = [box.state(0, 2), (10, 30, 0, 0, 1), box.state(20, 4), (500, 30, 0, 0, 1)]
    data = box.segments(DEVICE, 1, events, per_block=1)[0]
    lost = log_of(spoil(data, 2, at=8))  # the state that began at 20 is not known
    assert times(lost) == {2: 10, -1: 490}


def test_totals_survive_lost_blocks():
    duty = box.Duty().run(600, counters_every=20)
    duty.write_counters()
    datas = box.segments(DEVICE, 1, duty.events)
    for block in range(7):
        for at in range(len(datas) - 1):
            broken = list(datas)
            broken[at] = spoil(datas[at], block)
            assert times(log_of(*broken)) == duty.ms
    assert times(log_of(*datas[2:])) == duty.ms, "whole segments lost"


def test_events_fill_in_behind_the_last_counters():
    duty = box.Duty().run(40, counters_every=40).run(25)
    log = log_of(*box.segments(DEVICE, 1, duty.events))
    ms = times(log)
    # The last state began at the last event: its length is not in the log.
    duty.ms[1] -= duty.now - duty.events[-1][0]
    assert ms == duty.ms
    assert {row["source"] for row in summarise(log)["state_time"]} == {"counter and event"}


def test_an_unchanged_counter_stands_as_of_the_newest_one():
    events = [
        box.counter(100, 6, 40),
        box.counter(100, 2, 60),
        box.state(100, 2),
        box.counter(900, 2, 860),
        (1_000, 30, 0, 0, 1),
    ]
    assert times(log_of(*box.segments(DEVICE, 1, events))) == {6: 40, 2: 960}


def test_traffic_is_the_highest_counter_per_boot():
    sent = box.traffic_index(1, 0, 1)
    heard = box.traffic_index(2, 1, 15)
    spread = box.traffic_index(3, 0, 1)
    first = [box.counter(10, sent, 500), box.counter(20, sent, 2**40), box.counter(20, heard, 7)]
    first.append(box.counter(20, spread, 9))
    rows = summarise(
        log_of(
            *box.segments(DEVICE, 1, first),
            *box.segments(DEVICE, 2, [box.counter(5, sent, 30)]),
        )
    )["traffic"]
    found = [
        (r["boot"], r["carrier"], r["direction"], r["kind"], r["unit"], r["value"]) for r in rows
    ]
    assert found == [
        (1, "mqtt", "sent", "carrier", "bytes", 2**40),
        (1, "stick", "received", "telemetry", "bytes", 7),
        (1, "udp", "sent", "carrier", "bytes", 9),
        (2, "mqtt", "sent", "carrier", "bytes", 30),
    ]


def test_message_events_with_wall_times():
    word = 0xDEADBEEF
    events = [
        (1_000, box.CREATED, 0, 0, word),
        (2_000, box.SENT, 3, 1, word),
        (3_000, box.SENT, 3, 2, word),
        (4_000, box.ACKED, 3, 0, word),
        (5_000, box.OFFERED, 4, 1, word),
        (6_000, box.OFFERED, 4, 5, word),
        (7_000, box.OFFERED, 4, 2, word),
    ]
    rows = summarise(log_of(*box.segments(DEVICE, 1, events, wall_ms=WALL, uncertainty_ms=30)))[
        "messages"
    ]
    assert [(r["event"], r["wall_ms"] - WALL, r["count"], r["sends_max"]) for r in rows] == [
        ("created", 1_000, 1, 0),
        ("offered", 5_000, 3, 5),
        ("sent", 2_000, 2, 2),
        ("acked", 4_000, 1, 0),
    ]
    assert {(r["message"], r["wall_uncertainty_ms"]) for r in rows} == {("deadbeef", 30)}


def test_wall_time_comes_from_the_nearest_segment_that_has_it():
    quiet = [[(at * 100, 30, 0, 0, 1)] for at in range(4)]
    datas = [
        box.segment(DEVICE, 1, 1, quiet[0:1]),
        box.segment(DEVICE, 1, 2, quiet[1:2], WALL, 100),
        spoil(box.segment(DEVICE, 1, 3, quiet[2:4], WALL + 60_000, 100), 0, at=16),
        box.segment(DEVICE, 2, 1, quiet[0:1]),
    ]
    found = [s.wall_offset_ms for s in segments_of(log_of(*datas))]
    # The third has an anchor, but the block that it belongs to is lost.
    assert found == [WALL, WALL, WALL, None]


def test_health():
    events = [
        (0, box.BOOT, 2, 9, 0),
        (0, box.DESCRIPTOR, 1, 0, 131_072),
        (0, box.DESCRIPTOR, 3, 1, 0),
        (0, box.DESCRIPTOR, 4, 2, 1 << 24 | 12 << 16 | 345),
        (0, box.DESCRIPTOR, 5, 7, 7),
        (5, box.HEAP_LOW, 0, 0, 9_000),
        (6, box.HEAP_LOW, 0, 0, 8_000),
        (7, box.BATTERY, 0, 3_700, 0),
        (8, box.BATTERY, 0, 3_600, 0),
        (9, 33, 4, 1, 0),
        box.counter(9, 12, 6),
    ]
    datas = box.segments(DEVICE, 9, events, per_block=3, per_segment=1)
    row = summarise(log_of(datas[0], datas[2]))["health"][0]
    assert row["segments_missing"] == 1
    # What a full ring lost are the first ones: numbers begin at 0 in each boot.
    assert summarise(log_of(*datas[1:]))["health"][0]["segments_missing"] == 1
    row = summarise(log_of(*datas))["health"][0]
    assert (row["reset_cause"], row["heap_limit"], row["board_kind"]) == (2, 131_072, 1)
    assert (row["firmware"], row["firmware_set"]) == ("1.12.345", "small")
    assert (row["heap_low"], row["errors"], row["duplicates"]) == (8_000, 1, 6)
    assert (row["battery_first_mv"], row["battery_last_mv"], row["battery_low_mv"]) == (
        3_700,
        3_600,
        3_600,
    )
    assert (row["segments_missing"], row["blocks_lost"]) == (0, 0)


def test_no_damage_gets_through():
    """Any bytes: every block is either exactly one that was written or a reason."""
    datas = box.segments(DEVICE, 1, box.Duty().run(100, 10).events, wall_ms=WALL)
    good = set(
        zip(
            *(getattr(events_of(log_of(*datas)), n) for n in ("time_ms", "code", "a", "c")),
            strict=True,
        )
    )
    rng = random.Random(7)
    for _ in range(300):
        spoilt = bytearray(rng.choice(datas))
        for _ in range(rng.randrange(1, 6)):
            spoilt[rng.randrange(32, len(spoilt))] ^= 1 << rng.randrange(8)
        del spoilt[rng.randrange(33, len(spoilt) + 1) :]
        log = log_of(bytes(spoilt))
        found = events_of(log)
        rows = zip(*(getattr(found, n) for n in ("time_ms", "code", "a", "c")), strict=True)
        assert set(rows) <= good
        whole = (len(spoilt) - 32 + 511) // 512
        bad = {block for block, _ in damages_of(log)}
        assert segments_of(log)[0].blocks == whole
        assert segments_of(log)[0].blocks_bad == len(bad)
