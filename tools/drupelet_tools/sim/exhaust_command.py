"""`drupelet sim exhaust`: every interleaving of small worlds, as a table or as JSON."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_tools.sim.broker_command import broker

if TYPE_CHECKING:
    from drupelet_tools.sim.exhaust import Result

_COLUMNS = "{:<32}{:>10}{:>7}{:>13}{:>13}{:>9}{:>9}{:>9}  {}"


def register(app: typer.Typer) -> None:
    """Add this command and that of the broker to the `sim` group."""
    app.command()(exhaust)
    app.command()(broker)


def exhaust(
    world: Annotated[
        str | None, typer.Option("--world", metavar="NAME", help="Worlds whose name holds this.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes at a time.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Visit every state of small worlds and check the invariants in each.

    Two or three nodes of the real engine, one or two messages, and every order in which frames
    are sent, lost, repeated and overtake each other, nodes lose power, messages are deleted or
    invalid, modes and sharing change, within the bounds that are printed. Exit code 1 when an
    invariant does not hold or a world does not close.
    """
    from drupelet_tools.sim.exhaust_world import standard

    worlds = [each for each in standard() if world is None or world in each.name]
    if not worlds:
        typer.echo(f"no world is called {world}; without --world all are run", err=True)
        raise typer.Exit(2)
    if not as_json:
        heads = ("world", "states", "depth", "transitions", "node states", "ends", "settled")
        typer.echo(_COLUMNS.format(*heads, "seconds", "frontier"))
    results = []
    for result in _run_all([each.name for each in worlds], jobs):
        results.append(result)
        if not as_json:
            _print_row(result)
    if as_json:
        typer.echo(json.dumps([_row(result) for result in results], indent=2))
    else:
        _print_sum(results)
    if not all(result.closed and not result.violation for result in results):
        raise typer.Exit(1)


def _run_all(names: list[str], jobs: int) -> "Iterator[Result]":
    if jobs == 1 or len(names) == 1:
        yield from map(explore, names)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(explore, names)


def explore(name: str) -> "Result":
    """Explore the world with this name."""
    from drupelet_tools.sim.exhaust import Explorer
    from drupelet_tools.sim.exhaust_world import standard

    return next(Explorer(world).run() for world in standard() if world.name == name)


def _row(result: "Result") -> dict[str, Any]:
    return {
        "world": result.world.name,
        "bounds": result.world.bounds(),
        "states": result.states,
        "depth": result.depth,
        "transitions": result.transitions,
        "node_states": result.node_states,
        "node_steps": result.node_steps,
        "ends": result.ends,
        "settled": result.settled,
        "seconds": round(result.seconds, 2),
        "closed": result.closed,
        "violation": result.violation,
        "trace": result.trace,
    }


def _print_row(result: "Result") -> None:
    verdict = "closed" if result.closed else result.violation or "open: too many states"
    typer.echo(
        _COLUMNS.format(
            result.world.name,
            result.states,
            result.depth,
            result.transitions,
            result.node_states,
            result.ends,
            result.settled,
            f"{result.seconds:.1f}",
            verdict,
        )
    )
    typer.echo(f"    {result.world.bounds()}")
    for line in result.trace:
        typer.echo(f"    {line}")


def _print_sum(results: "list[Result]") -> None:
    states = sum(result.states for result in results)
    transitions = sum(result.transitions for result in results)
    seconds = sum(result.seconds for result in results)
    closed = sum(result.closed for result in results)
    typer.echo(
        f"{closed} of {len(results)} worlds closed: {states} states, {transitions} transitions, "
        f"{seconds:.0f} s of one core"
    )
