"""The figures of a lake, as the report, the alerts and the demo show them: in order of name,
with the versions of the fleet file, and all that needs attention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from drupelet_tools.telemetry.analyses_plan import FleetPlan, battery_plan
from drupelet_tools.telemetry.attention import attention
from drupelet_tools.telemetry.comparison import compare
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.figures import Figures, figures
from drupelet_tools.telemetry.figures_read import quarantined
from drupelet_tools.telemetry.lake import open_lake

ASSUMED_BATTERY = "18650"  # what a life is modelled with where nobody says which battery


def build(
    lake: Path,
    results: Mapping[str, Mapping[str, int]] | None = None,
    *,
    plan: FleetPlan | None = None,
    now_ms: float | None = None,
    days: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """The figures of a lake, as the report and the demo print them (see `figures.figures`).

    With `days`, the last days are compared with as many before (`comparison`).
    """
    state = open_lake(lake)
    plan = plan or battery_plan(ASSUMED_BATTERY, assumed=True)
    all_figures = figures(state, results, plan, now_ms=now_ms, seed=seed, advance=advance)
    devices = all_figures["devices"]
    if not devices:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    devices.sort(key=lambda row: (natural(row["name"]), row["device"]))
    for row in devices:
        row["firmware"] = plan.of(row["device"], row["name"]).firmware
    known = {word for row in devices for word in (row["device"], row["name"])}
    never_heard = sorted(set(plan.devices) - known, key=natural)
    far = all_figures["outliers"]
    all_figures["attention"] = attention(devices, far, quarantined(state), never_heard)
    all_figures["comparison"] = None
    if days is not None and all_figures["now_ms"] is not None:
        all_figures["comparison"] = compare(state, plan, all_figures["now_ms"], days, seed=seed)
    return all_figures


def natural(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts n2 before n10."""
    parts = [part for part in re.split(r"([0-9]+)", text) if part]
    return [_natural_part(part) for part in parts]


def _natural_part(part: str) -> tuple[bool, int, str]:
    if part[0] not in "0123456789":
        return True, 0, part.lower()
    digits = part.lstrip("0")  # of any length, so it stays text: more digits, more
    return False, len(digits), digits


def device_names(lake: Path) -> list[tuple[str, str]]:
    """Id and name of the devices that a lake holds."""
    table = open_lake(lake).read_devices()
    return list(zip(table["device"].to_pylist(), table["name"].to_pylist(), strict=True))
