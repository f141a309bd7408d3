"""`drupelet telemetry alerts`: what needs attention, for a cron job: one line each, an exit code.

The codes are none of those with which other failures end (`drupelet_host.cli.exit_codes`), so a
job can tell a silent device from a lake that is not there.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from drupelet_host.cli import exit_codes
from drupelet_tools.telemetry.analysis.attention import ALARM, SEVERITIES, WARNING, Row
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.commands.command_line import (
    BatteryOption,
    FleetOption,
    JsonFlag,
    LakeArgument,
    ResultsOption,
    one_line,
)
from drupelet_tools.telemetry.commands.report import match, moment_ms, read_plan, read_results
from drupelet_tools.telemetry.text.cells import moment

STATUSES = {ALARM: exit_codes.ALARMS, WARNING: exit_codes.WARNINGS}


def register(app: typer.Typer) -> None:
    """Add the command to `drupelet telemetry`."""
    app.command()(alerts)


def alerts(
    lake: LakeArgument,
    results: ResultsOption = None,
    fleet: FleetOption = None,
    battery: BatteryOption = None,
    now: Annotated[
        str | None,
        typer.Option("--now", help="ISO time from which silence counts; else this machine's."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what needs attention: status 11 with an alarm, 10 with a warning, else 0."""
    with one_line():
        from drupelet_tools.telemetry.analysis import buckets
        from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
        from drupelet_tools.telemetry.analysis.report_figures import device_names

        counts = read_results(results)
        # Without a battery that somebody named no life is modelled: none would be an alert.
        plan = read_plan(fleet, battery) or FleetPlan()
        given_ms = moment_ms(now)
        now_ms = time.time() * 1000 if given_ms is None else given_ms
        devices = device_names(lake)
        match(devices, results, counts)
        task = buckets.Task(lake, counts, plan, now_ms)
        all_figures = buckets.whole_or_in_buckets(task, len(devices))
    rows = all_figures["attention"]
    typer.echo(_json(all_figures) if as_json else _lines(rows))
    status = next((STATUSES[row["severity"]] for row in rows if row["severity"] in STATUSES), 0)
    raise typer.Exit(status)


def _json(all_figures: Row) -> str:
    rows = all_figures["attention"]
    counts = all_figures.get("counts") or Counter(row["severity"] for row in rows)
    totals = {f"{severity}s": counts[severity] for severity in SEVERITIES}
    return json.dumps({"now_ms": round(all_figures["now_ms"]), **totals, "attention": rows})


def _lines(rows: Sequence[Row]) -> str:
    return "\n".join(_line(row) for row in rows) or "nothing needs attention"


def _line(row: Row) -> str:
    since = "" if row["since_ms"] is None else f" (since {moment(row['since_ms'])} UTC)"
    line = f"{row['severity']}: {row['label']}: {row['problem']}{since}; {row['remedy']}"
    return codes.as_text(line)  # a file's name may hold what a terminal would obey
