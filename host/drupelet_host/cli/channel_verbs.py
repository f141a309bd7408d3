"""`drupelet channel`: SDS channels of a home (`[[channels]]` in drupelet.toml)."""

import json
import os
from typing import Annotated

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli.common import AsJson, Home, TextCommand, ask_agent, home_of, table
from drupelet_host.home import config
from drupelet_host.home.config import Config
from drupelet_host.requests.shapes import SayOnChannel

Name = Annotated[str, typer.Argument(help="The channel's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    channels = typer.Typer(
        help="Channels: everybody hears everybody, nobody keeps state of another.\n\n"
        "Frames have no Bloom filter, because the JavaScript peer @waku/sds loses every message"
        " with a filter of another size than its own. Where all members run this program, bloom ="
        ' "small" under [[channels]] adds 131 bytes to each frame, and messages that a filter'
        " has are repeated less often.",
        no_args_is_help=True,
    )
    channels.command("put", cls=TextCommand)(put)
    channels.command("log")(log)
    app.add_typer(channels, name="channel")


def _known(settings: Config, name: str) -> None:
    if name not in [channel.name for channel in settings.channels]:
        raise config.NotThereError(
            f"{name}: no such channel; drupelet.toml has [[channels]] for them"
        )


def put(
    name: Name,
    text: Annotated[str, typer.Argument(help="The message.", show_default=False)],
    ephemeral: Annotated[
        bool,
        typer.Option("--ephemeral", help="Send it once, to who listens now; in no log."),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Send a message on a channel; the agent must run."""
    settings = config.load(home_of(home))
    _known(settings, name)
    if not config.locked(settings.home):
        raise DrupeletError(f"{name}: the agent does not run; start it with `drupelet agent`")
    done = ask_agent(settings, SayOnChannel(name, os.fsencode(text), ephemeral), name)
    if as_json:
        output.print_json(done)
    elif ephemeral:
        print(f"{done['size']} bytes sent to who listens")
    else:
        print(f"{done['id'][:8]} is on its way")


def log(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Show what a channel holds, in the order that all its participants have."""
    from drupelet_host.agent.channels import database_path, history

    settings = config.load(home_of(home))
    _known(settings, name)
    path = database_path(settings)
    entries = history(path, name) if path.exists() else []
    if as_json:
        for entry in entries:
            print(json.dumps(entry))
        return
    names = settings.names()
    rows: list[tuple[str, ...]] = [
        (
            entry["id"][:8],
            names.get(entry["from"], entry["from"]),
            output.message_start(entry["text"]),
        )
        for entry in entries
    ]
    table(("id", "from", "text"), rows)
