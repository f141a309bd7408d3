"""`drupelet bench ingest`: black boxes to tables by Spark, beside plain numpy, polars, duckdb.

Each run is a process of its own over the same corpus; what the runs make must agree in rows and
sums. CPU seconds are of the whole process tree; starting a session, or importing, counts apart.
"""

from __future__ import annotations

import json
import shutil
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
from drupelet_tools.bench.ingest_claims import CLAIMS
from drupelet_tools.bench.table import Table, pick

ENGINES = ("numpy", "polars", "duckdb", "spark")
PACKS = 8
SMALL_FILES = 8_000
SMALL_FILE_EVENTS = 984  # three segments: 12 kB
DEVICES = 64
PEAKS = ("peak_mb", "jvm_mb")
# Sizes beside the side-by-side one's, in times of it: 8 M and 256 M events beside 32 M.
GROW = (0.25, 8)
RUN_TIMEOUT_S = 3_600
EXPORT_EVENTS_MAX = 8_000_000
BYTES_PER_EVENT = 13
# A lake, a corpus and what the others write.
ROOM_FACTOR = 2.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: the corpus size, engines, sizes for the marginal cost, what else.

    Of `repeats` runs the one with the least CPU counts: what else the machine does only adds.
    """

    events: int = 32_000_000
    engines: Sequence[str] = ENGINES
    scale: Sequence[int] = ()
    small: bool = True
    export: bool = True
    repeats: int = 2
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A run to do: an engine, its corpus with the counts of its parts, and its row's `work`."""

    work: str
    engine: str
    corpus: Path
    counts: dict[str, int]


# One run of an engine over a corpus: its row, and the digest of its tables.
Run = Callable[[Path, str, Path, dict[str, int]], tuple[Row, list[list[int]]]]


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per engine and corpus.

    Raises:
        BenchError: no room on the disk, an engine fails, or engines disagree.
    """
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-ingest-") as folder:
        root = Path(folder)
        yield from _side_by_side(root, plan, say)
        if plan.small:
            yield from _small_files(root, plan, say)
        if plan.export:
            yield from _export(root, plan, say)


def _side_by_side(root: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """All engines over one corpus, and Spark over those of other sizes."""
    corpora = {
        events: _corpus(root, Corpus(events, DEVICES, PACKS, seed=plan.seed), say)
        for events in sorted({plan.events, *plan.scale})
    }
    jobs = [Job("tables", engine, *corpora[plan.events]) for engine in plan.engines]
    jobs += [Job("scale", "spark", *corpora[events]) for events in sorted(plan.scale)]
    rows, digests = best_runs(root, jobs, plan.repeats, say)
    for corpus, _ in corpora.values():
        shutil.rmtree(corpus)
    # The digests of other sizes stand behind them.
    for engine, sums in zip(plan.engines, digests[: len(plan.engines)], strict=True):
        if sums != digests[0]:
            raise BenchError(
                f"{engine} and {plan.engines[0]} make different tables of the same bytes"
            )
    plain = next((row["cpu_s"] for row in rows if row["engine"] == "numpy"), None)
    for row in rows:
        if row["work"] == "tables" and plain:
            row["ratio_to_numpy"] = round(row["cpu_s"] / plain, 2)
        yield row


def _small_files(root: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """The same bytes in 8 packs and in 8,000 files."""
    events = SMALL_FILES * SMALL_FILE_EVENTS
    jobs = []
    for files in (PACKS, SMALL_FILES):
        wanted = Corpus(events, DEVICES, files, seed=plan.seed)
        jobs.append(Job("files", "spark", *_corpus(root, wanted, say)))
    rows, digests = best_runs(root, jobs, plan.repeats, say)
    for job in jobs:
        shutil.rmtree(job.corpus)
    if digests[0] != digests[1]:
        raise BenchError(f"{PACKS} packs and {SMALL_FILES:,} files give different tables")
    yield from rows


def _export(root: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """The tables with and without every single event: the difference is the export."""
    events = min(plan.events, EXPORT_EVENTS_MAX)
    corpus, counts = _corpus(root, Corpus(events, DEVICES, PACKS, seed=plan.seed), say)
    jobs = [Job("export, without", "spark", corpus, counts),
            Job("export, with", "spark-events", corpus, counts)]  # fmt: skip
    rows, _ = best_runs(root, jobs, plan.repeats, say)
    shutil.rmtree(corpus)
    for row in rows:
        yield {**row, "engine": "spark"}


def _run(
    root: Path, engine: str, corpus: Path, counts: dict[str, int]
) -> tuple[Row, list[list[int]]]:  # fmt: skip
    """One run in a process of its own; its row, and the digest of its tables."""
    out = root / "out"
    words = ("-m", "drupelet_tools.bench.ingest_engines", engine, corpus, out)
    command = [sys.executable, *map(str, words)]
    env = {"POLARS_MAX_THREADS": "2"}
    output, peak = process_tree.run(engine, command, env, RUN_TIMEOUT_S)
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    if result["events"] != counts["events"]:
        raise BenchError(f"{engine}: {result['events']:,} of {counts['events']:,} events read")
    row = {
        "engine": engine,
        "events": counts["events"],
        "files": counts["files"],
        "cpu_s": round(result["cpu_s"], 2),
        "startup_cpu_s": round(result["startup_cpu_s"], 2),
        "wall_s": round(result["wall_s"], 2),
        "peak_mb": round(peak.mb),
        "jvm_mb": round(peak.jvm_mb),
        "us_per_event": round(result["cpu_s"] / counts["events"] * 1e6, 4),
    }
    from drupelet_tools.bench.ingest_engines import digest

    sums = list(digest(out).values())
    shutil.rmtree(out)
    return row, sums


def best_runs(
    root: Path, jobs: Sequence[Job], repeats: int, say: Callable[[str], None], run: Run = _run
) -> tuple[list[Row], list[list[list[int]]]]:
    """For each job the run with the least CPU, the highest peak, and the digest of its tables.

    The jobs take turns, so that a busy spell of the machine affects all of them; `run` does one.
    """
    rows: list[Row] = [{}] * len(jobs)
    digests: list[list[list[int]]] = [[]] * len(jobs)
    for turn in range(repeats):
        for at, job in enumerate(jobs):
            size_text = f"{job.counts['events']:,} events, {job.counts['files']:,} files"
            say(f"{job.engine}, {size_text}, run {turn + 1} of {repeats} …")
            row, digests[at] = run(root, job.engine, job.corpus, job.counts)
            row = {"work": job.work, **row, "ratio_to_numpy": None}
            peaks = {name: max(row[name], rows[at].get(name, 0)) for name in PEAKS}
            if rows[at] and rows[at]["cpu_s"] <= row["cpu_s"]:
                row = rows[at]
            rows[at] = {**row, **peaks}
    return rows, digests


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
    out = root / f"corpus-{wanted.events}-{wanted.files}"
    return out, write(out, wanted)


def _digits(name: str, digits: int) -> Callable[[Row], str]:
    return lambda row: "-" if row[name] is None else f"{row[name]:,.{digits}f}"


_CELLS = {
    "ratio_to_numpy": _digits("ratio_to_numpy", 2),
    "us_per_event": _digits("us_per_event", 3),
}


def tables(rows: Sequence[Row], claims: Sequence[Row]) -> list[Table]:
    """The rows, and what they say of the claims; ratios depend less on the machine."""
    names = " ".join(column.name for column in INGEST)
    return [
        Table("Black boxes to tables", pick(INGEST, names), rows, _CELLS),
        Table("What it has to show", CLAIMS, claims),
    ]
