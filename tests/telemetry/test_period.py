"""Periods of devices that wrote logs: hours count where they lie, whatever boot they are of."""

import os
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from drupelet_tools.telemetry.analysis import buckets, comparison, slices
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.analysis.group_costs import Period
from drupelet_tools.telemetry.analysis.lake_view import DevicesView
from drupelet_tools.telemetry.analysis.period import PeriodView, read_hours
from drupelet_tools.telemetry.analysis.report_figures import build
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.page import report
from drupelet_tools.telemetry.tables.hour_bins import HOUR_MS
from repeats import few
from telemetry import box_writer as box
from telemetry.segment_log import spoil

START_MS = 1_780_272_000_000  # 2026-06-01, 00:00 UTC
WELL, PUMP = bytes.fromhex("a0000001"), bytes.fromhex("b0000002")
DAY_MS = 24 * HOUR_MS
WEEK_H = 7 * 24
FRAMES, BYTES, MESSAGES = 0, 1, 2  # kinds of traffic


def log_of(device, boot, hours, awake_ms, *, begin_ms=START_MS, cause=1, clock=True):
    """A boot that writes its counters at the end of each hour; `awake_ms(hour)` of each it sends.

    A message is created in the middle of each sixth hour and acknowledged by the other device.
    """
    events = [(0, box.BOOT, cause, boot, 0)]
    asleep = awake = created = sent = 0
    for hour in range(hours):
        if hour % 6 == 0:
            created += 1
            name = device[0] << 24 | boot << 16 | hour
            middle = hour * HOUR_MS + HOUR_MS // 2
            events += [(middle, box.CREATED, 0, 7, name), (middle, box.DELIVERED, 0, 7, name)]
        awake += awake_ms(hour)
        asleep += HOUR_MS - awake_ms(hour)
        sent += 100 + awake_ms(hour) // 100
        # At the last ms of the hour, not at the first of the next.
        now = (hour + 1) * HOUR_MS - 1
        values = {0: asleep, 4: awake, 10: created, 11: created,
                  box.traffic_index(1, 0, BYTES): sent}  # fmt: skip
        events += [box.counter(now, index, value) for index, value in values.items()]
    wall = {"wall_ms": begin_ms, "uncertainty_ms": 0} if clock else {}
    return box.segments(device, boot, events, **wall)


def lake_with(folder, logs):
    inbox = folder / "in"
    inbox.mkdir()
    for at, data in enumerate(segment for log in logs for segment in log):
        (inbox / f"{at:05}.dbx").write_bytes(data)
    names = {
        own.hex(): {"name": own.hex(), "carrier": ["mqtt"], "board": "esp32"}
        for own in (WELL, PUMP)
    }
    job.ingest([inbox], folder / "lake", names, None)
    return delta.open_lake(folder / "lake")


def compared(state, now_ms, days=7.0):
    hours = read_hours(state, comparison.periods_of(now_ms, days))
    return comparison.compare(state, hours, FleetPlan(), now_ms, days)


def views_of(state, periods):
    hours = read_hours(state, tuple(periods))
    return [
        PeriodView(state, sums, traffic, ())
        for sums, traffic in zip(hours.sums, hours.traffic, strict=True)
    ]


@pytest.fixture(scope="module")
def fortnight(tmp_path_factory):
    """Two devices that never start anew; the well sends twice as long from the second week on."""
    folder = tmp_path_factory.mktemp("fortnight")
    return lake_with(folder, (
        log_of(WELL, 1, 2 * WEEK_H, lambda hour: 20_000 if hour < WEEK_H else 40_000),
        log_of(PUMP, 1, 2 * WEEK_H, lambda _: 20_000),
    ))  # fmt: skip


def test_one_boot_is_in_both_periods_with_what_it_did_in_each(fortnight):
    result = compared(fortnight, START_MS + 14 * DAY_MS)
    assert result["hours"] == [2 * WEEK_H, 2 * WEEK_H]
    assert result["boots"] == [0, 0] and result["long_boots"] == 0
    fleet = {row["what"]: (row["now"], row["before"]) for row in result["fleet"]}
    assert fleet["Devices heard"] == (2, 2)
    assert fleet["Delivered"] == (2 * WEEK_H / 6, 2 * WEEK_H / 6)
    # 300 and 300 B an hour, then 500 and 300; a message each six hours.
    assert fleet["Bytes per message"] == pytest.approx((6 * 400, 6 * 300))
    [risen] = result["devices"]
    assert risen["device"] == WELL.hex() and 0.1 < risen["share"] < 1


def test_the_page_counts_hours_and_speaks_of_no_boots(fortnight):
    all_figures = build(fortnight.root, days=7, now_ms=START_MS + 14 * DAY_MS)
    text = report.render(all_figures)
    assert f"{2 * WEEK_H} device hours in the" in text and "boots count whole" not in text


def test_the_charge_of_a_period_is_that_of_a_boot_of_its_own(fortnight, tmp_path):
    """The second week as a boot by itself, in another lake."""
    alone = lake_with(tmp_path, [
        log_of(WELL, 1, WEEK_H, lambda _: 40_000, begin_ms=START_MS + 7 * DAY_MS)
    ])  # fmt: skip
    now_ms = START_MS + 14 * DAY_MS
    per_day = []
    for state in (fortnight, alone):
        result = compared(state, now_ms)
        rows = {row["what"]: row["now"] for row in result["fleet"]}
        per_day.append(rows["Charge per day, modelled, median device"])
    [risen] = compared(fortnight, now_ms)["devices"]
    assert risen["now"] == pytest.approx(per_day[1], rel=1e-6)


def test_a_message_counts_where_it_was_created_even_if_it_came_later(tmp_path):
    """Of the week before all came; of the last week all but what the pump has not heard of."""
    name = 0xA0 << 24 | 1 << 16
    late, never = name | 1, name | 2
    well = [(0, box.BOOT, 1, 1, 0)]
    pump = list(well)
    for at_h, message in ((WEEK_H - 1, late), (2 * WEEK_H - 40, never)):
        well.append((at_h * HOUR_MS, box.CREATED, 0, 7, message))
        well.append((at_h * HOUR_MS, box.DELIVERED, 0, 7, message))
    pump.append((WEEK_H * HOUR_MS + 2 * HOUR_MS, box.DELIVERED, 1, 7, late))
    for events in (well, pump):
        events.append(box.counter(2 * WEEK_H * HOUR_MS - 1, 0, 1))
    state = lake_with(tmp_path, [
        box.segments(device, 1, events, wall_ms=START_MS, uncertainty_ms=0)
        for device, events in ((WELL, well), (PUMP, pump))
    ])  # fmt: skip
    result = compared(state, START_MS + 14 * DAY_MS)
    fleet = {row["what"]: (row["now"], row["before"]) for row in result["fleet"]}
    assert fleet["Latency p50"] == (None, pytest.approx(3 * 3600))
    assert fleet["Undelivered"] == (1, 0)


def test_a_boot_that_goes_on_has_no_second_reset(fortnight):
    state = delta.open_lake(fortnight.root)
    end_ms = START_MS + 14 * DAY_MS
    periods = Period(end_ms - 7 * DAY_MS, end_ms), Period(START_MS, end_ms)
    second, whole = (
        view.read("health")["reset_cause"].to_pylist() for view in views_of(state, periods)
    )
    assert (second, whole) == ([None, None], [1, 1])


@pytest.mark.parametrize("seed", few(2, range(4)))
def test_periods_that_meet_add_up_to_the_whole(tmp_path, seed):
    """Whatever boots, damage and edges; boots without a clock are in no period."""
    rng = random.Random(seed)
    logs = []
    for device in (WELL, PUMP):
        at_ms = START_MS
        for boot in range(1, rng.randrange(2, 6)):
            hours = rng.randrange(1, 60)
            log = log_of(
                device, boot, hours, lambda _: rng.randrange(1_000, 60_000), begin_ms=at_ms,
                cause=rng.choice((1, 4)), clock=rng.random() < 0.8,
            )  # fmt: skip
            logs.append([spoil(part, 0) if rng.random() < 0.1 else part for part in log])
            at_ms += hours * HOUR_MS + rng.randrange(10 * HOUR_MS)
    state = lake_with(tmp_path, logs)
    end_ms = START_MS + 20 * DAY_MS
    edges = [0, *sorted(rng.randrange(START_MS, end_ms) for _ in range(9)), end_ms]
    periods = [Period(low, high) for low, high in pairwise(edges)]
    views = views_of(state, periods)
    hours = state.read("hours")
    timed = pa.table(
        {"boot_key": [f"{row['device']}/{row['boot']}" for row in hours.to_pylist()],
         "known": pc.is_valid(hours["wall_ms"])}
    )  # fmt: skip
    known = set(timed.filter(timed["known"])["boot_key"].to_pylist())
    assert sum(len(view.read("state_time")) for view in views) > 0

    def of_whole(table, names, value):
        sums = {}
        for row in state.read(table).to_pylist():
            key = tuple(row[name] for name in names)
            if f"{row['device']}/{row['boot']}" in known and row.get("state") != 9:
                sums[key] = sums.get(key, 0) + (row[value] or 0)
        return {key: total for key, total in sums.items() if total}

    def of_periods(table, names, value):
        sums = {}
        for view in views:
            rows = view.read(table)
            assert rows.schema == state.read(table).schema
            for row in rows.to_pylist():
                key = tuple(row[name] for name in names)
                sums[key] = sums.get(key, 0) + (row[value] or 0)
        return {key: total for key, total in sums.items() if total}

    for table, names, value in (
        ("traffic", ("device", "boot", "carrier", "direction", "kind", "unit"), "value"),
        *(("health", ("device", "boot"), name) for name in codes.HEALTH_COUNTERS.values()),
    ):
        assert of_periods(table, names, value) == of_whole(table, names, value)
    keys = ("device", "boot", "name")
    whole = of_whole("state_time", keys, "ms")
    own = of_periods("state_time", keys, "ms")
    assert own == {key: ms for key, ms in whole.items() if key[2] in codes.STATES}


def test_a_part_of_a_fleet_has_the_figures_of_a_lake_of_its_own(fortnight, tmp_path):
    alone = lake_with(tmp_path, [log_of(PUMP, 1, 2 * WEEK_H, lambda _: 20_000)])
    now_ms = START_MS + 14 * DAY_MS
    folder = tmp_path / "slices"
    folder.mkdir()
    slice_of = {WELL.hex(): 0, PUMP.hex(): 1}
    parts = slices.write_slices(folder, fortnight, slice_of, comparison.periods_of(now_ms, 7))
    devices = fortnight.read_devices()
    view = DevicesView.of(parts, 1, devices.filter(pc.equal(devices["device"], PUMP.hex())))
    part = comparison.compare(view.as_lake, parts.hours(1), FleetPlan(), now_ms, 7)
    # Who else is in its group, and so what it lacks, it knows in both; alone it has no author.
    beside = {"Latency p50", "Latency p90", "Undelivered"}
    by_name = [
        {row["what"]: row for row in result["fleet"] if row["what"] not in beside}
        for result in (part, compared(alone, now_ms))
    ]
    assert by_name[0] == by_name[1] and len(by_name[0]) == 7
    assert part["hours"] == [WEEK_H, WEEK_H]


def test_devices_on_pages_of_a_large_fleet_are_compared_as_on_one_page(tmp_path, monkeypatch):
    """Pages go by names, slices lie across them, and each device's own change is the same."""
    devices = [bytes.fromhex(f"{at:02x}00000{at}") for at in range(1, 6)]
    state = lake_with(tmp_path, [
        log_of(device, 1, 2 * WEEK_H, lambda hour, at=at: 9_000 + 900 * at * (hour > WEEK_H))
        for at, device in enumerate(devices)
    ])  # fmt: skip
    now_ms = START_MS + 14 * DAY_MS
    names = {device.hex(): {"name": f"n{9 - at}", "board": "esp32", "carriers": "mqtt"}
             for at, device in enumerate(devices)}  # fmt: skip
    commit.append(state.root, {"health": []}, "names", names=names)
    whole = build(state.root, days=7, now_ms=now_ms)["comparison"]
    monkeypatch.setattr(buckets, "SLICE_DEVICES", 2)
    monkeypatch.setattr(buckets, "BUCKET_DEVICES", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    pages = []

    def render(all_figures):
        pages.append(all_figures["comparison"])
        return ""

    task = buckets.Task(state.root, None, FleetPlan(), now_ms, 7, 0, tmp_path, "pages")
    buckets.run(task, render, None)
    assert [page["hours"] for page in pages] == [[WEEK_H, WEEK_H]] * 5
    risen = {row["device"]: row for page in pages for row in page["devices"]}
    assert risen == {row["device"]: row for row in whole["devices"]} and len(risen) == 4
