"""An ingest that goes on: it looks at its inputs again and again, and takes in what is new.

The lake is the checkpoint. Its keys say what it has, and what a batch brings is committed whole or
not at all, so a run that is killed anywhere has lost nothing and the next counts nothing twice.
What this process keeps in memory (`changes.Inbox`) only spares it reading files again; where the
lake is another one than before, as after a restore, it is forgotten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drupelet_tools.telemetry.base.errors import InputFileError, LastingError, TelemetryError
from drupelet_tools.telemetry.base.place import Place, Remote, place
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.files.agent_export import AgentExport
from drupelet_tools.telemetry.files.changes import Changed, Inbox, is_gone, is_input
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake.commit import Change, commit, key_rows, name_keys
from drupelet_tools.telemetry.lake.compact import merge_tiers
from drupelet_tools.telemetry.lake.delta import LOG, Lake, create_lake, open_lake
from drupelet_tools.telemetry.lake.piece_file import TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S, EVERY_MIN_S, EVERY_MAX_S = 30, 1, 86_400
# A copy by hand pauses for less; what pauses for longer is mended when the rest comes.
SETTLE_S = 5.0
# A file that ends within a block or a segment has not come whole: it gets this long.
UNFINISHED_S = 600.0
FILES_MAX, FILES_MAX_MOST = 10_000, job.BATCH_SEGMENTS
BATCH_BYTES_MAX = 512 << 20
# In one process 64 MiB take two seconds; a Spark session on two cores was not faster with 100.
HERE_BYTES_MAX = 64 << 20
# Starting Spark takes the processor time of 1 GiB.
SPARK_WAITING_BYTES = 1 << 30
# A look takes at most this part of the time.
LOOKS_SHARE = 0.05
RETRY_MAX_S = 600.0
# A message that is due again is printed again after pauses that grow to this.
SAID_AGAIN_MAX_S = 3_600.0
SAID_MAX = 256
# Unreadable files that a turn sets aside one by one.
FILE_ERRORS_MAX = 16

Wait = Callable[[float], bool]
Spark = Callable[[], "SparkSession"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the inputs are looked at, how long a file must have been left alone, and how many
    files a batch has at most."""

    every_s: float = EVERY_S
    settle_s: float = SETTLE_S
    unfinished_s: float = UNFINISHED_S
    files_max: int = FILES_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX


class Follower:
    """Takes what is new under some inputs into a lake, until it is told to end.

    Args:
        paths: files, packs, folders of them, and agents' folders.
        lake: the lake; made if it is not there.
        names: as `job.ingest`.
        spark: a session for what is large, or what starts one, for much; None works without.
        release: called where the session is not needed any more for now, or does not work.
        on_batch: called with the counts of each batch that brought something.
        on_problem: called with a line for each thing that stands in the way for now.
    """

    def __init__(
        self,
        paths: Sequence[Place],
        lake: Place,
        names: Mapping[str, Mapping[str, Any]],
        *,
        spark: SparkSession | Spark | None = None,
        release: Callable[[], None] = lambda: None,
        events: bool = False,
        pace: Pace | None = None,
        on_batch: Callable[[dict[str, int]], None] = lambda _: None,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._root = place(lake).resolve()
        self._names_given = inputs.clean_names(names)
        self._events = events
        self._spark, self._release = spark, release
        self._on_batch, self._on_problem = on_batch, on_problem
        self._problems = _Problems(on_problem)
        self._pace = pace or Pace()
        self._state: Lake | None = None
        self._version = -1
        self._commit_state: tuple[int, ...] = ()
        self._names: dict[Place, dict[str, dict[str, str]]] = {}
        self._names_read: dict[Place, tuple[int, ...]] = {}
        self._names_kept: dict[str, dict[str, str]] = {}
        for path in paths:
            if not _is_folder(path):
                inputs.check_file(path)
            inputs.check_path(path)
        agents = [path for path in paths if isinstance(path, Path) and inputs.is_agent(path)]
        self._exports = [AgentExport(path) for path in agents]
        plain = [path for path in paths if path not in agents]
        self._inbox = Inbox(
            [*plain, *(one.folder for one in self._exports)],
            self._root,
            self._pace.settle_s,
            self._pace.every_s,
        )

    def run(self, wait: Wait) -> dict[str, int]:
        """Look and take in until `wait`, given seconds, says that it is over; the sums.

        Raises:
            TelemetryError: at the first look, as `job.ingest`; later only a LastingError.
        """
        whole = job.Taken()
        failures = 0
        try:
            self._open()
            while not wait(0.0):
                look_s = 0.0
                try:
                    look_s = self._turn(wait, whole)
                    failures = 0
                except LastingError:
                    raise
                except TelemetryError as refused:
                    self._on_problem(str(refused))
                    self._state = None
                    failures += 1
                if self._inbox.has_more and not failures:
                    continue
                if wait(self.pause_s(look_s, failures)):
                    break
        finally:
            for export in self._exports:
                export.remove()
        return whole.counts()

    def pause_s(self, look_s: float, failures: int) -> float:
        """How long to wait after a look that took `look_s`, and so many failures in a row."""
        pause_s = max(self._pace.every_s, look_s / LOOKS_SHARE)
        if failures:
            pause_s = max(pause_s, min(RETRY_MAX_S, pause_s * 2.0 ** min(failures - 1, 30)))
        return min(pause_s, EVERY_MAX_S)

    # --- the lake ---

    def _open(self) -> Lake:
        """The lake, made only at the beginning: one that is gone later may come back."""
        state = self._state
        if state is None:
            is_first = self._version < 0
            state = create_lake(self._root) if is_first else open_lake(self._root)
            self._keep(state)
        return state

    def _keep(self, state: Lake) -> None:
        """Remember how the lake is. Where that is older than it was, offer all files again."""
        if state.version < self._version:
            self._inbox.forget()
        self._state, self._version = state, state.version
        self._commit_state = self._last_commit()

    def _last_commit(self) -> tuple[int, ...]:
        """Of this machine's lake the state of the file of the last commit that is known: another
        one, or none, is a lake that was put in the place of this one."""
        if isinstance(self._root, Remote):
            return ()
        try:
            info = os.stat(self._root / TABLE / LOG / f"{self._version:020}.json")
        except OSError:
            return (-1,)
        return info.st_ino, info.st_size, info.st_mtime_ns

    def _refresh(self) -> Lake:
        """The lake as it is now."""
        last_commit = self._last_commit()
        if last_commit != self._commit_state:
            self._state = None
            if last_commit != (-1,):
                self._inbox.forget()
        state = self._open().refreshed()
        self._keep(state)
        return state

    # --- a turn ---

    def _turn(self, wait: Wait, whole: job.Taken) -> float:
        """One look and all that it shows, batch after batch; the seconds that the look took."""
        if self._last_commit() != self._commit_state:
            self._refresh()
        for export in self._exports:
            try:
                export.refresh(self._pace.every_s)
            except TelemetryError as refused:
                self._problems.say(str(refused))
        began_s = time.monotonic()
        changed = self._inbox.look()
        look_s = time.monotonic() - began_s
        for problem in self._inbox.problems:
            self._problems.say(problem)
        self._read_names()
        waiting = sum(one.size for one in changed)
        try:
            for batch in self._batches(self._ready(changed)):
                if wait(0.0):
                    break
                self._take(batch, waiting, whole)
                waiting -= sum(one.size for one in batch)
        finally:
            self._release()
        return look_s

    def _ready(self, changed: list[Changed]) -> Iterator[Changed]:
        """Files that an ingest reads and that have come whole, or are as they will stay."""
        others = []
        for one in changed:
            age_s = (time.time_ns() - one.changed_ns) / 1e9
            try:
                if not is_input(one):
                    others.append(one)
                elif age_s < self._pace.unfinished_s and inputs.ends_in_between(one.path):
                    self._inbox.set_aside(one, self._pace.unfinished_s - max(age_s, 0.0))
                else:
                    inputs.check_path(one.path)
                    yield one
            except TelemetryError as refused:
                self._leave(one, refused)
            except OSError:
                continue  # it was taken away
        self._inbox.take(others)

    def _batches(self, ready: Iterator[Changed]) -> Iterator[list[Changed]]:
        batch: list[Changed] = []
        room = self._pace.batch_bytes_max
        for one in ready:
            if batch and (len(batch) >= self._pace.files_max or one.size > room):
                yield batch
                batch, room = [], self._pace.batch_bytes_max
            batch.append(one)
            room -= one.size
        if batch:
            yield batch

    def _take(self, batch: list[Changed], waiting: int, whole: job.Taken) -> None:
        """Take a batch in, without the files that stand in the way. If they are many, the next
        look goes on with it."""
        self._refresh()
        spark = self._spark_for(batch, waiting)
        for _ in range(FILE_ERRORS_MAX):
            if not batch:
                return
            try:
                self._take_all(batch, spark, whole)
                return
            except InputFileError as refused:
                bad = [one for one in batch if str(one.path) in refused.files]
                if not bad:
                    raise
                for one in bad:
                    self._leave(one, refused)
                batch = [one for one in batch if one not in bad]

    def _take_all(
        self, batch: list[Changed], spark: SparkSession | None, whole: job.Taken
    ) -> None:
        state = self._open()
        rows: list[int] = []
        with job.run_folder(self._root) as run:
            task = job.Task(str(self._root), run, self._events)
            # The lake has been told the names already.
            for taken in job.take_in(state, [one.path for one in batch], {}, task, spark):
                rows += taken.file_rows
                whole.add(taken)
                if taken.new:
                    self._on_batch({"files": len(batch), **taken.counts()})
        self._inbox.take(batch)
        merge_tiers(state, rows)
        self._keep(state.refreshed())

    def _leave(self, one: Changed, refused: TelemetryError) -> None:
        """Set a file aside, and say why unless it was only taken away."""
        if is_gone(one):
            return
        self._problems.say(str(refused))
        self._inbox.set_aside(one, self._pace.every_s)

    def _spark_for(self, batch: list[Changed], waiting: int) -> SparkSession | None:
        """A session if the batch is worth it and its workers can read it."""
        own = {str(export.folder) for export in self._exports}
        if any(str(one.path.parent) in own for one in batch):
            return None
        size = sum(one.size for one in batch)
        if self._spark is None or size <= HERE_BYTES_MAX:
            return None
        if not callable(self._spark):
            return self._spark
        if waiting < SPARK_WAITING_BYTES:
            return None
        try:
            return self._spark()
        except TelemetryError as refused:
            self._problems.say(f"{refused}; it goes on without Spark")
            self._spark = None
            return None

    # --- names ---

    def _all_names(self) -> dict[str, dict[str, str]]:
        """What is known of devices; what was given by itself wins."""
        known: dict[str, dict[str, str]] = {}
        for names in self._names.values():
            known.update(names)
        return {**known, **self._names_given}

    def _read_names(self) -> None:
        """Read files of names that changed, and have the lake know what they say."""
        newest_ns = time.time_ns() - int(self._pace.settle_s * 1e9)
        for path, state in self._inbox.names_files.items():
            if self._names_read.get(path) == state or max(state[-2:]) > newest_ns:
                continue
            self._names_read[path] = state
            try:
                self._names[path] = inputs.read_names(path)
            except TelemetryError as refused:
                self._problems.say(str(refused))
        names = self._all_names()
        if names != self._names_kept:
            lake = self._refresh()
            rows = name_keys(names, lake.names, time.time_ns() // 1_000_000)
            if rows:
                commit(lake, Change([], key_rows(rows)))
            self._names_kept = names


def _is_folder(path: Place) -> bool:
    """Whether it is one, or what a store without folders has instead of an empty one."""
    if path.is_dir():
        return True
    return isinstance(path, Remote) and path.may_be_empty() and not path.exists()


class _Problems:
    """Says a thing at once, and again after pauses that grow as long as it stays."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rests: dict[str, tuple[float, float]] = {}  # until when each rests, the pause

    def say(self, text: str) -> None:
        """Say it, unless that was done a moment ago."""
        now_s = time.monotonic()
        due_s, pause_s = self._rests.get(text, (now_s, EVERY_S / 2))
        if now_s < due_s:
            return
        if len(self._rests) >= SAID_MAX:
            self._rests.clear()
        pause_s = min(2 * pause_s, SAID_AGAIN_MAX_S)
        self._rests[text] = now_s + pause_s, pause_s
        self._say(text)
