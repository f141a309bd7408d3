"""Charts of the report: Altair specifications, and the same drawn as still pictures.

Colours are Okabe and Ito's, told apart with any colour vision; every chart has its table
beside it, so colour never carries a figure alone. With many devices a chart shows the fleet or
those that matter most; the tables hold all.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import altair as alt
import vl_convert

from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.analysis.sync_cost import BYTE_KINDS, OPERATION_NAMES
from drupelet_tools.telemetry.analysis.weakest import (
    MEASURED,
    MODELLED,
    estimates,
    histogram,
    weakest,
)
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.page import fleet_map
from drupelet_tools.telemetry.text.cells import moment
from drupelet_tools.telemetry.text.time_units import wait_unit

Row = dict[str, Any]
Chart = alt.Chart | alt.LayerChart

WIDTH = 640
STEP = 26  # height of one bar, pixels
BARS_MAX = 24  # devices with bars of their own
CURVES_MAX = 7  # devices with a curve of their own beside the fleet's
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#999999")
BYTE_COLOURS = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#7F3C8D", "#B8B8B8",
    "#6A6A6A",
)  # fmt: skip
COUNT_TICKS_MAX = 8
MAP_HEIGHT = 400
MAP_MARGIN = 1.3  # so much more than the devices' own extent
MAP_SPAN_MIN_KM = 0.05
MAP_SHAPES = ("triangle-up", "diamond", "circle")
MAP_COLOURS = (COLOURS[3], COLOURS[1], COLOURS[0])  # alarm, warning, no problem
PLAIN = alt.Axis(labelOverlap="greedy", tickCount=8)
DAY_MS, YEAR_MS = 86_400_000, 31_557_600_000


def charts(figures: Figures) -> dict[str, Chart]:
    """Charts by the name of their place in the report; those without data are left out."""
    by_place: dict[str, Chart | None] = {
        "map": _map_chart(figures),
        "steps": _steps_chart(figures),
        "life": _life_chart(figures),
        "bytes": _bytes_chart(figures),
        "charge": _charge_chart(figures),
        "spent": _spent_chart(figures),
        "latency": _latency_chart(figures),
        "sends": _sends_chart(figures),
        "volts": _volts_chart(figures),
    }
    return {name: chart for name, chart in by_place.items() if chart is not None}


def index_charts(figures: Figures) -> dict[str, Chart]:
    """The charts of a large fleet's index."""
    by_place = {
        "map": _map_chart(figures),
        "steps": _steps_chart(figures),
        "life": _life_chart(figures),
    }
    return {name: chart for name, chart in by_place.items() if chart is not None}


def _map_chart(figures: Figures) -> Chart | None:
    """Where the devices are, by the worst of their problems; the same scale both ways."""
    listed = fleet_map.placed(figures["devices"])[: fleet_map.DEVICES_MAX]
    if not listed:
        return None
    rows = [
        {
            "device": row["device"]["label"],
            "state": row["state"],
            "east": round(row["east_km"], 4),
            "north": round(row["north_km"], 4),
            "heard": moment(row["device"]["presence"]["last_wall_ms"]),
        }
        for row in reversed(listed)  # the worst is drawn last, above the others
    ]
    used = [state for state in fleet_map.STATES if any(row["state"] == state for row in rows)]
    colours = dict(zip(fleet_map.STATES, MAP_COLOURS, strict=True))
    shapes = dict(zip(fleet_map.STATES, MAP_SHAPES, strict=True))
    legend = alt.Legend(title=None, orient="top")
    east, north = _equal_scales(rows)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("east:Q", title="East of the middle (km)", scale=east, axis=PLAIN),
        y=alt.Y("north:Q", title="North (km)", scale=north, axis=PLAIN),
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.Color(
            "state:N",
            scale=alt.Scale(domain=used, range=[colours[state] for state in used]),
            legend=legend,
        ),
        shape=alt.Shape(
            "state:N",
            scale=alt.Scale(domain=used, range=[shapes[state] for state in used]),
            legend=legend,
        ),
        tooltip=[
            alt.Tooltip("device:N", title="Device"),
            alt.Tooltip("state:N", title="Worst problem"),
            alt.Tooltip("heard:N", title="Last heard (UTC)"),
        ],
    )
    named = [row for row in rows if row["state"] != fleet_map.FINE] or rows
    names = (
        alt.Chart(alt.InlineData(values=named[-BARS_MAX:]))
        .mark_text(baseline="bottom", dy=-7)
        .encode(x=alt.X("east:Q"), y=alt.Y("north:Q"), text="device:N")
    )
    return alt.LayerChart(layer=[points, names]).properties(width=WIDTH, height=MAP_HEIGHT)


def _equal_scales(rows: list[Row]) -> tuple[alt.Scale, alt.Scale]:
    """Domains around all points in which a kilometre is as long east as north, however wide the
    page makes the chart."""
    spans = {name: [row[name] for row in rows] for name in ("east", "north")}
    east, north = (max(MAP_SPAN_MIN_KM, max(own) - min(own)) for own in spans.values())
    km_per_pixel = f"{MAP_MARGIN} * max({east:.4f} / width, {north:.4f} / height)"
    scales = []
    for name, size in (("east", "width"), ("north", "height")):
        middle = (max(spans[name]) + min(spans[name])) / 2
        half = f"{size} / 2 * {km_per_pixel}"
        ends = {"domainMin": f"{middle:.4f} - {half}", "domainMax": f"{middle:.4f} + {half}"}
        exprs = {end: alt.ExprRef(expression) for end, expression in ends.items()}
        scales.append(alt.Scale(**exprs, nice=False, zero=False))
    return scales[0], scales[1]


def _steps_chart(figures: Figures) -> Chart | None:
    """How many devices have how many days, in steps of a logarithmic scale."""
    rows = histogram(figures["devices"])
    if not rows:
        return None
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("devices:Q", title="Devices", axis=_counts(row["devices"] for row in rows)),
            y=alt.Y("days:N", title="Days (steps of a log scale)", sort=None),
            yOffset=alt.YOffset("kind:N", sort=kinds),
            color=_kind_colour(rows),
            tooltip=[
                alt.Tooltip("days:N", title="Days"),
                alt.Tooltip("kind:N", title="What they are"),
                alt.Tooltip("devices:Q", title="Devices", format=","),
            ],
        )
        .properties(width=WIDTH, height=STEP * len({row["days"] for row in rows}))
    )
    return chart


def _counts(values: Iterable[int]) -> alt.Axis:
    """An axis of whole numbers from zero: at most eight ticks, no two of them the same."""
    most = max(values)
    power = 10 ** max(0, len(str(most)) - 1)
    steps = (digit * unit for unit in (max(1, power // 10), power) for digit in (1, 2, 5))
    step = next(one for one in steps if most / one <= COUNT_TICKS_MAX)
    ticks = list(range(0, most + step, step))
    return alt.Axis(values=ticks, format=",.0f", labelOverlap="greedy")


def _kind_colour(rows: list[Row]) -> alt.Color:
    colours = {MEASURED: COLOURS[3], MODELLED: COLOURS[0]}
    used = [kind for kind in colours if any(row["kind"] == kind for row in rows)]
    scale = alt.Scale(domain=used, range=[colours[kind] for kind in used])
    return alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top", columns=2))


def _life_chart(figures: Figures) -> Chart | None:
    """Intervals of the batteries that end first, on a logarithmic axis that says so."""
    weak = [row["device"] for row in weakest(figures["devices"])]
    rows = [
        {"device": device["label"], "kind": row["kind"], **_days(row)}
        for device in weak
        for row in estimates(device)
    ]
    if not rows:
        return None
    names = [device["label"] for device in weak]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("device:N", title=None, sort=names, axis=alt.Axis(labelLimit=200)),
        color=_kind_colour(rows),
        yOffset=alt.YOffset("kind:N", sort=[MEASURED, MODELLED]),
        tooltip=[
            alt.Tooltip("device:N", title="Device"),
            alt.Tooltip("kind:N", title="What the days are"),
            alt.Tooltip("days:Q", title="Days", format=",.0f"),
            alt.Tooltip("low:Q", title="At least", format=",.0f"),
            alt.Tooltip("high:Q", title="At most", format=",.0f"),
        ],
    )
    title = "Days, log scale, with intervals"
    axis = alt.Axis(values=_log_ticks(rows), labelOverlap="greedy", format="~s")
    log = alt.X("low:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=axis)
    lines = base.mark_rule(strokeWidth=2).encode(x=log, x2="high:Q")
    points = base.mark_point(filled=True, size=55, opacity=1).encode(x=alt.X("days:Q"))
    chart = alt.LayerChart(layer=[lines, points])
    return chart.properties(width=WIDTH, height=STEP * len(names) + 10)


def _days(row: Row) -> Row:
    # The axis has no zero.
    return {name: round(max(0.1, row[name]), 2) for name in ("days", "low", "high")}


def _log_ticks(rows: list[Row]) -> list[float]:
    """1, 2 and 5 of each power of ten from the least to the most that is drawn."""
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [round(digit * 10.0**power, 6) for power in powers for digit in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def _bytes_chart(figures: Figures) -> Chart | None:
    """Bytes on each link by record kind; of a large fleet the sums by carrier."""
    lines = sum(len(device["traffic"]["lines"]) for device in figures["devices"])
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for device in figures["devices"]:
        for line in device["traffic"]["lines"]:
            own = f"{device['label']} · " if lines <= BARS_MAX else ""
            bar = f"{own}{line['carrier']} · {line['direction']}"
            for kind in BYTE_KINDS:
                sums[bar, kind] += line.get(kind, 0) / 1000
    rows = [
        {"bar": bar, "kind": kind, "order": BYTE_KINDS.index(kind), "kB": round(size, 4)}
        for (bar, kind), size in sums.items()
        if size
    ]
    if not rows:
        return None
    return _bars(rows, "kB", "Bytes on the link (kB)", BYTE_KINDS, BYTE_COLOURS, "Record")


def _charge_chart(figures: Figures) -> Chart | None:
    """Charge by power state of the devices that draw most."""
    kinds = (*codes.STATES[:7], "board leakage", "operations")
    drawn = [row for row in figures["devices"] if row["mah_modelled"]]
    drawn.sort(key=lambda row: -row["mah_modelled"])
    rows = [
        {
            "bar": f"{device['label']} · {device['carriers'] or 'no carrier known'}",
            "kind": kind,
            "order": kinds.index(kind),
            "mAh": mah,
        }
        for device in drawn[:BARS_MAX]
        for kind, mah in _by_kind(device["charge"], kinds).items()
        if mah > 0
    ]
    if not rows:
        return None
    colours = (*COLOURS, "#7F3C8D")
    return _bars(rows, "mAh", "Charge (mAh, modelled)", kinds, colours, "Power state")


def _by_kind(charge: list[Row], kinds: tuple[str, ...]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for row in charge:
        sums[row["name"] if row["name"] in kinds else "operations"] += row["mah"]
    return sums


def _spent_chart(figures: Figures) -> Chart | None:
    """What the fleet's charge was spent on."""
    spent = figures["fleet"]["spent"]
    whole = sum(spent.values())
    if not whole:
        return None
    rows = [
        {"spent on": name, "mAh": spent[name], "share": spent[name] / whole}
        for name in OPERATION_NAMES
        if spent.get(name)
    ]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(color=COLOURS[0])
        .encode(
            x=alt.X("mAh:Q", title="Charge of the fleet (mAh, modelled)", axis=PLAIN),
            y=alt.Y("spent on:N", title=None, sort=list(OPERATION_NAMES)),
            tooltip=[
                alt.Tooltip("spent on:N", title="Spent on"),
                alt.Tooltip("mAh:Q", title="mAh", format=".4~g"),
                alt.Tooltip("share:Q", title="Share", format=".1%"),
            ],
        )
        .properties(width=WIDTH, height=20 * len(rows))
    )
    return chart


def _bars(
    rows: list[Row],
    unit: str,
    title: str,
    kinds: tuple[str, ...],
    colours: tuple[str, ...],
    legend: str,
) -> alt.Chart:
    used = {row["kind"] for row in rows}
    domain = [kind for kind in kinds if kind in used]
    scale = alt.Scale(domain=domain, range=[colours[kinds.index(kind)] for kind in domain])
    picked = alt.selection_point(fields=["kind"], bind="legend")
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X(f"{unit}:Q", title=title, stack="zero", axis=PLAIN),
            y=alt.Y("bar:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color(
                "kind:N",
                scale=scale,
                legend=alt.Legend(title=legend, orient="bottom", columns=4),
            ),
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.15)),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title="Device"),
                alt.Tooltip("kind:N", title=legend),
                alt.Tooltip(f"{unit}:Q", title=title, format=".4~g"),
            ],
        )
        .add_params(picked)
        .properties(width=WIDTH, height=STEP * len({row["bar"] for row in rows}))
    )
    return chart


def _latency_chart(figures: Figures) -> Chart | None:
    """Share delivered over time: each device of a small fleet, else the fleet and its slowest."""
    devices = [row for row in figures["devices"] if row["latency"]["curve"]]
    title = "At device"
    if len(devices) > CURVES_MAX:
        devices.sort(key=lambda row: -(row["latency"]["p90_ms"] or float("inf")))
        devices = devices[: CURVES_MAX - 1]
        title = f"At the {len(devices)} slowest devices (90 % within), and at all"
    curves = [(row["label"], row["latency"]["curve"]) for row in devices]
    if len(curves) > 1:
        curves.insert(0, ("all", figures["fleet"]["latency"]["curve"]))
    unit, unit_ms = wait_unit(figures["fleet"]["latency"])
    rows = [
        {"device": name, "wait": float(f"{seconds * 1000 / unit_ms:.5g}"), "share": share}
        for name, curve in curves
        for seconds, share in curve
    ]
    if not rows:
        return None
    return _waits(rows, unit, [name for name, _ in curves], title)


def _waits(rows: list[Row], unit: str, names: list[str], title: str) -> alt.Chart:
    # One legend for colour and dash.
    legend = alt.Legend(title=title, orient="bottom", columns=4, symbolSize=300, titleLimit=WIDTH)
    scale = alt.Scale(domain=names, range=list(COLOURS))
    dashes = alt.Scale(domain=names)
    picked = alt.selection_point(fields=["device"], bind="legend")
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("wait:Q", title=f"Created to delivered ({unit})", axis=PLAIN),
            y=alt.Y(
                "share:Q",
                title="Share of messages delivered",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color("device:N", sort=names, scale=scale, legend=legend),
            strokeDash=alt.StrokeDash("device:N", sort=names, scale=dashes, legend=legend),
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.15)),
            tooltip=[
                alt.Tooltip("device:N", title="At device"),
                alt.Tooltip("wait:Q", title=f"Within ({unit})", format=".3~f"),
                alt.Tooltip("share:Q", title="Delivered", format=".1%"),
            ],
        )
        .add_params(picked)
        .properties(width=WIDTH, height=260)
    )
    return chart


def _sends_chart(figures: Figures) -> Chart | None:
    """How many sends a message took to a member."""
    sends = figures["fleet"]["sync"]["sends"]
    if not sum(sends):
        return None
    last = len(sends)
    rows = [
        {"sends": str(at) if at < last else f"{last} or more", "messages": count}
        for at, count in enumerate(sends, 1)
    ]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(color=COLOURS[0])
        .encode(
            x=alt.X("messages:Q", title="Messages, each once per receiver", axis=_counts(sends)),
            y=alt.Y("sends:N", title="Sends", sort=None),
            tooltip=[alt.Tooltip("sends:N"), alt.Tooltip("messages:Q", format=",")],
        )
        .properties(width=WIDTH, height=20 * last)
    )
    return chart


def _volts_chart(figures: Figures) -> Chart | None:
    """Battery voltage over time, of the weakest batteries and then of those with most readings."""
    weak = weakest(figures["devices"], CURVES_MAX)
    rank = {row["device"]["device"]: at for at, row in enumerate(weak)}
    devices = [row for row in figures["devices"] if len(row["battery"]["mv_curve"]) > 1]
    devices.sort(key=lambda row: (rank.get(row["device"], len(rank)), -row["battery"]["readings"]))
    rows = [
        {"device": row["label"], "time": at_ms, "at": moment(at_ms), "V": round(mv / 1000, 4)}
        for row in devices[:CURVES_MAX]
        for at_ms, mv in row["battery"]["mv_curve"]
    ]
    if not rows:
        return None
    legend = alt.Legend(title="Device", orient="bottom", columns=4, symbolSize=300)
    names = list(dict.fromkeys(row["device"] for row in rows))
    times = [row["time"] for row in rows]
    title, shape = _time_axis(max(times) - min(times))
    axis = alt.Axis(format=shape, labelOverlap="greedy", tickCount=8)
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("time:T", title=title, scale=alt.Scale(type="utc"), axis=axis),
            y=alt.Y("V:Q", title="Battery (V, measured)", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "device:N", scale=alt.Scale(domain=names, range=list(COLOURS)), legend=legend
            ),
            strokeDash=alt.StrokeDash("device:N", scale=alt.Scale(domain=names), legend=legend),
            tooltip=[
                alt.Tooltip("device:N", title="Device"),
                alt.Tooltip("at:N", title="At (UTC)"),
                alt.Tooltip("V:Q", title="V", format=".3f"),
            ],
        )
        .properties(width=WIDTH, height=220)
    )
    return chart


def _time_axis(wide_ms: float) -> tuple[str, str]:
    """Title and format of an axis of time this wide; UTC and 24 hours whatever the reader's."""
    if wide_ms <= 2 * DAY_MS:
        return "Time (UTC, day and hour)", "%d %H:%M"
    if wide_ms <= YEAR_MS:
        return "Day (UTC)", "%b %d"
    return "Month (UTC)", "%Y-%m"


def specification(chart: Chart) -> str:
    """The Vega-Lite specification as JSON that is safe inside a script element."""
    told = chart.to_dict()
    told.pop("$schema", None)  # a URL; nothing loads it, and nothing should seem to
    told["background"] = None
    told["autosize"] = {"type": "fit-x", "contains": "padding"}
    told["width"] = "container"
    # `<!--<script>` in a name would hide the end of the element, too.
    return json.dumps(told, separators=(",", ":")).replace("<", "\\u003c")


def picture(chart: Chart) -> str:
    """The chart as a still SVG: what shows without JavaScript and on paper."""
    told = chart.to_dict()
    told["background"] = None
    told["config"] = {**told.get("config", {}), "view": {"stroke": None}}
    drawn = vl_convert.vegalite_to_svg(told)
    # Sized by the page: the width and height attributes would overrule it on a phone.
    drawn = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", drawn, count=1)
    # A reader's words for each bar are in the table beside it; here they double the size. So do
    # digits beyond a tenth of a pixel.
    drawn = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", drawn)
    return re.sub(r"(\d\.\d)\d+(?=[^\d\w%])", r"\1", drawn)


def spark(points: list[tuple[int, float]]) -> str:
    """The points of a small still curve of readings, 300 by 44; "" of fewer than two."""
    if len(points) < 2:
        return ""
    times, values = [at for at, _ in points], [value for _, value in points]
    wide, low = max(times) - min(times) or 1, min(values)
    high = max(values) - low or 1
    return " ".join(
        f"{300 * (at - times[0]) / wide:.0f},{40 - 36 * (value - low) / high:.1f}"
        for at, value in points
    )


def bundle() -> str:
    """Vega, Vega-Lite and the embedder as one script, for a report without a network."""
    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # it is optional
    return script.replace("</script", "<\\/script")
