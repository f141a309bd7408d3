"""Ingest: headers first, then one `mapInArrow` pass in which the workers write the tables.

The driver reads headers, leaves out what the lake has already, and deals devices out to
groups. Each worker decodes its group, writes Parquet files under a name that no other attempt
uses, and yields one row that says what it wrote. The driver then replaces the manifest, which
is what makes the files count. Killed before that, an ingest has changed nothing.

On a cluster, the lake and the inputs must lie where every worker can reach them under the same
path, and this package must be installed there.
"""

from __future__ import annotations

import heapq
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from drupelet_tools.telemetry import inputs, worker
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.lake import Lake, Part, create_lake, locked, publish, supersede
from drupelet_tools.telemetry.lake import sweep as sweep_lake

# More groups than cores evens out devices of different size; a task costs some 77 ms.
GROUPS_PER_CORE = 4
PART_COLUMN = "part"


@dataclass(slots=True)
class _Work:
    """What the workers have to do for one device."""

    device: str
    old: list[dict[str, Any]] = field(default_factory=list)
    new: list[inputs.Source] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes to decode."""
        known: int = sum(row["size"] for row in self.old)
        return known + sum(source.size for source in self.new)


def ingest(
    paths: Iterable[Path],
    lake: Path,
    names: dict[str, dict[str, Any]],
    spark: SparkSession | Callable[[], SparkSession],
) -> dict[str, int]:
    """Bring what is new under `paths` into the lake and return counts.

    Args:
        paths: segment files, packs, or folders of them.
        lake: the lake's folder; made if it is not there.
        names: device id in hex -> `name`, `carrier`, `board`.
        spark: a session, or what gives one (called only if there is something to decode).

    Returns:
        `segments` and `repeated` as found, `new` taken in, `devices` decoded, and of those
        devices all `events` and `quarantined` places.

    Raises:
        TelemetryError: a path or the lake is missing, unreadable or not writable.
    """
    root = lake.resolve()
    files = inputs.find_files(paths, root)
    state = create_lake(root)
    with locked(root):
        sweep_lake(state)
        found, repeated, work = _plan(files, state)
        state.names.update(inputs.clean_names(names))
        parts = _run(root, work, spark) if work else []
        supersede(state, parts)
        publish(state)
    repeated += sum(part.counts["repeated"] for part in parts)
    return {
        "segments": found,
        "repeated": repeated,
        "new": found - repeated,
        "devices": sum(1 for entry in work if entry.device != inputs.UNNAMED),
        "events": sum(part.counts["events"] for part in parts),
        "quarantined": sum(part.counts["quarantine"] for part in parts),
    }


def _plan(files: list[Path], lake: Lake) -> tuple[int, int, list[_Work]]:
    """Segments found, those that the lake holds already, and the work for the rest."""
    rows = lake.read("sources").to_pylist()
    whole = {_header_key(row) for row in rows if not row["damaged"]}
    contents = {(row["device"], row["content_crc"], row["size"]) for row in rows}
    damaged = {_header_key(row) for row in rows if row["damaged"]}
    found = repeated = 0
    work: dict[str, _Work] = {}
    for entry in inputs.scan(files):
        found += 1
        key = _found_key(entry)
        if key in whole or (key in damaged and _content_key(entry) in contents):
            repeated += 1
            continue
        work.setdefault(entry.device, _Work(entry.device)).new.append(entry.source)
    for row in rows:
        if row["device"] in work:
            work[row["device"]].old.append(row)
    return found, repeated, list(work.values())


def _header_key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["device"], row["boot"], row["number"], row["header_crc"], row["size"])


def _found_key(entry: inputs.Found) -> tuple[Any, ...]:
    head = entry.header
    if isinstance(head, str):
        return (inputs.UNNAMED, None, None, None, entry.source.size)
    return (head.device, head.boot, head.number, head.crc, entry.source.size)


def _content_key(entry: inputs.Found) -> tuple[str, int, int]:
    data = entry.source.read()
    return (entry.device, inputs.content_crc(data), len(data))


def _deal(work: list[_Work], groups: int) -> list[list[_Work]]:
    """Deal devices out to groups of about equal size; a device is never split."""
    dealt: list[list[_Work]] = [[] for _ in range(min(groups, len(work)))]
    load = [(0, at) for at in range(len(dealt))]
    for entry in sorted(work, key=lambda entry: (-entry.size, entry.device)):
        size, at = heapq.heappop(load)
        dealt[at].append(entry)
        heapq.heappush(load, (size + entry.size, at))
    return dealt


def _run(
    root: Path, work: list[_Work], spark: SparkSession | Callable[[], SparkSession]
) -> list[Part]:
    session = spark if isinstance(spark, SparkSession) else spark()
    groups = _deal(work, session.sparkContext.defaultParallelism * GROUPS_PER_CORE)
    run = secrets.token_hex(6)
    plans = [f"plans/{run}-{at}.json" for at in range(len(groups))]
    try:
        for plan, group in zip(plans, groups, strict=True):
            (root / plan).write_text(json.dumps([asdict(entry) for entry in group]), "utf-8")
    except OSError as refused:
        raise TelemetryError(f"{root}: cannot write the lake: {refused.strerror}") from None
    # A range with one row per partition deals the plans out without a shuffle.
    rows = (
        session.range(0, len(groups), 1, len(groups))
        .mapInArrow(_task(str(root), run), f"{PART_COLUMN} string")
        .collect()
    )
    answers = [json.loads(row[PART_COLUMN]) for row in rows]
    for answer in answers:
        if "error" in answer:
            raise TelemetryError(f"a worker could not go on: {answer['error']}")
    return sorted((Part(**answer) for answer in answers), key=lambda part: part.id)


def _task(lake: str, run: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each worker runs over its plan numbers."""

    def run_plans(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = []
            for at in batch.column(0).to_pylist():
                context = TaskContext.get()
                attempt = context.taskAttemptId() if context else 0
                name = f"{run}-{at}-{attempt}-{secrets.token_hex(3)}"
                try:
                    answer = worker.run_group(lake, f"plans/{run}-{at}.json", name)
                except OSError as refused:
                    answer = {"error": str(refused)}
                answers.append(json.dumps(answer))
            yield pa.RecordBatch.from_pydict({PART_COLUMN: pa.array(answers, pa.string())})

    return run_plans
