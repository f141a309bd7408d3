"""Rows of `hours` to rows of `days`: by UTC day, or by day of the boot where no clock tells.

An hour of a boot counts whole, in the day in which its middle lies.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.blackbox.decode import NONE, Ints
from drupelet_tools.telemetry.tables.columns import array_of
from drupelet_tools.telemetry.tables.hour_bins import HOUR_MS, latest, lowest
from drupelet_tools.telemetry.tables.schemas import HOUR_SUMS, TABLES

DAY_HOURS = 24
DAY_MS = DAY_HOURS * HOUR_MS
_NAMES = ("carrier", "direction", "kind", "unit")


def day_table(hours: pa.Table) -> pa.Table:
    """The rows of `days` of whole devices, in order of device and day."""
    if hours.num_rows == 0:
        return TABLES["days"].empty_table()
    coded = pc.rank(hours["device"].cast(pa.string()), tiebreaker="dense")
    device, wall_ms = _whole(coded), _whole(hours["wall_ms"])
    has_clock = wall_ms != NONE
    middle = np.where(has_clock, wall_ms, 0) + HOUR_MS // 2
    day_ms = np.where(has_clock, middle // DAY_MS * DAY_MS, NONE)
    boot = np.where(has_clock, NONE, _whole(hours["boot"]))
    boot_day = np.where(has_clock, NONE, _whole(hours["hour"]) // DAY_HOURS)
    keys = (_whole(hours["hour"]), _whole(hours["boot"]), wall_ms, boot_day, boot, day_ms, device)
    order = np.lexsort(keys)
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[:1] = True
    for key in keys[3:]:
        is_first[1:] |= key[order][1:] != key[order][:-1]
    begins = np.flatnonzero(is_first)
    hours, place, rows = hours.take(pa.array(order)), np.cumsum(is_first) - 1, len(begins)
    first = order[begins]
    columns = {
        "boot": boot[first],
        "boot_day": boot_day[first],
        "wall_ms": day_ms[first],
        "hours": np.diff(np.append(begins, len(order))),
        **{name: np.add.reduceat(_whole(hours[name]), begins) for name in HOUR_SUMS},
        "wall_uncertainty_ms": np.maximum.reduceat(_whole(hours["wall_uncertainty_ms"]), begins),
        "battery_first_mv": latest(place[::-1], _whole(hours["battery_first_mv"])[::-1], rows),
        "battery_last_mv": latest(place, _whole(hours["battery_last_mv"]), rows),
        "battery_low_mv": lowest(place, _whole(hours["battery_low_mv"]), rows),
        "heap_low": lowest(place, _whole(hours["heap_low"]), rows),
    }
    arrays = {
        "device": hours["device"].take(pa.array(begins)).combine_chunks().cast(pa.string()),
        "traffic": _traffic(hours["traffic"], place, rows),
        **{name: array_of(values, pa.int64(), rows) for name, values in columns.items()},
    }
    schema = TABLES["days"]
    return pa.Table.from_arrays(
        [arrays[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )


def _traffic(lists: pa.ChunkedArray, place: Ints, rows: int) -> pa.Array:
    """The sums of the lists that lie in each row."""
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    items = pa.chunked_array([pc.list_flatten(lists).combine_chunks()])
    flat = pa.table({name: pc.struct_field(items, name) for name in (*_NAMES, "value")})
    flat = flat.append_column("row", pa.array(np.repeat(place, length)))
    sums = flat.group_by(["row", *_NAMES]).aggregate([("value", "sum")])
    sums = sums.sort_by([(name, "ascending") for name in ("row", *_NAMES)]).combine_chunks()
    offsets = np.searchsorted(sums["row"].to_numpy(), np.arange(rows + 1)).astype(np.int32)
    columns = [sums[name].combine_chunks() for name in (*_NAMES, "value_sum")]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(columns, names=[*_NAMES, "value"])
    )


def _whole(column: pa.ChunkedArray | pa.Array) -> Ints:
    values: Ints = pc.fill_null(pc.cast(column, pa.int64()), NONE).to_numpy()
    return values
