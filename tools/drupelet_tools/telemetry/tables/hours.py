"""Whole boots to rows of `hours`: one per hour of a boot in which something was counted.

A counter's increase within an hour counts there. What it rose before an hour's first values is
spread evenly over the time since counters were last written before, and a state's time behind
its last counter over the time since that one. So the hours of a boot add up to its totals,
whatever is missing, and where blocks are lost their increase lies in the time that they were of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import NONE, Ints
from drupelet_tools.telemetry.tables import anchors
from drupelet_tools.telemetry.tables.columns import Units, array_of
from drupelet_tools.telemetry.tables.fold import state_tails
from drupelet_tools.telemetry.tables.hour_bins import (
    HOUR_BITS,
    HOUR_MS,
    TIME_MS_MAX,
    changes,
    hour_of,
    latest,
    lowest,
    reduced,
)
from drupelet_tools.telemetry.tables.partials import COUNTERS, STATES, Boots
from drupelet_tools.telemetry.tables.schemas import STATE_COLUMNS, TABLES

_TIME_BITS = 48
_LAST = np.int64((1 << _TIME_BITS) - 1)
_PARTS = codes.TRAFFIC_BASE  # the counters from here on are traffic
_DIRECTIONS, _KINDS = len(codes.DIRECTIONS), len(codes.TRAFFIC_KINDS)
_CARRIER_BYTES = next(at for at, one in enumerate(codes.TRAFFIC_KINDS) if one[0] == "carrier")


@dataclass(slots=True)
class _Cells:
    """Increases by boot, hour and counter; the same may be there several times."""

    row: Ints
    hour: Ints
    counter: Ints
    amount: Ints

    @property
    def key(self) -> Ints:
        return self.row << HOUR_BITS | self.hour


@dataclass(slots=True)
class _Counted:
    """The hours of boots in which counters were written, in order; `key` has boot and hour."""

    key: Ints
    first_ms: Ints
    last_ms: Ints
    before_ms: Ints  # when counters were last written in an hour before; 0 in a boot's first


def hour_table(boots: Boots, units: Units) -> pa.Table:
    """The rows of `hours` of some whole boots, in order of boot and hour."""
    row = np.searchsorted(boots.units, boots.partials.unit)
    cells = _joined([_increases(boots, row), _behind_counters(boots, row)])
    battery = boots.battery
    battery_row = np.searchsorted(boots.units, battery.unit)
    battery_key = battery_row << HOUR_BITS | hour_of(battery.time_ms)
    bin_key = row[boots.bins.piece] << HOUR_BITS | boots.bins.hour
    starts = np.arange(len(boots.units)) << HOUR_BITS
    keys = np.unique(np.concatenate((cells.key, battery_key, bin_key, starts)))
    owner, hour = keys >> HOUR_BITS, keys & (1 << HOUR_BITS) - 1
    columns = {
        "hour": hour,
        **_wall(boots, owner, hour),
        **_starts(boots, row, owner, hour),
        **_sums(cells, keys),
        "heap_low": lowest(np.searchsorted(keys, bin_key), boots.bins.heap_low, len(keys)),
        **_battery(np.searchsorted(keys, battery_key), battery.what, len(keys)),
    }
    arrays = {
        **units.columns(boots.units[owner]),
        "traffic": traffic_lists(*_traffic(cells, keys)),
    }
    schema = TABLES["hours"]
    return pa.Table.from_arrays(
        [
            arrays[one.name] if one.name in arrays
            else array_of(columns[one.name], pa.int64(), len(keys))
            for one in schema
        ],
        names=schema.names,
    ).cast(schema)  # fmt: skip


# --- increases ---


def _increases(boots: Boots, row: Ints) -> _Cells:
    """What each counter rose, by hour; the sum of a counter is its highest value."""
    samples, bins = boots.samples, boots.bins
    sample_row = row[samples.piece]
    sample_key = sample_row << HOUR_BITS | samples.hour
    counted = _counted(boots, row)
    at = np.searchsorted(counted.key, sample_key)
    # A first value counts as such if its piece was the first to write counters in that hour.
    own = np.searchsorted(
        bins.piece << HOUR_BITS | bins.hour, samples.piece << HOUR_BITS | samples.hour
    )
    is_first = samples.first != NONE
    is_first[is_first] = bins.counted_first_ms[own[is_first]] == counted.first_ms[at[is_first]]
    first = np.flatnonzero(is_first)
    counter = np.concatenate((samples.counter[first], samples.counter))
    place = np.concatenate((at[first], at))
    value = np.concatenate((samples.first[first], samples.value))
    within = np.repeat((False, True), (len(first), len(samples)))
    series = (counted.key[place] >> HOUR_BITS) * COUNTERS + counter
    order = np.lexsort((value, within, place, series))
    series, place, within, counter = series[order], place[order], within[order], counter[order]
    rise = _rises(value[order], series)
    key = counted.key[place]
    inside = _Cells(
        (key >> HOUR_BITS)[within], (key & (1 << HOUR_BITS) - 1)[within],
        counter[within], rise[within],
    )  # fmt: skip
    before = np.flatnonzero(~within & (rise > 0))
    return _joined([inside, _spread(
        (key >> HOUR_BITS)[before], counter[before], counted.before_ms[place[before]],
        counted.first_ms[place[before]], rise[before],
    )])  # fmt: skip


def _counted(boots: Boots, row: Ints) -> _Counted:
    bins = boots.bins
    has = bins.counted_first_ms != NONE
    key = row[bins.piece[has]] << HOUR_BITS | bins.hour[has]
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = changes(key)
    first = reduced(np.minimum, bins.counted_first_ms[has][order], begins)
    last = reduced(np.maximum, bins.counted_last_ms[has][order], begins)
    key = key[begins]
    before = np.zeros(len(key), dtype=np.int64)
    same = key[1:] >> HOUR_BITS == key[:-1] >> HOUR_BITS
    before[1:][same] = last[:-1][same]
    return _Counted(key, first, last, before)


def _rises(value: Ints, series: Ints) -> Ints:
    """What each value adds to the highest one before it in its series."""
    same = np.zeros(len(series), dtype=np.bool_)
    same[1:] = series[1:] == series[:-1]
    step = 1
    # Values of a board only rise, and the loop is not entered. Where damage let one fall, replace
    # each by the highest before it, over 1, 2, 4 … rows, until none falls.
    while (same[1:] & (value[1:] < value[:-1])).any():
        is_own = series[step:] == series[:-step]
        before = np.where(is_own, value[:-step], value[step:])
        value = np.concatenate((value[:step], np.maximum(value[step:], before)))
        step *= 2
    before = np.where(same, np.concatenate((value[:1], value[:-1])), 0)
    rises: Ints = value - before
    return rises


def _behind_counters(boots: Boots, row: Ints) -> _Cells:
    """Time in a power state that events show behind the last counter of the state."""
    tails, since_ms = state_tails(boots)
    at, state = np.nonzero(tails)
    last_ms = np.zeros(len(boots.units), dtype=np.int64)
    np.maximum.at(last_ms, row, boots.partials.last_ms)
    return _spread(at, state, since_ms[at, state], last_ms[at], tails[at, state])


def _spread(row: Ints, counter: Ints, low_ms: Ints, high_ms: Ints, amount: Ints) -> _Cells:
    """Amounts spread evenly over spans of time, by hour; whole numbers that add up to them."""
    high_ms = np.minimum(high_ms, TIME_MS_MAX)
    low_ms = np.minimum(low_ms, high_ms)
    first = low_ms // HOUR_MS
    count = high_ms // HOUR_MS - first + 1
    at = np.repeat(np.arange(len(row)), count)
    turn = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    hour = first[at] + turn
    length = np.maximum(high_ms - low_ms, 1)[at]
    share = np.clip(((hour + 1) * HOUR_MS - low_ms[at]) / length, 0, 1)
    done = np.floor(amount[at] * share).astype(np.int64)
    done = np.where(turn == count[at] - 1, amount[at], done)
    part = done - np.where(turn > 0, np.concatenate((done[:1], done[:-1])), 0)
    some = part > 0
    return _Cells(row[at][some], hour[some], counter[at][some], part[some])


def _joined(cells: list[_Cells]) -> _Cells:
    whole = _Cells(
        *(
            np.concatenate([getattr(one, name) for one in cells])
            for name in ("row", "hour", "counter", "amount")
        )
    )
    some = whole.amount > 0
    return _Cells(whole.row[some], whole.hour[some], whole.counter[some], whole.amount[some])


# --- columns ---


def _sums(cells: _Cells, keys: Ints) -> dict[str, Ints]:
    """Time per power state, counters of the core, and all bytes on the carriers."""
    at = np.searchsorted(keys, cells.key)
    flat = np.zeros(len(keys) * _PARTS, dtype=np.int64)
    core = cells.counter < _PARTS
    np.add.at(flat, at[core] * _PARTS + cells.counter[core], cells.amount[core])
    sums = flat.reshape(-1, _PARTS)
    columns = {name: sums[:, index] for index, name in enumerate(STATE_COLUMNS)}
    columns |= {name: sums[:, index] for index, name in codes.HEALTH_COUNTERS.items()}
    part = cells.counter - _PARTS
    for direction, name in enumerate(("bytes_sent", "bytes_received")):
        own = (part >= 0) & (part % (_DIRECTIONS * _KINDS) == direction * _KINDS + _CARRIER_BYTES)
        columns[name] = np.zeros(len(keys), dtype=np.int64)
        np.add.at(columns[name], at[own], cells.amount[own])
    assert len(STATE_COLUMNS) == STATES
    return columns


def _traffic(cells: _Cells, keys: Ints) -> tuple[Ints, Ints, Ints, int]:
    """Place in `keys`, traffic counter and amount, in order; and the number of keys."""
    own = cells.counter >= _PARTS
    key = np.searchsorted(keys, cells.key[own]) * COUNTERS + cells.counter[own]
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = changes(key)
    amount = reduced(np.add, cells.amount[own][order], begins)
    return key[begins] // COUNTERS, key[begins] % COUNTERS - _PARTS, amount, len(keys)


def traffic_lists(place: Ints, part: Ints, amount: Ints, rows: int) -> pa.Array:
    """The column `traffic` of some rows; `part` is a traffic counter's index behind the base."""
    carrier, rest = np.divmod(part, _DIRECTIONS * _KINDS)
    direction, kind = np.divmod(rest, _KINDS)
    names = {
        "carrier": (carrier, codes.CARRIERS),
        "direction": (direction, codes.DIRECTIONS),
        "kind": (kind, [name for name, _ in codes.TRAFFIC_KINDS]),
        "unit": (kind, [unit for _, unit in codes.TRAFFIC_KINDS]),
    }
    arrays = [pa.array(list(texts)).take(pa.array(index)) for index, texts in names.values()]
    items = pa.StructArray.from_arrays([*arrays, pa.array(amount)], names=[*names, "value"])
    offsets = np.searchsorted(place, np.arange(rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _starts(boots: Boots, row: Ints, owner: Ints, hour: Ints) -> dict[str, Ints]:
    """Whether the boot began in the hour, and whether that was a reset: no wake from sleep."""
    cause = np.full(len(boots.units), NONE)
    known = boots.partials.reset_cause != NONE
    cause[row[known][::-1]] = boots.partials.reset_cause[known][::-1]
    begins = hour == 0
    is_reset = (cause != NONE) & (cause != codes.RESET_DEEP_SLEEP)
    return {
        "boots": begins.astype(np.int64),
        "resets": (begins & is_reset[owner]).astype(np.int64),
    }


def _battery(at: Ints, mv: Ints, count: int) -> dict[str, Ints]:
    """First, last and lowest reading; they come in order of time."""
    return {
        "battery_first_mv": latest(at[::-1], mv[::-1], count),
        "battery_last_mv": latest(at, mv, count),
        "battery_low_mv": lowest(at, mv, count),
    }


def _wall(boots: Boots, owner: Ints, hour: Ints) -> dict[str, Ints]:
    """Start of each hour, by the offset of the last segment that began before its middle."""
    families = boots.families
    offsets = anchors.of_families(families)
    row = np.searchsorted(boots.units, families.unit)
    begin = np.clip(families.first_ms, 0, _LAST)
    key = np.maximum.accumulate(row << _TIME_BITS | begin)
    middle = owner << _TIME_BITS | hour * HOUR_MS + HOUR_MS // 2
    at = np.searchsorted(key, middle, side="right") - 1
    at = np.maximum(at, np.searchsorted(row, owner))
    offset = offsets.offset_ms[at]
    known = offset != NONE
    boot_ms = hour * HOUR_MS
    return {
        "boot_ms": boot_ms,
        "wall_ms": np.where(known, boot_ms + np.where(known, offset, 0), NONE),
        "wall_uncertainty_ms": offsets.uncertainty_ms[at],
    }
