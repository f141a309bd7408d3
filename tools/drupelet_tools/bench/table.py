"""How rows are printed: a table for people, JSON for programs, and what machine it was."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import drupelet
from drupelet_tools.bench.columns import Column, Row
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.checks import source_commit
from drupelet_tools.flash.errors import BuildError

if TYPE_CHECKING:
    import rich.table

# Where the table goes when it is not a terminal that tells its width: no cell is cut.
_PAPER_WIDTH = 200
_VERSION_TIMEOUT_S = 10


def machine() -> dict[str, Any]:
    """What the figures were taken on: processor, system, interpreters."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "micropython": _micropython("x64"),
        "micropython_i386": _micropython("x86"),
        "drupelet": drupelet.__version__,
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    return names[0].strip() if names else platform.processor()


def _micropython(arch: str) -> str | None:
    """The version of an interpreter, None where there is none."""
    program = "import sys; print('.'.join([str(part) for part in sys.implementation.version[:3]]))"
    try:
        done = subprocess.run(
            [*micropython_command(arch), "-c", program],
            capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (BuildError, OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True)
class Table:
    """Rows under a title; `cells` turns a row's value of some columns into text."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    cells: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)


def origin() -> dict[str, Any]:
    """What was run, of which commit, when and on what machine."""
    return {
        "command": shlex.join(["drupelet", *sys.argv[1:]]),
        "commit": source_commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
    }


def json_text(values: Mapping[str, Any]) -> str:
    """A run as JSON with a line for each row, so that two runs can be compared line by line."""
    parts = []
    for name, value in values.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            text = f"[\n{lines}\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def show(
    tables: Sequence[Table],
    rows: Sequence[Row],
    as_json: bool,
    more: Mapping[str, Sequence[Row]] | None = None,
) -> None:
    """Print `rows`, `more` and their origin as JSON, or the tables that were made of them."""
    if as_json:
        print(json_text({**origin(), "rows": list(rows), **(more or {})}), end="")
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _PAPER_WIDTH, highlight=False)
    for table in tables:
        if table.rows:
            console.print(_rich_table(table))
            console.print()
    console.print(", ".join(f"{key} {value}" for key, value in machine().items() if value))


def _rich_table(table: Table) -> "rich.table.Table":
    import rich.table

    rich_table = rich.table.Table(
        title=table.title, title_justify="left", box=None, pad_edge=False
    )
    for column in table.columns:
        justify: Literal["left", "right"] = "left" if column.text else "right"
        rich_table.add_column(column.head or column.name, justify=justify, no_wrap=not column.text)
    for row in table.rows:
        rich_table.add_row(*(_cell(column, row, table.cells) for column in table.columns))
    return rich_table


def pick(columns: Sequence[Column], names: str) -> list[Column]:
    """The columns of these names, in this order."""
    known = {column.name: column for column in columns}
    return [known[name] for name in names.split()]


def _cell(column: Column, row: Row, cells: Mapping[str, Callable[[Row], str]]) -> str:
    value = row.get(column.name)
    if column.name in cells:
        return cells[column.name](row)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
