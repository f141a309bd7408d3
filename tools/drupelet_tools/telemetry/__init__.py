"""From raw black boxes to tables and a report (docs/telemetry.md).

`decode`, `summary`, `energy`, `lake`, `figures`, `charts` and `report` import no Spark;
`session`, `job` and `command` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    from drupelet_tools.telemetry import job
    from drupelet_tools.telemetry.place import place

    paths = [place(each) for each in inputs]
    return job.ingest(paths, place(lake), dict(names or {}), spark, events)
