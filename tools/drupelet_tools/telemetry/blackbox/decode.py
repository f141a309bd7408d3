"""Black-box segments to checked blocks; damaged places become reasons and the rest goes on.

A segment is a 32-byte header and 1 to 8 blocks of 512 bytes (docs/SPEC.md 6). Many segments of
many devices are looked at together, as one matrix with a row per block: a chunk. What is worth
a Python step is a segment with damage or with several copies; everything else is numpy.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_BLOCKS_MAX,
    BOX_HEADER_SIZE,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet_tools.telemetry.blackbox import codes, crc

#  0     4        5      6     8          16      20           26           28..32
#  magic version  flags  boot  device id  number  wall anchor  uncertainty  crc32
HEADER = struct.Struct("<4sBBH8sIHIHI")  # the 48-bit anchor is read as 16 + 32 bits
BLOCK_WORDS = BLOCK_SIZE // 4
EVENT_WORDS = EVENT_SIZE // 4
FIRST_EVENT_WORD = BLOCK_HEADER_SIZE // 4
CODE_OFFSET = BLOCK_HEADER_SIZE + 4  # byte of the first event's code in its block
EVENTS_END = BLOCK_HEADER_SIZE + EVENTS_PER_BLOCK * EVENT_SIZE
CRC_WORD = 3

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

# Stands for "not known" in arrays of whole numbers.
NONE = np.iinfo(np.int64).min

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
REASON_LONG = f"more than {BOX_BLOCKS_MAX} blocks"


@dataclass(frozen=True, slots=True)
class Header:
    """A segment's header; `wall_ms` is the Unix time of the first block's t0, or None."""

    device: str
    boot: int
    number: int
    wall_ms: int | None
    wall_uncertainty_ms: int | None
    crc: int


@dataclass(slots=True)
class Entries:
    """Copies of segments, in order of (unit, number, rank); parallel arrays.

    A unit is one boot of one device; units are numbered in order. `family` numbers the
    segments: copies of one share it. `size` is in bytes, header included. `data` are the
    bytes of the entries one after the other, at `at`.
    """

    unit: Ints
    number: Ints
    family: Ints
    boot: Ints
    wall_ms: Ints
    wall_uncertainty_ms: Ints
    size: Ints
    at: Ints
    data: Bytes

    def __len__(self) -> int:
        return len(self.unit)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that could not be used: the entry's index, the block (None: all), the reason."""

    entry: int
    block: int | None
    reason: str


@dataclass(slots=True)
class Chunk:
    """Checked blocks in order of (unit, number, block), each once; parallel arrays.

    `blocks_of` is how many blocks each entry should have; `damages` what could not be used;
    `left_out` the entries of another history under a known number.
    """

    entries: Entries
    blocks: Bytes
    owner: Ints
    position: Ints
    crcs: npt.NDArray[np.uint32]
    blocks_of: Ints
    damages: list[Damage] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)


def read_header(data: bytes) -> Header | str:
    """Parse the first 32 bytes of a segment, or return the reason why that fails."""
    if len(data) < BOX_HEADER_SIZE:
        return "short header"
    fields = HEADER.unpack_from(data)
    magic, version, flags, boot, device, number, wall_low, wall_high, uncertainty, told = fields
    if magic != codes.MAGIC:
        return "no segment magic"
    if zlib.crc32(data[: BOX_HEADER_SIZE - 4]) != told:
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
        crc=told,
    )


def check(entries: Entries) -> Chunk:
    """Cut the entries into blocks and keep the good ones, each position of a segment once.

    A copy whose good block differs from that of an earlier copy is left out whole: two
    histories under one number (a board that lost its boot counter) must not be added up.
    """
    damages: list[Damage] = []
    whole, blocks_of = _block_counts(entries, damages)
    blocks, owner = _cut(entries, whole)
    starts = np.cumsum(whole) - whole
    position = np.arange(len(blocks), dtype=np.int64) - starts[owner]
    reason, crcs = _reasons(blocks, entries.boot[owner], position)
    if reason.any():
        bad = np.flatnonzero(reason)
        damages += [
            Damage(int(owner[at]), int(position[at]), BLOCK_REASONS[reason[at]]) for at in bad
        ]
        good = np.flatnonzero(reason == 0)
        blocks, owner, position, crcs = blocks[good], owner[good], position[good], crcs[good]
    chunk = Chunk(entries, blocks, owner, position, crcs, blocks_of, damages)
    if np.any(entries.family[1:] == entries.family[:-1]):
        _merge(chunk)
    return chunk


def keep(chunk: Chunk, chosen: Ints | Flags) -> None:
    """Leave only the chosen blocks, in their order."""
    chunk.blocks = chunk.blocks[chosen]
    chunk.owner = chunk.owner[chosen]
    chunk.position = chunk.position[chosen]
    chunk.crcs = chunk.crcs[chosen]


def _block_counts(entries: Entries, damages: list[Damage]) -> tuple[Ints, Ints]:
    """Whole blocks of each entry, and how many it should have with the cut one."""
    body = entries.size - BOX_HEADER_SIZE
    whole, rest = np.divmod(body, BLOCK_SIZE)
    blocks_of = whole + (rest > 0)
    for at in np.flatnonzero(blocks_of > BOX_BLOCKS_MAX):
        damages.append(Damage(int(at), BOX_BLOCKS_MAX, REASON_LONG))
    for at in np.flatnonzero((rest > 0) & (whole < BOX_BLOCKS_MAX)):
        damages.append(Damage(int(at), int(whole[at]), REASON_CUT))
    return np.minimum(whole, BOX_BLOCKS_MAX), np.minimum(blocks_of, BOX_BLOCKS_MAX)


def _cut(entries: Entries, whole: Ints) -> tuple[Bytes, Ints]:
    """All whole blocks as a matrix of their own, and the entry that each is from."""
    blocks = np.empty((int(whole.sum()), BLOCK_SIZE), dtype=np.uint8)
    owner = np.repeat(np.arange(len(entries), dtype=np.int64), whole)
    flat = blocks.reshape(-1)
    starts = (np.cumsum(whole) - whole) * BLOCK_SIZE
    for first, last in _runs(entries, whole):
        count, size = last - first, int(whole[first]) * BLOCK_SIZE
        to = int(starts[first])
        begin = int(entries.at[first])
        stride = int(entries.at[first + 1]) - begin if count > 1 else BOX_HEADER_SIZE + size
        source = np.lib.stride_tricks.as_strided(
            entries.data[begin + BOX_HEADER_SIZE :], (count, size), (stride, 1), writeable=False
        )
        flat[to : to + count * size].reshape(count, size)[:] = source
    return blocks, owner


def _runs(entries: Entries, whole: Ints) -> list[tuple[int, int]]:
    """Ranges of entries of one size whose bytes lie at equal distances."""
    if len(entries) == 0:
        return []
    step = np.diff(entries.at)
    breaks = whole[1:] != whole[:-1]
    breaks[1:] |= step[1:] != step[:-1]
    breaks |= step <= 0
    edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(entries)]
    return list(pairwise(edges))


def _reasons(
    blocks: Bytes, boot: Ints, position: Ints
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Index into BLOCK_REASONS per block (the first failing check names it), and the CRCs."""
    words = blocks.view("<u4")
    head = words[:, 0]
    crcs = words[:, CRC_WORD].astype(np.uint32)
    words[:, CRC_WORD] = 0  # the CRC field counts as zero
    reason = np.select(
        [
            (head & 0xFF) != codes.BLOCK_MAGIC,
            crc.bad_blocks(blocks, crcs),
            (head >> 8 & 0xFF) > EVENTS_PER_BLOCK,
            (words[:, 1] & 0xFFFF) != boot,
            (head >> 16) != position,
        ],
        [np.uint8(number) for number in range(1, len(BLOCK_REASONS))],
        default=np.uint8(0),
    )
    return reason, crcs


def _merge(chunk: Chunk) -> None:
    """Bring the blocks in order of (family, position) and keep the first of each position."""
    family = chunk.entries.family[chunk.owner]
    keep(chunk, np.lexsort((chunk.owner, chunk.position, family)))
    while True:
        family = chunk.entries.family[chunk.owner]
        same = (family[1:] == family[:-1]) & (chunk.position[1:] == chunk.position[:-1])
        same = np.concatenate((np.zeros(min(1, len(family)), dtype=np.bool_), same))
        place = np.arange(len(same))
        first = np.maximum.accumulate(np.where(same, 0, place))
        other = np.flatnonzero(same)
        differs = np.any(chunk.blocks[other] != chunk.blocks[first[other]], axis=1)
        if not differs.any():
            keep(chunk, ~same)
            return
        # Only the first of them: with it gone, the next may turn out to agree.
        leave_out(chunk, int(chunk.owner[other[differs][0]]))


def leave_out(chunk: Chunk, entry: int) -> None:
    """Take an entry's blocks out and say that it contradicts what is known."""
    chunk.left_out.add(entry)
    chunk.damages.append(Damage(entry, None, codes.REASON_CONFLICT))
    keep(chunk, chunk.owner != entry)


def join(pieces: Sequence[bytes]) -> Bytes:
    """Bytes of several entries as one array."""
    return np.frombuffer(b"".join(pieces), dtype=np.uint8)
