"""What needs attention first, which devices stand out, and figures under Memfault's names.

The parts: analyses_stats (statistics), analyses_latency, analyses_sync, analyses_watch. This
file looks over finished rows of devices, as `figures` makes them. No Spark, no Arrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.analyses_stats import (
    OUTLIER_Z,
    median_interval,
    modified_z,
)

Row = dict[str, Any]

URGENT, SOON, LOOK = 1, 2, 3
DAYS_URGENT, DAYS_SOON = 14.0, 60.0
UNDELIVERED_SHARE = 0.1
MISSING_SHARE = 0.005
HEAP_SHARE = 0.05
OUT_SHARE = 0.05
ATTENTION_MAX = 200  # lines; a fleet with more has one cause, not two hundred

# Kinds of complaint in the order of their weight.
KINDS = (
    "expected", "silent", "battery", "life", "clock", "refused", "errors", "watchdog",
    "undelivered", "missing", "memory", "away", "misfit", "damaged", "events lost", "outlier",
)  # fmt: skip

# What devices are compared by: (name, text, unit).
COMPARED = (
    ("mah_per_day", "charge per day, modelled", "mAh"),
    ("overhead_per_message", "overhead per message", "B"),
    ("retransmit_share", "share of repeated sends", ""),
    ("duplicate_share", "share of duplicates", ""),
    ("boots_per_day", "boots per day", ""),
)


def outliers(devices: Sequence[Row]) -> list[Row]:
    """Devices far from the fleet's median by the median deviation, the farthest first."""
    found = []
    for name, what, unit in COMPARED:
        told = [(row, row[name]) for row in devices if row.get(name) is not None]
        values = np.array([value for _, value in told], dtype=np.float64)
        for (row, value), score in zip(told, modified_z(values), strict=True):
            if abs(score) >= OUTLIER_Z:
                found.append(
                    {
                        "device": row["device"],
                        "label": row["label"],
                        "figure": name,
                        "what": what,
                        "unit": unit,
                        "value": value,
                        "median": float(np.median(values)),
                        "z": float(score),
                    }
                )
    return sorted(found, key=lambda row: (-abs(row["z"]), row["device"]))


def fleet_trends(devices: Sequence[Row]) -> list[Row]:
    """The median of the devices' slopes per day, with its interval, for each kind of trend."""
    kinds: tuple[tuple[str, str, Callable[[Row], Row | None]], ...] = (
        ("battery voltage, measured", "mV", lambda row: row["battery"]["mv_trend"]),
        ("state of charge, measured", "%", lambda row: row["battery"]["soc_trend"]),
        ("charge per day, modelled", "mAh", lambda row: row["trends"]["mah_per_day"]),
        ("free heap, lowest", "B", lambda row: row["trends"]["heap_low"]),
        ("bytes per day", "B", lambda row: row["trends"]["bytes_per_day"]),
    )
    found = []
    for what, unit, pick in kinds:
        trends = [trend for row in devices if (trend := pick(row)) is not None]
        middle = median_interval([trend["slope"] for trend in trends])
        if middle is not None:
            found.append(
                {
                    "what": what,
                    "unit": f"{unit}/day",
                    "slope": middle.value,
                    "low": middle.low,
                    "high": middle.high,
                    "devices": middle.count,
                    "found": sum(trend["found"] for trend in trends),
                }
            )
    return found


def attention(devices: Sequence[Row], far: Sequence[Row]) -> list[Row]:
    """What an owner should look at, the most urgent first; one line each with its figure.

    Lines of one `kind` stand together, the worst first.
    """
    lines: list[Row] = []
    for row in devices:
        for level, kind, weight, what in _complaints(row):
            lines.append(_line(row, level, kind, weight, what))
    for row in far:
        value, median = _short(row["value"]), _short(row["median"])
        unit = f" {row['unit']}" if row["unit"] else ""
        what = f"{row['what']}: {value}{unit}, the fleet's median is {median} (z {row['z']:+.1f})"
        lines.append(_line(row, LOOK, "outlier", abs(row["z"]), what))
    lines.sort(key=lambda line: (line["level"], KINDS.index(line["kind"]), -line["weight"]))
    return lines[:ATTENTION_MAX]


def _line(row: Row, level: int, kind: str, weight: float, what: str) -> Row:
    return {
        "level": level,
        "kind": kind,
        "weight": weight,
        "device": row["device"],
        "label": row["label"],
        "what": what,
    }


Complaint = tuple[int, str, float, str]


def _complaints(row: Row) -> list[Complaint]:
    return [*_presence(row), *_power(row), *_losses(row), *_sync(row)]


def _presence(row: Row) -> list[Complaint]:
    seen = row["presence"]
    lines: list[Complaint] = []
    if seen["silent"]:
        usual = f"its schedule is {span(seen['period_ms'])} ({seen['period_source']})"
        quiet = seen["silent_ms"]
        lines.append((URGENT, "silent", quiet, f"silent for {span(quiet)}; {usual}"))
    if row["clock_ahead"]:
        what = "its clock is wrong: its log ends in the future"
        lines.append((SOON, "clock", seen["last_wall_ms"], what))
    if seen["outages"] and (seen["out_share"] or 0) >= OUT_SHARE:
        longest = span(seen["outage_list"][0]["ms"])
        share = f"{seen['out_share']:.0%} of its time"
        what = f"was away {seen['outages']} times, {share}; the longest {longest}"
        lines.append((SOON, "away", seen["out_share"], what))
    return lines


def _power(row: Row) -> list[Complaint]:
    lines: list[Complaint] = []
    left = row["battery"]["days_left"]
    if left is not None and left < DAYS_SOON:
        level = URGENT if left < DAYS_URGENT else SOON
        what = f"battery empty in {left:.0f} days by its own readings"
        lines.append((level, "battery", -left, what))
    life = row["life"]
    if left is None and life is not None and not life["assumed"] and life["days"] < DAYS_SOON:
        between = f"({life['days_low']:.0f} to {life['days_high']:.0f})"
        what = f"a full battery lasts {life['days']:.0f} days {between}, modelled"
        lines.append((SOON, "life", -life["days"], what))
    both = row["comparison"]
    if both is not None and not both["agree"] and not life["assumed"]:
        measured, modelled = both["measured_days"], both["modelled_days"]
        what = f"battery life measured {measured:.0f} days, modelled {modelled:.0f}"
        what += ": the tables do not fit this device"
        lines.append((LOOK, "misfit", abs(math.log(max(both["ratio"], 1e-9))), what))
    return lines


def _losses(row: Row) -> list[Complaint]:
    lines: list[Complaint] = []
    log, health = row["integrity"], row["health"]
    errors, refused = health["errors"], health["refused"]
    missing, quarantined = log["segments_missing"], log["quarantined"]
    if errors:
        lines.append((SOON, "errors", errors, f"{errors:,} errors in its log"))
    if refused:
        what = f"{refused:,} messages refused: a table or the flash is full"
        lines.append((SOON, "refused", refused, what))
    if (log["missing_share"] or 0) > MISSING_SHARE:
        what = f"{missing:,} numbers of its log missing ({log['missing_share']:.2%})"
        lines.append((SOON, "missing", log["missing_share"], what))
    if quarantined:
        what = f"damaged places in its log: {quarantined:,}"
        lines.append((LOOK, "damaged", quarantined, what))
    if log["events_lost"]:
        what = f"{log['events_lost']:,} events did not fit into its log"
        lines.append((LOOK, "events lost", log["events_lost"], what))
    barked = health["reset_causes"].count(codes.RESET_WATCHDOG)
    if barked:
        what = f"was started {barked:,} times by its watchdog"
        lines.append((SOON, "watchdog", barked, what))
    if health["heap_low"] is not None and health["heap_limit"]:
        share = health["heap_low"] / health["heap_limit"]
        if share < HEAP_SHARE:
            what = f"memory: {health['heap_low']:,} bytes were free at the lowest"
            lines.append((SOON, "memory", -share, what))
    return lines


def _sync(row: Row) -> list[Complaint]:
    wait = row["latency"]
    watched = wait["timed"] + wait["undelivered"]
    lines: list[Complaint] = []
    told = row["expected"] is not None  # then who ran the devices knows better
    if watched and not told and wait["undelivered"] / watched > UNDELIVERED_SHARE:
        share = wait["undelivered"] / watched
        what = f"{wait['undelivered']:,} messages have not come yet ({share:.0%})"
        lines.append((SOON, "undelivered", share, what))
    if row["expected"] is not None and row["delivered"] < row["expected"]:
        gone = row["expected"] - row["delivered"]
        what = f"delivered {row['delivered']:,} of {row['expected']:,}"
        lines.append((URGENT, "expected", gone, what))
    return lines


def span(ms: float) -> str:
    """A length of time in the unit that reads best."""
    unit, size = time_unit(ms)
    return f"{ms / size:.1f} {unit}"


def time_unit(ms: float | None) -> tuple[str, float]:
    """The unit in which a length of time reads best, and its ms; seconds for none."""
    for unit, size in (("days", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0)):
        if ms is not None and ms >= 2 * size:
            return unit, size
    return "s", 1_000.0


def wait_unit(wait: Row) -> tuple[str, float]:
    """The unit for a fleet's latencies, the median deciding, else the first that is reached."""
    known = [wait[name] for name in ("p50_ms", "p90_ms") if wait[name] is not None]
    return time_unit(known[0] if known else None)


def _short(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def memfault_metrics(row: Row) -> dict[str, float]:
    """The device's figures under the names that Memfault's SDK uses, where it has one.

    Counters are over the whole log. A wake from deep sleep is a boot that says so; a crash, a
    boot by the watchdog or of unknown cause but the first, spoils the hour that it is in.
    Figures that were not recorded are left out.
    """
    battery, health, traffic = row["battery"], row["health"], row["traffic"]
    sent = sum(line["bytes"] for line in traffic["lines"] if line["direction"] == "sent")
    received = sum(line["bytes"] for line in traffic["lines"] if line["direction"] == "received")
    causes = [cause or 0 for cause in health["reset_causes"]]
    unknown = sum(cause not in codes.RESET_CAUSES for cause in causes[1:])
    crashes = causes.count(codes.RESET_WATCHDOG) + unknown
    synced = row["sync"] if row["sync"]["created"] else None  # others' frames tell no ACK
    told: dict[str, float | None] = {
        "uptime_s": row["hours"] * 3600,
        "operational_hours": row["hours"],
        "operational_crashfree_hours": max(0.0, row["hours"] - crashes),
        "battery_voltage": None if battery["mv_last"] is None else battery["mv_last"] / 1000,
        "battery_soc_pct": battery["soc_pct"],
        "battery_soc_pct_drop": battery["soc_drop_pct"],
        "battery_discharge_duration_ms": battery["soc_drop_ms"] or None,
        "sync_successful": synced and synced["acked"],
        "sync_failure": synced and max(0, synced["pairs"] - synced["acked"]),
        "network_tx_bytes": sent,
        "network_rx_bytes": received,
        "deep_sleep_time_ms": row["state_ms"].get(0),
        "deep_sleep_wakeup_count": causes.count(codes.RESET_DEEP_SLEEP) or None,
        "heap_min_free_bytes": health["heap_low"],
    }
    return {name: value for name, value in told.items() if value is not None}
