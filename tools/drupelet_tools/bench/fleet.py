"""`drupelet bench fleet`: what a large fleet costs, from its logs to the pages.

Each work is a command in a process of its own: an ingest without Spark, which would hide the
rest, a compaction, the report with its index, and a query of one device. CPU seconds are of the
process with all that it starts.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drupelet_tools.bench import corpus_days, process_tree
from drupelet_tools.bench.columns import FLEET, Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.ingest_claims import CLAIMS
from drupelet_tools.bench.table import Table

DEVICES = (1_000, 100_000)
FLAT_MAX = 1.15  # a device-day in the largest fleet beside one in the smallest
INGEST, COMPACT, REPORT, QUERY = "ingest", "compact", "report", "query"
WORKS = (INGEST, COMPACT, REPORT, QUERY)
RUN_TIMEOUT_S = 4 * 3600
_BY_SIZE = (INGEST, REPORT)  # work that is done for each device-day
_COMMAND = "from drupelet_host.cli.app import main; main()"
_INGEST = (
    "import sys; from pathlib import Path; from drupelet_tools.telemetry.intake import job;"
    " job.ingest([Path(sys.argv[1])], Path(sys.argv[2]), {}, None)"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the fleet, days, the seed of their logs, and what is measured, in this order."""

    fleets: tuple[int, ...]
    days: int
    seed: int = 1
    works: tuple[str, ...] = WORKS


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per fleet and work; see `columns.FLEET`.

    Raises:
        BenchError: a command fails.
    """
    for devices in plan.fleets:
        with tempfile.TemporaryDirectory(prefix="drupelet-bench-fleet-") as folder:
            yield from _measure(Path(folder), devices, plan, say)


def _measure(root: Path, devices: int, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    say(f"{devices:,} devices, {plan.days} days …")
    inbox, lake = root / "in", root / "lake"
    size = corpus_days.write(inbox, devices, plan.days, plan.seed)
    one = corpus_days.device_ids(devices)[devices // 2].hex()
    telemetry = (_COMMAND, "telemetry")
    commands: dict[str, tuple[str | Path, ...]] = {
        INGEST: (_INGEST, inbox, lake),
        COMPACT: (*telemetry, "compact", lake),
        REPORT: (*telemetry, "report", "--lake", lake, "--html", root / "report.html",
                 "--battery", "18650"),
        QUERY: (*telemetry, "query", "SELECT count(*) AS n FROM days", "--lake", lake,
                "--device", one, "--json"),
    }  # fmt: skip
    for work in plan.works:
        say(f"{work} …")
        cost = _run(work, commands[work], root)
        if work == QUERY and json.loads(cost.output)["n"] != plan.days:
            raise BenchError(f"query: {json.loads(cost.output)['n']} days of {one}, and it has"
                             f" {plan.days}")  # fmt: skip
        yield {
            "work": work,
            "devices": devices,
            "device_days": devices * plan.days,
            "cpu_s": round(cost.cpu_s, 1),
            "wall_s": round(cost.wall_s, 1),
            "peak_mb": round(cost.peak_mb),
            "ms_per_device_day": round(1000 * cost.cpu_s / (devices * plan.days), 3),
            "in_mb": round(size / 1e6),
            "lake_mb": round(_size(lake) / 1e6),
        }


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took, and what it printed."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str


def _run(work: str, words: Sequence[str | Path], folder: Path) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin_s = time.monotonic()
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-c", *map(str, words)]
    output, peak = process_tree.run(work, command, {"TMPDIR": str(scratch)}, RUN_TIMEOUT_S)
    wall_s = time.monotonic() - begin_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shutil.rmtree(scratch)
    return Cost(cpu_s, wall_s, peak.mb, output)


def _size(lake: Path) -> int:
    return sum(path.stat().st_size for path in lake.rglob("*") if path.is_file())


def claims(rows: Sequence[Row]) -> list[Row]:
    """What a fleet has to show, worked out from its rows; nothing of one size alone."""
    statements = []
    for work in _BY_SIZE:
        own = [row for row in rows if row["work"] == work]
        if len(own) < 2:
            continue
        small, large = own[0], own[-1]
        ratio = large["ms_per_device_day"] / small["ms_per_device_day"]
        statements.append(
            {
                "claim": f"CPU of {work} for a device-day, {large['devices']:,} devices /"
                f" {small['devices']:,}",
                "figure": f"{ratio:.2f}",
                "limit": f"≤ {FLAT_MAX:g}",
                "kept": ratio <= FLAT_MAX,
            }
        )
    return statements


def tables(rows: Sequence[Row], statements: Sequence[Row]) -> list[Table]:
    """Tables for people."""
    return [
        Table("A large fleet", FLEET, rows),
        Table("What it has to show", CLAIMS, statements),
    ]
