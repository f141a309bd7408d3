"""What devices did in a period, in those tables that `figures` reads.

A bin counts in the period in which its middle lies: an hour of a boot or, of a device whose rows
were imported and so have no hours, a whole boot. Which messages count says `analyses_groups`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.analyses_groups import Period
from drupelet_tools.telemetry.hour_bins import HOUR_MS
from drupelet_tools.telemetry.lake import Lake, fill_wall
from drupelet_tools.telemetry.schemas import STATE_COLUMNS, TABLES

Boot = tuple[str, int]

_BOOT = ("device", "boot")
_CELL = ("carrier", "direction", "kind", "unit")
_COUNTED = ("boots", *STATE_COLUMNS, *codes.HEALTH_COUNTERS.values())
_OF_BOOTS = ("state_time", "traffic", "health")


@dataclass(frozen=True, slots=True)
class HourSums:
    """The sums of a period's hours by boot, and of their traffic by boot, carrier and kind."""

    sums: pa.Table  # device, boot, _COUNTED, and `hours`: how many there are
    traffic: pa.Table  # the columns of the table of that name

    def of(self, devices: pa.Array) -> HourSums:
        """Those of some devices."""
        return HourSums(
            *(rows.filter(pc.is_in(rows["device"], devices)) for rows in (self.sums, self.traffic))
        )


class LakeHours:
    """The hours of a lake, or of some devices of one, summed up by period.

    They are read some devices at a time, so memory depends on those and on the number of boots;
    and they are read once for the same periods, however many parts of a fleet ask.
    """

    def __init__(self, lake: Lake, devices: pa.Array | None = None) -> None:
        self.lake = lake
        self.devices = devices
        self._sums: dict[tuple[Period, ...], list[HourSums]] = {}

    def imported(self) -> set[str]:
        """Devices that were added as rows, and have no hours."""
        return self.lake.imported()

    def sums(self, *periods: Period) -> list[HourSums]:
        """The sums of each period."""
        if periods not in self._sums:
            self._sums[periods] = self._read(periods)
        return self._sums[periods]

    def _read(self, periods: tuple[Period, ...]) -> list[HourSums]:
        parts: list[list[HourSums]] = [[_summed(TABLES["hours"].empty_table())] for _ in periods]
        for hours in self.lake.each("hours", TABLES["hours"].names):
            own = hours
            if self.devices is not None:
                own = hours.filter(pc.is_in(hours["device"], self.devices))
            own = fill_wall(own, self.lake.clocks)
            middle_ms = pc.add(pc.cast(own["wall_ms"], pa.float64()), HOUR_MS / 2).to_numpy()
            for period, sums in zip(periods, parts, strict=True):
                sums.append(_summed(own.filter(pa.array(period.has(middle_ms)))))
        return [_joined(sums) for sums in parts]


def _summed(hours: pa.Table) -> HourSums:
    sums = hours.group_by([*_BOOT]).aggregate(
        [*((name, "sum") for name in _COUNTED), ([], "count_all")]
    )
    lists = hours["traffic"]
    parent = pc.list_parent_indices(lists.combine_chunks())
    items = pc.list_flatten(lists).combine_chunks()
    cells = hours.select([*_BOOT]).take(parent)
    for name in (*_CELL, "value"):
        cells = cells.append_column(name, pc.struct_field(items, name))
    traffic = cells.group_by([*_BOOT, *_CELL]).aggregate([("value", "sum")])
    return HourSums(
        sums.rename_columns([*_BOOT, *_COUNTED, "hours"]),
        traffic.rename_columns([*_BOOT, *_CELL, "value"]).cast(TABLES["traffic"]),
    )


def _joined(parts: list[HourSums]) -> HourSums:
    return HourSums(
        pa.concat_tables([part.sums for part in parts]),
        pa.concat_tables([part.traffic for part in parts]),
    )


def boot_spans(lake: Lake, devices: Collection[str]) -> dict[Boot, tuple[float, float]]:
    """Start and end of each boot of some devices by wall clock, where that is known."""
    spans: dict[Boot, tuple[float, float]] = {}
    columns = (*_BOOT, "wall_offset_ms", "first_ms", "last_ms")
    rows = lake.read("segments", where=pc.field("device").isin(list(devices))).select(columns)
    for device, boot, offset, first, last in zip(*rows.to_pydict().values(), strict=True):
        if None not in (offset, first, last):
            start, end = spans.get((device, boot), (math.inf, -math.inf))
            spans[device, boot] = min(start, offset + first), max(end, offset + last)
    return spans


class PeriodView:
    """A lake with what its boots did in a period; it has the two methods that `figures` calls.

    `sums` are those of the period; `whole_boots` are the boots of imported devices in it. Tables
    that say when a device was heard and how its battery fares are the same for every period.
    """

    def __init__(self, lake: Lake, sums: HourSums, whole_boots: Collection[Boot]) -> None:
        self.lake = lake
        self.hours = sums
        self.whole_boots = pa.array([f"{name}/{boot}" for name, boot in whole_boots], pa.string())
        names = {*sums.sums["device"].to_pylist(), *(device for device, _ in whole_boots)}
        self.devices = pa.array(sorted(names), pa.string())

    def read(self, table: str) -> pa.Table:
        """Rows of a table."""
        rows = self.lake.read(table)
        if table == "messages":
            return rows
        if table not in _OF_BOOTS:
            return rows.filter(pc.is_in(rows["device"], self.devices))
        imported = rows.filter(pc.is_in(_key(rows), self.whole_boots))
        if table == "health":
            return pa.concat_tables([self._health(rows), imported])
        own = self.hours.traffic if table == "traffic" else self._state_time()
        return pa.concat_tables([own.cast(rows.schema), imported])

    def _state_time(self) -> pa.Table:
        sums = self.hours.sums
        tables = []
        for state, column in enumerate(STATE_COLUMNS):
            own = sums.filter(pc.greater(sums[column], 0))
            facts = {
                "state": pa.array(np.full(len(own), state)),
                "name": pa.array([codes.STATES[state]] * len(own), pa.string()),
                "ms": own[column],
                "source": pa.array(["hours"] * len(own), pa.string()),
            }
            table = own.select([*_BOOT])
            for name, values in facts.items():
                table = table.append_column(name, values)
            tables.append(table.cast(TABLES["state_time"]))
        return pa.concat_tables(tables)

    def _health(self, rows: pa.Table) -> pa.Table:
        """The boots of the period with what they counted in it; only one that began in it has a
        cause of its reset."""
        sums = self.hours.sums
        own = rows.filter(pc.is_in(_key(rows), _key(sums)))
        sums = sums.take(pc.index_in(_key(own), _key(sums)))
        for name in codes.HEALTH_COUNTERS.values():
            own = own.set_column(own.schema.get_field_index(name), name, sums[name])
        cause = pc.if_else(pc.greater(sums["boots"], 0), own["reset_cause"], None)
        own = own.set_column(own.schema.get_field_index("reset_cause"), "reset_cause", cause)
        return own.cast(rows.schema)

    def read_devices(self) -> pa.Table:
        """The devices that were awake in the period."""
        rows = self.lake.read_devices()
        return rows.filter(pc.is_in(rows["device"], self.devices))

    @property
    def as_lake(self) -> Lake:
        """For `figures`, which only calls these two."""
        return cast("Lake", self)


def _key(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(rows["device"], pc.cast(rows["boot"], pa.string()), "/")
