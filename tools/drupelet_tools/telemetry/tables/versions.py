"""Which firmware each boot of a device ran, by what its black box says of itself.

Boots that follow on each other with one firmware are a run; a device whose upgrade was taken back
has three runs of two versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def label(row: Row) -> str:
    """Version and set in one text, like `0.1.0 small`; empty where the device says neither."""
    return " ".join(row[name] for name in ("firmware", "firmware_set") if row.get(name))


def runs(own: Rows) -> list[tuple[str, Rows]]:
    """The firmware of each run, the newest last, and the rows of the device's tables in it.

    A boot that does not say which, because its first block is lost, ran what the one before it
    did. Only boots before all that say so are of an empty version.
    """
    run_of: dict[int, int] = {}
    names: list[str] = []
    for row in sorted(own["health"], key=lambda row: row["boot"]):
        name = label(row) or (names[-1] if names else "")
        if not names or names[-1] != name:
            names.append(name)
        run_of[row["boot"]] = len(names) - 1
    if len(names) <= 1:
        return [("".join(names), own)]
    return [
        (name, {table: _of_run(rows, run_of, run) for table, rows in own.items()})
        for run, name in enumerate(names)
    ]


def _of_run(rows: Sequence[Row], run_of: Mapping[int, int], run: int) -> list[Row]:
    return [row for row in rows if run_of.get(row["boot"]) == run]
