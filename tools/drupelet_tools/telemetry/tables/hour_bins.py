"""Counters and memory of a piece by hour of its boot: what the tables of hours are made of.

Hours count from the boot, because the wall clock of a boot is known only when all its segments
are. A piece keeps the values of each counter in an hour, not its increase: what lies before the
first value may be in another piece.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from drupelet_tools.telemetry.blackbox.decode import NONE, Flags, Ints

HOUR_MS = 3_600_000
# Ten years. What a boot says of a later time stands in its last hour: no device runs for so long,
# and a log that claims it would otherwise fill a lake with rows.
HOURS_MAX = 87_660
TIME_MS_MAX = HOURS_MAX * HOUR_MS - 1
HOUR_BITS = HOURS_MAX.bit_length()
_COUNTER_BITS = 8


@dataclass(slots=True)
class Samples:
    """Parallel arrays with a row per piece, hour and counter, in this order.

    `piece` indexes the pieces that came with them. `value` is the highest one. `first` is the
    one at the time at which any counter was first written in this hour, NONE if this one was not.
    """

    piece: Ints
    hour: Ints
    counter: Ints
    first: Ints
    value: Ints

    def __len__(self) -> int:
        return len(self.piece)

    def of_pieces(self, chosen: Ints) -> Samples:
        """Those of some pieces, which are numbered anew in the order of `chosen`."""
        return Samples(*_of_pieces(self, chosen))


@dataclass(slots=True)
class Bins:
    """Parallel arrays with a row per piece and hour; NONE where nothing was said.

    `counted_first_ms` and `counted_last_ms` are when counters were first and last written.
    """

    piece: Ints
    hour: Ints
    counted_first_ms: Ints
    counted_last_ms: Ints
    heap_low: Ints

    def __len__(self) -> int:
        return len(self.piece)

    def of_pieces(self, chosen: Ints) -> Bins:
        """Those of some pieces, which are numbered anew in the order of `chosen`."""
        return Bins(*_of_pieces(self, chosen))


@dataclass(slots=True)
class Readings:
    """Some events of pieces; `which` is the counter's number, 0 for what has none."""

    piece: Ints
    time_ms: Ints
    which: Ints
    value: Ints


def _of_pieces(rows: Samples | Bins, chosen: Ints) -> list[Ints]:
    """The columns of `rows` whose piece is in `chosen`; the first is its place there."""
    piece = rows.piece
    place = np.full(max(int(piece.max(initial=-1)), int(chosen.max(initial=-1))) + 1, -1)
    place[chosen] = np.arange(len(chosen))
    kept: Flags = place[piece] >= 0
    return [place[piece][kept], *(getattr(rows, column.name)[kept] for column in fields(rows)[1:])]


def hour_of(time_ms: Ints) -> Ints:
    """The hour of a boot in which a time lies."""
    return np.minimum(time_ms, TIME_MS_MAX) // HOUR_MS


def bins_of(counted: Readings, heap: Readings) -> tuple[Samples, Bins]:
    """What counters and the free heap said, by piece and hour."""
    bin_key = counted.piece << HOUR_BITS | hour_of(counted.time_ms)
    key = bin_key << _COUNTER_BITS | counted.which
    order = np.argsort(key)
    key, time_ms, value = key[order], counted.time_ms[order], counted.value[order]
    begins = changes(key)
    bin_begins = changes(key >> _COUNTER_BITS)
    first_ms = reduced(np.minimum, time_ms, bin_begins)
    last_ms = reduced(np.maximum, time_ms, bin_begins)
    size = np.diff(np.append(bin_begins, len(key)))
    is_first = time_ms == np.repeat(first_ms, size)
    samples = Samples(
        key[begins] >> _COUNTER_BITS + HOUR_BITS,
        key[begins] >> _COUNTER_BITS & (1 << HOUR_BITS) - 1,
        key[begins] & (1 << _COUNTER_BITS) - 1,
        reduced(np.maximum, np.where(is_first, value, NONE), begins),
        reduced(np.maximum, value, begins),
    )
    return samples, _bins(key[bin_begins] >> _COUNTER_BITS, first_ms, last_ms, heap)


def _bins(counted: Ints, first_ms: Ints, last_ms: Ints, heap: Readings) -> Bins:
    heap_key = heap.piece << HOUR_BITS | hour_of(heap.time_ms)
    keys = np.unique(np.concatenate((counted, heap_key)))
    low = lowest(np.searchsorted(keys, heap_key), heap.value, len(keys))
    first, last = np.full(len(keys), NONE), np.full(len(keys), NONE)
    place = np.searchsorted(keys, counted)
    first[place], last[place] = first_ms, last_ms
    return Bins(keys >> HOUR_BITS, keys & (1 << HOUR_BITS) - 1, first, last, low)


def lowest(place: Ints, values: Ints, count: int) -> Ints:
    """The lowest value at each of `count` places, of those that are known."""
    most = np.iinfo(np.int64).max
    low = np.full(count, most)
    known = values != NONE
    np.minimum.at(low, place[known], values[known])
    return np.where(low == most, NONE, low)


def latest(place: Ints, values: Ints, count: int) -> Ints:
    """The last value at each of `count` places, of those that are known."""
    last = np.full(count, NONE)
    known = values != NONE
    last[place[known]] = values[known]
    return last


def changes(key: Ints) -> Ints:
    """Index of the first row of each run of equal keys."""
    head = np.ones(min(1, len(key)), dtype=np.bool_)
    return np.flatnonzero(np.concatenate((head, key[1:] != key[:-1])))


def reduced(reduce: np.ufunc, values: Ints, begins: Ints) -> Ints:
    """A reduction of each run of values."""
    results: Ints = reduce.reduceat(values, begins) if len(begins) else values[:0]
    return results
