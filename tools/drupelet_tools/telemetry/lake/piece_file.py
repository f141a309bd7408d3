"""The file of pieces that a worker writes for its group, and the pack of what came small."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE
from drupelet_tools.telemetry.base.place import Place, create, finish
from drupelet_tools.telemetry.blackbox.decode import NONE, Chunk, Flags, Ints
from drupelet_tools.telemetry.files.inputs import PACK_LENGTH
from drupelet_tools.telemetry.lake.group_columns import GroupColumns
from drupelet_tools.telemetry.tables.columns import array_of, event_columns
from drupelet_tools.telemetry.tables.hour_bins import Bins, Samples
from drupelet_tools.telemetry.tables.partials import Happenings, Sums
from drupelet_tools.telemetry.tables.schemas import FILES, PIECE, SUMS

TABLE = "table"
PACKS = "packs"
# Rows that are collected before they are written: a row group that reads well.
ROWS_WRITTEN = 1 << 14
# Columns of high entropy, where a dictionary only costs.
_PLAIN = frozenset(("number", "offset", "pack_offset", "header_crc", "first_crc", "crcs"))
_DICTIONARIES = [one.name for one in FILES[PIECE] if one.name not in _PLAIN]


@dataclass(slots=True)
class Written:
    """What a worker wrote: a file in the Delta table, and counts of what is in it."""

    path: str = ""
    size: int = 0
    rows: int = 0
    events: int = 0
    damages: int = 0
    repeated: int = 0
    pack: str = ""
    device_min: str = ""
    device_max: str = ""


class PieceFile:
    """A group's file of pieces while it is written; nothing counts before the driver commits."""

    def __init__(self, root: Place, name: str, group: GroupColumns, taken_ms: int) -> None:
        self._root = root
        self._name = name
        self._group = group
        self._taken_ms = taken_ms
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._out: pa.NativeFile | None = None
        self._pack: pa.NativeFile | None = None
        self._pack_size = 0
        self.written = Written(path=f"kind={PIECE}/{name}.parquet")

    def add(self, rows: Ints, chunk: Chunk, sums: Sums, *, events: bool) -> None:
        """The pieces of a chunk, whose entries are these rows of the group."""
        partials, copies = sums.partials, sums.copies
        # A copy without a good block has a row, too: it is known, and so is what is wrong.
        bare = np.flatnonzero(copies.good == 0)
        copy = np.concatenate((partials.copy, bare))
        order = np.argsort(copy, kind="stable")
        copy = copy[order]
        first = np.concatenate((np.ones(min(1, len(copy)), np.bool_), copy[1:] != copy[:-1]))
        columns = self._copy_columns(rows, chunk, sums, copy, first)
        pieces = len(partials)
        at = np.where(order < pieces, order, -1)  # -1: a copy without a piece
        columns |= _piece_columns(sums, at)
        lists = {
            "messages": _messages(sums.messages),
            "battery": _readings(sums.battery),
            "samples": _samples(sums.samples),
            "bins": _bins(sums.bins),
        }
        if events:
            lists["event_rows"] = _events(chunk, sums)
        for name, (piece, values) in lists.items():
            columns[name] = _lists(piece, values, at, pieces)
        schema = FILES[PIECE]
        arrays = [array_of(columns.get(one.name), one.type, len(copy)) for one in schema]
        self._waiting.append(pa.Table.from_arrays(arrays, names=schema.names))
        self.written.events += sums.events
        if sum(one.num_rows for one in self._waiting) >= ROWS_WRITTEN:
            self._write()

    def _copy_columns(
        self, rows: Ints, chunk: Chunk, sums: Sums, copy: Ints, first: Flags
    ) -> dict[str, Any]:
        group, copies = self._group, sums.copies
        row = rows[copy]
        content = self._contents(chunk)
        pack, pack_offset = self._packed(rows, chunk)
        columns: dict[str, Any] = {
            "device": group.device.take(pa.array(row)),
            "boot": group.boot[row],
            "number": group.number[row],
            "size": group.size[row],
            "header_crc": group.header_crc[row],
            "first_crc": group.first_crc[row],
            "content_crc": content[copy],
            "damaged": copies.damaged[copy],
            "file": pa.DictionaryArray.from_arrays(
                group.file_at[row].astype(np.int32), group.file.dictionary
            ),
            "offset": group.offset[row],
            "pack": pack.take(pa.array(copy)),
            "pack_offset": pack_offset[copy],
            "taken_ms": np.full(len(copy), self._taken_ms),
            "crcs": copies.crcs[copy].astype(np.int64),
            "damages": self._damages(rows, chunk, copy, first),
        }
        for name in ("blocks", "good", "wall_ms", "wall_uncertainty_ms", "t0_ms"):
            columns[name] = getattr(copies, name)[copy]
        return columns

    def _contents(self, chunk: Chunk) -> Ints:
        """CRC-32 over all bytes of each damaged copy: tells those apart."""
        content = np.full(len(chunk.entries), NONE)
        data, at, size = chunk.entries.data, chunk.entries.at, chunk.entries.size
        for entry in {damage.entry for damage in chunk.damages}:
            low = int(at[entry])
            content[entry] = zlib.crc32(data.data[low : low + int(size[entry])])
        return content

    def _damages(self, rows: Ints, chunk: Chunk, copy: Ints, first: Flags) -> pa.Array:
        """What is wrong with each copy, at the first of its rows."""
        found: dict[int, list[dict[str, Any]]] = {}
        for damage in chunk.damages:
            offset = int(self._group.offset[rows[damage.entry]])
            if damage.block is not None:
                offset += BOX_HEADER_SIZE + damage.block * BLOCK_SIZE
            told = {"block": damage.block, "offset": offset, "reason": damage.reason}
            found.setdefault(damage.entry, []).append(told)
        self.written.damages += len(chunk.damages)
        kind = FILES[PIECE].field("damages").type
        if not found:
            return pa.nulls(len(copy), kind)
        listed = [
            found.get(int(one)) if head else None for one, head in zip(copy, first, strict=True)
        ]
        return pa.array(listed, kind)

    # --- the pack ---

    def _packed(self, rows: Ints, chunk: Chunk) -> tuple[pa.Array, Ints]:
        """Where in the lake's packs each entry is; those of small files are put there."""
        group, entries = self._group, chunk.entries
        place = np.full(len(rows), NONE)
        own = group.own_pack[group.file_at[rows]]  # it is there already
        name = f"{PACKS}/{self._name}.dbxpack"
        for entry in np.flatnonzero(group.small[rows] & ~own):
            low = int(entries.at[entry])
            data = entries.data.data[low : low + int(entries.size[entry])]
            place[entry] = self._add_to_pack(name, data)
        packs = pa.array([name]).take(pa.array(np.where(place == NONE, -1, 0), mask=place == NONE))
        if own.any():
            names = packs.to_pylist()
            for at in np.flatnonzero(own).tolist():
                path = group.files[int(group.file_at[rows[at]])]
                names[at] = f"{PACKS}/{path.rpartition('/')[2]}"
                place[at] = int(group.offset[rows[at]])
            packs = pa.array(names, pa.string())
        return packs, place

    def _add_to_pack(self, name: str, data: memoryview) -> int:
        """Append one segment to the group's pack; the offset of its first byte."""
        if self._pack is None:
            self._pack = create(self._root / name)
            self.written.pack = name
        self._pack.write(PACK_LENGTH.pack(len(data)))
        self._pack.write(data)
        offset = self._pack_size + PACK_LENGTH.size
        self._pack_size = offset + len(data)
        return offset

    # --- out ---

    def _write(self) -> None:
        if not self._waiting:
            return
        whole = pa.concat_tables(self._waiting).unify_dictionaries().combine_chunks()
        self._waiting = []
        if self._writer is None:
            self._out = create(self._root / TABLE / self.written.path)
            self._writer = pq.ParquetWriter(
                self._out,
                whole.schema,
                compression="zstd",
                use_dictionary=_DICTIONARIES,
                store_schema=False,
            )
        self._writer.write_table(whole)
        self.written.rows += whole.num_rows

    def close(self) -> Written:
        """Write what waits, durably."""
        self._write()
        devices = [str(self._group.device[at].as_py()) for at in (0, len(self._group.device) - 1)]
        self.written.device_min, self.written.device_max = devices
        if self._writer is not None:
            self._writer.close()
        if self._out is not None:
            self.written.size = finish(self._out, self._root / TABLE / self.written.path)
        if self._pack is not None:
            finish(self._pack, self._root / self.written.pack)
        return self.written

    def abandon(self) -> None:
        """Close what is open, whatever happened."""
        if self._writer is not None:
            self._writer.close()
        for file in (self._pack, self._out):
            if file is not None:
                file.close()


def _piece_columns(sums: Sums, at: Ints) -> dict[str, Any]:
    """Numbers of each piece; null for a copy without one."""
    partials = sums.partials
    none = at < 0
    columns: dict[str, Any] = {}
    names = ("block_from", "block_to", "events", "event_first_ms", "event_last_ms", *SUMS)
    for name in names:
        values = getattr(partials, name)
        if none.any():
            padded = np.concatenate((values, np.full_like(values[:1], NONE)))
            if len(values) == 0:
                padded = np.full((1, *values.shape[1:]), NONE)
            columns[name] = padded[at]
        else:
            columns[name] = values[at]
    return columns


def _messages(rows: Happenings) -> tuple[Ints, dict[str, Ints]]:
    return rows.piece, {
        "message": rows.what >> 11,
        "event": (rows.what >> 8 & 7).astype(np.int32),
        "peer": (rows.what & 0xFF).astype(np.int32),
        "boot_ms": rows.time_ms,
        "count": rows.count,
        "first_sends": rows.first_sends,
        "b_max": rows.b_max,
    }


def _readings(rows: Happenings) -> tuple[Ints, dict[str, Ints]]:
    return rows.piece, {"boot_ms": rows.time_ms, "mv": rows.what.astype(np.int32)}


def _samples(rows: Samples) -> tuple[Ints, dict[str, Ints]]:
    return rows.piece, {
        "hour": rows.hour.astype(np.int32),
        "counter": rows.counter.astype(np.int32),
        "first": rows.first,
        "value": rows.value,
    }


def _bins(rows: Bins) -> tuple[Ints, dict[str, Ints]]:
    return rows.piece, {
        "hour": rows.hour.astype(np.int32),
        "counted_first_ms": rows.counted_first_ms,
        "counted_last_ms": rows.counted_last_ms,
        "heap_low": rows.heap_low,
    }


def _events(chunk: Chunk, sums: Sums) -> tuple[Ints, dict[str, Ints]]:
    columns = event_columns(chunk)
    # Pieces and events are both in order of entry and block.
    key = columns.pop("entry") << 4 | columns["block"]
    begin = sums.partials.copy << 4 | sums.partials.block_from
    columns["block"] = columns["block"].astype(np.int32)
    return np.searchsorted(begin, key, side="right") - 1, columns


def _lists(piece: Ints, columns: dict[str, Ints], at: Ints, pieces: int) -> pa.Array:
    """Structures as a list for each piece, and those in the order `at`; none for -1."""
    order = np.argsort(piece, kind="stable")
    begin = np.searchsorted(piece[order], np.arange(pieces + 1))
    flat = pa.StructArray.from_arrays(
        [array_of(values[order], pa.int64(), len(order)) for values in columns.values()],
        names=list(columns),
    )
    lists = pa.ListArray.from_arrays(pa.array(begin.astype(np.int32)), flat)
    if len(at) == pieces and np.array_equal(at, np.arange(pieces)):
        return lists
    return lists.take(pa.array(np.maximum(at, 0), mask=at < 0))
