"""Columns of numbers to columns of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drupelet.base.limits import EVENTS_PER_BLOCK
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import (
    EVENT_WORDS,
    FIRST_EVENT_WORD,
    NONE,
    Chunk,
    Ints,
)
from drupelet_tools.telemetry.tables.schemas import TABLES

_EVENT_NAMES = pa.array([codes.MESSAGE_EVENTS.get(code, "") for code in range(10, 18)])
_HEX = np.array([f"{value:02x}" for value in range(256)], dtype="S2")


@dataclass(slots=True)
class Units:
    """Some boots: unit `i` is boot `boot[i]` of device `device[i]`."""

    device: pa.DictionaryArray
    boot: Ints

    def columns(self, unit: Ints) -> dict[str, pa.Array]:
        """Columns `device` and `boot` of some units."""
        index = self.device.indices.to_numpy()[unit]
        return {
            "device": pa.DictionaryArray.from_arrays(index, self.device.dictionary),
            "boot": pa.array(self.boot[unit].astype(np.int32)),
        }


def reader_table(table: str, columns: dict[str, Any], units: Units) -> pa.Table:
    """Columns of `fold` as rows of a reader's table; `unit` stands for device and boot."""
    unit = columns["unit"]
    named = {**columns, **units.columns(unit)}
    if table == "traffic":
        named["unit"] = named.pop("measure")
    if table == "messages":
        named["message"] = _hex(columns["message"])
        named["event"] = pa.DictionaryArray.from_arrays(
            columns["event"].astype(np.int32), _EVENT_NAMES
        )
    schema = TABLES[table]
    arrays = [array_of(named.get(field.name), field.type, len(unit)) for field in schema]
    return pa.Table.from_arrays(arrays, names=schema.names).cast(schema)


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


def array_of(values: Any, kind: pa.DataType, rows: int) -> pa.Array:  # noqa: ANN401
    """A column of a type; text becomes a dictionary, NONE a null, None a column of nulls."""
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_list(kind):
        flat = values.reshape(-1)
        offsets = np.arange(rows + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(
            pa.array(offsets), array_of(flat, kind.value_type, len(flat))
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
