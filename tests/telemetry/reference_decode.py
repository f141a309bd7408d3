"""Black-box segments to arrays; damaged places become reasons and the rest goes on.

A segment is a 32-byte header and blocks of 512 bytes (docs/SPEC.md 6). All copies of all
segments of one device are decoded together, because the power state and the cumulative
counters run across segments: the blocks are cut into one matrix, checked, merged block by
block over repeated copies, put in order and flattened to events. Numpy only.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_HEADER_SIZE,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet_tools.telemetry.blackbox import codes

#  0     4        5      6     8          16      20           26           28..32
#  magic version  flags  boot  device id  number  wall anchor  uncertainty  crc32
HEADER = struct.Struct("<4sBBH8sIHIHI")  # the 48-bit anchor is read as 16 + 32 bits

BLOCK = np.dtype(
    {
        "names": ["magic", "count", "block", "boot", "t0_low", "t0_high", "crc"],
        "formats": ["u1", "u1", "<u2", "<u2", "<u2", "<u4", "<u4"],
        "offsets": [0, 1, 2, 4, 6, 8, 12],
        "itemsize": BLOCK_HEADER_SIZE,
    }
)
EVENT = np.dtype([("dt", "<u4"), ("code", "u1"), ("a", "u1"), ("b", "<u2"), ("c", "<u4")])
EVENTS_END = BLOCK_HEADER_SIZE + EVENTS_PER_BLOCK * EVENT_SIZE

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Reasons by number; 0 is a good block.
BLOCK_REASONS = (
    "",
    "not a block",
    "block crc",
    "record count",
    "boot differs from header",
    "block number",
)
REASON_CUT = "cut block"
REASON_CONFLICT = "other bytes under a number already seen"


@dataclass(frozen=True, slots=True)
class Header:
    """A segment's header; `wall_ms` is the Unix time of the first block's t0, or None."""

    device: str
    boot: int
    number: int
    wall_ms: int | None
    wall_uncertainty_ms: int | None
    crc: int

    @property
    def key(self) -> tuple[int, int]:
        """Boot and segment number: what identifies the segment on its device."""
        return (self.boot, self.number)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of one segment: its file and place in it, its bytes and its parsed header."""

    file: str
    data: bytes
    header: Header
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that could not be used, and why. `block` is None for a whole segment."""

    device: str
    boot: int | None
    number: int | None
    block: int | None
    file: str
    offset: int
    reason: str


@dataclass(slots=True)
class Segment:
    """One segment after its copies are merged. Times are ms since the boot."""

    header: Header
    blocks: int = 0
    blocks_bad: int = 0
    copies: int = 0
    events: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    wall_offset_ms: int | None = None
    wall_uncertainty_ms: int | None = None


@dataclass(slots=True)
class Log:
    """Everything that the black boxes of one device say, in order of (boot, segment, block).

    The arrays have one entry per event. `time_ms` counts from the boot; `stretch` rises by one
    where blocks are missing, so two events with the same number have nothing lost between
    them; `segment` indexes `segments`.
    """

    device: str
    segments: list[Segment]
    damages: list[Damage]
    boot: Ints
    segment: Ints
    stretch: Ints
    time_ms: Ints
    code: Ints
    a: Ints
    b: Ints
    c: Ints

    @property
    def boots(self) -> list[int]:
        """Boot numbers seen, ascending, also those without a single good block."""
        return sorted({segment.header.boot for segment in self.segments})

    def of_boot(self, boot: int) -> Log:
        """The part of one boot, as views."""
        low, high = np.searchsorted(self.boot, [boot, boot + 1])
        part = slice(int(low), int(high))
        return Log(
            device=self.device,
            segments=self.segments,
            damages=self.damages,
            boot=self.boot[part],
            segment=self.segment[part],
            stretch=self.stretch[part],
            time_ms=self.time_ms[part],
            code=self.code[part],
            a=self.a[part],
            b=self.b[part],
            c=self.c[part],
        )


@dataclass(frozen=True, slots=True)
class _Cut:
    """Blocks of all copies as a matrix; `owner` indexes `copies`, `position` counts blocks."""

    copies: list[Copy]
    blocks: Bytes
    heads: npt.NDArray[np.void]
    owner: Ints
    position: Ints


def read_header(data: bytes) -> Header | str:
    """Parse the first 32 bytes of a segment, or return the reason why that fails."""
    if len(data) < BOX_HEADER_SIZE:
        return "short header"
    fields = HEADER.unpack_from(data)
    magic, version, flags, boot, device, number, wall_low, wall_high, uncertainty, crc = fields
    if magic != codes.MAGIC:
        return "no segment magic"
    if zlib.crc32(data[: BOX_HEADER_SIZE - 4]) != crc:
        return "header crc"
    if version != codes.VERSION:
        return f"unknown version {version}"
    wall_ms = wall_high << 16 | wall_low
    known = bool(flags & codes.WALL_KNOWN) and codes.WALL_MS_MIN <= wall_ms <= codes.WALL_MS_MAX
    spread = uncertainty * codes.UNCERTAINTY_UNIT_MS
    return Header(
        device=codes.device_name(device),
        boot=boot,
        number=number,
        wall_ms=wall_ms if known else None,
        wall_uncertainty_ms=(
            spread if known and uncertainty != codes.UNCERTAINTY_UNKNOWN else None
        ),
        crc=crc,
    )


def decode(copies: Sequence[Copy]) -> Log:
    """Decode all copies of all segments of one device; the order of `copies` plays no part."""
    assert copies, "a device without a segment has no log"
    ordered = _distinct(copies)
    damages: list[Damage] = []
    cut = _cut(ordered, damages)
    reason = _check(cut)
    for at in np.flatnonzero(reason):
        copy = ordered[cut.owner[at]]
        damages.append(_damage(copy, int(cut.position[at]), BLOCK_REASONS[reason[at]]))
    good, conflicting = _merge(cut, np.flatnonzero(reason == 0))
    damages += [_damage(ordered[at], None, REASON_CONFLICT) for at in sorted(conflicting)]
    segments = _segments([c for at, c in enumerate(ordered) if at not in conflicting])
    return _flatten(cut, segments, damages, good)


def _distinct(copies: Sequence[Copy]) -> list[Copy]:
    """Copies with equal bytes once, in an order that does not depend on arrival."""
    unique = {(c.header.key, zlib.crc32(c.data), len(c.data)): c for c in reversed(copies)}
    return [unique[key] for key in sorted(unique, key=lambda key: (key[0], -key[2], key[1]))]


def _damage(copy: Copy, block: int | None, reason: str) -> Damage:
    offset = copy.offset + (0 if block is None else BOX_HEADER_SIZE + block * BLOCK_SIZE)
    head = copy.header
    return Damage(head.device, head.boot, head.number, block, copy.file, offset, reason)


def _cut(copies: list[Copy], damages: list[Damage]) -> _Cut:
    """All whole blocks, with the copy and the place in it that each came from."""
    counts = []
    for copy in copies:
        count, rest = divmod(len(copy.data) - BOX_HEADER_SIZE, BLOCK_SIZE)
        counts.append(count)
        if rest:
            damages.append(_damage(copy, count, REASON_CUT))
    body = b"".join(
        copy.data[BOX_HEADER_SIZE : BOX_HEADER_SIZE + count * BLOCK_SIZE]
        for copy, count in zip(copies, counts, strict=True)
    )
    blocks = np.frombuffer(body, dtype=np.uint8).reshape(-1, BLOCK_SIZE)
    owner = np.repeat(np.arange(len(copies), dtype=np.int64), counts)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    position = np.arange(len(blocks), dtype=np.int64) - starts[owner]
    heads = blocks[:, :BLOCK_HEADER_SIZE].copy().view(BLOCK).reshape(-1)
    return _Cut(copies, blocks, heads, owner, position)


def _check(cut: _Cut) -> Ints:
    """Index into BLOCK_REASONS per block; the first failing check names it."""
    heads = cut.heads
    clear = cut.blocks.copy()
    clear[:, 12:16] = 0  # the crc field counts as zero
    sums = np.fromiter((zlib.crc32(row) for row in clear), dtype=np.uint32, count=len(clear))
    boots = np.array([copy.header.boot for copy in cut.copies], dtype=np.int64)
    return np.select(
        [
            heads["magic"] != codes.BLOCK_MAGIC,
            heads["crc"] != sums,
            heads["count"] > EVENTS_PER_BLOCK,
            heads["boot"] != boots[cut.owner],
            heads["block"] != cut.position,
        ],
        [np.int64(number) for number in range(1, len(BLOCK_REASONS))],
        default=np.int64(0),
    )


def _merge(cut: _Cut, good: Ints) -> tuple[Ints, set[int]]:
    """One good block per (boot, segment, block), in that order, and the conflicting copies.

    A copy whose good block differs from an earlier copy's is left out whole: two histories
    under one number (a board that lost its boot counter) must not be added up.
    """
    blocks, owner, position = cut.blocks, cut.owner, cut.position
    keys = np.array([copy.header.key for copy in cut.copies], dtype=np.int64).reshape(-1, 2)
    conflicting: set[int] = set()
    while True:
        kept = good[~np.isin(owner[good], list(conflicting))]
        key = np.column_stack((keys[owner[kept]], position[kept]))
        order = np.lexsort((owner[kept], key[:, 2], key[:, 1], key[:, 0]))
        kept, key = kept[order], key[order]
        if len(kept) == 0:
            return kept, conflicting
        same = np.concatenate(([False], np.all(key[1:] == key[:-1], axis=1)))
        first = kept[np.maximum.accumulate(np.where(same, 0, np.arange(len(kept))))]
        other = same & np.any(blocks[kept] != blocks[first], axis=1)
        if not other.any():
            return kept[~same], conflicting
        # Only the first of them: with it gone, the next may turn out to agree.
        conflicting.add(int(owner[kept[other][0]]))


def _segments(copies: list[Copy]) -> list[Segment]:
    """Segments in order of (boot, number), with the number of blocks that each should have."""
    found: dict[tuple[int, int], Segment] = {}
    for copy in copies:
        segment = found.setdefault(copy.header.key, Segment(copy.header))
        size = len(copy.data) - BOX_HEADER_SIZE
        segment.blocks = max(segment.blocks, -(-size // BLOCK_SIZE))
        segment.copies += 1
    return [found[key] for key in sorted(found)]


def _flatten(cut: _Cut, segments: list[Segment], damages: list[Damage], good: Ints) -> Log:
    """Good blocks in order to events with their absolute times."""
    index_of = {segment.header.key: at for at, segment in enumerate(segments)}
    owned = [index_of.get(copy.header.key, -1) for copy in cut.copies]
    segment_of = np.array(owned, dtype=np.int64)[cut.owner[good]]
    heads = cut.heads[good]
    t0 = heads["t0_low"].astype(np.int64) | heads["t0_high"].astype(np.int64) << 16
    count = heads["count"].astype(np.int64)
    place = cut.position[good]
    stretch = _stretches(segments, segment_of, place)
    _anchor(segments, cut.copies, segment_of, place, t0)
    rows = cut.blocks[good][:, BLOCK_HEADER_SIZE:EVENTS_END].copy().view(EVENT)
    rows = rows.reshape(len(good), EVENTS_PER_BLOCK)
    events = rows[np.arange(EVENTS_PER_BLOCK) < count[:, None]]
    row_segment = np.repeat(segment_of, count)
    time_ms = np.repeat(t0, count) + events["dt"]
    _fill(segments, segment_of, row_segment, time_ms)
    boots = np.array([segment.header.boot for segment in segments], dtype=np.int64)
    return Log(
        device=cut.copies[0].header.device,
        segments=segments,
        damages=damages,
        boot=boots[row_segment],
        segment=row_segment,
        stretch=np.repeat(stretch, count),
        time_ms=time_ms,
        code=events["code"].astype(np.int64),
        a=events["a"].astype(np.int64),
        b=events["b"].astype(np.int64),
        c=events["c"].astype(np.int64),
    )


def _stretches(segments: list[Segment], segment_of: Ints, place: Ints) -> Ints:
    """Number of gaps before each good block: a boot's blocks that follow on share a number."""
    if len(place) == 0:
        return np.zeros(0, dtype=np.int64)
    boots = np.array([s.header.boot for s in segments], dtype=np.int64)[segment_of]
    numbers = np.array([s.header.number for s in segments], dtype=np.int64)[segment_of]
    ends = np.array([s.blocks for s in segments], dtype=np.int64)[segment_of]
    within = (numbers[1:] == numbers[:-1]) & (place[1:] == place[:-1] + 1)
    across = (numbers[1:] == numbers[:-1] + 1) & (place[1:] == 0) & (place[:-1] == ends[:-1] - 1)
    follows = (boots[1:] == boots[:-1]) & (within | across)
    return np.concatenate(([0], np.cumsum(~follows))).astype(np.int64)


def _anchor(
    segments: list[Segment], copies: list[Copy], segment_of: Ints, place: Ints, t0: Ints
) -> None:
    """Set each segment's wall offset from its own anchor, else from the nearest of its boot.

    The anchor belongs to the first block's t0: where that block is lost, the anchor is useless.
    """
    starts = {int(s): int(t) for s, p, t in zip(segment_of, place, t0, strict=True) if p == 0}
    best: dict[tuple[int, int], Header] = {}
    for copy in copies:
        head = copy.header
        if head.wall_ms is None:
            continue
        known = best.get(head.key)
        if known is None or _spread(head) < _spread(known):
            best[head.key] = head
    for at, segment in enumerate(segments):
        head_known = best.get(segment.header.key)
        if at in starts and head_known is not None and head_known.wall_ms is not None:
            segment.wall_offset_ms = head_known.wall_ms - starts[at]
            segment.wall_uncertainty_ms = head_known.wall_uncertainty_ms
    own: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.wall_offset_ms is not None:
            own.setdefault(segment.header.boot, []).append(segment)
    for segment in segments:
        near = own.get(segment.header.boot)
        if segment.wall_offset_ms is None and near:
            nearest = _nearest(near, segment.header.number)
            segment.wall_offset_ms = nearest.wall_offset_ms
            segment.wall_uncertainty_ms = nearest.wall_uncertainty_ms


def _nearest(ordered: list[Segment], number: int) -> Segment:
    after = bisect.bisect(ordered, number, key=lambda segment: segment.header.number)
    around = ordered[max(after - 1, 0) : after + 1]
    return min(around, key=lambda segment: abs(segment.header.number - number))


def _spread(head: Header) -> float:
    return float("inf") if head.wall_uncertainty_ms is None else head.wall_uncertainty_ms


def _fill(segments: list[Segment], segment_of: Ints, row_segment: Ints, time_ms: Ints) -> None:
    good_counts = np.bincount(segment_of, minlength=len(segments))
    event_counts = np.bincount(row_segment, minlength=len(segments))
    ends = np.cumsum(event_counts)
    for at, segment in enumerate(segments):
        segment.blocks_bad = segment.blocks - int(good_counts[at])
        segment.events = int(event_counts[at])
        if segment.events:
            times = time_ms[ends[at] - event_counts[at] : ends[at]]
            segment.first_ms, segment.last_ms = int(times.min()), int(times.max())
