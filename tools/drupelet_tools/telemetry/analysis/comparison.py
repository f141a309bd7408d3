"""What a message costs in the last days, and what it cost in as many days before.

What counts in a period: `period` says it of hours, `group_costs.within` of messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from drupelet_tools.telemetry.analysis.figures import Figures, figures
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.analysis.group_costs import Period
from drupelet_tools.telemetry.analysis.period import Boot, PeriodHours, PeriodView, boot_spans
from drupelet_tools.telemetry.analysis.statistics import median_interval
from drupelet_tools.telemetry.analysis.upgrades import PAIRED, change_of, paired
from drupelet_tools.telemetry.analysis.watch import MS_PER_DAY
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake.delta import Lake

Row = dict[str, Any]


def periods_of(now_ms: float, days: float) -> tuple[Period, Period]:
    """The days up to `now_ms`, and as many before."""
    length = days * MS_PER_DAY
    return Period(now_ms - length, now_ms), Period(now_ms - 2 * length, now_ms - length)


def compare(
    lake: Lake, hours: PeriodHours, plan: FleetPlan, now_ms: float, days: float, *, seed: int = 0
) -> Row:
    """Figures of the days up to `now_ms` and of as many days before.

    Args:
        lake: a lake, or a view of some devices of one.
        hours: those of `periods_of`, of the devices of the lake or of more.
        plan: batteries and schedules.
        now_ms: the end of the last days.
        days: of each of the two periods.
        seed: of the Monte-Carlo intervals.

    Returns `days`, `hours` (of the devices' logs in the two periods), `boots` (of imported
    devices, which have no hours: whole boots in the two periods), `long_boots` (of these boots,
    those longer than a period), and three lists: `fleet` (what, unit, now, before), `paired`
    (what, unit, devices, share, low, high: the median of the devices' own changes, with its 95 %
    interval) and `devices` (those whose charge per day rose most: device, label, now, before,
    share).
    """
    own = hours.of(lake.read_devices()["device"])
    spans = boot_spans(lake, own.imported) if own.imported else {}
    boots = [_within(spans, period) for period in own.periods]
    later, earlier = (
        _figures(PeriodView(lake, sums, traffic, whole), period, plan, now_ms, seed)
        for period, sums, traffic, whole in zip(
            own.periods, own.sums, own.traffic, boots, strict=True
        )
    )
    pairs = _pairs(later, earlier)
    return {
        "days": days,
        "now_ms": now_ms,
        "hours": [sum(sums["hours"].to_pylist()) for sums in own.sums],
        "boots": [len(whole) for whole in boots],
        "long_boots": sum(
            spans[boot][1] - spans[boot][0] > days * MS_PER_DAY
            for whole in boots
            for boot in whole
        ),
        "fleet": [
            {"what": what, "unit": unit, "now": pick(later), "before": pick(earlier)}
            for what, unit, pick in FLEET
        ],
        "paired": [row for name, what, unit in PAIRED if (row := paired(pairs, name, what, unit))],
        "devices": _risen(pairs),
    }


def _within(spans: dict[Boot, tuple[float, float]], period: Period) -> list[Boot]:
    return [
        boot
        for boot, (start, end) in spans.items()
        if period.low_ms < (start + end) / 2 <= period.high_ms
    ]


def _figures(
    view: PeriodView, period: Period, plan: FleetPlan, now_ms: float, seed: int
) -> Figures:
    all_figures = figures(view.as_lake, None, plan, now_ms=now_ms, period=period, seed=seed)
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


def _risen(pairs: Sequence[tuple[Row, Row]], count: int = 10) -> list[Row]:
    rows = [
        {"device": now["device"], "label": now["label"], "now": now["mah_per_day"],
         "before": before["mah_per_day"], "share": change}
        for now, before in pairs
        if (change := change_of((now, before), "mah_per_day")) is not None and change > 0
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["share"])[:count]
