"""The analyses against truth worked out by hand or by another way."""

import json
import math
import random

import numpy as np
import pytest

from drupelet_tools.telemetry.analysis import (
    figures,
    fleet_file,
    group_costs,
    latency,
    sync_cost,
    watch,
)
from drupelet_tools.telemetry.analysis.attention import SEVERITIES
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.page import report
from drupelet_tools.telemetry.text.time_units import span
from telemetry import fleet_rows
from telemetry.fleet_rows import DAY_MS, START_MS, message, segment
from telemetry.lake_figures import HOUR, A, B, C, D, figures_of, lake_of


def test_undelivered_messages_have_waited_until_the_log_ends(tmp_path):
    rows = []
    for turn in range(10):
        born = START_MS + turn * 1000
        rows.append(message(A, turn, "created", born))
        if turn < 8:
            rows.append(message(B, turn, "delivered", born + 100 * (turn + 1)))
    _, found = figures_of(tmp_path, messages=rows)
    wait = found[B]["latency"]
    assert (wait["messages"], wait["timed"], wait["undelivered"]) == (10, 8, 2)
    assert (wait["p50_ms"], wait["p90_ms"], wait["p99_ms"]) == (500, None, None)
    assert wait["p50_epochs"] == 0.5  # epochs of 1,000 ms
    assert wait["uncertainty_ms"] == 40
    assert wait["curve"][0] == (0.1, 0.0) and wait["curve"][-1] == (0.8, 0.8)
    assert found[A]["latency"]["messages"] == 0


def test_a_message_later_than_the_log_was_not_watched(tmp_path):
    rows = [message(A, 1, "created", START_MS), message(A, 2, "created", START_MS + 20 * HOUR),
            message(B, 1, "delivered", START_MS + 5)]  # fmt: skip
    _, found = figures_of(tmp_path, messages=rows)
    assert found[B]["latency"]["messages"] == 1
    assert found[B]["latency"]["undelivered"] == 0


def test_an_unknown_clock_is_told_apart_from_a_missing_delivery(tmp_path):
    rows = [message(A, 1, "created", None), message(B, 1, "delivered", START_MS),
            message(A, 2, "created", START_MS),
            message(B, 2, "delivered", START_MS + 7)]  # fmt: skip
    _, found = figures_of(tmp_path, messages=rows)
    wait = found[B]["latency"]
    assert (wait["no_clock"], wait["timed"], wait["undelivered"]) == (1, 1, 0)


def test_the_first_delivery_counts_and_its_rows_per_peer_are_one_message(tmp_path):
    rows = [message(A, 1, "created", START_MS),
            message(B, 1, "delivered", START_MS + 900, peer=2),
            message(B, 1, "delivered", START_MS + 300, peer=1)]  # fmt: skip
    _, found = figures_of(tmp_path, messages=rows)
    assert found[B]["latency"]["p50_ms"] == 300
    assert found[B]["latency"]["messages"] == 1


def test_groups_are_found_by_who_delivers_whom(tmp_path):
    """A and B share, C and D share: A's messages are not expected at C."""
    rows = []
    for turn in range(4):
        rows += [message(A, turn, "created", START_MS),
                 message(B, turn, "delivered", START_MS + 1),
                 message(C, 16 + turn, "created", START_MS)]  # fmt: skip
    rows.append(message(D, 16, "delivered", START_MS + 1))
    _, found = figures_of(tmp_path, messages=rows)
    told = {
        d: (row["latency"]["timed"], row["latency"]["undelivered"]) for d, row in found.items()
    }
    assert told == {A: (0, 0), B: (4, 0), C: (0, 0), D: (1, 3)}


def test_a_device_that_delivers_nothing_counts_in_the_only_group(tmp_path):
    rows = [message(A, 1, "created", START_MS), message(B, 1, "delivered", START_MS + 1),
            message(C, 9, "created", START_MS), message(C, 1, "offered", START_MS)]  # fmt: skip
    found, devices = figures_of(tmp_path, messages=rows)
    assert devices[C]["latency"]["undelivered"] == 1
    assert any(
        line["device"] == C and line["kind"] == "undelivered" for line in found["attention"]
    )


def test_another_systems_frames_are_in_no_group(tmp_path):
    rows = [message(A, 1, "created", START_MS), message(B, 1, "delivered", START_MS + 1),
            message("lora-1", 77, "sent", START_MS, peer=1)]  # fmt: skip
    found, devices = figures_of(tmp_path, messages=rows)
    assert devices["lora-1"]["latency"]["messages"] == 0
    assert found["fleet"]["latency"]["messages"] == 1
    assert {row["device"]: row["foreign"] for row in found["devices"]} == {
        A: False, B: False, "lora-1": True,
    }  # fmt: skip


def test_another_systems_bytes_are_not_set_against_our_deliveries(tmp_path):
    rows = [message(A, 1, "created", START_MS), message(A, 1, "sent", START_MS, peer=1),
            message(B, 1, "delivered", START_MS + 1),
            message("lora-1", 77, "sent", START_MS, peer=1, count=50, sends_max=50)]  # fmt: skip
    traffic = fleet_rows.traffic(A, "mqtt", "sent", {1: 200, 3: 120})
    traffic += fleet_rows.traffic("lora-1", "lora", "sent", {1: 9_000, 3: 8_000})
    health = [fleet_rows.health(A, messages_created=1, messages_delivered=1),
              fleet_rows.health(B, messages_delivered=1),
              fleet_rows.health("lora-1", messages_created=9, messages_delivered=9)]  # fmt: skip
    found, _ = figures_of(tmp_path, messages=rows, traffic=traffic, health=health)
    fleet = found["fleet"]
    assert fleet["bytes_per_message"] == 200
    assert fleet["multiplier"]["records"] == 1
    assert fleet["multiplier"]["bytes"] == pytest.approx(200 / 120)
    assert {line["carrier"]: line["bytes"] for line in fleet["carriers"]} == {
        "lora": 9_000, "mqtt": 200,
    }  # fmt: skip


def test_pairs_beyond_the_bound_are_sampled_evenly(monkeypatch):
    monkeypatch.setattr(latency, "PAIRS_MAX", 100)
    author = np.array([0] * 200 + [-1] * 5)
    of_message = np.array([0] * 205)
    groups = group_costs.Groups(author, of_message, [np.array([0, 1, 2])], [0])
    pairs = latency.sampled_pairs(groups)
    assert pairs[2] == 4
    assert len(pairs[0]) == 100
    assert set(pairs[1].tolist()) == {1, 2}


def test_the_multiplier_is_the_papers(tmp_path):
    """Sent three times, acknowledged once: x4."""
    rows = [message(A, 1, "created", START_MS),
            message(A, 1, "sent", START_MS, peer=1, count=3, sends_max=3),
            message(A, 1, "acked", START_MS + 9, peer=1),
            message(B, 1, "delivered", START_MS + 8)]  # fmt: skip
    traffic = fleet_rows.traffic(A, "mqtt", "sent", {1: 700, 3: 360})
    traffic += fleet_rows.traffic(B, "mqtt", "sent", {1: 20, 2: 12})
    health = [fleet_rows.health(A, messages_created=1, messages_delivered=1),
              fleet_rows.health(B, messages_delivered=1)]  # fmt: skip
    found, devices = figures_of(tmp_path, messages=rows, traffic=traffic, health=health)
    assert found["fleet"]["multiplier"]["records"] == 4
    # 720 bytes went out for one message of 120.
    assert found["fleet"]["multiplier"]["bytes"] == pytest.approx(6)
    assert devices[A]["multiplier"]["records"] == 4
    assert devices[A]["multiplier"]["bytes"] == pytest.approx(700 / 120)
    assert devices[B]["multiplier"] == {"records": None, "bytes": None, "deliveries": 0}
    assert found["fleet"]["sync"]["sends"] == [0, 0, 1, 0, 0, 0, 0, 0]
    assert devices[A]["retransmit_share"] == pytest.approx(2 / 3)
    [line] = found["fleet"]["carriers"]
    assert (line["bytes"], line["content"]) == (720, 360)


def test_bytes_of_groups_add_up_to_those_of_the_fleet(large):
    assert sum(row["bytes"] for row in large["fleet"]["groups"]) == pytest.approx(
        large["fleet"]["client_bytes_sent"], abs=len(large["fleet"]["groups"])
    )
    assert len(large["fleet"]["groups"]) == 4  # tens of devices that deliver each other's


def test_the_last_bar_of_the_histogram_is_open(tmp_path):
    rows = [message(A, 1, "created", START_MS)]
    for peer, sends in enumerate((1, 2, 2, 8, 30), 1):
        rows.append(message(A, 1, "sent", START_MS, peer=peer, count=sends, sends_max=sends))
    found, _ = figures_of(tmp_path, messages=rows)
    assert found["fleet"]["sync"]["sends"] == [1, 2, 0, 0, 0, 0, 0, 2]
    assert found["fleet"]["sync"]["pairs"] == 5


def test_a_messages_sends_run_on_over_boots_and_peers_stay_apart(tmp_path):
    rows = [message(A, 1, "created", START_MS)]
    for boot, count in ((1, 2), (2, 1)):
        rows.append(message(A, 1, "sent", START_MS, peer=1, boot=boot, count=count, sends_max=1))
    rows.append(message(A, 1, "sent", START_MS, peer=2, count=1, sends_max=1))
    found, devices = figures_of(tmp_path, messages=rows)
    assert devices[A]["sync"]["pairs"] == found["fleet"]["sync"]["pairs"] == 2
    assert devices[A]["sync"]["sends"] == [1, 0, 1, 0, 0, 0, 0, 0]
    assert devices[A]["sync"]["sent"] == 4


def test_charge_by_operation_adds_up_to_charge_by_state():
    generator = random.Random(9)
    for _ in range(200):
        charge = [{"state": state, "mah": generator.choice((0.0, generator.uniform(0, 50)))}
                  for state in (-1, 0, 1, 2, 3, 4, 5, 6, 8, 9)]  # fmt: skip
        lines = [
            {"direction": direction, "bytes": 1,
             **{kind: generator.choice((0, generator.randrange(9000)))
                for kind in sync_cost.BYTE_KINDS}}
            for direction in ("sent", "received")
            for _ in range(generator.randrange(3))
        ]  # fmt: skip
        pairs = generator.randrange(5)
        own = {"sent": pairs + generator.randrange(4), "pairs": pairs}
        spent = sync_cost.by_operation(charge, {"lines": lines}, own)
        total = math.fsum(row["mah"] for row in charge)
        assert sync_cost.total(spent) == pytest.approx(total, rel=1e-9, abs=1e-9)
        assert all(mah >= 0 for mah in spent.values())


def test_charge_is_shared_out_by_bytes_and_repeats():
    traffic = {"lines": [{"direction": "sent", "message": 300, "ack": 100}]}
    charge = [{"state": 4, "mah": 4.0}, {"state": 3, "mah": 2.0}, {"state": 0, "mah": 1.0}]
    spent = sync_cost.by_operation(charge, traffic, {"sent": 3, "pairs": 2})
    assert spent == pytest.approx(
        {"message": 2.0, "retransmission": 1.0, "ack": 1.0, "listening": 2.0, "sleep": 1.0}
    )


def days(*numbers, lines=300):
    return [
        segment(A, n, n * DAY_MS, (n + 1) * DAY_MS - 1, START_MS, events=lines) for n in numbers
    ]


def test_a_silent_device_and_its_past_outages():
    presence = watch.presence(days(*range(10), *range(40, 50)), None, START_MS + 51 * DAY_MS)
    assert presence["period_ms"] == DAY_MS - 1
    assert presence["outages"] == 1
    assert presence["outage_list"][0]["ms"] == pytest.approx(30 * DAY_MS, rel=0.01)
    assert presence["outage_list"][0]["from_wall_ms"] == START_MS + 10 * DAY_MS - 1
    assert presence["out_share"] == pytest.approx(0.6, abs=0.01)
    assert not presence["silent"]
    later = watch.presence(days(*range(10)), None, START_MS + 14 * DAY_MS)
    assert later["silent"] and later["silent_ms"] == pytest.approx(4 * DAY_MS, abs=2)
    # Its own schedule decides: once a week, four days are nothing.
    weekly = watch.presence(days(*range(10)), 7 * DAY_MS, START_MS + 14 * DAY_MS)
    assert not weekly["silent"]
    assert watch.presence(days(1), None, START_MS + 99 * DAY_MS)["silent"] is False


def test_a_device_is_silent_by_the_epoch_that_it_announces():
    """Two short segments show no schedule; the device itself has told one."""
    rows = [segment(A, n, n * 900_000, n * 900_000 + 5_000, START_MS) for n in range(2)]
    end = START_MS + 905_000
    learned = watch.presence(rows, None, end + 99 * DAY_MS)
    assert (learned["period_ms"], learned["silent"]) == (None, False)
    for away, silent in ((2.9 * 900_000, False), (3.1 * 900_000, True)):
        presence = watch.presence(rows, None, end + away, 900_000)
        assert (presence["period_ms"], presence["period_source"]) == (900_000, "announced")
        assert presence["silent"] is silent
    # Its owner's word goes before its own.
    presence = watch.presence(rows, 9_000_000, end + 3.1 * 900_000, 900_000)
    assert (presence["period_source"], presence["silent"]) == ("fleet file", False)
    # A log comes in whole segments: what it has not told yet is no silence.
    rows = [segment(A, n, n * HOUR, n * HOUR + HOUR - 9, START_MS) for n in range(3)]
    for away, silent in ((2.9 * HOUR, False), (3.1 * HOUR, True)):
        presence = watch.presence(rows, None, START_MS + 3 * HOUR - 9 + away, 1_000)
        assert presence["silent"] is silent
    assert presence["outages"] == 0


def test_outages_are_against_the_announced_epoch(tmp_path):
    """A device that wakes every quarter of an hour is away for a day, twice."""
    begins = [0, 900_000, DAY_MS, DAY_MS + 900_000, 2 * DAY_MS]
    rows = [segment(A, n, at, at + 5_000, START_MS) for n, at in enumerate(begins)]
    health = [fleet_rows.health(A, epoch_ms=900_000)]
    found, devices = figures_of(tmp_path, segments=rows, health=health)
    seen = devices[A]["presence"]
    assert (seen["outages"], seen["period_source"]) == (2, "announced")
    assert any(line["kind"] == "away" for line in found["attention"])
    later = figures.figures(delta.open_lake(tmp_path / "lake"), now_ms=START_MS + 3.0 * DAY_MS)
    [line] = [line for line in later["attention"] if line["kind"] == "silent"]
    assert line["since_ms"] == START_MS + 2 * DAY_MS + 5_000
    limit = span(seen["silent_after_ms"])
    assert line["problem"] == f"silent for 24.0 h; it counts as silent after {limit}"


def test_a_device_without_a_clock_has_no_presence():
    rows = [segment(A, 0, 0, 5, None)]
    presence = watch.presence(rows, None, START_MS)
    assert (presence["last_wall_ms"], presence["silent"]) == (None, False)
    assert watch.integrity(rows, [fleet_rows.health(A)], 0)["wall_unknown"] == 1


def reading(day, mv=None, soc=None, celsius=None):
    wall = START_MS + int(day * DAY_MS)
    return {"wall_ms": wall, "mv": mv, "soc_pct": soc, "temperature_c": celsius}


def test_warmth_is_taken_out_of_the_voltage():
    generator = random.Random(4)
    rows = []
    for hour in range(0, 60 * 24, 2):
        celsius = 10 + hour / 60 + 8 * math.sin(hour / 24 * 2 * math.pi)
        mv = 3600 - 0.4 * hour / 24 + 2 * (celsius - 20) + generator.gauss(0, 3)
        rows.append(reading(hour / 24, round(mv), celsius=celsius))
    battery = watch.battery(rows, None)
    assert battery["mv_per_c"] == pytest.approx(2, abs=0.1)
    trend = battery["mv_trend"]
    assert trend["low"] <= -0.4 <= trend["high"] and trend["found"]
    assert battery["mv_trend_raw"]["slope"] > 0  # the season hides the fall
    assert battery["mv_noise"] == pytest.approx(3, abs=0.6)
    cold = watch.battery([reading(n, 3600 - n) for n in range(20)], None)
    assert cold["mv_per_c"] is None and cold["mv_trend"]["slope"] == -1


def test_days_left_by_the_gauge_and_by_the_voltage():
    pack = fleet_file.battery_plan("lipo").default.pack
    rows = [reading(n / 4, 4000, soc=90 - n / 8) for n in range(120)]
    battery = watch.battery(rows, pack)
    assert battery["soc_source"] == "gauge"
    assert battery["life_days"] == pytest.approx(200, rel=0.01)
    assert battery["days_left"] == pytest.approx(75 * 2, rel=0.02)
    assert battery["days_left_low"] <= battery["days_left"] <= battery["days_left_high"]
    rows = [reading(n, 4100 - 5 * n) for n in range(40)]
    battery = watch.battery(rows, pack)
    assert battery["soc_source"] == "voltage"
    assert 80 < battery["life_days"] < 250
    flat = watch.battery(rows, fleet_file.battery_plan("l91").default.pack)
    assert (flat["soc_source"], flat["days_left"]) == (None, None)
    rising = watch.battery([reading(n, 3900 + n) for n in range(40)], pack)
    assert rising["days_left"] is None


def test_days_left_count_from_now():
    pack = fleet_file.battery_plan("lipo").default.pack
    rows = [reading(n / 4, 4000, soc=90 - n / 8) for n in range(120)]
    last_ms = rows[-1]["wall_ms"]
    then = watch.battery(rows, pack, last_ms)
    later = watch.battery(rows, pack, last_ms + 50 * DAY_MS)
    for name in ("days_left", "days_left_low", "days_left_high"):
        assert later[name] == pytest.approx(then[name] - 50)
    assert later["empty_ms"] == then["empty_ms"]
    assert then["empty_ms"] == pytest.approx(last_ms + then["days_left"] * DAY_MS)
    over = watch.battery(rows, pack, last_ms + 500 * DAY_MS)
    assert (over["days_left"], over["days_left_high"]) == (0, 0)
    ahead = watch.battery(rows, pack, last_ms - 5 * DAY_MS)
    assert ahead["days_left"] == then["days_left"], "a clock that is ahead adds none"


def test_a_drop_of_charge_is_counted_as_memfault_counts():
    hours = np.arange(6) * float(HOUR)
    drop, length = watch.soc_drop(hours, np.array([90.0, 88, 88, 95, 94, 94]), HOUR)
    # 2 + 0 + (charging: left out) + 1 + 0, over four of the five hours.
    assert (drop, length) == (3.0, 4 * HOUR)
    assert watch.soc_drop(hours[:1], np.array([5.0]), HOUR) == (None, 0.0)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    root = fleet_rows.large_lake(tmp_path_factory.mktemp("large") / "lake", 40)
    plan = fleet_file.battery_plan("18650")
    return figures.figures(delta.open_lake(root), plan=plan)


def test_figures_are_plain_data_for_json(large):
    text = json.dumps(large, allow_nan=False)
    assert json.loads(text)["fleet"]["devices"] == 40


def test_the_odd_ones_of_a_fleet_are_named(large):
    silent = [line["device"] for line in large["attention"] if line["kind"] == "silent"]
    assert silent == ["d0000003"]
    assert large["attention"][0]["kind"] == "silent"
    far = {(row["device"], row["figure"]) for row in large["outliers"]}
    assert ("d0000007", "overhead_per_message") in far
    assert {device for device, _ in far} <= {"d0000007", "d0000003"}
    missing = [line for line in large["attention"] if line["kind"] == "missing"]
    assert [line["device"] for line in missing] == ["d0000005"]
    severities = [SEVERITIES.index(line["severity"]) for line in large["attention"]]
    assert severities == sorted(severities)


def test_lives_lie_in_their_intervals_and_are_told_apart_from_measured_ones(large):
    for row in large["devices"]:
        life, battery = row["life"], row["battery"]
        assert life["days_low"] < life["days"] < life["days_high"]
        assert life["mah_per_day_low"] <= life["mah_per_day"] <= life["mah_per_day_high"]
        assert battery["life_days_low"] <= battery["life_days"] <= battery["life_days_high"]
        assert row["comparison"]["ratio"] == pytest.approx(battery["life_days"] / life["days"])
        assert sync_cost.total(row["spent"]) == pytest.approx(row["mah_modelled"], abs=1e-9)
        by_state = math.fsum(line["mah"] for line in row["charge"])
        assert by_state == pytest.approx(row["mah_modelled"], abs=1e-9)
    trends = {row["what"]: row for row in large["trends"]}
    volts = trends["battery voltage, measured"]
    # The falls were drawn between 2 and 9 mV a day.
    assert -9 < volts["low"] <= volts["slope"] <= volts["high"] < -2
    assert volts["found"] == volts["devices"] == 40


def test_an_assumed_battery_makes_no_charge_of_a_voltage(tmp_path):
    rows = [{"device": A, "boot": 1, "wall_ms": START_MS + n * DAY_MS, "mv": 4000 - 5 * n}
            for n in range(30)]  # fmt: skip
    state = lake_of(tmp_path, battery=rows)
    for assumed in (True, False):
        plan = fleet_file.battery_plan("18650", assumed=assumed)
        [row] = figures.figures(state, plan=plan)["devices"]
        assert (row["battery"]["soc_pct"] is None) is assumed
        assert row["battery"]["mv_trend"]["found"]


def test_trends_over_the_boots_of_one_device(tmp_path):
    """Twelve daily boots, each a bit busier and with a bit less memory than the last."""
    rows = {"segments": [], "state_time": [], "health": [], "traffic": []}
    for boot in range(12):
        offset = START_MS + boot * DAY_MS
        own = {"boot": boot}
        rows["segments"].append(segment(A, 0, 0, 20 * HOUR, offset, **own))
        awake = 600_000 + boot * 60_000
        rows["state_time"] += fleet_rows.state_time(A, {0: 20 * HOUR - awake, 2: awake}, boot)
        rows["health"].append(
            fleet_rows.health(A, last_ms=20 * HOUR, heap_low=40_000 - 500 * boot, **own)
        )
        rows["traffic"] += fleet_rows.traffic(A, "mqtt", "sent", {1: 5_000}, boot)
    found, devices = figures_of(tmp_path, **rows)
    trends = devices[A]["trends"]
    # One minute more a day at 35.5 mA instead of 0.01, over twenty hours of a day.
    assert trends["mah_per_day"]["slope"] == pytest.approx(35.49 / 60 * 24 / 20, rel=1e-6)
    assert trends["heap_low"]["slope"] == pytest.approx(-500)
    assert trends["heap_low"]["found"]
    assert trends["bytes_per_day"]["slope"] == 0 and not trends["bytes_per_day"]["found"]
    assert devices[A]["boots_per_day"] == pytest.approx(12 / (11 + 20 / 24))
    assert "Trend of lowest free heap" in report.render(found)
    spent = math.fsum(line["mah"] for line in devices[A]["charge"])
    awake_h = sum(600_000 + boot * 60_000 for boot in range(12)) / HOUR
    by_time = 35.5 * awake_h + 0.01 * (240 - awake_h)
    assert spent == pytest.approx(by_time + 12 * 17.52 / 3600, rel=1e-9)  # mC of a boot


def test_wakes_are_no_crashes_and_watchdogs_are(tmp_path):
    causes = [1, 4, 4, 3, 4, 3, None]  # power on, deep sleep, watchdog, not known
    rows = {"segments": [], "health": [], "state_time": []}
    for boot, cause in enumerate(causes):
        own = {"boot": boot, "last_ms": 10 * HOUR, "reset_cause": cause}
        rows["health"].append(fleet_rows.health(A, **own))
        rows["state_time"] += fleet_rows.state_time(A, {0: 9 * HOUR, 2: HOUR}, boot)
        offset = START_MS + boot * DAY_MS
        rows["segments"].append(segment(A, 0, 0, 10 * HOUR, offset, boot=boot))
    found, devices = figures_of(tmp_path, **rows)
    told = devices[A]["metrics"]
    assert told["deep_sleep_wakeup_count"] == 3
    assert told["operational_hours"] == 70
    assert told["operational_crashfree_hours"] == 67
    assert ["restarted 2 times by its watchdog"] == [
        line["problem"] for line in found["attention"] if line["kind"] == "watchdog"
    ]
    page = report.render(found)
    assert "power on, deep sleep (3 times), watchdog (2 times), not logged" in page


def test_the_fleets_fall_of_charge_is_drops_over_their_time(tmp_path):
    """Two gauges: one falls 10 % in a day, one 5 % in two; the sum is 15 % in three days."""
    rows = [
        {"device": device, "boot": 1, "boot_ms": hour * HOUR, "number": 0,
         "wall_ms": START_MS + hour * HOUR, "wall_uncertainty_ms": 0,
         "soc_pct": 90 - fall * hour}
        for device, fall, hours in ((A, 10 / 24, 24), (B, 5 / 48, 48))
        for hour in range(hours + 1)
    ]  # fmt: skip
    found, _ = figures_of(tmp_path, battery=rows)
    assert found["fleet"]["soc_pct_per_day"] == pytest.approx(5.0, rel=1e-6)
    assert "Fall of charge, measured" in report.render(found)


def test_memfaults_names(large):
    told = large["devices"][0]["metrics"]
    assert told["operational_hours"] == pytest.approx(20 * 24, rel=1e-6)
    assert told["deep_sleep_time_ms"] == large["devices"][0]["state_ms"][0]
    assert told["battery_voltage"] == pytest.approx(3.95, abs=0.15)
    assert told["battery_soc_pct_drop"] > 0
    assert told["sync_successful"] + told["sync_failure"] == large["devices"][0]["sync"]["pairs"]
    assert set(told) >= {"network_tx_bytes", "heap_min_free_bytes", "uptime_s"}


def test_the_same_lake_and_seed_give_the_same_figures(large, tmp_path):
    root = fleet_rows.large_lake(tmp_path / "lake", 40)
    again = figures.figures(delta.open_lake(root), plan=fleet_file.battery_plan("18650"))
    assert again["devices"] == large["devices"]
    other = figures.figures(delta.open_lake(root), plan=fleet_file.battery_plan("18650"), seed=1)
    assert other["devices"][0]["life"]["days_low"] != large["devices"][0]["life"]["days_low"]
    assert other["devices"][0]["mah_modelled"] == large["devices"][0]["mah_modelled"]


PLAN = """
[default]
battery = "18650"
parallel = 2
period_s = 900
[device.node-1]
temperature_c = -5
[device."d0000002"]
battery = "none"
board = "esp32"
"""


def test_a_fleet_file(tmp_path):
    plan = fleet_file.parse_plan(PLAN, "fleet.toml")
    one = plan.of("x", "node-1")
    assert (one.pack.parallel, one.pack.temperature_c, one.period_ms) == (2, -5.0, 900_000)
    assert plan.of("d0000002", "node-2").pack is None
    assert plan.of("d0000002", "node-2").board == "esp32"
    assert plan.of("y", "other") is plan.default
    with pytest.raises(TelemetryError, match="cannot read it"):
        fleet_file.load_plan(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('battery = "18650"', 'battery = "potato"', "battery 'potato'"),
        ('battery = "18650"', 'battery = "my.toml"', "my.toml: cannot read it"),
        ("parallel = 2", "parallel = 0", "parallel = 0"),
        ("parallel = 2", "cells = 2", "'cells' is not known"),
        ("period_s = 900", 'period_s = "often"', "period_s = 'often'"),
        ("temperature_c = -5", "temperature_c = 999", "temperature_c = 999"),
        ('board = "esp32"', 'board = "esp33"', "board 'esp33'"),
        ("[default]", "[defaults]", "'defaults' is not known"),
        ("[default]", "[default", "not TOML"),
    ],
)
def test_a_broken_fleet_file_is_one_clear_line(old, new, complaint):
    assert old in PLAN
    with pytest.raises(TelemetryError) as told:
        fleet_file.parse_plan(PLAN.replace(old, new), "fleet.toml")
    assert complaint in str(told.value) and "\n" not in str(told.value)


def test_lengths_of_time_read_well():
    told = [span(ms) for ms in (1_500, 200_000, 9_000_000, 4_194_662_895)]
    assert told == ["1.5 s", "3.3 min", "2.5 h", "48.5 days"]


@pytest.mark.parametrize(
    ("waits_ms", "told", "unit"),
    [([200, 300, 400], "0.300 / 0.400", "s"), ([HOUR, 3 * HOUR, 9 * HOUR], "3.00 / 9.00", "h")],
)
def test_a_fleets_latency_is_told_in_a_unit_of_its_size(tmp_path, waits_ms, told, unit):
    rows = [message(A, turn, "created", START_MS) for turn in range(3)]
    rows += [message(B, at, "delivered", START_MS + ms) for at, ms in enumerate(waits_ms)]
    report.write_report(lake_of(tmp_path, messages=rows).root, tmp_path / "page.html", None)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert f"<dt>Latency, median / 90 % within</dt><dd>{told} <small>{unit}</small></dd>" in page
    assert f"Created to delivered ({unit})" in page, "the chart's axis"
    for head in (f"Latency p50 ({unit})", f"p99 ({unit})"):
        assert head in page
