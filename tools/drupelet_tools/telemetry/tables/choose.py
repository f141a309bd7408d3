"""Which pieces of which copies count: the same for a set of copies, in whatever order they came.

Copies of a segment are taken in order of their rank. One that has other bytes in a block than
those before it is of another history and is left out whole. Of the rest the longest undamaged
copy counts, and of the damaged ones the blocks that nothing before them has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drupelet_tools.telemetry.blackbox.decode import NONE, Flags, Ints
from drupelet_tools.telemetry.tables.partials import Copies, Families

# A segment has 544 bytes at least, so a greater leap says that a boot lost 36 MB of black boxes
# and went on: no board's flash holds that. Its number is damaged or a lie.
NUMBER_GAP_MAX = 1 << 16
REASON_FAR = f"its number is more than {NUMBER_GAP_MAX:,} beyond the last one of its boot"
_MOST = np.iinfo(np.int64).max


@dataclass(slots=True)
class Spans:
    """Where pieces are and which time they span, in order of copy; parallel arrays."""

    copy: Ints
    block_from: Ints
    events: Ints
    event_first_ms: Ints
    event_last_ms: Ints


@dataclass(slots=True)
class Choice:
    """The segments, and what counts for them.

    `pieces` indexes the pieces that count, in order of (unit, number, block). `contradicting`
    and `far` index the copies that do not count, for their bytes and for their numbers.
    """

    families: Families
    pieces: Ints
    contradicting: Ints
    far: Ints


def choose(copies: Copies, spans: Spans) -> Choice:
    """Choose among copies, which are in order of (unit, number, rank)."""
    near = ~beyond_a_leap(copies.unit, copies.number)
    accepted = near.copy()
    counts = near[spans.copy]
    contradicting: list[int] = []
    for low, high in _shared(copies, near):
        _settle(copies, spans, range(low, high), accepted, counts, contradicting)
    chosen = np.flatnonzero(counts)
    place = spans.copy[chosen]
    order = np.lexsort((spans.block_from[chosen], copies.number[place], copies.unit[place]))
    chosen = chosen[order]
    return Choice(
        _families(copies, spans, np.flatnonzero(accepted), chosen),
        chosen,
        np.array(contradicting, dtype=np.int64),
        np.flatnonzero(~near),
    )


def beyond_a_leap(unit: Ints, number: Ints) -> Flags:
    """Which numbers, in order, are too far beyond that before in their unit, with all behind."""
    same_unit = np.concatenate((np.zeros(min(1, len(unit)), np.bool_), unit[1:] == unit[:-1]))
    before = np.where(same_unit, np.concatenate((number[:1], number[:-1])), -1)
    leap = number - before > NUMBER_GAP_MAX
    leaps = np.cumsum(leap)
    first = np.maximum.accumulate(np.where(same_unit, 0, np.arange(len(unit))))
    beyond: Flags = leaps - leaps[first] + leap[first] > 0 if len(unit) else leap
    return beyond


def _shared(copies: Copies, near: Flags) -> list[tuple[int, int]]:
    """Ranges of the copies of each segment of which there are several."""
    same = (copies.unit[1:] == copies.unit[:-1]) & (copies.number[1:] == copies.number[:-1])
    same = np.concatenate((np.zeros(min(1, len(near)), np.bool_), same & near[1:]))
    first = np.flatnonzero(same & ~np.concatenate((same[:1], same[:-1]))) - 1
    after = np.flatnonzero(same & ~np.concatenate((same[1:], np.zeros(1, np.bool_)))) + 1
    return list(zip(first.tolist(), after.tolist(), strict=True))


def _settle(
    copies: Copies,
    spans: Spans,
    rows: range,
    accepted: Flags,
    counts: Flags,
    contradicting: list[int],
) -> None:
    """Mark what counts of the copies of one segment."""
    seen, crcs = 0, np.zeros(copies.crcs.shape[1], dtype=np.uint32)
    bits = 1 << np.arange(copies.crcs.shape[1])
    for row in rows:
        good = int(copies.good[row])
        both = (seen & good & bits) > 0
        if np.any(crcs[both] != copies.crcs[row][both]):
            accepted[row] = False
            contradicting.append(row)
            continue
        crcs = np.where(good & bits, copies.crcs[row], crcs)
        seen |= good
    agreeing = [row for row in rows if accepted[row]]
    whole = [row for row in agreeing if not copies.damaged[row]]
    whole.sort(key=lambda row: -int(copies.blocks[row]))
    covered = int(copies.good[whole[0]]) if whole else 0
    begin = np.searchsorted(spans.copy, np.arange(rows.start, rows.stop + 1))
    counts[begin[0] : begin[-1]] = False
    for row in [*whole[:1], *(row for row in agreeing if copies.damaged[row])]:
        for piece in range(int(begin[row - rows.start]), int(begin[row - rows.start + 1])):
            bit = 1 << int(spans.block_from[piece])
            if not copies.damaged[row] or not covered & bit:
                counts[piece] = True
                covered |= bit


def _families(copies: Copies, spans: Spans, accepted: Ints, chosen: Ints) -> Families:
    copies_in = copies.take(accepted)
    rows = len(copies_in)
    same = (copies_in.unit[1:] == copies_in.unit[:-1]) & (
        copies_in.number[1:] == copies_in.number[:-1]
    )
    is_first = np.concatenate((np.ones(min(1, rows), np.bool_), ~same))
    heads = np.flatnonzero(is_first)
    family = np.cumsum(is_first) - 1
    count = len(heads)
    family_of_copy = np.full(len(copies), -1)
    family_of_copy[accepted] = family
    at = family_of_copy[spans.copy[chosen]]
    events = np.zeros(count, dtype=np.int64)
    np.add.at(events, at, spans.events[chosen])
    first, last = np.full(count, _MOST), np.full(count, NONE)
    first_ms = np.where(spans.event_first_ms == NONE, _MOST, spans.event_first_ms)
    np.minimum.at(first, at, first_ms[chosen])
    np.maximum.at(last, at, spans.event_last_ms[chosen])
    offset, uncertainty = _anchors(copies_in, family, heads)
    return Families(
        unit=copies_in.unit[heads],
        number=copies_in.number[heads],
        blocks=np.maximum.reduceat(copies_in.blocks, heads) if count else heads,
        good=np.bitwise_or.reduceat(copies_in.good, heads) if count else heads,
        copies=np.diff(np.append(heads, rows)),
        events=events,
        first_ms=np.where(first == _MOST, NONE, first),
        last_ms=last,
        offset_ms=offset,
        uncertainty_ms=uncertainty,
    )


def _anchors(copies: Copies, family: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Wall offset and uncertainty of each segment by the best header among its copies.

    The anchor belongs to the first block's t0: where no copy has that block, it is useless.
    """
    count = len(heads)
    t0 = np.maximum.reduceat(copies.t0_ms, heads) if count else heads
    spread = copies.wall_uncertainty_ms
    rank = np.where(spread == NONE, _MOST, spread)
    # The best comes last and so stays.
    order = np.lexsort((np.arange(len(copies))[::-1], -rank, family))
    order = order[copies.wall_ms[order] != NONE]
    wall, uncertainty = np.full(count, NONE), np.full(count, NONE)
    wall[family[order]] = copies.wall_ms[order]
    uncertainty[family[order]] = spread[order]
    usable = (wall != NONE) & (t0 != NONE)
    return (
        np.where(usable, np.where(usable, wall, 0) - np.where(usable, t0, 0), NONE),
        np.where(usable, uncertainty, NONE),
    )
