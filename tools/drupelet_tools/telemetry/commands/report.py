"""`drupelet telemetry report` and `import`: neither needs Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet_host.cli.common import finite, path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.commands.command_line import (
    BatteryOption,
    FleetOption,
    JsonFlag,
    LakeOption,
    PageOption,
    ResultsOption,
    one_line,
)

if TYPE_CHECKING:
    from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan

COUNT_MAX = 2**53  # beyond, JSON's readers do not agree on the number
NAMES_SHOWN = 8  # of a large fleet


def register(app: typer.Typer) -> None:
    """Add the commands to `drupelet telemetry`."""
    app.command()(report)
    app.command(name="import")(import_)


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs, if somebody is looking; call it with each step."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.advance(task, step)


def report(
    lake: LakeOption,
    html: PageOption,
    results: ResultsOption = None,
    fleet: FleetOption = None,
    battery: BatteryOption = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", parser=path, help="A file of `energy calibrate`."),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option("--now", help="ISO time from which silence counts; else the lake's newest."),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days",
            min=0.01,
            max=3660,
            callback=finite,
            help="Compare the last days with as many before.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals.")] = 0,
    csv: Annotated[bool, typer.Option("--csv", help="A .csv beside the page, too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write one self-contained HTML page from a lake."""
    with one_line():
        from drupelet_tools.telemetry.analysis.report_figures import build, device_names
        from drupelet_tools.telemetry.page import report as page

        device_counts = read_results(results)
        plan = read_plan(fleet, battery, calibration)
        now_ms = moment_ms(now)
        if csv and html.suffix == ".csv":
            raise TelemetryError(
                f"--html {html}: --csv writes a file of this name; name the page"
                f" {html.with_suffix('.html').name}"
            )
        if days is not None and not math.isfinite(days):
            raise TelemetryError(f"--days {days}: want a number of days")
        # Said before the work, not after it.
        if isinstance(html, Path) and not html.parent.is_dir():
            is_there = html.parent.exists()
            why = "is not a folder; name another" if is_there else "no such folder; make it"
            raise TelemetryError(f"cannot write the report: {html.parent}: {why}")
        if csv and isinstance(html, Path) and html.with_suffix(".csv").is_dir():
            raise TelemetryError(f"{html.with_suffix('.csv')}: is a folder; name another page")
        devices = device_names(lake)
        match(devices, results, device_counts, fleet, plan)
        _match_calibrations(devices, calibration, plan)
        with progress("devices", len(devices)) as advance:
            all_figures = page.write_report(
                lake, html, device_counts, plan=plan, now_ms=now_ms, days=days, seed=seed,
                advance=advance,
            )  # fmt: skip
        if (csv or as_json) and "pages" in all_figures:  # an index has only short rows
            all_figures = build(
                lake, device_counts, plan=plan, now_ms=now_ms, days=days, seed=seed
            )
        if csv:
            page.write_csv(html.with_suffix(".csv"), all_figures)
        typer.echo(json.dumps(all_figures) if as_json else f"report: {html}")


def import_(
    files: Annotated[
        list[Path], typer.Argument(parser=path, help="NDJSON or CSV, plain or gzip.")
    ],
    mapping: Annotated[
        str, typer.Option("--mapping", help="A mapping file, or the name of a shipped one.")
    ],
    lake: LakeOption,
    skip_unusable: Annotated[
        bool,
        typer.Option("--skip-unusable", help="Leave lines that do not fit in quarantine."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring another system's frames into a lake, all or nothing."""
    with one_line():
        from drupelet_tools.telemetry.imports import foreign_frames

        size = sum(path.stat().st_size for path in files if path.is_file())
        with progress("reading", size) as advance:
            imported = foreign_frames.import_files(
                files, mapping, lake, skip_unusable=skip_unusable, advance=advance
            )
        if as_json:
            counts = {
                "frames": imported.frames,
                "devices": imported.devices,
                "unusable": imported.unusable,
            }
            typer.echo(json.dumps({**counts, "new": imported.new, "rows": imported.rows}))
        elif not imported.new:
            typer.echo("nothing new: the lake has these files already")
        else:
            skipped = f", {imported.unusable:,} lines in quarantine" if imported.unusable else ""
            typer.echo(f"{imported.frames:,} frames of {imported.devices:,} devices{skipped}")


def read_plan(
    fleet: Path | None, battery: str | None, calibration: Path | None = None
) -> FleetPlan | None:
    """The fleet file, or one battery for all, with calibrations; None where none is given."""
    from drupelet_tools.telemetry.analysis import fleet_file
    from drupelet_tools.telemetry.calibration import device_factors

    if fleet is not None and battery is not None:
        raise TelemetryError("--fleet and --battery: give one; the fleet file names batteries")
    plan = None
    if fleet is not None:
        plan = fleet_file.load_plan(fleet)
    elif battery is not None:
        plan = fleet_file.battery_plan(battery)
    if calibration is None:
        return plan
    from drupelet_tools.telemetry.analysis.report_figures import ASSUMED_BATTERY

    own = device_factors.read_calibrations(calibration)
    plan = plan or fleet_file.battery_plan(ASSUMED_BATTERY, assumed=True)
    return replace(plan, calibrations=own)


def moment_ms(now: str | None) -> float | None:
    """A time that was given, None without one.

    Raises:
        TelemetryError: it is no ISO time, or before 2000 or after 2100.
    """
    if now is None:
        return None
    from drupelet_tools.telemetry.blackbox.codes import WALL_MS_MAX
    from drupelet_tools.telemetry.imports.mapping import WALL_MS_MIN

    try:
        moment = datetime.fromisoformat(now)
    except ValueError:
        raise TelemetryError(f"--now {now!r}: want an ISO time like 2026-11-21T09:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    now_ms = moment.timestamp() * 1000
    if not WALL_MS_MIN <= now_ms <= WALL_MS_MAX:
        raise TelemetryError(f"--now {now!r}: want a time from 2000 to 2100")
    return now_ms


def match(
    devices: Sequence[tuple[str, str]],
    results: Path | None,
    counts: Mapping[str, object] | None,
    fleet: Path | None = None,
    plan: FleetPlan | None = None,
) -> None:
    """Refuse counts of a device that is not there, for they would be in no sum; a plan may name
    one that was not heard of yet, so that is only said."""
    known = {word for device in devices for word in device}
    if not known:
        return  # an empty lake is told by who reads it
    counted = sorted(set(counts or ()) - known)
    if counted:
        have = ", ".join(sorted(name for _, name in devices)[:NAMES_SHOWN])
        raise TelemetryError(f"{results}: {counted[0]!r} is no device of the lake; it has {have}")
    planned = sorted(set(plan.devices if plan else ()) - known)
    if planned:
        names = ", ".join(repr(name) for name in planned[:NAMES_SHOWN])
        more = f" and {len(planned) - NAMES_SHOWN:,} more" if len(planned) > NAMES_SHOWN else ""
        typer.echo(f"{fleet}: no device of the lake: {names}{more}", err=True)


def _match_calibrations(
    devices: Sequence[tuple[str, str]], calibration: Path | None, plan: FleetPlan | None
) -> None:
    """Say which calibrations are of no device of the lake: they are in no figure."""
    known = {word for device in devices for word in device}
    other = sorted(set(plan.calibrations if plan else ()) - known)
    if known and other:
        names = ", ".join(repr(name) for name in other[:NAMES_SHOWN])
        typer.echo(f"{calibration}: calibrations of no device of the lake: {names}", err=True)


def read_results(path: Path | None) -> dict[str, dict[str, int]] | None:
    """Counts by device name, as whoever ran the devices knows them; None without a file."""
    if path is None:
        return None
    from drupelet_tools.telemetry.analysis.figures import RESULT_KEYS

    counts = ", ".join(RESULT_KEYS)
    shape = f'--results is JSON like {{"<name or id>": {{"expected": 120}}}}, with any of {counts}'
    try:
        results = json.loads(path.read_text("utf-8"))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except (ValueError, RecursionError) as broken:
        raise TelemetryError(f"{path}: not JSON ({broken}); {shape}") from None
    if not isinstance(results, dict) or not all(isinstance(r, dict) for r in results.values()):
        raise TelemetryError(f"{path}: holds no counts by device; {shape}")
    for name, row in results.items():
        for key, value in row.items():
            if key not in RESULT_KEYS:
                raise TelemetryError(f"{path}: {name!r}: {key[:40]!r} is no count; {shape}")
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and 0 <= value <= COUNT_MAX):
                want = "want a whole number, 0 or more"
                raise TelemetryError(f"{path}: {name!r}: {key} = {repr(value)[:40]}: {want}")
    return {
        name: {key: value for key, value in row.items() if value is not None}
        for name, row in results.items()
    }
