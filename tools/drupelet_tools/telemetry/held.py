"""What the lake has of boots that have news: read back, so that only the news is decoded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet.base.limits import BOX_BLOCKS_MAX
from drupelet_tools.telemetry import codes, decode
from drupelet_tools.telemetry.columns import Units
from drupelet_tools.telemetry.decode import NONE, Chunk, Ints
from drupelet_tools.telemetry.lake import Lake
from drupelet_tools.telemetry.partials import (
    COUNTERS,
    STATES,
    Families,
    Happenings,
    Partials,
    Sums,
)

_EVENTS = pa.array([codes.MESSAGE_EVENTS.get(code, "") for code in range(10, 18)])
_DIGITS = 8  # of a message's number


class Held:
    """The lake's rows of those boots of a group that it has, as if they came from a chunk."""

    def __init__(self, lake: Lake, units: Units, renewed: Ints) -> None:
        self._lake = lake
        at = renewed - units.first
        self._mine = pa.table(
            {
                "device": units.device.take(pa.array(at)).cast(pa.string()),
                "boot": pa.array(units.boot[at].astype(np.int32)),
                "unit": pa.array(renewed),
            }
        )
        families = _families(self._read("families"))
        self.sums = Sums(
            _partials(self._read("partials")),
            families,
            self._happenings("messages"),
            self._happenings("battery"),
            0,
        )
        self.units = np.unique(families.unit)
        keys = zip(families.unit.tolist(), families.number.tolist(), strict=True)
        self._row_of = {key: row for row, key in enumerate(keys)}

    def _read(self, table: str) -> pa.Table:
        """The rows of the group's boots with their unit, in order."""
        mine = pc.field("device").isin(pc.unique(self._mine["device"]))
        mine &= pc.field("boot").isin(pc.unique(self._mine["boot"]))
        rows = self._lake.read(table, where=mine)
        # The join carries row numbers only: it takes no lists.
        keys = rows.select(["device", "boot"]).append_column("row", pa.array(np.arange(len(rows))))
        pairs = keys.join(self._mine, ["device", "boot"], join_type="inner")
        found = rows.take(pairs["row"]).append_column("unit", pairs["unit"])
        order = [name for name in ("unit", "number", "number_from", "block_from", "boot_ms")
                 if name in found.column_names]  # fmt: skip
        return found.sort_by([(name, "ascending") for name in order])

    def _happenings(self, table: str) -> Happenings:
        rows = self._read(table)
        zeros = np.zeros(rows.num_rows, dtype=np.int64)
        if table == "battery":
            what, count, first, high = _ints(rows, "mv"), zeros, zeros, zeros
        else:
            kinds = pc.index_in(rows["event"], value_set=_EVENTS).to_numpy().astype(np.int64)
            what = _numbers(rows["message"]) << 11 | kinds << 8 | _ints(rows, "peer")
            count, first = _ints(rows, "count"), _ints(rows, "first_sends")
            high = np.maximum(_ints(rows, "sends_max"), _ints(rows, "group_tag"))
        unit, number = _ints(rows, "unit"), _ints(rows, "number")
        found = Happenings(unit, what, _ints(rows, "boot_ms"), number, count, first, high)
        return found.take(np.lexsort((found.time_ms, found.unit)))

    def compare(self, chunk: Chunk) -> None:
        """Leave out blocks that the lake has, and copies that contradict what it has."""
        entries = chunk.entries
        families = self.sums.families
        rows = np.array(
            [
                self._row_of.get(key, -1)
                for key in zip(entries.unit.tolist(), entries.number.tolist(), strict=True)
            ]
        )
        if not (rows >= 0).any():
            return
        while True:
            row = rows[chunk.owner]
            bit = families.good[np.maximum(row, 0)] >> chunk.position & 1
            known = (row >= 0) & (bit == 1)
            differs = known & (families.crcs[np.maximum(row, 0), chunk.position] != chunk.crcs)
            if not differs.any():
                decode.keep(chunk, ~known)
                return
            decode.leave_out(chunk, int(chunk.owner[differs][0]))


def _numbers(texts: pa.ChunkedArray) -> Ints:
    """Text of 8 hexadecimal digits as numbers."""
    whole = pc.cast(texts.cast(pa.binary()), pa.binary(_DIGITS)).combine_chunks()
    digits = np.frombuffer(whole.buffers()[1], np.uint8)[whole.offset * _DIGITS :]
    digits = digits[: len(whole) * _DIGITS].reshape(-1, _DIGITS).astype(np.int64)
    digits = np.where(digits >= ord("a"), digits - ord("a") + 10, digits - ord("0"))
    numbers: Ints = digits @ (1 << np.arange(28, -4, -4))
    return numbers


def _ints(rows: pa.Table, name: str) -> Ints:
    column = pc.cast(rows[name], pa.int64())
    whole: Ints = pc.fill_null(column, NONE).combine_chunks().to_numpy(zero_copy_only=False)
    return whole


def _matrix(rows: pa.Table, name: str, width: int) -> Ints:
    flat = pc.fill_null(pc.list_flatten(rows[name]), NONE)
    return np.asarray(flat.combine_chunks().to_numpy(zero_copy_only=False)).reshape(-1, width)


def _families(rows: pa.Table) -> Families:
    return Families(
        unit=_ints(rows, "unit"),
        number=_ints(rows, "number"),
        blocks=_ints(rows, "blocks"),
        good=_ints(rows, "good"),
        crcs=_matrix(rows, "crcs", BOX_BLOCKS_MAX).astype(np.uint32),
        copies=_ints(rows, "copies"),
        events=_ints(rows, "events"),
        first_ms=_ints(rows, "first_ms"),
        last_ms=_ints(rows, "last_ms"),
        offset_ms=_ints(rows, "offset_ms"),
        uncertainty_ms=_ints(rows, "uncertainty_ms"),
    )


def _partials(rows: pa.Table) -> Partials:
    counters = np.zeros((rows.num_rows, COUNTERS), dtype=np.int64)
    lengths = pc.list_value_length(rows["counter"]).to_numpy()
    row = np.repeat(np.arange(rows.num_rows), lengths)
    index = pc.list_flatten(rows["counter"]).to_numpy()
    counters[row, index] = pc.list_flatten(rows["counter_value"]).to_numpy()
    scalars = ("unit", "number_from", "block_from", "number_to", "block_to", "first_ms",
               "last_ms", "state_first_ms", "state_last", "counted_any_ms", "heap_low",
               "battery_first_mv", "battery_last_mv", "battery_low_mv", "reset_cause",
               "errors")  # fmt: skip
    return Partials(
        **{name: _ints(rows, name) for name in scalars},
        **{
            name: _matrix(rows, name, STATES)
            for name in ("state_ms", "after_own", "after_any", "counted_ms")
        },
        counters=counters,
        descriptors=_matrix(rows, "descriptors", max(codes.DESCRIPTOR_FIELDS) + 1),
    )
