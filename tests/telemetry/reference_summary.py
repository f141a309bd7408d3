"""One device's log to rows of the tables: what each boot did, and for how long.

Totals come from the cumulative counters that a board writes from time to time, so a lost
block costs resolution and not totals. Events fill in what is later than the last counter.
Rows are plain dictionaries whose keys are the columns in `lake.TABLES`.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from drupelet_tools.telemetry.blackbox import codes
from telemetry.reference_decode import Damage, Ints, Log, Segment

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def summarise(log: Log) -> Tables:
    """Rows of every table for one device."""
    tables: Tables = {
        "segments": [_segment_row(log.device, segment) for segment in log.segments],
        "state_time": [],
        "traffic": [],
        "messages": messages(log),
        "health": [],
        "quarantine": [quarantine_row(damage) for damage in log.damages],
    }
    for boot, segments in _by_boot(log.segments).items():
        part = log.of_boot(boot)
        counters = highest_counters(part)
        tables["state_time"] += state_time(part, boot)
        tables["traffic"] += traffic(log.device, boot, counters)
        tables["health"].append(health(part, boot, segments, counters))
    return tables


def _by_boot(segments: list[Segment]) -> dict[int, list[Segment]]:
    boots: dict[int, list[Segment]] = {}
    for segment in segments:
        boots.setdefault(segment.header.boot, []).append(segment)
    return boots


def quarantine_row(damage: Damage) -> Row:
    """What could not be used, and why."""
    return {
        "device": damage.device,
        "boot": damage.boot,
        "number": damage.number,
        "block": damage.block,
        "file": damage.file,
        "offset": damage.offset,
        "reason": damage.reason,
    }


def _segment_row(device: str, segment: Segment) -> Row:
    return {
        "device": device,
        "boot": segment.header.boot,
        "number": segment.header.number,
        "first_ms": segment.first_ms,
        "last_ms": segment.last_ms,
        "wall_offset_ms": segment.wall_offset_ms,
        "wall_uncertainty_ms": segment.wall_uncertainty_ms,
        "blocks": segment.blocks,
        "blocks_bad": segment.blocks_bad,
        "copies": segment.copies,
        "events": segment.events,
    }


def counter_values(log: Log) -> Ints:
    """The 48-bit value in each COUNTER record (other records give nonsense)."""
    return log.b << 32 | log.c


def highest_counters(log: Log) -> dict[int, int]:
    """Highest value of each counter index in one boot's log."""
    chosen = log.code == codes.COUNTER
    highest = np.zeros(256, dtype=np.int64)
    np.maximum.at(highest, log.a[chosen], counter_values(log)[chosen])
    return {int(index): int(highest[index]) for index in np.unique(log.a[chosen])}


def state_time(log: Log, boot: int) -> list[Row]:
    """Milliseconds of one boot in each power state, and those that nothing accounts for.

    Each state's time is its highest counter plus what events show after that counter was
    written. Time from the boot to the last event that neither covers is STATE_UNKNOWN.
    """
    if len(log.time_ms) == 0:
        return []
    states, starts, ends = _intervals(log)
    last_ms = int(log.time_ms.max())
    known, since = _state_counters(log)
    rows = []
    total = 0
    for state, name in enumerate(codes.STATES):
        mine = states == state
        after = since.get(state, 0)
        tail = int(np.clip(ends[mine] - np.maximum(starts[mine], after), 0, None).sum())
        counted = known.get(state, 0)
        total += counted + tail
        if counted + tail:
            rows.append(_state_row(log.device, boot, state, name, counted, tail))
    if last_ms > total:
        rows.append(
            _state_row(log.device, boot, codes.STATE_UNKNOWN, "unknown", 0, last_ms - total)
        )
    return rows


def _state_row(device: str, boot: int, state: int, name: str, counted: int, tail: int) -> Row:
    source = "counter" if not tail else "event" if not counted else "counter and event"
    return {
        "device": device,
        "boot": boot,
        "state": state,
        "name": name,
        "ms": counted + tail,
        "source": "none" if state == codes.STATE_UNKNOWN else source,
    }


def _intervals(log: Log) -> tuple[Ints, Ints, Ints]:
    """Power states entered, with start and end; a state ends unknown where blocks are lost.

    Segment and block boundaries play no part: only time and lost blocks end an interval.
    """
    time_ms, stretch = log.time_ms, log.stretch
    entered = np.flatnonzero(log.code == codes.STATE)
    following = np.append(entered[1:], len(time_ms) - 1)
    stretch_last = np.searchsorted(stretch, stretch[entered], side="right") - 1
    stop = np.minimum(following, stretch_last)
    return log.a[entered], time_ms[entered], time_ms[stop]


def _state_counters(log: Log) -> tuple[dict[int, int], dict[int, int]]:
    """Highest counter per state, and the time since boot up to which it is complete."""
    chosen = np.flatnonzero((log.code == codes.COUNTER) & (log.a < len(codes.STATES)))
    if len(chosen) == 0:
        return {}, {}
    values = counter_values(log)
    newest = chosen[-1]
    known: dict[int, int] = {}
    since: dict[int, int] = {}
    for state in range(len(codes.STATES)):
        mine = chosen[log.a[chosen] == state]
        known[state] = int(values[mine].max()) if len(mine) else 0
        # A counter that did not change is not written again: with nothing lost since, it
        # stands as of the newest one.
        first_known = log.stretch[mine[-1]] if len(mine) else log.stretch[0]
        if first_known == log.stretch[newest]:
            since[state] = int(log.time_ms[newest])
        else:
            since[state] = int(log.time_ms[mine[-1]]) if len(mine) else 0
    return known, since


def traffic(device: str, boot: int, counters: dict[int, int]) -> list[Row]:
    """One row per carrier, direction and kind that was counted."""
    rows = []
    for index, value in sorted(counters.items()):
        carrier, rest = divmod(index - codes.TRAFFIC_BASE, 32)
        if index < codes.TRAFFIC_BASE or carrier >= len(codes.CARRIERS) or not value:
            continue
        direction, kind = divmod(rest, 16)
        name, unit = codes.TRAFFIC_KINDS[kind]
        rows.append(
            {
                "device": device,
                "boot": boot,
                "carrier": codes.CARRIERS[carrier],
                "direction": codes.DIRECTIONS[direction],
                "kind": name,
                "unit": unit,
                "value": value,
            }
        )
    return rows


def messages(log: Log) -> list[Row]:
    """First occurrence and count of each lifecycle event of each message at this device."""
    chosen = np.flatnonzero(np.isin(log.code, list(codes.MESSAGE_EVENTS)))
    if len(chosen) == 0:
        return []
    key = (log.c[chosen] << 16 | log.code[chosen] << 8 | log.a[chosen]) + (log.boot[chosen] << 48)
    _, first, inverse, count = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    sends = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(sends, inverse, np.where(np.isin(log.code[chosen], (11, 13)), log.b[chosen], 0))
    firsts = np.zeros(len(first), dtype=np.int64)
    begun = np.isin(log.code[chosen], (11, 13)) & (log.b[chosen] == 1)
    np.add.at(firsts, inverse, begun)
    tags = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(tags, inverse, np.where(np.isin(log.code[chosen], (10, 15)), log.b[chosen], 0))
    told = zip(chosen[first], count, sends, firsts, tags, strict=True)
    rows = []
    for at, repeats, sends_max, first_sends, tag in told:
        segment = log.segments[log.segment[at]]
        offset = segment.wall_offset_ms
        rows.append(
            {
                "device": log.device,
                "message": f"{int(log.c[at]):08x}",
                "event": codes.MESSAGE_EVENTS[int(log.code[at])],
                "boot": int(log.boot[at]),
                "boot_ms": int(log.time_ms[at]),
                "wall_ms": None if offset is None else int(log.time_ms[at]) + offset,
                "wall_uncertainty_ms": segment.wall_uncertainty_ms,
                "peer": int(log.a[at]),
                "count": int(repeats),
                "sends_max": int(sends_max),
                "first_sends": int(first_sends),
                "group_tag": int(tag) or None,
            }
        )
    return rows


def health(log: Log, boot: int, segments: list[Segment], counters: dict[int, int]) -> Row:
    """Memory, battery, reset cause, errors and losses of one boot."""
    row: Row = {"device": log.device, "boot": boot}
    row["last_ms"] = int(log.time_ms.max()) if len(log.time_ms) else None
    row["blocks_lost"] = sum(segment.blocks_bad for segment in segments)
    row["segments_missing"] = _segments_missing(segments)
    row["heap_low"] = _lowest(log.c[log.code == codes.HEAP_LOW])
    millivolts = log.b[log.code == codes.BATTERY]
    row["battery_first_mv"] = int(millivolts[0]) if len(millivolts) else None
    row["battery_last_mv"] = int(millivolts[-1]) if len(millivolts) else None
    row["battery_low_mv"] = _lowest(millivolts)
    causes = log.a[log.code == codes.BOOT]
    row["reset_cause"] = int(causes[0]) if len(causes) else None
    row["errors"] = int((log.code == codes.ERROR).sum())
    for index, name in codes.DESCRIPTOR_FIELDS.items():
        at = np.flatnonzero((log.code == codes.DESCRIPTOR) & (log.a == index))
        values = log.b if name == "board_kind" else log.c
        row[name] = int(values[at[-1]]) if len(at) else None
        if name == "firmware":
            row["firmware_set"] = int(log.b[at[-1]]) if len(at) else None
    if row["firmware"] is not None:
        row["firmware"] = ".".join(str(part) for part in struct.unpack(
            ">BBH", row["firmware"].to_bytes(4, "big")))  # fmt: skip
    row["firmware_set"] = {1: "micro", 2: "small", 3: "full"}.get(row["firmware_set"] or 0)
    for index, name in codes.HEALTH_COUNTERS.items():
        row[name] = counters.get(index, 0)
    return row


def _lowest(values: Ints) -> int | None:
    return int(values.min()) if len(values) else None


def _segments_missing(segments: list[Segment]) -> int:
    """Holes below the highest segment number of one boot; they begin at 0."""
    numbers = [segment.header.number for segment in segments]
    return max(numbers) + 1 - len(numbers)
