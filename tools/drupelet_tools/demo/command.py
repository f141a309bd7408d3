"""`drupelet demo`: options, progress, and the table at the end."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_host.commands import path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drupelet_tools.demo.rows import Rows

# Where the table goes when it is not a terminal that tells its width.
_PAPER_WIDTH = 110


def demo(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", parser=path, help="Where stores, tables and report go."
        ),
    ] = Path("demo-out"),
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", parser=path, show_default=False,
            help="Replay the rows of a CSV or NDJSON file.",
        ),
    ] = None,
    broker: Annotated[
        str,
        typer.Option(
            metavar="URL", help="An MQTT broker on this machine, as in mqtt://localhost:1883/demo;"
            " by default one is started.", show_default=False,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:  # fmt: skip
    """Five members, three carriers, one report: the whole product on this machine."""
    # Spark's libraries take seconds to load: only whoever runs the demo waits for them.
    from drupelet_tools.demo import plan
    from drupelet_tools.demo.run import Course

    console = _console(as_json)

    def say(text: str) -> None:
        console.print(text, markup=False)

    rows = _rows(input_file, say) if input_file else None
    if broker:
        plan.check_broker(broker)
    held = plan.lock(out)
    folders = plan.prepare(out)
    held = held or plan.lock(out)
    course = Course(folders, broker, rows, say)
    try:
        course.run()
    except KeyboardInterrupt:
        say(f"interrupted: every process is stopped; {out} may be used again")
        raise
    finally:
        if held is not None:
            held.close()
        if course.result:
            _print(course.result, as_json, console)


def _console(as_json: bool) -> "Console":
    from rich.console import Console

    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PAPER_WIDTH
    return console


def _rows(path: Path, say: Callable[[str], None]) -> "Rows":
    from drupelet_tools.demo import plan
    from drupelet_tools.demo.rows import read_rows

    rows = read_rows(path, plan.READINGS * len(plan.BOARDS))
    for complaint in rows.complaints:
        say(f"--input {path}: {complaint}")
    say(f"--input {path}: {len(rows.texts)} rows, {rows.bad} bad ones skipped")
    return rows


def _print(result: dict[str, Any], as_json: bool, console: "Console") -> None:
    if as_json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    console.print(table(result))
    console.print(
        f"killed {result['kills']}x, stick pulled {result['stick_pulls']}x,"
        f" {result['bytes_per_message']} bytes on carriers per message delivered to a member"
    )
    console.print(f"report: {result['report']}")


def table(result: dict[str, Any]) -> "Table":
    """The members, one a row."""
    from rich.table import Table

    shown = Table(
        title="Who has what, and what it cost",
        caption="B/msg: all bytes on this member's carriers but black boxes, both ways, per"
        " message in its log. mAh: modelled, ESP32.",
    )
    for name in ("member", "carrier"):
        shown.add_column(name)
    for name in ("got/all", "twice", "too early", "B/msg", "mAh", "p50 s", "p90 s", "heap used"):
        shown.add_column(name, justify="right", no_wrap=True)
    for member in result["members"]:
        shown.add_row(
            member["name"],
            member["carrier"],
            f"{member['delivered']}/{member['expected']}",
            str(member["duplicates"]),
            str(member["out_of_order"]),
            _cell(member["bytes_per_message"], 0),
            _cell(member["mah_modelled"], 4, "mains"),
            _cell(member["latency_p50_ms"], 1, scale=1000),
            _cell(member["latency_p90_ms"], 1, scale=1000),
            _heap(member),
        )
    return shown


def _cell(value: float | None, digits: int, without: str = "-", scale: int = 1) -> str:
    return without if value is None else f"{value / scale:.{digits}f}"


def _heap(member: dict[str, Any]) -> str:
    if not member["heap_limit"]:
        return "-"
    return f"{member['heap_peak'] >> 10} of {member['heap_limit'] >> 10} KB"
