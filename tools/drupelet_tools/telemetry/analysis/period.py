"""What devices did in a period, in those tables that `figures` reads.

A bin counts in the period in which its middle lies: an hour of a boot or, of a device whose rows
were imported and so have no hours, a whole boot. Which messages count says `group_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.analysis.group_costs import Period
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake.delta import Lake, fill_wall
from drupelet_tools.telemetry.tables.hour_bins import HOUR_MS
from drupelet_tools.telemetry.tables.schemas import STATE_COLUMNS, TABLES

Boot = tuple[str, int]

_BOOT = ("device", "boot")
_CELL = ("carrier", "direction", "kind", "unit")
_COUNTED = ("boots", *STATE_COLUMNS, *codes.HEALTH_COUNTERS.values())
_OF_BOOTS = ("state_time", "traffic", "health")


@dataclass(frozen=True, slots=True)
class PeriodHours:
    """The hours of each period by boot: `sums` (device, boot, _COUNTED, and how many `hours`) and
    `traffic` (the columns of the table of that name)."""

    periods: tuple[Period, ...]
    sums: list[pa.Table]
    traffic: list[pa.Table]
    imported: Collection[str]  # devices that were added as rows, and have no hours

    def of(self, devices: pa.Array) -> PeriodHours:
        """Those of some devices."""
        return PeriodHours(
            self.periods,
            [rows.filter(pc.is_in(rows["device"], devices)) for rows in self.sums],
            [rows.filter(pc.is_in(rows["device"], devices)) for rows in self.traffic],
            set(self.imported) & set(devices.to_pylist()),
        )


def read_hours(lake: Lake, periods: tuple[Period, ...]) -> PeriodHours:
    """The hours of a lake, summed up.

    They are read some devices at a time, so memory depends on those and on the number of boots.
    """
    parts = [[summed(TABLES["hours"].empty_table(), period)] for period in periods]
    for hours in lake.each("hours", TABLES["hours"].names):
        timed = fill_wall(hours, lake.clocks)
        for period, own in zip(periods, parts, strict=True):
            own.append(summed(timed, period))
    sums, traffic = (
        [pa.concat_tables([each[at] for each in own]) for own in parts] for at in range(2)
    )
    return PeriodHours(periods, sums, traffic, lake.imported())


def summed(hours: pa.Table, period: Period) -> tuple[pa.Table, pa.Table]:
    """Of rows of `hours` those of a period, as `PeriodHours` has them: sums and traffic."""
    middle_ms = pc.add(pc.cast(hours["wall_ms"], pa.float64()), HOUR_MS / 2).to_numpy()
    own = hours.filter(pa.array(period.has(middle_ms)))
    sums = own.group_by([*_BOOT]).aggregate(
        [*((name, "sum") for name in _COUNTED), ([], "count_all")]
    )
    lists = own["traffic"].combine_chunks()
    cells = own.select([*_BOOT]).take(pc.list_parent_indices(lists))
    for name in (*_CELL, "value"):
        cells = cells.append_column(name, pc.struct_field(pc.list_flatten(lists), name))
    traffic = cells.group_by([*_BOOT, *_CELL]).aggregate([("value", "sum")])
    return (
        sums.rename_columns([*_BOOT, *_COUNTED, "hours"]),
        traffic.rename_columns([*_BOOT, *_CELL, "value"]).cast(TABLES["traffic"]),
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

    `sums` and `traffic` are those of the period; `whole_boots` are the boots of imported devices
    in it. Tables that say when a device was heard and how its battery fares are the same for
    every period.
    """

    def __init__(
        self, lake: Lake, sums: pa.Table, traffic: pa.Table, whole_boots: Collection[Boot]
    ) -> None:
        self.lake = lake
        self.sums = sums
        self.traffic = traffic
        self.whole_boots = pa.array([f"{name}/{boot}" for name, boot in whole_boots], pa.string())
        names = {*sums["device"].to_pylist(), *(device for device, _ in whole_boots)}
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
        own = self.traffic if table == "traffic" else self._state_time()
        return pa.concat_tables([own.cast(rows.schema), imported])

    def _state_time(self) -> pa.Table:
        sums = self.sums
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
        sums = self.sums
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
