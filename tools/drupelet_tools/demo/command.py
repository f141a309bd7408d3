"""`drupelet demo`: options, progress, and the table at the end."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_host.cli import extras
from drupelet_host.cli.common import path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from drupelet_tools.demo.rows import Rows

# Where the table goes when it is not a terminal that tells its width.
PAPER_WIDTH = 110


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
    with_pico: Annotated[
        bool,
        typer.Option("--pico", help="Add a sixth member: an emulated Pico, in slow motion."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:  # fmt: skip
    """Five members, three carriers, one report: the whole product on this machine."""
    extras.require("telemetry")
    from drupelet_tools.demo import plan

    console = _console(as_json)

    def say(text: str) -> None:
        console.print(text, markup=False)

    rows = _rows(input_file, say) if input_file else None
    if broker:
        plan.check_broker(broker)
    image = _pico_image(say) if with_pico else None
    _run(out, broker, rows, image, as_json, console)


def _run(
    out: Path, broker: str, rows: "Rows | None", image: Path | None, as_json: bool,
    console: "Console",
) -> None:  # fmt: skip
    """Run the demo in its folder, and print what came of it."""
    from drupelet_tools.demo import plan

    def say(text: str) -> None:
        console.print(text, markup=False)

    held = plan.lock(out)
    folders = plan.prepare(out)
    held = held or plan.lock(out)
    # Spark's libraries take seconds to load: only whoever runs the demo waits for them.
    from drupelet_tools.demo.run import Course

    course = Course(folders, broker, rows, say, image)
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
        console.width = PAPER_WIDTH
    return console


def _pico_image(say: Callable[[str], None]) -> Path:
    """The image that `drupelet flash image rp2` makes; raises BuildError."""
    from drupelet_tools.flash.sets import Choice
    from drupelet_tools.image.build import build_image
    from drupelet_tools.pico.emulator import parts

    parts()
    say("the Pico's image is taken from the cache, or built there in a minute or more")
    return build_image(Choice("small", (), ("serial-sealed",)))


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
    """The members, one a row; with a Pico among them a column says what each of them is."""
    from rich.table import Table

    from drupelet_tools.demo import plan

    mixed = any(member["name"] == plan.PICO for member in result["members"])
    caption = (
        "too early: before a message that it comes after. B/msg: all bytes on this member's"
        " carriers but black boxes, both ways, per message in its log. p50 s, p90 s: so long after"
        " it was written, half and 90 % of the messages were in this member's log. mAh: of the"
        " whole run, modelled, ESP32"
    )
    if mixed:
        caption += (
            f"; {plan.PICO}: RP2040. {plan.PICO} is an emulated chip in slow motion: it takes"
            f" {plan.PICO_READINGS} readings of its own sensor, the others {plan.READINGS}, and"
            " its charge is that of its own time."
        )
    else:
        caption += "."
    shown = Table(title="Who has what, and what it cost", caption=caption)
    shown.add_column("member")
    if mixed:
        shown.add_column("kind", min_width=len("unix port"))
    shown.add_column("carrier")
    for name in ("got/all", "twice", "too early", "B/msg", "mAh", "p50 s", "p90 s", "heap used"):
        shown.add_column(name, justify="right", no_wrap=True)
    for member in result["members"]:
        shown.add_row(
            member["name"],
            *([member["kind"]] if mixed else []),
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
