"""`drupelet put`: publish what a person, a file or a pipe says."""

from pathlib import Path
from typing import Annotated

import typer

from drupelet_host.cli import publishing
from drupelet_host.cli.common import AsJson, Home, TextCommand


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(cls=TextCommand)(put)


def put(
    text: Annotated[
        str | None,
        typer.Argument(help="The message; - reads it from standard input.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Take the message from a file.",
                     show_default=False),
    ] = None,
    each_line: Annotated[
        bool,
        typer.Option(
            "--each-line", help="Each line of standard input is a message, as it comes in."
        ),
    ] = False,
    explode: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Delete it everywhere after this time: 90s, 12h, 7d; or never.",
            show_default=False,
        ),
    ] = "",
    explode_read: Annotated[
        bool | None,
        typer.Option(
            "--explode-read/--no-explode-read",
            help="Delete it once it was read and everybody has it.",
            show_default=False,
        ),
    ] = None,
    ephemeral: Annotated[
        bool | None,
        typer.Option(
            "--ephemeral/--no-ephemeral",
            help="Send it to those who are there now; no log keeps it. Needs a running agent.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for room where the running agent is behind.")
    ] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Publish a message: now if the agent runs, else as soon as it does.

    --each-line skips empty lines, and waits for room as long as the agent runs.

    What is not said here of --explode, --explode-read and --ephemeral is as in drupelet.toml.
    """
    call = publishing.Call(
        text, file, home, wait, as_json, each_line, explode, explode_read, ephemeral
    )
    if call.mistake:
        raise typer.BadParameter(call.mistake)
    publishing.publish(call)
