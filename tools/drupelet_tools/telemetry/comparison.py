"""The last days against as many days before: what a message cost, and whether it costs more now.

The lake's tables count by boot, so a boot counts whole, in the period in which its middle lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.analyses_plan import FleetPlan
from drupelet_tools.telemetry.analyses_stats import median_interval
from drupelet_tools.telemetry.analyses_watch import MS_PER_DAY
from drupelet_tools.telemetry.figures import Figures, figures
from drupelet_tools.telemetry.lake import Lake
from drupelet_tools.telemetry.lake_view import Boot, BootsView

Row = dict[str, Any]

# What a device is compared with itself by: (name, text, unit).
PAIRED = (
    ("bytes_per_message", "bytes per message", "B"),
    ("mah_per_message", "charge per message, modelled", "mAh"),
    ("mah_per_day", "charge per day, modelled", "mAh"),
)


def compare(lake: Lake, plan: FleetPlan, now_ms: float, days: float, *, seed: int = 0) -> Row:
    """Figures of the days up to `now_ms` and of as many days before.

    Returns `days`, `boots` (whole boots in the two periods), `long_boots` (of them, those longer
    than a period), and three lists: `fleet` (what, unit, now, before), `paired` (what, unit,
    devices, share, low, high: the median of the devices' own changes, with its 95 % interval) and
    `devices` (those whose charge per day rose most: device, label, now, before, share).
    """
    length = days * MS_PER_DAY
    spans = boot_spans(lake)
    now = _within(spans, now_ms - length, now_ms)
    before = _within(spans, now_ms - 2 * length, now_ms - length)
    chosen = [spans[boot] for boot in (*now, *before)]
    later, earlier = (_figures(lake, boots, plan, now_ms, seed) for boots in (now, before))
    pairs = _pairs(later, earlier)
    return {
        "days": days,
        "now_ms": now_ms,
        "boots": [len(now), len(before)],
        "long_boots": sum(end - start > length for start, end in chosen),
        "fleet": [
            {"what": what, "unit": unit, "now": pick(later), "before": pick(earlier)}
            for what, unit, pick in FLEET
        ],
        "paired": [
            row for name, what, unit in PAIRED if (row := _paired(pairs, name, what, unit))
        ],
        "devices": _risen(pairs),
    }


def boot_spans(lake: Lake) -> dict[Boot, tuple[float, float]]:
    """Start and end of each boot by wall clock, where that is known."""
    spans: dict[Boot, tuple[float, float]] = {}
    columns = ("device", "boot", "wall_offset_ms", "first_ms", "last_ms")
    rows = lake.read("segments").select(columns).to_pydict()
    for device, boot, offset, first, last in zip(*rows.values(), strict=True):
        if None not in (offset, first, last):
            start, end = spans.get((device, boot), (math.inf, -math.inf))
            spans[device, boot] = min(start, offset + first), max(end, offset + last)
    return spans


def _within(spans: dict[Boot, tuple[float, float]], low: float, high: float) -> list[Boot]:
    return [boot for boot, (start, end) in spans.items() if low < (start + end) / 2 <= high]


def _figures(
    lake: Lake, boots: Sequence[Boot], plan: FleetPlan, now_ms: float, seed: int
) -> Figures:
    view = BootsView(lake, boots)
    all_figures = figures(view.as_lake, None, plan, now_ms=now_ms, seed=seed)
    for row in all_figures["devices"]:
        mah = row["mah_modelled"]
        paid = mah is not None and row["delivered"] > 0
        row["mah_per_message"] = mah / row["delivered"] if paid else None
    return all_figures


def _sum(name: str) -> Callable[[Figures], float | None]:
    return lambda all_figures: sum(row[name] for row in all_figures["devices"])


def _per_message(name: str) -> Callable[[Figures], float | None]:
    def pick(all_figures: Figures) -> float | None:
        rows = [row for row in all_figures["devices"] if row[name] is not None]
        count = sum(row["delivered"] for row in rows)
        return math.fsum(row[name] for row in rows) / count if count else None

    return pick


def _median(name: str) -> Callable[[Figures], float | None]:
    def pick(all_figures: Figures) -> float | None:
        middle = median_interval([r[name] for r in all_figures["devices"] if r[name] is not None])
        return None if middle is None else middle.value

    return pick


def _resets(all_figures: Figures) -> float | None:
    causes = [cause for row in all_figures["devices"] for cause in row["health"]["reset_causes"]]
    return causes.count(codes.RESET_WATCHDOG)


FLEET: tuple[tuple[str, str, Callable[[Figures], float | None]], ...] = (
    ("Devices heard", "", lambda all_figures: len(all_figures["devices"])),
    ("Delivered", "", _sum("delivered")),
    ("Bytes per message", "B", _per_message("client_bytes")),
    ("Charge per message, modelled", "mAh", _per_message("mah_modelled")),
    ("Charge per day, modelled, median device", "mAh", _median("mah_per_day")),
    ("Share of repeats, median device", "%", lambda all_figures: _percent(
        _median("retransmit_share")(all_figures))),
    ("Latency p50", "s", lambda all_figures: _seconds(all_figures["fleet"]["latency"]["p50_ms"])),
    ("Latency p90", "s", lambda all_figures: _seconds(all_figures["fleet"]["latency"]["p90_ms"])),
    ("Undelivered", "", lambda all_figures: all_figures["fleet"]["latency"]["undelivered"]),
    ("Resets by watchdog", "", _resets),
)  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _pairs(later: Figures, earlier: Figures) -> list[tuple[Row, Row]]:
    old = {row["device"]: row for row in earlier["devices"]}
    return [(row, old[row["device"]]) for row in later["devices"] if row["device"] in old]


def _change(pair: tuple[Row, Row], name: str) -> float | None:
    now, before = (row[name] for row in pair)
    return now / before - 1 if now is not None and before else None


def _paired(pairs: Sequence[tuple[Row, Row]], name: str, what: str, unit: str) -> Row | None:
    changes = [change for pair in pairs if (change := _change(pair, name)) is not None]
    middle = median_interval(changes)
    if middle is None:
        return None
    return {
        "what": what, "unit": unit, "devices": middle.count, "share": middle.value,
        "low": middle.low, "high": middle.high,
    }  # fmt: skip


def _risen(pairs: Sequence[tuple[Row, Row]], count: int = 10) -> list[Row]:
    rows = [
        {"device": now["device"], "label": now["label"], "now": now["mah_per_day"],
         "before": before["mah_per_day"], "share": change}
        for now, before in pairs
        if (change := _change((now, before), "mah_per_day")) is not None and change > 0
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["share"])[:count]
