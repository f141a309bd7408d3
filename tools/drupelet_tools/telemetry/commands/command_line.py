"""What the commands of `drupelet telemetry` share: errors in one line, and options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from drupelet_host.cli.common import path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, place

JsonFlag = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", parser=path, help="JSON: device name -> expected, delivered, …"),
]
FleetOption = Annotated[
    Path | None,
    typer.Option("--fleet", parser=path, help="fleet.toml: batteries, temperatures, schedules."),
]
BatteryOption = Annotated[
    str | None, typer.Option("--battery", help="One battery for all devices, e.g. 18650.")
]


def path_or_uri(text: str) -> Place:
    """A place from the command line. An empty one, as of an unset variable, is not this folder."""
    if not text:
        raise typer.BadParameter("is empty; name a folder, or . for this one")
    return place(text)


# A `Place`, which typer would take for a choice of types to try.
LakeOption = Annotated[
    Any,
    typer.Option("--lake", parser=path_or_uri, metavar="PATH", help="The lake: folder or URI."),
]


def page_path(text: str) -> Place:
    """Where a page goes."""
    if not text:
        raise typer.BadParameter("is empty; name a file, like report.html")
    return place(text)


PageOption = Annotated[
    Any,
    typer.Option(
        "--html", parser=page_path, metavar="PATH", help="The page to write: file or URI."
    ),
]
LakeArgument = Annotated[
    Any, typer.Argument(parser=path_or_uri, metavar="LAKE", help="The lake: folder or URI.")
]


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
