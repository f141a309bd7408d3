"""`drupelet telemetry`: ingest, report and query; each error is one line with its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from drupelet_tools.telemetry.errors import TelemetryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Black boxes to tables and a report.", no_args_is_help=True, add_completion=False
)

LakeOption = Annotated[Path, typer.Option("--lake", help="Folder of the lake.")]
MasterOption = Annotated[str, typer.Option("--master", help="Spark master.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except TelemetryError as told:
        typer.echo(f"drupelet telemetry: {told}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Segment files, packs or folders.")],
    lake: LakeOption,
    master: MasterOption = "local[2]",
    names: Annotated[
        Path | None, typer.Option("--names", help="names.json: device id -> name, carrier, board.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring new black-box segments into a lake; what it has already is left out."""
    with _one_line():
        from drupelet_tools.telemetry import inputs, job, session

        told = inputs.read_names(names) if names else {}
        inputs.find_files(paths, lake.resolve())
        started: list[session.Session] = []

        def spark() -> SparkSession:
            typer.echo("starting Spark …", err=True)
            started.append(session.start_early(master))
            return started[0].wait()

        try:
            counts = job.ingest(paths, lake, told, spark)
        finally:
            for running in started:
                running.stop(graceful=False)
        if as_json:
            typer.echo(json.dumps(counts))
        else:
            typer.echo(", ".join(f"{name} {count:,}" for name, count in counts.items()))


@app.command()
def report(
    lake: LakeOption,
    html: Annotated[Path, typer.Option("--html", help="The page to write.")],
    results: Annotated[
        Path | None,
        typer.Option("--results", help="JSON: device name -> expected, delivered, …"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write one self-contained HTML page from a lake; needs no Spark."""
    with _one_line():
        from drupelet_tools.telemetry import report as page

        found = page.write_report(lake, html, _read_results(results))
        typer.echo(json.dumps(found) if as_json else f"report: {html}")


@app.command()
def query(
    statement: Annotated[str, typer.Argument(help="Spark SQL over the lake's tables.")],
    lake: LakeOption,
    master: MasterOption = "local[2]",
    as_json: JsonFlag = False,
) -> None:
    """Run a SELECT over segments, state_time, traffic, messages, health, quarantine, sources,
    devices."""
    with _one_line():
        from drupelet_tools.telemetry import sql

        names, rows = sql.run(statement, lake, master)
        if as_json:
            for row in rows:
                typer.echo(json.dumps(dict(zip(names, row, strict=True)), default=str))
            return
        shown = Table(*names)
        for row in rows:
            shown.add_row(*("" if value is None else str(value) for value in row))
        Console(file=sys.stdout).print(shown)


def _read_results(path: Path | None) -> dict[str, dict[str, int]] | None:
    if path is None:
        return None
    try:
        told = json.loads(path.read_text("utf-8"))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except ValueError as broken:
        raise TelemetryError(f"{path}: not JSON: {broken}") from None
    if not isinstance(told, dict) or not all(isinstance(row, dict) for row in told.values()):
        raise TelemetryError(f"{path}: want device name -> expected, delivered, …")
    return told
