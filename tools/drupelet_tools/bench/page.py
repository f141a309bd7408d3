"""The tables of docs/bench.md, filled in from what `drupelet bench … --json` left in docs/bench.

Above each table stands what it shows: `<!-- FILE.json: COLUMN … | COLUMN=VALUE,VALUE … -->`. It
has the rows of the file in which each of these columns has one of its values.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from drupelet_tools.bench import columns as bench_columns
from drupelet_tools.bench.columns import Column, Row

_TABLE = re.compile(r"^(<!-- ([\w-]+)\.json: ([^|]+?)(?: \| (.+?))? -->)\n(?:\|.*\n)+", re.M)
_SMALL = 10


def columns_of(file: str) -> dict[str, Column]:
    """The columns of the benchmark that wrote a file (`wire-cold`: wire), by name."""
    columns: tuple[Column, ...] = getattr(bench_columns, file.partition("-")[0].upper(), ())
    return {column.name: column for column in columns}


def read_run(folder: Path, file: str) -> dict[str, Any]:
    """What a benchmark printed as JSON."""
    run: dict[str, Any] = json.loads((folder / f"{file}.json").read_text("utf-8"))
    return run


def chosen_rows(rows: list[Row], conditions: str) -> list[Row]:
    """The rows that meet every `column=value,value`; a value is as in a table, without commas."""
    pairs = [word.partition("=") for word in shlex.split(conditions)]
    return [
        row
        for row in rows
        if all(cell(row, name).replace(",", "") in text.split(",") for name, _, text in pairs)
    ]


def cell(row: Row, name: str) -> str:
    """A value of a row as text, beside its limit if the row has one."""
    text = number_text(row.get(name))
    limit = (row.get("limits") or {}).get(name)
    if limit is None or row[name] is None:
        return text
    return f"{text} {'≤' if row[name] <= limit else '>'} {limit:,}"


def number_text(value: Any) -> str:  # noqa: ANN401 - whatever JSON has
    """A value for people: thousands apart, small fractions to three digits."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1 else f"{value:,.{2 if value < _SMALL else 1}f}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def filled(page: str, folder: Path) -> str:
    """The page with its tables made anew from the files. Raises ValueError for an empty table."""

    def table(match: re.Match[str]) -> str:
        mark, file, names, conditions = match.groups()
        known = columns_of(file)
        rows = chosen_rows(read_run(folder, file)["rows"], conditions or "")
        if not rows:
            raise ValueError(f"{file}.json has no row with {conditions}")
        heads = [known[name].head or name if name in known else name for name in names.split()]
        lines = [heads, ["---"] * len(heads)]
        lines += [[cell(row, name) for name in names.split()] for row in rows]
        return "\n".join([mark, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"

    return _TABLE.sub(table, page)
