"""Battery life and charge in the report; what is modelled and what was measured stay apart."""

from __future__ import annotations

from typing import Any

from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.text.cells import (
    DASH,
    Cell,
    Cells,
    Row,
    Table,
    between,
    link,
    number,
    percent,
    significant,
    table,
    trend,
)


def life(all_figures: Figures) -> dict[str, Any]:
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
    has_readings = any(row["battery"]["readings"] for row in all_figures["devices"])
    return {
        "lives": table("Life from full to empty", heads, rows) if rows else None,
        "batteries": [_battery(battery) for battery in all_figures["batteries"]],
        "calibrated": _calibrated(all_figures),
        "voltages": _voltages(all_figures) if has_readings else None,
    }


def _calibrated(all_figures: Figures) -> Table | None:
    """Modelled, measured and calibrated in columns of their own; only for calibrated devices."""
    heads = ["Device", "Modelled (days)", "Calibrated (days)",
             "Calibrated, 90 % interval (days)", "Modelled (mAh/day)", "Calibrated (mAh/day)",
             "Measurement (h)", "Measured (mAh)", "Modelled, same time (mAh)",
             "Calibrated, same time (mAh)", "Residual of a window", "<Fitted to"]  # fmt: skip
    rows = []
    for row in all_figures["devices"]:
        told, life = row["calibrated"], row["life"]
        if told is None:
            continue
        own = told["life"]
        rows.append((
            link(row),
            DASH if life is None else number(life["days"]),
            DASH if own is None else number(own["days"]),
            DASH if own is None else between(own["days_low"], own["days_high"]),
            DASH if life is None else significant(life["mah_per_day"]),
            DASH if own is None else significant(own["mah_per_day"]),
            significant(told["hours"]),
            significant(told["measured_mah"]),
            significant(told["modelled_mah"]),
            significant(told["calibrated_mah"]),
            percent(told["residual_share"], 1),
            told["source"],
        ))  # fmt: skip
    return table("Modelled, measured, calibrated", heads, rows) if rows else None


def _life_line(row: Row) -> Cells:
    lifetime, battery, both = row["life"], row["battery"], row["comparison"]
    agree: str | Cell = DASH
    if both is not None:
        agree = "yes" if both["agree"] else Cell("no", is_warning=True)
    if lifetime is None:
        modelled: tuple[str, ...] = (DASH,) * 6
    else:
        modelled = (
            lifetime["battery"],
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


def _battery(battery: Row) -> dict[str, Any]:
    """A battery's table in words, and whether it was assumed."""
    stand_ins = [
        what
        for what in ("capacity_mah", "usable", "self_discharge_year", "protection_ma")
        if battery[what]["unknown"]
    ]
    stand_ins += [
        what for what in ("by_load", "by_temperature") if battery[what]["spread"]["unknown"]
    ]
    text = (
        f"Battery: {battery['label']}, table {battery['version']}."
        f" Sources: {battery['source']}. Stand-ins of ours:"
        f" {', '.join(what.replace('_', ' ') for what in stand_ins) or 'none'}."
    )
    return {"text": text, "is_assumed": battery["assumed"]}


def _voltages(all_figures: Figures) -> Table:
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
    return table("Battery voltage, measured", heads, rows)


def charge(all_figures: Figures) -> dict[str, Any]:
    """Charge by power state and by what it was spent on."""
    modelled = [row for row in all_figures["devices"] if row["mah_modelled"] is not None]
    without = [row["label"] for row in all_figures["devices"] if row["mah_modelled"] is None]
    return {
        "states": _charge_table(modelled) if modelled else None,
        "spent": _spent(all_figures, modelled) if modelled else None,
        "boards": [_currents(board) for board in all_figures["tables"]],
        "without": ", ".join(map(str, without)),
    }


def _charge_table(devices: list[Row]) -> Table:
    """Charge with the time below it, a column per state that occurs."""
    names = {row["state"]: row["name"] for device in devices for row in device["charge"]}
    states = sorted(names, key=lambda state: (state < 0, state))
    heads = ["Device", "Total (mAh)", "Low (mAh)", "High (mAh)"]
    heads += [f"{names[state].capitalize()} (mAh, {_unit(state)})" for state in states]
    rows: list[Cells] = []
    for device in devices:
        own = {row["state"]: row for row in device["charge"]}
        cells = [_charge_cell(own.get(state), state) for state in states]
        totals = (device[f"mah_modelled{end}"] for end in ("", "_low", "_high"))
        rows.append([link(device), *(significant(value) for value in totals), *cells])
    return table("Modelled charge, and time in the state", heads, rows)


def _unit(state: int) -> str:
    return "s" if state <= len(codes.STATES) else "times"


def _charge_cell(row: Row | None, state: int) -> str | Cell:
    if row is None:
        return DASH
    count = number(row["ms"] / 1000, 1, " s") if _unit(state) == "s" else number(row["count"])
    return Cell(significant(row["mah"]) if state >= 0 else DASH, below=count)


def _spent(all_figures: Figures, devices: list[Row]) -> Table:
    whole = all_figures["fleet"]["spent"]
    names = list(whole)
    heads = ["Device", *(f"{what.capitalize()} (mAh)" for what in names), "Moved (kB)",
             "Charge per kB (mAh)"]  # fmt: skip
    rows: list[Cells] = [
        (
            link(row),
            *(significant(row["spent"].get(what)) for what in names),
            number(row["moved_kb"], 1),
            significant(row["mah_per_kb"]),
        )
        for row in devices
    ]
    fleet = all_figures["fleet"]
    total: Cells = (
        "Fleet",
        *(significant(whole[what]) for what in names),
        number(fleet["delivered_kb"], 1),
        significant(fleet["mah_per_kb"]),
    )
    return table("Modelled charge by operation", heads, rows, total)


def _currents(board: Row) -> dict[str, Any]:
    """The current table of a board, with the source of each figure, and what it is in words."""
    heads = ["Power state", "<Carrier", "Current (mA)", "Low (mA)", "High (mA)", "<Source"]
    rows: list[Cells] = [
        (
            codes.STATES[int(state)],
            ", ".join(row["carriers"]) or "any",
            significant(row["typical_ma"]),
            significant(row["low_ma"]),
            significant(row["high_ma"]),
            Cell(row["source"], mark="stand-in" if row["unknown"] else ""),
        )
        for state, currents in sorted(board["currents"].items())
        for row in currents
    ]
    leakage = board["leakage"]
    left_out = f" Board leakage left out: {leakage['source']}." if leakage["unknown"] else ""
    unknown = [row["name"].replace("_", " ") for row in board["operations"]
               if row["charge_uc"]["unknown"]]  # fmt: skip
    operations = f" Left out, not known: charge of {', '.join(unknown)}." if unknown else ""
    text = (
        f"Currents of {board['label']}, {board['voltage_v']} V, table {board['version']}. "
        f"Sources: {board['source']}.{left_out}{operations}"
    )
    return {"text": text, "currents": table("Currents used", heads, rows)}
