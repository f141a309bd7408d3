"""What the report shows, worked out from the lake's tables; plain data, ready for JSON.

Bytes: `carrier` bytes are what crossed a link, framing included, as both ends count them.
Telemetry bytes are the black boxes on their way to their reader; they are kept apart.
"Client bytes" are carrier bytes less telemetry bytes: messages with their retransmissions,
acknowledgements, offers, requests, link records and all framing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from drupelet_tools.telemetry import energy
from drupelet_tools.telemetry.lake import Lake

Figures = dict[str, Any]
Row = dict[str, Any]

# Parts of the carrier bytes that are content of messages, and those that are overhead.
CONTENT_KINDS = ("message", "segment")
OVERHEAD_KINDS = ("ack", "offer", "request", "link", "seal")
RESULT_KEYS = ("expected", "delivered", "created", "duplicates", "out_of_order")
QUANTILES = (0.5, 0.9)
CURVE_POINTS_MAX = 60  # per device in the latency chart: it stays small with many devices


def figures(lake: Lake, results: Mapping[str, Mapping[str, int]] | None = None) -> Figures:
    """All figures of a lake.

    Args:
        lake: an open lake.
        results: device name or id -> any of RESULT_KEYS, as
            counted by whoever ran the devices; without it `delivered` is the devices' own
            counter and nothing is known to be expected.
    """
    tables = {table: by_device(lake.read(table).to_pylist()) for table in _USED}
    waits = latencies(lake.read("messages").to_pylist())
    devices = []
    for device in lake.read_devices().to_pylist():
        own = {table: rows.get(device["device"], []) for table, rows in tables.items()}
        given = dict((results or {}).get(device["name"]) or {})
        given = given or dict((results or {}).get(device["device"]) or {})
        devices.append(_device(device, own, waits.get(device["device"], []), given))
    devices.sort(key=lambda row: (row["name"], row["device"]))
    return {"devices": devices, "fleet": _fleet(devices, waits), "tables": _tables(devices)}


_USED = ("segments", "state_time", "traffic", "health", "quarantine")


def by_device(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows sorted out by device."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["device"]].append(row)
    return found


def _device(
    device: Row, own: dict[str, list[Row]], waits: list[Row], given: Mapping[str, int]
) -> Row:
    health = own["health"]
    total = {name: sum(row[name] for row in health) for name in _SUMS}
    traffic = traffic_figures(own["traffic"])
    delivered = given.get("delivered", total["messages_delivered"])
    row: Row = {**device, **{key: given.get(key) for key in RESULT_KEYS}}
    row["delivered"] = delivered
    row["created"] = given.get("created", total["messages_created"])
    if row["duplicates"] is None:
        row["duplicates"] = total["duplicates"]
    row["traffic"] = traffic
    row["client_bytes"] = traffic["client_bytes"]
    row["telemetry_bytes"] = traffic["telemetry_bytes"]
    row["bytes_per_message"] = _ratio(traffic["client_bytes"], delivered)
    row["overhead_per_message"] = _ratio(
        traffic["client_bytes"] - traffic["content_bytes"], delivered
    )
    row.update(_charge_figures(device, own["state_time"]))
    row["latency"] = quantiles(waits)
    row["latency"]["curve"] = _curve(waits)
    row["health"] = _health_figures(own, total)
    return row


_SUMS = (
    "messages_created",
    "messages_delivered",
    "duplicates",
    "retransmits",
    "refused",
    "damaged_frames",
    "malformed_records",
    "events_lost",
    "flash_programs",
    "flash_erases",
    "errors",
    "blocks_lost",
    "segments_missing",
)


def traffic_figures(rows: list[Row]) -> Row:
    """Bytes by carrier, direction and kind, summed over boots, with what the framing took."""
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    records: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["unit"] == "bytes":
            sums[row["carrier"], row["direction"], row["kind"]] += row["value"]
        else:
            records[f"{row['kind']} {row['unit']} {row['direction']}"] += row["value"]
    lines: list[Row] = []
    for carrier, direction in sorted({key[:2] for key in sums}):
        kinds = {key[2]: value for key, value in sums.items() if key[:2] == (carrier, direction)}
        whole = kinds.pop("carrier", 0)
        parts = sum(kinds.values())
        # A counter lost with a block can leave the whole behind its parts for a while.
        whole = max(whole, parts)
        kinds["framing"] = whole - parts
        lines.append({"carrier": carrier, "direction": direction, "bytes": whole, **kinds})
    telemetry = sum(line.get("telemetry", 0) for line in lines)
    sent = [line for line in lines if line["direction"] == "sent"]
    return {
        "lines": lines,
        "records": dict(sorted(records.items())),
        "client_bytes": sum(line["bytes"] for line in lines) - telemetry,
        "client_bytes_sent": sum(line["bytes"] - line.get("telemetry", 0) for line in sent),
        "telemetry_bytes": telemetry,
        "content_bytes": sum(line.get(kind, 0) for line in lines for kind in CONTENT_KINDS),
    }


def _charge_figures(device: Row, rows: list[Row]) -> Row:
    """Modelled charge by state; None where there is no table for the board."""
    state_ms: dict[int, int] = defaultdict(int)
    for row in rows:
        state_ms[row["state"]] += row["ms"]
    total: Row = {"state_ms": dict(state_ms), "hours": sum(state_ms.values()) / 3.6e6}
    if device["board"] not in energy.board_names():
        return {**total, "mah_modelled": None, "charge": [], "board_label": None}
    board = energy.load_board(device["board"])
    carriers = [name.strip() for name in device["carriers"].split(",")]
    charge = [asdict(row) for row in energy.charges(board, state_ms, carriers)]
    return {
        **total,
        "charge": charge,
        "mah_modelled": math.fsum(row["mah"] for row in charge),
        "mah_modelled_low": math.fsum(row["low_mah"] for row in charge),
        "mah_modelled_high": math.fsum(row["high_mah"] for row in charge),
        "board_label": board.label,
        "board_source": board.source,
        "board_version": board.version,
        "leakage_unknown": board.leakage.unknown,
    }


def _health_figures(own: dict[str, list[Row]], total: dict[str, int]) -> Row:
    health, segments = own["health"], own["segments"]
    lows = [row["heap_low"] for row in health if row["heap_low"] is not None]
    limits = [row["heap_limit"] for row in health if row["heap_limit"] is not None]
    return {
        **total,
        "boots": len(health),
        "reset_causes": [row["reset_cause"] for row in health],
        "heap_low": min(lows, default=None),
        "heap_limit": max(limits, default=None),
        "battery_low_mv": min(
            (row["battery_low_mv"] for row in health if row["battery_low_mv"] is not None),
            default=None,
        ),
        "segments": len(segments),
        "blocks": sum(row["blocks"] for row in segments),
        "log_events": sum(row["events"] for row in segments),
        "quarantined": len(own["quarantine"]),
        "reasons": sorted({row["reason"] for row in own["quarantine"]}),
    }


def latencies(rows: list[Row]) -> dict[str, list[Row]]:
    """Created-to-delivered waits by receiving device.

    One entry per message and device other than its author's: `wait_ms` is None where no
    delivery is on record (censored) or where one of the two clocks is not known (`clock`
    False). Messages are matched by the first four bytes of their id.
    """
    created: dict[str, Row] = {}
    delivered: dict[tuple[str, str], Row] = {}
    devices = set()
    for row in rows:
        devices.add(row["device"])
        if row["event"] == "created":
            created.setdefault(row["message"], row)
        elif row["event"] == "delivered":
            delivered[row["device"], row["message"]] = row
    found: dict[str, list[Row]] = {device: [] for device in devices}
    for message, birth in created.items():
        for device in devices - {birth["device"]}:
            arrival = delivered.get((device, message))
            found[device].append(_wait(birth, arrival))
    return found


def _wait(birth: Row, arrival: Row | None) -> Row:
    if arrival is None:
        return {"wait_ms": None, "uncertainty_ms": None, "clock": birth["wall_ms"] is not None}
    if birth["wall_ms"] is None or arrival["wall_ms"] is None:
        return {"wait_ms": None, "uncertainty_ms": None, "clock": False}
    spreads = (birth["wall_uncertainty_ms"], arrival["wall_uncertainty_ms"])
    # Both ends of a device's own clock: the spreads add up.
    spread = None if None in spreads else sum(spreads)
    return {
        "wait_ms": arrival["wall_ms"] - birth["wall_ms"],
        "uncertainty_ms": spread,
        "clock": True,
    }


def quantiles(waits: list[Row]) -> Row:
    """p50 and p90 with undelivered messages counted as waiting longer than all others.

    A quantile that falls among the undelivered is None.
    """
    timed = [row for row in waits if row["clock"]]
    known = sorted(row["wait_ms"] for row in timed if row["wait_ms"] is not None)
    spreads = [row["uncertainty_ms"] for row in timed if row["wait_ms"] is not None]
    row: Row = {
        "messages": len(waits),
        "timed": len(known),
        "undelivered": len(timed) - len(known),
        "no_clock": len(waits) - len(timed),
        "uncertainty_ms": None if None in spreads or not spreads else max(spreads),
    }
    for quantile in QUANTILES:
        at = math.ceil(quantile * len(timed)) - 1
        row[f"p{round(quantile * 100)}_ms"] = known[at] if 0 <= at < len(known) else None
    return row


def _curve(waits: list[Row]) -> list[tuple[float, float]]:
    """Share of messages delivered within so many seconds, at a bounded number of points."""
    timed = [row for row in waits if row["clock"]]
    known = sorted(row["wait_ms"] for row in timed if row["wait_ms"] is not None)
    step = max(1, len(known) // CURVE_POINTS_MAX)
    picked = sorted({*range(0, len(known), step), len(known) - 1} - {-1})
    start = [(known[0] / 1000, 0.0)] if known else []
    return start + [(known[at] / 1000, (at + 1) / len(timed)) for at in picked]


def _fleet(devices: list[Row], waits: dict[str, list[Row]]) -> Row:
    """Every byte once, where it was sent; every delivery but the one at the author."""
    sent = sum(row["traffic"]["client_bytes_sent"] for row in devices)
    delivered = sum(row["delivered"] for row in devices)
    away = delivered - sum(row["created"] for row in devices)
    modelled = [row["mah_modelled"] for row in devices if row["mah_modelled"] is not None]
    return {
        "devices": len(devices),
        "delivered": delivered,
        "expected": _sum_or_none(row["expected"] for row in devices),
        "duplicates": sum(row["duplicates"] for row in devices),
        "deliveries_away": away,
        "client_bytes_sent": sent,
        "telemetry_bytes": sum(row["telemetry_bytes"] for row in devices),
        "bytes_per_message": _ratio(sent, away),
        "mah_modelled": math.fsum(modelled) if modelled else None,
        "latency": quantiles([row for rows in waits.values() for row in rows]),
    }


def _tables(devices: list[Row]) -> list[Row]:
    """The current tables that were used, each once."""
    names = sorted({row["board"] for row in devices if row["board_label"]})
    return [asdict(energy.load_board(name)) for name in names]


def _ratio(amount: float, count: float) -> float | None:
    return amount / count if count > 0 else None


def _sum_or_none(values: Iterable[int | None]) -> int | None:
    listed = list(values)
    return None if None in listed else sum(value or 0 for value in listed)
