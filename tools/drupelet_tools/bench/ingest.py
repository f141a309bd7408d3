"""`drupelet bench ingest`: black boxes to tables by Spark, beside plain numpy, polars, duckdb.

Each run is a process of its own over the same corpus; what the runs make must agree in rows and
sums. CPU seconds are of the whole process tree; starting a session, or importing, counts apart.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet_tools.bench import process_tree
from drupelet_tools.bench.columns import INGEST, Row
from drupelet_tools.bench.corpus_files import Corpus, write
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.table import Table, pick

ENGINES = ("numpy", "polars", "duckdb", "spark")
PACKS = 8
SMALL_FILES = 8_000
SMALL_FILE_EVENTS = 984  # three segments: 12 kB
DEVICES = 64
RUN_TIMEOUT_S = 3_600
BYTES_PER_EVENT = 13
# A lake, a corpus and what the others write.
ROOM_FACTOR = 2.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: the corpus size, engines, sizes for the marginal cost, what else."""

    events: int = 32_000_000
    engines: Sequence[str] = ENGINES
    scale: Sequence[int] = ()
    small: bool = True
    export: bool = True
    seed: int = 1


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per run.

    Raises:
        BenchError: no room on the disk, an engine fails, or engines disagree.
    """
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-ingest-") as folder:
        root = Path(folder)
        yield from _side_by_side(root, plan, say)
        for events in plan.scale:
            yield from _scaled(root, events, plan.seed, say)
        if plan.small:
            yield from _small_files(root, plan.seed, say)
        if plan.export:
            yield from _export(root, min(plan.events, 8_000_000), plan.seed, say)


def _side_by_side(root: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    corpus, made = _corpus(root, Corpus(plan.events, DEVICES, PACKS, seed=plan.seed), say)
    rows: list[Row] = []
    told: dict[str, list[list[int]]] = {}
    for engine in plan.engines:
        say(f"{engine}, {made['events']:,} events …")
        row, told[engine] = _run(root, engine, corpus, made)
        rows.append({"work": "tables", **row})
    first = plan.engines[0]
    for engine in plan.engines[1:]:
        if told[engine] != told[first]:
            raise BenchError(f"{engine} and {first} make different tables of the same bytes")
    plain = next((row["cpu_s"] for row in rows if row["engine"] == "numpy"), None)
    for row in rows:
        row["ratio_to_numpy"] = round(row["cpu_s"] / plain, 2) if plain else None
        yield row
    shutil.rmtree(corpus)


def _scaled(root: Path, events: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    corpus, made = _corpus(root, Corpus(events, DEVICES, PACKS, seed=seed), say)
    say(f"spark, {made['events']:,} events …")
    row, _ = _run(root, "spark", corpus, made)
    shutil.rmtree(corpus)
    yield {"work": "scale", **row, "ratio_to_numpy": None}


def _small_files(root: Path, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """The same bytes in 8 packs and in 8,000 files."""
    events = SMALL_FILES * SMALL_FILE_EVENTS
    for files in (PACKS, SMALL_FILES):
        corpus, made = _corpus(root, Corpus(events, DEVICES, files, seed=seed), say)
        say(f"spark, {made['files']:,} files …")
        row, _ = _run(root, "spark", corpus, made)
        shutil.rmtree(corpus)
        yield {"work": "files", **row, "ratio_to_numpy": None}


def _export(root: Path, events: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """The tables with and without every single event: the difference is the export."""
    corpus, made = _corpus(root, Corpus(events, DEVICES, PACKS, seed=seed), say)
    for engine, work in (("spark", "export, without"), ("spark-events", "export, with")):
        say(f"{engine}, {made['events']:,} events …")
        row, _ = _run(root, engine, corpus, made)
        yield {"work": work, **row, "engine": "spark", "ratio_to_numpy": None}
    shutil.rmtree(corpus)


def _corpus(
    root: Path, wanted: Corpus, say: Callable[[str], None]
) -> tuple[Path, dict[str, int]]:  # fmt: skip
    free = shutil.disk_usage(root).free
    need = int(wanted.events * BYTES_PER_EVENT * ROOM_FACTOR)
    if free < need:
        raise BenchError(
            f"{root}: {need >> 20:,} MB needed and {free >> 20:,} MB free:"
            f" fewer --events, or TMPDIR elsewhere"
        )
    say(f"corpus of {wanted.events:,} events …")
    out = root / "corpus"
    return out, write(out, wanted)


def _run(
    root: Path, engine: str, corpus: Path, made: dict[str, int]
) -> tuple[Row, list[list[int]]]:  # fmt: skip
    """One run in a process of its own; its row, and the digest of its tables."""
    out = root / "out"
    command = [sys.executable, "-m", "drupelet_tools.bench.ingest_engines", engine, corpus, out]
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "POLARS_MAX_THREADS": "2"},
    )
    peak = process_tree.Peak(process.pid)
    try:
        told, complaint = process.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BenchError(f"{engine}: not done in {RUN_TIMEOUT_S} s") from None
    finally:
        peak_mb = peak.stop()
    if process.returncode:
        lines = complaint.strip().splitlines() or ["no reason given"]
        raise BenchError(f"{engine}: {lines[-1]}")
    result: dict[str, Any] = json.loads(told.splitlines()[-1])
    if result["events"] != made["events"]:
        raise BenchError(f"{engine}: {result['events']:,} of {made['events']:,} events read")
    row = {
        "engine": engine,
        "events": made["events"],
        "files": made["files"],
        "cpu_s": round(result["cpu_s"], 2),
        "startup_cpu_s": round(result["startup_cpu_s"], 2),
        "wall_s": round(result["wall_s"], 2),
        "peak_mb": round(peak_mb),
        "us_per_event": round(result["cpu_s"] / made["events"] * 1e6, 4),
    }
    from drupelet_tools.bench.ingest_engines import digest

    sums = list(digest(out).values())
    shutil.rmtree(out)
    return row, sums


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table; CPU seconds depend on the machine, ratios less so."""
    names = " ".join(column.name for column in INGEST)
    return [Table("Black boxes to tables", pick(INGEST, names), rows)]
