"""`drupelet bench lake`: a lake that grows day by day, and what a day and a query cost then.

Each day every device has one more segment, and all are taken in at once, without Spark: its
start would hide the rest. CPU seconds are of this process with all its threads. The days pass
within minutes, so the lake is told to forget at once what it forgets after a day otherwise.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from drupelet.base.limits import BOX_BLOCKS_MAX, EVENTS_PER_BLOCK
from drupelet_tools.bench.columns import LAKE, Row
from drupelet_tools.bench.corpus import device_id, fleet, segments_of
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.ingest_claims import CLAIMS
from drupelet_tools.bench.lake_content import content
from drupelet_tools.bench.table import Table
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake.compact import compact, packs_named
from drupelet_tools.telemetry.lake.delta import open_lake
from drupelet_tools.telemetry.lake.piece_file import TABLE
from drupelet_tools.telemetry.tables.schemas import INNER_TABLES, PIECE, TABLES

DAYS, DEVICES = 400, 20
TEN = 10
LATE_MAX = 1.15  # the last ten days beside the tenth to the twentieth
QUERY_MAX = 2.0  # beside a lake that was made in one go
FILES_MAX = 40  # that count after a compaction
# What a day does to the log of a lake: it forgets removed files and entries behind a checkpoint.
A_DAY_PASSES = {
    "delta.deletedFileRetentionDuration": "interval 0 seconds",
    "delta.logRetentionDuration": "interval 0 seconds",
}
INGEST_REPEATS = 7
MEMORY = "/dev/shm"  # noqa: S108
QUERY_REPEATS = 5  # the least counts: what else the machine does only adds
_EVENTS = BOX_BLOCKS_MAX * EVENTS_PER_BLOCK


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: days, devices, and the seed of their logs."""

    days: int = DAYS
    devices: int = DEVICES
    seed: int = 1


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    """Yield a row per work; see `columns.LAKE`.

    Raises:
        BenchError: too few days, the ingest fails, or two lakes of the same segments differ.
    """
    if plan.days < 3 * TEN:
        raise BenchError(f"{plan.days} days: want {3 * TEN} or more, to have some to compare")
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-lake-", dir=_memory()) as folder:
        try:
            yield from _measure(Path(folder), plan, say)
        except TelemetryError as broken:
            raise BenchError(str(broken)) from None


def _memory() -> str | None:
    """A folder in memory, as long as nobody names another one in TMPDIR: on a disk a file costs
    more where there are many, however large the lake is."""
    named = {"TMPDIR", "TEMP", "TMP"} & os.environ.keys()
    return MEMORY if not named and os.access(MEMORY, os.W_OK) else None


def _measure(root: Path, plan: Plan, say: Callable[[str], None]) -> Iterator[Row]:
    inboxes = _write_days(root / "in", plan)
    grown, whole = root / "grown", root / "whole"
    say(f"{plan.days} days …")
    costs = []
    for number, day in enumerate(inboxes):
        if number in (TEN, plan.days - TEN):
            shutil.copytree(grown, root / str(number))
        costs += _ingested([day], grown)
        if number == 0:
            DeltaTable(grown / TABLE).alter.set_table_properties(A_DAY_PASSES)
    ends = {"early": TEN, "late": plan.days - TEN}
    parts = {"first": costs[:1], **_ends(root, inboxes, ends), "all days": costs}
    for name, some in parts.items():
        yield _row(f"ingest, {name}", plan, grown, some, days=len(some))
    say("a query of all tables …")
    yield _row("query, grown", plan, grown, _query(grown))
    yield _row("compact", plan, grown, [_timed(lambda: compact(grown))])
    yield _row("query, compacted", plan, grown, _query(grown))
    say("the same in one go …")
    yield _row(
        "ingest, at once", plan, whole, [_timed(lambda: job.ingest(inboxes, whole, {}, None))]
    )
    yield _row("query, at once", plan, whole, _query(whole))
    _compare(grown, whole)


def _ingested(days: Iterable[Path], lake: Path) -> list[tuple[float, float]]:
    return [_timed(partial(job.ingest, [day], lake, {}, None)) for day in days]


def _cpu_s(costs: Sequence[tuple[float, float]]) -> float:
    return sum(cpu_s for cpu_s, _ in costs)


def _ends(
    root: Path, inboxes: Sequence[Path], ends: Mapping[str, int]
) -> dict[str, list[tuple[float, float]]]:
    """The costs of ten ingests from each of some days on, into copies of the lake of then.

    They are taken in turn, so that the machine's speed is the same for both, and of INGEST_REPEATS
    turns the one counts that took the least CPU.
    """
    least: dict[str, list[tuple[float, float]]] = {}
    copy = root / "copy"
    for _ in range(INGEST_REPEATS):
        for name, first in ends.items():
            shutil.copytree(root / str(first), copy)
            costs = _ingested(inboxes[first : first + TEN], copy)
            shutil.rmtree(copy)
            least[name] = min(least.get(name, costs), costs, key=_cpu_s)
    return least


def _write_days(folder: Path, plan: Plan) -> list[Path]:
    """A folder for each day with one segment of each device in it."""
    every: list[Iterator[bytes]] = []
    boots = fleet(plan.days * plan.devices * _EVENTS * 11 // 10, plan.devices, plan.seed)
    own = {device: list(group) for device, group in itertools.groupby(boots, lambda b: b.device)}
    for index in range(plan.devices):
        logs = own[device_id(index)]
        every.append(itertools.chain.from_iterable(map(segments_of, logs)))
    days = []
    for day in range(plan.days):
        days.append(folder / f"{day:04}")
        days[-1].mkdir(parents=True)
        for index, datas in enumerate(every):
            (days[-1] / f"{index:04}.dbx").write_bytes(next(datas))
    return days


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds of some work."""
    cpu_s, wall_s = time.process_time(), time.monotonic()
    work()
    return time.process_time() - cpu_s, time.monotonic() - wall_s


def _query(root: Path) -> list[tuple[float, float]]:
    """What it costs to read every table that a reader sees, from opening the lake on."""

    def read() -> None:
        lake = open_lake(root)
        for table in TABLES:
            if table not in INNER_TABLES:
                lake.read(table)

    return [min(_timed(read) for _ in range(QUERY_REPEATS))]


def _row(
    work: str, plan: Plan, root: Path, costs: Sequence[tuple[float, float]], days: int = 0
) -> Row:
    lake = open_lake(root)
    return {
        "work": work,
        "segments": (days or plan.days) * plan.devices,
        "cpu_ms": round(1000 * sum(cpu_s for cpu_s, _ in costs) / len(costs), 1),
        "wall_ms": round(1000 * sum(wall_s for _, wall_s in costs) / len(costs), 1),
        "files": sum(map(len, lake.files.values())) + len(packs_named(lake.paths(PIECE))),
        "megabytes": round(
            sum(file.size for some in lake.files.values() for file in some) / 1e6, 2
        ),
        "log_files": len(os.listdir(root / "table" / "_delta_log")),
    }


def _compare(grown: Path, whole: Path) -> None:
    # Both read the same segments, but not from the same packs.
    places = ("file", "offset")
    grown_tables, whole_tables = content(grown, places), content(whole, places)
    for table, rows in grown_tables.items():
        if not rows.equals(whole_tables[table]):
            raise BenchError(f"{table}: day by day and in one go give different rows")


def claims(rows: Sequence[Row]) -> list[Row]:
    """What the lake has to show, worked out from its rows."""
    of = {row["work"]: row for row in rows}
    days = of["ingest, at once"]["segments"] // max(of["ingest, first"]["segments"], 1)
    late = of["ingest, late"]["cpu_ms"] / of["ingest, early"]["cpu_ms"]
    query = of["query, compacted"]["cpu_ms"] / of["query, at once"]["cpu_ms"]
    grown = of["query, grown"]["cpu_ms"] / of["query, at once"]["cpu_ms"]
    files = of["query, compacted"]["files"]
    return [
        _claim(f"CPU, last {TEN} of {days} days / days {TEN} to {2 * TEN}", late, LATE_MAX),
        _claim("CPU of a query, compacted / made in one go", query, QUERY_MAX),
        _claim("CPU of a query, not compacted / made in one go", grown, None),
        _claim("files that count after a compaction", files, FILES_MAX),
    ]


def _claim(claim: str, figure: float, limit: float | None) -> Row:
    text = f"{figure:.2f}" if isinstance(figure, float) else str(figure)
    if limit is None:
        return {"claim": claim, "figure": text, "limit": "-", "kept": None}
    return {"claim": claim, "figure": text, "limit": f"≤ {limit:g}", "kept": figure <= limit}


def tables(rows: Sequence[Row], statements: Sequence[Row]) -> list[Table]:
    """Tables for people."""
    return [
        Table("A lake that grows", LAKE, rows),
        Table("What it has to show", CLAIMS, statements),
    ]
