"""`drupelet sim broker`: members behind a mosquitto that is restarted every few seconds."""

import json
from typing import Annotated

import typer

from drupelet_host.cli.common import finite


def broker(
    minutes: Annotated[
        float,
        typer.Option(min=0.01, callback=finite, help="How long the broker comes and goes."),
    ] = 5.0,
    seed: Annotated[int, typer.Option(help="Draws when it goes, and for how long.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Restart Debian's mosquitto while two members exchange; exit code 1 if anything is lost."""
    from drupelet_tools.sim.broker import BrokerMissing, soak

    try:
        row = soak(minutes * 60, seed).as_row()
    except BrokerMissing as missing:
        typer.echo(str(missing), err=True)
        raise typer.Exit(1) from missing
    if as_json:
        typer.echo(json.dumps(row))
    else:
        for name, value in row.items():
            typer.echo(f"{name}: {value}")
    if row["lost"] or row["duplicated"]:
        raise typer.Exit(1)
