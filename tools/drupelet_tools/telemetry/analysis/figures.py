"""What the report shows, worked out from the lake's tables; plain data, ready for JSON.

Bytes: `carrier` bytes are what crossed a link, framing included, as both ends count them.
Telemetry bytes are the black boxes on their way to their reader; they are kept apart.
"Client bytes" are carrier bytes less telemetry bytes: messages with their retransmissions,
acknowledgements, offers, requests, link records and all framing.

Modelled figures (`mah_*`, `charge`, `life`, `spent`) and measured ones (`battery`) never share
a key; `comparison` puts the two beside each other.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from drupelet_tools.telemetry.analysis import group_costs, latency, sync_cost, watch
from drupelet_tools.telemetry.analysis.attention import attention
from drupelet_tools.telemetry.analysis.figures_read import (
    by_device,
    log_ends_ms,
    messages,
    rows_of,
)
from drupelet_tools.telemetry.analysis.fleet_file import DevicePlan, FleetPlan
from drupelet_tools.telemetry.analysis.memfault import memfault_metrics
from drupelet_tools.telemetry.analysis.outliers import outliers
from drupelet_tools.telemetry.analysis.trends import fleet_trends
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.calibration.device_factors import Calibration
from drupelet_tools.telemetry.energy import battery_life, board_table
from drupelet_tools.telemetry.lake.delta import Lake
from drupelet_tools.telemetry.tables import versions

Figures = dict[str, Any]
Row = dict[str, Any]
Rows = dict[str, list[Row]]

RESULT_KEYS = ("expected", "delivered", "created", "duplicates", "out_of_order")
USED = ("segments", "state_time", "traffic", "health", "quarantine", "battery", "clocks")
# What a run of boots with one firmware cost.
RUN_COSTS = (
    "delivered", "client_bytes", "bytes_per_message", "mah_modelled", "mah_modelled_low",
    "mah_modelled_high", "mah_per_day",
)  # fmt: skip
BOOTS_MIN = 2  # fewer say nothing about how often a device starts
_SUMS = (
    "messages_created", "messages_delivered", "duplicates", "retransmits", "refused",
    "damaged_frames", "malformed_records", "events_lost", "flash_programs", "flash_erases",
    "errors", "blocks_lost", "segments_missing",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What is the same for every device while the figures are made."""

    tables: dict[str, Rows]
    messages: group_costs.Messages
    groups: group_costs.Groups
    places: dict[str, int]
    waits: latency.Waits
    plan: FleetPlan
    now_ms: float | None
    ahead_ms: float  # a log that ends later has a clock that is ahead
    seed: int


def figures(
    lake: Lake,
    results: Mapping[str, Mapping[str, int]] | None = None,
    plan: FleetPlan | None = None,
    *,
    now_ms: float | None = None,
    period: group_costs.Period | None = None,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Figures:
    """All figures of a lake.

    Args:
        lake: an open lake.
        results: device name or id -> any of RESULT_KEYS, as
            counted by whoever ran the devices; without it `delivered` is the devices' own
            counter and nothing is known to be expected.
        plan: batteries and schedules; without it no life is modelled.
        now_ms: when it is now, to tell who is silent; without it, the newest time in the lake
            of a clock that is not ahead.
        period: which messages count; without it, all.
        seed: of the Monte-Carlo intervals.
        advance: called with the number of devices done since the last call.
    """
    fleet = _read(lake, plan or FleetPlan(), now_ms, period, seed)
    devices = []
    for device in lake.read_devices().to_pylist():
        given = dict((results or {}).get(device["name"]) or {})
        given = given or dict((results or {}).get(device["device"]) or {})
        devices.append(_device(device, fleet, given))
        if advance is not None:
            advance(1)
    devices.sort(key=lambda row: (row["name"], row["device"]))
    _label(devices)
    far = outliers(devices)
    return {
        "devices": devices,
        "fleet": _fleet_row(devices, fleet),
        "attention": attention(devices, far),
        "outliers": far,
        "trends": fleet_trends(devices),
        "tables": _tables(devices),
        "batteries": _batteries(devices, fleet.plan),
        "now_ms": fleet.now_ms,
        "seed": seed,
    }


def _read(
    lake: Lake,
    plan: FleetPlan,
    now_ms: float | None,
    period: group_costs.Period | None,
    seed: int,
) -> _Fleet:
    tables = {table: by_device(rows_of(lake, table)) for table in USED}
    all_messages = messages(lake)
    ends = log_ends_ms(all_messages.devices, tables["segments"])
    newest = log_ends_ms(list(tables["segments"]), tables["segments"]).tolist()
    known = [end for end in newest if not math.isnan(end)]
    # No log ends after it is read. A fleet of which all do is a simulated one.
    ahead_ms = time.time() * 1000 + watch.MS_PER_DAY
    past = [end for end in known if end <= ahead_ms]
    if now_ms is None:
        now_ms = max(past or known, default=None)
    ahead_ms = ahead_ms if past else math.inf
    places = {device: at for at, device in enumerate(all_messages.devices)}
    groups = group_costs.find(all_messages)
    if period is not None:
        all_messages, groups = group_costs.within(all_messages, groups, period)
    waits = latency.waits(all_messages, ends, groups)
    return _Fleet(tables, all_messages, groups, places, waits, plan, now_ms, ahead_ms, seed)


def _device(device: Row, fleet: _Fleet, given: Mapping[str, int]) -> Row:
    own = {table: rows.get(device["device"], []) for table, rows in fleet.tables.items()}
    plan = fleet.plan.of(device["device"], device["name"])
    device = {
        **device,
        "board": device["board"] or plan.board,
        # What it counted tells, too, what it has; on it the current of some boards depends.
        "carriers": device["carriers"]
        or ", ".join(sorted({r["carrier"] for r in own["traffic"]})),
    }
    row: Row = {**device, **{key: given.get(key) for key in RESULT_KEYS}}
    row.update(_costs(device, own, given.get("delivered")))
    row["created"] = given.get("created", row["health"]["messages_created"])
    if row["duplicates"] is None:
        row["duplicates"] = row["health"]["duplicates"]
    row["presence"] = watch.presence(
        own["segments"], plan.period_ms, fleet.now_ms, row["health"]["epoch_ms"]
    )
    ends_ms = row["presence"]["last_wall_ms"]
    row["clock_ahead"] = ends_ms is not None and ends_ms > fleet.ahead_ms
    row["integrity"] = watch.integrity(own["segments"], own["health"], len(own["quarantine"]))
    # The voltage of a battery that was only assumed says nothing about its charge.
    pack = None if fleet.plan.assumed else plan.pack
    row["battery"] = watch.battery(own["battery"], pack, fleet.now_ms)
    row["life"] = _life(row, plan, fleet.seed, assumed=fleet.plan.assumed)
    row["calibrated"] = _calibrated(row, plan, fleet)
    row["comparison"] = _comparison(row)
    row.update(_sync(device["device"], row, fleet))
    row["position"] = plan.position
    row["firmware"] = _firmware(plan, versions.label(row))
    row["firmware_runs"] = _firmware_runs(device, own, row, plan)
    del row["firmware_set"]  # it is in the text
    row["trends"] = watch.boot_trends(_boots(own, row))
    boots = row["health"]["boots"]
    row["boots_per_day"] = _ratio(boots, _days(row)) if boots > BOOTS_MIN else None
    row["metrics"] = memfault_metrics(row)
    return row


def _costs(device: Row, own: Rows, delivered: int | None = None) -> Row:
    """What a device delivered, and what that took; by its own counter where none is given."""
    total = {name: sum(row[name] or 0 for row in own["health"]) for name in _SUMS}
    if delivered is None:
        delivered = total["messages_delivered"]
    row: Row = {
        "delivered": delivered,
        **_traffic(own, delivered),
        "health": _health(own, total),
    }
    return row | _charge(device, own, row)


def _firmware(plan: DevicePlan, label: str) -> str:
    """What a fleet file calls a device's firmware, and what its log says."""
    return " · ".join(name for name in (plan.firmware, label) if name)


def _firmware_runs(device: Row, own: Rows, row: Row, plan: DevicePlan) -> list[Row]:
    """What each run of boots with one firmware cost, the newest last."""
    parts = versions.runs(own)
    if len(parts) == 1:
        return [_run(_firmware(plan, parts[0][0]), row, row["sync"])]
    listed = []
    for name, part in parts:
        costs = _costs(device, part)
        # Single messages are counted over all boots of a device, records in each.
        sent = costs["traffic"]["records"].get("message records sent", 0)
        pairs = max(0, sent - costs["health"]["retransmits"])
        listed.append(_run(_firmware(plan, name), costs, {"sent": sent, "pairs": pairs}))
    return listed


def _run(name: str, costs: Row, sync: Row) -> Row:
    health = costs["health"]
    return {
        "firmware": name,
        "hours": costs["hours"] + (costs["slept_between_ms"] or 0) / board_table.MS_PER_HOUR,
        **{key: costs[key] for key in RUN_COSTS},
        "mah_per_message": None
        if costs["mah_modelled"] is None
        else _ratio(costs["mah_modelled"], costs["delivered"]),
        "health": {name: health[name] for name in ("boots", "reset_causes")},
        "sync": {name: sync[name] for name in ("sent", "pairs")},
    }


def _label(devices: list[Row]) -> None:
    """What a device is called on the page: its name, with its id where two share a name."""
    counts: dict[str, int] = defaultdict(int)
    for row in devices:
        counts[row["name"]] += 1
    for row in devices:
        shared = counts[row["name"]] > 1
        row["label"] = f"{row['name']} ({row['device']})" if shared else row["name"]


def _traffic(own: Rows, delivered: int) -> Row:
    traffic = sync_cost.traffic_figures(own["traffic"])
    overhead = traffic["client_bytes"] - traffic["content_bytes"]
    return {
        "traffic": traffic,
        "client_bytes": traffic["client_bytes"],
        "telemetry_bytes": traffic["telemetry_bytes"],
        "bytes_per_message": _ratio(traffic["client_bytes"], delivered),
        "overhead_per_message": _ratio(overhead, delivered),
    }


def _charge(device: Row, own: Rows, row: Row) -> Row:
    """Modelled charge by state; None where there is no table for the board."""
    state_ms: dict[int, int] = defaultdict(int)
    for line in own["state_time"]:
        state_ms[line["state"]] += line["ms"]
    hours = sum(state_ms.values()) / board_table.MS_PER_HOUR
    slept_ms = _slept_between_ms(own)
    spent: Row = {"state_ms": dict(state_ms), "hours": hours, "slept_between_ms": slept_ms}
    spent["operations"] = _operations(row)
    if device["board"] not in board_table.board_names():
        return {
            **spent, "mah_modelled": None, "mah_modelled_low": None, "mah_modelled_high": None,
            "mah_per_day": None, "charge": [], "board_label": None,
        }  # fmt: skip
    board = board_table.load_board(device["board"])
    use = battery_life.Use(
        device["device"],
        board,
        _carriers(device),
        _with_sleep(spent),
        spent["operations"],
    )
    charge = board_table.charges(board, use.state_ms, use.carriers, use.counts)
    listed = [asdict(line) for line in charge]
    whole = math.fsum(line["mah"] for line in listed)
    return {
        **spent,
        "charge": listed,
        "mah_modelled": whole,
        "mah_modelled_low": math.fsum(line["low_mah"] for line in listed),
        "mah_modelled_high": math.fsum(line["high_mah"] for line in listed),
        "mah_per_day": None if slept_ms is None else _per_day(use),
        "board_label": board.label,
        "board_source": board.source,
        "board_version": board.version,
        "leakage_unknown": board.leakage.unknown,
    }


def _slept_between_ms(own: Rows) -> int | None:
    """Deep sleep between boots, which is in no log; None where no clock tells any of it.

    A boot that woke from deep sleep slept since the one before it ended. One whose gap nobody can
    tell, as where a boot is lost, is taken to have slept as long as the others.
    """
    spans: dict[int, tuple[int, int]] = {}
    for row in own["segments"]:
        if row["wall_offset_ms"] is not None and row["last_ms"] is not None:
            begin, end = row["wall_offset_ms"], row["wall_offset_ms"] + row["last_ms"]
            before = spans.get(row["boot"], (begin, end))
            spans[row["boot"]] = min(before[0], begin), max(before[1], end)
    boots = sorted(row["boot"] for row in own["health"])
    causes = {row["boot"]: row["reset_cause"] for row in own["health"]}
    woke = [boot for boot in boots[1:] if causes[boot] == codes.RESET_DEEP_SLEEP]
    if not woke:
        return 0
    told = [boot for boot in woke if boot in spans and boot - 1 in spans]
    gaps = [max(0, spans[boot][0] - spans[boot - 1][1]) for boot in told]
    return round(sum(gaps) / len(gaps) * len(woke)) if gaps else None


def _with_sleep(row: Row) -> dict[int, int]:
    """ms in each state, those of deep sleep between boots among them."""
    state_ms = dict(row["state_ms"])
    slept_ms = row["slept_between_ms"]
    if slept_ms:
        state_ms[codes.DEEP_SLEEP] = state_ms.get(codes.DEEP_SLEEP, 0) + slept_ms
    return state_ms


def _per_day(use: battery_life.Use) -> float | None:
    """mAh a day over the time whose state is known: the rest is left out with its charge."""
    charge = board_table.charges(use.board, dict(use.known()), use.carriers, use.counts)
    return _ratio(math.fsum(line.mah for line in charge) * 24, use.hours)


def _carriers(device: Row) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in device["carriers"].split(","))


def _operations(row: Row) -> dict[str, int]:
    records = row["traffic"]["records"]
    return {
        "boot": row["health"]["boots"],
        "flash_program": row["health"]["flash_programs"],
        "flash_erase": row["health"]["flash_erases"],
        "frame_sent": records.get("frames sent", 0),
        "frame_received": records.get("frames received", 0),
    }


def _life(
    row: Row,
    plan: DevicePlan,
    seed: int,
    *,
    assumed: bool,
    calibration: Calibration | None = None,
) -> Row | None:
    """Modelled life of a full pack; None without a table, a pack or any time on record.

    The values are the medians of the draws, so that each lies in its interval.
    """
    if plan.pack is None or row["mah_modelled"] is None or row["slept_between_ms"] is None:
        return None
    board = board_table.load_board(row["board"])
    use = battery_life.Use(
        row["device"],
        board if calibration is None else calibration.apply(board),
        _carriers(row),
        _with_sleep(row),
        row["operations"],
    )
    life = battery_life.life(use, plan.pack, seed=seed)
    if life is None:
        return None
    battery = plan.pack.battery
    return {
        "battery": battery.label,
        "assumed": assumed,
        "days": life.days.median,
        "days_low": life.days.low,
        "days_high": life.days.high,
        "days_typical": life.days.typical,
        "mah_per_day": life.mah_per_day.median,
        "mah_per_day_low": life.mah_per_day.low,
        "mah_per_day_high": life.mah_per_day.high,
        "mean_ma": life.mean_ma.median,
        "capacity_mah": life.capacity_mah,
        "self_discharge_share": life.self_discharge_share,
        "temperature_c": plan.pack.temperature_c,
    }


def _calibrated(row: Row, plan: DevicePlan, fleet: _Fleet) -> Row | None:
    """What a calibration was fitted to, and life and charge with it; None without one.

    It stands beside what is modelled and changes none of it.
    """
    calibration = fleet.plan.calibration_of(row["device"], row["name"])
    if calibration is None:
        return None
    if calibration.board != row["board"]:
        raise TelemetryError(
            f"calibration of {calibration.device}: it is of board {calibration.board}, and the"
            f" lake has {row['board'] or 'no board'} for {row['name']}; calibrate it anew"
        )
    life = _life(row, plan, fleet.seed, assumed=fleet.plan.assumed, calibration=calibration)
    board = calibration.apply(board_table.load_board(calibration.board))
    charge = board_table.charges(board, row["state_ms"], _carriers(row), row["operations"])
    return {
        "source": calibration.source,
        "hours": calibration.hours,
        "measured_mah": calibration.measured_mah,
        "modelled_mah": calibration.modelled_mah,
        "calibrated_mah": calibration.calibrated_mah,
        "residual_share": calibration.residual_share,
        "mah_log": math.fsum(line.mah for line in charge),
        "life": life,
    }


def _comparison(row: Row) -> Row | None:
    """Life from full to empty, measured against modelled; they agree where intervals meet."""
    battery, life = row["battery"], row["life"]
    if life is None or battery["life_days"] is None:
        return None
    return {
        "measured_days": battery["life_days"],
        "measured_low": battery["life_days_low"],
        "measured_high": battery["life_days_high"],
        "modelled_days": life["days"],
        "modelled_low": life["days_low"],
        "modelled_high": life["days_high"],
        "ratio": battery["life_days"] / life["days"],
        "agree": battery["life_days_low"] <= life["days_high"]
        and life["days_low"] <= battery["life_days_high"],
    }


def _sync(device: str, row: Row, fleet: _Fleet) -> Row:
    place = fleet.places.get(device, -1)
    own = sync_cost.entries(fleet.messages.of(place))
    foreign = row["delivered"] - row["created"]
    spent = sync_cost.by_operation(row["charge"], row["traffic"], own)
    moved = sync_cost.moved_kb(row["traffic"], own, max(foreign, 0), row["duplicates"])
    wait = latency.figures(fleet.waits.at(place), row["health"]["epoch_ms"])
    return {
        "sync": own,
        "foreign": sync_cost.is_foreign(own),
        "multiplier": sync_cost.multiplier(own, own["pairs"], row["traffic"]),
        "spent": spent,
        "moved_kb": moved,
        "mah_per_kb": None if row["mah_modelled"] is None else _ratio(row["mah_modelled"], moved),
        "retransmit_share": _ratio(max(own["sent"] - own["pairs"], 0), own["sent"]),
        "duplicate_share": _ratio(row["duplicates"], max(foreign, 0) + row["duplicates"]),
        "latency": wait,
    }


def _health(own: Rows, total: dict[str, int]) -> Row:
    health, segments = own["health"], own["segments"]
    lows = [row["heap_low"] for row in health if row["heap_low"] is not None]
    limits = [row["heap_limit"] for row in health if row["heap_limit"] is not None]
    epochs = [row["epoch_ms"] for row in health if row["epoch_ms"]]
    return {
        **total,
        "boots": len(health),
        "reset_causes": [row["reset_cause"] for row in health],
        "heap_low": min(lows, default=None),
        "heap_limit": max(limits, default=None),
        "epoch_ms": epochs[-1] if epochs else None,
        "battery_low_mv": min(
            (row["battery_low_mv"] for row in health if row["battery_low_mv"] is not None),
            default=None,
        ),
        "segments": len(segments),
        "blocks": sum(row["blocks"] for row in segments),
        "log_events": sum(row["events"] for row in segments),
        "quarantined": len(own["quarantine"]),
        "reasons": sorted({row["reason"] for row in own["quarantine"]}),
        "clock_uncertainty_ms": max(
            (row["wall_uncertainty_ms"] or 0 for row in segments if row["wall_uncertainty_ms"]),
            default=None,
        ),
    }


def _boots(own: Rows, device: Row) -> list[Row]:
    """One row per boot, for trends over boots."""
    offsets: dict[int, int] = {}
    for row in own["segments"]:
        if row["wall_offset_ms"] is not None:
            offsets.setdefault(row["boot"], row["wall_offset_ms"])
    spent, sent = defaultdict(dict), defaultdict(int)  # type: ignore[var-annotated]
    for row in own["state_time"]:
        spent[row["boot"]][row["state"]] = row["ms"]
    for row in own["traffic"]:
        if row["kind"] == "carrier":
            sent[row["boot"]] += row["value"]
    has_table = device["mah_modelled"] is not None
    board = board_table.load_board(device["board"]) if has_table else None
    rows = []
    for health in own["health"]:
        boot, last_ms = health["boot"], health["last_ms"]
        days = (last_ms or 0) / watch.MS_PER_DAY
        mah = None
        if board is not None and days > 0:
            use = battery_life.Use(device["device"], board, _carriers(device), spent[boot])
            mah = _per_day(use)
        known = boot in offsets and last_ms
        rows.append(
            {
                "wall_ms": offsets[boot] + last_ms / 2 if known else None,
                "mah_per_day": mah,
                "heap_low": health["heap_low"],
                "bytes_per_day": sent[boot] / days if days > 0 else None,
            }
        )
    return rows


def _fleet_row(devices: list[Row], fleet: _Fleet) -> Row:
    """Every byte once, where it was sent; every delivery but the one at the author.

    What is set against deliveries leaves out devices of other systems: theirs are not known.
    """
    sharing = [row for row in devices if not row["foreign"]]
    sent = sum(row["traffic"]["client_bytes_sent"] for row in sharing)
    content = sum(row["traffic"]["content_bytes_sent"] for row in sharing)
    delivered = sum(row["delivered"] for row in devices)
    away = sum(row["delivered"] - row["created"] for row in sharing)
    modelled = [row["mah_modelled"] for row in devices if row["mah_modelled"] is not None]
    shared = [row["mah_modelled"] for row in sharing if row["mah_modelled"] is not None]
    own = sync_cost.added(row["sync"] for row in sharing)
    traffic = {"client_bytes_sent": sent, "content_bytes_sent": content}
    message = _ratio(content, own["sent"])
    kb = message * away / 1000 if message and away > 0 else 0.0
    spent: dict[str, float] = defaultdict(float)
    for row in devices:
        for name, mah in row["spent"].items():
            spent[name] += mah
    lives = [row["life"]["days"] for row in devices if row["life"] is not None]
    return {
        "devices": len(devices),
        "delivered": delivered,
        "expected": _sum_or_none(row["expected"] for row in devices),
        "duplicates": sum(row["duplicates"] for row in devices),
        "deliveries_away": away,
        "client_bytes_sent": sent,
        "telemetry_bytes": sum(row["telemetry_bytes"] for row in devices),
        "bytes_per_message": _ratio(sent, away),
        "mah_modelled": math.fsum(modelled) if modelled else None,
        "mah_per_kb": _ratio(math.fsum(shared), kb) if shared else None,
        "delivered_kb": kb,
        "spent": {name: spent[name] for name in sync_cost.OPERATION_NAMES if spent[name]},
        "latency": latency.figures(fleet.waits),
        "sync": sync_cost.entries(fleet.messages),
        "multiplier": sync_cost.multiplier(own, max(away, 0), traffic),
        "carriers": sync_cost.by_carrier(devices),
        "groups": group_costs.by_group(
            fleet.messages, fleet.groups, {row["device"]: row["traffic"] for row in sharing}
        ),
        "silent": sum(row["presence"]["silent"] for row in devices),
        "soc_pct_per_day": _soc_per_day(devices),
        "shortest_life_days": min(lives, default=None),
    }


def _soc_per_day(devices: list[Row]) -> float | None:
    """Measured fall of the state of charge: sum of drops over sum of the times they took."""
    batteries = [row["battery"] for row in devices if row["battery"]["soc_drop_ms"]]
    days = sum(row["soc_drop_ms"] for row in batteries) / watch.MS_PER_DAY
    return _ratio(math.fsum(row["soc_drop_pct"] for row in batteries), days)


def _tables(devices: list[Row]) -> list[Row]:
    """The current tables that were used, each once."""
    names = sorted({row["board"] for row in devices if row["board_label"]})
    return [asdict(board_table.load_board(name)) for name in names]


def _batteries(devices: list[Row], plan: FleetPlan) -> list[Row]:
    """The batteries that lives were modelled with, each once."""
    found = {}
    for row in devices:
        pack = plan.of(row["device"], row["name"]).pack
        if row["life"] is not None and pack is not None:
            found[pack.battery.name] = asdict(pack.battery)
    return [{**found[name], "assumed": plan.assumed} for name in sorted(found)]


def _days(row: Row) -> float:
    """Days from the first to the last sign of a device; those in its log where no clock was."""
    first, last = row["presence"]["first_wall_ms"], row["presence"]["last_wall_ms"]
    if first is not None and last is not None and last > first:
        return float(last - first) / watch.MS_PER_DAY
    return float(row["hours"]) / 24


def _ratio(amount: float, count: float) -> float | None:
    return amount / count if count > 0 else None


def _sum_or_none(values: Iterable[int | None]) -> int | None:
    listed = list(values)
    return None if None in listed else sum(value or 0 for value in listed)
