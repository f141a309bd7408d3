"""Charts of the report: Altair specifications, and the same drawn as still pictures.

Colours are Okabe and Ito's, told apart with any colour vision; every chart has its table
beside it, so colour never carries a figure alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

import altair as alt
import vl_convert

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.figures import Figures

WIDTH = 640
STEP = 26  # height of one bar, pixels
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#999999")
BYTE_KINDS = (
    "message", "segment", "ack", "offer", "request", "link", "seal", "framing", "telemetry",
)  # fmt: skip
BYTE_COLOURS = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#7F3C8D", "#B8B8B8",
    "#6A6A6A",
)  # fmt: skip


def charts(figures: Figures) -> dict[str, alt.LayerChart | alt.Chart]:
    """Charts by the name of their place in the report; those without data are left out."""
    made = {
        "bytes": _bytes_chart(figures),
        "charge": _charge_chart(figures),
        "latency": _latency_chart(figures),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def _bytes_chart(figures: Figures) -> alt.Chart | None:
    rows = [
        {
            "device": device["name"],
            "carrier": line["carrier"],
            "kind": kind,
            "order": BYTE_KINDS.index(kind),
            "kB": round(line.get(kind, 0) / 1000, 4),
            "direction": line["direction"],
            "bar": f"{device['name']} · {line['carrier']} · {line['direction']}",
        }
        for device in figures["devices"]
        for line in device["traffic"]["lines"]
        for kind in BYTE_KINDS
        if line.get(kind, 0)
    ]
    if not rows:
        return None
    bars = len({row["bar"] for row in rows})
    return _bars(rows, bars, "kB", "Bytes on the link (kB)", BYTE_KINDS, BYTE_COLOURS, "Record")


def _charge_chart(figures: Figures) -> alt.Chart | None:
    kinds = (*codes.STATES[:7], "board leakage")
    rows = [
        {
            "bar": f"{device['name']} · {device['carriers'] or 'no carrier told'}",
            "kind": row["name"],
            "order": row["state"],
            "mAh": row["mah"],
        }
        for device in figures["devices"]
        for row in device["charge"]
        if row["mah"] > 0
    ]
    if not rows:
        return None
    bars = len({row["bar"] for row in rows})
    return _bars(rows, bars, "mAh", "Charge (mAh, modelled)", kinds, COLOURS, "Power state")


def _bars(
    rows: list[dict[str, Any]],
    bars: int,
    unit: str,
    title: str,
    kinds: tuple[str, ...],
    colours: tuple[str, ...],
    legend: str,
) -> alt.Chart:
    used = {row["kind"] for row in rows}
    domain = [kind for kind in kinds if kind in used]
    scale = alt.Scale(domain=domain, range=[colours[kinds.index(kind)] for kind in domain])
    made: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X(f"{unit}:Q", title=title, stack="zero"),
            y=alt.Y("bar:N", title=None, sort=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color(
                "kind:N",
                scale=scale,
                legend=alt.Legend(title=legend, orient="bottom", columns=4),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("bar:N", title="Device"),
                alt.Tooltip("kind:N", title=legend),
                alt.Tooltip(f"{unit}:Q", title=title, format=".4~g"),
            ],
        )
        .properties(width=WIDTH, height=STEP * bars)
    )
    return made


def _latency_chart(figures: Figures) -> alt.Chart | None:
    rows = [
        {"device": device["name"], "seconds": seconds, "share": share}
        for device in figures["devices"]
        for seconds, share in device["latency"]["curve"]
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["device"] for row in rows))
    # One legend for colour and dash.
    legend = alt.Legend(title="At device", orient="bottom", columns=4, symbolSize=300)
    made: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("seconds:Q", title="Created to delivered (s)"),
            y=alt.Y(
                "share:Q",
                title="Share of messages delivered",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%"),
            ),
            color=alt.Color(
                "device:N", sort=names, scale=alt.Scale(range=list(COLOURS)), legend=legend
            ),
            strokeDash=alt.StrokeDash("device:N", sort=names, legend=legend),
            tooltip=[
                alt.Tooltip("device:N", title="At device"),
                alt.Tooltip("seconds:Q", title="Within (s)", format=".3~f"),
                alt.Tooltip("share:Q", title="Delivered", format=".1%"),
            ],
        )
        .properties(width=WIDTH, height=260)
    )
    return made


def specification(chart: alt.Chart | alt.LayerChart) -> str:
    """The Vega-Lite specification as JSON that is safe inside a script element."""
    told = chart.to_dict()
    told.pop("$schema", None)  # a URL; nothing loads it, and nothing should seem to
    told["background"] = None
    told["autosize"] = {"type": "fit-x", "contains": "padding"}
    told["width"] = "container"
    return json.dumps(told, separators=(",", ":")).replace("</", "<\\/")


def picture(chart: alt.Chart | alt.LayerChart) -> str:
    """The chart as a still SVG: what shows without JavaScript and on paper."""
    told = chart.to_dict()
    told["background"] = None
    told["config"] = {**told.get("config", {}), "view": {"stroke": None}}
    drawn = vl_convert.vegalite_to_svg(told)
    # Sized by the page: the width and height attributes would overrule it on a phone.
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", drawn, count=1)


def bundle() -> str:
    """Vega, Vega-Lite and the embedder as one script, for a report without a network."""
    script: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # it is optional
    return script.replace("</script", "<\\/script")
