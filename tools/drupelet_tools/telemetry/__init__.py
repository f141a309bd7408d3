"""From raw black boxes to tables and a report (docs/telemetry.md).

The rooms, from the bottom up: `blackbox` checks a log's bytes, `tables` adds them up, `lake`
keeps the sums, `intake` brings them there; `analysis` answers an owner's questions, `page`,
`monitor` and `commands` show the answers. `energy`, `calibration` and `forecast` say what things
take. `spark` is what needs a Spark session. tools/drupelet_tools/bench/rooms.py says who may
import whom.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow's own allocator keeps tens of megabytes for each thread that once read a file; the C
# library's gives back what is free (`memory`). Arrow is told by its environment, before it begins.
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
os.environ.setdefault(ARROW_POOL, "system")


def ingest(
    spark: SparkSession,
    inputs: Iterable[str | Path],
    lake: str | Path,
    names: Mapping[str, dict[str, Any]] | None = None,
    events: bool = False,
) -> dict[str, int]:
    """Bring black boxes into a lake with a session that is there already; it is left as it was.

    inputs: segment files, packs, folders of them, as paths or URIs. names: device id -> its entry
    of names.json. events: also write the table of single events. Returns what was ingested, by
    kind, as `drupelet telemetry ingest --json` prints it. Raises TelemetryError (errors.py).
    """
    from drupelet_tools.telemetry.base.place import place
    from drupelet_tools.telemetry.intake import job

    paths = [place(each) for each in inputs]
    return job.ingest(paths, place(lake), dict(names or {}), spark, events)


def follow(
    spark: SparkSession | None,
    inputs: Iterable[str | Path],
    lake: str | Path,
    names: Mapping[str, dict[str, Any]] | None = None,
    events: bool = False,
    *,
    until: Callable[[float], bool] | None = None,
    every_s: float | None = None,
    settle_s: float | None = None,
    files_max: int | None = None,
    on_batch: Callable[[dict[str, int]], None] | None = None,
    on_problem: Callable[[str], None] | None = None,
) -> dict[str, int]:
    """Bring black boxes into a lake as they come, with a session that is there already or none.

    The lake's keys and its atomic commits are the checkpoint: ended or killed at any point, it may
    be called again. Small batches are taken in by this process, large ones by the session.

    spark: the session; None takes in everything in this process. inputs, lake, names, events: as
    `ingest`; a folder may be empty at the beginning. until: waits for at most so many seconds and
    says whether to end, as the `wait` of a threading.Event does; it then ends behind the batch at
    hand. None: it goes on for ever. every_s: time between two looks at the inputs, 30 s if None.
    settle_s: a file must have been left alone for so long, 5 s if None. files_max: files of a
    batch at most, 10,000 if None. on_batch: called with the counts of each batch that brought
    something. on_problem: called with one line for what stands in the way and is tried again.

    Returns the sums of all batches. Raises TelemetryError (errors.py) for what is wrong at the
    beginning, and later for what does not mend itself.
    """
    import threading

    from drupelet_tools.telemetry.base.place import place
    from drupelet_tools.telemetry.intake import following

    follower = following.Follower(
        [place(each) for each in inputs],
        place(lake),
        dict(names or {}),
        spark=spark,
        events=events,
        pace=following.Pace(
            every_s=following.EVERY_S if every_s is None else every_s,
            settle_s=following.SETTLE_S if settle_s is None else settle_s,
            files_max=files_max or following.FILES_MAX,
        ),
        on_batch=on_batch or (lambda _: None),
        on_problem=on_problem or (lambda _: None),
    )
    return follower.run(until or threading.Event().wait)
