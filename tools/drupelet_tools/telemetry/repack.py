"""Small packs of a lake into few, without the segments that no piece names any more.

Each ingest of small files leaves a pack, so a lake that takes in a few segments at a time has as
many packs as it had batches.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.decode import Ints
from drupelet_tools.telemetry.inputs import PACK_LENGTH
from drupelet_tools.telemetry.piece_file import PACKS
from drupelet_tools.telemetry.place import Opened, Place, Remote, create, finish

# A pack of this size is left as it is.
PACK_SIZE = 128 << 20
PLACE = ("pack", "pack_offset", "size")
_OFFSET_BITS = 40


@dataclass(frozen=True, slots=True)
class Repacked:
    """Where the segments of some packs are now.

    `before` are the packs' names and `pack` says of each in which of `names` its segments are; in
    `segments` are, in order, the number of the old pack and the offset in it, and in `offsets`
    the offset of now.
    """

    before: pa.Array
    names: pa.Array
    pack: Ints
    segments: Ints
    offsets: Ints

    def moved(self, pieces: pa.Table) -> pa.Table:
        """Pieces with the places of now."""
        old = _numbers(pieces["pack"], self.before)
        rows = np.flatnonzero(old >= 0)
        if not len(rows):
            return pieces
        offsets = pc.fill_null(pieces["pack_offset"], -1).to_numpy().copy()
        at = np.searchsorted(self.segments, old[rows] << _OFFSET_BITS | offsets[rows])
        offsets[rows] = self.offsets[at]
        known = pa.array(offsets, mask=offsets < 0)
        place = pieces.schema.get_field_index
        pieces = pieces.set_column(place("pack_offset"), "pack_offset", known)
        return pieces.set_column(place("pack"), "pack", self.renamed(pieces["pack"]))

    def renamed(self, packs: pa.ChunkedArray) -> pa.ChunkedArray:
        """Names of packs as they are now."""
        now = self.names.take(pa.array(self.pack)).take(pc.index_in(packs, self.before))
        return pc.coalesce(now, packs)


def repack(root: Place, places: pa.Table, elsewhere: Collection[str]) -> Repacked:
    """Write the segments of small packs into few new ones, in order of when they were taken in.

    Nothing counts before the pieces that name the new packs are committed, and the old ones stay.

    Args:
        root: the lake's folder.
        places: PLACE and `taken_ms` of all pieces that will name the new packs.
        elsewhere: packs that other pieces go on naming; these are left as they are.

    Raises:
        OSError: a pack cannot be read or written.
    """
    sizes = pack_sizes(root)
    wanted = places.group_by(list(PLACE)).aggregate([("taken_ms", "min")])
    wanted = wanted.append_column("end", pc.add(wanted["pack_offset"], wanted["size"]))
    packs = wanted.group_by("pack").aggregate(
        [("taken_ms_min", "min"), ("size", "sum"), ([], "count_all"), ("end", "max")]
    )
    small, is_smaller = [], False
    for row in packs.sort_by(
        [("taken_ms_min_min", "ascending"), ("pack", "ascending")]
    ).to_pylist():
        size = sizes.get(row["pack"], PACK_SIZE)
        # One that is not there or is cut is left to who asks for its segments.
        if row["end_max"] <= size < PACK_SIZE and row["pack"] not in elsewhere:
            small.append(row["pack"])
            is_smaller |= row["size_sum"] + PACK_LENGTH.size * row["count_all"] < size
    if len(small) == 1 and not is_smaller:
        small = []
    before = pa.array(small, pa.string())
    old = _numbers(wanted["pack"], before)
    rows = np.flatnonzero(old >= 0)
    segments = old[rows] << _OFFSET_BITS | wanted["pack_offset"].to_numpy()[rows]
    order = np.argsort(segments)
    segments, lengths = segments[order], wanted["size"].to_numpy()[rows][order]
    return _written(root, before, segments, lengths)


def _numbers(packs: pa.ChunkedArray, names: pa.Array) -> Ints:
    """Where each pack stands among `names`; -1 for others."""
    at: Ints = pc.fill_null(pc.index_in(packs, names), -1).to_numpy().astype(np.int64)
    return at


def _written(root: Place, before: pa.Array, segments: Ints, sizes: Ints) -> Repacked:
    out = _Packs(root)
    pack = np.zeros(len(before), dtype=np.int64)
    offsets = np.zeros(len(segments), dtype=np.int64)
    ends = np.searchsorted(segments >> _OFFSET_BITS, np.arange(len(before)), side="right")
    begin = 0
    for number, (name, end) in enumerate(zip(before.to_pylist(), ends.tolist(), strict=True)):
        with Opened(root / name) as opened:
            data = memoryview(opened.pread(opened.size, 0))
        pack[number] = out.begin()
        for at in range(begin, end):
            low = int(segments[at]) & ((1 << _OFFSET_BITS) - 1)
            offsets[at] = out.write(data[low : low + int(sizes[at])])
        begin = end
    return Repacked(before, pa.array(out.close(), pa.string()), pack, segments, offsets)


class _Packs:
    """Packs that are written, a new one where one is large enough."""

    def __init__(self, root: Place) -> None:
        self._root = root
        self._names: list[str] = []
        self._out: pa.NativeFile | None = None
        self._size = 0

    def begin(self) -> int:
        """Begin with the segments of an old pack, which all come into one; its number."""
        if self._size >= PACK_SIZE:
            self._end()
        if self._out is None:
            self._names.append(f"{PACKS}/{secrets.token_hex(8)}.dbxpack")
            self._out = create(self._root / self._names[-1])
            self._size = 0
        return len(self._names) - 1

    def write(self, segment: memoryview) -> int:
        """Append a segment; the offset of its first byte."""
        assert self._out is not None
        self._out.write(PACK_LENGTH.pack(len(segment)))
        self._out.write(segment)
        offset = self._size + PACK_LENGTH.size
        self._size = offset + len(segment)
        return offset

    def _end(self) -> None:
        if self._out is not None:
            finish(self._out, self._root / self._names[-1])
        self._out = None

    def close(self) -> list[str]:
        """The packs' names, as pieces name them."""
        self._end()
        return self._names


def pack_sizes(root: Place) -> dict[str, int]:
    """The packs that there are, as pieces name them, with their sizes in bytes."""
    folder = root / PACKS
    if isinstance(folder, Remote):
        return {f"{PACKS}/{one.name}": one.size for one in folder.below()}
    return {f"{PACKS}/{one.name}": one.stat().st_size for one in folder.iterdir()}
