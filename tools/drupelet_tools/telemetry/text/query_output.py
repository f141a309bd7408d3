"""How `drupelet telemetry query` prints rows: a table, or a JSON object per row."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

# Of a table that goes into a file or a pipe: nobody's lines end there.
WIDTH_MAX = 1 << 20


def show(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Print a table; as wide as the terminal, or as its cells where there is none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # As texts: square brackets in a name or a cell would be taken for rich's own markup.
    shown = Table()
    for name in names:
        shown.add_column(Text(name))
    for row in rows:
        shown.add_row(*(Text("" if value is None else str(value)) for value in row))
    terminal = Console(file=out).is_terminal
    Console(file=out, width=None if terminal else WIDTH_MAX).print(shown)


def distinct(names: Iterable[str]) -> list[str]:
    """The names, with _2, _3 … behind those that are there already: keys of one object."""
    listed = list(names)
    taken = set(listed)
    found: list[str] = []
    for name in listed:
        told, at = name, 2
        while told in found or (told != name and told in taken):
            told, at = f"{name}_{at}", at + 1
        found.append(told)
    return found


def line(names: Sequence[str], row: Sequence[Any]) -> str:
    """A row as JSON; what no JSON number is (NaN, infinity) as null."""
    told = {name: _plain(value) for name, value in zip(names, row, strict=True)}
    return json.dumps(told, default=str, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, tuple) and (names := getattr(value, "__fields__", None)):
        return {name: _plain(own) for name, own in zip(names, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return value
