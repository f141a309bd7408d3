"""Checked blocks to what they add up to: one row per piece of a copy of a segment.

An undamaged copy is one piece; of a damaged one each good block is. A piece says what its blocks
contribute to the tables: time per power state, counters, lows, first and last readings. Which
pieces count is decided in `combine`, and `fold` puts those of a boot together, in whatever order
and at whatever times they were made.
All arrays hold many devices; there is no Python step per device, segment or block.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from drupelet.base.limits import BOX_BLOCKS_MAX, EVENTS_PER_BLOCK
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import (
    BLOCK_WORDS,
    CODE_OFFSET,
    EVENT_WORDS,
    EVENTS_END,
    FIRST_EVENT_WORD,
    NONE,
    Chunk,
    Flags,
    Ints,
)
from drupelet_tools.telemetry.tables.hour_bins import Bins, Readings, Samples, bins_of

STATES = len(codes.STATES)
COUNTERS = codes.TRAFFIC_BASE + 32 * len(codes.CARRIERS)
_DESCRIPTORS = max(codes.DESCRIPTORS) + 1
_CREATED = min(codes.MESSAGE_EVENTS)

_MOST = np.iinfo(np.int64).max

# What is done with an event, by code.
_OTHER, _STATE, _MESSAGE, _COUNTER, _RARE = range(5)
_KIND = np.zeros(256, dtype=np.uint8)
_KIND[codes.STATE] = _STATE
_KIND[list(codes.MESSAGE_EVENTS)] = _MESSAGE
_KIND[codes.COUNTER] = _COUNTER
_KIND[[codes.HEAP_LOW, codes.BATTERY, codes.BOOT, codes.ERROR, codes.DESCRIPTOR]] = _RARE


@dataclass(slots=True)
class Partials:
    """Parallel arrays with a row per piece, in order of (unit, number, block_from).

    `copy` indexes the copies that came with them. Times are ms since the boot. `event_first_ms`
    and `event_last_ms` are of events; `first_ms` and `last_ms` also of blocks without any.
    `after_own[:, s]` is the time in state s behind the last counter of s in the piece,
    `after_any[:, s]` behind its last counter of any state. NONE stands for what is not in the
    piece.
    """

    copy: Ints
    unit: Ints
    number: Ints
    block_from: Ints
    block_to: Ints
    events: Ints
    event_first_ms: Ints
    event_last_ms: Ints
    first_ms: Ints
    last_ms: Ints
    state_first_ms: Ints
    state_last: Ints
    state_ms: Ints
    after_own: Ints
    after_any: Ints
    counted_ms: Ints
    counted_any_ms: Ints
    heap_low: Ints
    battery_first_mv: Ints
    battery_last_mv: Ints
    battery_low_mv: Ints
    reset_cause: Ints
    errors: Ints
    descriptors: Ints

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, chosen: Ints | Flags | slice) -> Partials:
        """Some of the rows."""
        return Partials(*(getattr(self, one.name)[chosen] for one in fields(self)))


@dataclass(slots=True)
class Copies:
    """Parallel arrays with a row per copy of a segment, in order of (unit, number, rank).

    `blocks` is how many the copy should have, `good` has a bit per good block, `crcs` a column
    per block. The anchor `wall_ms` is of the first block's time `t0_ms`; NONE where not known.
    """

    unit: Ints
    number: Ints
    blocks: Ints
    good: Ints
    damaged: Flags
    crcs: npt.NDArray[np.uint32]
    wall_ms: Ints
    wall_uncertainty_ms: Ints
    t0_ms: Ints

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, chosen: Ints | Flags | slice) -> Copies:
        """Some of the rows."""
        return Copies(*(getattr(self, one.name)[chosen] for one in fields(self)))


@dataclass(slots=True)
class Families:
    """Parallel arrays with a row per segment, in order of (unit, number).

    `good` has a bit per good block. `offset_ms` is wall clock less ms since boot by the
    segment's own anchor, with its uncertainty; NONE where not known.
    """

    unit: Ints
    number: Ints
    blocks: Ints
    good: Ints
    copies: Ints
    events: Ints
    first_ms: Ints
    last_ms: Ints
    offset_ms: Ints
    uncertainty_ms: Ints

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, chosen: Ints | Flags | slice) -> Families:
        """Some of the rows."""
        return Families(*(getattr(self, one.name)[chosen] for one in fields(self)))


@dataclass(slots=True)
class Happenings:
    """Message events, each once a piece with its count, or battery readings; parallel arrays.

    `piece` indexes the pieces that came with them. For a battery reading `what` is the mV and
    the other columns are 0.
    """

    piece: Ints
    unit: Ints
    what: Ints  # message id << 11 | event << 8 | peer
    time_ms: Ints
    number: Ints
    count: Ints
    first_sends: Ints  # of sends and offers: those whose send count was 1
    b_max: Ints  # of sends and offers the highest send count; of created and delivered the tag

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, chosen: Ints | Flags | slice) -> Happenings:
        """Some of the rows."""
        return Happenings(*(getattr(self, one.name)[chosen] for one in fields(self)))


@dataclass(slots=True)
class Sums:
    """What a chunk adds up to."""

    partials: Partials
    copies: Copies
    messages: Happenings
    battery: Happenings
    samples: Samples
    bins: Bins
    events: int


@dataclass(slots=True)
class Boots:
    """Everything about some whole boots; `units` are their numbers, ascending."""

    units: Ints
    partials: Partials
    families: Families
    messages: Happenings
    battery: Happenings
    samples: Samples
    bins: Bins


@dataclass(slots=True)
class _Events:
    """The chosen events of a chunk: their block, its stretch, and the event's fields."""

    block: Ints
    stretch: Ints
    time_ms: Ints
    a: Ints
    b: Ints
    c: Ints

    def take(self, chosen: Ints | Flags) -> _Events:
        return _Events(
            self.block[chosen],
            self.stretch[chosen],
            self.time_ms[chosen],
            self.a[chosen],
            self.b[chosen],
            self.c[chosen],
        )


class Reader:
    """Reads the events of a chunk by kind."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        entries, owner = chunk.entries, chunk.owner
        self.words = chunk.blocks.view("<u4")
        self.flat = self.words.reshape(-1)
        self.unit = entries.unit[owner]
        self.number = entries.number[owner]
        head = self.words[:, :3].astype(np.int64)
        self.count = head[:, 0] >> 8 & 0xFF
        self.t0_ms = head[:, 1] >> 16 | head[:, 2] << 16
        self.first_ms, self.last_ms = self._ends()
        begins = self._begins()
        self.starts = np.flatnonzero(begins)
        self.stretch = np.cumsum(begins) - 1
        self.kind = self._kinds()
        self.block_of = np.repeat(np.arange(len(self.unit)), EVENTS_PER_BLOCK)

    def _ends(self) -> tuple[Ints, Ints]:
        """Time of each block's first and last event; t0 where there is none."""
        count = len(self.count)
        last = np.maximum(self.count - 1, 0) * EVENT_WORDS + FIRST_EVENT_WORD
        has = self.count > 0
        first_dt = np.where(has, self.words[:, FIRST_EVENT_WORD], 0)
        last_dt = np.where(has, self.words[np.arange(count), last], 0)
        return self.t0_ms + first_dt, self.t0_ms + last_dt

    def _begins(self) -> Flags:
        """Which blocks begin a piece: the first of a copy, and each of a damaged one."""
        owner = self.chunk.owner
        whole = ~damaged_entries(self.chunk)
        follows = np.zeros(len(owner), dtype=np.bool_)
        if len(owner):
            follows[1:] = (owner[1:] == owner[:-1]) & whole[owner[1:]]
        return ~follows

    def _kinds(self) -> npt.NDArray[np.uint8]:
        """What is to be done with each of the 41 places of each block, flat."""
        kinds = _KIND[self.chunk.blocks[:, CODE_OFFSET : EVENTS_END : EVENT_WORDS * 4]]
        short = np.flatnonzero(self.count < EVENTS_PER_BLOCK)
        if len(short):
            places = np.arange(EVENTS_PER_BLOCK)
            kinds[short] *= places < self.count[short, None]
        return kinds.reshape(-1)

    def select(self, kind: int) -> tuple[_Events, npt.NDArray[np.uint8]]:
        """All events of one kind with their codes, in order."""
        at = np.flatnonzero(self.kind == kind)
        block = self.block_of[at]
        word = at * EVENT_WORDS + block * (BLOCK_WORDS - EVENTS_PER_BLOCK * EVENT_WORDS)
        word += FIRST_EVENT_WORD
        time_ms = self.t0_ms[block] + self.flat[word]
        middle = self.flat[word + 1]
        found = _Events(
            block=block,
            stretch=self.stretch[block],
            time_ms=time_ms,
            a=(middle >> 8 & 0xFF).astype(np.int64),
            b=(middle >> 16).astype(np.int64),
            c=self.flat[word + 2].astype(np.int64),
        )
        return found, (middle & 0xFF).astype(np.uint8)


def add_up(chunk: Chunk) -> Sums:
    """What the blocks of a chunk contribute to the tables."""
    reader = Reader(chunk)
    rare, rare_codes = reader.select(_RARE)
    counters = _counter_events(reader)
    values = Readings(
        counters.stretch, counters.time_ms, counters.a, counters.b << 32 | counters.c
    )
    heap = rare.take(rare_codes == codes.HEAP_LOW)
    samples, bins = bins_of(values, Readings(heap.stretch, heap.time_ms, heap.a, heap.c))
    return Sums(
        partials=_partials(reader, counters, rare, rare_codes),
        copies=_copies(reader),
        messages=_messages(reader),
        battery=_battery(reader, rare.take(rare_codes == codes.BATTERY)),
        samples=samples,
        bins=bins,
        events=int(reader.count.sum()),
    )


def _partials(
    reader: Reader, counters: _Events, rare: _Events, rare_codes: npt.NDArray[np.uint8]
) -> Partials:
    starts = reader.starts
    rows = len(starts)
    ends = np.append(starts[1:], len(reader.unit)) - 1 if rows else starts
    position = reader.chunk.position
    last_ms = reader.last_ms[ends]
    events = np.add.reduceat(reader.count, starts) if rows else starts
    # Of blocks without events nothing is the first or the last.
    first = np.where(reader.count > 0, reader.first_ms, _MOST)
    last = np.where(reader.count > 0, reader.last_ms, NONE)
    first = np.minimum.reduceat(first, starts) if rows else starts
    last = np.maximum.reduceat(last, starts) if rows else starts
    counted, counted_any = _counted(counters, rows)
    states = _states(reader, last_ms, counted, counted_any)
    return Partials(
        reader.chunk.owner[starts],
        reader.unit[starts],
        reader.number[starts],
        position[starts],
        position[ends],
        events,
        np.where(first == _MOST, NONE, first),
        last,
        reader.first_ms[starts],
        last_ms,
        *states,
        counted,
        counted_any,
        *_rare(rare, rare_codes, rows),
    )


def _counter_events(reader: Reader) -> _Events:
    """The events of the counters that there are."""
    events, _ = reader.select(_COUNTER)
    if events.a.size and int(events.a.max()) >= COUNTERS:
        return events.take(events.a < COUNTERS)
    return events


def _counted(events: _Events, rows: int) -> tuple[Ints, Ints]:
    """When each state's counter and that of any state was last written."""
    counted = np.full((rows, STATES), NONE)
    counted_any = np.full(rows, NONE)
    of_state = np.flatnonzero(events.a < STATES)
    stretch, time_ms = events.stretch[of_state], events.time_ms[of_state]
    # Of several values for one place the last one stays, and events are in order of time.
    counted[stretch, events.a[of_state]] = time_ms
    counted_any[stretch] = time_ms
    return counted, counted_any


def _states(
    reader: Reader, last_ms: Ints, counted: Ints, counted_any: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """First state's time, last state, and ms per state: all, behind own, behind any counter."""
    events, _ = reader.select(_STATE)
    rows = len(last_ms)
    stretch, start, state = events.stretch, events.time_ms, events.a
    first_ms, last_state = np.full(rows, NONE), np.full(rows, NONE)
    first_ms[stretch[::-1]] = start[::-1]
    last_state[stretch] = state
    end = last_ms[stretch]
    if len(start):
        follows = stretch[1:] == stretch[:-1]
        end[:-1][follows] = start[1:][follows]
    known = state < STATES
    if not known.all():
        stretch, start, end, state = stretch[known], start[known], end[known], state[known]
    place = stretch * STATES + state

    def total(since: Ints) -> Ints:
        weights = np.maximum(end - np.maximum(start, since), 0)
        sums = np.bincount(place, weights=weights, minlength=rows * STATES)
        return sums.astype(np.int64).reshape(rows, STATES)

    own, anyone = counted.reshape(-1)[place], counted_any[stretch]
    return first_ms, last_state, total(start), total(own), total(anyone)


def _rare(
    events: _Events, event_codes: npt.NDArray[np.uint8], rows: int
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
    """Heap low, battery first, last and low, reset cause, errors, descriptors."""

    def nothing() -> Ints:
        return np.full(rows, NONE)

    heap, mv_first, mv_last, mv_low, cause = (nothing() for _ in range(5))
    told = events.take(event_codes == codes.HEAP_LOW)
    high = np.full(rows, np.iinfo(np.int64).max)
    np.minimum.at(high, told.stretch, told.c)
    heap[told.stretch] = high[told.stretch]
    told = events.take(event_codes == codes.BATTERY)
    mv_first[told.stretch[::-1]] = told.b[::-1]
    mv_last[told.stretch] = told.b
    high[:] = np.iinfo(np.int64).max
    np.minimum.at(high, told.stretch, told.b)
    mv_low[told.stretch] = high[told.stretch]
    told = events.take(event_codes == codes.BOOT)
    cause[told.stretch[::-1]] = told.a[::-1]
    told = events.take(event_codes == codes.ERROR)
    errors = np.bincount(told.stretch, minlength=rows).astype(np.int64)
    fields = events.take(event_codes == codes.DESCRIPTOR)
    descriptors = np.full((rows, _DESCRIPTORS), NONE)
    fields = fields.take(np.isin(fields.a, list(codes.DESCRIPTOR_FIELDS)))
    descriptors[fields.stretch, fields.a] = np.where(
        fields.a == codes.FIELD_IN_B, fields.b, fields.c
    )
    fields = fields.take(fields.a == codes.FIELD_FIRMWARE)
    descriptors[fields.stretch, _DESCRIPTORS - 1] = fields.b
    return heap, mv_first, mv_last, mv_low, cause, errors, descriptors


def damaged_entries(chunk: Chunk) -> Flags:
    """Which entries of a chunk have a place that could not be used."""
    damaged = np.zeros(len(chunk.entries), dtype=np.bool_)
    damaged[[damage.entry for damage in chunk.damages]] = True
    return damaged


def _copies(reader: Reader) -> Copies:
    """The copies of a chunk, also those without a single good block."""
    chunk, entries = reader.chunk, reader.chunk.entries
    rows = len(entries)
    good = np.zeros(rows, dtype=np.int64)
    np.bitwise_or.at(good, chunk.owner, np.int64(1) << chunk.position)
    crcs = np.zeros((rows, BOX_BLOCKS_MAX), dtype=np.uint32)
    crcs[chunk.owner, chunk.position] = chunk.crcs
    t0 = np.full(rows, NONE)
    first = chunk.position == 0
    t0[chunk.owner[first]] = reader.t0_ms[first]
    return Copies(
        unit=entries.unit,
        number=entries.number,
        blocks=chunk.blocks_of,
        good=good,
        damaged=damaged_entries(chunk),
        crcs=crcs,
        wall_ms=entries.wall_ms,
        wall_uncertainty_ms=entries.wall_uncertainty_ms,
        t0_ms=t0,
    )


def _messages(reader: Reader) -> Happenings:
    events, event_codes = reader.select(_MESSAGE)
    kind = event_codes.astype(np.int64) - _CREATED
    sent, offered = event_codes == _SENT, event_codes == _OFFERED
    return first_and_count(
        Happenings(
            piece=events.stretch,
            unit=reader.unit[events.block],
            what=events.c << 11 | kind << 8 | events.a,
            time_ms=events.time_ms,
            number=reader.number[events.block],
            count=np.ones(len(kind), dtype=np.int64),
            first_sends=((sent | offered) & (events.b == 1)).astype(np.int64),
            b_max=np.where(sent | offered | np.isin(event_codes, _GROUPED), events.b, 0),
        ),
        events.stretch,
    )


_CODES = {name: code for code, name in codes.MESSAGE_EVENTS.items()}
_SENT, _OFFERED = _CODES["sent"], _CODES["offered"]
_GROUPED = [_CODES[name] for name in codes.GROUP_EVENTS]


def first_and_count(rows: Happenings, within: Ints) -> Happenings:
    """Each `what` once in each of `within`: the first, the sums of counts, the highest b.

    The rows are in order of time in each of `within`, which are whole numbers in order.
    """
    if len(rows) == 0:
        return rows
    low = int(within.min())
    assert int(within.max()) - low < 1 << 20
    key = (within - low) << 43 | rows.what
    order = np.argsort(key)
    key = key[order]
    begins = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    # The sort is not stable, which is faster: the first is found by its place.
    head = np.minimum.reduceat(order, begins)
    return Happenings(
        piece=rows.piece[head],
        unit=rows.unit[head],
        what=rows.what[head],
        time_ms=np.minimum.reduceat(rows.time_ms[order], begins),
        number=rows.number[head],
        count=np.add.reduceat(rows.count[order], begins),
        first_sends=np.add.reduceat(rows.first_sends[order], begins),
        b_max=np.maximum.reduceat(rows.b_max[order], begins),
    )


def _battery(reader: Reader, events: _Events) -> Happenings:
    zeros = np.zeros(len(events.b), dtype=np.int64)
    return Happenings(
        events.stretch,
        reader.unit[events.block],
        events.b,
        events.time_ms,
        reader.number[events.block],
        zeros,
        zeros,
        zeros,
    )
