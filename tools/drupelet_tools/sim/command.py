"""`drupelet sim`: runs worlds that try to break the real thing, and says how to see it again."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet_host.cli.common import finite
from drupelet_tools.sim import EACH, KINDS, SOAK_KINDS
from drupelet_tools.sim.channel_command import register as register_channel
from drupelet_tools.sim.exhaust_command import register as register_exhaust
from drupelet_tools.sim.fleet_command import register as register_fleet
from drupelet_tools.sim.paper_command import register as register_paper

app = typer.Typer(
    help="Simulate devices, carriers and power cuts; every run replays from its seed.",
    no_args_is_help=True, add_completion=False, rich_markup_mode=None,
)  # fmt: skip

register_exhaust(app)
register_paper(app)
register_channel(app)
register_fleet(app)

if TYPE_CHECKING:
    from drupelet_tools.sim.run import Result

# Far beyond the six hours that a run may take. Of a single frame nobody can say that memory grew.
FRAMES_MAX = 1e9
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _one_of(kinds: tuple[str, ...]) -> Callable[[str], str]:
    def check(kind: str) -> str:
        if kind and kind not in kinds:
            raise typer.BadParameter(f"no kind {kind}: one of {', '.join(kinds)}")
        return kind

    return check


_HELP = "One of docs/simulator.md 1; else the seed's own."
Kind = Annotated[str, typer.Option(help=_HELP, callback=_one_of(KINDS))]
SoakKind = Annotated[
    str,
    typer.Option(
        help=f"{_HELP[:-1]}; {EACH}: all of them, with the same time for each.",
        callback=_one_of((*SOAK_KINDS, EACH)),
    ),
]


@app.command()
def run(
    seed: Annotated[int, typer.Option(help="The seed of the world.")] = 1,
    kind: Kind = "",
    trace: Annotated[bool, typer.Option("--trace", help="Print every event.")] = False,
    only: Annotated[
        str, typer.Option(help="Keep only these steps of its plan, as 1-4,7.", show_default=False)
    ] = "all",
    black_boxes: Annotated[
        Path | None,
        typer.Option(help="Give every device a black box and put them here.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one seed; a violation ends with exit code 1 and the shortest run that shows it."""
    from drupelet_tools.sim.boxes import run_with_boxes
    from drupelet_tools.sim.minimise import parse_spans
    from drupelet_tools.sim.seeds import run_seed

    try:
        steps = None if only == "all" else parse_spans(only)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from None
    say = typer.echo if trace else None
    if black_boxes is not None:
        result = run_with_boxes(seed, kind, black_boxes)
    else:
        result = run_seed(seed, kind, steps, say)
    _show({name: getattr(result, name) for name in result.__dataclass_fields__}, as_json)
    if result.violation:
        if steps is None and black_boxes is None:
            from drupelet_tools.sim.soak import smallest

            typer.echo(f"again, as short as it gets: {smallest(result)}", err=True)
        raise typer.Exit(1)


@app.command()
def replay(
    seed: Annotated[int, typer.Argument(help="The seed of the world.")],
    kind: Kind = "",
    as_json: AsJson = False,
) -> None:
    """Run a seed twice and compare what happened, to the last bit of every frame."""
    from drupelet_tools.sim.seeds import run_seed

    first, second = (run_seed(seed, kind) for _ in range(2))
    same = first.digest == second.digest and first.violation == second.violation
    if as_json:
        digests = [first.digest, second.digest]
        figures = {"seed": seed, "kind": first.kind, "digests": digests, "same": same}
        typer.echo(json.dumps({**figures, "violation": first.violation}))
    else:
        typer.echo(f"{first.digest} {'the same twice' if same else 'and then ' + second.digest}")
        if first.violation:
            typer.echo(first.violation)
    if not same:
        raise typer.Exit(1)


@app.command()
def soak(
    minutes: Annotated[
        float, typer.Option(min=0.01, callback=finite, help="How long to go on.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1_000_000,
    kind: SoakKind = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one per core.")] = 0,
    seeds_max: Annotated[int, typer.Option(min=0, help="Stop after so many; 0: never.")] = 0,
    book: Annotated[
        Path | None,
        typer.Option(help="Go on behind the soaks in this file, and add up.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run seed after seed on all cores; any violation ends with exit code 1."""
    from drupelet_tools.sim.soak import read_book
    from drupelet_tools.sim.soak import soak as go

    if book is None:
        totals = go(minutes, seed, kind, workers, seeds_max)
    else:
        try:  # opened first: what cannot be written is known before the hour is spent
            with book.open("a") as lines:
                totals = go(minutes, max(seed, read_book(book)[1]), kind, workers, seeds_max)
                lines.write(json.dumps(totals.figures()) + "\n")
            totals, totals.next_seed = read_book(book)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{book}: {error}", param_hint="--book") from None
    _show(totals.figures(), as_json)
    if totals.violations:
        raise typer.Exit(1)


@app.command()
def cuts(
    seed: Annotated[int, typer.Option(help="The seed of the script.")] = 1,
    step: Annotated[int, typer.Option(min=0, help="Cut at this step only; 0: at every one.")] = 0,
    moment: Annotated[
        int, typer.Option(min=0, max=2, help="0 before, 1 torn, 2 after the step.")
    ] = 0,
    again: Annotated[
        int, typer.Option(min=0, help="Cut the recovery at this step; 0: never.")
    ] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Print every event.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cut one script's power at every step of its flash, in every way."""
    from drupelet_tools.sim.cuts import run_script

    if step:
        result = _cut_once(seed, step, moment, again, trace)
        _show({name: getattr(result, name) for name in result.__dataclass_fields__}, as_json)
        failed = bool(result.violation)
    elif moment or again:
        raise typer.BadParameter("--moment and --again are of one step; name it with --step")
    else:
        script_result = run_script(seed)
        _show(
            {name: getattr(script_result, name) for name in script_result.__dataclass_fields__},
            as_json,
        )
        failed = bool(script_result.failures)
    if failed:
        raise typer.Exit(1)


def _cut_once(seed: int, step: int, moment: int, again: int, trace: bool) -> "Result":
    from drupelet_tools.sim.cuts import cut_plan, draw_script, uncut
    from drupelet_tools.sim.run import run_plan

    script = draw_script(seed)
    _, steps = uncut(script)
    if step > steps:
        raise typer.BadParameter(f"the script has {steps} steps", param_hint="--step")
    result = run_plan(cut_plan(script, step, moment, again), typer.echo if trace else None)
    if again and result.power_cuts < 2 and not result.violation:
        raise typer.BadParameter("the recovery has fewer steps", param_hint="--again")
    return result


@app.command()
def fuzz(
    frames: Annotated[
        float,
        typer.Option(min=2, max=FRAMES_MAX, callback=finite, help="Frames per parser."),
    ] = 1e5,
    interpreter: Annotated[
        str, typer.Option(help="cpython, micropython or micropython-i386.")
    ] = "cpython",
    seed: Annotated[int, typer.Option(help="Where the frames come from.")] = 1,
    parser: Annotated[
        list[str] | None, typer.Option(help="Only these; may be repeated.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Feed every parser frames that nobody would send; memory in use must not grow."""
    from drupelet_tools.sim.fuzz import FuzzError, table
    from drupelet_tools.sim.fuzz import fuzz as go

    try:
        rows = go(int(frames), interpreter, seed, parser or [])
    except FuzzError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for line in table(rows):
            typer.echo(line)


def _show(figures: dict[str, object], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        if isinstance(value, list):
            for line in value:
                typer.echo(f"{name}: {line}")
        else:
            typer.echo(f"{name}: {value}")
    sys.stdout.flush()
