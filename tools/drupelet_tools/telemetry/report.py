"""One self-contained HTML page from a lake; no network, readable without JavaScript."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from drupelet_tools.telemetry import charts, sections
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.figures import Figures, figures
from drupelet_tools.telemetry.lake import open_lake

TITLE = "Drupelet fleet report"

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
      if (narrow && spec.encoding.color.legend) { spec.encoding.color.legend.columns = 2; }
      if (narrow && spec.encoding.y.axis) { spec.encoding.y.axis.labelLimit = 120; }
      vegaEmbed(place, spec, { actions: false, renderer: "svg", config: config });
    });
  }
  draw();
  dark.addEventListener("change", draw);
})();
"""


def build(lake: Path, results: Mapping[str, Mapping[str, int]] | None = None) -> Figures:
    """The figures of a lake, as the report and the demo print them (see `figures.figures`)."""
    state = open_lake(lake)
    found = figures(state, results)
    if not found["devices"]:
        raise TelemetryError(f"{lake}: the lake is empty; ingest black-box segments first")
    return found


def write_report(
    lake: Path, html: Path, results: Mapping[str, Mapping[str, int]] | None = None
) -> Figures:
    """Write the page and return the figures in it.

    Raises:
        TelemetryError: no lake, an empty lake, or the page cannot be written.
    """
    found = build(lake, results)
    page = render(found)
    temporary = html.with_name(f".{html.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, "utf-8")
        os.replace(temporary, html)
    except OSError as refused:
        temporary.unlink(missing_ok=True) if temporary.parent.is_dir() else None
        raise TelemetryError(f"{html}: cannot write the report: {refused.strerror}") from None
    return found


def render(found: Figures) -> str:
    """The whole page."""
    drawn = charts.charts(found)
    pictures = {name: charts.picture(chart) for name, chart in drawn.items()}
    specs = ",".join(f'"{name}":{charts.specification(chart)}' for name, chart in drawn.items())
    scripts = ""
    if drawn:
        live = LIVE.replace("%s", "{" + specs + "}")
        scripts = (
            f'<script type="module">\n{charts.bundle()}\n</script>\n'
            f'<script type="module">\n{live}</script>'
        )
    text = (resources.files(__package__) / "template.html").read_text("utf-8")
    return Template(text).substitute(
        title=TITLE,
        subtitle=sections.subtitle(found),
        body=sections.body(found, pictures),
        scripts=scripts,
    )
