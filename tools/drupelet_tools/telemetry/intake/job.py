"""Ingest: headers first, then one `mapInArrow` pass in which the workers write what is new.

The driver reads heads, leaves out what the lake has already, and deals segments out to groups.
Each worker decodes its group, writes a Parquet file under a name that no other attempt uses, and
yields one row that says what it wrote. The driver then commits the files in one transaction,
which is what makes them count. Killed before that, an ingest has changed nothing. What the lake
has is not read but for the keys of the devices in question.

On a cluster, the lake and the inputs must lie where every worker can reach them under the same
path, and this package must be installed there.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.base.errors import InputFileError, TelemetryError
from drupelet_tools.telemetry.base.memory import freeze_loaded, give_back
from drupelet_tools.telemetry.base.place import (
    Place,
    Remote,
    create,
    place,
    reason,
    remove_folder,
    size_of,
)
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake.plan import ENTRY, Plan, make_plan
from drupelet_tools.telemetry.lake import worker
from drupelet_tools.telemetry.lake.commit import (
    Change,
    commit,
    file_of,
    foreign_rows,
    key_rows,
    keys_of,
    name_keys,
    write_file,
)
from drupelet_tools.telemetry.lake.compact import merge_tiers
from drupelet_tools.telemetry.lake.delta import (
    NAMES_TABLE,
    PLANS,
    UNNAMED,
    Lake,
    create_lake,
    latest_names,
    make_folders,
    unwritable,
)
from drupelet_tools.telemetry.lake.piece_file import Written
from drupelet_tools.telemetry.tables.schemas import FOREIGN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_COLUMN = "part"
# Segments that the driver plans at a time, about a kB of memory for each.
BATCH_SEGMENTS = 1 << 16
WATCH_S, WATCH_FAR_S = 0.3, 5.0  # each look at a store elsewhere is a request per group
_CAUSE = re.compile(r"(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)")


@dataclass(frozen=True, slots=True)
class Task:
    """What every worker is told: the lake, the run, whether to write single events."""

    lake: str
    run: str
    events: bool

    def work(self, at: int, attempt: int) -> str:
        """Do the plan of one number; the part, or the error, as JSON."""
        name = f"{self.run.replace('/', '-')}-{at}-{attempt}-{secrets.token_hex(3)}"
        try:
            answer = worker.run_group(self.lake, _plan_path(self.run, at), name, self.events)
            create(place(self.lake) / _done_path(self.run, at)).close()
        except InputFileError as refused:
            answer = {"error": str(refused), "files": sorted(refused.files)}
        except TelemetryError as refused:
            answer = {"error": str(refused)}
        except OSError as refused:
            answer = {"error": f"{self.lake}: cannot write the lake: {reason(refused)}"}
        return json.dumps(answer)


# Called with the bytes that are done, and all.
Watch = Callable[[int, int], None]
# Runs a task for the plans 0..n-1 and gives the answers in any order.
Runner = Callable[[Task, int], Sequence[str]]


def run_here(task: Task, plans: int) -> Sequence[str]:
    """A runner without Spark: one plan after the other in this process."""
    return [task.work(at, 0) for at in range(plans)]


def on_spark(session: SparkSession) -> Runner:
    """A runner that gives each plan to a task of one Spark job."""

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def run(task: Task, plans: int) -> Sequence[str]:
        # A range with one row per partition deals the plans out without a shuffle.
        rows = session.range(0, plans, 1, plans).mapInArrow(
            over_plans(task), f"{PART_COLUMN} string"
        )
        try:
            return [row[PART_COLUMN] for row in rows.collect()]
        except (PySparkException, Py4JError) as broken:
            raise TelemetryError(
                f"Spark gave up: {_told_by(broken)}; the lake is whole: run the ingest again"
            ) from None

    return run


def _told_by(broken: Exception) -> str:
    """What Spark names as the cause, one sentence."""
    lines = [line.strip() for line in str(broken).splitlines() if line.strip()]
    causes = [match.group(1) for line in lines if (match := _CAUSE.match(line))]
    cause = causes[-1] if causes else (lines or [type(broken).__name__])[0]
    return cause.partition(". ")[0][:300].rstrip(".")


def over_plans(task: Task) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that each worker runs over its plan numbers."""

    def run_plans(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        freeze_loaded()  # a cluster has workers that no warm-up reached
        for batch in batches:
            context = TaskContext.get()
            attempt = context.taskAttemptId() if context else 0
            answers = [task.work(at, attempt) for at in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({PART_COLUMN: pa.array(answers, pa.string())})

    return run_plans


def ingest(
    paths: Iterable[Place],
    lake: Place,
    names: dict[str, dict[str, Any]],
    spark: SparkSession | Callable[[], SparkSession] | None,
    events: bool = False,
    watch: Watch | None = None,
) -> dict[str, int]:
    """Bring what is new under `paths` into the lake and return counts.

    Args:
        paths: segment files, packs, folders of them, or an agent's folder.
        lake: the lake's folder; made if it is not there.
        names: device id in hex -> `name`, `carrier`, `board`.
        spark: a session, or what gives one (called only if there is something to decode);
            None works without Spark in this process.
        events: whether to write the table `events` for what is new.
        watch: told now and then how many bytes of all are done.

    Returns:
        `segments` and `repeated` as found, `new` taken in, `devices` with news, and of the
        news the `events` and the `quarantined` places.

    Raises:
        TelemetryError: a path, the lake or a part of it is missing, unreadable or not writable.
    """
    root = place(lake).resolve()
    given = [place(path) for path in paths]
    inputs.find_files_or_agents(given, root)
    state = create_lake(root)
    with run_folder(root) as run:
        folders, files = inputs.export_and_find(given, root / PLANS / run, root)
        all_names = {**inputs.find_names(folders), **inputs.clean_names(names)}
        progress = Progress(root, files, watch) if watch else None
        whole = Taken()
        task = Task(str(root), run, events)
        for taken in take_in(state, files, all_names, task, spark, progress):
            whole.add(taken)
    merge_tiers(state, whole.file_rows)
    return whole.counts()


@contextmanager
def run_folder(root: Place) -> Iterator[str]:
    """The name of a run, which has a folder among the plans while the block goes on.

    Raises:
        TelemetryError: the lake cannot be written.
    """
    run = secrets.token_hex(6)
    work = root / PLANS / run
    try:
        make_folders(root)
        try:
            work.mkdir(exist_ok=True)
        except OSError as refused:
            raise unwritable(root, refused) from None
        yield run
    finally:
        remove_folder(work)


@dataclass(slots=True)
class Taken:
    """What was taken in: counts, devices with news, and the rows of each file of pieces."""

    segments: int = 0
    repeated: int = 0
    devices: set[str] = field(default_factory=set)
    events: int = 0
    quarantined: int = 0
    file_rows: list[int] = field(default_factory=list)

    @property
    def new(self) -> int:
        """Segments, and places that are none, that the lake had not."""
        return self.segments - self.repeated

    def add(self, other: Taken) -> None:
        """Count what came next, too."""
        self.segments += other.segments
        self.repeated += other.repeated
        self.devices |= other.devices
        self.events += other.events
        self.quarantined += other.quarantined
        self.file_rows += other.file_rows

    def counts(self) -> dict[str, int]:
        """As an ingest reports them."""
        return {
            "segments": self.segments,
            "repeated": self.repeated,
            "new": self.new,
            "devices": len(self.devices),
            "events": self.events,
            "quarantined": self.quarantined,
        }


def take_in(
    state: Lake,
    files: Iterable[Place],
    names: dict[str, dict[str, str]],
    task: Task,
    spark: SparkSession | Callable[[], SparkSession] | None,
    progress: Progress | None = None,
) -> Iterator[Taken]:
    """Take in batch after batch of segments; each counts, and is yielded, as soon as it is done.

    Args:
        state: the lake; what others commit meanwhile is seen.
        files: segment files and packs.
        names: by device, as `inputs.clean_names` gives them.
        task: for a run whose folder is there (`run_folder`).
        spark: as `ingest`.
        progress: is told what is done.

    Raises:
        TelemetryError: as `ingest`; an InputFileError if only some of the files are to blame.
    """
    root, runner = state.root, _Lazy(spark)
    batches = count()  # `enumerate` would hold on to each listing until the next one
    for listing in inputs.scan_batches(files, BATCH_SEGMENTS):
        step = replace(task, run=f"{task.run}/{next(batches)}")
        size = int(listing.size.sum())
        boots, numbers = inputs.boots_of(listing), np.unique(listing.number[listing.ok])
        mine = pc.unique(boots["device"]).to_pylist()
        state = state.refreshed()  # what the batch before has committed is known
        known = state.keys({*mine, *names}, boots, numbers.tolist())
        plan = make_plan(listing, known, runner.parallelism)
        del listing
        _refuse_imported(root, plan, known)
        with progress.batch(step.run, plan.groups, size) if progress else nullcontext():
            written = run_plans(root, plan.groups, step, runner)
        _commit(state, written, plan, names, known)
        yield Taken(
            plan.found,
            plan.repeated + sum(one.repeated for one in written),
            plan.devices,
            sum(one.events for one in written),
            len(plan.unnamed.quarantine) + sum(one.damages for one in written),
            [one.rows for one in written],
        )


def _refuse_imported(root: Place, plan: Plan, known: pa.Table) -> None:
    imported = set(known.filter(pc.is_valid(known["origin"]))["device"].to_pylist())
    for device in sorted(plan.devices & (imported - {UNNAMED}))[:1]:
        of_device = (group.filter(pc.equal(group["device"], device)) for group in plan.groups)
        raise InputFileError(
            f"{root}: {device} is in the lake from an import, and its black boxes would"
            " count on top; ingest them into another lake",
            {file for group in of_device for file in pc.unique(group["file"]).to_pylist()},
        )


def _commit(
    lake: Lake,
    written: list[Written],
    plan: Plan,
    names: dict[str, dict[str, str]],
    known: pa.Table,
) -> None:
    """Make what was written count, with what the next ingest must know of it."""
    root, taken_ms = lake.root, time.time_ns() // 1_000_000
    pieces = [file_of(one) for one in written if one.rows]
    foreign = foreign_rows({"quarantine": plan.unnamed.quarantine}, None, taken_ms)
    name = secrets.token_hex(8)
    files = [*pieces, *write_file(root, FOREIGN, name, foreign)]
    named = latest_names(known.filter(pc.fill_null(pc.equal(known["table"], NAMES_TABLE), False)))
    rows = [{**row, "taken_ms": taken_ms} for row in plan.unnamed.keys]
    rows += name_keys(names, named, taken_ms)
    keys = pa.concat_tables([keys_of(root, pieces), key_rows(rows)])
    if files or keys.num_rows:
        commit(lake, Change(files, keys))


class _Lazy:
    """A runner that brings Spark up when the first plan is there."""

    def __init__(self, spark: SparkSession | Callable[[], SparkSession] | None) -> None:
        self._spark = spark
        # Before Spark is up nothing tells how many cores it will have; more groups than cores
        # even out, and one more costs some 20 ms.
        self.parallelism = 1 if spark is None else 4

    def __call__(self, task: Task, plans: int) -> Sequence[str]:
        if self._spark is None:
            return run_here(task, plans)
        session = self._spark() if callable(self._spark) else self._spark
        return on_spark(session)(task, plans)


class Progress:
    """Tells how far an ingest is, from the files that workers leave where a group is done."""

    def __init__(self, root: Place, files: list[Place], watch: Watch) -> None:
        self._root = root
        self._total = sum(size_of(path) for path in files)
        self._watch = watch
        self._before = 0  # bytes of the batches that are done

    @contextmanager
    def batch(self, run: str, groups: list[pa.Table], size: int) -> Iterator[None]:
        """Look for the groups of a batch of so many bytes while the block runs."""
        sizes = [pc.sum(group["size"]).as_py() for group in groups]
        known = self._before + size - sum(sizes)  # what is known need not be read
        ending = threading.Event()
        pause_s = WATCH_FAR_S if isinstance(self._root, Remote) else WATCH_S

        def look() -> None:
            while not ending.wait(pause_s):
                done = sum(
                    length
                    for at, length in enumerate(sizes)
                    if (self._root / _done_path(run, at)).exists()
                )
                self._watch(known + done, self._total)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ending.set()
            looking.join()
        self._before += size
        self._watch(self._before, self._total)


def _plan_path(run: str, at: int) -> str:
    return f"{PLANS}/{run}-{at}.arrow"


def _done_path(run: str, at: int) -> str:
    return f"{PLANS}/{run}-{at}.done"


def run_plans(root: Place, groups: list[pa.Table], task: Task, runner: Runner) -> list[Written]:
    """Have groups of segments decoded and written; nothing counts before it is committed.

    Raises:
        TelemetryError: the lake cannot be written, or a worker could not go on.
    """
    if not groups:
        return []
    try:
        for at, group in enumerate(groups):
            entries = group.cast(_ON_DISK).unify_dictionaries().combine_chunks()
            with (
                create(root / _plan_path(task.run, at)) as file,
                pa.ipc.new_file(file, _ON_DISK) as out,
            ):
                out.write_table(entries)
    except OSError as refused:
        raise TelemetryError(f"{root}: cannot write the lake: {reason(refused)}") from None
    plans = len(groups)
    groups.clear()  # what the workers read is in the files
    give_back()
    answers = [json.loads(answer) for answer in runner(task, plans)]
    for answer in answers:
        if "error" in answer:
            text = f"a worker could not go on: {answer['error']}"
            if "files" in answer:
                raise InputFileError(text, answer["files"])
            raise TelemetryError(text)
    return sorted((Written(**answer) for answer in answers), key=lambda one: one.path)


_ON_DISK = ENTRY.set(0, pa.field("file", pa.dictionary(pa.int32(), pa.string())))
