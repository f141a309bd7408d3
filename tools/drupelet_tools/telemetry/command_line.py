"""What the commands of `drupelet telemetry` share: errors in one line, `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from drupelet_tools.telemetry.errors import TelemetryError

JsonFlag = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


@contextmanager
def one_line() -> Iterator[None]:
    """Ends the command with one line for each error that the tools raise on purpose."""
    try:
        yield
    except TelemetryError as error:
        typer.echo(f"drupelet telemetry: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
