"""Partials of whole boots to rows of the tables.

However a boot's log was cut into partials, the rows are the same: a power state is carried from
a partial to the one that follows on it, and to none where blocks are missing. Totals come from
the cumulative counters that a board writes from time to time, so a lost block costs resolution
and not totals; events fill in what is later than the last counter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import NONE, Flags, Ints
from drupelet_tools.telemetry.tables import anchors
from drupelet_tools.telemetry.tables.partials import (
    COUNTERS,
    STATES,
    Boots,
    Families,
    Happenings,
    Partials,
)

TABLES = ("segments", "state_time", "traffic", "messages", "battery", "health")
SUMMED = frozenset(("state_time", "traffic", "health"))
Columns = dict[str, Any]  # numpy arrays; NONE in whole numbers is a null
SOURCES = np.array(["counter", "event", "counter and event", "none"])
_GROUPED = [
    code - min(codes.MESSAGE_EVENTS)
    for code, name in codes.MESSAGE_EVENTS.items()
    if name in codes.GROUP_EVENTS
]
_STATE_NAMES = np.array([*codes.STATES, "unknown"])


def fold(boots: Boots, tables: Collection[str] = TABLES) -> dict[str, Columns]:
    """Columns of the per-boot tables that are asked for; `unit` stands for device and boot.

    What a table does not need may be missing in the boots: only `state_time`, `traffic` and
    `health` need the sums in their partials.
    """
    offsets = anchors.of_families(boots.families)
    counters = _highest(boots) if SUMMED.intersection(tables) else np.zeros((0, 0), np.int64)
    made: dict[str, Callable[[], Columns]] = {
        "segments": lambda: _segments(boots.families, offsets),
        "state_time": lambda: _state_time(boots, counters),
        "traffic": lambda: _traffic(boots.units, counters),
        "messages": lambda: _messages(boots, offsets),
        "battery": lambda: _battery(boots, offsets),
        "health": lambda: _health(boots, counters),
    }
    return {table: made[table]() for table in tables}


def _rows(units: Ints, unit: Ints) -> Ints:
    """Index of each `unit` in `units`."""
    return np.searchsorted(units, unit)


def _highest(boots: Boots) -> Ints:
    """Highest value of each counter per boot."""
    samples = boots.samples
    row = _rows(boots.units, boots.partials.unit[samples.piece])
    highest = np.zeros(len(boots.units) * COUNTERS, dtype=np.int64)
    np.maximum.at(highest, row * COUNTERS + samples.counter, samples.value)
    return highest.reshape(-1, COUNTERS)


def _begins(unit: Ints) -> Ints:
    """Index of the first row of each unit."""
    return np.flatnonzero(
        np.concatenate((np.ones(min(1, len(unit)), bool), unit[1:] != unit[:-1]))
    )


def _segments(families: Families, offsets: anchors.Offsets) -> Columns:
    good = np.bitwise_count(families.good).astype(np.int64)
    return {
        "unit": families.unit,
        "number": families.number,
        "first_ms": families.first_ms,
        "last_ms": families.last_ms,
        "wall_offset_ms": offsets.offset_ms,
        "wall_uncertainty_ms": offsets.uncertainty_ms,
        "wall_source": offsets.source,
        "clock_jump": offsets.jump,
        "blocks": families.blocks,
        "blocks_bad": families.blocks - good,
        "copies": families.copies,
        "events": families.events,
    }


# --- time per power state ---


def _state_time(boots: Boots, counters: Ints) -> Columns:
    """Milliseconds of each boot in each power state, and those that nothing accounts for.

    Each state's time is its highest counter plus what events show after that counter was
    written. Time from the boot to the last event that neither covers is STATE_UNKNOWN.
    """
    partials = boots.partials
    row = _rows(boots.units, partials.unit)
    tail, _ = state_tails(boots)
    counted = counters[:, :STATES]
    last_ms = np.zeros(len(boots.units), dtype=np.int64)
    np.maximum.at(last_ms, row, partials.last_ms)
    total = counted + tail
    unknown = last_ms - total.sum(axis=1)
    ms = np.column_stack((total, np.maximum(unknown, 0)))
    source = np.where(tail == 0, 0, np.where(counted == 0, 1, 2))
    source = np.column_stack((source, np.full(len(source), 3)))
    at, state = np.nonzero(ms)
    return {
        "unit": boots.units[at],
        "state": np.where(state == STATES, codes.STATE_UNKNOWN, state),
        "name": _STATE_NAMES[state],
        "ms": ms[at, state],
        "source": SOURCES[source[at, state]],
    }


def state_tails(boots: Boots) -> tuple[Ints, Ints]:
    """Per boot and state: the time that events show behind the last counter, and when that was."""
    partials = boots.partials
    row = _rows(boots.units, partials.unit)
    rows = len(partials)
    tails = np.zeros((len(boots.units), STATES), dtype=np.int64)
    if rows == 0:
        return tails, tails
    follows = _follows(boots)
    since_row, since_ms, by_any = _since(partials, row, follows)
    place = np.arange(rows)[:, None]
    wanted = since_row[row]
    share = np.where(
        place > wanted,
        partials.state_ms,
        np.where(by_any[row], partials.after_any, partials.after_own),
    )
    share[place < wanted] = 0
    share += _carried(partials, follows, since_ms[row])
    begins = _begins(partials.unit)
    tails[row[begins]] = np.add.reduceat(share, begins)
    return tails, since_ms


def _follows(boots: Boots) -> Flags:
    """Which partials go on where the one before ended."""
    partials, families = boots.partials, boots.families
    follows = np.zeros(len(partials), dtype=np.bool_)
    place = np.searchsorted(
        families.unit << 32 | families.number, partials.unit << 32 | partials.number
    )
    blocks = families.blocks[place]
    number, block = partials.number[1:], partials.block_from[1:]
    end, last = partials.number[:-1], partials.block_to[:-1]
    within = (number == end) & (block == last + 1)
    across = (number == end + 1) & (block == 0) & (last == blocks[:-1] - 1)
    follows[1:] = (partials.unit[1:] == partials.unit[:-1]) & (within | across)
    return follows


def _since(partials: Partials, row: Ints, follows: Flags) -> tuple[Ints, Ints, Flags]:
    """Per boot and state: the partial with the counter that stands, its time, and whose it is.

    A counter that did not change is not written again: with nothing lost since, it stands as
    of the newest counter of any state. -1 and 0 where no counter tells anything.
    """
    boots, rows = int(row[-1]) + 1, len(partials)
    boots = max(boots, 1)
    stretch = np.cumsum(~follows)
    index = np.arange(rows)
    newest = np.full(boots, -1)
    has = partials.counted_any_ms != NONE
    newest[row[has]] = index[has]
    own = np.full((boots, STATES), -1)
    at, state = np.nonzero(partials.counted_ms != NONE)
    own[row[at], state] = at
    begin = np.searchsorted(row, np.arange(boots))
    # A state without any counter is at 0 since the boot's first stretch.
    known = np.where(own >= 0, own, np.minimum(begin, rows - 1)[:, None])
    told = newest[:, None] >= 0
    by_any = told & (stretch[known] == stretch[newest][:, None])
    since_row = np.where(by_any, newest[:, None], own)
    own_ms = np.where(own >= 0, partials.counted_ms[own, np.arange(STATES)], 0)
    since_ms = np.where(by_any, partials.counted_any_ms[newest][:, None], own_ms)
    return since_row, since_ms, by_any


def _carried(partials: Partials, follows: Flags, since_ms: Ints) -> Ints:
    """Time per partial and state that the state entered before it went on in it."""
    rows = len(partials)
    index = np.arange(rows)
    entered = np.where(partials.state_last != NONE, index, -1)
    before = np.concatenate(([-1], np.maximum.accumulate(entered)[:-1]))
    stretch_begin = np.maximum.accumulate(np.where(follows, 0, index))
    carries = follows & (before >= stretch_begin)
    carries &= (partials.state_last[before] >= 0) & (partials.state_last[before] < STATES)
    at = np.flatnonzero(carries)
    state = partials.state_last[before[at]]
    first = partials.state_first_ms[at]
    end = np.where(first != NONE, first, partials.last_ms[at])
    start = np.maximum(partials.last_ms[at - 1], since_ms[at, state])
    share = np.zeros((rows, STATES), dtype=np.int64)
    share[at, state] = np.maximum(end - start, 0)
    return share


# --- the other tables ---


def _traffic(units: Ints, counters: Ints) -> Columns:
    """One row per carrier, direction and kind that was counted."""
    at, index = np.nonzero(counters[:, codes.TRAFFIC_BASE :])
    carrier, rest = np.divmod(index, 32)
    direction, kind = np.divmod(rest, 16)
    names = np.array([name for name, _ in codes.TRAFFIC_KINDS])
    measures = np.array([unit for _, unit in codes.TRAFFIC_KINDS])
    return {
        "unit": units[at],
        "carrier": np.array(codes.CARRIERS)[carrier],
        "direction": np.array(codes.DIRECTIONS)[direction],
        "kind": names[kind],
        "measure": measures[kind],
        "value": counters[at, index + codes.TRAFFIC_BASE],
    }


def _wall(
    boots: Boots, rows: Happenings, offsets: anchors.Offsets
) -> dict[str, npt.NDArray[np.int64]]:
    """Boot time, and wall time by the offset of the segment that an event is in."""
    families = boots.families
    key = families.unit << 32 | families.number
    at = np.searchsorted(key, rows.unit << 32 | rows.number)
    offset = offsets.offset_ms[at]
    known = offset != NONE
    return {
        "boot_ms": rows.time_ms,
        "wall_ms": np.where(known, rows.time_ms + np.where(known, offset, 0), NONE),
        "wall_uncertainty_ms": offsets.uncertainty_ms[at],
        "number": rows.number,
    }


def _messages(boots: Boots, offsets: anchors.Offsets) -> Columns:
    rows = boots.messages
    event = rows.what >> 8 & 7
    grouped = np.isin(event, _GROUPED)
    return {
        "unit": rows.unit,
        "message": (rows.what >> 11).astype(np.uint32),
        "event": event,
        "peer": rows.what & 0xFF,
        **_wall(boots, rows, offsets),
        "count": rows.count,
        "sends_max": np.where(grouped, 0, rows.b_max),
        "first_sends": rows.first_sends,
        "group_tag": np.where(grouped & (rows.b_max > 0), rows.b_max, NONE),
    }


def _battery(boots: Boots, offsets: anchors.Offsets) -> Columns:
    rows = boots.battery
    return {"unit": rows.unit, "mv": rows.what, **_wall(boots, rows, offsets)}


def _health(boots: Boots, counters: Ints) -> Columns:
    """Memory, battery, reset cause, errors and losses of each boot."""
    partials, families = boots.partials, boots.families
    row = _rows(boots.units, partials.unit)
    count = len(boots.units)
    last_ms = np.full(count, NONE)
    np.maximum.at(last_ms, row, partials.last_ms)
    errors = np.zeros(count, dtype=np.int64)
    np.add.at(errors, row, partials.errors)
    columns: Columns = {"unit": boots.units, "last_ms": last_ms, "errors": errors}
    columns["reset_cause"] = _first(row, partials.reset_cause, count)
    columns["heap_low"] = _low(row, partials.heap_low, count)
    columns["battery_first_mv"] = _first(row, partials.battery_first_mv, count)
    columns["battery_last_mv"] = _last(row, partials.battery_last_mv, count)
    columns["battery_low_mv"] = _low(row, partials.battery_low_mv, count)
    for index, name in codes.DESCRIPTORS.items():
        columns[name] = _last(row, partials.descriptors[:, index], count)
    columns["firmware"] = _texts(columns["firmware"], codes.version_text)
    columns["firmware_set"] = _texts(columns["firmware_set"], codes.set_name)
    for index, name in codes.HEALTH_COUNTERS.items():
        columns[name] = counters[:, index]
    segment = _rows(boots.units, families.unit)
    lost = np.zeros(count, dtype=np.int64)
    np.add.at(lost, segment, families.blocks - np.bitwise_count(families.good))
    begin = np.searchsorted(segment, np.arange(count))
    end = np.searchsorted(segment, np.arange(count), side="right")
    spanned = families.number[end - 1] + 1  # a boot's numbers begin at 0
    columns["blocks_lost"] = lost
    columns["segments_missing"] = spanned - (end - begin)
    return columns


def _texts(numbers: Ints, text: Callable[[int], str]) -> npt.NDArray[np.str_]:
    """Numbers as texts, an empty one for NONE."""
    distinct, index = np.unique(numbers, return_inverse=True)
    texts = ["" if number == NONE else text(number) for number in distinct.tolist()]
    return np.array(texts, dtype=np.str_)[index]


def _last(row: Ints, values: Ints, count: int) -> Ints:
    found = np.full(count, NONE)
    has = values != NONE
    found[row[has]] = values[has]
    return found


def _first(row: Ints, values: Ints, count: int) -> Ints:
    return _last(row[::-1], values[::-1], count)


def _low(row: Ints, values: Ints, count: int) -> Ints:
    found = np.full(count, np.iinfo(np.int64).max)
    has = values != NONE
    np.minimum.at(found, row[has], values[has])
    return np.where(found == np.iinfo(np.int64).max, NONE, found)
