"""What a Spark worker does with one group of segments; imports no Spark.

Read the segments a chunk at a time, add up, write their pieces and a pack of what came as small
files under names that no other attempt uses, and tell the driver what was written. Nothing that
the lake has is read. Memory is bounded by the chunk.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from drupelet.base.limits import BLOCK_SIZE, BOX_BLOCKS_MAX
from drupelet_tools.telemetry.base.errors import InputFileError
from drupelet_tools.telemetry.base.memory import give_back
from drupelet_tools.telemetry.base.place import Opened, Place, filesystem_of, place, reason
from drupelet_tools.telemetry.blackbox import decode
from drupelet_tools.telemetry.blackbox.decode import Bytes, Chunk, Entries, Ints
from drupelet_tools.telemetry.lake.group_columns import GroupColumns
from drupelet_tools.telemetry.lake.piece_file import PACKS, PieceFile, Written
from drupelet_tools.telemetry.tables.partials import add_up

# Blocks that are looked at together: their arrays stay in a processor's cache.
CHUNK_BLOCKS = 8192
# Entries read with one call where they follow on each other in a file.
READ_GAP_MAX = 64
FILES_OPEN_MAX = 64


def run_group(lake: str, plan: str, attempt: str, events: bool = False) -> dict[str, Any]:
    """Do the work list `plan` (a file in the lake) and say what was written.

    Args:
        lake: the lake's folder.
        plan: a file of entries (`plan.ENTRY`), relative to it.
        attempt: unique among all attempts at anything.
        events: whether to write every single event as well.

    Returns:
        The fields of `piece_file.Written`.

    Raises:
        TelemetryError: a segment's file is gone, shorter than it was, or unreadable.
        OSError: the lake cannot be written.
    """
    root = place(lake)
    filesystem, path = filesystem_of(root / plan)
    with filesystem.open_input_file(path) as file:
        entries = pa.ipc.open_file(file).read_all()
    written = _write_pieces(root, attempt, entries, events=events)
    del entries
    give_back()  # the next group of this worker finds what this one found
    return asdict(written)


def _write_pieces(root: Place, attempt: str, entries: pa.Table, *, events: bool) -> Written:
    group = GroupColumns(entries, root / PACKS)
    files = Files()
    out = PieceFile(root, attempt, group, time.time_ns() // 1_000_000)
    unread = int(group.alternate.sum())
    try:
        for rows, chunk in read_chunks(group, files, apart=True):
            unread -= int(group.alternate[rows].sum())
            out.add(rows, chunk, add_up(chunk), events=events)
        written = out.close()
    finally:
        files.close()
        out.abandon()
    return replace(written, repeated=unread)


def read_chunks(
    group: GroupColumns, files: Files, *, apart: bool = False
) -> Iterator[tuple[Ints, Chunk]]:
    """Chunks of checked blocks, and the rows of their entries.

    A segment whose first copy is damaged comes with its other copies in a chunk behind that of
    its neighbours. Copies of one segment are merged, or with `apart` each stays by itself.
    """
    first = np.flatnonzero(~group.alternate)
    weight = np.minimum(group.size // BLOCK_SIZE + 1, BOX_BLOCKS_MAX + 1)[first]
    family = group.family[first]
    filled = np.cumsum(weight)
    low = 0
    while low < len(first):
        want = (filled[low - 1] if low else 0) + CHUNK_BLOCKS
        high = max(int(np.searchsorted(filled, want, side="right")), low + 1)
        while high < len(first) and family[high] == family[high - 1]:
            high += 1
        rows = first[low:high]
        low = high
        chunk = decode.check(_entries(group, rows, files, apart))
        again = _to_mend(group, rows, chunk)
        if len(again) == 0:
            yield rows, chunk
            continue
        kept = rows[~np.isin(group.family[rows], again)]
        if len(kept):
            yield kept, decode.check(_entries(group, kept, files, apart))
        rows = _distinct(group, np.flatnonzero(np.isin(group.family, again)), files)
        yield rows, decode.check(_entries(group, rows, files, apart))


def _to_mend(group: GroupColumns, rows: Ints, chunk: Chunk) -> Ints:
    """Families with damage of which there are copies that were not read."""
    if not chunk.damages:
        return np.zeros(0, dtype=np.int64)
    damaged = group.family[rows[sorted({damage.entry for damage in chunk.damages})]]
    more = group.family[group.alternate]
    return np.intersect1d(damaged, more)


def _distinct(group: GroupColumns, rows: Ints, files: Files) -> Ints:
    """The copies without those whose bytes are those of an earlier one."""
    entries = _entries(group, rows, files)
    seen = set()
    kept = []
    for at, row in enumerate(rows):
        low = int(entries.at[at])
        content = zlib.crc32(entries.data.data[low : low + int(entries.size[at])])
        key = (int(entries.family[at]), int(entries.size[at]), content)
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def _entries(group: GroupColumns, rows: Ints, files: Files, apart: bool = False) -> Entries:
    at, data = files.read(group, rows)
    return Entries(
        group.unit[rows],
        group.number[rows],
        rows if apart else group.family[rows],
        group.boot[rows],
        group.wall_ms[rows],
        group.wall_uncertainty_ms[rows],
        group.size[rows],
        at,
        data,
    )


class Files:
    """Reads entries; keeps packs open, and small files only as long as it takes.

    held: the contents of files that are on no disk, by their paths.
    """

    def __init__(self, held: Mapping[str, bytes] | None = None) -> None:
        self._open: dict[int, Opened] = {}
        self._held = held or {}

    def read(self, group: GroupColumns, rows: Ints) -> tuple[Ints, Bytes]:
        """The bytes of some entries, and where in them each begins."""
        file, offset, size = group.file_at[rows], group.offset[rows], group.size[rows]
        end = offset + size
        goes_on = (file[1:] == file[:-1]) & (offset[1:] >= end[:-1])
        goes_on &= offset[1:] <= end[:-1] + READ_GAP_MAX
        edges = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(rows)]
        lengths = [int(end[high - 1] - offset[low]) for low, high in pairwise(edges) if high > low]
        data = np.empty(sum(lengths), dtype=np.uint8)
        at = np.empty(len(rows), dtype=np.int64)
        place = 0
        for length, low, high in zip(lengths, edges[:-1], edges[1:], strict=True):
            begin = int(offset[low])
            self._fill(group, int(file[low]), begin, data.data[place : place + length])
            at[low:high] = offset[low:high] - begin + place
            place += length
        return at, data

    def _fill(self, group: GroupColumns, file: int, offset: int, target: memoryview) -> None:
        path = group.files[file]
        if path in self._held:
            target[:] = self._held[path][offset : offset + len(target)]
            return
        try:
            opened = self._opened(file, path)
            done = 0
            while done < len(target):
                count = opened.read_into(target[done:], offset + done)
                if count == 0:
                    raise InputFileError(
                        f"{path}: became shorter while it was read; run the ingest again", [path]
                    )
                done += count
        except OSError as refused:
            text = f"{path}: cannot read it: {reason(refused)}"
            raise InputFileError(text, [path]) from None

    def _opened(self, file: int, path: str) -> Opened:
        opened = self._open.get(file)
        if opened is None:
            if len(self._open) >= FILES_OPEN_MAX:
                self.close()
            opened = self._open[file] = Opened(place(path))
        return opened

    def close(self) -> None:
        """Close all files."""
        for opened in self._open.values():
            opened.close()
        self._open.clear()
