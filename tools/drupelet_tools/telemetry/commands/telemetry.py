"""`drupelet telemetry`: ingest, report and query; each error is one line with its remedy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_host.cli.common import path
from drupelet_tools.telemetry.commands import alerts, energy, ingest_follow, report, serve, upkeep
from drupelet_tools.telemetry.commands.command_line import (
    JsonFlag,
    LakeOption,
    one_line,
    path_or_uri,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Black boxes to tables and a report.", no_args_is_help=True, add_completion=False
)

MasterOption = Annotated[str, typer.Option("--master", help="Spark master.")]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A setting of Spark's, spark.KEY=VALUE; may be repeated."),
]


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr while the block runs, if somebody is looking."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("black boxes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command()
def ingest(
    paths: Annotated[
        list[Any],
        typer.Argument(
            parser=path_or_uri,
            metavar="PATHS...",
            help="Segment files, packs, folders of them (also by URI), or an agent's folder.",
        ),
    ],
    lake: LakeOption,
    master: MasterOption = "local[2,3]",
    conf: ConfOption = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names", parser=path, help="names.json: device id -> name, carrier, board."
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Write the table of single events as well.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until SIGTERM or Ctrl-C.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", help="With --follow: time between looks, like 5min [30s]."),
    ] = None,
    max_files: Annotated[
        int | None,
        typer.Option("--max-files", help="With --follow: files of a batch at most [10,000]."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring new black-box segments into a lake; what it has already is left out."""
    with one_line():
        from drupelet_tools.telemetry.files import inputs
        from drupelet_tools.telemetry.intake import job
        from drupelet_tools.telemetry.spark import session

        names_given = inputs.read_names(names) if names else {}
        cluster = session.cluster_of(master, conf or [])
        if follow:
            ingest_follow.follow(
                paths,
                lake,
                names_given,
                cluster=cluster,
                events=events,
                every=every,
                max_files=max_files,
                as_json=as_json,
            )
            return
        ingest_follow.refuse_without_follow(every, max_files)
        started: list[session.Session | session.Remote] = []

        def spark() -> SparkSession:
            typer.echo("starting Spark …", err=True)
            started.append(session.connect(cluster))
            return started[0].wait()

        try:
            with _bar() as watch:
                counts = job.ingest(paths, lake, names_given, spark, events, watch)
        finally:
            for running in started:
                running.stop(graceful=False)
        if as_json:
            typer.echo(json.dumps(counts))
        else:
            typer.echo(ingest_follow.counts_text(counts))


@app.command()
def query(
    statement: Annotated[str, typer.Argument(help="Spark SQL over the lake's tables.")],
    lake: LakeOption,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", help="Only of this one, by name or id, which is quicker; may be repeated."
        ),
    ] = None,
    master: MasterOption = "local[2,3]",
    conf: ConfOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a SELECT over segments, state_time, traffic, messages, battery, health, hours, days,
    quarantine, clocks, events, sources, devices, pieces."""
    with one_line():
        from drupelet_tools.telemetry.spark import session, sql
        from drupelet_tools.telemetry.text import query_output

        cluster = session.cluster_of(master, conf or [])
        answer = sql.run(statement, lake, cluster, device or ())
        if as_json:
            names = query_output.distinct(answer.names)
            for row in answer.rows:
                typer.echo(query_output.line(names, row))
        else:
            query_output.show(answer.names, answer.rows, sys.stdout)
        if answer.more:
            notice = f"drupelet telemetry: the first {sql.ROWS_MAX:,} rows; there are more"
            typer.echo(f"{notice}: add a LIMIT, or GROUP BY", err=True)


report.register(app)
alerts.register(app)
serve.register(app)
upkeep.register(app)
app.add_typer(energy.app, name="energy")
