"""Which firmware each boot of a device ran, by what its black box says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def label(row: Row) -> str:
    """Version and set in one text, like `0.1.0 small`; empty where the device says neither."""
    return " ".join(row[name] for name in ("firmware", "firmware_set") if row.get(name))


def split(own: Rows) -> dict[str, Rows]:
    """The rows of a device's tables by the firmware of their boots, in order of time.

    A boot that does not say which, because its first block is lost, ran what the one before it
    did. Only boots before all that say so are of an empty version.
    """
    of_boot = _of_boots(own["health"])
    names = list(dict.fromkeys(of_boot.values()))
    if len(names) <= 1:
        return dict.fromkeys(names, own)
    return {
        name: {
            table: [row for row in rows if of_boot.get(row["boot"]) == name]
            for table, rows in own.items()
        }
        for name in names
    }


def _of_boots(health: Sequence[Row]) -> dict[int, str]:
    names: dict[int, str] = {}
    last = ""
    for row in sorted(health, key=lambda row: row["boot"]):
        last = names[row["boot"]] = label(row) or last
    return names
