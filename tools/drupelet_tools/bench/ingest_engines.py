"""One run of one engine over a corpus, as a process of its own: what it cost, as JSON.

    python -m drupelet_tools.bench.ingest_engines ENGINE CORPUS OUT

`numpy` runs the very functions of the ingest in one process, `spark` the same through a Spark
session; `polars` and `duckdb` make the same tables in their own way from the same bytes, which
numpy turns into columns for them. All write Parquet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drupelet.base.limits import BLOCK_SIZE
from drupelet_tools.bench import process_tree
from drupelet_tools.telemetry.blackbox import decode
from drupelet_tools.telemetry.blackbox.decode import BLOCK_REASONS
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake.plan import NOTHING, make_plan
from drupelet_tools.telemetry.lake.delta import open_lake
from drupelet_tools.telemetry.lake.group_columns import GroupColumns
from drupelet_tools.telemetry.lake.piece_file import TABLE
from drupelet_tools.telemetry.lake.worker import Files, read_chunks

SUMMARIES = ("segments", "state_time", "traffic", "messages", "battery", "health")
Digest = dict[str, list[int]]


def main() -> None:
    """Run one engine; print its cost and the figures that it returned."""
    engine, corpus, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    run, stop = ENGINES[engine](corpus, out)
    started_cpu, started = process_tree.cpu_s(os.getpid()), time.monotonic()
    try:
        figures = run()
        wall_s = time.monotonic() - started
        cpu_s = process_tree.cpu_s(os.getpid()) - started_cpu
    finally:
        stop()
    print(json.dumps({"startup_cpu_s": started_cpu, "cpu_s": cpu_s, "wall_s": wall_s, **figures}))


Run = tuple[Callable[[], dict[str, Any]], Callable[[], None]]


def _nothing() -> None:
    """Nothing to stop."""


def _numpy(corpus: Path, out: Path, events: bool = False) -> Run:
    from drupelet_tools.telemetry.intake import job

    return lambda: job.ingest([corpus], out, {}, None, events), _nothing


def _spark(corpus: Path, out: Path, events: bool = False) -> Run:
    from drupelet_tools.telemetry.intake import job
    from drupelet_tools.telemetry.spark import session

    running = session.start_early()
    spark = running.wait()
    return lambda: job.ingest([corpus], out, {}, spark, events), running.stop


def _spark_events(corpus: Path, out: Path) -> Run:
    return _spark(corpus, out, True)


def _numpy_events(corpus: Path, out: Path) -> Run:
    return _numpy(corpus, out, True)


# --- the same bytes as columns, for the engines that know no black boxes ---


def columns(corpus: Path) -> pa.Table:
    """Every event of a whole corpus in order of device, boot and time."""
    listing = inputs.scan(inputs.find_files([corpus], corpus / "no lake"))
    plan = make_plan(listing, NOTHING, 1)
    device_ids = pc.unique(
        pa.chunked_array([part for g in plan.groups for part in g["device"].chunks])
    )
    pieces = []
    for entries in plan.groups:
        group = GroupColumns(entries)
        devices = pc.index_in(entries["device"], value_set=device_ids).to_numpy()
        files = Files()
        for rows, chunk in read_chunks(group, files):
            assert not chunk.damages, BLOCK_REASONS
            pieces.append(_chunk_columns(chunk, devices[rows]))
        files.close()
    return pa.concat_tables(pieces)


def _chunk_columns(chunk: decode.Chunk, device: Any) -> pa.Table:  # noqa: ANN401
    words = chunk.blocks.view("<u4")
    count = (words[:, 0] >> 8 & 0xFF).astype(np.int64)
    t0 = words[:, 1].astype(np.int64) >> 16 | words[:, 2].astype(np.int64) << 16
    fields = words[:, 4 : BLOCK_SIZE // 4 - 1].reshape(-1, 41, 3)
    rows = fields[np.arange(41) < count[:, None]]
    block = np.repeat(np.arange(len(count)), count)
    entry = chunk.owner[block]
    return pa.table(
        {
            "device": device[entry].astype(np.uint16),
            "boot": chunk.entries.boot[entry].astype(np.uint16),
            "number": chunk.entries.number[entry].astype(np.uint32),
            "t": t0[block] + rows[:, 0],
            "code": (rows[:, 1] & 0xFF).astype(np.uint8),
            "a": (rows[:, 1] >> 8 & 0xFF).astype(np.uint8),
            "b": (rows[:, 1] >> 16).astype(np.uint16),
            "c": rows[:, 2].astype(np.uint32),
        }
    )


# Totals by counter, and behind the last counter what the power states say.
_SQL = {
    "segments": """SELECT device, boot, number, min(t) AS first_ms, max(t) AS last_ms,
        count(*) AS events FROM log GROUP BY ALL""",
    "state_time": """WITH ends AS (SELECT device, boot, max(t) AS last_ms,
          max(t) FILTER (code = 40 AND a < 8) AS since FROM log GROUP BY ALL),
        spells AS (SELECT device, boot, a, t,
          lead(t) OVER (PARTITION BY device, boot ORDER BY t) AS till FROM log WHERE code = 1),
        tails AS (SELECT device, boot, a, sum(greatest(coalesce(till, last_ms)
          - greatest(t, coalesce(since, 0)), 0)) AS ms FROM spells JOIN ends USING (device, boot)
          GROUP BY ALL),
        counted AS (SELECT device, boot, a, max((b::BIGINT << 32) + c) AS ms FROM log
          WHERE code = 40 AND a < 8 GROUP BY ALL)
        SELECT device, boot, a AS state, coalesce(counted.ms, 0) + coalesce(tails.ms, 0) AS ms
        FROM counted FULL JOIN tails USING (device, boot, a)
        WHERE coalesce(counted.ms, 0) + coalesce(tails.ms, 0) > 0""",
    "traffic": """SELECT device, boot, a, max((b::BIGINT << 32) + c) AS value FROM log
        WHERE code = 40 AND a >= 64 GROUP BY ALL HAVING max((b::BIGINT << 32) + c) > 0""",
    "messages": """SELECT device, boot, c AS message, code, a AS peer, min(t) AS boot_ms,
        count(*) AS count, max(CASE WHEN code = 13 THEN b ELSE 0 END) AS sends_max,
        count(*) FILTER (code IN (11, 13) AND b = 1) AS first_sends,
        nullif(max(CASE WHEN code IN (10, 15) THEN b ELSE 0 END), 0) AS group_tag
        FROM log WHERE code BETWEEN 10 AND 17 GROUP BY ALL""",
    "battery": "SELECT device, boot, t AS boot_ms, b AS mv FROM log WHERE code = 31",
    "health": """SELECT device, boot, max(t) AS last_ms, min(c) FILTER (code = 30) AS heap_low,
        min(b) FILTER (code = 31) AS battery_low_mv, count(*) FILTER (code = 33) AS errors,
        max(CASE WHEN code = 40 AND a = 11 THEN (b::BIGINT << 32) + c ELSE 0 END)
        AS messages_delivered
        FROM log GROUP BY ALL""",
}


def _duckdb(corpus: Path, out: Path) -> Run:
    import duckdb

    def run() -> dict[str, Any]:
        out.mkdir(parents=True)
        log = columns(corpus)
        with duckdb.connect() as database:
            database.execute("SET threads = 2")
            database.register("log", log)
            for table, statement in _SQL.items():
                target = out / f"{table}.parquet"
                database.execute(f"COPY ({statement}) TO '{target}' (COMPRESSION zstd)")
        return {"events": log.num_rows}

    return run, _nothing


def _polars(corpus: Path, out: Path) -> Run:
    import polars as pl

    def run() -> dict[str, Any]:
        out.mkdir(parents=True)
        whole = columns(corpus)
        log = pl.from_arrow(whole)
        assert isinstance(log, pl.DataFrame)
        for table, frame in _polars_tables(log).items():
            frame.collect().write_parquet(out / f"{table}.parquet", compression="zstd")
        return {"events": whole.num_rows}

    return run, _nothing


def _polars_tables(log: Any) -> dict[str, Any]:  # noqa: ANN401
    import polars as pl

    unit = ["device", "boot"]
    code, a, t = pl.col("code"), pl.col("a"), pl.col("t")
    value = pl.col("b").cast(pl.Int64) * 2**32 + pl.col("c")
    lazy = log.lazy()
    state_counter = (code == 40) & (a < 8)
    ends = lazy.group_by(unit).agg(
        t.max().alias("last"), t.filter(state_counter).max().alias("at")
    )
    spells = lazy.filter(code == 1).select(*unit, "a", "t", t.shift(-1).over(unit).alias("till"))
    tail = pl.col("till").fill_null(pl.col("last")) - pl.max_horizontal(
        "t", pl.col("at").fill_null(0)
    )
    tails = spells.join(ends, on=unit).group_by(*unit, "a").agg(tail.clip(0).sum().alias("tail"))
    counted = lazy.filter(state_counter).group_by(*unit, "a").agg(value.max().alias("ms"))
    state = counted.join(tails, on=[*unit, "a"], how="full", coalesce=True).select(
        *unit, a.alias("state"), pl.col("ms").fill_null(0) + pl.col("tail").fill_null(0)
    )
    b = pl.col("b")
    sends = pl.when(code == 13).then(b).otherwise(0).max()
    tag = b.filter(code.is_in([10, 15]) & (b > 0)).max()
    return {
        "segments": lazy.group_by(*unit, "number").agg(
            t.min().alias("first_ms"), t.max().alias("last_ms"), pl.len().alias("events")
        ),
        "state_time": state.filter(pl.col("ms") > 0),
        "traffic": lazy.filter((code == 40) & (a >= 64)).group_by(*unit, "a").agg(
            value.max().alias("value")
        ).filter(pl.col("value") > 0),
        "messages": lazy.filter(code.is_between(10, 17)).group_by(*unit, "c", "code", "a").agg(
            t.min().alias("boot_ms"), pl.len().alias("count"), sends.alias("sends_max"),
            (code.is_in([11, 13]) & (b == 1)).sum().alias("first_sends"), tag.alias("group_tag"),
        ),
        "battery": lazy.filter(code == 31).select(
            *unit, t.alias("boot_ms"), pl.col("b").alias("mv")
        ),
        "health": lazy.group_by(unit).agg(
            t.max().alias("last_ms"),
            pl.col("c").filter(code == 30).min().alias("heap_low"),
            pl.col("b").filter(code == 31).min().alias("battery_low_mv"),
            (code == 33).sum().alias("errors"),
            pl.when((code == 40) & (a == 11)).then(value).otherwise(0).max()
            .alias("messages_delivered"),
        ),
    }  # fmt: skip


# --- what was made, in numbers that must agree ---

_SUMMED = {
    "segments": ("first_ms", "last_ms", "events"),
    "state_time": ("state", "ms"),
    "traffic": ("value",),
    "messages": ("boot_ms", "count", "sends_max", "first_sends", "group_tag"),
    "battery": ("boot_ms", "mv"),
    "health": ("last_ms", "heap_low", "battery_low_mv", "errors", "messages_delivered"),
}


def digest(out: Path) -> Digest:
    """Rows and sums of each table of a lake, or of a folder of Parquet files."""
    sums_by_table: Digest = {}
    lake = open_lake(out) if (out / TABLE).is_dir() else None
    for table, names in _SUMMED.items():
        if lake is None:
            rows = pq.read_table(out / f"{table}.parquet", columns=list(names))
        else:
            rows = lake.read(table, list(names))
        if table == "state_time":
            # Only our own ingest has rows for time that no state accounts for.
            rows = rows.filter(pc.greater_equal(rows["state"], 0))
        sums = [pc.sum(pc.cast(rows[name], pa.int64())).as_py() for name in names]
        if table == "state_time":
            products = pc.multiply(pc.cast(rows["state"], pa.int64()), rows["ms"].cast(pa.int64()))
            sums.append(pc.sum(products).as_py())
        sums_by_table[table] = [rows.num_rows, *sums]
    return sums_by_table


ENGINES: dict[str, Callable[[Path, Path], Run]] = {
    "numpy": _numpy,
    "polars": _polars,
    "duckdb": _duckdb,
    "spark": _spark,
    "numpy-events": _numpy_events,
    "spark-events": _spark_events,
}

if __name__ == "__main__":
    main()
