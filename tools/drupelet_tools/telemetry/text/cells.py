"""What the report's page shows in its tables: figures as texts, cells, tables. No HTML here.

The template escapes every text (page/macros.html), so that what a board says stays text.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from drupelet_tools.telemetry.blackbox.codes import WALL_MS_MAX

Row = dict[str, Any]
LONG_LINES = 25  # a longer table scrolls within its own frame
NARROW_COLUMNS = 3
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """A text with what belongs to it; a plain `str` does for a cell without."""

    text: str
    device: str = ""  # a link to this device
    page: str = ""  # the file that it is in, "" for this one
    position: tuple[float, float] | None = None  # a link that a phone opens in its map
    mark: str = ""  # a warning in front
    note: str = ""  # in small letters behind
    below: str = ""  # in small letters on a line of its own
    is_warning: bool = False
    is_code: bool = False


Cells = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A table of the page; a long one scrolls within its own frame unless it is seen `whole`."""

    caption: str
    heads: Sequence[str]  # one that starts with `<` is of a column of text
    rows: Sequence[Cells]
    total: Cells = field(default=())
    whole: bool = False

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """Each head, and whether its column is text."""
        return [(head.removeprefix("<"), head.startswith("<")) for head in self.heads]

    @property
    def key(self) -> str:
        """A name for its columns; tables with the same ones share it."""
        return f"t{zlib.crc32(chr(0).join(self.heads).encode()):08x}"

    @property
    def is_narrow(self) -> bool:
        """Whether it has so few columns that a phone has room for them."""
        return len(self.heads) <= NARROW_COLUMNS

    @property
    def is_long(self) -> bool:
        """Whether it scrolls."""
        return len(self.rows) + bool(self.total) > LONG_LINES and not self.whole


def card_labels(tables: Iterable[Table]) -> str:
    """Style rules that put each column's head before its cells where rows are shown as cards."""
    return "".join(
        f"\n.{shown.key} td:nth-child({at})::before{{content:{_css_text(head)}}}"
        for shown in {one.key: one for one in tables if not one.is_narrow}.values()
        for at, (head, _) in enumerate(shown.columns, 1)
        if at > 1
    )


def _css_text(text: str) -> str:
    """A string of CSS that cannot end the string, the rule or the style element."""
    plain = (c if c.isalnum() or c in " ,./()%-" else f"\\{ord(c):x} " for c in text)
    return f'"{"".join(plain)}"'


def tables_in(content: object) -> Iterator[Table]:
    """Every table in what a template is given."""
    if isinstance(content, Table):
        yield content
    elif isinstance(content, Mapping):
        for part in content.values():
            yield from tables_in(part)
    elif isinstance(content, list | tuple):
        for part in content:
            yield from tables_in(part)


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """A figure with thousands separators, or a dash where there is none."""
    if value is None:
        return DASH
    return f"{value:,.{digits}f}{unit}"


def significant(value: float | None) -> str:
    """Three significant digits without an exponent, or a dash."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    places = max(0, 3 - whole)
    if abs(value) < 1:
        places = min(9, 2 - _exponent(value))
    return f"{value:,.{places}f}"


def _exponent(value: float) -> int:
    return int(f"{abs(value):e}".rpartition("e")[2])


def seconds(ms: float | None) -> str:
    """Milliseconds as seconds, or a dash."""
    return DASH if ms is None else f"{ms / 1000:,.2f}"


def time_in(ms: float | None, unit_ms: float) -> str:
    """Milliseconds in a unit of so many, three digits, or a dash."""
    return DASH if ms is None else significant(ms / unit_ms)


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a percentage, or a dash."""
    return DASH if share is None else f"{share:.{digits}%}"


def change(share: float) -> str:
    """A rise or a fall as a percentage; what rounds to none is +0.0%."""
    return f"{share:+z.1%}"


def moment(wall_ms: float | None) -> str:
    """A time as a date and minute, UTC, or a dash."""
    if wall_ms is None or not 0 <= wall_ms <= WALL_MS_MAX:
        return DASH
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def between(low: float | None, high: float | None, digits: int = 0) -> str:
    """An interval, or a dash."""
    if low is None or high is None:
        return DASH
    return f"{number(low, digits)} to {number(high, digits)}"


def trend(row: Row | None, digits: int = 3) -> str | Cell:
    """A slope with its interval; one that is not told apart from none says so."""
    if row is None:
        return DASH
    note = f"({row['low']:+.{digits}f} to {row['high']:+.{digits}f})"
    note += "" if row["found"] else " not told apart from none"
    return Cell(f"{row['slope']:+.{digits}f}", note=note)


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Cells], total: Cells = (), *,
    whole: bool = False,
) -> Table:  # fmt: skip
    """A table, whose rows all have a cell for each head."""
    lines = list(rows)
    for line in [*lines, *([total] if total else [])]:
        assert len(line) == len(heads), (caption, line)
    return Table(caption, heads, lines, total, whole)


def link(device: Row) -> Cell:
    """A device's name that leads to its own page."""
    return Cell(str(device["label"]), device=device["device"], page=device.get("page", ""))


def delivered(row: Row) -> str | Cell:
    """Delivered, of expected where that is known."""
    if row["expected"] is None:
        return number(row["delivered"])
    text = f"{number(row['delivered'])} / {number(row['expected'])}"
    return text if row["delivered"] == row["expected"] else Cell(text, is_warning=True)
