"""`drupelet sim paper`: the mobile paper's simulations on the real core."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from drupelet_tools.sim.paper import Answer


def register(app: typer.Typer) -> None:
    """Add the command to `drupelet sim`."""
    app.command()(paper)


def paper(
    simulations: Annotated[
        list[int] | None, typer.Argument(min=1, max=7, help="Which of the seven; all by default.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Only these; may be repeated.", show_default=False)
    ] = None,
    people: Annotated[int, typer.Option(min=3, max=200, help="Members of a large chat.")] = 100,
    window: Annotated[
        list[int] | None,
        typer.Option(
            min=30, help="Seconds online at a time; 300, and 30 for two people, by default."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Seeds to begin with; 0: 200, or 3 of a large chat.")
    ] = 0,
    seeds_max: Annotated[
        int, typer.Option(min=1, help="Seeds after which no more are added, wide as they are.")
    ] = 2000,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page.", show_default=False)] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Put the tables into a document, as docs/paper.md.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The paper's seven simulations: bandwidth and latency of every protocol that we have."""
    from drupelet_tools.sim import paper as work

    chosen = simulations or sorted(work.NAMES)
    jobs = jobs or os.cpu_count() or 1
    _check(chosen, protocol or ())
    say = _silent if as_json else _say
    if not as_json:
        typer.echo(HEAD)
    rows = []
    for simulation in chosen:
        known = work.KNOWN[simulation]
        wanted = [name for name in protocol or work.PROTOCOLS[simulation] if name in known]
        rows += work.answers(
            [simulation], wanted, people, window or (), seeds, seeds_max, jobs, say,
        )  # fmt: skip
        if record is not None:
            _record(record, rows)
    if as_json:
        typer.echo(json.dumps({"rows": [work.as_dict(row) for row in rows]}))
    if html is not None:
        _write(html, rows, as_json)


HEAD = (
    f"{'':2} {'protocol':17}{'window':>7}{'seeds':>7}{'copies':>8}{'x records':>11}{'x bytes':>9}"
    f"{'±':>7}{'median h':>10}{'P90 h':>8}{'±':>7}{'CPU s':>8}"
)


def _check(chosen: Sequence[int], protocols: Sequence[str]) -> None:
    from drupelet_tools.sim import paper as work

    known = sorted({one for number in chosen for one in work.KNOWN[number]})
    for name in protocols:
        if name not in known:
            told = f"no protocol {name} in these simulations: one of {', '.join(known)}"
            typer.echo(f"drupelet sim: {told}", err=True)
            raise typer.Exit(1)


def _line(row: "Answer") -> str:
    return (
        f"{row.simulation:2} {row.protocol:17}{row.window_s:7}{row.seeds:7}"
        f"{row.copies:8.2f}{row.multiplier_records:11.2f}{row.multiplier_bytes:9.2f}"
        f"{_half(row.multiplier_bytes_interval)}{row.latency_median_h:10.2f}"
        f"{row.latency_p90_h:8.2f}{_half(row.latency_p90_interval_h)}{row.cpu_s:8.1f}"
    )


def _say(row: "Answer") -> None:
    typer.echo(_line(row))


def _silent(row: "Answer") -> None:
    """JSON comes in one piece."""


def _half(interval: float | None) -> str:
    return f"{'-':>7}" if interval is None else f"{interval:7.2f}"


def _record(path: Path, rows: "Sequence[Answer]") -> None:
    from drupelet_tools.sim.paper_record import RecordError
    from drupelet_tools.sim.paper_record import record as put

    try:
        put(path, rows, "drupelet " + " ".join(sys.argv[1:]))
    except RecordError as told:
        typer.echo(f"drupelet sim: {told}", err=True)
        raise typer.Exit(1) from None


def _write(html: Path, rows: "Sequence[Answer]", silent: bool) -> None:
    from drupelet_tools.sim.paper_page import page

    try:
        html.write_text(page(rows, "drupelet " + " ".join(sys.argv[1:])), encoding="utf-8")
    except OSError as error:
        typer.echo(f"drupelet sim: cannot write {html}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    if not silent:
        typer.echo(f"page: {html}")
