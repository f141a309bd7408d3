"""`spark.read.format("drupelet")` and `readStream`: single events, straight from black boxes.

    source.register(spark)
    spark.read.format("drupelet").load("inbox").where("device = 'a0000001' AND code = 31")
    spark.readStream.format("drupelet").load("inbox")

For looking into logs and for streams; what makes tables of a fleet is the ingest. Both read with
the same functions. Options: `table` ("events", or "quarantine": the places that cannot be used),
`partitions` (4), and for streams `settle_ms` (1000: how long a file must have been left alone)
and `maxFilesPerTrigger` (files of a batch).
An agent's folder is read as the ingest reads it, by a batch only.

What a user got wrong is a DrupeletError of one line. Spark prints the traceback of its worker in
front of it, and nothing here can change that; its own switch leaves the traceback out
(docs/telemetry.md).

A batch gives each segment once, and so does a stream (`stream_offset`). Conditions are Spark's
work: it keeps what a source was asked to leave out and would leave it out of every later use of
the same frame.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, place
from drupelet_tools.telemetry.blackbox.decode import Chunk, Ints
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.files.changes import Changed, Inbox, is_as_it_was, is_gone, is_input
from drupelet_tools.telemetry.files.inputs import Listing
from drupelet_tools.telemetry.files.stream_offset import Key, Offset, content_key
from drupelet_tools.telemetry.intake import plan
from drupelet_tools.telemetry.lake.group_columns import GroupColumns
from drupelet_tools.telemetry.lake.worker import Files, read_chunks
from drupelet_tools.telemetry.tables import choose
from drupelet_tools.telemetry.tables.columns import event_columns
from drupelet_tools.telemetry.tables.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PARTITIONS = 4
SETTLE_MS = 1_000
MAX_FILES = "maxFilesPerTrigger"  # as Spark's own sources of files call it
# Spark asks up to 100 times a second. A look that takes longer than that, and finds nothing,
# takes this part of the time at most; a store elsewhere is listed every few seconds.
LOOK_FREE_S = 0.01
LOOKS_SHARE = 0.05
FAR_EVERY_S = 5.0
# Of a stream's batch: its offset names each of its segments, of which this holds 60,000 at most.
BATCH_BYTES_MAX = 32 << 20
# Of an option; a day in milliseconds is less.
_NUMBER_MAX = 100_000_000
# Nothing that is given lies in a lake of ours.
_NO_LAKE = Path("/no lake")


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(DrupeletSource)


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
        for path in _paths(dict(self.options)):
            if inputs.is_agent(path):
                raise TelemetryError(
                    f"{path}: a stream follows folders of black boxes and this is an agent's: use"
                    " spark.read, or a folder that drupelet export-telemetry writes"
                )
        return BoxStreamReader(dict(self.options))


def _table(options: Any) -> str:  # noqa: ANN401 - a mapping of Spark's own
    table = str(options.get("table", "events"))
    if table not in ("events", "quarantine"):
        raise TelemetryError(f"option table: {table!r} is not events or quarantine")
    return table


def _paths(options: dict[str, str]) -> list[Place]:
    listed = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        listed = [options["path"], *listed]
    if not listed:
        raise TelemetryError("drupelet: no path: load() wants files or folders of black boxes")
    return [place(path) for path in listed]


def _number(options: Mapping[str, str], name: str, default: int, low: int) -> int:
    text = str(options.get(name.lower(), default))  # Spark makes their names lower-case
    if not (text.isascii() and text.isdigit() and low <= int(text) <= _NUMBER_MAX):
        raise TelemetryError(
            f"option {name}: {text!r} is not a number from {low} to {_NUMBER_MAX:,}"
        )
    return int(text)


@dataclass
class Share(InputPartition):
    """What one task reads: entries as bytes of an Arrow file, and rows that are known already.

    `held` has the files that are on no disk, by their paths: segments in an agent's store.
    """

    entries: bytes = b""
    rows: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, bytes] = field(default_factory=dict)


def _shares(groups: list[pa.Table], exported: Path | None = None) -> list[Share]:
    """The groups as shares; files in the folder `exported`, which will be gone, are held."""
    shares = []
    for group in groups:
        buffer = pa.BufferOutputStream()
        kept = group.unify_dictionaries().combine_chunks()
        with pa.ipc.new_file(buffer, kept.schema) as out:
            out.write_table(kept)
        held = {}
        for path in map(Path, pc.unique(kept["file"]).to_pylist()):
            if exported is not None and path.is_relative_to(exported):
                held[str(path)] = path.read_bytes()
        shares.append(Share(buffer.getvalue().to_pybytes(), held=held))
    return shares


def read_share(share: InputPartition, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, a batch per chunk."""
    if not isinstance(share, Share):
        return  # there are none, and Spark wants to read one nevertheless
    if share.rows:
        yield from pa.Table.from_pylist(share.rows, schema=TABLES[table]).to_batches()
    if not share.entries:
        return
    group = GroupColumns(pa.ipc.open_file(share.entries).read_all())
    files = Files(share.held)
    try:
        for rows, chunk in read_chunks(group, files):
            table_of = _quarantine if table == "quarantine" else _events
            yield from table_of(group, rows, chunk).combine_chunks().to_batches()
    finally:
        files.close()


def _events(group: GroupColumns, rows: Ints, chunk: Chunk) -> pa.Table:
    columns = event_columns(chunk)
    entry = columns.pop("entry")
    at = pa.array(rows[entry])
    columns["device"] = group.device.take(at)
    columns["boot"] = group.boot[rows][entry].astype(np.int32)
    columns["number"] = group.number[rows][entry]
    schema = TABLES["events"]
    arrays = [pa.array(columns[name]) for name in schema.names if name != "device"]
    return pa.Table.from_arrays([columns["device"], *arrays], names=schema.names).cast(schema)


def _quarantine(group: GroupColumns, rows: Ints, chunk: Chunk) -> pa.Table:
    places = []
    for damage in chunk.damages:
        row = int(rows[damage.entry])
        number, offset = int(group.number[row]), int(group.offset[row])
        file = group.files[int(group.file_at[row])]
        if damage.block is not None:
            offset += BOX_HEADER_SIZE + damage.block * BLOCK_SIZE
        place = {"device": group.device[row].as_py(), "boot": int(group.boot[row])}
        place |= {"number": number, "block": damage.block, "file": file}
        places.append({**place, "offset": offset, "reason": damage.reason})
    return pa.Table.from_pylist(places, schema=TABLES["quarantine"])


class BoxReader(DataSourceReader):
    """Reads black boxes once."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Segments in groups of about equal size, a boot never split."""
        table, partitions = _table(self.options), _parallelism(self.options)
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder).resolve()
            _, files = inputs.export_and_find(_paths(self.options), exported, _NO_LAKE)
            work = plan.leave_far(plan.make_plan(inputs.scan(files), plan.NOTHING, partitions))
            shares = _shares(work.groups, exported)
        if table == "quarantine":
            shares.append(Share(rows=work.unnamed.quarantine))
        return shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition."""
        return read_share(partition, _table(self.options))


def _parallelism(options: dict[str, str]) -> int:
    return _number(options, "partitions", PARTITIONS, 1)


class BoxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives each segment once, as it comes; offsets are those of `stream_offset`.

    Of a segment that comes several times the longest copy counts of those that are there then.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._inbox: Inbox | None = None
        self._next_look_s = 0.0
        # Files with segments that were not given when they were looked at.
        self._held: dict[Place, tuple[Changed, Listing]] = {}
        self._frozen: list[Listing] | None = None  # with Trigger.AvailableNow: all that counts

    def __reduce__(self) -> tuple[Any, ...]:
        """Who reads a partition needs the options only."""
        return BoxStreamReader, (self.options,)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before the first segment."""
        return Offset().fields()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much of a backlog goes into one batch."""
        return ReadMaxBytes(BATCH_BYTES_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all that this query gives."""
        frozen = []
        inbox = self._looking()
        while changed := inbox.look():
            for one in changed:
                listing = _listing_of(one)
                if listing is not None:
                    frozen.append(listing)
            inbox.take(changed)
            if not inbox.has_more:
                break
        self._frozen = frozen

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """`start` with the next segments, those of files that were left alone long enough."""
        offset = Offset.of(start)
        offset.batch = {}
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 1 << 62
        files_max = _number(self.options, MAX_FILES, _NUMBER_MAX, 1)
        files: set[str] = set()
        for key, size, content, file in sorted(self._fresh(offset), key=_order):
            if offset.seen.has(key):
                continue  # another copy
            if key[2] - offset.seen.last(*key[:2]) > choose.NUMBER_GAP_MAX:
                continue
            if file not in files and len(files) >= files_max:
                continue
            room -= size
            if room < 0 and offset.batch:
                break
            files.add(file)
            offset.seen.add(key)
            offset.batch[key] = content
        return offset.fields() if offset.batch else start

    def _fresh(self, offset: Offset) -> list[tuple[Key, int, str, str]]:
        """Key, size, content key and file of each segment that was not given."""
        if self._frozen is not None:
            every = (row for listing in self._frozen for row in _segments(listing))
            return [row for row in every if not offset.seen.has(row[0])]
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return []
        inbox, began_s = self._looking(), time.thread_time()
        changed = inbox.look()
        spent_s = time.thread_time() - began_s
        rows: list[tuple[Key, int, str, str]] = []
        held: dict[Place, tuple[Changed, Listing]] = {}
        given = []
        for one in changed:
            listing = self._listing(one)
            own = []
            if listing is not None:
                own = [row for row in _segments(listing) if not offset.seen.has(row[0])]
            if listing is not None and own:
                rows += own
                held[one.path] = one, listing
            else:
                given.append(one)
        self._held = held
        inbox.take(given)
        if not changed and spent_s > LOOK_FREE_S:
            self._next_look_s = now_s + spent_s / LOOKS_SHARE
        return rows

    def _looking(self) -> Inbox:
        if self._inbox is None:
            settle_s = _number(self.options, "settle_ms", SETTLE_MS, 0) / 1000
            self._inbox = Inbox(_paths(self.options), _NO_LAKE, settle_s, FAR_EVERY_S)
        return self._inbox

    def _listing(self, one: Changed) -> Listing | None:
        """What is in a file, read again only where it changed; None as `_listing_of`."""
        held = self._held.get(one.path)
        if held is not None and held[0].state == one.state:
            return held[1]
        return _listing_of(one)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The segments of the batch that `end` names, in groups.

        Raises:
            TelemetryError: one of them is nowhere any more.
        """
        batch = Offset.of(end).batch if start != end else {}
        if not batch:
            return []
        holding = self._holding(batch)
        listing = inputs.scan(holding)
        missing = dict(batch)
        chosen = []
        rows = np.flatnonzero(listing.ok).tolist()
        for row, (key, _, content, _) in zip(rows, _segments(listing), strict=True):
            if missing.get(key) == content:
                del missing[key]
                chosen.append(row)
        if missing:
            device, boot, number = min(missing)
            raise TelemetryError(
                f"{len(missing):,} segments of a batch are gone from the stream's folders, first"
                f" number {number} of boot {boot} of {device}: put them back"
            )
        return _shares(plan.deal(listing, np.array(chosen), _parallelism(self.options)))

    def _holding(self, batch: dict[Key, str]) -> list[Place]:
        """Files with segments of a batch; those that were looked at for it come first."""
        missing = set(batch.items())
        holding = []
        for path, listing in self._listings():
            own = missing & {(key, content) for key, _, content, _ in _segments(listing)}
            if own:
                holding.append(path)
                missing -= own
            if not missing:
                break
        return holding

    def _listings(self) -> Iterator[tuple[Place, Listing]]:
        """What was looked at last, and then all files."""
        for path, (one, listing) in self._held.items():
            if is_as_it_was(one):
                yield path, listing
        try:
            files = inputs.find_files(_paths(self.options), _NO_LAKE)
        except TelemetryError:
            return  # nothing is there
        for path in files:
            yield path, inputs.scan([path])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition."""
        return read_share(partition, _table(self.options))


def _listing_of(one: Changed) -> Listing | None:
    """The heads in a file; None if it is gone, or is none that counts."""
    try:
        return inputs.scan([one.path]) if is_input(one) else None
    except TelemetryError:
        if is_gone(one):
            return None
        raise


def _order(row: tuple[Key, int, str, str]) -> tuple[Key, int, str, str]:
    return row[0], -row[1], row[2], row[3]


def _segments(listing: Listing) -> Iterator[tuple[Key, int, str, str]]:
    """Key, size, content key and file of each segment with a good header."""
    rows = np.flatnonzero(listing.ok)
    columns = (listing.boot, listing.number, listing.size, listing.header_crc, listing.first_crc,
               listing.file)  # fmt: skip
    names = inputs.names_of(listing.device[rows])
    for name, boot, number, size, header_crc, first_crc, file in zip(
        names, *(column[rows].tolist() for column in columns), strict=True
    ):
        content = content_key(size, header_crc, first_crc)
        yield (name, boot, number), size, content, listing.files[file]
