"""What stands on a device's page in the report: facts, what needs attention, records."""

from __future__ import annotations

from typing import Any

from drupelet_tools.telemetry.analysis.attention import NOTICE
from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.page.charts import spark
from drupelet_tools.telemetry.page.sections_fleet import attention_line, place_text
from drupelet_tools.telemetry.text.cells import (
    DASH,
    Cell,
    Cells,
    Row,
    between,
    delivered,
    moment,
    number,
    percent,
    significant,
    table,
    trend,
)
from drupelet_tools.telemetry.text.time_units import span

OPEN_MAX = 8  # pages that stand open; of a larger fleet they open when they are asked for
CAUSES_MAX = 20


def device_pages(found: Figures) -> dict[str, Any]:
    """Whether the pages stand open, and what is on each."""
    own: dict[str, list[Row]] = {}
    for line in found["attention"]:
        own.setdefault(line["device"], []).append(attention_line(line, {}))
    pages = [_page(row, own.get(row["device"], [])) for row in found["devices"]]
    return {"are_open": len(pages) <= OPEN_MAX, "pages": pages}


def _page(row: Row, lines: list[Row]) -> dict[str, Any]:
    counted = [(what, number(value)) for what, value in row["traffic"]["records"].items()]
    metrics = [(Cell(what, is_code=True), _metric(v)) for what, v in row["metrics"].items()]
    return {
        "id": row["device"],
        "name": str(row["label"]),
        # What a closed page says of itself; notices are on it.
        "worst": next((line for line in lines if line["severity"] != NOTICE), None),
        "lines": lines,
        "curve": spark(row["battery"]["mv_curve"]),
        "facts": table("Facts", ["Fact", "Value"], _facts(row), whole=True),
        "metrics": table("Under the names that Memfault uses", ["Metric", "Value"], metrics),
        "records": table("Frames and records", ["Kind", "Count"], counted) if counted else None,
    }


def _metric(value: float) -> str:
    return number(value) if float(value).is_integer() else significant(value)


def _facts(row: Row) -> list[Cells]:
    health, seen = row["health"], row["presence"]
    facts: list[Cells] = [
        ("Last sign (UTC)", moment(seen["last_wall_ms"])),
        *_power(row),
        ("Reset causes", _causes(health["reset_causes"])),
        ("Device id", Cell(row["device"], is_code=True)),
        ("Carrier", row["carriers"] or DASH),
        ("Board of the current table", row["board_label"] or "none"),
        ("Firmware", row["firmware"] or DASH),
        *_position(row),
        ("Time in the log (h)", significant(row["hours"])),
        ("First sign (UTC)", moment(seen["first_wall_ms"])),
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
    ]
    return facts + _trends(row) + _away(row)


def _position(row: Row) -> list[Cells]:
    position = row["position"]
    if position is None:
        return []
    return [("Position (WGS 84)", Cell(place_text(position), position=position))]


def _wait(wait: Row) -> str:
    low, high = (wait[f"p50_{end}_ms"] for end in ("low", "high"))
    if wait["p50_ms"] is None:
        return DASH
    ends = (DASH if ms is None else span(ms) for ms in (low, high))
    return f"{span(wait['p50_ms'])} ({' to '.join(ends)})"


def _power(row: Row) -> list[Cells]:
    facts: list[Cells] = []
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


def _trends(row: Row) -> list[Cells]:
    """Trends over the device's boots; those with too few boots are left out."""
    kinds = (
        ("mah_per_day", "Trend of charge per day, modelled (mAh/day per day)"),
        ("heap_low", "Trend of lowest free heap (B per day)"),
        ("bytes_per_day", "Trend of bytes per day (B/day per day)"),
    )
    return [(what, trend(row["trends"][name])) for name, what in kinds if row["trends"][name]]


def _away(row: Row) -> list[Cells]:
    facts: list[Cells] = []
    for at, away in enumerate(row["presence"]["outage_list"][:5], 1):
        told = f"{span(away['ms'])} from {moment(away['from_wall_ms'])}"
        facts.append((f"Away, {at}.", told))
    reasons = row["health"]["reasons"]
    if reasons:
        shown = "; ".join(reasons[:CAUSES_MAX])
        facts.append(("Quarantine", shown))
    return facts


def _causes(causes: list[int | None]) -> str:
    counts: dict[str, int] = {}
    for cause in causes:
        told = "not logged" if not cause else codes.RESET_CAUSES.get(cause, str(cause))
        counts[told] = counts.get(told, 0) + 1
    listed = [
        f"{cause} ({count} times)" if count > 1 else cause for cause, count in counts.items()
    ]
    return ", ".join(listed[:CAUSES_MAX])
