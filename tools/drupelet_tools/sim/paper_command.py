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
        typer.Option(min=30, help="Seconds online at a time; 300 and 30 by default."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Seeds to begin with; 0: 200, or 3 of a large chat.")
    ] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The paper's seven simulations: bandwidth and latency of every protocol that we have."""
    from drupelet_tools.sim import paper as work

    chosen = simulations or sorted(work.NAMES)
    _check(chosen, protocol or ())
    if not as_json:
        typer.echo(HEAD)

    def say(row: "work.Answer") -> None:
        if not as_json:
            typer.echo(_line(row))

    rows = []
    for simulation in chosen:
        offered = work.PROTOCOLS[simulation]
        wanted = [name for name in protocol or offered if name in offered]
        rows += work.answers(
            [simulation], wanted, people, window or [300, 30], seeds, jobs or os.cpu_count() or 1,
            say,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"rows": [work.as_dict(row) for row in rows]}))
    if html is not None:
        _write(html, rows)
        if not as_json:
            typer.echo(f"page: {html}")


HEAD = (
    f"{'':2} {'protocol':17}{'window':>7}{'seeds':>7}{'x records':>11}{'x bytes':>9}"
    f"{'±':>7}{'median h':>10}{'P90 h':>8}{'±':>7}"
)


def _check(chosen: Sequence[int], protocols: Sequence[str]) -> None:
    from drupelet_tools.sim import paper as work

    known = sorted({one for number in chosen for one in work.PROTOCOLS[number]})
    for name in protocols:
        if name not in known:
            told = f"no protocol {name} in these simulations: one of {', '.join(known)}"
            typer.echo(f"drupelet sim: {told}", err=True)
            raise typer.Exit(1)


def _line(row: "Answer") -> str:
    return (
        f"{row.simulation:2} {row.protocol:17}{row.window_s:7}{row.seeds:7}"
        f"{row.multiplier_records:11.2f}{row.multiplier_bytes:9.2f}"
        f"{row.multiplier_bytes_interval:7.2f}{row.latency_median_h:10.2f}"
        f"{row.latency_p90_h:8.2f}{row.latency_p90_interval_h:7.2f}"
    )


def _write(html: Path, rows: "Sequence[Answer]") -> None:
    from drupelet_tools.sim.paper_page import page

    try:
        html.write_text(page(rows, "drupelet " + " ".join(sys.argv[1:])), encoding="utf-8")
    except OSError as error:
        typer.echo(f"drupelet sim: cannot write {html}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
