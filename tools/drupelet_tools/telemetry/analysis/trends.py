"""Which devices stand out, trends of the fleet, and figures under Memfault's names.

The parts: analyses_stats (statistics), analyses_latency, analyses_sync, analyses_watch. This
file looks over finished rows of devices, as `figures` makes them. No Spark, no Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drupelet_tools.telemetry.analysis.attention import attention as attention
from drupelet_tools.telemetry.analysis.statistics import (
    OUTLIER_Z,
    median_interval,
    modified_z,
)
from drupelet_tools.telemetry.blackbox import codes

Row = dict[str, Any]

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
