"""What an owner should see to, worst first: severity, device, since when, problem, remedy.

A pure function over finished rows of devices (`figures`) and the places of the lake's table
`quarantine`. The report's page and `drupelet telemetry alerts` both show its rows.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drupelet_host.base.output import counted
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.text.cells import between
from drupelet_tools.telemetry.text.time_units import span

Row = dict[str, Any]

ALARM, WARNING, NOTICE = "alarm", "warning", "notice"
SEVERITIES = (ALARM, WARNING, NOTICE)
DAYS_ALARM, DAYS_WARNING = 14.0, 60.0
CHARGE_ALARM_PCT, CHARGE_WARNING_PCT = 10.0, 25.0
UNDELIVERED_SHARE = 0.1
MISSING_SHARE = 0.005
HEAP_SHARE = 0.05
OUT_SHARE = 0.05
RESTARTS_MIN = 3  # starts by power or reset after the first: a battery is changed now and then
FLEET_MIN = 2  # devices: fewer are no fleet that could be silent as a whole
ROWS_MAX = 200  # a fleet with more has one cause, not two hundred
# What the lake calls a copy that its device did not write; the second is the import's.
COLLISIONS = (codes.REASON_CONFLICT, codes.REASON_OTHER)
COLLISION = "two devices with one id"

# What to do about each kind of problem, the kinds in the order of their weight.
REMEDIES = {
    "one id": "find both devices; give one an id of its own, then ingest its"
    " log into a new lake. If a device was erased and set up again with its old id, do the same",
    "fleet silent": "look at what all have in common: the broker, the gateway or the agent that"
    " takes their messages, and whether its folder is still ingested",
    "expected": "see its last sign and its carrier below; drupelet status at its neighbour says"
    " what waits for it",
    "silent": "go there: check its power, then the carrier, then that its neighbour runs",
    "never heard": "check that it was set up and switched on; if it has another name now, change"
    " the fleet file",
    "battery": "change or charge the battery before that day",
    "life": "take a larger battery, or a longer epoch; energy plan says what each gives",
    "clock": "set its clock; without it, times of its messages are wrong",
    "refused": "read its log for which table or flash is full; remove peers or groups that are"
    " gone, or raise the limit",
    "errors": "look up the codes in the table events (ingest with --events)",
    "watchdog": "a loop hung: look at what the log says just before these boots",
    "undelivered": "see whether this device is silent or its carrier is down; messages stay in"
    " their senders' stores until they are acknowledged",
    "upgrade": "before more devices get it, look at what it changed and whether that is wanted;"
    " the section Cost has the figures",
    "restarts": "check battery contacts, supply voltage and brown-outs",
    "missing": "a ring was full before it was read: read its black box more often, or copy the"
    " flash",
    "memory": "lower its limits, or give it fewer peers and groups",
    "away": "compare the times with its carrier's and its neighbour's outages",
    "no clock": "give it a clock or a neighbour that has one: without, nobody can tell when it"
    " was last heard",
    "misfit": "calibrate its board's table (energy calibrate), or name its battery in the fleet"
    " file",
    "damaged": "copy the file again from its device; if it stays damaged, check the flash or the"
    " stick",
    "unreadable": "copy the file again; remove it from the folder if it is no black box",
    "clock jumps": "check what sets its clock",
    "events lost": "read its black box more often, or log less",
    "outlier": "compare it with a device of the same kind: place, carrier, firmware, settings",
}
KINDS = tuple(REMEDIES)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a device; `weight` orders those of a kind."""

    severity: str
    kind: str
    weight: float
    text: str
    since_ms: float | None = None


def attention(
    devices: Sequence[Row],
    far: Sequence[Row],
    quarantine: Sequence[Row] = (),
    never_heard: Iterable[str] = (),
) -> list[Row]:
    """Rows of what needs attention, the most severe first; those of one kind together.

    Args:
        devices: rows of `figures`.
        far: outliers, as `analyses.outliers` makes them.
        quarantine: rows of the table, with `wall_ms` of the segment where that is known.
        never_heard: names that a fleet file has and the lake has not.
    """
    nobodys = [place for place in quarantine if not place["device"]]
    return merged([
        of_devices(devices, far, quarantine), of_the_fleet(devices, nobodys, never_heard)
    ])  # fmt: skip


def of_devices(
    devices: Sequence[Row], far: Sequence[Row], quarantine: Sequence[Row] = ()
) -> list[Row]:
    """The rows of single devices, in any order; see `attention`."""
    places: dict[str, list[Row]] = defaultdict(list)
    for place in quarantine:
        places[place["device"]].append(place)
    rows = [
        _row(problem, device["device"], device["label"])
        for device in devices
        for problem in _problems(device, places.get(device["device"], []))
    ]
    return rows + [_outlier(row) for row in far]


def of_the_fleet(
    devices: Sequence[Row],
    nobodys: Sequence[Row] = (),
    never_heard: Iterable[str] = (),
    dearer: Iterable[Row] = (),
) -> list[Row]:
    """The rows of no device that the lake has; `nobodys` are places of unknown devices, `dearer`
    rows of `upgrades.dearer`."""
    rows = [_row(problem, "", "the fleet") for problem in _silence(devices)]
    missing = Problem(WARNING, "never heard", 0, "is in the fleet file and was never heard")
    rows += [_row(missing, "", name) for name in never_heard]
    rows += [_row(_dearer(row), "", "the fleet") for row in dearer]
    if nobodys:
        rows.append(_row(_unreadable(nobodys), "", "unknown device"))
    return rows


def _order(row: Row) -> tuple[int, int, float, str]:
    severity, kind = SEVERITIES.index(row["severity"]), KINDS.index(row["kind"])
    return severity, kind, -row["weight"], row["device"]


def merged(pages: Iterable[Sequence[Row]]) -> list[Row]:
    """Rows of several calls as of one."""
    rows = [row for page in pages for row in page]
    return sorted(rows, key=_order)[:ROWS_MAX]


def worst(rows: Iterable[Row]) -> str | None:
    """The most severe of the rows, None without any."""
    return min((row["severity"] for row in rows), key=SEVERITIES.index, default=None)


def severities(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    """By device the kinds of its problems, and how severe each is at the worst."""
    by_device: dict[str, dict[str, str]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: SEVERITIES.index(row["severity"]), reverse=True):
        by_device[row["device"]][row["kind"]] = row["severity"]
    return dict(by_device)


def _row(problem: Problem, device: str, label: str) -> Row:
    return {
        "severity": problem.severity,
        "kind": problem.kind,
        "weight": problem.weight,
        "device": device,
        "label": label,
        "since_ms": problem.since_ms,
        "problem": problem.text,
        "remedy": REMEDIES[problem.kind],
    }


def _outlier(row: Row) -> Row:
    value, median = _short(row["value"]), _short(row["median"])
    unit = f" {row['unit']}" if row["unit"] else ""
    side = "above" if row["z"] > 0 else "below"
    text = (
        f"{row['what']}: {value}{unit}, {abs(row['z']):.1f} standard deviations {side} the fleet's"
        f" median of {median}{unit}"
    )
    problem = Problem(NOTICE, "outlier", abs(row["z"]), text)
    return _row(problem, row["device"], row["label"])


def _problems(device: Row, places: Sequence[Row]) -> list[Problem]:
    return [
        *_identity(device, places),
        *_presence(device),
        *_clock(device),
        *_power(device),
        *_resets(device),
        *_losses(device, places),
        *_sync(device),
    ]


def _silence(devices: Sequence[Row]) -> list[Problem]:
    """All silent at once is one cause, and the first thing to say."""
    timed = [row["presence"] for row in devices if row["presence"]["last_wall_ms"] is not None]
    if len(timed) < FLEET_MIN or not all(seen["silent"] for seen in timed):
        return []
    last = max(seen["last_wall_ms"] for seen in timed)
    quiet = span(min(seen["silent_ms"] for seen in timed))
    text = f"all {len(timed):,} devices are silent; the last was heard {quiet} ago"
    return [Problem(ALARM, "fleet silent", len(timed), text, last)]


def _dearer(row: Row) -> Problem:
    text = (
        f"firmware {row['firmware']} takes {row['share']:.1%} more charge per day than"
        f" {row['firmware_before']} (modelled, {row['low']:.1%} to {row['high']:.1%}), on"
        f" {counted(row['devices'], 'device')} that ran both"
    )
    return Problem(NOTICE, "upgrade", row["share"], text)


def _identity(device: Row, places: Sequence[Row]) -> list[Problem]:
    copies = [place for place in places if place["reason"] in COLLISIONS]
    if not copies and not set(COLLISIONS) & set(device["health"]["reasons"]):
        return []
    count = f" at {len(copies):,} numbers of its log" if len(copies) > 1 else ""
    text = f"{COLLISION}: its log came with other contents{count}"
    return [Problem(ALARM, "one id", len(copies), text, _first_ms(copies))]


def _first_ms(places: Iterable[Row]) -> float | None:
    times = (place.get("wall_ms") for place in places)
    return min((ms for ms in times if ms is not None), default=None)


def _presence(device: Row) -> list[Problem]:
    seen = device["presence"]
    problems = []
    if seen["silent"]:
        quiet, limit = seen["silent_ms"], seen["silent_after_ms"]
        text = f"silent for {span(quiet)}; it counts as silent after {span(limit)}"
        problems.append(Problem(ALARM, "silent", quiet, text, seen["last_wall_ms"]))
    if seen["outages"] and (seen["out_share"] or 0) >= OUT_SHARE:
        longest = seen["outage_list"][0]
        share = f"{seen['out_share']:.0%} of its time"
        text = f"was away {seen['outages']} times, {share}; the longest {span(longest['ms'])}"
        since = min(away["from_wall_ms"] for away in seen["outage_list"])
        problems.append(Problem(WARNING, "away", seen["out_share"], text, since))
    return problems


def _clock(device: Row) -> list[Problem]:
    log, problems = device["integrity"], []
    if device["clock_ahead"]:
        text = "its clock is wrong: its log ends in the future"
        last = device["presence"]["last_wall_ms"]
        problems.append(Problem(WARNING, "clock", last, text))
    if log["segments"] and log["wall_unknown"] == log["segments"]:
        text = "no time is known for any of its log"
        problems.append(Problem(WARNING, "no clock", log["segments"], text))
    if log["clock_jumps"]:
        jumps = log["clock_jumps"]
        where = counted(jumps, "segment")
        text = f"its clock was wrong in {where} of its log; the times shown are corrected"
        problems.append(Problem(NOTICE, "clock jumps", jumps, text, log["since_ms"]["jumps"]))
    return problems


def _power(device: Row) -> list[Problem]:
    problems = []
    battery, life = device["battery"], device["life"]
    left, charge = battery["days_left"], battery["soc_pct"]
    severity = _battery_severity(left, charge)
    if severity:
        parts = [] if left is None else [_empty(battery)]
        parts += [] if charge is None else [f"charge {charge:.0f} %"]
        weight = -min(value for value in (left, charge) if value is not None)
        since = battery["low_since_ms"]
        problems.append(
            Problem(severity, "battery", weight, f"battery: {', '.join(parts)}", since)
        )
    elif left is None and life is not None and not life["assumed"] and life["days"] < DAYS_WARNING:
        between = f"({life['days_low']:.0f} to {life['days_high']:.0f})"
        text = f"a full battery lasts {life['days']:.0f} days {between}, modelled"
        problems.append(Problem(WARNING, "life", -life["days"], text))
    both = device["comparison"]
    if both is not None and not both["agree"] and not life["assumed"]:
        measured, modelled = both["measured_days"], both["modelled_days"]
        text = (
            f"battery life measured {measured:,.0f} days, modelled {modelled:,.0f}; the measured"
            " one counts: the model's currents or battery are not those of this device"
        )
        weight = abs(math.log(max(both["ratio"], 1e-9)))
        problems.append(Problem(NOTICE, "misfit", weight, text))
    return problems


def _empty(battery: Row) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(battery["empty_ms"] / 1000))
    if not battery["days_left"]:
        return f"empty since about {day} by its own readings"
    days = counted(round(battery["days_left"]), "day")
    ends = between(battery["days_left_low"], battery["days_left_high"])
    return f"empty in {days} ({ends}), about {day}, by its own readings"


def _battery_severity(days_left: float | None, charge_pct: float | None) -> str:
    days = math.inf if days_left is None else days_left
    charge = math.inf if charge_pct is None else charge_pct
    if days < DAYS_ALARM or charge < CHARGE_ALARM_PCT:
        return ALARM
    return WARNING if days < DAYS_WARNING or charge < CHARGE_WARNING_PCT else ""


def _resets(device: Row) -> list[Problem]:
    causes, since = device["health"]["reset_causes"], device["integrity"]["since_ms"]
    problems = []
    barked = causes.count(codes.RESET_WATCHDOG)
    if barked:
        text = f"restarted {counted(barked, 'time')} by its watchdog"
        problems.append(Problem(WARNING, "watchdog", barked, text, since["watchdog"]))
    again = sum(cause in codes.RESTARTS for cause in causes[1:])
    if again >= RESTARTS_MIN:
        text = f"restarted {counted(again, 'time')} after a power loss or a reset"
        problems.append(Problem(NOTICE, "restarts", again, text, since["restarts"]))
    return problems


def _losses(device: Row, places: Sequence[Row]) -> list[Problem]:
    log, health = device["integrity"], device["health"]
    since: Mapping[str, float | None] = log["since_ms"]
    errors, refused, missing = health["errors"], health["refused"], log["segments_missing"]
    damaged = [place for place in places if place["reason"] not in COLLISIONS]
    count = len(damaged) if places else log["quarantined"]
    problems = []
    if errors:
        text = f"{counted(errors, 'error')} in its log"
        problems.append(Problem(WARNING, "errors", errors, text, since["errors"]))
    if refused:
        text = f"{counted(refused, 'message')} refused: a table or the flash is full"
        problems.append(Problem(WARNING, "refused", refused, text, since["refused"]))
    if (log["missing_share"] or 0) > MISSING_SHARE:
        text = f"{counted(missing, 'number')} of its log missing ({log['missing_share']:.2%})"
        share = log["missing_share"]
        problems.append(Problem(WARNING, "missing", share, text, since["segments_missing"]))
    if count:
        text = f"damaged places in its log: {count:,}"
        problems.append(Problem(NOTICE, "damaged", count, text, _first_ms(damaged)))
    if log["events_lost"]:
        lost = log["events_lost"]
        text = f"{counted(lost, 'event')} did not fit into its log"
        problems.append(Problem(NOTICE, "events lost", lost, text, since["events_lost"]))
    if health["heap_low"] is not None and health["heap_limit"]:
        share = health["heap_low"] / health["heap_limit"]
        if share < HEAP_SHARE:
            text = f"memory: {health['heap_low']:,} bytes were free at the lowest"
            problems.append(Problem(WARNING, "memory", -share, text, since["heap_low"]))
    return problems


def _unreadable(places: Sequence[Row]) -> Problem:
    files = list(dict.fromkeys(str(place["file"]) for place in places))
    others = len(files) - 1
    more = f" and {counted(others, 'other file')}" if others else ""
    count = "a piece" if len(places) == 1 else counted(len(places), "piece")
    text = f"{count} of the input cannot be read as a log, in {files[0]}{more}"
    return Problem(WARNING, "unreadable", len(places), text)


def _sync(device: Row) -> list[Problem]:
    wait = device["latency"]
    watched = wait["timed"] + wait["undelivered"]
    is_counted = device["expected"] is not None  # then who ran the devices knows better
    problems = []
    if watched and not is_counted and wait["undelivered"] / watched > UNDELIVERED_SHARE:
        share = wait["undelivered"] / watched
        text = f"messages that have not come yet: {wait['undelivered']:,} ({share:.0%})"
        since = wait["undelivered_since_ms"]
        problems.append(Problem(WARNING, "undelivered", share, text, since))
    if is_counted and device["delivered"] < device["expected"]:
        gone = device["expected"] - device["delivered"]
        text = f"delivered {device['delivered']:,} of {device['expected']:,}"
        since = wait["undelivered_since_ms"]
        problems.append(Problem(ALARM, "expected", gone, text, since))
    return problems


def _short(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
