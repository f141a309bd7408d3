"""Hours and days of boots: they add up to the boots' totals, however a log is cut or damaged."""

import random

import pyarrow.compute as pc
import pytest

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.tables.days import DAY_MS
from drupelet_tools.telemetry.tables.hour_bins import HOUR_MS, HOURS_MAX
from drupelet_tools.telemetry.tables.schemas import STATE_COLUMNS
from repeats import few
from telemetry import box_writer as box
from telemetry.segment_log import spoil

DEVICE = bytes.fromhex("a0000001")
WALL_MS = 1_795_000_000_000
BYTES = box.traffic_index(0, 0, 1)


def lake_of(root, datas):
    """A lake of these segments."""
    inbox = root / "in"
    inbox.mkdir(exist_ok=True)
    for at, data in enumerate(datas):
        (inbox / f"{at:04}.dbx").write_bytes(data)
    job.ingest([inbox], root / "lake", {}, None)
    return delta.open_lake(root / "lake")


def rows_of(root, events, table="hours", wall_ms=WALL_MS, **cuts):
    datas = box.segments(DEVICE, 1, events, wall_ms=wall_ms, uncertainty_ms=20, **cuts)
    return lake_of(root, datas).read(table).to_pylist()


def random_log(rng):
    """A boot of some hours: states, counters, battery and memory at odd times."""
    now, values, events = 0, {}, [(0, box.BOOT, rng.choice((1, 4)), 1, 0)]
    for _ in range(rng.randrange(40, 160)):
        now += rng.choice((5, 700, 60_000, 3 * HOUR_MS // 2)) * rng.randrange(1, 4)
        kind = rng.randrange(4)
        if kind == 0:
            events.append(box.state(now, rng.randrange(8)))
        elif kind == 1:
            events.append((now, box.BATTERY, 0, rng.randrange(3000, 4200), 0))
        elif kind == 2:
            events.append((now, box.HEAP_LOW, 0, 0, rng.randrange(1000, 90_000)))
        else:
            for index in rng.sample((0, 2, 4, 8, 10, 11, 13, 64, BYTES, BYTES + 2, BYTES + 16), 4):
                values[index] = values.get(index, 0) + rng.randrange(1, 50_000)
                events.append(box.counter(now, index, values[index]))
    return events


def check_sums(state):
    """Hours, days and the totals of boots say the same."""
    for table in ("hours", "days"):
        rows = state.read(table).to_pylist()

        def total(device, name, rows=rows):
            return sum(row[name] for row in rows if row["device"] == device)

        health = state.read("health").to_pylist()
        for device in {row["device"] for row in health}:
            mine = [row for row in rows if row["device"] == device]
            boots = [row for row in health if row["device"] == device]
            assert total(device, "boots") == len(boots)
            causes = [row["reset_cause"] for row in boots]
            assert total(device, "resets") == sum(cause not in (None, 4) for cause in causes)
            for name in codes.HEALTH_COUNTERS.values():
                assert total(device, name) == sum(row[name] for row in boots), name
            for name in ("battery_low_mv", "heap_low"):
                lows = [[r[name] for r in some if r[name] is not None] for some in (mine, boots)]
                assert min(lows[0], default=None) == min(lows[1], default=None)
            times = [r for r in state.read("state_time").to_pylist() if r["device"] == device]
            for index, name in enumerate(STATE_COLUMNS):
                wanted = sum(row["ms"] for row in times if row["state"] == index)
                assert total(device, name) == wanted, name
            kept, wanted = {}, {}
            own = [row for row in state.read("traffic").to_pylist() if row["device"] == device]
            for sums, counted in ((wanted, own), (kept, [t for r in mine for t in r["traffic"]])):
                for row in counted:
                    key = (row["carrier"], row["direction"], row["kind"], row["unit"])
                    sums[key] = sums.get(key, 0) + row["value"]
            assert kept == wanted
            sent = {key[1]: 0 for key in kept} | {
                key[1]: sum(v for k, v in kept.items() if k[1:3] == (key[1], "carrier"))
                for key in kept
            }
            assert total(device, "bytes_sent") == sent.get("sent", 0)
            assert total(device, "bytes_received") == sent.get("received", 0)


@pytest.mark.parametrize("seed", few(3, range(12)))
def test_hours_add_up_to_the_boots_in_any_cut_and_order_with_losses(tmp_path, seed):
    rng = random.Random(seed)
    datas = []
    for device in (DEVICE, b"\1\2\3\4"):
        for boot in (1, 2):
            cut = {"per_block": rng.randrange(3, 42), "per_segment": rng.randrange(1, 9)}
            wall = {"wall_ms": WALL_MS + boot * 10 * DAY_MS} if rng.random() < 0.7 else {}
            datas += box.segments(device, boot, random_log(rng), **cut, **wall)
    if seed % 3:  # some are missing, and some blocks are damaged
        datas = rng.sample(datas, max(1, len(datas) * 2 // 3))
        datas = [spoil(data, 0) if rng.random() < 0.3 else data for data in datas]
    rng.shuffle(datas)
    state = lake_of(tmp_path, datas)
    check_sums(state)
    whole = {name: state.read(name).to_pylist() for name in ("hours", "days")}
    (tmp_path / "parts").mkdir()
    other_order = rng.sample(datas, len(datas))
    for low in range(0, len(datas), 3):
        again = lake_of(tmp_path / "parts", other_order[: low + 3])
    assert {name: again.read(name).to_pylist() for name in whole} == whole


def test_cuts_do_not_show(tmp_path):
    events = random_log(random.Random(7))
    tables = []
    for at, (per_block, per_segment) in enumerate(((41, 8), (5, 2), (3, 1))):
        root = tmp_path / str(at)
        root.mkdir()
        rows = rows_of(root, events, per_block=per_block, per_segment=per_segment)
        tables.append(rows)
    assert tables[0] == tables[1] == tables[2]


def test_an_increase_counts_in_its_hour_and_across_hours_evenly(tmp_path):
    quarter = HOUR_MS // 4
    events = [
        (0, box.BOOT, 1, 1, 0),
        box.counter(quarter, BYTES, 100),
        box.counter(2 * quarter, BYTES, 300),
        box.counter(6 * quarter, BYTES, 700),  # half of it before the hour, half in it
        box.counter(6 * quarter, 10, 3),
        box.counter(7 * quarter, BYTES, 750),
        box.counter(15 * quarter, 0, 8 * quarter),  # two hours of deep sleep
    ]
    rows = rows_of(tmp_path, events)
    assert [row["hour"] for row in rows] == [0, 1, 2, 3]
    assert [row["bytes_sent"] for row in rows] == [500, 250, 0, 0]
    assert [row["messages_created"] for row in rows] == [1, 2, 0, 0]
    assert [row["deep_sleep_ms"] for row in rows] == [0, quarter, 4 * quarter, 3 * quarter]
    assert [row["boots"] for row in rows] == [row["resets"] for row in rows] == [1, 0, 0, 0]
    assert [row["wall_ms"] for row in rows] == [WALL_MS + at * HOUR_MS for at in range(4)]
    assert {row["wall_uncertainty_ms"] for row in rows} == {20}
    [traffic] = rows[1]["traffic"]
    assert traffic == {
        "carrier": "serial", "direction": "sent", "kind": "carrier", "unit": "bytes", "value": 250,
    }  # fmt: skip


def test_a_state_behind_the_last_counter_lies_where_events_show_it(tmp_path):
    events = [
        box.counter(0, 2, 0),
        box.state(0, 1),
        (2 * HOUR_MS, box.BATTERY, 0, 3700, 0),
        (5 * HOUR_MS // 2, box.BATTERY, 0, 3600, 0),
    ]
    rows = rows_of(tmp_path, events)
    assert [row["light_sleep_ms"] for row in rows] == [HOUR_MS, HOUR_MS, HOUR_MS // 2]
    names = ("battery_first_mv", "battery_last_mv", "battery_low_mv")
    assert [rows[2][name] for name in names] == [3700, 3600, 3600]


def test_a_year_has_8760_hours_and_its_days_lie_by_utc(tmp_path):
    times = range(0, 365 * DAY_MS, HOUR_MS)
    events = [box.counter(at + 60_000, 2, (at + 60_000)) for at in times]
    state = lake_of(tmp_path, box.segments(DEVICE, 1, events, wall_ms=WALL_MS))
    hours, days = state.read("hours"), state.read("days").to_pylist()
    assert hours.num_rows == 8_760
    assert pc.max(hours["idle_ms"]).as_py() == HOUR_MS
    assert [row["wall_ms"] % DAY_MS for row in days] == [0] * 366
    assert {row["hours"] for row in days[1:-1]} == {24}
    assert all(row["boot"] is None is row["boot_day"] for row in days)
    assert sum(row["hours"] for row in days) == 8_760


def test_without_a_clock_days_are_those_of_the_boot(tmp_path):
    events = [box.counter(at * 7 * HOUR_MS + 1, 10, at + 1) for at in range(8)]
    days = rows_of(tmp_path, events, "days", wall_ms=None)
    assert [(row["boot"], row["boot_day"], row["wall_ms"]) for row in days] == [
        (1, 0, None), (1, 1, None), (1, 2, None),
    ]  # fmt: skip
    assert sum(row["messages_created"] for row in days) == 8


def test_days_use_the_clocks_that_exchanges_give(tmp_path):
    """A boot without an anchor gets its hours and days from `clocks`, as its segments do."""
    other = b"\1\2\3\4"
    born, heard = [(1_000, box.CREATED, 0, 0, 7)], [(5_000, box.DELIVERED, 1, 0, 7)]
    back = [(6_000, box.CREATED, 0, 0, 9)]
    arrived = [(3_000, box.DELIVERED, 1, 0, 9)]
    state = lake_of(tmp_path, [
        *box.segments(DEVICE, 1, [*born, *arrived], wall_ms=WALL_MS, uncertainty_ms=20),
        *box.segments(other, 1, [*heard, *back]),
    ])  # fmt: skip
    assert state.read("clocks").num_rows == 1
    starts = {row["device"]: row["wall_ms"] for row in state.read("hours").to_pylist()}
    offsets = {r["device"]: r["wall_offset_ms"] for r in state.read("segments").to_pylist()}
    assert starts == offsets and None not in starts.values()
    assert all(row["wall_ms"] % DAY_MS == 0 for row in state.read("days").to_pylist())


def test_a_boot_that_claims_centuries_has_ten_years_of_hours_at_most(tmp_path):
    events = [box.counter(1, 10, 1)]
    later = [box.counter(2**47, 10, 1_000_000_000), box.state(2**47, 2)]
    datas = [box.segment(DEVICE, 1, at, [some]) for at, some in enumerate((events, later))]
    state = lake_of(tmp_path, datas)
    check_sums(state)
    hours = state.read("hours")
    assert hours.num_rows <= HOURS_MAX and pc.max(hours["hour"]).as_py() == HOURS_MAX - 1
