"""Spark SQL over the tables of a lake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession, functions

from drupelet_host.base.local_path import local_path
from drupelet_tools.telemetry import session
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.lake import Lake, open_lake
from drupelet_tools.telemetry.schemas import BOOT_TABLES, TABLES, WALL_TABLES

# What only looks. A query is run as a subquery, which the grammar does not let write; the others
# are statements of their own, none of which changes anything.
QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
READING = (*QUERIES, "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
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


def run(statement: str, lake: Path, cluster: session.Cluster) -> Found:
    """What a statement finds.

    Raises:
        TelemetryError: not a query, no lake, an empty one, or Spark refuses the statement.
    """
    looking(statement)
    state = open_lake(local_path(lake).resolve())
    if not state.parts:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    running = session.connect(cluster)
    try:
        return select(running.wait(), state, statement)
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


def select(spark: SparkSession, lake: Lake, statement: str) -> Found:
    """Run a statement in a session that is there already.

    Raises:
        TelemetryError: not a query, a part of the lake cannot be read, or Spark refuses the
            statement.
    """
    # It prints the plan and a Java stack for every name that is not there.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    asked = looking(statement)
    try:
        register(spark, lake)
        frame = spark.sql(asked).limit(ROWS_MAX + 1)
        rows = [tuple(row) for row in frame.collect()]
        return Found(frame.columns, rows[:ROWS_MAX], len(rows) > ROWS_MAX)
    except (PySparkException, Py4JError) as refused:
        lake.check()
        java = getattr(refused, "java_exception", None)
        text = str(refused if java is None else java.toString()).strip()
        first_line = (text.splitlines() or [type(refused).__name__])[0]
        raise TelemetryError(f"query: {first_line.rstrip(';')}") from None


def register(spark: SparkSession, lake: Lake) -> None:
    """Make a view of each table; rows that no longer count are left out."""
    for table in TABLES:
        _view(spark, lake, table).createOrReplaceTempView(table)
    spark.createDataFrame(lake.read_devices()).createOrReplaceTempView("devices")


def _view(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    """The rows of a table that count, as `Lake.read` gives them."""
    if table == "clocks":
        frames = [spark.read.parquet(str(lake.root / lake.clocks))] if lake.clocks else []
    else:
        frames = _frames(spark, lake, table)
    if not frames:
        return spark.createDataFrame(TABLES[table].empty_table())
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    if table in WALL_TABLES and lake.clocks:
        return _with_clocks(union, spark.read.parquet(str(lake.root / lake.clocks)))
    return union


def _frames(spark: SparkSession, lake: Lake, table: str) -> list[DataFrame]:
    """One frame for the parts that count whole, and one for each that does not."""
    whole = []
    frames = []
    for at, part in enumerate(lake.parts):
        if not part.has(table):
            continue
        path = str(lake.root / part.path(table))
        gone = lake.renewed_after(at) if table in BOOT_TABLES else None
        if gone is None or gone.num_rows == 0:
            whole.append(path)
        else:
            boots = spark.createDataFrame(gone)
            frames.append(spark.read.parquet(path).join(boots, ["device", "boot"], "left_anti"))
    if whole:
        frames.insert(0, spark.read.parquet(*whole))
    return frames


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
