"""One self-contained HTML page from a lake; no network, readable without JavaScript."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drupelet_tools.telemetry.analysis import buckets
from drupelet_tools.telemetry.analysis.figures import Figures, Row
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.analysis.report_figures import (
    Results,
    assumed_plan,
    build,
    device_names,
)
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, Remote, reason, write_text
from drupelet_tools.telemetry.page import charts, sections, sections_index
from drupelet_tools.telemetry.text import cells

TITLE = "Drupelet fleet report"
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_report(
    lake: Place,
    html: Place,
    results: Results | None = None,
    *,
    plan: FleetPlan | None = None,
    now_ms: float | None = None,
    days: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """Write the page and return the figures in it; of a large fleet the page is an index, and the
    devices have pages in a folder beside it.

    Raises:
        TelemetryError: no lake, an empty lake, or the page cannot be written.
    """
    plan = plan or assumed_plan()
    if len(device_names(lake)) > buckets.ONE_PAGE_DEVICES:
        folder = _folder(html)
        task = buckets.Task(lake, results, plan, now_ms, days, seed, folder, folder.name)
        all_figures = buckets.run(task, Pages(f"../{html.name}"), advance)
        _remove_older(folder, len(all_figures["pages"]))
        _write(html, render_index(all_figures))
        return all_figures
    all_figures = build(
        lake, results, plan=plan, now_ms=now_ms, days=days, seed=seed, advance=advance
    )
    _write(html, render(all_figures))
    return all_figures


def _folder(html: Place) -> Place:
    """The folder of a large fleet's pages, made anew if it is not there."""
    folder = html.parent / f"{html.stem}-pages"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as refused:
        raise TelemetryError(f"{folder}: cannot write the pages: {reason(refused)}") from None
    return folder


def _remove_older(folder: Place, pages: int) -> None:
    """Pages of an earlier, larger fleet would be taken for this one's."""
    listed = folder.below() if isinstance(folder, Remote) else list(folder.iterdir())
    for path in listed:
        is_page = path.suffix == ".html" and path.stem.isdecimal() and len(path.stem) >= 4
        if is_page and int(path.stem) > pages:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Pages:
    """Makes the pages of buckets; `index_page` is the way back from them."""

    index_page: str

    def __call__(self, all_figures: Figures) -> str:
        """A bucket's page: still pictures, as a hundred pages with Vega would be 90 MB."""
        return render(all_figures, index_page=self.index_page, is_live=False)


def write_csv(path: Place, all_figures: Figures) -> None:
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


def _write(path: Place, text: str) -> None:
    """Replace a file whole. A link stays, and what is no file (a device, a pipe) is refused."""
    path = path.resolve()
    if isinstance(path, Path) and path.exists() and not path.is_file():
        raise TelemetryError(f"{path}: cannot write the report: it is not a file; name another")
    try:
        write_text(path, text)
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot write the report: {reason(refused)}") from None


@cache
def _environment() -> Environment:
    """The templates in page/, which escape every text that is none of ours."""
    return Environment(
        loader=PackageLoader(__package__, "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _own(name: str) -> Markup:
    """A style sheet or script of ours, which goes into the page as it is."""
    return Markup((resources.files(__package__) / "templates" / name).read_text("utf-8"))  # noqa: S704


def render(all_figures: Figures, *, index_page: str = "", is_live: bool = True) -> str:
    """The whole page; charts are only drawn live if `is_live`."""
    content = sections.content(all_figures)
    drawn = charts.charts(all_figures)
    specifications = {n: charts.specification(chart) for n, chart in drawn.items() if is_live}
    return _page(
        "report.html",
        {**content, "index_page": index_page},
        drawn,
        # Both escape what is theirs: specifications for a script element, the bundle is ours.
        specifications={name: Markup(text) for name, text in specifications.items()},  # noqa: S704
        bundle=Markup(charts.bundle()) if specifications else "",  # noqa: S704
    )


def render_index(all_figures: Figures) -> str:
    """The index of a large fleet."""
    content = {**sections_index.content(all_figures), "index_page": ""}
    return _page("index.html", content, charts.index_charts(all_figures))


def _page(
    template: str, content: dict[str, Any], drawn: Mapping[str, charts.Chart], **more: object
) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            title=TITLE,
            style=_own("report.css"),
            script=_own("report.js"),
            # What is ours escapes what is theirs: heads as strings of CSS, pictures as SVG.
            card_labels=Markup(cells.card_labels(cells.tables_in(content))),  # noqa: S704
            pictures={name: Markup(charts.picture(chart)) for name, chart in drawn.items()},  # noqa: S704
            **more,
            **content,
        )
    )
