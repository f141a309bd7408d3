"""Small packs of a lake into few, without the segments that no piece names any more.

Each ingest of small files leaves a pack, so a lake that takes in a few segments at a time has as
many packs as it had batches. What a pack holds is checked before it is copied: tables are made of
pieces, and nothing else would notice.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE
from drupelet_tools.telemetry.base.place import Opened, Place, Remote, create, finish
from drupelet_tools.telemetry.blackbox import crc
from drupelet_tools.telemetry.blackbox.decode import CRC_WORD, Ints
from drupelet_tools.telemetry.files.inputs import PACK_LENGTH
from drupelet_tools.telemetry.lake.piece_file import PACKS

# A pack of this size is left as it is.
PACK_SIZE = 128 << 20
# Of pieces: where their segments lie, and what tells whether they still do.
PLACE = ("pack", "pack_offset", "size", "header_crc", "first_crc", "content_crc")
_OFFSET_BITS = 40


@dataclass(frozen=True, slots=True)
class Repacked:
    """Where the segments of some packs are now.

    `before` are the packs' names and `pack` says of each in which of `names` its segments are; in
    `segments` are, in order, the number of the old pack and the offset in it, and in `offsets`
    the offset of now. `damaged` are packs that do not hold what pieces say; they are left as they
    are.
    """

    before: pa.Array
    names: pa.Array
    pack: Ints
    segments: Ints
    offsets: Ints
    damaged: list[str]

    def moved(self, pieces: pa.Table) -> pa.Table:
        """Pieces with the places of now."""
        old = pc.fill_null(pc.index_in(pieces["pack"], self.before), -1)
        numbers = old.to_numpy().astype(np.int64)
        rows = np.flatnonzero(numbers >= 0)
        if not len(rows):
            return pieces
        offsets = pc.fill_null(pieces["pack_offset"], -1).to_numpy().copy()
        at = np.searchsorted(self.segments, numbers[rows] << _OFFSET_BITS | offsets[rows])
        offsets[rows] = self.offsets[at]
        known = pa.array(offsets, mask=offsets < 0)
        place = pieces.schema.get_field_index
        pieces = pieces.set_column(place("pack_offset"), "pack_offset", known)
        return pieces.set_column(place("pack"), "pack", self.renamed(pieces["pack"]))

    def renamed(self, packs: pa.ChunkedArray) -> pa.ChunkedArray:
        """Names of packs as they are now."""
        now = self.names.take(pa.array(self.pack)).take(pc.index_in(packs, self.before))
        return pc.coalesce(now, packs)

    def remove(self, root: Place) -> None:
        """Remove the new packs, which nothing names yet."""
        for name in self.names.to_pylist():
            (root / name).unlink(missing_ok=True)


def repack(root: Place, places: pa.Table, elsewhere: Collection[str]) -> Repacked:
    """Write the segments of small packs into few new ones, in order of when they were taken in.

    Nothing counts before the pieces that name the new packs are committed, and the old ones stay.

    Args:
        root: the lake's folder.
        places: PLACE and `taken_ms` of all pieces that will name the new packs.
        elsewhere: packs that other pieces go on naming; these are left as they are.

    Raises:
        OSError: a pack cannot be read, or the new ones not written; none of these is left.
    """
    sizes = pack_sizes(root)
    small, damaged, is_smaller = [], [], False
    for pack in _packs(places):
        size = sizes.get(pack.name, -1)
        if pack.end > size:
            damaged.append(pack.name)
        elif size < PACK_SIZE and pack.name not in elsewhere:
            small.append(pack)
            is_smaller |= pack.size < size
    small.sort(key=lambda pack: (pack.taken_ms, pack.name))
    out = _Out(root)
    before: list[str] = []
    numbers: list[int] = []
    segments, offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    try:
        for pack in small if len(small) > 1 or is_smaller else []:
            listed = pack.read(root)
            if listed is None:
                damaged.append(pack.name)
                continue
            numbers.append(out.begin())
            places_before = pack.rows["pack_offset"].to_numpy()
            segments.append(len(before) << _OFFSET_BITS | places_before)
            offsets.append(np.array([out.write(data) for data in listed], dtype=np.int64))
            before.append(pack.name)
        names = out.close()
    except OSError:
        out.abandon()
        raise
    return Repacked(
        pa.array(before, pa.string()), pa.array(names, pa.string()), np.array(numbers, np.int64),
        np.concatenate(segments), np.concatenate(offsets), damaged,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pack:
    """A pack and those of its segments that pieces name, in order; `rows` are PLACE."""

    name: str
    taken_ms: int
    end: int  # of the last segment
    size: int  # of a pack of these segments alone
    rows: pa.Table

    def read(self, root: Place) -> list[memoryview] | None:
        """The segments; None where one of them is not what was taken in."""
        with Opened(root / self.name) as opened:
            data = memoryview(opened.pread(opened.size, 0))
        segments = []
        for row in self.rows.to_pylist():
            segments.append(data[row["pack_offset"] :][: row["size"]])
            if not _is_whole(segments[-1], row):
                return None
        return segments


def _packs(places: pa.Table) -> Iterator[_Pack]:
    rows = places.group_by(list(PLACE)).aggregate([("taken_ms", "min")])
    rows = rows.sort_by([("pack", "ascending"), ("pack_offset", "ascending")])
    rows = rows.append_column("end", pc.add(rows["pack_offset"], rows["size"]))
    packs = rows.group_by("pack").aggregate(
        [("taken_ms_min", "min"), ("end", "max"), ("size", "sum"), ([], "count_all")]
    )
    begin = 0
    for row in packs.sort_by("pack").to_pylist():
        count = row["count_all"]
        size = row["size_sum"] + PACK_LENGTH.size * count
        own = rows.slice(begin, count)
        yield _Pack(row["pack"], row["taken_ms_min_min"], row["end_max"], size, own)
        begin += count


def _is_whole(segment: memoryview, row: dict[str, Any]) -> bool:
    if len(segment) != row["size"]:
        return False
    if row["content_crc"] is not None:  # of a segment that came damaged
        return zlib.crc32(segment) == int(row["content_crc"])
    blocks = (
        np.frombuffer(segment[BOX_HEADER_SIZE:], dtype=np.uint8).reshape(-1, BLOCK_SIZE).copy()
    )
    words = blocks.view("<u4")
    crcs = words[:, CRC_WORD].astype(np.uint32)
    words[:, CRC_WORD] = 0
    is_same = zlib.crc32(segment[: BOX_HEADER_SIZE - 4]) == row["header_crc"]
    is_same &= int(crcs[0]) == row["first_crc"]
    return is_same and not bool(crc.bad_blocks(blocks, crcs).any())


class _Out:
    """Packs that are written, a new one where one is large enough."""

    def __init__(self, root: Place) -> None:
        self._root = root
        self._names: list[str] = []
        self._file: pa.NativeFile | None = None
        self._size = 0

    def begin(self) -> int:
        """Begin with the segments of an old pack, which all come into one; its number."""
        if self._size >= PACK_SIZE:
            self._end()
        if self._file is None:
            self._names.append(f"{PACKS}/{secrets.token_hex(8)}.dbxpack")
            self._file = create(self._root / self._names[-1])
            self._size = 0
        return len(self._names) - 1

    def write(self, segment: memoryview) -> int:
        """Append a segment; the offset of its first byte."""
        assert self._file is not None
        self._file.write(PACK_LENGTH.pack(len(segment)))
        self._file.write(segment)
        offset = self._size + PACK_LENGTH.size
        self._size = offset + len(segment)
        return offset

    def _end(self) -> None:
        if self._file is not None:
            finish(self._file, self._root / self._names[-1])
        self._file = None

    def close(self) -> list[str]:
        """The packs' names, as pieces name them."""
        self._end()
        return self._names

    def abandon(self) -> None:
        """Remove what was written."""
        for name in self._names:
            (self._root / name).unlink(missing_ok=True)


def pack_sizes(root: Place) -> dict[str, int]:
    """The packs that there are, as pieces name them, with their sizes in bytes."""
    folder = root / PACKS
    if isinstance(folder, Remote):
        return {f"{PACKS}/{one.name}": one.size for one in folder.below()}
    listed = folder.iterdir() if folder.is_dir() else ()
    return {f"{PACKS}/{one.name}": one.stat().st_size for one in listed if one.is_file()}
