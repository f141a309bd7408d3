"""Four devices, a lake of given rows, and the figures that the analyses make of it."""

from drupelet_tools.telemetry.analysis import figures
from drupelet_tools.telemetry.lake import commit, delta
from telemetry import fleet_rows
from telemetry.fleet_rows import START_MS, segment

A, B, C, D = "a0000001", "b0000002", "c0000003", "d0000004"
HOUR = 3_600_000


def lake_of(folder, **rows):
    """A lake of these rows; every device that is named has a health row and a segment."""
    named = {row["device"] for listed in rows.values() for row in listed}
    rows.setdefault("health", [fleet_rows.health(device) for device in sorted(named)])
    rows.setdefault("segments", [segment(d, 0, 0, 10 * HOUR, START_MS) for d in sorted(named)])
    commit.append(folder / "lake", rows, "test")
    return delta.open_lake(folder / "lake")


def figures_of(folder, **rows):
    found = figures.figures(lake_of(folder, **rows))
    return found, {row["device"]: row for row in found["devices"]}
