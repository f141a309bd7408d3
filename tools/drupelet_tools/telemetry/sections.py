"""The sections of the report as HTML: every figure in a plain table with its unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.charts import BYTE_KINDS
from drupelet_tools.telemetry.figures import Figures

Row = dict[str, Any]
DASH = "\N{EN DASH}"

COUNTED = """\
<p class="note"><b>Bytes per message</b> counts everything that crossed a device's links in both
directions for client data: messages with their retransmissions, acknowledgements, offers,
requests, link records and the carrier's framing; divided by the messages delivered there (its
own included). For the fleet every byte counts once, where it was sent, and is divided by the
deliveries at members other than the author. Black boxes on their way (telemetry) are counted
apart; the framing around them stays in the client figure.</p>"""

MODELLED = """\
<p class="note"><b>Modelled, not measured</b>: time in each power state times the current that a
table gives for one real board. Low and high are the ends of the table's spread.</p>"""


def subtitle(found: Figures) -> str:
    """One line under the title."""
    fleet = found["fleet"]
    return (
        f"{fleet['devices']} devices · {number(fleet['delivered'])} deliveries · "
        "from the devices' own black boxes"
    )


def body(found: Figures, pictures: dict[str, str]) -> str:
    """All sections, the summary first."""
    parts = [
        _tiles(found),
        _summary(found),
        _bytes(found, pictures.get("bytes", "")),
        _charge(found, pictures.get("charge", "")),
        _latency(found, pictures.get("latency", "")),
        _health(found),
        _devices(found),
    ]
    return "\n".join(parts)


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """A figure with thousands separators, or a dash where there is none."""
    if value is None:
        return DASH
    return f"{value:,.{digits}f}{unit}"


def significant(value: float | None) -> str:
    """Three significant digits without an exponent, or a dash."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    places = max(0, 3 - whole)
    if abs(value) < 1:
        places = min(9, 2 - _exponent(value))
    return f"{value:,.{places}f}"


def _exponent(value: float) -> int:
    return int(f"{abs(value):e}".rpartition("e")[2])


def seconds(ms: float | None) -> str:
    """Milliseconds as seconds, or a dash."""
    return DASH if ms is None else f"{ms / 1000:,.2f}"


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], total: Sequence[str] = ()
) -> str:
    """A table whose cells are safe HTML already; heads that start with `<` are text columns."""
    text = [head.startswith("<") for head in heads]
    top = "".join(
        f'<th scope="col"{_class(is_text)}>{escape(head.removeprefix("<"))}</th>'
        for head, is_text in zip(heads, text, strict=True)
    )
    lines = [_line(row, text, "") for row in rows]
    if total:
        lines.append(_line(total, text, ' class="total"'))
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _class(is_text: bool) -> str:
    return ' class="text"' if is_text else ""


def _line(cells: Sequence[str], text: list[bool], attribute: str) -> str:
    first, *rest = cells
    columns = "".join(
        f"<td{_class(is_text)}>{cell}</td>" for cell, is_text in zip(rest, text[1:], strict=True)
    )
    return f'<tr{attribute}><th scope="row">{first}</th>{columns}</tr>'


def _name(device: Row) -> str:
    return escape(device["name"])


def _delivered(row: Row) -> str:
    if row["expected"] is None:
        return number(row["delivered"])
    text = f"{number(row['delivered'])} / {number(row['expected'])}"
    return text if row["delivered"] == row["expected"] else f'<span class="warn">{text}</span>'


def _tiles(found: Figures) -> str:
    fleet = found["fleet"]
    wait = fleet["latency"]
    tiles = [
        (
            "Delivered" + (" / expected" if fleet["expected"] is not None else ""),
            _delivered(fleet),
            "",
        ),
        ("Repeats stopped", number(fleet["duplicates"]), ""),
        ("Bytes per message", number(fleet["bytes_per_message"]), "B"),
        ("Charge, modelled", significant(fleet["mah_modelled"]), "mAh"),
        ("Latency p50 / p90", f"{seconds(wait['p50_ms'])} / {seconds(wait['p90_ms'])}", "s"),
    ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value} <small>{unit}</small></dd></div>"
        for name, value, unit in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _summary(found: Figures) -> str:
    heads = ["Device", "<Carrier", "Delivered / expected", "Repeats stopped",
             "Bytes per message (B)", "Overhead per message (B)", "Charge, modelled (mAh)",
             "Latency p50 (s)", "Latency p90 (s)"]  # fmt: skip
    rows = [
        (
            f'<a href="#device-{escape(row["device"])}">{_name(row)}</a>',
            escape(row["carriers"]) or DASH,
            _delivered(row),
            number(row["duplicates"]),
            number(row["bytes_per_message"]),
            number(row["overhead_per_message"]),
            significant(row["mah_modelled"]),
            seconds(row["latency"]["p50_ms"]),
            seconds(row["latency"]["p90_ms"]),
        )
        for row in found["devices"]
    ]
    return f"<h2>Summary</h2>{table('One line per device', heads, rows)}{COUNTED}"


def _figure(name: str, picture: str, label: str) -> str:
    if not picture:
        return ""
    return f'<div class="chart" id="chart-{name}" role="img" aria-label="{label}">{picture}</div>'


def _bytes(found: Figures, picture: str) -> str:
    lines = [(d, line) for d in found["devices"] for line in d["traffic"]["lines"]]
    kinds = [kind for kind in BYTE_KINDS if any(line.get(kind) for _, line in lines)]
    heads = ["Device", "<Carrier", "<Direction", "Link total (B)"]
    heads += [f"{kind.capitalize()} (B)" for kind in kinds]
    rows = [
        (
            _name(device),
            line["carrier"],
            line["direction"],
            number(line["bytes"]),
            *(number(line.get(kind, 0)) for kind in kinds),
        )
        for device, line in lines
    ]
    chart = _figure("bytes", picture, "Bytes on each link by record type, in kilobytes")
    return (
        f"<h2>Bytes by carrier and record type</h2>{chart}"
        f"{table('Highest counters per boot, summed over boots', heads, rows)}"
        '<p class="note"><b>Overhead per message</b> is everything but messages and segments of '
        "messages: acknowledgements, offers, requests, link records, seal and framing.</p>"
    )


def _charge(found: Figures, picture: str) -> str:
    modelled = [row for row in found["devices"] if row["mah_modelled"] is not None]
    without = [_name(row) for row in found["devices"] if row["mah_modelled"] is None]
    chart = _figure("charge", picture, "Modelled charge of each device by power state, in mAh")
    parts = [f"<h2>Charge by power state</h2>{MODELLED}{chart}"]
    if modelled:
        parts.append(_charge_table(modelled))
    parts += [_currents(board) for board in found["tables"]]
    if without:
        named = ", ".join(without)
        parts.append(f'<p class="note">No current table, so no charge, for: {named}.</p>')
    return "".join(parts)


def _charge_table(devices: list[Row]) -> str:
    """Charge with the time below it, a column per state that occurs."""
    names = {row["state"]: row["name"] for device in devices for row in device["charge"]}
    states = sorted(names, key=lambda state: (state < 0, state))
    heads = ["Device", "Total (mAh)", "Low (mAh)", "High (mAh)"]
    heads += [f"{names[state].capitalize()} (mAh, s)" for state in states]
    rows = []
    for device in devices:
        own = {row["state"]: row for row in device["charge"]}
        cells = [
            f"{significant(own[state]['mah']) if state >= 0 else DASH}"
            f"<br><small>{number(own[state]['ms'] / 1000, 1)} s</small>"
            if state in own
            else DASH
            for state in states
        ]
        totals = (device[f"mah_modelled{end}"] for end in ("", "_low", "_high"))
        rows.append([_name(device), *(significant(value) for value in totals), *cells])
    return table("Modelled charge, and time in the state", heads, rows)


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
    told = (
        f"Currents of {board['label']}, {board['voltage_v']} V, table {board['version']}. "
        f"Sources: {board['source']}.{left_out}"
    )
    return f'<p class="note">{escape(told)}</p>' + table("Currents used", heads, rows)


def _latency(found: Figures, picture: str) -> str:
    heads = ["At device", "Messages of others", "Delivered, timed", "No delivery on record",
             "No clock", "p50 (s)", "p90 (s)", "Uncertainty (± s)"]  # fmt: skip

    def cells(name: str, wait: Row) -> tuple[str, ...]:
        return (
            name,
            number(wait["messages"]),
            number(wait["timed"]),
            number(wait["undelivered"]),
            number(wait["no_clock"]),
            seconds(wait["p50_ms"]),
            seconds(wait["p90_ms"]),
            seconds(wait["uncertainty_ms"]) if wait["uncertainty_ms"] is not None else "unknown",
        )

    rows = [cells(_name(row), row["latency"]) for row in found["devices"]]
    total = cells("All", found["fleet"]["latency"])
    chart = _figure("latency", picture, "Share of messages delivered within a time, by device")
    return (
        f"<h2>Latency, created to delivered</h2>{chart}"
        f"{table('Per receiving device', heads, rows, total)}"
        '<p class="note">Messages are matched across devices by the first four bytes of their '
        "id. Times are compared through each device's wall-clock anchor; the uncertainty is the "
        "sum of both clocks'. A message without a delivery on record counts as waiting longer "
        "than all others, so a quantile that falls there shows a dash.</p>"
    )


def _health(found: Figures) -> str:
    heads = ["Device", "Boots", "Heap limit (B)", "Heap free, lowest (B)", "Log segments",
             "Segments missing", "Blocks lost", "Events refused", "Places in quarantine",
             "Retransmissions", "Messages refused", "Damaged frames", "Errors"]  # fmt: skip
    rows = [
        (
            _name(row),
            number(health["boots"]),
            number(health["heap_limit"]),
            number(health["heap_low"]),
            number(health["segments"]),
            number(health["segments_missing"]),
            number(health["blocks_lost"]),
            number(health["events_lost"]),
            number(health["quarantined"]),
            number(health["retransmits"]),
            number(health["refused"]),
            number(health["damaged_frames"]),
            number(health["errors"]),
        )
        for row in found["devices"]
        for health in [row["health"]]
    ]
    return (
        f"<h2>Health and integrity of the logs</h2>{table('Totals over all boots', heads, rows)}"
    )


def _devices(found: Figures) -> str:
    return "<h2>Devices</h2>" + "".join(_device(row) for row in found["devices"])


def _device(row: Row) -> str:
    facts = [
        ("Device id", f"<code>{escape(row['device'])}</code>"),
        ("Carrier", escape(row["carriers"]) or DASH),
        ("Board of the current table", escape(row["board_label"] or "none")),
        ("Time in the log (h)", significant(row["hours"])),
        ("Created here", number(row["created"])),
        ("Delivered / expected", _delivered(row)),
        ("Out of order", number(row["out_of_order"])),
        ("Client bytes, both directions (B)", number(row["client_bytes"])),
        ("Telemetry bytes, both directions (B)", number(row["telemetry_bytes"])),
        ("Charge, modelled (mAh)", f"{significant(row['mah_modelled'])}"),
        ("Flash programs", number(row["health"]["flash_programs"])),
        ("Flash erases", number(row["health"]["flash_erases"])),
        ("Reset causes", escape(", ".join(_cause(c) for c in row["health"]["reset_causes"]))),
    ]
    if row["health"]["battery_low_mv"] is not None:
        facts.append(("Battery, lowest (mV)", number(row["health"]["battery_low_mv"])))
    if row["health"]["reasons"]:
        facts.append(("Quarantine", escape("; ".join(row["health"]["reasons"]))))
    counted = [(escape(name), number(value)) for name, value in row["traffic"]["records"].items()]
    return (
        f'<details id="device-{escape(row["device"])}" open>'
        f"<summary>{_name(row)}</summary>"
        f"{table('Facts', ['Fact', 'Value'], facts)}"
        f"{table('Frames and records', ['Kind', 'Count'], counted) if counted else ''}"
        "</details>"
    )


def _cause(value: int | None) -> str:
    return "not logged" if value is None else str(value)
