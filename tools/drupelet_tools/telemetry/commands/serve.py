"""`drupelet telemetry serve`: a lake's fleet for Prometheus, and the dashboard that shows it."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli.common import path
from drupelet_tools.telemetry.commands.command_line import (
    BatteryOption,
    FleetOption,
    one_line,
    path_or_uri,
)
from drupelet_tools.telemetry.commands.report import read_plan

if TYPE_CHECKING:
    from drupelet_tools.telemetry.monitor.fleet_watch import FleetWatch

PORT = 19469
# Prometheus waits 10 s for an answer unless it is told otherwise; a scrape of a lake that takes
# longer to read is answered with what was read before.
SCRAPE_WAIT_S = 5.0
TEXTFILE_EVERY_S = 15.0
DASHBOARD = "grafana/fleet.json"

OptionalLake = Annotated[
    Any,
    typer.Argument(
        parser=path_or_uri, metavar="[LAKE]", help="The lake: folder or URI.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `drupelet telemetry`."""
    app.command()(serve)


def serve(
    lake: OptionalLake = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="http://127.0.0.1:PORT/metrics; 0: any free one."),
    ] = PORT,
    textfile: Annotated[
        Path | None,
        typer.Option("--textfile", parser=path, metavar="FILE", help="Write it into a file of"
                     " node_exporter's textfile collector instead, again and again.",
                     show_default=False),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Write it once, to standard output or --textfile.")
    ] = False,
    fleet: FleetOption = None,
    battery: BatteryOption = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print a Grafana dashboard of it, no more.")
    ] = False,
) -> None:  # fmt: skip
    """Serve a lake's fleet for Prometheus on this machine alone, until Ctrl-C."""
    if dashboard:
        package = resources.files("drupelet_tools.telemetry.monitor")
        typer.echo((package / DASHBOARD).read_text("utf-8"), nl=False)
        return
    if lake is None:
        raise typer.BadParameter("name the LAKE, or --dashboard")
    with one_line():
        from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
        from drupelet_tools.telemetry.monitor.fleet_watch import FleetWatch

        # Without a battery that somebody named no life is modelled.
        watch = FleetWatch(lake, read_plan(fleet, battery) or FleetPlan())
        if once:
            watch.begin(whole=True)
            _write(_text(watch, None), textfile)
        elif textfile is not None:
            watch.begin(whole=True)
            _keep_writing(watch, textfile)
        else:
            _serve(watch, port)


def _text(watch: FleetWatch, wait_s: float | None) -> str:
    from drupelet_tools.telemetry.monitor.fleet_page import render

    return render(watch.snapshot(wait_s), time.time() * 1000)


def _serve(watch: FleetWatch, port: int) -> None:
    from drupelet_host.export.metrics_server import MetricsServer

    with closing(MetricsServer(port, partial(_text, watch, SCRAPE_WAIT_S))) as server:
        watch.begin(whole=False)
        output.line(f"http://127.0.0.1:{server.port}/metrics")
        threading.Event().wait()


def _keep_writing(watch: FleetWatch, textfile: Path) -> None:
    """What cannot be read or written for now is said once, and tried again."""
    complaint = ""
    while True:
        try:
            _write(_text(watch, None), textfile)
            complaint = ""
        except DrupeletError as error:
            if str(error) != complaint:
                complaint = str(error)
                output.complain(complaint)
        time.sleep(TEXTFILE_EVERY_S)


def _write(text: str, textfile: Path | None) -> None:
    from drupelet_host.export.prometheus_text import write_textfile

    if textfile is None:
        typer.echo(text, nl=False)
    else:
        write_textfile(textfile, text)
