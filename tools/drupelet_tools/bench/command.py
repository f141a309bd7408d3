"""`drupelet bench`: ram, board, wire, cpu, agent, ingest, lake, fleet; tables or JSON.

What the measurements need is imported when one runs: the agent alone has no compiler for boards.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from drupelet_host.cli import extras
from drupelet_host.cli.common import finite, path
from drupelet_host.home.config import PEERS_CONFIGURED_MAX
from drupelet_tools.bench.columns import (
    AGENT,
    ANEW,
    BOARD,
    CPU,
    FLEET,
    HOST_ROOMS,
    INGEST,
    LAKE,
    RAM,
    ROOMS,
    WIRE,
    explain,
)
from drupelet_tools.bench.pico_cuts import pico_cuts

app = typer.Typer(
    help="Measure what a board holds, what a message costs, how fast it is.",
    no_args_is_help=True, add_completion=False, rich_markup_mode=None,
)  # fmt: skip

app.command("pico-cuts")(pico_cuts)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Choice = TypeVar("_Choice")


def _pick(
    option: str, wanted: Sequence[str], known: Sequence[_Choice], name: Callable[[_Choice], str]
) -> list[_Choice]:
    """The choices that are named, all without a name; wrong usage for an unknown one."""
    names = [name(choice) for choice in known]
    for word in wanted:
        if word not in names:
            raise typer.BadParameter(f"{word}: one of {', '.join(names)}", param_hint=option)
    return [choice for choice in known if not wanted or name(choice) in wanted]


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        typer.echo(text, err=True)


@app.command(help=explain("The heap of a board, and what each record allocates.", RAM))
def ram(
    config: Annotated[
        list[str] | None, typer.Option(help="Table sizes; may be repeated.", show_default=False)
    ] = None,
    firmware_set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Firmware sets; may be repeated.", show_default=False),
    ] = None,
    interpreter: Annotated[
        list[str] | None,
        typer.Option(help="micropython-i386 (default), micropython, cpython.", show_default=False),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="Wire profiles; may be repeated.", show_default=False)
    ] = None,
    heap_kb: Annotated[
        int,
        typer.Option(
            "--heap",
            min=0,
            help="KiB of heap; by default what the set must fit in.",
            show_default=False,
        ),
    ] = 0,
    records: Annotated[int, typer.Option(min=10, help="Records of each type.")] = 1000,
    epochs: Annotated[int, typer.Option(min=10, help="Idle epochs.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import ram as ram_bench
    from drupelet_tools.bench.board import interpreters
    from drupelet_tools.bench.profiles import PROFILES
    from drupelet_tools.bench.table import show

    plan = ram_bench.Plan(
        configs=_pick("--config", config or (), ram_bench.CONFIGS, lambda choice: choice.name),
        sets=_pick("--set", firmware_set or (), ram_bench.sets(), str),
        interpreters=_pick(
            "--interpreter", interpreter or ["micropython-i386"], interpreters(),
            lambda choice: choice.name,
        ),
        profiles=_pick("--profile", profile or (), PROFILES, lambda choice: choice.name),
        heap=heap_kb * 1024, records=records, epochs=epochs,
    )  # fmt: skip
    rows = [row for table_rows in ram_bench.measure(plan, _progress) for row in table_rows]
    show(ram_bench.tables(rows), rows, as_json)


@app.command(
    help=explain(
        "The rooms of core, host, carriers and telemetry, and how deep the core's imports go.",
        (*ROOMS, *(column for column in HOST_ROOMS if column not in ROOMS)),
    )
)
def rooms(as_json: AsJson = False) -> None:
    """See `help` above."""
    from drupelet_tools.bench import rooms as table
    from drupelet_tools.bench.table import Table, show

    rows = table.rows()
    title = f"Rooms of the core; the longest chain of imports has {table.floors()} floors"
    houses = {"host": table.HOST, "carriers": table.CARRIERS, "telemetry": table.TELEMETRY}
    others = {name: table.rows_of(house) for name, house in houses.items()}
    tables = [
        Table(title, ROOMS, rows),
        *(Table(f"Rooms of {name}", HOST_ROOMS, rooms) for name, rooms in others.items()),
    ]
    show(tables, rows, as_json, others)


@app.command(help=explain("Images of firmware sets on emulated boards, as they run.", BOARD))
def board(
    row: Annotated[
        list[str] | None,
        typer.Option(help='"m3 small" and so on; may be repeated.', show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import boards
    from drupelet_tools.bench.table import show

    rows = []
    for board_name, set_name in _pick("--row", row or (), boards.ROWS, " ".join):
        rows.append(boards.measure(board_name, set_name, _progress))
    show(boards.tables(rows), rows, as_json)


@app.command(help=explain("Bytes of a link and its carriers, per message.", WIRE))
def wire(
    scenario: Annotated[
        list[str] | None,
        typer.Option(help="transfer, in_sync, wake, cold; backlog (minutes).", show_default=False),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="Wire profiles; may be repeated.", show_default=False)
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="batch, interactive.", show_default=False)
    ] = None,
    messages: Annotated[
        list[int] | None,
        typer.Option(min=1, max=5000, help="How many; may be repeated.", show_default=False),
    ] = None,
    held: Annotated[
        list[int] | None,
        typer.Option(min=2, max=1000, help="cold: what A holds.", show_default=False),
    ] = None,
    missing: Annotated[
        list[int] | None,
        typer.Option(min=1, max=999, help="cold: what B misses of it.", show_default=False),
    ] = None,
    body: Annotated[int, typer.Option(min=1, max=900, help="Bytes of a body.")] = 100,
    seeds: Annotated[int, typer.Option(min=1, help="cold: runs.")] = 100,
    anchors: Annotated[bool, typer.Option(help="Others' figures, MQTT's in this run.")] = True,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import wire as wire_bench
    from drupelet_tools.bench.profiles import PROFILES
    from drupelet_tools.bench.table import show

    plan = wire_bench.Plan(
        profiles=_pick("--profile", profile or (), PROFILES, lambda choice: choice.name),
        scenarios=_pick(
            "--scenario", scenario or wire_bench.SCENARIOS, wire_bench.ALL_SCENARIOS, str
        ),
        modes=_pick("--mode", mode or (), wire_bench.MODES, str),
        counts=messages or wire_bench.COUNTS, held=held or wire_bench.HELD,
        missing=missing or wire_bench.MISSING, seeds=seeds, body=body, mqtt=anchors,
        published=anchors,
    )  # fmt: skip
    if min(plan.missing) >= max(plan.held):
        raise typer.BadParameter("must be below what A holds (--held)", param_hint="--missing")
    rows = [row for table_rows in wire_bench.measure(plan, _progress) for row in table_rows]
    show(wire_bench.tables(rows), rows, as_json)


@app.command(help=explain("Two hosts that hold almost the same meet for the first time.", ANEW))
def anew(
    held: Annotated[
        list[int] | None,
        typer.Option(min=2, max=1000, help="What A holds; may be repeated.", show_default=False),
    ] = None,
    missing: Annotated[
        list[int] | None,
        typer.Option(min=1, max=999, help="What B misses of it.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, of which the mean counts.")] = 5,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import anew as anew_bench
    from drupelet_tools.bench.table import Table, show

    sizes = held or anew_bench.HELD, missing or anew_bench.MISSING
    if min(sizes[1]) >= max(sizes[0]):
        raise typer.BadParameter("must be below what A holds (--held)", param_hint="--missing")
    rows = list(anew_bench.measure(*sizes, seeds, _progress))
    title = "B misses some of what A holds, and neither knows: bytes, and seconds"
    show([Table(title, ANEW, rows)], rows, as_json)


@app.command(help=explain("Time of records, messages and hashes.", CPU))
def cpu(
    interpreter: Annotated[
        list[str] | None,
        typer.Option(
            help="micropython-i386, micropython, cpython; all by default.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="Wire profiles; may be repeated.", show_default=False)
    ] = None,
    min_ms: Annotated[int, typer.Option(min=1, help="Least time of a measurement.")] = 50,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import cpu as cpu_bench
    from drupelet_tools.bench.board import interpreters
    from drupelet_tools.bench.profiles import PROFILES
    from drupelet_tools.bench.table import show

    plan = cpu_bench.Plan(
        profiles=_pick("--profile", profile or (), PROFILES, lambda choice: choice.name),
        interpreters=_pick(
            "--interpreter", interpreter or (), interpreters(), lambda choice: choice.name
        ),
        min_ms=min_ms,
    )  # fmt: skip
    rows = [row for table_rows in cpu_bench.measure(plan, _progress) for row in table_rows]
    show(cpu_bench.tables(rows), rows, as_json)


@app.command(help=explain("CPU and time of agents on this host, beside a plain program.", AGENT))
def agent(
    work: Annotated[
        list[str] | None,
        typer.Option(
            help="stick-write, stick-read, mqtt-live, mqtt-backlog, start, idle, log, put, load;"
            " may be repeated.",
            show_default=False,
        ),
    ] = None,
    messages: Annotated[int, typer.Option(min=2, max=100_000, help="Of each work.")] = 10_000,
    idle_minutes: Annotated[
        float, typer.Option(min=0.01, callback=finite, help="Of the work idle.")
    ] = 10.0,
    devices: Annotated[int, typer.Option(min=1, max=10_000, help="Of the work load.")] = 1000,
    per_home: Annotated[
        int,
        typer.Option(
            min=1, max=PEERS_CONFIGURED_MAX, help="Devices of one home, of the work load."
        ),
    ] = PEERS_CONFIGURED_MAX,
    per_second: Annotated[
        float,
        typer.Option(
            min=0.1,
            callback=finite,
            help="Messages that all devices publish together, of the work load.",
        ),
    ] = 100.0,
    load_minutes: Annotated[
        float,
        typer.Option(min=0.01, callback=finite, help="How long they publish, of the work load."),
    ] = 10.0,
    restarts: Annotated[
        int,
        typer.Option(min=0, max=100, help="How often the broker is killed, of the work load."),
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    from drupelet_tools.bench import agent as agent_bench
    from drupelet_tools.bench.agent_load import LoadPlan
    from drupelet_tools.bench.table import show

    works = _pick("--work", work or (), agent_bench.WORKS, str)
    load = LoadPlan(devices, per_home, per_second, load_minutes * 60, restarts)
    plan = agent_bench.Plan(works, messages, idle_s=idle_minutes * 60, load=load)
    rows = list(agent_bench.measure(plan, _progress))
    show(agent_bench.tables(rows), rows, as_json)


@app.command(help=explain("Black boxes to tables by Spark, beside other engines.", INGEST))
def ingest(
    events: Annotated[
        int, typer.Option(min=10_000, help="Events of the side-by-side runs.")
    ] = 32_000_000,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="numpy, polars, duckdb, spark; may be repeated.", show_default=False),
    ] = None,
    scale: Annotated[
        list[int] | None,
        typer.Option(
            min=10_000,
            help="Spark alone with so many events; may be repeated. By default a quarter of"
            " --events, and eight times as many.",
            show_default=False,
        ),
    ] = None,
    grow: Annotated[
        bool, typer.Option(help="Cost of an event more and peak memory, by --scale.")
    ] = True,
    small: Annotated[bool, typer.Option(help="8,000 files of 12 kB beside 8 packs.")] = True,
    export: Annotated[bool, typer.Option(help="The table of single events.")] = True,
    robust: Annotated[
        bool, typer.Option("--robust", help="Also: killed at random, and on a cluster.")
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=1, max=20, help="Runs of each; the least counts.")
    ] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the corpus.")] = 1,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    extras.require("bench")
    from drupelet_tools.bench import ingest as ingest_bench
    from drupelet_tools.bench.ingest_claims import claims
    from drupelet_tools.bench.table import show

    sizes = scale or [max(10_000, int(events * factor)) for factor in ingest_bench.GROW]
    plan = ingest_bench.Plan(
        events=events, engines=_pick("--engine", engine or (), ingest_bench.ENGINES, str),
        scale=sizes if grow else (), small=small, export=export, repeats=repeats, seed=seed,
    )  # fmt: skip
    rows = list(ingest_bench.measure(plan, _progress))
    statements = claims(rows)
    if robust:
        from drupelet_tools.bench import ingest_robust

        statements += ingest_robust.measure(seed, _progress)
    show(ingest_bench.tables(rows, statements), rows, as_json, {"claims": statements})


@app.command(help=explain("A lake that grows by a segment of each device a day.", LAKE))
def lake(
    days: Annotated[int, typer.Option(min=30, help="Days, an ingest each.")] = 400,
    devices: Annotated[int, typer.Option(min=1, help="Devices, a segment a day each.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the logs.")] = 1,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    extras.require("bench")
    from drupelet_tools.bench import lake as lake_bench
    from drupelet_tools.bench.table import show

    rows = list(lake_bench.measure(lake_bench.Plan(days, devices, seed), _progress))
    statements = lake_bench.claims(rows)
    show(lake_bench.tables(rows, statements), rows, as_json, {"claims": statements})


@app.command(help=explain("A large fleet from its logs to the pages, ever larger.", FLEET))
def fleet(
    devices: Annotated[
        list[int] | None,
        typer.Option(
            "--devices",
            min=1,
            max=1_000_000,
            help="1000 and 100000 without; may be repeated, the smallest first.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days of each device.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Of the logs.")] = 1,
    as_json: AsJson = False,
) -> None:
    """See `help` above."""
    extras.require("bench")
    from drupelet_tools.bench import fleet as fleet_bench
    from drupelet_tools.bench.table import show

    plan = fleet_bench.Plan(tuple(devices or fleet_bench.DEVICES), days, seed)
    rows = list(fleet_bench.measure(plan, _progress))
    statements = fleet_bench.claims(rows)
    show(fleet_bench.tables(rows, statements), rows, as_json, {"claims": statements})


@app.command()
def corpus(
    out: Annotated[
        Path, typer.Option(parser=path, help="An empty or new folder.", show_default=False)
    ],
    events: Annotated[int, typer.Option(min=100, help="About how many.")] = 1_000_000,
    devices: Annotated[int, typer.Option(min=1, max=10_000, help="Devices.")] = 16,
    files: Annotated[int, typer.Option(min=1, max=100_000, help="Packs to write.")] = 8,
    damage: Annotated[
        bool,
        typer.Option(
            "--damage", help="Flipped blocks, cut tails, repeats, any order, clocks that jump."
        ),
    ] = False,
    source: Annotated[
        str,
        typer.Option(help="simulator, generator; auto: the simulator for up to 4 million events."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Everything follows from it.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Write black boxes of simulated devices, with what is true of them in truth.json."""
    from drupelet_tools.bench import corpus_files

    wanted = corpus_files.Corpus(events, devices, files, damage, seed, source)
    source, counts = corpus_files.write_with_source(out, wanted)
    if as_json:
        typer.echo(json.dumps({"source": source, **counts}))
    else:
        typer.echo(source)
        typer.echo(", ".join(f"{name} {count:,}" for name, count in counts.items()))
