"""One self-contained HTML page from a lake; no network, readable without JavaScript."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from string import Template

from drupelet_host.base.atomic_write import atomic_write
from drupelet_tools.telemetry import charts, sections
from drupelet_tools.telemetry.analyses_plan import FleetPlan, battery_plan
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.figures import Figures, Row, figures
from drupelet_tools.telemetry.lake import open_lake

TITLE = "Drupelet fleet report"
ASSUMED_BATTERY = "18650"  # what a life is modelled with where nobody says which battery
DEVICES_MAX = 120  # that the page lists; more make it too large for a phone
FORMULA = ("=", "+", "-", "@", "\t", "\r")

# Charts are drawn twice: as a still picture in the page, and live in its place. Colours of
# axes follow the page's light or dark scheme.
LIVE = """\
(function () {
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var specs = %s;
  function draw() {
    var ink = dark.matches ? "#c4cad1" : "#33383d";
    var line = dark.matches ? "#4a5157" : "#d9dde1";
    var axis = { labelColor: ink, titleColor: ink, gridColor: line, domainColor: line,
      tickColor: line, labelFontSize: 12, titleFontSize: 12 };
    var config = { axis: axis, view: { stroke: null },
      legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12 } };
    Object.keys(specs).forEach(function (name) {
      var place = document.getElementById("chart-" + name);
      var narrow = place.clientWidth < 480;
      var spec = JSON.parse(JSON.stringify(specs[name]));
      (spec.layer || [spec]).forEach(function (part) {
        var own = part.encoding || {};
        [own.color, own.strokeDash].forEach(function (channel) {
          if (narrow && channel && channel.legend) { channel.legend.columns = 2; }
        });
        if (narrow && own.y && own.y.axis) { own.y.axis.labelLimit = 110; }
      });
      vegaEmbed(place, spec, { actions: false, renderer: "svg", config: config })
        .then(function () { place.dataset.drawn = "yes"; });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
"""


# What the page does without the charts: a device's page opens when it is asked for, is found by
# its name, and a table sorts by the head that is pressed.
PAGE = """\
(function () {
  function show() {
    var wanted = location.hash.slice(1);
    try { wanted = decodeURIComponent(wanted); } catch (odd) { /* an id with a bare % */ }
    var page = wanted && document.getElementById(wanted);
    if (page && page.tagName === "DETAILS") { page.open = true; page.hidden = false;
      page.scrollIntoView(); }
  }
  addEventListener("hashchange", show);
  show();
  var find = document.getElementById("find");
  if (find) {
    find.addEventListener("input", function () {
      var wanted = find.value.toLowerCase();
      document.querySelectorAll("#devices > details").forEach(function (page) {
        var told = page.firstElementChild.textContent + " " + page.id;
        page.hidden = told.toLowerCase().indexOf(wanted) < 0;
      });
    });
  }
  function value(row, at) {
    var text = row.children[at].textContent.trim();
    var told = text.match(/^[+-]?[\\d,]*\\.?\\d+(?=$|[^\\d-])/);
    return told ? parseFloat(told[0].replace(/,/g, "")) : text.toLowerCase();
  }
  document.querySelectorAll("thead").forEach(function (top) {
    var body = top.parentElement.tBodies[0];
    var heads = top.rows[0].children;
    if (body.rows.length < 3) { return; }
    Array.prototype.forEach.call(heads, function (head, at) {
      head.tabIndex = 0;
      head.classList.add("sorts");
      function sort() {
        var down = head.getAttribute("aria-sort") === "descending";
        Array.prototype.forEach.call(heads, function (other) {
          other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        var rows = Array.prototype.filter.call(body.rows, function (row) {
          return !row.classList.contains("total"); });
        rows.sort(function (one, other) {
          var a = value(one, at), b = value(other, at);
          if (typeof a !== typeof b) { return typeof a === "number" ? -1 : 1; }
          return (a < b ? 1 : a > b ? -1 : 0) * (down ? -1 : 1);
        });
        rows.forEach(function (row) { body.insertBefore(row, body.querySelector(".total")); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { sort(); } });
    });
  });
})();
"""


def build(
    lake: Path,
    results: Mapping[str, Mapping[str, int]] | None = None,
    *,
    plan: FleetPlan | None = None,
    now_ms: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """The figures of a lake, as the report and the demo print them (see `figures.figures`)."""
    state = open_lake(lake)
    plan = plan or battery_plan(ASSUMED_BATTERY, assumed=True)
    all_figures = figures(state, results, plan, now_ms=now_ms, seed=seed, advance=advance)
    if not all_figures["devices"]:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    return all_figures


def device_names(lake: Path) -> list[tuple[str, str]]:
    """Id and name of the devices that a lake holds."""
    table = open_lake(lake).read_devices()
    return list(zip(table["device"].to_pylist(), table["name"].to_pylist(), strict=True))


def write_report(
    lake: Path,
    html: Path,
    results: Mapping[str, Mapping[str, int]] | None = None,
    *,
    plan: FleetPlan | None = None,
    now_ms: float | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """Write the page and return the figures in it.

    Raises:
        TelemetryError: no lake, an empty lake, or the page cannot be written.
    """
    all_figures = build(lake, results, plan=plan, now_ms=now_ms, seed=seed, advance=advance)
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


def render(all_figures: Figures) -> str:
    """The whole page."""
    drawn = charts.charts(all_figures)
    shown = {**all_figures, "devices": shown_devices(all_figures)}
    pictures = {name: charts.picture(chart) for name, chart in drawn.items()}
    specs = ",".join(f'"{name}":{charts.specification(chart)}' for name, chart in drawn.items())
    scripts = f"<script>\n{PAGE}</script>"
    if drawn:
        live = LIVE.replace("%s", "{" + specs + "}")
        scripts += (
            f'\n<script type="module">\n{charts.bundle()}\n</script>\n'
            f'<script type="module">\n{live}</script>'
        )
    text = (resources.files(__package__) / "template.html").read_text("utf-8")
    return Template(text).substitute(
        title=TITLE,
        subtitle=sections.subtitle(shown),
        body=sections.body(shown, pictures),
        scripts=scripts,
    )
