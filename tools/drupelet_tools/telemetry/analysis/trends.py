"""Trends of the fleet, from finished rows of devices as `figures` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drupelet_tools.telemetry.analysis.statistics import median_interval

Row = dict[str, Any]


def fleet_trends(devices: Sequence[Row]) -> list[Row]:
    """The median of the devices' slopes per day, with its interval, for each kind of trend."""
    kinds: tuple[tuple[str, str, Callable[[Row], Row | None]], ...] = (
        ("battery voltage, measured", "mV", lambda row: row["battery"]["mv_trend"]),
        ("state of charge, measured", "%", lambda row: row["battery"]["soc_trend"]),
        ("charge per day, modelled", "mAh", lambda row: row["trends"]["mah_per_day"]),
        ("free heap, lowest", "B", lambda row: row["trends"]["heap_low"]),
        ("bytes per day", "B", lambda row: row["trends"]["bytes_per_day"]),
    )
    rows = []
    for what, unit, pick in kinds:
        trends = [trend for row in devices if (trend := pick(row)) is not None]
        middle = median_interval([trend["slope"] for trend in trends])
        if middle is not None:
            rows.append(
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
    return rows
