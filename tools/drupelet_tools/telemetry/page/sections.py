"""What stands in the sections of the report: every figure in a plain table with its unit.

The template page/report.html has the headings and notes around it.
"""

from __future__ import annotations

from typing import Any

from drupelet_host.base.output import counted
from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.analysis.sync_cost import BYTE_KINDS
from drupelet_tools.telemetry.page import sections_energy, sections_fleet
from drupelet_tools.telemetry.page.sections_device import device_pages
from drupelet_tools.telemetry.page.sections_fleet import times
from drupelet_tools.telemetry.text.cells import (
    DASH,
    Cell,
    Cells,
    Row,
    Table,
    delivered,
    link,
    moment,
    number,
    percent,
    seconds,
    significant,
    table,
    time_in,
)
from drupelet_tools.telemetry.text.time_units import span, wait_unit

GROUPS_MAX = 100  # in the page's table
MEMBERS_MAX = 8  # that are named in it


def subtitle(all_figures: Figures) -> str:
    """One line under the title."""
    fleet = all_figures["fleet"]
    return (
        f"{counted(fleet['devices'], 'device')} · {number(fleet['delivered'])} deliveries · "
        "from the devices' own logs"
        + (
            f" as of {moment(all_figures['now_ms'])} UTC"
            if all_figures["now_ms"] is not None
            else ""
        )
    )


def content(all_figures: Figures) -> dict[str, Any]:
    """Everything that the template shows beside the charts, by the names that it uses."""
    return {
        "subtitle": subtitle(all_figures),
        "attention": sections_fleet.attention(all_figures),
        "now_tiles": sections_fleet.now_tiles(all_figures),
        "quiet": sections_fleet.quiet_table(all_figures),
        "places": sections_fleet.places(all_figures),
        "battery_tiles": sections_fleet.battery_tiles(all_figures),
        "weakest": sections_fleet.weakest_table(all_figures),
        "delivery_tiles": sections_fleet.delivery_tiles(all_figures),
        "cost_tiles": sections_fleet.cost_tiles(all_figures),
        "cost_by_carrier": sections_fleet.cost_by_carrier(all_figures),
        "cost_by_firmware": sections_fleet.cost_by_firmware(all_figures),
        "upgrades": sections_fleet.upgrades(all_figures),
        "comparison": sections_fleet.comparison(all_figures),
        "overview": sections_fleet.overview(all_figures),
        "summary": _summary(all_figures),
        "groups": _groups(all_figures),
        "groups_left_out": max(0, len(all_figures["fleet"]["groups"]) - GROUPS_MAX),
        "life": sections_energy.life(all_figures),
        "carriers": carriers(all_figures),
        "bytes": _bytes(all_figures),
        "charge": sections_energy.charge(all_figures),
        "latency": _latency(all_figures),
        "sampled": all_figures["fleet"]["latency"]["every"],
        "sends": _sends(all_figures),
        "repeats": _repeats(all_figures),
        "presence": _presence(all_figures),
        "trends": _trends(all_figures),
        "outliers": _outliers(all_figures),
        "health": _health(all_figures),
        "devices": device_pages(all_figures),
    }


def _summary(all_figures: Figures) -> Table:
    unit, unit_ms = wait_unit(all_figures["fleet"]["latency"])
    heads = ["Device", "<Carrier", "Delivered / expected", "Duplicates dropped",
             "Bytes per message (B)", "Overhead per message (B)", "Multiplier by records",
             "Multiplier by bytes", "Charge, modelled (mAh)", "Charge per day, modelled (mAh)",
             "Charge per delivered kB (mAh)", f"Latency p50 ({unit})",
             f"Latency p90 ({unit})"]  # fmt: skip
    rows = [
        (
            link(row),
            row["carriers"] or DASH,
            delivered(row),
            number(row["duplicates"]),
            number(row["bytes_per_message"]),
            number(row["overhead_per_message"]),
            times(row["multiplier"]["records"]),
            times(row["multiplier"]["bytes"]),
            significant(row["mah_modelled"]),
            significant(row["mah_per_day"]),
            significant(row["mah_per_kb"]),
            time_in(row["latency"]["p50_ms"], unit_ms),
            time_in(row["latency"]["p90_ms"], unit_ms),
        )
        for row in all_figures["devices"]
    ]
    return table("Figures of each device", heads, rows)


def carriers(all_figures: Figures) -> Table | None:
    """What the fleet sent over each carrier."""
    rows = [
        (
            row["carrier"],
            number(row["bytes"]),
            number(row["content"]),
            number(row["telemetry"]),
            times(row["multiplier_bytes"]),
        )
        for row in all_figures["fleet"]["carriers"]
    ]
    heads = ["Carrier", "Sent (B)", "Of it messages (B)", "Of it telemetry (B)", "Multiplier"]
    return table("Sent by the fleet, per carrier", heads, rows) if rows else None


def _bytes(all_figures: Figures) -> Table:
    lines = [(d, line) for d in all_figures["devices"] for line in d["traffic"]["lines"]]
    kinds = [kind for kind in BYTE_KINDS if any(line.get(kind) for _, line in lines)]
    heads = ["Device", "<Carrier", "<Direction", "Link total (B)"]
    heads += [f"{kind.capitalize()} (B)" for kind in kinds]
    rows = [
        (
            link(device),
            line["carrier"],
            line["direction"],
            number(line["bytes"]),
            *(number(line.get(kind, 0)) for kind in kinds),
        )
        for device, line in lines
    ]
    return table("Highest counters per boot, summed over boots", heads, rows)


def _latency(all_figures: Figures) -> Table:
    whole = all_figures["fleet"]["latency"]
    unit, unit_ms = wait_unit(whole)
    heads = ["At device", "Messages of others", "Delivered, timed", "No delivery on record",
             "No clock", f"p50 ({unit})", f"p90 ({unit})", f"p99 ({unit})", "p50 (epochs)",
             "p90 (epochs)", "Uncertainty (± s)"]  # fmt: skip

    def cells(first: str | Cell, wait: Row) -> Cells:
        spread = wait["uncertainty_ms"]
        return (
            first,
            number(wait["messages"]),
            number(wait["timed"]),
            number(wait["undelivered"]),
            number(wait["no_clock"]),
            *(time_in(wait[f"{name}_ms"], unit_ms) for name in ("p50", "p90", "p99")),
            *(number(wait[f"{name}_epochs"], 1) for name in ("p50", "p90")),
            seconds(spread) if spread is not None else "unknown",
        )

    rows = [cells(link(row), row["latency"]) for row in all_figures["devices"]]
    return table("Per receiving device", heads, rows, cells("All", whole))


def _sends(all_figures: Figures) -> Table | None:
    """How many sends messages took; None where none was sent."""
    sends = all_figures["fleet"]["sync"]["sends"]
    heads = ["Sends", "Messages, each once per receiver", "Share"]
    whole = sum(sends)
    last = len(sends)
    rows = [
        (str(at) if at < last else f"{last} or more", number(count), percent(count / whole))
        for at, count in enumerate(sends, 1)
        if whole
    ]
    return table("Sends that a message took to a receiver", heads, rows) if rows else None


def _repeats(all_figures: Figures) -> Table:
    heads = ["Device", "Sends", "Of it repeats", "Share of repeats", "Of it back-off begun anew",
             "Acknowledged to it", "Offers", "Of it back-off begun anew", "Requests",
             "Duplicates that came", "Share of duplicates"]  # fmt: skip
    rows = [
        (
            link(row),
            number(row["sync"]["sent"]),
            number(max(0, row["sync"]["sent"] - row["sync"]["pairs"])),
            percent(row["retransmit_share"]),
            number(row["sync"]["resets"]),
            number(row["sync"]["acked"]),
            number(row["sync"]["offered"]),
            number(row["sync"]["offer_resets"]),
            number(row["sync"]["requested"]),
            number(row["duplicates"]),
            percent(row["duplicate_share"]),
        )
        for row in all_figures["devices"]
    ]
    return table("Per device, of single messages", heads, rows)


def _groups(all_figures: Figures) -> Table | None:
    """What each group cost; the largest, where there are many."""
    listed = all_figures["fleet"]["groups"]
    if not listed:
        return None
    names = {row["device"]: row["label"] for row in all_figures["devices"]}
    heads = ["<Group", "<Members", "Messages", "Deliveries", "Sends", "Acknowledgements", "Offers",
             "Requests", "Sent (B)", "Multiplier by records", "Multiplier by bytes"]  # fmt: skip
    rows = [
        (
            Cell(f"{row['group']}…", is_code=True) if row["group"] else "by deliveries",
            _members([names.get(device, device) for device in row["devices"]]),
            number(row["messages"]),
            number(row["deliveries"]),
            *(number(row[event]) for event in ("sent", "acked", "offered", "requested")),
            ("≈ " if row["shared"] else "") + number(row["bytes"]),
            times(row["multiplier_records"]),
            ("≈ " if row["shared"] else "") + times(row["multiplier_bytes"]),
        )
        for row in listed[:GROUPS_MAX]
    ]
    return table("Per group", heads, rows)


def _members(names: list[str]) -> str:
    shown = ", ".join(str(name) for name in names[:MEMBERS_MAX])
    more = len(names) - MEMBERS_MAX
    return f"{shown} and {number(more)} more" if more > 0 else shown


def _presence(all_figures: Figures) -> Table:
    heads = ["Device", "First sign", "Last sign", "Own schedule", "<Told by", "Quiet for",
             "Away, times", "Away, share of its time", "Longest away",
             "<Longest began"]  # fmt: skip
    rows: list[Cells] = []
    for row in all_figures["devices"]:
        seen = row["presence"]
        longest = seen["outage_list"][0] if seen["outage_list"] else None
        quiet = DASH if seen["silent_ms"] is None else span(seen["silent_ms"])
        rows.append(
            (
                link(row),
                moment(seen["first_wall_ms"]),
                moment(seen["last_wall_ms"]),
                DASH if not seen["period_ms"] else span(seen["period_ms"]),
                seen["period_source"] or DASH,
                Cell(quiet, is_warning=bool(seen["silent"])),
                number(seen["outages"]),
                percent(seen["out_share"]),
                span(longest["ms"]) if longest else DASH,
                moment(longest["from_wall_ms"]) if longest else DASH,
            )
        )
    return table("Times are UTC", heads, rows)


def _trends(all_figures: Figures) -> Table | None:
    heads = ["Trend", "Median slope", "Low", "High", "<Unit", "Devices", "Of them with a trend"]
    rows = [
        (
            row["what"],
            significant_signed(row["slope"]),
            significant_signed(row["low"]),
            significant_signed(row["high"]),
            row["unit"],
            number(row["devices"]),
            number(row["found"]),
        )
        for row in all_figures["trends"]
    ]
    caption = "Median of the devices' slopes, with its 95 % interval"
    return table(caption, heads, rows) if rows else None


def _outliers(all_figures: Figures) -> Table | None:
    heads = ["Device", "<Figure", "Value", "Median of the fleet", "Robust z"]
    rows = [
        (
            link(row),
            row["what"],
            significant(row["value"]),
            significant(row["median"]),
            f"{row['z']:+.1f}",
        )
        for row in all_figures["outliers"]
    ]
    caption = "More than 3.5 robust deviations from the fleet's median"
    return table(caption, heads, rows) if rows else None


def significant_signed(value: float | None) -> str:
    """Three significant digits with a sign, or a dash."""
    if value is None:
        return DASH
    return significant(value) if value < 0 or value == 0 else f"+{significant(value)}"


def _health(all_figures: Figures) -> Table:
    heads = ["Device", "Boots", "Heap limit (B)", "Heap free, lowest (B)", "Log segments",
             "Segments missing", "Missing share", "Came again", "Blocks lost", "Events refused",
             "Places in quarantine", "Clock jumps", "Clock known within (± s)",
             "Retransmissions", "Messages refused", "Damaged frames", "Errors"]  # fmt: skip
    rows = [
        (
            link(row),
            number(health["boots"]),
            number(health["heap_limit"]),
            number(health["heap_low"]),
            number(health["segments"]),
            number(health["segments_missing"]),
            percent(row["integrity"]["missing_share"], 2),
            number(row["integrity"]["repeats"]),
            number(health["blocks_lost"]),
            number(health["events_lost"]),
            number(health["quarantined"]),
            number(row["integrity"]["clock_jumps"]),
            seconds(health["clock_uncertainty_ms"]),
            number(health["retransmits"]),
            number(health["refused"]),
            number(health["damaged_frames"]),
            number(health["errors"]),
        )
        for row in all_figures["devices"]
        for health in [row["health"]]
    ]
    return table("Totals over all boots", heads, rows)
