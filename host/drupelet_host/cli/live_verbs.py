"""Looking at a home as it goes on: `drupelet web`, and `drupelet status --watch`."""

import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.cli.common import Home, home_of
from drupelet_host.home import config

# How often what is watched is shown anew.
WATCH_EVERY_S = 1.0


class NoTerminalError(DrupeletError):
    """What draws on a terminal was asked to draw elsewhere, or to print JSON."""


class _Screen(io.StringIO):
    """What is printed for a terminal, kept to be drawn in one go."""

    def isatty(self) -> bool:
        """A table takes the terminal's width then."""
        return True


def watch(show: Callable[[], None], as_json: bool = False) -> None:
    """Draw what `show` prints again and again, until Ctrl-C. Raises NoTerminalError."""
    if as_json or not sys.stdout.isatty():
        raise NoTerminalError(
            "--watch draws on a terminal; use `drupelet status --json` elsewhere"
        )
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            with contextlib.redirect_stdout(_Screen()) as shown:
                show()
            live.update(Text.from_ansi(shown.getvalue()), refresh=True)
            time.sleep(WATCH_EVERY_S)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(web)


def web(
    home: Home = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
) -> None:
    """Show members, what waits for whom, sticks and the log in a browser, until Ctrl-C.

    Prints the page's address, which nobody else knows. It is served to this machine alone.
    """
    from drupelet_host.base.loopback_server import LOOPBACK
    from drupelet_host.view.web_server import WebServer

    folder = home_of(home)
    config.load(folder)
    try:
        server = WebServer(folder, port)
    except OSError as error:
        raise DrupeletError(
            f"{LOOPBACK}:{port}: cannot be served ({error.strerror}); choose another --port"
        ) from error
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    print(server.url, flush=True)
    signal.sigwait(signals)
    server.shutdown()
    server.server_close()
