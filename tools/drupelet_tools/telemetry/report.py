"""One self-contained HTML page from a lake; no network, readable without JavaScript."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drupelet_host.base.atomic_write import atomic_write
from drupelet_tools.telemetry import cells, charts, sections
from drupelet_tools.telemetry.analyses_plan import FleetPlan
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.figures import Figures, Row
from drupelet_tools.telemetry.report_figures import build

TITLE = "Drupelet fleet report"
DEVICES_MAX = 120  # that the page lists; more make it too large for a phone
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_report(
    lake: Path,
    html: Path,
    results: Mapping[str, Mapping[str, int]] | None = None,
    *,
    plan: FleetPlan | None = None,
    now_ms: float | None = None,
    days: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """Write the page and return the figures in it.

    Raises:
        TelemetryError: no lake, an empty lake, or the page cannot be written.
    """
    all_figures = build(
        lake, results, plan=plan, now_ms=now_ms, days=days, seed=seed, advance=advance
    )
    _write(html, render(all_figures))
    return all_figures


def write_csv(path: Path, all_figures: Figures) -> None:
    """Write one line per device: what the page's tables hold, flat.

    Raises:
        TelemetryError: the file cannot be written.
    """
    _write(path, csv_text(all_figures))


def csv_text(all_figures: Figures) -> str:
    """The devices as CSV; empty cells where a figure is not known."""
    rows = [flat(row) for row in all_figures["devices"]]
    heads = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flat(row: Row, prefix: str = "") -> dict[str, str | float]:
    """Single values of nested figures under names joined by dots; lists are left out."""
    cells: dict[str, str | float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells.update(flat(dict(value), f"{prefix}{name}."))
        elif value is None:
            cells[prefix + str(name)] = ""
        elif isinstance(value, str):
            # A sheet would run what begins like a formula.
            cells[prefix + str(name)] = f"'{value}" if value[:1] in FORMULA else value
        elif not isinstance(value, list):
            cells[prefix + str(name)] = value
    return cells


def _write(path: Path, text: str) -> None:
    """Replace a file whole. A link stays, and what is no file (a device, a pipe) is refused."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise TelemetryError(f"{path}: cannot write the report: it is not a file; name another")
    try:
        atomic_write(path, text, durable=False)
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot write the report: {refused.strerror}") from None


def shown_devices(all_figures: Figures) -> list[Row]:
    """The devices that the page's tables hold: all, or of a large fleet those that need
    attention first and then the first by name; in order of name."""
    devices: list[Row] = all_figures["devices"]
    if len(devices) <= DEVICES_MAX:
        return devices
    urgent = dict.fromkeys(line["device"] for line in all_figures["attention"])
    wanted = list(dict.fromkeys([*urgent, *(row["device"] for row in devices)]))[:DEVICES_MAX]
    chosen = set(wanted)
    return [row for row in devices if row["device"] in chosen]


@cache
def _environment() -> Environment:
    """The templates in page/, which escape every text that is none of ours."""
    return Environment(
        loader=PackageLoader(__package__, "page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _own(name: str) -> Markup:
    """A style sheet or script of ours, which goes into the page as it is."""
    return Markup((resources.files(__package__) / "page" / name).read_text("utf-8"))  # noqa: S704


def render(all_figures: Figures) -> str:
    """The whole page."""
    drawn = charts.charts(all_figures)
    shown = {**all_figures, "devices": shown_devices(all_figures)}
    specifications = {name: charts.specification(chart) for name, chart in drawn.items()}
    content = sections.content(shown)
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=TITLE,
            style=_own("report.css"),
            script=_own("report.js"),
            # What is ours escapes what is theirs: heads as strings of CSS, pictures as SVG,
            # specifications for a script element.
            card_labels=Markup(cells.card_labels(cells.tables_in(content))),  # noqa: S704
            pictures={name: Markup(charts.picture(chart)) for name, chart in drawn.items()},  # noqa: S704
            specifications={name: Markup(text) for name, text in specifications.items()},  # noqa: S704
            bundle=Markup(charts.bundle()) if drawn else "",  # noqa: S704
            **content,
        )
    )
