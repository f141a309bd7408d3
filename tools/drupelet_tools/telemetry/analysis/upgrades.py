"""What a device's firmware costs against the one that it ran right before.

Devices are compared with themselves: places, carriers and schedules differ from one to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drupelet_tools.telemetry.analysis.statistics import median_interval
from drupelet_tools.telemetry.text.natural import natural

Row = dict[str, Any]

# Of a device's log with each of two firmwares: a day has a time of each kind in it.
UPGRADE_HOURS_MIN = 24.0
CHARGE_PER_DAY = "charge per day, modelled"
# What a device is compared with itself by: (name, text, unit).
PAIRED = (
    ("bytes_per_message", "bytes per message", "B"),
    ("mah_per_message", "charge per message, modelled", "mAh"),
    ("mah_per_day", CHARGE_PER_DAY, "mAh"),
)
# A change below this share is none: the page shows it as 0.0 %.
CHANGE_MIN = 0.0005


def across_upgrades(devices: Sequence[Row]) -> list[Row]:
    """What each device runs now against what it ran right before, by what those two are.

    A list of (firmware, firmware_before, too_short, what, unit, devices, share, low, high), the
    last as in `paired` of `compare`. `too_short` devices have not logged UPGRADE_HOURS_MIN with
    both; where all have not, the list has one row without the rest. A device whose firmware was
    not known before counts nowhere.
    """
    changed: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for device in devices:
        last = device["firmware_runs"][-2:]
        if len(last) == 2 and all(row["firmware"] for row in last):
            before, now = last
            changed.setdefault((before["firmware"], now["firmware"]), []).append((now, before))
    rows: list[Row] = []
    for (before, now), pairs in sorted(changed.items(), key=lambda item: _natural(item[0])):
        enough = [pair for pair in pairs if min(r["hours"] for r in pair) >= UPGRADE_HOURS_MIN]
        about = {"firmware": now, "firmware_before": before, "too_short": len(pairs) - len(enough)}
        changes = (paired(enough, name, what, unit) for name, what, unit in PAIRED)
        rows += [about | row for row in [row for row in changes if row] or [{}]]
    return rows


def dearer(devices: Sequence[Row]) -> list[Row]:
    """Of `across_upgrades`, the firmwares that take more charge per day than what ran before."""
    return [
        row
        for row in across_upgrades(devices)
        if row.get("what") == CHARGE_PER_DAY and costs_more(row)
    ]


def _natural(names: tuple[str, str]) -> list[list[tuple[bool, int, str]]]:
    return [natural(name) for name in names]


def change_of(pair: tuple[Row, Row], name: str) -> float | None:
    """How much a figure of a device has changed, as a share of what it was before."""
    now, before = (row[name] for row in pair)
    return now / before - 1 if now is not None and before else None


def paired(pairs: Sequence[tuple[Row, Row]], name: str, what: str, unit: str) -> Row | None:
    """The median of the devices' own changes of a figure, with its 95 % interval: what, unit,
    devices, share, low, high. None where no device has the figure on both sides.

    `pairs`: a device's figures now, and before.
    """
    changes = [change for pair in pairs if (change := change_of(pair, name)) is not None]
    middle = median_interval(changes)
    if middle is None:
        return None
    return {
        "what": what, "unit": unit, "devices": middle.count, "share": middle.value,
        "low": middle.low, "high": middle.high,
    }  # fmt: skip


def costs_more(row: Row) -> bool | None:
    """Whether a row of `paired` shows a rise (True) or a fall (False); None if neither is told
    apart from chance."""
    if row["low"] is None:
        return None
    if row["low"] >= CHANGE_MIN:
        return True
    return False if row["high"] <= -CHANGE_MIN else None
