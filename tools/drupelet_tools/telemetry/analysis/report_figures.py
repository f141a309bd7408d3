"""The figures of a lake, as the report, the alerts and the demo show them: in order of name,
with the versions of the fleet file, and all that needs attention.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from drupelet_tools.telemetry.analysis import attention
from drupelet_tools.telemetry.analysis.comparison import compare, periods_of
from drupelet_tools.telemetry.analysis.figures import Figures, figures
from drupelet_tools.telemetry.analysis.figures_read import quarantined
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan, battery_plan
from drupelet_tools.telemetry.analysis.group_costs import Period
from drupelet_tools.telemetry.analysis.period import PeriodHours, read_hours
from drupelet_tools.telemetry.analysis.upgrades import dearer
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place
from drupelet_tools.telemetry.lake.delta import Lake, open_lake
from drupelet_tools.telemetry.text.natural import natural

ASSUMED_BATTERY = "18650"  # what a life is modelled with where nobody says which battery

Results = Mapping[str, Mapping[str, int]]


def build(
    lake: Place,
    results: Results | None = None,
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
    plan = plan or assumed_plan()
    all_figures = of_part(
        state, partial(read_hours, state), results, plan, now_ms=now_ms, days=days, seed=seed,
        advance=advance,
    )  # fmt: skip
    devices = all_figures["devices"]
    if not devices:
        raise empty(lake)
    known = {word for row in devices for word in (row["device"], row["name"])}
    nobodys = [place for place in quarantined(state) if not place["device"]]
    of_fleet = attention.of_the_fleet(devices, nobodys, never_heard(plan, known), dearer(devices))
    all_figures["attention"] = attention.merged([all_figures["attention"], of_fleet])
    return all_figures


def of_part(
    state: Lake,
    hours_of: Callable[[tuple[Period, ...]], PeriodHours],
    results: Results | None,
    plan: FleetPlan,
    *,
    now_ms: float | None,
    days: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """The figures of a lake or of a view of one; nothing in them is of no device.

    `hours_of` gives the hours of some periods: of the devices of the view, or of more.
    """
    all_figures = figures(state, results, plan, now_ms=now_ms, seed=seed, advance=advance)
    devices = all_figures["devices"]
    devices.sort(key=lambda row: (natural(row["name"]), row["device"]))
    rows = attention.of_devices(devices, all_figures["outliers"], quarantined(state))
    severities = attention.severities(rows)
    for row in devices:
        row["severities"] = severities.get(row["device"], {})
    all_figures["attention"] = attention.merged([rows])
    now_ms, all_figures["comparison"] = all_figures["now_ms"], None
    if days is not None and now_ms is not None:
        hours = hours_of(periods_of(now_ms, days))
        all_figures["comparison"] = compare(state, hours, plan, now_ms, days, seed=seed)
    return all_figures


def assumed_plan() -> FleetPlan:
    """What is taken where nobody says which batteries the devices have."""
    return battery_plan(ASSUMED_BATTERY, assumed=True)


def empty(lake: Place) -> TelemetryError:
    """The error of a lake without a device."""
    return TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")


def never_heard(plan: FleetPlan, known: Collection[str]) -> list[str]:
    """The names of a fleet file that are of no known device."""
    return sorted(set(plan.devices) - set(known), key=natural)


def device_names(lake: Place) -> list[tuple[str, str]]:
    """Id and name of the devices that a lake holds."""
    table = open_lake(lake).read_devices()
    return list(zip(table["device"].to_pylist(), table["name"].to_pylist(), strict=True))
