"""The sections of the report as HTML: every figure in a plain table with its unit."""

from __future__ import annotations

from html import escape

from drupelet_tools.telemetry import sections_energy
from drupelet_tools.telemetry.analyses import span, wait_unit
from drupelet_tools.telemetry.analyses_sync import BYTE_KINDS
from drupelet_tools.telemetry.figures import Figures
from drupelet_tools.telemetry.sections_device import devices as device_pages
from drupelet_tools.telemetry.sections_html import (
    DASH,
    Row,
    delivered,
    figure,
    link,
    moment,
    number,
    percent,
    seconds,
    significant,
    table,
    time_in,
)

LINES_MAX = 3  # of one kind, before the rest is folded
GROUPS_MAX = 100  # in the page's table
MEMBERS_MAX = 8  # that are named in it
LEVELS = {1: "now", 2: "soon", 3: "look"}

COUNTED = """\
<p class="note"><b>Bytes per message</b> counts everything that crossed a device's links in both
directions for client data: messages with their retransmissions, acknowledgements, offers,
requests, link records and the carrier's framing; divided by the messages delivered there (its
own included). For the fleet every byte counts once, where it was sent, and is divided by the
deliveries at members other than the author. Black boxes on their way (telemetry) are counted
apart; the framing around them stays in the client figure.</p>"""

MULTIPLIED = """\
<p class="note"><b>Bandwidth multiplier</b>: everything sent over the messages to deliver; three
sends and one acknowledgement of a message make 4. By records: sends, offers, requests and
acknowledgements of single messages, over messages times their receivers. By bytes: client bytes
sent over the bytes of the messages, each once per receiver.</p>"""


def subtitle(found: Figures) -> str:
    """One line under the title."""
    fleet = found["fleet"]
    left_out = fleet["devices"] - len(found["devices"])
    return (
        f"{number(fleet['devices'])} devices · {number(fleet['delivered'])} deliveries · "
        "from the devices' own logs"
        + (f"; {number(left_out)} devices are only in the sums and in --csv" if left_out else "")
        + (f" up to {moment(found['now_ms'])} UTC" if found["now_ms"] is not None else "")
    )


def body(found: Figures, pictures: dict[str, str]) -> str:
    """All sections, the summary first."""
    parts = [
        _tiles(found),
        _attention(found),
        _summary(found),
        sections_energy.life(found, pictures),
        _bytes(found, pictures.get("bytes", "")),
        sections_energy.charge(found, pictures),
        _latency(found, pictures.get("latency", "")),
        _repeats(found, pictures.get("sends", "")),
        _presence(found),
        _trends(found),
        _health(found),
        device_pages(found),
    ]
    return "\n".join(parts)


def _tiles(found: Figures) -> str:
    fleet = found["fleet"]
    wait = fleet["latency"]
    unit, unit_ms = wait_unit(wait)
    both = f"{time_in(wait['p50_ms'], unit_ms)} / {time_in(wait['p90_ms'], unit_ms)}"
    expected = " / expected" if fleet["expected"] is not None else ""
    tiles = [
        (f"Delivered{expected}", delivered(fleet), ""),
        ("Repeats stopped", number(fleet["duplicates"]), ""),
        ("Bytes per message", number(fleet["bytes_per_message"]), "B"),
        ("Multiplier by bytes", times(fleet["multiplier"]["bytes"]), ""),
        ("Charge, modelled", significant(fleet["mah_modelled"]), "mAh"),
        ("Charge per delivered kB", significant(fleet["mah_per_kb"]), "mAh"),
        ("Shortest life, modelled", number(fleet["shortest_life_days"]), "days"),
        ("Fall of charge, measured", significant(fleet["soc_pct_per_day"]), "%/day"),
        ("Latency p50 / p90", both if wait["timed"] else DASH, unit),
        ("Silent now", number(fleet["silent"]), ""),
    ]
    cells = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{value} <small>{of}</small></dd></div>"
        for what, value, of in tiles
        if value != DASH
    )
    return f'<dl class="tiles">{cells}</dl>'


def times(value: float | None) -> str:
    """A multiplier, or a dash."""
    return DASH if value is None else f"{value:,.2f}"


def _attention(found: Figures) -> str:
    lines = found["attention"]
    if not lines:
        return '<h2>What needs attention first</h2><p class="fine">Nothing stands out.</p>'
    kinds: dict[tuple[int, str], list[Row]] = {}
    for line in lines:
        kinds.setdefault((line["level"], line["kind"]), []).append(line)
    items = "".join(_lines(level, own) for (level, _), own in kinds.items())
    return f'<h2>What needs attention first</h2><ol class="attention">{items}</ol>'


def _lines(level: int, lines: list[Row]) -> str:
    """Lines of one kind; of many, the first some and the rest folded away."""
    told = [f"{link(line)}: {escape(line['what'])}" for line in lines]
    shown = told if len(told) <= LINES_MAX + 1 else told[:LINES_MAX]
    items = [f'<li class="level{level}"><b>{LEVELS[level]}</b> {text}</li>' for text in shown]
    rest = told[len(shown) :]
    if rest:
        items.append(
            f'<li class="level{level}"><b>{LEVELS[level]}</b> <details><summary>{len(rest)} more'
            f" like the last</summary> {'<br>'.join(rest)}</details></li>"
        )
    return "".join(items)


def _summary(found: Figures) -> str:
    unit, unit_ms = wait_unit(found["fleet"]["latency"])
    heads = ["Device", "<Carrier", "Delivered / expected", "Repeats stopped",
             "Bytes per message (B)", "Overhead per message (B)", "Multiplier by records",
             "Multiplier by bytes", "Charge, modelled (mAh)", "Charge per day, modelled (mAh)",
             "Charge per delivered kB (mAh)", f"Latency p50 ({unit})",
             f"Latency p90 ({unit})"]  # fmt: skip
    rows = [
        (
            link(row),
            escape(row["carriers"]) or DASH,
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
        for row in found["devices"]
    ]
    told = table("One line per device", heads, rows)
    return f"<h2>Summary</h2>{told}{COUNTED}{MULTIPLIED}{_groups(found)}"


def _bytes(found: Figures, picture: str) -> str:
    lines = [(d, line) for d in found["devices"] for line in d["traffic"]["lines"]]
    kinds = [kind for kind in BYTE_KINDS if any(line.get(kind) for _, line in lines)]
    heads = ["Device", "<Carrier", "<Direction", "Link total (B)"]
    heads += [f"{kind.capitalize()} (B)" for kind in kinds]
    rows = [
        (
            link(device),
            escape(line["carrier"]),
            line["direction"],
            number(line["bytes"]),
            *(number(line.get(kind, 0)) for kind in kinds),
        )
        for device, line in lines
    ]
    chart = figure("bytes", picture, "Bytes on each link by record type, in kilobytes")
    carriers = [
        (
            escape(row["carrier"]),
            number(row["bytes"]),
            number(row["content"]),
            number(row["telemetry"]),
            times(row["multiplier_bytes"]),
        )
        for row in found["fleet"]["carriers"]
    ]
    told = ["Carrier", "Sent (B)", "Of it messages (B)", "Of it telemetry (B)", "Multiplier"]
    return (
        f"<h2>Bytes by carrier and record type</h2>{chart}"
        f"{table('Sent by the fleet, per carrier', told, carriers) if carriers else ''}"
        f"{table('Highest counters per boot, summed over boots', heads, rows)}"
        '<p class="note"><b>Overhead per message</b> is everything but messages and segments of '
        "messages: acknowledgements, offers, requests, link records, seal and framing.</p>"
    )


def _latency(found: Figures, picture: str) -> str:
    whole = found["fleet"]["latency"]
    unit, unit_ms = wait_unit(whole)
    heads = ["At device", "Messages of others", "Delivered, timed", "No delivery on record",
             "No clock", f"p50 ({unit})", f"p90 ({unit})", f"p99 ({unit})", "p50 (epochs)",
             "p90 (epochs)", "Uncertainty (± s)"]  # fmt: skip

    def cells(first: str, wait: Row) -> tuple[str, ...]:
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

    rows = [cells(link(row), row["latency"]) for row in found["devices"]]
    chart = figure("latency", picture, "Share of messages delivered within a time, by device")
    sampled = ""
    if whole["every"] > 1:
        sampled = f" Of so many messages one in {whole['every']} was taken."
    return (
        f"<h2>Latency, created to delivered</h2>{chart}"
        f"{table('Per receiving device', heads, rows, cells('All', whole))}"
        '<p class="note">Messages are matched across devices by the first four bytes of their '
        "id. Times are compared through each device's wall-clock anchor; the uncertainty is the "
        "sum of both clocks'. A message without a delivery on record has waited until the "
        "receiver's log ends and counts for so long (Kaplan and Meier); a quantile that the "
        f"deliveries never reach shows a dash.{sampled}</p>"
    )


def _repeats(found: Figures, picture: str) -> str:
    sends = found["fleet"]["sync"]["sends"]
    heads = ["Sends", "Messages, each once per receiver", "Share"]
    whole = sum(sends)
    last = len(sends)
    rows = [
        (
            str(at) if at < last else f"{last} or more",
            number(count),
            percent(count / whole if whole else None),
        )
        for at, count in enumerate(sends, 1)
    ]
    chart = figure("sends", picture, "Messages by how many sends they took")
    own = ["Device", "Sends", "Of it repeats", "Share of repeats", "Of it back-off begun anew",
           "Acknowledged to it", "Offers", "Of it back-off begun anew", "Requests",
           "Duplicates that came", "Share of duplicates"]  # fmt: skip
    lines = [
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
        for row in found["devices"]
    ]
    told = table("Sends that a message took to a receiver", heads, rows) if whole else ""
    return (
        f"<h2>Retransmissions and duplicates</h2>{chart}{told}"
        f"{table('Per device, of single messages', own, lines)}"
        '<p class="note"><b>Back-off begun anew</b>: repeats whose send count is 1 again (send '
        "epochs reset), because the receiver had been heard of since the last one, or because the "
        "device had started anew. The other repeats had waited longer each time.</p>"
    )


def _groups(found: Figures) -> str:
    """What each group cost; the largest, where there are many."""
    listed = found["fleet"]["groups"]
    if not listed:
        return ""
    names = {row["device"]: row["label"] for row in found["devices"]}
    heads = ["<Group", "<Members", "Messages", "Deliveries", "Sends", "Acknowledgements", "Offers",
             "Requests", "Sent (B)", "Multiplier by records", "Multiplier by bytes"]  # fmt: skip
    rows = [
        (
            f"<code>{row['group']}…</code>" if row["group"] else "by deliveries",
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
    more = len(listed) - len(rows)
    left_out = f" {number(more)} smaller groups are only in --json." if more else ""
    return (
        f"{table('Per group', heads, rows)}"
        '<p class="note">A group is named by the first two bytes of its id, as the devices '
        "logged it; where they did not, devices that delivered each other's messages are one. "
        "Bytes are counted per device: those of a device in several groups are shared out by "
        f"its single messages (≈).{left_out}</p>"
    )


def _members(names: list[str]) -> str:
    shown = ", ".join(escape(name) for name in names[:MEMBERS_MAX])
    more = len(names) - MEMBERS_MAX
    return f"{shown} and {number(more)} more" if more > 0 else shown


def _presence(found: Figures) -> str:
    heads = ["Device", "First sign", "Last sign", "Own schedule", "<Told by", "Quiet for",
             "Away, times", "Away, share of its time", "Longest away",
             "<Longest began"]  # fmt: skip
    rows = []
    for row in found["devices"]:
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
                f'<span class="warn">{quiet}</span>' if seen["silent"] else quiet,
                number(seen["outages"]),
                percent(seen["out_share"]),
                span(longest["ms"]) if longest else DASH,
                moment(longest["from_wall_ms"]) if longest else DASH,
            )
        )
    return (
        f"<h2>Silent devices and outages</h2>{table('Times are UTC', heads, rows)}"
        '<p class="note">The schedule is the fleet file\'s, else the epoch that the device '
        "announces, else the median gap between its own signs. Away: a gap of 24 times the "
        "schedule and more. Silent: quiet for three times the longest of its schedule, its "
        "longest usual gap and the time that a segment of its log covers, measured at the newest "
        "time in these logs or at the time that was given.</p>"
    )


def _trends(found: Figures) -> str:
    heads = ["Trend", "Median slope", "Low", "High", "<Unit", "Devices", "Of them with a trend"]
    rows = [
        (
            escape(row["what"]),
            significant_signed(row["slope"]),
            significant_signed(row["low"]),
            significant_signed(row["high"]),
            escape(row["unit"]),
            number(row["devices"]),
            number(row["found"]),
        )
        for row in found["trends"]
    ]
    far = [
        (
            link(row),
            escape(row["what"]),
            significant(row["value"]),
            significant(row["median"]),
            f"{row['z']:+.1f}",
        )
        for row in found["outliers"]
    ]
    parts = ["<h2>Trends and outliers</h2>"]
    if rows:
        parts.append(table("Median of the devices' slopes, with its 95 % interval", heads, rows))
    if far:
        told = ["Device", "<Figure", "Value", "Median of the fleet", "Robust z"]
        parts.append(table("More than 3.5 robust deviations from the fleet's median", told, far))
    if not rows and not far:
        parts.append('<p class="note">Too little time or too few devices for a trend.</p>')
    return "".join(parts)


def significant_signed(value: float | None) -> str:
    """Three significant digits with a sign, or a dash."""
    if value is None:
        return DASH
    return significant(value) if value < 0 or value == 0 else f"+{significant(value)}"


def _health(found: Figures) -> str:
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
        for row in found["devices"]
        for health in [row["health"]]
    ]
    return (
        f"<h2>Health and integrity of the logs</h2>{table('Totals over all boots', heads, rows)}"
    )
