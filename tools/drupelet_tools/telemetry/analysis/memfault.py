"""A device's figures under the names that Memfault's SDK uses."""

from __future__ import annotations

from typing import Any

from drupelet_tools.telemetry.blackbox import codes

Row = dict[str, Any]


def memfault_metrics(row: Row) -> dict[str, float]:
    """The figures that have a name there, from a finished row of a device.

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
    metrics: dict[str, float | None] = {
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
    return {name: value for name, value in metrics.items() if value is not None}
