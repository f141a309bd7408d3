"""`spark.read.format("drupelet")` and `readStream`: single events, straight from black boxes.

    source.register(spark)
    spark.read.format("drupelet").load("inbox").where("device = 'a0000001' AND code = 31")
    spark.readStream.format("drupelet").load("inbox")

For looking into logs and for streams; what makes tables of a fleet is the ingest. Both read with
the same functions. Options: `table` ("events", or "quarantine": the places that cannot be used),
`partitions` (4), and for streams `settle_ms` (1000: how long a file must have been left alone).

A batch gives each segment once. A stream gives each file once; a segment that comes again in a
later file comes again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema

from drupelet.limits import BLOCK_SIZE, BOX_HEADER_SIZE
from drupelet_tools.telemetry import inputs
from drupelet_tools.telemetry.columns import event_columns
from drupelet_tools.telemetry.decode import Chunk, Ints
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.lake import Lake
from drupelet_tools.telemetry.plan import make_plan
from drupelet_tools.telemetry.schemas import TABLES
from drupelet_tools.telemetry.worker import Files, Plain, read_chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PARTITIONS = 4
SETTLE_MS = 1_000
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
# Columns that are known before anything is decoded.
_HEAD_COLUMNS = ("device", "boot", "number")


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(DrupeletSource)
    spark.conf.set(_PUSHDOWN, "true")


class DrupeletSource(DataSource):
    """The format `drupelet`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "drupelet"

    def schema(self) -> StructType:
        """Columns of the table that is asked for."""
        return from_arrow_schema(TABLES[_table(self.options)])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For `spark.read`."""
        return BoxReader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        """For `spark.readStream`."""
        return BoxStreamReader(dict(self.options))


def _table(options: Any) -> str:  # noqa: ANN401 - a mapping of Spark's own
    table = str(options.get("table", "events"))
    if table not in ("events", "quarantine"):
        raise TelemetryError(f"option table: {table!r} is not events or quarantine")
    return table


def _paths(options: dict[str, str]) -> list[Path]:
    listed = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        listed = [options["path"], *listed]
    if not listed:
        raise TelemetryError("drupelet: no path: load() wants files or folders of black boxes")
    return [Path(str(path).removeprefix("file:")) for path in listed]


@dataclass
class Share(InputPartition):
    """Entries of a partition, as bytes of an Arrow file."""

    entries: bytes


def _shares(files: list[Path], count: int, wanted: Sequence[Condition]) -> list[Share]:
    listing = inputs.scan(files)
    groups = make_plan(listing, Lake(Path()), count).groups
    found = []
    for group in groups:
        kept = group
        for condition in wanted:
            if condition.column in _HEAD_COLUMNS:
                kept = kept.filter(condition.holds(kept[condition.column]))
        if kept.num_rows:
            buffer = pa.BufferOutputStream()
            kept = kept.unify_dictionaries().combine_chunks()
            with pa.ipc.new_file(buffer, kept.schema) as out:
                out.write_table(kept)
            found.append(Share(buffer.getvalue().to_pybytes()))
    return found


@dataclass(frozen=True)
class Condition:
    """A filter of Spark's in a form that can be sent to workers."""

    column: str
    compare: str
    value: Any

    @classmethod
    def of(cls, wanted: Filter) -> Condition | None:
        """The condition, or None for a filter that is left to Spark."""
        path: tuple[str, ...] = getattr(wanted, "attribute", ())
        if len(path) != 1 or path[0] not in TABLES["events"].names:
            return None
        if isinstance(wanted, IsNotNull):
            return cls(path[0], "IsNotNull", None)
        if isinstance(wanted, In):
            return cls(path[0], "In", tuple(wanted.value))
        if type(wanted) in _COMPARE:
            return cls(path[0], type(wanted).__name__, getattr(wanted, "value", None))
        return None

    def holds(self, values: Any) -> Any:  # noqa: ANN401 - Arrow arrays
        """For which values it holds."""
        if self.compare == "IsNotNull":
            return pc.is_valid(values)
        if self.compare == "In":
            return pc.is_in(values, value_set=pa.array(self.value).cast(values.type))
        compare = next(one for kind, one in _COMPARE.items() if kind.__name__ == self.compare)
        return compare(values, pa.scalar(self.value).cast(values.type))


def read_share(
    share: InputPartition, table: str, wanted: Sequence[Condition]
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, a batch per chunk."""
    assert isinstance(share, Share)
    plain = Plain(pa.ipc.open_file(share.entries).read_all())
    files = Files()
    try:
        for rows, chunk, _ in read_chunks(plain, files):
            if table == "quarantine":
                found = _quarantine(plain, rows, chunk)
            else:
                found = _events(plain, rows, chunk, wanted)
            yield from found.combine_chunks().to_batches()
    finally:
        files.close()


def _events(plain: Plain, rows: Ints, chunk: Chunk, wanted: Sequence[Condition]) -> pa.Table:
    columns = event_columns(chunk)
    entry = columns.pop("entry")
    at = pa.array(rows[entry])
    columns["device"] = plain.device.take(at)
    columns["boot"] = plain.boot[rows][entry].astype(np.int32)
    columns["number"] = plain.number[rows][entry]
    schema = TABLES["events"]
    arrays = [pa.array(columns[name]) for name in schema.names if name != "device"]
    table = pa.Table.from_arrays(
        [columns["device"], *arrays], names=schema.names
    ).cast(schema)  # fmt: skip
    for condition in wanted:
        if condition.column not in _HEAD_COLUMNS:
            table = table.filter(condition.holds(table[condition.column]))
    return table


def _quarantine(plain: Plain, rows: Ints, chunk: Chunk) -> pa.Table:
    found = []
    for damage in chunk.damages:
        row = int(rows[damage.entry])
        _, number, file, offset = plain.place(row)
        if damage.block is not None:
            offset += BOX_HEADER_SIZE + damage.block * BLOCK_SIZE
        place = {"device": plain.device[row].as_py(), "boot": int(plain.boot[row])}
        place |= {"number": number, "block": damage.block, "file": file}
        found.append({**place, "offset": offset, "reason": damage.reason})
    return pa.Table.from_pylist(found, schema=TABLES["quarantine"])


class BoxReader(DataSourceReader):
    """Reads black boxes once; conditions on device, boot and number spare whole segments."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.wanted: list[Condition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what can be checked here; give back the rest."""
        for one in filters:
            condition = Condition.of(one) if _table(self.options) == "events" else None
            if condition is None:
                yield one
            else:
                self.wanted.append(condition)

    def partitions(self) -> Sequence[InputPartition]:
        """Segments in groups of about equal size, a boot never split."""
        files = inputs.find_files(_paths(self.options), Path("/no lake"))
        return _shares(files, int(self.options.get("partitions", PARTITIONS)), self.wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition."""
        return read_share(partition, _table(self.options), self.wanted)


class BoxStreamReader(DataSourceStreamReader):
    """Reads files as they come in; the offset is the change time and name of the last one."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before the first file."""
        return {"changed_ns": 0, "name": ""}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802, ANN401, ARG002
        """The newest file that has been left alone long enough."""
        settle_ms = int(self.options.get("settle_ms", SETTLE_MS))
        newest = time.time_ns() - settle_ms * 1_000_000
        settled = [place for place in self._places() if _key(start) < place and place[0] <= newest]
        if not settled:
            return start
        changed_ns, name = max(settled)
        return {"changed_ns": changed_ns, "name": name}

    def _places(self) -> list[tuple[int, str]]:
        try:
            files = inputs.find_files(_paths(self.options), Path("/no lake"))
        except TelemetryError:
            return []  # nothing has come yet
        found = []
        for file in files:
            try:
                found.append((file.stat().st_ctime_ns, str(file)))
            except OSError:
                continue  # taken away meanwhile
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files of a batch, in groups."""
        files = [
            Path(name)
            for changed_ns, name in sorted(self._places())
            if _key(start) < (changed_ns, name) <= _key(end)
        ]
        return _shares(files, int(self.options.get("partitions", PARTITIONS)), ())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition."""
        return read_share(partition, _table(self.options), ())


def _key(offset: dict[str, Any]) -> tuple[int, str]:
    return int(offset["changed_ns"]), str(offset["name"])
