"""Wall clock of each segment from the anchors of its boot; a clock that jumped is set aside.

Ms since the boot never jump, so within one boot wall clock less boot time is one number, but
for the drift of the crystal. An anchor far from what most of its boot's anchors say comes from
a clock that was wrong then: its segment takes the offset of the nearest one that was right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drupelet_tools.telemetry.blackbox.decode import NONE, Flags, Ints
from drupelet_tools.telemetry.tables.partials import Families

# What a clock may be off beside what it says: reading it takes time, and a clock without a
# stated uncertainty is taken as good to a second.
SLACK_MS = 1_000
# Crystals of cheap boards stay within 100 parts in a million; internal oscillators do not.
DRIFT_PPM = 500
SOURCES = np.array(["", "anchor", "boot"])


@dataclass(slots=True)
class Offsets:
    """Parallel to the segments: offset and uncertainty (NONE: not known), source, jump."""

    offset_ms: Ints
    uncertainty_ms: Ints
    source: npt.NDArray[np.str_]
    jump: Flags


def of_families(families: Families) -> Offsets:
    """The wall offset of every segment of some whole boots, in order of (unit, number)."""
    rows = len(families)
    own = families.offset_ms != NONE
    jump = np.zeros(rows, dtype=np.bool_)
    for low, high in _suspects(families, own):
        part = slice(low, high)
        jump[part] = own[part] & ~_agreeing(
            families.offset_ms[part], families.uncertainty_ms[part], families.first_ms[part]
        )
    own &= ~jump
    nearest = _nearest(families.unit, families.number, own)
    known = nearest >= 0
    source = np.where(own, 1, np.where(known, 2, 0))
    return Offsets(
        np.where(known, families.offset_ms[nearest], NONE),
        np.where(known, families.uncertainty_ms[nearest], NONE),
        SOURCES[source],
        jump,
    )


def _widths(uncertainty_ms: Ints, time_ms: Ints) -> Ints:
    """Half width of the interval that each anchor vouches for."""
    spread = np.where(uncertainty_ms == NONE, 0, uncertainty_ms) + SLACK_MS
    times = np.where(time_ms == NONE, 0, time_ms)
    span = int(times.max() - times.min()) if len(times) else 0
    return spread + span * DRIFT_PPM // 1_000_000


def _suspects(families: Families, own: Flags) -> list[tuple[int, int]]:
    """Ranges of the boots whose anchors may not agree."""
    if not own.any():
        return []
    begins = np.flatnonzero(np.concatenate(([True], families.unit[1:] != families.unit[:-1])))
    ends = np.append(begins[1:], len(families))
    big = np.iinfo(np.int64).max
    low = np.minimum.reduceat(np.where(own, families.offset_ms, big), begins)
    high = np.maximum.reduceat(np.where(own, families.offset_ms, NONE), begins)
    has = high != NONE
    spread = np.where(has, high, 0) - np.where(has, low, 0)
    chosen = np.flatnonzero(spread > 2 * SLACK_MS)
    return [(int(begins[at]), int(ends[at])) for at in chosen]


def _agreeing(offset_ms: Ints, uncertainty_ms: Ints, time_ms: Ints) -> Flags:
    """Which anchors vouch for the offset that most anchors vouch for; the latest if equal."""
    known = np.flatnonzero(offset_ms != NONE)
    offset = offset_ms[known]
    width = _widths(uncertainty_ms[known], time_ms[known])
    edges = np.concatenate((offset - width, offset + width))
    step = np.concatenate((np.ones(len(known), np.int64), -np.ones(len(known), np.int64)))
    order = np.lexsort((-step, edges))
    depth = np.cumsum(step[order])
    tops = edges[order][np.flatnonzero(depth == depth.max())]
    best: Flags = np.zeros(len(known), dtype=np.bool_)
    newest = -1
    for top in np.unique(tops):
        vouching = np.abs(offset - top) <= width
        if int(np.flatnonzero(vouching)[-1]) > newest:
            newest, best = int(np.flatnonzero(vouching)[-1]), vouching
    found = np.zeros(len(offset_ms), dtype=np.bool_)
    found[known[best]] = True
    return found


def _nearest(unit: Ints, number: Ints, own: Flags) -> Ints:
    """Index of the nearest segment of the boot with an anchor of its own; -1 without one."""
    rows = len(unit)
    index = np.arange(rows)
    before = np.maximum.accumulate(np.where(own, index, -1)) if rows else index
    after = np.where(own, index, rows)[::-1]
    after = np.minimum.accumulate(after)[::-1] if rows else index
    ok_before = (before >= 0) & (unit[before] == unit)
    inside = np.minimum(after, rows - 1)
    ok_after = (after < rows) & (unit[inside] == unit)
    back = np.where(ok_before, number - number[before], np.iinfo(np.int64).max)
    ahead = np.where(ok_after, number[inside] - number, np.iinfo(np.int64).max)
    found = np.where(back <= ahead, before, inside)
    return np.where(ok_before | ok_after, found, -1)
