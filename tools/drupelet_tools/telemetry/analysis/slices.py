"""The tables of a large fleet in temporary files, sorted out by slices of its devices.

A lake is in order of the devices' ids, the pages of a report are in order of their names. Every
part of the lake is read and settled once, and each process then finds its own devices' rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.analysis.group_costs import Period
from drupelet_tools.telemetry.analysis.period import PeriodHours, summed
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import reason
from drupelet_tools.telemetry.lake.delta import Lake, fill_wall
from drupelet_tools.telemetry.tables.schemas import TABLES, WALL_TABLES

# What `figures` and `attention` read.
READ = (
    "segments",
    "state_time",
    "traffic",
    "health",
    "quarantine",
    "battery",
    "clocks",
    "messages",
)
_CREATED = "created"  # the creations among the messages, of all devices
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(slots=True)
class Slices:
    """Where the rows of each slice lie; processes are handed it.

    `parts` are, by table, files with the slices of their batches in order.
    """

    folder: Path
    periods: tuple[Period, ...]
    imported: frozenset[str] = frozenset()
    parts: dict[str, list[tuple[Path, list[int]]]] = field(default_factory=dict)

    def read(self, table: str, number: int) -> pa.Table:
        """The rows of a table that are of a slice."""
        batches = []
        for path, numbers in self.parts[table]:
            if number in numbers:
                with pa.memory_map(str(path)) as file:
                    batches.append(pa.ipc.open_file(file).get_batch(numbers.index(number)))
        if not batches:
            path, _ = self.parts[table][0]
            with pa.memory_map(str(path)) as file:
                return pa.ipc.open_file(file).schema.empty_table()
        return pa.Table.from_batches(batches)

    def created(self, wanted: pc.Expression) -> pa.Table:
        """The creations of messages, of all devices, for which an expression holds."""
        tables = [TABLES["messages"].empty_table()]
        for path, _ in self.parts[_CREATED]:
            with pa.memory_map(str(path)) as file:
                tables.append(pa.ipc.open_file(file).read_all().filter(wanted))
        return pa.concat_tables(tables)

    def hours(self, number: int) -> PeriodHours:
        """The sums of a slice's hours in each period."""
        sums = [self.read(f"sums-{at}", number) for at in range(len(self.periods))]
        traffic = [self.read(f"traffic-{at}", number) for at in range(len(self.periods))]
        return PeriodHours(self.periods, sums, traffic, self.imported)


def write_slices(
    folder: Path, lake: Lake, slice_of: Mapping[str, int], periods: tuple[Period, ...]
) -> Slices:
    """Write the tables of a lake to a folder.

    Args:
        folder: an empty one.
        lake: the lake.
        slice_of: the slice of each device that counts.
        periods: of which the hours are summed up, too.

    Raises:
        TelemetryError: the lake cannot be read, or the folder not written.
    """
    slices = Slices(folder, periods, frozenset(lake.imported()))
    writer = _Writer(slices, slice_of)
    try:
        for share in lake.shares():
            for table in READ:
                if table != "clocks":
                    writer.add(table, _filled(lake, share.table(table), table))
            if periods:
                writer.add_hours(_filled(lake, share.table("hours"), "hours"))
        for table in READ:
            writer.add(table, lake.clocks if table == "clocks" else lake.foreign(table))
        writer.add_hours(TABLES["hours"].empty_table())  # so that their files are there
    except OSError as refused:
        raise TelemetryError(
            f"{folder}: cannot write temporary files: {reason(refused)}; make room there, or"
            " name another folder in TMPDIR"
        ) from None
    return slices


def _filled(lake: Lake, rows: pa.Table, table: str) -> pa.Table:
    return fill_wall(rows, lake.clocks) if table in WALL_TABLES else rows


class _Writer:
    """Writes tables, each in files of its own."""

    def __init__(self, slices: Slices, slice_of: Mapping[str, int]) -> None:
        self.slices = slices
        self.devices = pa.array(list(slice_of), pa.string())
        self.numbers = np.array(list(slice_of.values()), dtype=np.int64)

    def add(self, table: str, rows: pa.Table) -> None:
        """Write some rows: a batch for each slice."""
        if table == "messages":
            self._write(_CREATED, [rows.filter(pc.equal(rows["event"], "created"))], [0])
        at = pc.fill_null(pc.index_in(rows["device"], self.devices), -1).to_numpy()
        known = np.flatnonzero(at >= 0)
        number = self.numbers[at[known]]
        order = np.argsort(number, kind="stable")
        rows = rows.take(pa.array(known[order]))
        numbers, begins = np.unique(number[order], return_index=True)
        edges = [*begins.tolist(), len(rows)]
        parts = [rows.slice(low, high - low) for low, high in pairwise(edges)]
        self._write(table, parts or [rows], numbers.tolist())

    def add_hours(self, hours: pa.Table) -> None:
        """Write the sums of some hours in each period."""
        for at, period in enumerate(self.slices.periods):
            sums, traffic = summed(hours, period)
            self.add(f"sums-{at}", sums)
            self.add(f"traffic-{at}", traffic)

    def _write(self, table: str, parts: list[pa.Table], numbers: list[int]) -> None:
        paths = self.slices.parts.setdefault(table, [])
        path = self.slices.folder / f"{table}-{len(paths)}.arrow"
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, parts[0].schema, options=_COMPRESSED) as writer,
        ):
            for part in parts:
                for batch in part.combine_chunks().to_batches():
                    writer.write_batch(batch)
        paths.append((path, numbers))
