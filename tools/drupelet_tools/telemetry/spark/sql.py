"""Spark SQL over the tables of a lake."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, Remote, place
from drupelet_tools.telemetry.lake.delta import Lake, Share, fill_wall, open_lake
from drupelet_tools.telemetry.lake.piece_file import TABLE
from drupelet_tools.telemetry.spark import session
from drupelet_tools.telemetry.tables.days import day_table
from drupelet_tools.telemetry.tables.schemas import FILES, PIECE, TABLES, WALL_TABLES

Batches = Iterator[pa.RecordBatch]

# What only looks. A query is run as a subquery, which the grammar does not let write; the others
# are statements of their own, none of which changes anything.
QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
READING = (*QUERIES, "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
PIECES = "pieces"  # the view of what is stored
BATCH_ROWS = 1 << 16  # that a worker gives Spark at a time
ROWS_MAX = 10_000  # what a terminal can want; larger results are for a job of one's own
# A query can still run programs: by `TRANSFORM (…) USING '…'`, and any method of the JVM.
_GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
RUNNING = re.compile(
    rf"\bUSING{_GAP}r?['\"]|\b(?:try_reflect|reflect|java_method)`?{_GAP}\(",
    re.IGNORECASE | re.DOTALL,
)


class Found(NamedTuple):
    """Column names, at most ROWS_MAX rows, and whether there are more."""

    names: list[str]
    rows: list[tuple[Any, ...]]
    more: bool


def run(
    statement: str, lake: Place, cluster: session.Cluster, devices: Collection[str] = ()
) -> Found:
    """What a statement finds, in tables of some devices, by name or id, or of all.

    Raises:
        TelemetryError: not a query, no lake, an empty one, no such device, or Spark refuses the
            statement.
    """
    looking(statement)
    state = open_lake(place(lake).resolve())
    if state.is_empty:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    ids = state.ids_of(devices) if devices else None
    running = session.connect(cluster)
    try:
        return select(running.wait(), state, statement, ids)
    finally:
        running.stop(graceful=False)


def looking(statement: str) -> str:
    """The statement in a form that cannot write.

    Raises:
        TelemetryError: it is none that only looks.
    """
    word = re.match(r"[\s(]*(\w*)", statement)
    first = word[1].upper() if word else ""
    if first not in READING:
        raise TelemetryError(f"query: want a SELECT, or one of {', '.join(READING[1:])}")
    if RUNNING.search(statement):
        raise TelemetryError("query: runs a program (USING '…', reflect); want what only looks")
    if first not in QUERIES:
        return statement
    # A line of its own ends a comment before the bracket does.
    return "\n".join(("SELECT * FROM (", statement.strip().rstrip(";"), ")"))


def select(
    spark: SparkSession, lake: Lake, statement: str, devices: Collection[str] | None = None
) -> Found:
    """Run a statement in a session that is there already; `devices` are ids, None for all.

    Raises:
        TelemetryError: not a query, a part of the lake cannot be read, or Spark refuses the
            statement.
    """
    # It prints the plan and a Java stack for every name that is not there.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    asked = looking(statement)
    try:
        register(spark, lake, devices)
        frame = spark.sql(asked).limit(ROWS_MAX + 1)
        rows = [tuple(row) for row in frame.collect()]
        return Found(frame.columns, rows[:ROWS_MAX], len(rows) > ROWS_MAX)
    except (PySparkException, Py4JError) as refused:
        lake.check()
        java = getattr(refused, "java_exception", None)
        text = str(refused if java is None else java.toString()).strip()
        first_line = (text.splitlines() or [type(refused).__name__])[0]
        raise TelemetryError(f"query: {first_line.rstrip(';')}") from None


def register(spark: SparkSession, lake: Lake, devices: Collection[str] | None = None) -> None:
    """Make a view of each table, and `pieces` of what they are made of.

    `devices` are ids: without reading what is stored of others, the views have these only.
    """
    for table in TABLES:
        _view(spark, lake, table, devices).createOrReplaceTempView(table)
    pieces = _pieces(spark, lake)
    if devices is not None:
        pieces = pieces.where(functions.col("device").isin(*devices))
    pieces.createOrReplaceTempView(PIECES)
    spark.createDataFrame(lake.read_devices(devices)).createOrReplaceTempView("devices")


def _view(
    spark: SparkSession, lake: Lake, table: str, devices: Collection[str] | None
) -> DataFrame:
    """The rows of a table, as `Lake.read` gives them; workers put them together."""
    if table == "clocks":
        own = lake.clocks
        if devices is not None:
            own = own.filter(pc.is_in(own["device"], pa.array(list(devices), pa.string())))
        return spark.createDataFrame(own)
    foreign = spark.createDataFrame(lake.foreign(table, devices))
    clocks = lake.clocks if table == "days" else None
    shares = lake.shares() if devices is None else lake.shares_of(devices)
    union = _frame_of(spark, shares, table, TABLES[table], clocks).union(foreign)
    if table in WALL_TABLES and lake.clocks.num_rows:
        return _with_clocks(union, spark.createDataFrame(lake.clocks))
    return union


def _frame_of(
    spark: SparkSession,
    shares: list[Share],
    table: str,
    columns: pa.Schema,
    clocks: pa.Table | None = None,
) -> DataFrame:
    schema = from_arrow_schema(columns)
    if not shares:
        return _nothing(spark, schema)
    # One row per partition, and each task takes the share with its number.
    numbers = spark.range(0, len(shares), 1, len(shares))
    return numbers.mapInArrow(_worker_of(shares, table, clocks), schema)


def _worker_of(
    shares: list[Share], table: str, clocks: pa.Table | None
) -> Callable[[Batches], Batches]:
    """The function that each worker runs over the numbers of its shares."""

    def put_together(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                share = shares[number]
                if table == PIECES:
                    rows = share.pieces(FILES[PIECE].names)
                elif clocks is None:
                    rows = share.table(table)
                else:  # a day is a sum of hours whose wall times are settled
                    rows = day_table(fill_wall(share.table("hours"), clocks))
                yield from rows.to_batches(BATCH_ROWS)

    return put_together


def _pieces(spark: SparkSession, lake: Lake) -> DataFrame:
    """The pieces as they are stored; a session that knows Delta reads the table itself."""
    if isinstance(lake.root, Remote):  # Spark may have no connector for it; workers need none
        return _frame_of(spark, lake.shares(), PIECES, FILES[PIECE])
    try:
        frame = spark.read.format("delta").option("versionAsOf", lake.version)
        stored = frame.load(str(lake.root / TABLE)).where(f"kind = '{PIECE}'")
        return stored.select(FILES[PIECE].names)
    except (PySparkException, Py4JError):
        schema = from_arrow_schema(FILES[PIECE])
        paths = lake.paths(PIECE)
        return spark.read.schema(schema).parquet(*paths) if paths else _nothing(spark, schema)


def _nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    return spark.createDataFrame([], schema)


def _with_clocks(frame: DataFrame, clocks: DataFrame) -> DataFrame:
    """Wall times by `clocks`, for the boots that it names."""
    told = clocks.select(
        "device",
        "boot",
        functions.col("wall_offset_ms").alias("_offset"),
        functions.col("wall_uncertainty_ms").alias("_spread"),
        functions.col("source").alias("_from"),
        functions.col("jumps").alias("_jumps"),
    )
    joined = frame.join(functions.broadcast(told), ["device", "boot"], "left_outer")
    fresh = {
        "wall_ms": functions.expr("boot_ms + _offset") if "boot_ms" in frame.columns else None,
        "wall_offset_ms": functions.col("_offset"),
        "wall_source": functions.col("_from"),
        "clock_jump": functions.expr("_jumps > 0"),
        "wall_uncertainty_ms": functions.col("_spread"),
    }
    named = functions.col("_jumps").isNotNull()
    columns = []
    for name in frame.columns:
        new = fresh.get(name)
        old = functions.col(name)
        columns.append(
            old if new is None else functions.when(named, new).otherwise(old).alias(name)
        )
    return joined.select(*columns)
