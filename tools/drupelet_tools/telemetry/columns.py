"""Columns of numbers to Parquet files, written piece by piece under names of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE, EVENTS_PER_BLOCK
from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.decode import (
    EVENT_WORDS,
    FIRST_EVENT_WORD,
    NONE,
    Chunk,
    Damage,
    Ints,
)
from drupelet_tools.telemetry.inputs import PACK_LENGTH
from drupelet_tools.telemetry.lake import Part
from drupelet_tools.telemetry.partials import Boots, Partials
from drupelet_tools.telemetry.schemas import TABLES

if TYPE_CHECKING:
    from drupelet_tools.telemetry.worker import Plain

# Rows that are collected before they are written: a row group that reads well.
ROWS_WRITTEN = 1 << 16
# Columns of high entropy, where a dictionary only costs.
_PLAIN = frozenset(
    ("message", "boot_ms", "wall_ms", "number", "offset", "c", "header_crc", "first_crc")
)
_EVENT_NAMES = pa.array([codes.MESSAGE_EVENTS.get(code, "") for code in range(10, 18)])
_HEX = np.array([f"{value:02x}" for value in range(256)], dtype="S2")


@dataclass(slots=True)
class Units:
    """The boots of a group: unit `first + i` is boot `boot[i]` of device `device[i]`."""

    first: int
    device: pa.DictionaryArray
    boot: Ints

    @classmethod
    def of(cls, plain: Plain, entries: pa.Table) -> Units:
        """The boots that a list of entries is about."""
        unit = plain.unit
        heads = np.flatnonzero(np.concatenate(([True], unit[1:] != unit[:-1])))
        devices = entries["device"].take(pa.array(heads)).combine_chunks()
        return cls(int(unit[0]), devices.dictionary_encode(), plain.boot[heads])

    def columns(self, unit: Ints) -> dict[str, pa.Array]:
        """Columns `device` and `boot` of some units."""
        at = unit - self.first
        index = self.device.indices.to_numpy()[at]
        return {
            "device": pa.DictionaryArray.from_arrays(index, self.device.dictionary),
            "boot": pa.array(self.boot[at].astype(np.int32)),
        }


class TableWriter:
    """The files of one part of the lake while they are written."""

    def __init__(self, root: Path, part: Part, units: Units) -> None:
        self.root = root
        self.part = part
        self.units = units
        self._waiting: dict[str, list[pa.Table]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._quarantine: list[dict[str, Any]] = []
        self._pack: Any = None
        self._pack_size = 0

    # --- rows in ---

    def add_boots(self, boots: Boots, tables: dict[str, dict[str, Any]]) -> None:
        """The rows of some boots, and what the next ingest needs to go on with them."""
        for table, columns in tables.items():
            self._add(table, columns)
        self._add_partials(boots.partials)
        families = boots.families
        names = ("unit", "number", "blocks", "good", "copies", "events", "first_ms", "last_ms")
        columns = {
            name: getattr(families, name) for name in (*names, "offset_ms", "uncertainty_ms")
        }
        self._add("families", {**columns, "crcs": families.crcs.astype(np.int64)})

    def _add_partials(self, partials: Partials) -> None:
        columns = {
            name: getattr(partials, name)
            for name in ("unit", *TABLES["partials"].names[2:])
            if hasattr(partials, name)
        }
        row, index = np.nonzero(partials.counters)
        offsets = np.searchsorted(row, np.arange(len(partials) + 1)).astype(np.int32)
        for name, values in (
            ("counter", index.astype(np.int32)),
            ("counter_value", partials.counters[row, index]),
        ):
            columns[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
        self._add("partials", columns)

    def add_events(self, chunk: Chunk) -> None:
        """Every single event of a chunk."""
        columns = event_columns(chunk)
        entry = columns.pop("entry")
        columns["unit"] = chunk.entries.unit[entry]
        columns["number"] = chunk.entries.number[entry]
        self._add("events", columns)

    def add_sources(self, plain: Plain, rows: Ints, content: Ints, place: Ints) -> None:
        """Which copies were taken in, and where a small file lies in the pack."""
        packed = np.where(place == NONE, -1, 0).astype(np.int32)
        names = pa.array([self._pack_path()])
        self._add(
            "sources",
            {
                "unit": plain.unit[rows],
                "number": plain.number[rows],
                "size": plain.size[rows],
                "header_crc": plain.header_crc[rows],
                "first_crc": plain.first_crc[rows],
                "content_crc": content,
                "damaged": content != NONE,
                "file": pa.DictionaryArray.from_arrays(
                    plain.file_at[rows].astype(np.int32), plain.file.dictionary
                ),
                "offset": plain.offset[rows],
                "pack": pa.DictionaryArray.from_arrays(
                    pa.array(np.maximum(packed, 0), mask=packed < 0), names
                ),
                "pack_offset": place,
            },
        )

    def add_quarantine(self, place: tuple[int, int, str, int], damage: Damage) -> None:
        """A place that could not be used: unit, number, file and offset of the entry."""
        unit, number, file, offset = place
        if damage.block is not None:
            offset += BOX_HEADER_SIZE + damage.block * BLOCK_SIZE
        at = unit - self.units.first
        self._quarantine.append(
            {
                "device": self.units.device[at].as_py(),
                "boot": int(self.units.boot[at]),
                "number": number,
                "block": damage.block,
                "file": file,
                "offset": offset,
                "reason": damage.reason,
            }
        )

    def add_renewed(self, units: Ints) -> None:
        """Boots whose rows in earlier parts stop counting."""
        self._add("renewed", {"unit": units})

    def add_to_pack(self, data: memoryview) -> int:
        """Append one segment to the part's pack; the offset of its first byte."""
        if self._pack is None:
            path = self.root / self._pack_path()
            self._pack = open(path, "wb", buffering=1 << 20)  # noqa: SIM115 - see `abandon`
            self.part.packs = [self._pack_path()]
        self._pack.write(PACK_LENGTH.pack(len(data)))
        self._pack.write(data)
        offset = self._pack_size + PACK_LENGTH.size
        self._pack_size = offset + len(data)
        return offset

    def _pack_path(self) -> str:
        return f"packs/{self.part.id}.dbxpack"

    # --- files out ---

    def _add(self, table: str, columns: dict[str, Any]) -> None:
        unit = columns["unit"]
        if len(unit) == 0:
            return
        named = {**columns, **self.units.columns(unit)}
        if table == "traffic":
            named["unit"] = named.pop("measure")
        if table == "messages":
            named["message"] = _hex(columns["message"])
            named["event"] = pa.DictionaryArray.from_arrays(
                columns["event"].astype(np.int32), _EVENT_NAMES
            )
        schema = TABLES[table]
        arrays = [_array(named.get(field.name), field.type, len(unit)) for field in schema]
        piece = pa.Table.from_arrays(arrays, names=schema.names)
        waiting = self._waiting.setdefault(table, [])
        waiting.append(piece)
        self.part.counts[table] = self.part.counts.get(table, 0) + len(unit)
        if sum(one.num_rows for one in waiting) >= ROWS_WRITTEN:
            self._write(table)

    def _write(self, table: str) -> None:
        waiting = self._waiting.pop(table, [])
        if not waiting:
            return
        if len(waiting) == 1:
            whole = waiting[0]
        else:
            whole = pa.concat_tables(waiting).unify_dictionaries()
        writer = self._writers.get(table)
        if writer is None:
            names = [field.name for field in TABLES[table] if field.name not in _PLAIN]
            writer = self._writers[table] = pq.ParquetWriter(
                self.root / self.part.path(table),
                whole.schema,
                compression="zstd",
                use_dictionary=names,
                store_schema=False,
            )
        writer.write_table(whole)

    def close(self) -> None:
        """Write everything that waits, durably."""
        if self._quarantine:
            rows = pa.Table.from_pylist(self._quarantine, schema=TABLES["quarantine"])
            self._waiting["quarantine"] = [rows]
            self.part.counts["quarantine"] = rows.num_rows
        for table in list(self._waiting):
            self._write(table)
        for writer in self._writers.values():
            writer.close()
        if self._pack is not None:
            self._pack.flush()
            os.fsync(self._pack.fileno())
        for table in self._writers:
            handle = os.open(self.root / self.part.path(table), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def abandon(self) -> None:
        """Close what is open, whatever happened."""
        if self._pack is not None:
            self._pack.close()
            self._pack = None
        for writer in self._writers.values():
            writer.close()


def event_columns(chunk: Chunk) -> dict[str, Any]:
    """Every single event of a chunk, field by field, with the entry that it is from."""
    words = chunk.blocks.view("<u4")
    count = (words[:, 0] >> 8 & 0xFF).astype(np.int64)
    t0 = words[:, 1].astype(np.int64) >> 16 | words[:, 2].astype(np.int64) << 16
    end = FIRST_EVENT_WORD + EVENTS_PER_BLOCK * EVENT_WORDS
    fields = words[:, FIRST_EVENT_WORD:end].reshape(-1, EVENTS_PER_BLOCK, EVENT_WORDS)
    rows = fields[np.arange(EVENTS_PER_BLOCK) < count[:, None]]
    block = np.repeat(np.arange(len(count)), count)
    return {
        "entry": chunk.owner[block],
        "block": chunk.position[block],
        "boot_ms": t0[block] + rows[:, 0],
        "code": (rows[:, 1] & 0xFF).astype(np.int32),
        "a": (rows[:, 1] >> 8 & 0xFF).astype(np.int32),
        "b": (rows[:, 1] >> 16).astype(np.int32),
        "c": rows[:, 2].astype(np.int64),
    }


def _hex(values: npt.NDArray[np.uint32]) -> pa.Array:
    """Numbers of 32 bits as text of 8 digits."""
    digits = _HEX[values.astype(">u4").view(np.uint8)]
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 8
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())
    )


def _array(values: Any, kind: pa.DataType, rows: int) -> pa.Array:  # noqa: ANN401
    """A column of a type; text becomes a dictionary, NONE a null, None a column of nulls."""
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_list(kind):
        flat = values.reshape(-1)
        offsets = np.arange(rows + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(
            pa.array(offsets), _array(flat, kind.value_type, len(flat))
        )
    if values.dtype.kind == "U":
        names, index = np.unique(values, return_inverse=True)
        missing = (names == "")[index]
        return pa.DictionaryArray.from_arrays(
            pa.array(index.astype(np.int32), mask=missing), pa.array(names.tolist(), pa.string())
        )
    if values.dtype == np.int64:
        missing = values == NONE
        if missing.any():
            return pa.array(np.where(missing, 0, values), mask=missing).cast(kind)
        return pa.array(values if kind == pa.int64() else values.astype(np.int32))
    return pa.array(values)
