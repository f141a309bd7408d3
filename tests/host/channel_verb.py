"""`drupelet channel`, run in this process, and requests to speak on a channel."""

import json
from typing import Any

from typer.testing import CliRunner

from drupelet_host.cli import app
from drupelet_host.cli.common import ask_agent
from drupelet_host.home import config
from drupelet_host.requests.shapes import SayOnChannel
from host.conftest import Home


def run(home: Home, *words: str) -> str:
    """A command in this process; what it printed."""
    done = CliRunner().invoke(
        app.app, ["channel", *words, "--home", str(home.path), "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


def logged(home: Home) -> list[dict[str, Any]]:
    """The channel as the command shows it."""
    return [json.loads(line) for line in run(home, "log", "chat").splitlines()]


def say(home: Home, text: str) -> str:
    request = SayOnChannel("chat", text.encode())
    done = ask_agent(config.load(home.path), request, "chat")
    return str(done["id"])
