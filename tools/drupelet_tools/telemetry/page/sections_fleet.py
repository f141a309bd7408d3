"""What the page's first sections show: attention, the fleet now, batteries, cost, devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drupelet_tools.telemetry.analysis.attention import ALARM, SEVERITIES, WARNING
from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.analysis.statistics import median_interval
from drupelet_tools.telemetry.analysis.upgrades import (
    UPGRADE_HOURS_MIN,
    across_upgrades,
    costs_more,
)
from drupelet_tools.telemetry.analysis.weakest import WEAKEST_MAX, weakest
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.page import fleet_map
from drupelet_tools.telemetry.text.cells import (
    DASH,
    Cell,
    Cells,
    Row,
    Table,
    between,
    change,
    delivered,
    link,
    moment,
    number,
    percent,
    significant,
    table,
    time_in,
)
from drupelet_tools.telemetry.text.natural import natural
from drupelet_tools.telemetry.text.time_units import span, wait_unit

QUIET_MAX = 100  # in the table of a page
PLACES_MAX = 100
LINES_MAX = 3  # of one kind, before the rest is folded
DAY_MS = 86_400_000.0

Tile = tuple[str, str | Cell, str]  # what, how much, of which unit


def attention(all_figures: Figures) -> list[dict[str, Any]]:
    """Rows of one kind together; of many, the first some and the `rest`, which is folded."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in all_figures["attention"]:
        kinds.setdefault((row["severity"], row["kind"]), []).append(row)
    pages = {row["device"]: row.get("page", "") for row in all_figures["devices"]}
    return [
        {
            "severity": severity,
            "remedy": rows[0]["remedy"],
            "lines": lines[:shown],
            "rest": lines[shown:],
        }
        for (severity, _), rows in kinds.items()
        for lines in [[attention_line(row, pages) for row in rows]]
        for shown in [LINES_MAX if len(lines) > LINES_MAX + 1 else len(lines)]
    ]


def attention_line(row: Row, pages: Mapping[str, str]) -> dict[str, Any]:
    """A row as the page shows it; its device is a link where `pages` say in which file it is."""
    device = row["device"] if row["device"] in pages else ""
    since = "" if row["since_ms"] is None else moment(row["since_ms"])
    return {
        "device": Cell(str(row["label"]), device=device, page=pages.get(device, "")),
        "severity": row["severity"],
        "problem": row["problem"],
        "since": "" if since == DASH else since,
        "remedy": row["remedy"],
    }


def resets(device: Row) -> int:
    """Starts that nobody meant: by the watchdog, or of a cause that is not known."""
    causes = device["health"]["reset_causes"]
    unknown = sum((cause or 0) not in codes.RESET_CAUSES for cause in causes[1:])
    return int(causes.count(codes.RESET_WATCHDOG)) + unknown


def now_tiles(all_figures: Figures) -> list[Tile]:
    """The fleet at the end of the logs, or at the time that was given."""
    devices, now_ms = all_figures["devices"], all_figures["now_ms"]
    severities = [row["severity"] for row in all_figures["attention"]]
    heard = sum(_is_heard(row, now_ms) for row in devices)
    silent = sum(bool(row["presence"]["silent"]) for row in devices)
    waiting = undelivered(all_figures)
    started = sum(resets(row) for row in devices)
    # Of a large fleet only the first rows are kept, and all are counted.
    counts = all_figures.get("counts") or {name: severities.count(name) for name in SEVERITIES}
    alarms, warnings = counts[ALARM], counts[WARNING]
    weak = weakest(devices, 1)
    tiles: list[Tile] = [
        ("Alarms", Cell(number(alarms), is_warning=bool(alarms)), ""),
        ("Warnings", Cell(number(warnings), is_warning=bool(warnings)), ""),
        ("Heard in the last 24 h", f"{number(heard)} of {number(len(devices))}", "devices"),
        (
            "Silent",
            Cell(number(silent), is_warning=bool(silent)),
            "device" if silent == 1 else "devices",
        ),
        ("Undelivered", number(waiting), "message copies"),
        ("Resets by watchdog or unknown", number(started), ""),
    ]
    if weak:
        name = str(weak[0]["device"]["label"])
        cell = Cell(number(weak[0]["days"]), note=f"days: {name}")
        tiles.append((f"Weakest battery, {weak[0]['kind'].partition(', ')[2]}", cell, ""))
    return tiles


def places(all_figures: Figures) -> Table | None:
    """Where the devices with problems are, worst first; all of a fleet without any."""
    listed = fleet_map.placed(all_figures["devices"])
    bad = [row for row in listed if row["state"] != fleet_map.FINE]
    if not listed:
        return None
    rows = [
        (
            link(row["device"]),
            Cell(row["state"], is_warning=row["state"] != fleet_map.FINE),
            Cell(place_text(row["device"]["position"]), position=row["device"]["position"]),
            fleet_map.compass(row["east_km"], row["north_km"]),
        )
        for row in (bad or listed)[:PLACES_MAX]
    ]
    heads = ["Device", "<Worst problem", "<Position (WGS 84)", "From the middle of the fleet"]
    known = f"{number(len(listed))} of {number(len(all_figures['devices']))} have a known position"
    if len(listed) > fleet_map.DEVICES_MAX:
        known += f", of which the map shows the {number(fleet_map.DEVICES_MAX)} with the worst"
    caption = "Where devices with problems are" if bad else "Where devices are"
    return table(f"{caption}; {known}", heads, rows)


def place_text(position: tuple[float, float]) -> str:
    """Latitude and longitude; five decimals are a metre."""
    return f"{position[0]:.5f}, {position[1]:.5f}"


def undelivered(all_figures: Figures) -> int:
    """Copies of messages that did not come: as counted by who ran the devices, else by logs."""
    fleet = all_figures["fleet"]
    if fleet["expected"] is not None:
        return max(0, int(fleet["expected"]) - int(fleet["delivered"]))
    return sum(row["latency"]["undelivered"] for row in all_figures["devices"])


def _is_heard(device: Row, now_ms: float | None) -> bool:
    last = device["presence"]["last_wall_ms"]
    return last is not None and now_ms is not None and last >= now_ms - DAY_MS


def quiet_table(all_figures: Figures) -> Table | None:
    """The devices that are silent or were not heard in the last 24 h, the silent ones first."""
    now_ms = all_figures["now_ms"]
    rows = [
        row
        for row in all_figures["devices"]
        if row["presence"]["last_wall_ms"] is not None
        and (row["presence"]["silent"] or not _is_heard(row, now_ms))
    ]
    rows.sort(key=lambda row: (not row["presence"]["silent"], row["presence"]["last_wall_ms"]))
    caption = "Silent, or not heard in the last 24 h"
    if len(rows) > QUIET_MAX:
        caption += f"; {number(len(rows) - QUIET_MAX)} more are on their pages"
        rows = rows[:QUIET_MAX]
    heads = ["Device", "<Is it silent?", "Last heard (UTC)", "Not heard for",
             "Silent after", "Own schedule", "<Schedule from", "<Carrier"]  # fmt: skip
    cells = [(link(row), *_quiet(row["presence"]), row["carriers"] or DASH) for row in rows]
    return table(caption, heads, cells) if cells else None


def _quiet(presence: Row) -> Cells:
    is_silent = bool(presence["silent"])
    limit_ms = presence["silent_after_ms"]
    verdict: str | Cell = "not yet" if limit_ms else "its schedule is not known"
    return (
        Cell("silent", is_warning=True) if is_silent else verdict,
        moment(presence["last_wall_ms"]),
        Cell(_length(presence["silent_ms"]), is_warning=is_silent),
        _length(limit_ms),
        _length(presence["period_ms"]),
        presence["period_source"] or DASH,
    )


def _length(ms: float | None) -> str:
    return DASH if ms is None else span(ms)


def battery_tiles(all_figures: Figures) -> list[Tile]:
    """The fleet's batteries in three figures."""
    fleet = all_figures["fleet"]
    return _known([
        ("Shortest life of a full battery, modelled", number(fleet["shortest_life_days"]), "days"),
        ("Fall of charge, measured", significant(fleet["soc_pct_per_day"]), "%/day"),
        ("Charge, modelled", significant(fleet["mah_modelled"]), "mAh"),
    ])  # fmt: skip


def weakest_table(all_figures: Figures) -> Table | None:
    """The ten batteries that end first, whatever their figure is made of."""
    heads = ["Weakest batteries", "Days", "Interval (days)", "<What the days are",
             "Charge, measured (%)", "Last reading (V)", "Charge per day, modelled (mAh)",
             "Last heard (UTC)"]  # fmt: skip
    rows = [
        (
            link(row["device"]),
            number(row["days"]),
            between(row["low"], row["high"]),
            row["kind"],
            number(row["device"]["battery"]["soc_pct"], 1),
            _volts(row["device"]),
            significant(row["device"]["mah_per_day"]),
            moment(row["device"]["presence"]["last_wall_ms"]),
        )
        for row in weakest(all_figures["devices"], WEAKEST_MAX)
    ]
    caption = (
        "The ten that may be empty first; measured figures have 95 %, modelled 90 % intervals"
    )
    return table(caption, heads, rows) if rows else None


def _volts(device: Row) -> str:
    last = device["battery"]["mv_last"]
    return DASH if last is None else f"{last / 1000:.2f}"


def delivery_tiles(all_figures: Figures) -> list[Tile]:
    """How many messages came, and how quickly."""
    fleet = all_figures["fleet"]
    wait = fleet["latency"]
    unit, unit_ms = wait_unit(wait)
    both = f"{time_in(wait['p50_ms'], unit_ms)} / {time_in(wait['p90_ms'], unit_ms)}"
    expected = " / expected" if fleet["expected"] is not None else ""
    return _known([
        (f"Delivered{expected}", delivered(fleet), "with the authors' own"),
        ("Latency, median / 90 % within", both if wait["timed"] else DASH, unit),
        ("Undelivered", number(undelivered(all_figures)), "message copies"),
        ("Duplicates dropped", number(fleet["duplicates"]), ""),
    ])  # fmt: skip


def cost_tiles(all_figures: Figures) -> list[Tile]:
    """What a message costs the fleet for each member other than its author that it reached."""
    fleet = all_figures["fleet"]
    away = fleet["deliveries_away"]
    mah = fleet["mah_modelled"]
    per_message = None if mah is None or away <= 0 else mah / away
    return _known([
        ("Sent per delivery to another member", number(fleet["bytes_per_message"]), "B"),
        ("Charge per delivery to another member, modelled", significant(per_message), "mAh"),
        ("Charge per delivered kB", significant(fleet["mah_per_kb"]), "mAh"),
        ("Bytes sent per byte of messages", times(fleet["multiplier"]["bytes"]), ""),
    ])  # fmt: skip


def times(value: float | None) -> str:
    """A multiplier, or a dash."""
    return DASH if value is None else f"{value:,.2f}"


def _known(tiles: Iterable[Tile]) -> list[Tile]:
    return [tile for tile in tiles if tile[1] != DASH]


def cost_by_carrier(all_figures: Figures) -> Table:
    """Bytes and charge per delivered message of devices with the same carriers."""
    return _cost(
        all_figures["devices"],
        "Carriers",
        lambda row: row["carriers"] or "none known",
        "Cost of a delivered message, by the carriers that a device has",
    )


def cost_by_firmware(all_figures: Figures) -> Table | None:
    """The same by board and firmware version, each boot of a device where it belongs; None where
    no version is known."""
    parts = [
        {**run, "board": row["board"], "device": row["device"]}
        for row in all_figures["devices"]
        for run in row["firmware_runs"]
    ]
    if not any(part["firmware"] for part in parts):
        return None
    return _cost(
        parts,
        "Board and firmware",
        lambda row: f"{row['board'] or 'no board'} · {row['firmware'] or 'unknown version'}",
        "Cost of a delivered message, by board and firmware version",
    )


def upgrades(all_figures: Figures) -> Table | None:
    """What changed with a new firmware, each device against itself; None where none has one."""
    rows = [
        (f"{row['firmware_before']} → {row['firmware']}",
         *(_paired(row) if "what" in row else (DASH, "0", DASH, DASH, "too little log to tell")),
         number(row["too_short"]))
        for row in across_upgrades(all_figures["devices"])
    ]  # fmt: skip
    if not rows:
        return None
    heads = ["Firmware", "<Figure", "Devices compared", *_CHANGE_HEADS,
             f"With less than {UPGRADE_HOURS_MIN:g} h of one"]  # fmt: skip
    return table("What a device runs now against what it ran right before", heads, rows)


def _cost(costs: Sequence[Row], head: str, name: Callable[[Row], str], caption: str) -> Table:
    groups: dict[str, list[Row]] = {}
    for row in costs:
        groups.setdefault(name(row), []).append(row)
    heads = [head, "Devices", "Log (h)", "Delivered", "Bytes per message (B)",
             "Charge per message, modelled (mAh)", "Low to high (mAh)",
             "Charge per day, median (mAh)", "Its 95 % interval (mAh)", "Share of repeats",
             "Resets"]  # fmt: skip
    rows = [_cost_line(key, groups[key]) for key in sorted(groups, key=natural)]
    return table(caption, heads, rows)


def _cost_line(name: str, devices: Sequence[Row]) -> Cells:
    count = sum(row["delivered"] for row in devices)
    modelled = [row for row in devices if row["mah_modelled"] is not None]
    paid = sum(row["delivered"] for row in modelled)
    mah = [
        math.fsum(row[f"mah_modelled{end}"] for row in modelled) / paid if paid else None
        for end in ("", "_low", "_high")
    ]
    middle = median_interval([r["mah_per_day"] for r in devices if r["mah_per_day"] is not None])
    sent = sum(row["sync"]["sent"] for row in devices)
    repeats = sum(max(0, row["sync"]["sent"] - row["sync"]["pairs"]) for row in devices)
    ends = DASH
    if middle is not None and middle.low is not None:
        ends = f"{significant(middle.low)} to {significant(middle.high)}"
    return (
        name,
        number(len({row["device"] for row in devices})),
        significant(math.fsum(row["hours"] for row in devices)),
        number(count),
        number(sum(row["client_bytes"] for row in devices) / count if count else None),
        significant(mah[0]),
        DASH if mah[0] is None else f"{significant(mah[1])} to {significant(mah[2])}",
        significant(None if middle is None else middle.value),
        ends,
        percent(repeats / sent if sent else None),
        number(sum(resets(row) for row in devices)),
    )


def overview(all_figures: Figures) -> Table:
    """One line per device: last heard, battery, life, resets, then what it delivered and cost."""
    heads = ["Device", "Last heard (UTC)", "Battery (V)", "Charge, measured (%)",
             "Left, measured (days)", "Life when full, modelled (days)", "Resets", "Boots",
             "<Carrier", "<Board"]  # fmt: skip
    has_firmware = any(row["firmware"] for row in all_figures["devices"])
    heads += ["<Firmware"] if has_firmware else []
    is_counted = any(row["expected"] is not None for row in all_figures["devices"])
    heads += ["Delivered / expected" if is_counted else "Delivered", "Undelivered",
              "Bytes per message (B)", "Charge per day, modelled (mAh)"]  # fmt: skip
    rows = [
        [
            link(row),
            Cell(
                moment(row["presence"]["last_wall_ms"]),
                is_warning=bool(row["presence"]["silent"]),
            ),
            _volts(row),
            number(row["battery"]["soc_pct"], 1),
            number(row["battery"]["days_left"]),
            number(row["life"]["days"] if row["life"] else None),
            Cell(number(resets(row)), is_warning=resets(row) > 0),
            number(row["health"]["boots"]),
            row["carriers"] or DASH,
            row["board"] or DASH,
            *([row["firmware"] or DASH] if has_firmware else []),
            delivered(row),
            number(row["latency"]["undelivered"]),
            number(row["bytes_per_message"]),
            significant(row["mah_per_day"]),
        ]
        for row in all_figures["devices"]
    ]
    return table("One line per device", heads, rows)


def comparison(all_figures: Figures) -> dict[str, Any] | None:
    """The last days against those before: the fleet, each device with itself, the worst."""
    compared = all_figures.get("comparison")
    if compared is None:
        return None
    days = significant(compared["days"]).rstrip("0").rstrip(".")
    fleet = [
        (
            row["what"] + (f" ({row['unit']})" if row["unit"] else ""),
            *(significant(v) if row["unit"] else number(v) for v in (row["now"], row["before"])),
            _change(row["now"], row["before"]),
        )
        for row in compared["fleet"]
    ]
    paired = [_paired(row) for row in compared["paired"]]
    risen = [
        (
            link(row),
            significant(row["now"]),
            significant(row["before"]),
            change(row["share"]),
        )
        for row in compared["devices"]
    ]
    heads = ["Figure", f"Last {days} days", f"{days} days before", "Change"]
    return {
        "days": days,
        "hours": [number(count) for count in compared["hours"]],
        "boots": [number(count) for count in compared["boots"]]
        if any(compared["boots"])
        else None,
        "long_boots": compared["long_boots"],
        "fleet": table(f"The last {days} days against the {days} days before", heads, fleet),
        "paired": table(
            f"Each device against itself, the last {days} days against those before",
            ["Figure", "Devices in both", *_CHANGE_HEADS],
            paired,
        )
        if paired
        else None,
        "risen": table(
            "The devices whose charge per day rose most",
            ["Device", "Now (mAh/day)", "Before (mAh/day)", "Change"],
            risen,
        )
        if risen
        else None,
    }


_CHANGE_HEADS = ("Median change", "95 % interval", "<Costs more now?")


def _paired(row: Row) -> Cells:
    return (
        row["what"].capitalize(),
        number(row["devices"]),
        change(row["share"]),
        DASH if row["low"] is None else f"{change(row['low'])} to {change(row['high'])}",
        _verdict(row),
    )


def _change(now: float | None, before: float | None) -> str:
    return DASH if now is None or not before else change(now / before - 1)


def _verdict(row: Row) -> str | Cell:
    if row["low"] is None:
        return "too few devices to tell"
    more = costs_more(row)
    if more is None:
        return "not told apart from before"
    return Cell("yes", is_warning=True) if more else "no, less"
