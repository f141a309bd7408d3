"""`drupelet sim fleet` and `sim contacts`: what a fleet costs, and how late things are."""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet_host.cli.common import path

if TYPE_CHECKING:
    from drupelet_tools.sim.fleet import Sum

EpochS = Annotated[int, typer.Option("--epoch", min=1, max=86_400, help="Seconds of an epoch.")]
Readings = Annotated[int, typer.Option(min=1, max=1440, help="Readings of each node and day.")]
Mode = Annotated[str, typer.Option(help="batch, interactive, or auto: by what a link measures.")]
MODES = {"batch": 0, "interactive": 1, "auto": 2}  # of member.mode_policy
Seed = Annotated[int, typer.Option(help="The seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add both to `drupelet sim`."""
    app.command()(fleet)
    app.command()(contacts)


def fleet(
    nodes: Annotated[int, typer.Option(min=2, max=1_000_000, help="Devices.")] = 100,
    epoch: EpochS = 900,
    readings_per_day: Readings = 24,
    group: Annotated[int, typer.Option(min=2, max=8, help="Members of each group.")] = 5,
    days: Annotated[int, typer.Option(min=1, max=366, help="Simulated days.")] = 1,
    mode: Mode = "auto",
    seed: Seed = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
    master: Annotated[
        str, typer.Option(help="A Spark master to run on instead.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """A fleet of small groups whose members meet as people in a real laboratory did."""
    from drupelet_tools.sim.fleet import Workload, run_fleet

    if nodes < group:
        typer.echo(f"drupelet sim: {nodes} nodes make no group of {group}", err=True)
        raise typer.Exit(1)
    if nodes % group:
        fit = nodes - nodes % group
        complaint = f"{nodes} nodes make no whole groups of {group}: {fit} or {fit + group} do"
        typer.echo(f"drupelet sim: {complaint}", err=True)
        raise typer.Exit(1)
    work = Workload(group, epoch * 1000, readings_per_day, days, _mode(mode))
    started_s = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def say(done: int) -> None:
        if is_terminal:
            typer.echo(f"\r{done:,} of {nodes:,} nodes", err=True, nl=False)

    jobs = jobs or os.cpu_count() or 1
    total = run_fleet(nodes, work, seed, jobs, master, say)
    if is_terminal:
        typer.echo("", err=True)
    _show(total, time.monotonic() - started_s, jobs, as_json)


def contacts(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", parser=path, help="CSV t,a,b,up|down, or ONE's.")
    ],
    epoch: EpochS = 900,
    readings_per_day: Readings = 24,
    mode: Mode = "auto",
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded contact trace with all its nodes in one group."""
    from drupelet_tools.sim.contacts import TraceError, read
    from drupelet_tools.sim.fleet import Workload, run_trace

    started_s = time.monotonic()
    try:
        trace = read(file)
    except TraceError as error:
        typer.echo(f"drupelet sim: {error}", err=True)
        raise typer.Exit(1) from None
    if trace.dropped:
        complaint = (
            f"contacts that begin with the last line's time last no time: {trace.dropped} left out"
        )
        typer.echo(f"drupelet sim: {file}: {complaint}", err=True)
    total = run_trace(trace, Workload(0, epoch * 1000, readings_per_day, 1, _mode(mode)), seed)
    _show(total, time.monotonic() - started_s, 0, as_json)


def _mode(name: str) -> int:
    if name not in MODES:
        typer.echo(f"drupelet sim: no mode {name}: one of {', '.join(MODES)}", err=True)
        raise typer.Exit(1)
    return MODES[name]


def _show(total: "Sum", seconds: float, jobs: int, as_json: bool) -> None:
    from drupelet_tools.sim.fleet import BODY_SIZE, peak_mb

    late = sorted(total.latencies_s)
    done = max(total.deliveries, 1)
    figures: dict[str, float | int | None] = {
        "nodes": total.nodes, "contacts": total.contacts, "published": total.published,
        "deliveries": total.deliveries, "still_to_come": total.missing,
        "bytes_per_delivery": round(total.bytes / done, 1),
        "multiplier_bytes": round(total.bytes / done / BODY_SIZE, 2),
        "latency_median_s": late[len(late) // 2] if late else None,
        "latency_p90_s": late[int(len(late) * 0.9)] if late else None,
        "cpu_ms_per_delivery": round(total.cpu_s * 1000 / done, 3),
        "cpu_s": round(total.cpu_s, 1), "wall_s": round(seconds, 1), "peak_mb": peak_mb(jobs),
        "peak_kb_per_delivery": round(peak_mb(jobs) * 1024 / done, 2),
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        typer.echo(f"{name:22}{'-' if value is None else f'{value:,}':>14}")
