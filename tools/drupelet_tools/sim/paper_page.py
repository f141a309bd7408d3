"""The paper's answers as one self-contained page: a table, and pictures of both questions."""

from collections.abc import Sequence
from html import escape
from typing import Any

import altair as alt

from drupelet_tools.sim.paper import NAMES, Answer, as_dict

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;"
    "color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%}"
    "td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ccc}"
    "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}svg{max-width:100%;height:auto}"
    ".wide{overflow-x:auto}code{background:#eee;padding:0 .3em}"
)
_COLUMNS = (
    ("protocol", "protocol"), ("window_s", "window s"), ("seeds", "seeds"),
    ("delivered", "delivered at all"),
    ("copies", "messages sent per delivery"),
    ("multiplier_records", "records sent per delivery"),
    ("multiplier_bytes", "bytes sent per byte delivered"), ("multiplier_bytes_interval", "±"),
    ("latency_median_h", "median h"), ("latency_p90_h", "P90 h"), ("latency_p90_interval_h", "±"),
)  # fmt: skip


def page(rows: Sequence[Answer], command: str) -> str:
    """The page; `command` is what made it."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>The paper's simulations</title><style>{_STYLE}</style>"
        "<h1>The seven simulations of the mobile paper</h1>"
        "<p>Everybody is online 10 % of the time; messages of 100 bytes; ticks of 30 seconds. "
        "What is not delivered at all has no latency. "
        f"± is half of a 95 % interval of the mean. Made by <code>{escape(command)}</code>.</p>"
    ]
    for simulation, name in NAMES.items():
        mine = [row for row in rows if row.simulation == simulation]
        if mine:
            parts.append(f"<h2>{simulation}. {escape(name)}, {mine[0].people} people</h2>")
            parts.append(_table(mine))
            parts.append(_picture(mine, "multiplier_bytes", "bytes sent per byte delivered"))
            parts.append(_picture(mine, "multiplier_records", "records sent per delivery"))
            parts.append(_picture(mine, "latency_median_h", "median of latency, hours"))
            parts.append(_picture(mine, "latency_p90_h", "P90 of latency, hours"))
            if any(row.delivered < 1 for row in mine):
                parts.append(_picture(mine, "delivered", "delivered at all, share"))
    return "\n".join(parts)


def _table(rows: Sequence[Answer]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for _, title in _COLUMNS)
    lines = []
    for row in rows:
        values = as_dict(row)
        shown = ("-" if values[name] is None else str(values[name]) for name, _ in _COLUMNS)
        cells = "".join(f"<td>{escape(text)}</td>" for text in shown)
        lines.append(f"<tr>{cells}</tr>")
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _picture(rows: Sequence[Answer], column: str, title: str) -> str:
    # Spark's report draws with the same hands.
    from drupelet_tools.telemetry.page.charts import COLOURS, picture

    data: list[dict[str, Any]] = [as_dict(row) for row in rows]
    chart = (
        alt.Chart({"values": data}, width=560)
        .mark_bar(color=COLOURS[0])
        .encode(
            x=alt.X(f"{column}:Q", title=title),
            y=alt.Y("protocol:N", title=None, sort=None),
            row=alt.Row("window_s:O", title="window, seconds"),
        )
    )
    return picture(chart)
