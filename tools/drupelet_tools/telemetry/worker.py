"""What a Spark worker does with one group of boots; imports no Spark.

Read the segments a chunk at a time, add up, put whole boots together, write the tables and a
pack of what came as small files under names that no other attempt uses, and tell the driver
what was written. Memory is bounded by the chunk and by the message rows of one boot.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from drupelet.base.limits import BLOCK_SIZE, BOX_BLOCKS_MAX
from drupelet_tools.telemetry import decode
from drupelet_tools.telemetry.columns import TableWriter, Units
from drupelet_tools.telemetry.decode import Bytes, Chunk, Entries, Ints
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.fold import fold
from drupelet_tools.telemetry.held import Held
from drupelet_tools.telemetry.lake import Part, open_lake
from drupelet_tools.telemetry.memory import give_back
from drupelet_tools.telemetry.partials import Sums, add_up, join_boots, split_sums

# Blocks that are looked at together: their arrays stay in a processor's cache.
CHUNK_BLOCKS = 8192
# Entries read with one call where they follow on each other in a file.
READ_GAP_MAX = 64
FILES_OPEN_MAX = 64


def run_group(lake: str, plan: str, attempt: str, events: bool = False) -> dict[str, Any]:
    """Do the work list `plan` (a file in the lake) and return its part as a manifest entry.

    Args:
        lake: the lake's folder.
        plan: a file of entries (`plan.ENTRY`), relative to it.
        attempt: unique among all attempts at anything.
        events: whether to write every single event as well.

    Raises:
        TelemetryError: a segment's file is gone, shorter than it was, or unreadable.
        OSError: the lake cannot be written.
    """
    root = Path(lake)
    with pa.OSFile(str(root / plan)) as file:
        entries = pa.ipc.open_file(file).read_all()
    part = Group(root, attempt, entries, events).run()
    del entries
    give_back()  # the next group of this worker finds what this one found
    return asdict(part)


class Plain:
    """Entries of a group as numpy columns."""

    def __init__(self, entries: pa.Table) -> None:
        self.file = entries["file"].combine_chunks()
        self.files = self.file.dictionary.to_pylist()
        self.file_at = self.file.indices.to_numpy().astype(np.int64)
        self.device = entries["device"].combine_chunks()
        self.offset: Ints = entries["offset"].to_numpy()
        self.size: Ints = entries["size"].to_numpy()
        self.boot: Ints = entries["boot"].to_numpy()
        self.number: Ints = entries["number"].to_numpy()
        self.wall_ms: Ints = entries["wall_ms"].to_numpy()
        self.wall_uncertainty_ms: Ints = entries["wall_uncertainty_ms"].to_numpy()
        self.header_crc: Ints = entries["header_crc"].to_numpy()
        self.first_crc: Ints = entries["first_crc"].to_numpy()
        self.unit: Ints = entries["unit"].to_numpy()
        self.family: Ints = entries["family"].to_numpy()
        self.alternate = entries["alternate"].to_numpy()
        self.renewed = entries["renewed"].to_numpy()
        self.small = entries["small"].to_numpy()

    def __len__(self) -> int:
        return len(self.unit)

    def place(self, row: int) -> tuple[int, int, str, int]:
        """Unit, number, file and offset of an entry."""
        file = self.files[int(self.file_at[row])]
        return int(self.unit[row]), int(self.number[row]), file, int(self.offset[row])


def read_chunks(plain: Plain, files: Files) -> Iterator[tuple[Ints, Chunk, int]]:
    """Chunks of checked blocks, the rows of their entries, and the unit that may go on.

    Units below that are complete with the chunk. A segment whose first copy is damaged comes
    with its other copies in a chunk behind that of its neighbours.
    """
    first = np.flatnonzero(~plain.alternate)
    weight = np.minimum(plain.size // BLOCK_SIZE + 1, BOX_BLOCKS_MAX + 1)[first]
    family = plain.family[first]
    filled = np.cumsum(weight)
    low = 0
    while low < len(first):
        want = (filled[low - 1] if low else 0) + CHUNK_BLOCKS
        high = max(int(np.searchsorted(filled, want, side="right")), low + 1)
        while high < len(first) and family[high] == family[high - 1]:
            high += 1
        rows = first[low:high]
        low = high
        begun, going_on = int(plain.unit[rows[0]]), int(plain.unit[rows[-1]])
        chunk = decode.check(_entries(plain, rows, files))
        again = _to_mend(plain, rows, chunk)
        if len(again) == 0:
            yield rows, chunk, going_on
            continue
        kept = rows[~np.isin(plain.family[rows], again)]
        if len(kept):
            yield kept, decode.check(_entries(plain, kept, files)), begun
        rows = _distinct(plain, np.flatnonzero(np.isin(plain.family, again)), files)
        yield rows, decode.check(_entries(plain, rows, files)), going_on


def _to_mend(plain: Plain, rows: Ints, chunk: Chunk) -> Ints:
    """Families with damage of which there are copies that were not read."""
    if not chunk.damages:
        return np.zeros(0, dtype=np.int64)
    damaged = plain.family[rows[sorted({damage.entry for damage in chunk.damages})]]
    more = plain.family[plain.alternate]
    return np.intersect1d(damaged, more)


def _distinct(plain: Plain, rows: Ints, files: Files) -> Ints:
    """The copies without those whose bytes are those of an earlier one."""
    entries = _entries(plain, rows, files)
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


def _entries(plain: Plain, rows: Ints, files: Files) -> Entries:
    at, data = files.read(plain, rows)
    return Entries(
        plain.unit[rows],
        plain.number[rows],
        plain.family[rows],
        plain.boot[rows],
        plain.wall_ms[rows],
        plain.wall_uncertainty_ms[rows],
        plain.size[rows],
        at,
        data,
    )


class Files:
    """Reads entries; keeps packs open, and small files only as long as it takes.

    held: the contents of files that are on no disk, by their paths.
    """

    def __init__(self, held: Mapping[str, bytes] | None = None) -> None:
        self._open: dict[int, int] = {}
        self._held = held or {}

    def read(self, plain: Plain, rows: Ints) -> tuple[Ints, Bytes]:
        """The bytes of some entries, and where in them each begins."""
        file, offset, size = plain.file_at[rows], plain.offset[rows], plain.size[rows]
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
            self._fill(plain, int(file[low]), begin, data.data[place : place + length])
            at[low:high] = offset[low:high] - begin + place
            place += length
        return at, data

    def _fill(self, plain: Plain, file: int, offset: int, target: memoryview) -> None:
        path = plain.files[file]
        if path in self._held:
            target[:] = self._held[path][offset : offset + len(target)]
            return
        try:
            handle = self._handle(file, path)
            done = 0
            while done < len(target):
                count = os.preadv(handle, [target[done:]], offset + done)
                if count == 0:
                    raise TelemetryError(
                        f"{path}: became shorter while it was read; run the ingest again"
                    )
                done += count
        except OSError as refused:
            raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None

    def _handle(self, file: int, path: str) -> int:
        handle = self._open.get(file)
        if handle is None:
            if len(self._open) >= FILES_OPEN_MAX:
                self.close()
            handle = self._open[file] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return handle

    def close(self) -> None:
        """Close all files."""
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()


class Group:
    """One work list on its way to one part of the lake."""

    def __init__(self, root: Path, attempt: str, entries: pa.Table, events: bool) -> None:
        self.part = Part(id=attempt)
        self.plain = Plain(entries)
        self.units = Units.of(self.plain, entries)
        self.writer = TableWriter(root, self.part, self.units)
        self.events = events
        renewed = np.unique(self.plain.unit[self.plain.renewed])
        self.held = Held(open_lake(root), self.units, renewed) if len(renewed) else None
        self.pending: list[Sums] = [self.held.sums] if self.held else []
        self.unread = int(self.plain.alternate.sum())

    def run(self) -> Part:
        """Do all of it; nothing of the part counts before the driver names it."""
        files = Files()
        try:
            for rows, chunk, going_on in read_chunks(self.plain, files):
                self._take(rows, chunk)
                self._finish(going_on)
            self._finish(int(self.plain.unit[-1]) + 1)
            if self.held:
                self.writer.add_renewed(self.held.units)
            self.writer.close()
        finally:
            files.close()
            self.writer.abandon()
        self.part.counts["_repeated"] = self.unread
        return self.part

    def _take(self, rows: Ints, chunk: Chunk) -> None:
        self.unread -= int(self.plain.alternate[rows].sum())
        if self.held:
            self.held.compare(chunk)
        self._note_sources(rows, chunk)
        sums = add_up(chunk)
        self.part.counts["_events"] = self.part.counts.get("_events", 0) + sums.events
        if self.events:
            self.writer.add_events(chunk)
        self.pending.append(sums)

    def _finish(self, limit: int) -> None:
        """Put the boots below unit `limit` together and write their rows."""
        done: list[Sums] = []
        rest: list[Sums] = []
        for sums in self.pending:
            early, late = split_sums(sums, limit)
            if len(early.families):
                done.append(early)
            if len(late.families):
                rest.append(late)
        self.pending = rest
        if done:
            boots = join_boots(done)
            self.writer.add_boots(boots, fold(boots))

    def _note_sources(self, rows: Ints, chunk: Chunk) -> None:
        """Rows of `sources` and `quarantine`; small files go into the pack."""
        data, at, size = chunk.entries.data, chunk.entries.at, chunk.entries.size
        content = np.full(len(rows), decode.NONE)
        place = np.full(len(rows), decode.NONE)
        for entry in np.flatnonzero(self.plain.small[rows]):
            low = int(at[entry])
            place[entry] = self.writer.add_to_pack(data.data[low : low + int(size[entry])])
        for damage in chunk.damages:
            low = int(at[damage.entry])
            if content[damage.entry] == decode.NONE:
                end = low + int(size[damage.entry])
                content[damage.entry] = zlib.crc32(data.data[low:end])
            self.writer.add_quarantine(self.plain.place(int(rows[damage.entry])), damage)
        self.writer.add_sources(self.plain, rows, content, place)
