"""`drupelet telemetry compact` and `migrate`: what is done to a lake itself, without Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.commands.command_line import JsonFlag, LakeArgument, one_line


def register(app: typer.Typer) -> None:
    """Add the commands to `drupelet telemetry`."""
    app.command()(compact)
    app.command()(migrate)


def compact(
    lake: LakeArgument,
    keep: Annotated[
        str | None,
        typer.Option("--keep", help="Remove boots of which nothing came for so long, e.g. 90d."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make few files and packs of many, and remove what nothing names; others may go on."""
    with one_line():
        from drupelet_tools.telemetry.lake import compact as compaction

        days = None if keep is None else compaction.keep_days(keep)
        done = compaction.compact(lake, days)
        if as_json:
            typer.echo(json.dumps(asdict(done)))
        else:
            typer.echo(
                f"files: {done.files_before:,}, now {done.files:,};"
                f" packs: {done.packs_before:,}, now {done.packs:,};"
                f" removed: {done.boots_removed:,} boots, {done.orphans_removed:,} unused files"
            )
        if done.packs_damaged:
            raise TelemetryError(
                f"{lake / done.packs_damaged[0]}: is gone or does not hold what was taken in"
                f" ({len(done.packs_damaged):,} packs in all); put them back from a copy: the"
                " tables are whole, but a migration decodes the packs"
            )


def migrate(lake: LakeArgument, as_json: JsonFlag = False) -> None:
    """Bring a lake of schema version 3 or 4 up to this one, in its place."""
    with one_line():
        from drupelet_tools.telemetry.intake import migrate as migration

        done = migration.migrate(lake)
        if as_json:
            typer.echo(json.dumps(asdict(done)))
            return
        typer.echo(
            f"{done.segments:,} segments, {done.imports:,} imports,"
            f" names of {done.names:,} devices"
        )
