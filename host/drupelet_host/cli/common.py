"""What the commands share: which home, JSON or not, asking the agent, tables."""

import math
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.base.local_path import local_path
from drupelet_host.home import config, toml_table
from drupelet_host.requests.client import ask
from drupelet_host.requests.shapes import Request

TAG_SIZES = (8, 16)
_NEGATIVE = re.compile(r"-\.?[0-9]")


class TextCommand(typer.core.TyperCommand):
    """A command whose last argument is a text, which may be a negative number: no option is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Have a reading of -5.2C taken for what it is."""
        options = args[: args.index("--")] if "--" in args else args
        takes = [name for option in self.params if not getattr(option, "is_flag", False)
                 for name in option.opts if name[:1] == "-"]  # fmt: skip
        at = next(
            (
                at for at, word in enumerate(options)
                if _NEGATIVE.match(word) and (not at or options[at - 1] not in takes)
            ),
            None,
        )  # fmt: skip
        if at is not None:
            args = [*args[:at], *args[at + 1 :], "--", args[at]]
        return super().parse_args(ctx, args)


def path(text: str) -> Path:
    """A path from the command line. An empty one, as of an unset variable, is not this folder.

    Raises NotLocalError for a URI.
    """
    if not text:
        raise typer.BadParameter("is empty; name a folder, or . for this one")
    return local_path(text)


def text_path(text: str) -> Path:
    """As `path`, of what is told to others or to the agent: its name must be text in UTF-8."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise typer.BadParameter(f"{toml_table.shown(text)}: must be text in UTF-8; rename it")
    return path(text)


def finite(value: float | None) -> float | None:
    """A number from the command line; `nan` is within all bounds that an option has."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number")
    return value


def _tag_size(value: int) -> int:
    if value not in TAG_SIZES:
        raise typer.BadParameter("--tag is 8 or 16")
    return value


Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        parser=path,
        help="The agent's home; by default $XDG_STATE_HOME/drupelet or ~/.local/state/drupelet.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PeerName = Annotated[str, typer.Argument(help="The peer's name, or its id.", show_default=False)]
# Where keys are made: how long a frame's tag is, and whether keys that are there are replaced.
Tag = Annotated[int, typer.Option(callback=_tag_size, help="Bytes of each frame's tag: 8 or 16.")]
Again = Annotated[bool, typer.Option("--again", help="Replace the keys there are.")]


def home_of(home: Path | None) -> Path:
    """The home that a command works on."""
    return home if home is not None else config.default_home()


def id_of(text: str) -> bytes:
    """A device id from the command line; raises ConfigError."""
    try:
        return toml_table.device_id(text)
    except ValueError as error:
        raise config.ConfigError(f"id: {error}") from None


def ask_agent(settings: config.Config, request: Request, what: str) -> dict[str, Any]:
    """What the running agent did; raises DrupeletError with its line when it refused.

    what: names the request where there is no answer.
    """
    answer = ask(settings, request, what)
    if "error" in answer:
        raise DrupeletError(str(answer["error"]))
    return answer


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows for people, escaped as a line is; whole lines where nobody tells a width."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # Piped output keeps whole lines: a narrow default width would cut them.
    console = Console(width=None if sys.stdout.isatty() else 160)
    shown = Table(box=None, pad_edge=False)
    for head in heads:
        shown.add_column(escape(output.printable(head)), overflow="fold")
    for row in rows:
        shown.add_row(*(escape(output.printable(cell)) for cell in row))
    console.print(shown)
