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


# Whoever is online a tenth of the time is away for nine times as long: more than a day at a time
# leaves too few meetings in what is simulated, SDS among many for 4 days.
WINDOW_S_MAX = 86_400
Window = Annotated[
    list[int] | None,
    typer.Option(
        min=30, max=WINDOW_S_MAX,
        help="Seconds online at a time; 300, and 30 for two people, by default.",
    ),
]  # fmt: skip


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
    window: Window = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Seeds to begin with; 0: 200, or 3 of a large chat.")
    ] = 0,
    seeds_max: Annotated[
        int, typer.Option(min=1, help="Seeds after which no more are added, wide as they are.")
    ] = 2000,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes, or Spark's partitions; 0: one a core.")
    ] = 0,
    master: Annotated[
        str, typer.Option(help="A Spark master to run on instead.", show_default=False)
    ] = "",
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
    _check(chosen, protocol or ())
    say = _silent if as_json else _say
    if not as_json:
        typer.echo(HEAD)
    rows: list[work.Answer] = []
    options = people, window or (), seeds, seeds_max
    with work.workers(jobs or os.cpu_count() or 1, master) as runs:
        for number in chosen:
            rows += work.answers([number], _named(number, protocol), *options, runs, say)
            if record is not None:
                _record(record, rows)
    _finish(rows, html, as_json)


def _finish(rows: "Sequence[Answer]", html: Path | None, as_json: bool) -> None:
    from drupelet_tools.sim import paper as work

    if as_json:
        typer.echo(json.dumps({"rows": [work.as_dict(row) for row in rows]}))
    if html is not None:
        _write(html, rows, as_json)


HEAD = (
    f"{'':2} {'protocol':17}{'window':>7}{'seeds':>6}{'there %':>9}{'copies':>8}{'x records':>11}"
    f"{'x bytes':>9}{'±':>7}{'median h':>10}{'P90 h':>8}{'±':>7}{'CPU s':>8}"
)


def _named(number: int, protocols: Sequence[str] | None) -> list[str]:
    """What one simulation runs: what was named and it knows, or its own."""
    from drupelet_tools.sim import paper as work

    return [name for name in protocols or work.PROTOCOLS[number] if name in work.KNOWN[number]]


def _check(chosen: Sequence[int], protocols: Sequence[str]) -> None:
    from drupelet_tools.sim import paper as work

    known = sorted({name for number in chosen for name in work.KNOWN[number]})
    for name in protocols:
        if name not in known:
            complaint = f"no protocol {name} in these simulations: one of {', '.join(known)}"
            typer.echo(f"drupelet sim: {complaint}", err=True)
            raise typer.Exit(1)


def line_of(row: "Answer") -> str:
    """A row of the table that is printed."""
    return (
        f"{row.simulation:2} {row.protocol:17}{row.window_s:7}{row.seeds:6}"
        f"{row.delivered * 100:9.2f}{_cell(row.copies, 8)}{_cell(row.multiplier_records, 11)}"
        f"{_cell(row.multiplier_bytes, 9)}{_cell(row.multiplier_bytes_interval, 7)}"
        f"{_cell(row.latency_median_h, 10)}{_cell(row.latency_p90_h, 8)}"
        f"{_cell(row.latency_p90_interval_h, 7)}{row.cpu_s:8.1f}"
    )


def _say(row: "Answer") -> None:
    typer.echo(line_of(row))


def _silent(row: "Answer") -> None:
    """JSON comes in one piece."""


def _cell(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.2f}"


def _record(path: Path, rows: "Sequence[Answer]") -> None:
    from drupelet_tools.sim.paper_record import RecordError
    from drupelet_tools.sim.paper_record import record as put

    try:
        put(path, rows, "drupelet " + " ".join(sys.argv[1:]))
    except RecordError as complaint:
        typer.echo(f"drupelet sim: {complaint}", err=True)
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
