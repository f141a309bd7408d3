"""What needs attention: each kind of trouble in a lake gives its row, with since and remedy."""

import re

import pytest

from drupelet_tools.telemetry.analysis import attention
from drupelet_tools.telemetry.analysis.fleet_file import parse_plan
from drupelet_tools.telemetry.analysis.report_figures import build, natural
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.page import report, sections_fleet
from drupelet_tools.telemetry.text.cells import Cell
from telemetry import fleet_rows
from telemetry.fleet_rows import DAY_MS, START_MS, health, message, segment
from telemetry.lake_figures import HOUR, A, B, C, lake_of


def rows_of(folder, plan=None, now_ms=None, **rows):
    """The rows by kind, of a lake with these rows."""
    found = build(lake_of(folder, **rows).root, plan=plan, now_ms=now_ms)
    return {row["kind"]: row for row in found["attention"]}, found


def place(device, reason, number=0, file="in/a.dbx"):
    return {"device": device, "boot": 1, "number": number, "block": None, "file": file,
            "offset": 0, "reason": reason}  # fmt: skip


def readings(device, charges, step_ms=DAY_MS):
    return [
        {"device": device, "boot": 1, "boot_ms": at * step_ms, "wall_ms": START_MS + at * step_ms,
         "wall_uncertainty_ms": 20, "soc_pct": float(charge)}
        for at, charge in enumerate(charges)
    ]  # fmt: skip


@pytest.mark.parametrize("reason", [codes.REASON_CONFLICT, codes.REASON_OTHER])
def test_two_devices_with_one_id_are_an_alarm_in_those_words(tmp_path, reason):
    segments = [segment(A, n, n * HOUR, (n + 1) * HOUR, START_MS) for n in range(3)]
    kinds, found = rows_of(
        tmp_path,
        segments=segments,
        quarantine=[place(A, reason, 2), place(A, reason, 1), place(A, "block crc", 0)],
    )
    row = kinds["one id"]
    assert found["attention"][0] == row
    assert (row["severity"], row["device"]) == ("alarm", A)
    assert row["problem"].startswith("two devices with one id: ")
    assert "at 2 numbers" in row["problem"] and "an id of its own" in row["remedy"]
    assert row["since_ms"] == START_MS + HOUR
    assert kinds["damaged"]["problem"] == "damaged places in its log: 1"
    assert kinds["damaged"]["since_ms"] == START_MS
    page = report.render(found)
    assert "two devices with one id" in page and "2026-09-21 14:13" not in row["problem"]


def test_a_log_that_nobody_can_read_names_its_file(tmp_path):
    kinds, _ = rows_of(
        tmp_path, health=[health(A)], segments=[segment(A, 0, 0, 5, START_MS)],
        quarantine=[place("", "no magic", file=f"in/{name}.dbx") for name in "xyx"],
    )  # fmt: skip
    row = kinds["unreadable"]
    assert (row["severity"], row["device"]) == ("warning", "")
    assert (
        row["problem"]
        == "3 pieces of the input cannot be read as a log, in in/x.dbx and 1 other file"
    )
    assert "one id" not in kinds


def test_resets_losses_and_clocks_say_when_they_began(tmp_path):
    causes = [1, 3, 1, 2, 1]
    kinds, _ = rows_of(
        tmp_path,
        health=[
            health(A, boot=boot, reset_cause=cause, errors=int(boot == 3), refused=2 * (boot == 2),
                   events_lost=int(boot == 4), heap_low=4_000 if boot == 2 else 90_000)
            for boot, cause in enumerate(causes)
        ],
        segments=[
            segment(A, 0, 0, HOUR, START_MS + boot * DAY_MS, boot=boot, clock_jump=boot == 4)
            for boot in range(len(causes))
        ],
    )  # fmt: skip
    began = {kind: (row["since_ms"] - START_MS) / DAY_MS for kind, row in kinds.items()
             if row["since_ms"] is not None}  # fmt: skip
    assert began == {"watchdog": 1, "restarts": 2, "refused": 2, "errors": 3, "events lost": 4,
                     "memory": 2, "clock jumps": 4, "away": 1 / 24}  # fmt: skip
    assert kinds["restarts"]["problem"] == "restarted 3 times after a power loss or a reset"
    assert kinds["watchdog"]["severity"] == "warning"
    assert all(row["remedy"] for row in kinds.values())


def test_a_device_without_a_clock_is_told_that_nobody_can_see_its_silence(tmp_path):
    kinds, _ = rows_of(tmp_path, segments=[segment(A, 0, 0, HOUR, None)], health=[health(A)])
    assert kinds["no clock"]["severity"] == "warning" and kinds["no clock"]["since_ms"] is None


def test_an_emptying_battery_is_told_with_its_day_and_interval(tmp_path):
    charges = [60 - 2 * day + day % 2 for day in range(12)]
    kinds, _ = rows_of(tmp_path, battery=readings(A, charges))
    text = kinds["battery"]["problem"]
    match = re.fullmatch(
        r"battery: empty in (\d+) days \((\d+) to (\d+)\), about 20\d\d-\d\d-\d\d,"
        r" by its own readings, charge \d+ %", text,
    )  # fmt: skip
    days, low, high = map(int, match.groups())
    assert low <= days <= high and low < high, text


def test_a_figure_far_from_the_fleets_says_on_which_side():
    row = {"device": A, "label": "well", "what": "charge per day", "unit": "mAh", "figure": "x",
           "value": 48.0, "median": 9.2, "z": 4.04}  # fmt: skip
    text = "charge per day: 48 mAh, 4.0 standard deviations {} the fleet's median of 9.2 mAh"
    above, below = attention.of_devices([], [row, {**row, "z": -4.04}])
    assert above["problem"] == text.format("above")
    assert below["problem"] == text.format("below")


@pytest.mark.parametrize(
    ("charges", "severity", "low_day"),
    [([60, 30, 24, 23, 22, 21, 20], "warning", 2), ([60, 9, 8, 8, 7, 6], "alarm", 1),
     ([90, 88, 20, 87, 86, 85, 84], None, None)],
)  # fmt: skip
def test_a_weak_battery_is_told_by_its_charge(tmp_path, charges, severity, low_day):
    kinds, _ = rows_of(tmp_path, battery=readings(A, charges))
    if severity is None:
        assert "battery" not in kinds
    else:
        assert kinds["battery"]["severity"] == severity
        assert kinds["battery"]["since_ms"] == START_MS + low_day * DAY_MS


def test_undelivered_messages_count_from_the_oldest(tmp_path):
    sent = [message(A, turn, "created", START_MS + turn * HOUR) for turn in range(8)]
    came = [message(B, turn, "delivered", START_MS + turn * HOUR + 9) for turn in (0, 1, 4)]
    kinds, _ = rows_of(tmp_path, messages=sent + came)
    row = kinds["undelivered"]
    assert (row["device"], row["severity"]) == (B, "warning")
    assert row["since_ms"] == START_MS + 2 * HOUR


def test_a_fleet_that_is_silent_as_a_whole_has_one_cause(tmp_path):
    segments = [segment(d, n, n * HOUR, (n + 1) * HOUR - 1, START_MS)
                for d in (A, B) for n in range(9)]  # fmt: skip
    kinds, found = rows_of(tmp_path, segments=segments, now_ms=START_MS + 9.0 * DAY_MS)
    assert found["attention"][0] == kinds["fleet silent"]
    assert kinds["fleet silent"]["problem"].startswith("all 2 devices are silent")
    assert kinds["fleet silent"]["since_ms"] == START_MS + 9 * HOUR - 1
    kinds, _ = rows_of(tmp_path / "later", now_ms=START_MS + 9.0 * HOUR, segments=segments)
    assert "silent" not in kinds and "fleet silent" not in kinds


def test_the_page_says_of_every_device_that_was_not_heard_for_a_day_whether_it_is_silent(tmp_path):
    lengths = {A: HOUR, B: 12 * HOUR, C: 12 * HOUR}
    ends = {A: 48 * HOUR, B: 48 * HOUR, C: 72 * HOUR}
    segments = [segment(d, n, n * size, (n + 1) * size - 1, START_MS)
                for d, size in lengths.items() for n in range(ends[d] // size)]  # fmt: skip
    _, figures = rows_of(tmp_path, segments=segments, now_ms=START_MS + 78.0 * HOUR)
    quiet = sections_fleet.quiet_table(figures)
    assert [(row[0].device, str(row[1].text if isinstance(row[1], Cell) else row[1]), row[4])
            for row in quiet.rows] == [
        (A, "silent", "3.0 h"), (B, "not yet", "36.0 h"),
    ]  # fmt: skip
    assert "36.0 h" in report.render(figures)
    _, figures = rows_of(tmp_path / "now", segments=segments[-6:], now_ms=START_MS + 78.0 * HOUR)
    assert sections_fleet.quiet_table(figures) is None


def test_a_device_of_the_fleet_file_that_was_never_heard_is_a_warning(tmp_path):
    plan = parse_plan(f'[device.well]\nperiod_s = 9\n[device."{A}"]\nfirmware = "2"', "fleet.toml")
    kinds, found = rows_of(tmp_path, plan=plan, health=[health(A)])
    assert kinds["never heard"]["label"] == "well"
    assert [row["firmware"] for row in found["devices"]] == ["2"]


def test_rows_of_pages_are_put_together_as_of_one(tmp_path):
    segments = [segment(d, n, n * HOUR, (n + 1) * HOUR - 1, START_MS)
                for d in (A, B, C) for n in range(9 if d == C else 2)]  # fmt: skip
    _, found = rows_of(tmp_path, segments=segments, now_ms=START_MS + 9.0 * DAY_MS)
    rows = found["attention"]
    assert attention.merged([rows[2:], rows[:2]]) == rows
    assert attention.worst(rows) == "alarm" and attention.worst([]) is None


def test_devices_stand_in_the_order_of_their_numbers(tmp_path):
    state = lake_of(tmp_path, health=[health(d) for d in (A, B, C)])
    names = dict(zip((A, B, C), ("n10", "n2", "N1"), strict=True))
    rows = {"health": [health("d0000004")]}
    facts = {d: {"name": name, "carriers": "", "board": ""} for d, name in names.items()}
    fleet_rows.commit.append(state.root, rows, "names", names=facts)
    found = build(state.root)
    assert [row["name"] for row in found["devices"]] == ["d0000004", "N1", "n2", "n10"]
    assert natural("x007") < natural("x" + "9" * 5_000)
    assert natural("a1b2") < natural("a1b10") < natural("a01c")
