"""`drupelet bench pico-cuts`: cuts the power of an emulated Pico in its flash operations."""

import json
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.cli.common import path

if TYPE_CHECKING:
    from drupelet_tools.bench.pico_walk import Walked

# What a cut costs on two cores that others use too: a boot, and an exchange until the next one.
_SECONDS_PER_CUT = 40
_SECONDS_PER_MESSAGE = 20


def pico_cuts(
    cuts: Annotated[int, typer.Option(min=1, max=2000, help="Power cuts.")] = 150,
    messages: Annotated[int, typer.Option(min=1, max=2000, help="Messages of each side.")] = 150,
    carrier: Annotated[str, typer.Option(help="console or uart.")] = "console",
    damage: Annotated[
        int, typer.Option(min=0, max=50, help="Percent of the frames that are damaged.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Draws cuts, damage and texts.")] = 1,
    image: Annotated[
        Path | None,
        typer.Option("--image", parser=path, help="A UF2 file; without it one is built."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cut the power of an emulated Pico in its flash operations while it exchanges messages."""
    from drupelet_tools.bench.pico_walk import URLS, Plan, walk
    from drupelet_tools.flash.sets import Choice
    from drupelet_tools.image.build import build_image

    if carrier not in URLS:
        raise typer.BadParameter(f"{carrier}: one of {', '.join(URLS)}", param_hint="--carrier")
    seconds = 300 + cuts * _SECONDS_PER_CUT + messages * _SECONDS_PER_MESSAGE
    plan = Plan(carrier, messages, damage / 100, cuts, seed, seconds)
    try:
        uf2 = image or build_image(Choice("small", (), ("serial-sealed",)))
        with tempfile.TemporaryDirectory() as folder:
            result = walk(uf2, Path(folder), plan, lambda line: typer.echo(line, err=True))
    except (DrupeletError, subprocess.TimeoutExpired) as error:
        typer.echo(f"drupelet bench pico-cuts: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(asdict(result)) if as_json else report(result))
    if not result.right:
        raise typer.Exit(1)


def report(result: "Walked") -> str:
    """What came of a walk, for people."""
    counters = result.counters
    memory = ""
    if "heap" in counters:
        memory = (
            f"\nat most {counters['stack_peak']:,} bytes of stack in use, and"
            f" {counters['heap_peak']:,} of {counters['heap']:,} bytes of heap after a collection"
        )
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.cuts.items()))
    return (
        f"{result.cuts.total()} power cuts: {kinds}\n"
        f"{result.expected} messages; "
        + ", ".join(f"{name} has {count}" for name, count in result.delivered.items())
        + f"; every one once and in order: {'yes' if result.right else 'NO'}\n"
        f"{result.damaged} of {result.frames} frames damaged, {result.forged} taken for forged\n"
        f"asked for keys {result.keyless} times; {counters['boots']} boots,"
        f" {counters['erases']} sectors erased, {counters['programs']} pages programmed,"
        f" {counters['sim_ms'] / 1000:.0f} s on the chip, {result.seconds:.0f} s here{memory}"
    )
