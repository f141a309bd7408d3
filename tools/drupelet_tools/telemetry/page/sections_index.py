"""What the index of a large fleet shows: the fleet as a whole, and the pages of its devices."""

from __future__ import annotations

from statistics import median
from typing import Any

from drupelet_tools.telemetry.analysis.attention import ALARM, NOTICE, WARNING
from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.page import sections_fleet
from drupelet_tools.telemetry.page.sections import carriers, subtitle
from drupelet_tools.telemetry.text.cells import Cell, Table, number, table


def content(all_figures: Figures) -> dict[str, Any]:
    """Everything that the index shows beside the charts, by the names of its template."""
    devices = all_figures["devices"]
    waits = [row["latency"] for row in devices if row["latency"]["p50_ms"] is not None]
    p90s = [wait["p90_ms"] for wait in waits if wait["p90_ms"] is not None]
    fleet = {
        **all_figures["fleet"],
        "multiplier": {"bytes": None},
        "latency": {
            "p50_ms": median([wait["p50_ms"] for wait in waits]) if waits else None,
            "p90_ms": median(p90s) if p90s else None,
            "timed": sum(wait["timed"] for wait in waits),
        },
    }
    shown = {**all_figures, "fleet": fleet}
    return {
        "subtitle": subtitle(shown),
        "attention": sections_fleet.attention(shown),
        "left_out": _left_out(all_figures),
        "now_tiles": sections_fleet.now_tiles(shown),
        "quiet": sections_fleet.quiet_table(shown),
        "places": sections_fleet.places(shown),
        "battery_tiles": sections_fleet.battery_tiles(shown),
        "weakest": sections_fleet.weakest_table(shown),
        "delivery_tiles": sections_fleet.delivery_tiles(shown),
        "cost_tiles": sections_fleet.cost_tiles(shown),
        "cost_by_carrier": sections_fleet.cost_by_carrier(shown),
        "cost_by_firmware": sections_fleet.cost_by_firmware(shown),
        "upgrades": sections_fleet.upgrades(shown),
        "carriers": carriers(shown),
        "pages": _pages(all_figures),
    }


def _left_out(all_figures: Figures) -> str:
    more = sum(all_figures["counts"].values()) - len(all_figures["attention"])
    return number(more) if more > 0 else ""


def _pages(all_figures: Figures) -> Table:
    heads = ["Page", "Devices", "Alarms", "Warnings", "Notices", "Silent"]
    rows = [
        (
            Cell(f"{row['first']} to {row['last']}", page=row["page"]),
            number(row["devices"]),
            Cell(number(row[ALARM]), is_warning=bool(row[ALARM])),
            Cell(number(row[WARNING]), is_warning=bool(row[WARNING])),
            number(row[NOTICE]),
            number(row["silent"]),
        )
        for row in all_figures["pages"]
    ]
    return table("Pages of the devices, in order of name", heads, rows)
