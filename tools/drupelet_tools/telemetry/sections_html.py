"""Pieces of HTML: numbers as text, tables, charts in their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from drupelet_tools.telemetry.codes import WALL_MS_MAX

Row = dict[str, Any]
LONG_LINES = 25  # a longer table scrolls within its own frame
DASH = "\N{EN DASH}"


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


def trend(row: Row | None, digits: int = 3) -> str:
    """A slope with its interval; one that is not told apart from none says so."""
    if row is None:
        return DASH
    told = f"{row['slope']:+.{digits}f} <small>({row['low']:+.{digits}f} to"
    told += f" {row['high']:+.{digits}f})</small>"
    return told if row["found"] else f"{told} <small>not told apart from none</small>"


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    total: Sequence[str] = (),
    *,
    whole: bool = False,
) -> str:
    """A table whose cells are safe HTML already; heads that start with `<` are text columns.

    A long one scrolls within its own frame unless it is to be seen `whole`.
    """
    text = [head.startswith("<") for head in heads]
    top = "".join(
        f"<th{_class(is_text)}>{escape(head.removeprefix('<'))}</th>"
        for head, is_text in zip(heads, text, strict=True)
    )
    lines = [_line(row, text, "") for row in rows]
    if total:
        lines.append(_line(total, text, ' class="total"'))
    long = " long" if len(lines) > LONG_LINES and not whole else ""
    return (
        f'<div class="scroll{long}"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _class(is_text: bool) -> str:
    return ' class="text"' if is_text else ""


def _line(cells: Sequence[str], text: list[bool], attribute: str) -> str:
    first, *rest = cells
    columns = "".join(
        f"<td{_class(is_text)}>{cell}</td>" for cell, is_text in zip(rest, text[1:], strict=True)
    )
    return f"<tr{attribute}><th>{first}</th>{columns}</tr>"


def name(device: Row) -> str:
    """A device's name, safe."""
    return escape(str(device["label"]))


def link(device: Row) -> str:
    """A device's name that leads to its own page."""
    return f'<a href="#device-{escape(device["device"])}">{name(device)}</a>'


def delivered(row: Row) -> str:
    """Delivered, of expected where that is known."""
    if row["expected"] is None:
        return number(row["delivered"])
    text = f"{number(row['delivered'])} / {number(row['expected'])}"
    return text if row["delivered"] == row["expected"] else f'<span class="warn">{text}</span>'


def figure(place: str, picture: str, label: str) -> str:
    """A chart's place with its still picture in it; nothing without one."""
    if not picture:
        return ""
    return f'<div class="chart" id="chart-{place}" role="img" aria-label="{label}">{picture}</div>'
