"""What the commands share: which home, JSON or not, asking the agent, tables."""

import json
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base import output
from drupelet_host.base.local_path import local_path
from drupelet_host.home import config, toml_table
from drupelet_host.store import database, outbox

# How long a command waits for the agent: a full stick of 32 KB bodies takes seconds.
ANSWER_WAIT_S = 60.0
# How often it looks for the answer.
LOOK_EVERY_S = 0.05
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


def ask_agent(settings: config.Config, kind: str, argument: str) -> dict[str, Any]:
    """Have the running agent do something; its answer, which may be `error` with one line."""
    connection = database.connect(settings.store_path)
    try:
        entry = outbox.ask(connection, kind, argument)
        deadline = time.monotonic() + ANSWER_WAIT_S
        answer = None
        try:
            while time.monotonic() < deadline:
                answer = outbox.answer(connection, entry)
                if answer is not None:
                    result: dict[str, Any] = json.loads(answer)
                    return result
                if not config.locked(settings.home):
                    break
                time.sleep(LOOK_EVERY_S)
        finally:
            if answer is None:  # after Ctrl-C, too: nobody waits for it
                outbox.withdraw(connection, entry)
    except sqlite3.Error as error:
        raise StorageError(database.explain(settings.store_path, error)) from error
    finally:
        connection.close()
    what = argument or kind
    raise DrupeletError(f"{what}: the agent gave no answer; look at what it prints, then repeat")


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
