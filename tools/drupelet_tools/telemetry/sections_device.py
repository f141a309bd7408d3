"""A page per device inside the report: its facts, what needs attention, its records."""

from __future__ import annotations

from html import escape

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.analyses import span
from drupelet_tools.telemetry.charts import spark
from drupelet_tools.telemetry.figures import Figures
from drupelet_tools.telemetry.sections_html import (
    DASH,
    Row,
    between,
    delivered,
    moment,
    name,
    number,
    percent,
    significant,
    table,
    trend,
)

OPEN_MAX = 8  # pages that stand open; of a larger fleet they open when they are asked for
CAUSES_MAX = 20


def devices(found: Figures) -> str:
    """All device pages."""
    own: dict[str, list[Row]] = {}
    for line in found["attention"]:
        own.setdefault(line["device"], []).append(line)
    is_open = len(found["devices"]) <= OPEN_MAX
    pages = [_device(row, own.get(row["device"], []), is_open) for row in found["devices"]]
    find = ""
    if not is_open:
        find = (
            '<p class="find"><label>Find a device <input type="search" id="find" '
            'autocomplete="off"></label></p>'
        )
    return f'<h2>Devices</h2>{find}<div id="devices">{"".join(pages)}</div>'


def _device(row: Row, lines: list[Row], is_open: bool) -> str:
    counted = [(escape(what), number(value)) for what, value in row["traffic"]["records"].items()]
    items = "".join(
        f'<li class="level{line["level"]}">{escape(line["what"])}</li>' for line in lines
    )
    told = f'<ul class="attention">{items}</ul>' if items else ""
    curve = spark(row["battery"]["mv_curve"], "Battery voltage over time")
    metrics = [(f"<code>{escape(what)}</code>", _metric(v)) for what, v in row["metrics"].items()]
    return (
        f'<details id="device-{escape(row["device"])}"{" open" if is_open else ""}>'
        f"<summary>{name(row)}</summary>"
        f'{told}{curve}<div class="pair">'
        f"{table('Facts', ['Fact', 'Value'], _facts(row), whole=True)}<div>"
        f"{table('Under the names that Memfault uses', ['Metric', 'Value'], metrics)}"
        f"{table('Frames and records', ['Kind', 'Count'], counted) if counted else ''}"
        "</div></div></details>"
    )


def _metric(value: float) -> str:
    return number(value) if float(value).is_integer() else significant(value)


def _facts(row: Row) -> list[tuple[str, str]]:
    health, seen = row["health"], row["presence"]
    facts = [
        ("Device id", f"<code>{escape(row['device'])}</code>"),
        ("Carrier", escape(row["carriers"]) or DASH),
        ("Board of the current table", escape(row["board_label"] or "none")),
        ("Time in the log (h)", significant(row["hours"])),
        ("First sign (UTC)", moment(seen["first_wall_ms"])),
        ("Last sign (UTC)", moment(seen["last_wall_ms"])),
        ("Created here", number(row["created"])),
        ("Delivered / expected", delivered(row)),
        ("Out of order", number(row["out_of_order"])),
        ("Client bytes, both directions (B)", number(row["client_bytes"])),
        ("Telemetry bytes, both directions (B)", number(row["telemetry_bytes"])),
        ("Charge, modelled (mAh)", f"{significant(row['mah_modelled'])}"),
        ("Latency p50, 95 % interval", _wait(row["latency"])),
        ("Segments missing", number(health["segments_missing"])),
        ("Segments missing, share", percent(row["integrity"]["missing_share"], 2)),
        ("Flash programs", number(health["flash_programs"])),
        ("Flash erases", number(health["flash_erases"])),
        ("Reset causes", _causes(health["reset_causes"])),
    ]
    return facts + _power(row) + _trends(row) + _away(row)


def _wait(wait: Row) -> str:
    low, high = (wait[f"p50_{end}_ms"] for end in ("low", "high"))
    if wait["p50_ms"] is None:
        return DASH
    ends = (DASH if ms is None else span(ms) for ms in (low, high))
    return f"{span(wait['p50_ms'])} ({' to '.join(ends)})"


def _power(row: Row) -> list[tuple[str, str]]:
    facts = []
    life, battery = row["life"], row["battery"]
    if life is not None:
        told = f"{number(life['days'])} ({between(life['days_low'], life['days_high'])})"
        facts.append(("Life of a full battery, modelled (days)", told))
    if battery["readings"]:
        low = row["health"]["battery_low_mv"]
        facts.append(
            ("Battery, lowest (mV)", number(low if low is not None else battery["mv_low"]))
        )
        facts.append(("Battery trend, measured (mV/day)", trend(battery["mv_trend"])))
    if battery["days_left"] is not None:
        told = between(battery["days_left_low"], battery["days_left_high"])
        facts.append(("Days left, measured", f"{number(battery['days_left'])} ({told})"))
    return facts


def _trends(row: Row) -> list[tuple[str, str]]:
    """Trends over the device's boots; those with too few boots are left out."""
    kinds = (
        ("mah_per_day", "Trend of charge per day, modelled (mAh/day per day)"),
        ("heap_low", "Trend of lowest free heap (B per day)"),
        ("bytes_per_day", "Trend of bytes per day (B/day per day)"),
    )
    return [(what, trend(row["trends"][name])) for name, what in kinds if row["trends"][name]]


def _away(row: Row) -> list[tuple[str, str]]:
    facts = []
    for at, away in enumerate(row["presence"]["outage_list"][:5], 1):
        told = f"{span(away['ms'])} from {moment(away['from_wall_ms'])}"
        facts.append((f"Away, {at}.", told))
    reasons = row["health"]["reasons"]
    if reasons:
        shown = "; ".join(reasons[:CAUSES_MAX])
        facts.append(("Quarantine", escape(shown)))
    return facts


def _causes(causes: list[int | None]) -> str:
    counts: dict[str, int] = {}
    for cause in causes:
        told = "not logged" if not cause else codes.RESET_CAUSES.get(cause, str(cause))
        counts[told] = counts.get(told, 0) + 1
    listed = [
        f"{cause} ({count} times)" if count > 1 else cause for cause, count in counts.items()
    ]
    return escape(", ".join(listed[:CAUSES_MAX]))
