"""What the sync cost: bandwidth multiplier, repeats, and the charge of each kind of record.

Bandwidth multiplier, as the mobile paper counts it: everything sent over the messages to
deliver; a message sent three times and acknowledged once is x4. By records it counts sends,
offers, requests and acknowledgements of single messages, wherever they shared a record; by
bytes it is all client bytes over the bytes of the messages, each once per receiver.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from drupelet_tools.telemetry.analysis.group_costs import CONTENT_KINDS, Ints, Messages
from drupelet_tools.telemetry.energy.board_table import LEAKAGE_STATE

Row = dict[str, Any]

# Parts of the carrier bytes: content of messages, and overhead.
BYTE_KINDS = (
    "message", "segment", "ack", "offer", "request", "link", "seal", "framing", "telemetry",
)  # fmt: skip
RECEIVE, SEND = 3, 4
EVENTS = ("created", "sent", "acked", "offered", "requested")
PEERS_MAX = 256  # a member's number at a device is one byte
HISTOGRAM_MAX = 8  # the last bar holds this many sends and more
STANDING = {0: "sleep", 1: "sleep", 2: "idle", 5: "flash", 6: "sensor", LEAKAGE_STATE: "leakage"}
OPERATION_NAMES = (
    "message", "retransmission", "ack", "offer", "request", "link", "seal", "framing",
    "telemetry", "listening", "sleep", "idle", "flash", "sensor", "leakage", "operations", "other",
)  # fmt: skip


def traffic_figures(rows: Sequence[Row]) -> Row:
    """Bytes by carrier, direction and kind, summed over boots, with what the framing took."""
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    records: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["unit"] == "bytes":
            sums[row["carrier"], row["direction"], row["kind"]] += row["value"]
        else:
            unit = "" if row["unit"] == row["kind"] else f" {row['unit']}"
            records[f"{row['kind']}{unit} {row['direction']}"] += row["value"]
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
        "content_bytes_sent": sum(line.get(kind, 0) for line in sent for kind in CONTENT_KINDS),
    }


def entries(told: Messages) -> Row:
    """Sends, acknowledgements, offers and requests of single messages, and their histogram.

    `pairs` are (message, receiver) pairs that were sent at all; `sends` says how many of them
    took one send, two, and so on; the last bar is open. `resets` are the times that a message's
    send count, and with it the back-off, began again at 1 for a receiver: it was heard of
    since, or the device had started anew. `offer_resets` are those of offers.
    """
    totals = {event: int(told.count[told.having(event)].sum()) for event in EVENTS}
    totals["offer_resets"] = _resets(told, *_pairs(told, "offered"))
    rows, pair, count = _pairs(told, "sent")
    totals["resets"] = _resets(told, rows, pair, count)
    seen, told_max = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(seen, pair, told.count[rows])
    np.maximum.at(told_max, pair, told.sends_max[rows])
    sends = np.clip(np.maximum(seen, told_max), 1, HISTOGRAM_MAX)
    bars = np.bincount(sends, minlength=HISTOGRAM_MAX + 1)[1:]
    return {**totals, "pairs": count, "sends": [int(bar) for bar in bars]}


def _pairs(told: Messages, event: str) -> tuple[Ints, Ints, int]:
    """The rows of an event, which (message, receiver) each is about, and how many there are."""
    rows = np.flatnonzero(told.having(event))
    # A row is one boot's; a message's sends to a member run on over boots.
    peer = told.peer[rows] % PEERS_MAX
    key = (told.device[rows] * max(told.messages, 1) + told.message[rows]) * PEERS_MAX + peer
    _, pair = np.unique(key, return_inverse=True)
    return rows, pair, int(pair.max()) + 1 if len(pair) else 0


def _resets(told: Messages, rows: Ints, pair: Ints, count: int) -> int:
    begun = np.zeros(count, np.int64)
    np.add.at(begun, pair, told.first_sends[rows])
    return int(np.maximum(begun - 1, 0).sum())


def is_foreign(own: Row) -> bool:
    """Whether a device's frames are another system's: sent, and nothing else is known."""
    return bool(own["sent"]) and not any(own[event] for event in EVENTS if event != "sent")


def added(rows: Iterable[Row]) -> Row:
    """The counts of several devices as one."""
    listed = list(rows)
    return {
        name: sum(row[name] for row in listed)
        for name in (*EVENTS, "pairs", "resets", "offer_resets")
    }


def multiplier(own: Row, deliveries: int, traffic: Row) -> Row:
    """The multiplier by records and by bytes; None where there is nothing to divide by."""
    sent = own["sent"] + own["acked"] + own["offered"] + own["requested"]
    message = _ratio(traffic["content_bytes_sent"], own["sent"])
    wanted = message * deliveries if message else 0.0
    return {
        "records": _ratio(sent, deliveries),
        "bytes": _ratio(traffic["client_bytes_sent"], wanted),
        "deliveries": deliveries,
    }


def by_carrier(devices: Iterable[Row]) -> list[Row]:
    """Sent bytes of each carrier over a fleet, and how many of them are content."""
    sums: dict[str, dict[str, int]] = {}
    for device in devices:
        for line in device["traffic"]["lines"]:
            if line["direction"] != "sent":
                continue
            own = sums.setdefault(line["carrier"], defaultdict(int))
            own["bytes"] += line["bytes"]
            own["telemetry"] += line.get("telemetry", 0)
            own["content"] += sum(line.get(kind, 0) for kind in CONTENT_KINDS)
    return [
        {
            "carrier": carrier,
            **own,
            "multiplier_bytes": _ratio(own["bytes"] - own["telemetry"], own["content"]),
        }
        for carrier, own in sorted(sums.items())
    ]


def by_operation(charge: Sequence[Row], traffic: Row, own: Row) -> dict[str, float]:
    """Charge in mAh by what it was spent on; the sum is that of `charge`.

    Sending and receiving are shared out by the bytes of each kind; receiving without a byte
    is listening. Of the messages sent, the share of repeats is retransmission.
    """
    spent: dict[str, float] = defaultdict(float)
    again = own["sent"] - own["pairs"]
    repeated = again / own["sent"] if own["sent"] > 0 and again > 0 else 0.0
    for row in charge:
        if row["state"] == SEND:
            _share(spent, row["mah"], _kinds(traffic, "sent"), repeated, "framing")
        elif row["state"] == RECEIVE:
            _share(spent, row["mah"], _kinds(traffic, "received"), 0.0, "listening")
        else:
            beyond = "operations" if row["state"] > LEAKAGE_STATE else "other"
            spent[STANDING.get(row["state"], beyond)] += row["mah"]
    return {name: spent[name] for name in OPERATION_NAMES if spent.get(name)}


def _kinds(traffic: Row, direction: str) -> dict[str, int]:
    kinds: dict[str, int] = defaultdict(int)
    for line in traffic["lines"]:
        if line["direction"] == direction:
            for kind in BYTE_KINDS:
                kinds["message" if kind == "segment" else kind] += line.get(kind, 0)
    return {kind: value for kind, value in kinds.items() if value > 0}


def _share(
    spent: dict[str, float], mah: float, kinds: Mapping[str, int], repeated: float, none: str
) -> None:
    whole = sum(kinds.values())
    if not whole:
        spent[none] += mah
        return
    for kind, size in kinds.items():
        part = mah * size / whole
        if kind == "message" and repeated:
            spent["retransmission"] += part * repeated
            part *= 1 - repeated
        spent[kind] += part


def moved_kb(traffic: Row, own: Row, delivered_from_others: int, duplicates: int) -> float:
    """Content that this device got across its links once, both directions, kB.

    Of what it sent, repeats are taken out by their share of sends; of what it received,
    duplicates by theirs of messages.
    """
    sent = float(traffic["content_bytes_sent"])
    received = float(traffic["content_bytes"]) - sent
    if own["sent"] > own["pairs"] > 0:
        sent *= own["pairs"] / own["sent"]
    taken = delivered_from_others + duplicates
    if duplicates > 0 and taken > 0:
        received *= delivered_from_others / taken
    return (sent + received) / 1000


def total(spent: Mapping[str, float]) -> float:
    """Sum without rounding on the way."""
    return math.fsum(spent.values())


def _ratio(amount: float, count: float) -> float | None:
    return amount / count if count > 0 else None
