"""The last days against those before: known costs give known changes."""

import json
import re

import pytest

from drupelet_tools.telemetry.analysis import comparison, upgrades
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan, parse_plan
from drupelet_tools.telemetry.analysis.period import read_hours
from drupelet_tools.telemetry.analysis.report_figures import build
from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.page import report
from telemetry import fleet_rows
from telemetry.command_line import run
from telemetry.fleet_rows import DAY_MS, START_MS, health, message, segment
from telemetry.lake_figures import HOUR, lake_of

DEVICES = [f"a000000{at}" for at in range(8)]
DAYS = 7
END_MS = START_MS + 2.0 * DAYS * DAY_MS


def fortnight(folder, dearer=1.5):
    """Eight devices with a boot a day; in the second week a message costs `dearer` as much.

    All but the last device say that they have other firmware then; one boot does not say which.
    """
    rows = {name: [] for name in ("segments", "health", "traffic", "state_time", "messages")}
    for at, own in enumerate(DEVICES):
        for day in range(2 * DAYS):
            offset = START_MS + day * DAY_MS
            cost = dearer if day >= DAYS else 1.0
            span = segment(own, 0, 0, DAY_MS - 1, offset, boot=day)
            rows["segments"].append(span)
            rows["health"].append(
                health(own, boot=day, last_ms=DAY_MS - 1, messages_created=4,
                       messages_delivered=10, reset_cause=3 if (at, day) == (2, 9) else 1,
                       **firmware(at, day))
            )  # fmt: skip
            for direction in ("sent", "received"):
                kinds = {1: int((1_000 + 10 * at) * cost), 3: 400}
                rows["traffic"] += fleet_rows.traffic(own, "mqtt", direction, kinds, boot=day)
            awake = int(0.01 * DAY_MS * cost)
            spent = {0: DAY_MS - awake, 2: awake}
            rows["state_time"] += fleet_rows.state_time(own, spent, boot=day)
            name = at << 16 | day
            born = offset + HOUR
            rows["messages"].append(message(own, name, "created", born, boot=day))
            came = born + (2_000 if day >= DAYS else 1_000)
            rows["messages"] += [message(other, name, "delivered", came, boot=day)
                                 for other in DEVICES if other != own]  # fmt: skip
    root = lake_of(folder, **rows).root
    facts = {own: {"name": own, "carriers": "mqtt", "board": "esp32"} for own in DEVICES}
    commit.append(root, {"health": []}, "names", names=facts)
    return root


def firmware(at, day):
    if at == len(DEVICES) - 1 or (at, day) == (3, 10):
        return {}
    return {"firmware": "0.2.0" if day >= DAYS else "0.1.0", "firmware_set": "small"}


def compared(state, now_ms, days):
    hours = read_hours(state, comparison.periods_of(now_ms, days))
    return comparison.compare(state, hours, FleetPlan(), now_ms, days)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return fortnight(tmp_path_factory.mktemp("fortnight"))


def test_a_week_is_set_against_the_week_before(root):
    result = compared(delta.open_lake(root), END_MS, DAYS)
    assert result["boots"] == [8 * DAYS, 8 * DAYS] and result["long_boots"] == 0
    fleet = {row["what"]: (row["now"], row["before"]) for row in result["fleet"]}
    assert fleet["Devices heard"] == (8, 8)
    assert fleet["Delivered"] == (8 * DAYS * 10, 8 * DAYS * 10)
    assert fleet["Bytes per message"] == pytest.approx((1.5 * 207, 207))
    assert fleet["Latency p50"] == (2, 1)
    assert fleet["Resets by watchdog"] == (1, 0)
    paired = {row["what"]: row for row in result["paired"]}
    each = paired["bytes per message"]
    assert (each["share"], each["devices"]) == (pytest.approx(0.5), 8)
    assert each["low"] == pytest.approx(0.5) == each["high"]
    assert 0.2 < paired["charge per day, modelled"]["share"] < 0.5
    assert len(result["devices"]) == 8


def test_boots_count_with_the_firmware_that_they_ran(root):
    devices = {row["device"]: row for row in build(root)["devices"]}
    for own in DEVICES[:-1]:
        old, new = devices[own]["firmware_runs"]
        assert devices[own]["firmware"] == new["firmware"] == "0.2.0 small"
        assert old["firmware"] == "0.1.0 small"
        assert old["health"]["boots"] == new["health"]["boots"] == DAYS, "one ran what was before"
        assert old["delivered"] == new["delivered"] == DAYS * 10
        assert new["bytes_per_message"] == pytest.approx(1.5 * old["bytes_per_message"], rel=0.01)
        for part in ("client_bytes", "mah_modelled", "delivered"):
            assert old[part] + new[part] == pytest.approx(devices[own][part]), part
    silent = devices[DEVICES[-1]]
    assert silent["firmware"] == "" and [row["firmware"] for row in silent["firmware_runs"]] == [
        ""
    ]
    assert silent["firmware_runs"][0]["client_bytes"] == silent["client_bytes"]


def test_a_new_firmware_is_set_against_the_one_before(root):
    rows = {row["what"]: row for row in upgrades.across_upgrades(build(root)["devices"])}
    each = rows["bytes per message"]
    assert (each["firmware"], each["firmware_before"]) == ("0.2.0 small", "0.1.0 small")
    assert (each["devices"], each["share"]) == (len(DEVICES) - 1, pytest.approx(0.5, rel=0.01))
    text = report.render(build(root))
    assert "0.1.0 small → 0.2.0 small" in text and '<span class="warn">yes</span>' in text
    assert "esp32 · 0.1.0 small" in text and "esp32 · unknown version" in text


def test_a_firmware_that_costs_more_needs_attention_and_one_that_does_not_is_not_named(
    root, tmp_path
):
    (row,) = [row for row in build(root)["attention"] if row["kind"] == "upgrade"]
    assert (row["severity"], row["label"], row["device"]) == ("notice", "the fleet", "")
    more = re.fullmatch(
        r"firmware 0\.2\.0 small takes (\d+\.\d)% more charge per day than 0\.1\.0 small"
        r" \(modelled, (\d+\.\d)% to (\d+\.\d)%\), on 7 devices that ran both",
        row["problem"],
    )
    assert more and 20 < float(more[2]) <= float(more[1]) <= float(more[3]) < 50
    same = build(fortnight(tmp_path, 1.0))["attention"]
    assert not [row for row in same if row["kind"] == "upgrade"]


def test_a_change_that_the_page_shows_as_none_is_none():
    row = {"low": 0.0004, "high": 0.3}
    assert upgrades.costs_more(row) is None
    assert upgrades.costs_more({"low": 0.0006, "high": 0.3}) is True
    assert upgrades.costs_more({"low": -0.3, "high": -0.0006}) is False
    assert upgrades.costs_more({"low": -0.3, "high": -0.0004}) is None
    assert upgrades.costs_more({"low": None, "high": None}) is None


def test_what_a_fleet_file_calls_the_firmware_hides_nothing(root):
    plan = parse_plan(f'[device.{DEVICES[0]}]\nfirmware = "mine"', "fleet.toml")
    own = build(root, plan=plan)["devices"][0]
    assert own["firmware"] == "mine · 0.2.0 small"
    assert [row["firmware"] for row in own["firmware_runs"]] == [
        "mine · 0.1.0 small", "mine · 0.2.0 small",
    ]  # fmt: skip


def run_of(name, hours=48.0, cost=100.0):
    return {"firmware": name, "hours": hours, "bytes_per_message": cost, "mah_per_message": None,
            "mah_per_day": None}  # fmt: skip


def test_an_upgrade_that_was_taken_back_is_a_change_to_what_was_before():
    runs = [run_of("0.9.0"), run_of("0.10.0", cost=200), run_of("0.9.0")]
    devices = [{"device": str(at), "label": str(at), "firmware_runs": runs} for at in range(8)]
    (row,) = upgrades.across_upgrades(devices)
    assert (row["firmware_before"], row["firmware"]) == ("0.10.0", "0.9.0")
    assert (row["share"], row["too_short"]) == (pytest.approx(-0.5), 0)


def test_a_firmware_that_ran_for_minutes_is_compared_with_nothing():
    own = [run_of("0.1.0"), run_of("0.2.0", hours=0.1, cost=900)]
    devices = [{"device": str(at), "label": str(at), "firmware_runs": own} for at in range(8)]
    assert upgrades.across_upgrades(devices) == [
        {"firmware_before": "0.1.0", "firmware": "0.2.0", "too_short": 8}
    ]
    longer = {"device": "x", "label": "x", "firmware_runs": [own[0], run_of("0.2.0", cost=110)]}
    (row,) = upgrades.across_upgrades([*devices, longer])
    assert (row["devices"], row["share"], row["too_short"]) == (1, pytest.approx(0.1), 8)


def test_versions_stand_in_the_order_in_which_people_count():
    pairs = [("0.9.0", "0.10.0"), ("0.10.0", "0.11.0"), ("0.2.0", "0.9.0")]
    devices = [
        {"device": "x", "label": "x", "firmware_runs": [run_of(before), run_of(now)]}
        for before, now in pairs
    ]
    rows = upgrades.across_upgrades(devices)
    assert [row["firmware_before"] for row in rows] == ["0.2.0", "0.9.0", "0.10.0"]


def test_the_page_says_whether_it_costs_more(root, tmp_path):
    text = report.render(build(root, days=DAYS, now_ms=END_MS))
    assert "The last 7 days against the 7 days before" in text
    assert "Costs more now?" in text and '<span class="warn">yes</span>' in text
    assert "56 in the last" in text and "longer than a period" not in text
    same = report.render(build(fortnight(tmp_path, 1.0), days=DAYS, now_ms=END_MS))
    assert "not told apart from before" in same and '<span class="warn">yes</span>' not in same


def test_another_period_is_the_one_that_was_asked_for(root):
    """Up to the end of the first week nothing had risen, and the week before has no boot."""
    state, middle = delta.open_lake(root), END_MS - DAYS * DAY_MS
    result = compared(state, middle, DAYS)
    assert result["boots"] == [8 * DAYS, 0] and result["paired"] == []
    halves = compared(state, middle, DAYS / 2)
    assert halves["boots"][0] in (24, 32) and sum(halves["boots"]) == 56
    assert {round(row["share"], 9) for row in halves["paired"]} == {0.0}


def test_boots_that_are_longer_than_the_period_are_told(root):
    result = compared(delta.open_lake(root), END_MS, 0.9)
    assert result["long_boots"] == sum(result["boots"]) > 0


def test_the_command_takes_the_days(root, tmp_path):
    html = tmp_path / "page.html"
    done = run("report", "--lake", root, "--html", html, "--days", "7", "--json",
               "--now", "2026-10-05T14:13:21Z")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["comparison"]["days"] == 7
    assert run("report", "--lake", root, "--html", html, "--days", "0").exit_code == 2
    assert build(root)["comparison"] is None
