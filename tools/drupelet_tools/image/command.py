"""`drupelet flash image`: one file that turns a Pico into a node when it is dropped on it."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from drupelet_host.cli.common import path
from drupelet_tools.flash.errors import BuildError

BOARDS = ("rp2",)


def image(
    board: Annotated[
        str, typer.Argument(metavar="BOARD", help="rp2: a Raspberry Pi Pico.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--set", help="small or full.")] = "small",
    profile: Annotated[
        list[str] | None, typer.Option("--profile", help="Wire profile; full: all of them.")
    ] = None,
    carrier: Annotated[
        list[str] | None,
        typer.Option("--carrier", help="serial-sealed (default), serial, stick; full: all."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", parser=path, help="Where to put it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build the image of a board from Debian's sources, to be dropped on its USB drive."""
    from drupelet_tools.flash.sets import Choice
    from drupelet_tools.image.build import build_image, trace_of

    target = out or Path(f"drupelet-{board}-{name}.uf2")
    trace_target = target.with_suffix(".trace.json")
    try:
        if board not in BOARDS:
            raise BuildError(f"there is no image for {board}: one of {', '.join(BOARDS)}")
        if name == "micro":
            raise BuildError("set micro has no image: freeze it into a MicroPython of your own")
        carriers = tuple(carrier or (() if name == "full" else ("serial-sealed",)))
        built = build_image(Choice(name, tuple(profile or ()), carriers))
        shutil.copyfile(built, target)
        if (trace := trace_of(built)).is_file():
            shutil.copyfile(trace, trace_target)
    except BuildError as error:
        typer.echo(f"drupelet flash: {error}", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(f"drupelet flash: cannot write {target}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        facts = {"image": str(target), "bytes": target.stat().st_size, "board": board, "set": name}
        typer.echo(json.dumps({**facts, "trace": str(trace_target) if trace.is_file() else None}))
        return
    typer.echo(
        f"{target}: {target.stat().st_size:,} bytes, set {name}\n"
        "Hold BOOTSEL while you plug the Pico in, and copy the file to the drive that appears."
    )
