"""Spark SQL over the tables of a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from drupelet_tools.telemetry import session
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.lake import TABLES, Lake, open_lake

ROWS_MAX = 10_000  # what a terminal can want; larger results are for a job of one's own


def run(statement: str, lake: Path, master: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and at most ROWS_MAX rows of a statement.

    Raises:
        TelemetryError: no lake, an empty one, or Spark refuses the statement.
    """
    state = open_lake(lake.resolve())
    if not state.parts:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    running = session.start_early(master)
    try:
        return select(running.wait(), state, statement)
    finally:
        running.stop(graceful=False)


def select(
    spark: SparkSession, lake: Lake, statement: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a statement in a session that is there already."""
    register(spark, lake)
    try:
        frame = spark.sql(statement).limit(ROWS_MAX)
        return frame.columns, [tuple(row) for row in frame.collect()]
    except PySparkException as refused:
        told = str(refused).strip().splitlines()
        raise TelemetryError(f"query: {told[0] if told else type(refused).__name__}") from None


def register(spark: SparkSession, lake: Lake) -> None:
    """Make a view of each table; rows that no longer count are left out."""
    for table in TABLES:
        _view(spark, lake, table).createOrReplaceTempView(table)
    devices: pa.Table = lake.read_devices()
    spark.createDataFrame(devices).createOrReplaceTempView("devices")


def _view(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    whole = [part for part in lake.parts if len(part.live) == len(part.devices)]
    frames = []
    if whole:
        frames.append(spark.read.parquet(*(str(lake.root / part.path(table)) for part in whole)))
    for part in lake.parts:
        if part not in whole:
            frame = spark.read.parquet(str(lake.root / part.path(table)))
            frames.append(frame.where(frame["device"].isin(part.live)))
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    return union
