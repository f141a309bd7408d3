"""Battery life and charge in the report; what is modelled and what was measured stay apart."""

from __future__ import annotations

from html import escape

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.figures import Figures
from drupelet_tools.telemetry.sections_html import (
    DASH,
    Row,
    between,
    figure,
    link,
    name,
    number,
    percent,
    significant,
    table,
    trend,
)

MODELLED = """\
<p class="note"><b>Modelled, not measured</b>: time in each power state times the current that a
table gives for one real board. Low and high are the ends of the table's spread.</p>"""

LIVES = """\
<p class="note"><b>Modelled life</b> is that of a full battery at the use on record; value and
interval are the middle and 90 % of 2,000 draws from the spreads of the board's and the battery's
figures. <b>Measured
life</b> is the fall of the battery's own readings, drawn out from full to empty. They agree where
their intervals meet.</p>"""


def life(all_figures: Figures, pictures: dict[str, str]) -> str:
    """Battery life per device: modelled and measured in columns of their own."""
    heads = ["Device", "<Battery", "Modelled (days)", "Modelled, 90 % interval (days)",
             "Modelled (mAh/day)", "Modelled, 90 % interval (mAh/day)", "Lost by itself, modelled",
             "Measured (days)", "Measured, 95 % interval (days)", "Left, measured (days)",
             "Charge, measured (%)", "<Agree"]  # fmt: skip
    rows = [
        _life_line(row)
        for row in all_figures["devices"]
        if row["life"] is not None or row["battery"]["readings"]
    ]
    chart = figure("life", pictures.get("life", ""), "Battery life of each device with intervals")
    volts = figure("volts", pictures.get("volts", ""), "Battery voltage over time")
    parts = [f"<h2>Battery life</h2>{chart}"]
    if not rows:
        parts.append(
            '<p class="note">No device has a table of currents for its board and a battery, '
            "and none logged its battery.</p>"
        )
        return "".join(parts)
    parts.append(table("Life from full to empty", heads, rows))
    parts.append(LIVES)
    parts += [_battery(battery) for battery in all_figures["batteries"]]
    if any(row["battery"]["readings"] for row in all_figures["devices"]):
        parts.append(volts + _voltages(all_figures))
    return "".join(parts)


def _life_line(row: Row) -> tuple[str, ...]:
    lifetime, battery, both = row["life"], row["battery"], row["comparison"]
    agree = DASH if both is None else "yes" if both["agree"] else '<span class="warn">no</span>'
    if lifetime is None:
        modelled: tuple[str, ...] = (DASH,) * 6
    else:
        modelled = (
            escape(lifetime["battery"]),
            number(lifetime["days"]),
            between(lifetime["days_low"], lifetime["days_high"]),
            significant(lifetime["mah_per_day"]),
            " to ".join(significant(lifetime[f"mah_per_day_{end}"]) for end in ("low", "high")),
            percent(lifetime["self_discharge_share"], 0),
        )
    return (
        link(row),
        *modelled,
        number(battery["life_days"]),
        between(battery["life_days_low"], battery["life_days_high"]),
        number(battery["days_left"]),
        number(battery["soc_pct"], 1),
        agree,
    )


def _battery(battery: Row) -> str:
    assumed = ""
    if battery["assumed"]:
        assumed = (
            " <b>Assumed:</b> nobody told which battery these devices have; name it with"
            " --battery or in a fleet file."
        )
    stand_ins = [
        what
        for what in ("capacity_mah", "usable", "self_discharge_year", "protection_ma")
        if battery[what]["unknown"]
    ]
    stand_ins += [
        what for what in ("by_load", "by_temperature") if battery[what]["spread"]["unknown"]
    ]
    told = (
        f"Battery: {battery['label']}, table {battery['version']}."
        f" Sources: {battery['source']}. Stand-ins of ours:"
        f" {', '.join(what.replace('_', ' ') for what in stand_ins) or 'none'}."
    )
    return f'<p class="note">{escape(told)}{assumed}</p>'


def _voltages(all_figures: Figures) -> str:
    heads = ["Device", "Readings", "First (mV)", "Last (mV)", "Lowest (mV)",
             "One reading's error (mV)", "Trend as read (mV/day)", "With warmth (mV per °C)",
             "Trend at one temperature (mV/day)"]  # fmt: skip
    rows = [
        (
            link(row),
            number(told["readings"]),
            number(told["mv_first"]),
            number(told["mv_last"]),
            number(told["mv_low"]),
            number(told["mv_noise"], 1),
            trend(told["mv_trend_raw"]),
            number(told["mv_per_c"], 2),
            trend(told["mv_trend"] if told["mv_per_c"] is not None else None),
        )
        for row in all_figures["devices"]
        for told in [row["battery"]]
        if told["readings"]
    ]
    return table("Battery voltage, measured", heads, rows) + (
        '<p class="note">Trends are medians of the slopes between all pairs of days, with 95 % '
        "intervals widened for days that hang together (Theil and Sen). What warmth does to a "
        "cell is taken from within the days.</p>"
    )


def charge(all_figures: Figures, pictures: dict[str, str]) -> str:
    """Charge by power state and by what it was spent on."""
    modelled = [row for row in all_figures["devices"] if row["mah_modelled"] is not None]
    without = [name(row) for row in all_figures["devices"] if row["mah_modelled"] is None]
    chart = figure(
        "charge",
        pictures.get("charge", ""),
        "Modelled charge of each device by power state, in mAh",
    )
    parts = [f"<h2>Charge by power state</h2>{MODELLED}{chart}"]
    if modelled:
        parts.append(_charge_table(modelled))
        parts.append(_spent(all_figures, modelled, pictures.get("spent", "")))
    parts += [_currents(board) for board in all_figures["tables"]]
    if without:
        named = ", ".join(without)
        parts.append(f'<p class="note">No current table, so no charge, for: {named}.</p>')
    return "".join(parts)


def _charge_table(devices: list[Row]) -> str:
    """Charge with the time below it, a column per state that occurs."""
    names = {row["state"]: row["name"] for device in devices for row in device["charge"]}
    states = sorted(names, key=lambda state: (state < 0, state))
    heads = ["Device", "Total (mAh)", "Low (mAh)", "High (mAh)"]
    heads += [f"{names[state].capitalize()} (mAh, {_unit(state)})" for state in states]
    rows = []
    for device in devices:
        own = {row["state"]: row for row in device["charge"]}
        cells = [_charge_cell(own.get(state), state) for state in states]
        totals = (device[f"mah_modelled{end}"] for end in ("", "_low", "_high"))
        rows.append([link(device), *(significant(value) for value in totals), *cells])
    return table("Modelled charge, and time in the state", heads, rows)


def _unit(state: int) -> str:
    return "s" if state <= len(codes.STATES) else "times"


def _charge_cell(row: Row | None, state: int) -> str:
    if row is None:
        return DASH
    count = number(row["ms"] / 1000, 1, " s") if _unit(state) == "s" else number(row["count"])
    return f"{significant(row['mah']) if state >= 0 else DASH}<br><small>{count}</small>"


def _spent(all_figures: Figures, devices: list[Row], picture: str) -> str:
    whole = all_figures["fleet"]["spent"]
    names = list(whole)
    heads = ["Device", *(f"{what.capitalize()} (mAh)" for what in names), "Moved (kB)",
             "Charge per kB (mAh)"]  # fmt: skip
    rows = [
        (
            link(row),
            *(significant(row["spent"].get(what)) for what in names),
            number(row["moved_kb"], 1),
            significant(row["mah_per_kb"]),
        )
        for row in devices
    ]
    fleet = all_figures["fleet"]
    total = (
        "Fleet",
        *(significant(whole[what]) for what in names),
        number(fleet["delivered_kb"], 1),
        significant(fleet["mah_per_kb"]),
    )
    chart = figure("spent", picture, "What the fleet's charge was spent on, in mAh")
    return (
        f"<h3>What it was spent on</h3>{chart}"
        f"{table('Modelled charge by operation', heads, rows, total)}"
        '<p class="note">Sending and receiving are shared out by the bytes of each kind of '
        "record; receiving without a byte is listening. Retransmission is the share of repeated "
        "sends. A device's kB are content that crossed its links once; the fleet's are content "
        "delivered at members other than the author.</p>"
    )


def _currents(board: Row) -> str:
    """The current table of a board, with the source of each figure."""
    heads = ["Power state", "<Carrier", "Current (mA)", "Low (mA)", "High (mA)", "<Source"]
    rows = [
        (
            escape(codes.STATES[int(state)]),
            escape(", ".join(row["carriers"])) or "any",
            significant(row["typical_ma"]),
            significant(row["low_ma"]),
            significant(row["high_ma"]),
            ('<span class="warn">stand-in</span> ' if row["unknown"] else "")
            + escape(row["source"]),
        )
        for state, currents in sorted(board["currents"].items())
        for row in currents
    ]
    leakage = board["leakage"]
    left_out = f" Board leakage left out: {leakage['source']}." if leakage["unknown"] else ""
    unknown = [row["name"].replace("_", " ") for row in board["operations"]
               if row["charge_uc"]["unknown"]]  # fmt: skip
    operations = f" Left out, not known: charge of {', '.join(unknown)}." if unknown else ""
    told = (
        f"Currents of {board['label']}, {board['voltage_v']} V, table {board['version']}. "
        f"Sources: {board['source']}.{left_out}{operations}"
    )
    return f'<p class="note">{escape(told)}</p>' + table("Currents used", heads, rows)
