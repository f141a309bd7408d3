"""`drupelet bench ingest --robust`: killed, retried or on a cluster, the tables are the same.

A damaged corpus is taken in once, undisturbed. Then again with every process killed at random
points until one run gets through, by a Spark session whose workers are killed, and by a cluster
of processes. Every row of every table must be the same.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from drupelet_tools.bench import process_tree
from drupelet_tools.bench.columns import Row
from drupelet_tools.bench.corpus_files import Corpus, write
from drupelet_tools.bench.lake_content import content
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 20
CLUSTER = "local-cluster[2,1,1024]"
EVENTS = 200_000
RUNS_MAX = 10 * KILLS  # of a session whose workers are killed
AGAIN_MAX = 5  # a run may lose all tries of a task
Say = Callable[[str], None]


def measure(seed: int, say: Say) -> Iterator[Row]:
    """Yield a row per claim; `columns` are those of `ingest_claims.CLAIMS`."""
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-robust-") as folder:
        root = Path(folder)
        source = root / "in"
        write(source, Corpus(EVENTS, 16, 5, damage=True, seed=seed))
        started = time.monotonic()
        take_in(source, root / "whole")
        whole_s = time.monotonic() - started
        wanted = content(root / "whole")
        rng = random.Random(seed)
        say(f"killed {KILLS} times …")
        killed = kill_processes(source, root / "killed", whole_s, rng)
        yield compared(f"killed {killed} times at random points (-9)", wanted, root / "killed")
        say(f"{KILLS} workers of Spark killed …")
        yield _kill_workers(source, root / "workers", wanted, rng)
        say(f"{CLUSTER} …")
        running = session.start_early(CLUSTER)
        try:
            job.ingest([source], root / "cluster", {}, running.wait(), True)
        finally:
            running.stop()
        yield compared(CLUSTER, wanted, root / "cluster")


def take_in(source: Path, root: Path) -> None:
    """Ingest a corpus without Spark, events and all; a process of its own can run it."""
    job.ingest([source], root, {}, None, True)


def compared(claim: str, wanted: dict[str, pa.Table], root: Path) -> Row:
    """The row of a claim: whether a lake has exactly the wanted tables."""
    tables = content(root)
    differ = [table for table in wanted if not tables[table].equals(wanted[table])]
    rows = sum(table.num_rows for table in tables.values())
    figure = f"{', '.join(differ)} differ" if differ else f"{rows:,} rows identical"
    return {"claim": claim, "figure": figure, "limit": "identical", "kept": not differ}


def kill_processes(source: Path, root: Path, whole_s: float, rng: random.Random) -> int:
    """Kill an ingest KILLS times somewhere on its way, then let one run to its end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["drupelet_tools.telemetry.intake.job"])
    killed = 0
    for _ in range(KILLS * 3):
        if killed == KILLS:
            break
        child = context.Process(target=take_in, args=(source, root))
        child.start()
        time.sleep(rng.random() * whole_s)
        child.kill()
        child.join()
        if child.exitcode != -signal.SIGKILL:
            # It was done before: what is killed next begins anew.
            shutil.rmtree(root)
        else:
            killed += 1
    take_in(source, root)
    return killed


def _kill_workers(
    source: Path, root: Path, wanted: dict[str, pa.Table], rng: random.Random
) -> Row:  # fmt: skip
    """Ingest after ingest in one session, while a thread kills workers now and then."""
    running = session.start_early()
    ending = threading.Event()
    killed: list[int] = []
    killer = threading.Thread(target=_kill_now_and_then, args=(ending, killed, rng))
    try:
        spark = running.wait()
        killer.start()
        for at in range(RUNS_MAX):
            target = root / str(at)
            _until_done(source, target, spark)
            claim = f"{len(killed)} workers of a Spark session killed at random points (-9)"
            row = compared(claim, wanted, target)
            if len(killed) >= KILLS or not row["kept"]:
                return row
            shutil.rmtree(target)
    finally:
        ending.set()
        if killer.is_alive():
            killer.join()
        running.stop()
    return {**row, "kept": False}


def _until_done(source: Path, root: Path, spark: SparkSession) -> None:
    for left in reversed(range(AGAIN_MAX)):
        try:
            job.ingest([source], root, {}, spark, True)
        except TelemetryError:
            if not left:
                raise
        else:
            return


def _kill_now_and_then(ending: threading.Event, killed: list[int], rng: random.Random) -> None:
    while len(killed) < KILLS and not ending.wait(rng.random()):
        workers = process_tree.named(os.getpid(), "pyspark.daemon")
        # The first is what forks the others.
        if len(workers) > 1:
            victim = rng.choice(workers[1:])
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(victim)
