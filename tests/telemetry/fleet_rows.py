"""Fleets as rows of the lake's tables, without any log: any size, with known truth."""

import random

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake import commit
from drupelet_tools.telemetry.tables import schemas
from telemetry import fleet

DAY_MS = 86_400_000
START_MS = 1_790_000_000_000
TRAFFIC = {1: 0, 2: 68, 3: 440, 4: 36, 5: 0, 7: 12, 15: 60}
HEALTH = (
    "errors", "blocks_lost", "segments_missing", "flash_programs", "flash_erases",
    "messages_created", "messages_delivered", "duplicates", "retransmits", "refused",
    "damaged_frames", "malformed_records", "events_lost",
)  # fmt: skip


def segment(device, number, first_ms, last_ms, offset_ms, **more):
    row = {"device": device, "boot": 1, "number": number, "first_ms": first_ms,
           "last_ms": last_ms, "wall_offset_ms": offset_ms, "wall_uncertainty_ms": 20,
           "blocks": 8, "blocks_bad": 0, "copies": 1, "events": 300, "wall_source": "anchor",
           "clock_jump": False}  # fmt: skip
    return {**row, **more}


def traffic(device, carrier, direction, kinds, boot=1):
    rows = []
    for kind, value in kinds.items():
        name, unit = codes.TRAFFIC_KINDS[kind]
        rows.append({"device": device, "boot": boot, "carrier": carrier, "direction": direction,
                     "kind": name, "unit": unit, "value": value})  # fmt: skip
    return rows


def health(device, **told):
    zero = dict.fromkeys(HEALTH, 0)
    return {"device": device, "boot": 1, "last_ms": 0, "reset_cause": 1, "heap_limit": 131_072,
            "heap_low": 37_000, "epoch_ms": 1_000, "board_kind": 1, **zero, **told}  # fmt: skip


def state_time(device, spent, boot=1):
    return [
        {"device": device, "boot": boot, "state": state, "name": codes.STATES[state], "ms": ms,
         "source": "counter"}
        for state, ms in spent.items()
    ]  # fmt: skip


def message(device, name, event, wall_ms, **more):
    row = {"device": device, "message": f"{name:08x}", "event": event, "boot": 1,
           "boot_ms": 0 if wall_ms is None else wall_ms - START_MS, "wall_ms": wall_ms,
           "wall_uncertainty_ms": 20, "peer": 0, "count": 1, "sends_max": 0,
           "first_sends": 0, "group_tag": None}  # fmt: skip
    return {**row, **more}


def demo_lake(root):
    """The four devices of `fleet`, written by hand from its constants."""
    rows = {name: [] for name in schemas.TABLES if name not in ("sources", "clocks", "events")}
    for me, (name, (device, carriers, board, _)) in enumerate(fleet.MEMBERS.items()):
        duty, own = fleet.events_of(name), device.hex()
        last = max(event[0] for event in duty.events)
        rows["segments"].append(segment(own, 1, 0, last, fleet.WALL_MS))
        rows["state_time"] += state_time(own, duty.ms)
        whole = {kind: size * fleet.ROUNDS for kind, size in fleet.ROUND_BYTES.items()}
        whole[0] = 3 * fleet.ROUNDS
        for carrier in carriers:
            for direction in codes.DIRECTIONS:
                rows["traffic"] += traffic(own, fleet.CARRIERS[carrier], direction, whole)
        rows["health"].append(
            health(own, last_ms=last, board_kind=9 if board == "host" else 1,
                   messages_created=fleet.ROUNDS, messages_delivered=4 * fleet.ROUNDS,
                   flash_programs=9 * fleet.ROUNDS, duplicates=2 * me)
        )  # fmt: skip
        names = {fleet.box.CREATED: "created", fleet.box.DELIVERED: "delivered"}
        for at_ms, code, peer, _, told in duty.events:
            if code in names:
                at = fleet.WALL_MS + at_ms
                rows["messages"].append(message(own, told, names[code], at, peer=peer))
    facts = {
        told[0].hex(): {"name": name, "carriers": ", ".join(fleet.CARRIERS[c] for c in told[1]),
                        "board": told[2]}
        for name, told in fleet.MEMBERS.items()
    }  # fmt: skip
    commit.append(root, rows, "demo", names=facts)
    return root


def large_lake(root, devices, days=20, seed=1, upgraded=()):
    """A fleet of boards with batteries: some die, one is silent, one talks too much.

    upgraded: numbers of devices that got a firmware after UPGRADE_DAY which takes more; the logs
    of the others say that they have the one before. Without, no log says which it has.
    """
    generator = random.Random(seed)
    rows = {name: [] for name in schemas.TABLES if name not in ("sources", "clocks", "events")}
    names = {}
    for at in range(devices):
        own = f"{0xD0000000 + at:08x}"
        kind = ("esp32", "esp32c3", "pico-w", "nrf52840-sx1262")[at % 4]
        carrier = "lora" if kind.startswith("nrf") else "mqtt"
        names[own] = {"name": f"node-{at:03}", "carriers": carrier, "board": kind}
        if at in upgraded:
            _upgraded(rows, own, at, carrier, days, generator)
        else:
            _device(rows, own, at, carrier, days, generator)
            rows["health"][-1].update(FIRMWARE_BEFORE if upgraded else {})
    _deliveries(rows, list(names), generator)
    commit.append(root, rows, f"large {devices} {days} {seed}", names=names)
    return root


def _device(rows, own, at, carrier, days, generator):
    seen = days - 6 if at == 3 else days
    for day in range(seen):
        rows["segments"].append(segment(own, day, day * DAY_MS, (day + 1) * DAY_MS - 1, START_MS))
    whole = seen * DAY_MS
    busy = generator.uniform(0.5, 1.5) * (20 if at == 7 else 1)
    spent = {2: int(whole * 0.004 * busy), 3: int(whole * 0.002 * busy),
             4: int(whole * 0.0005 * busy), 5: int(whole * 0.0002),
             6: int(whole * 0.001)}  # fmt: skip
    spent[0] = whole - sum(spent.values())
    rows["state_time"] += state_time(own, spent)
    for direction in codes.DIRECTIONS:
        sizes = {kind: int(size * seen * 40 * busy) for kind, size in TRAFFIC.items()}
        sizes[1] = int(sum(sizes.values()) * 1.1)
        rows["traffic"] += traffic(own, carrier, direction, sizes)
    fall = generator.uniform(2, 9)
    for hour in range(0, seen * 24, 6):
        mv = 4050 - fall * hour / 24 + generator.gauss(0, 4)
        rows["battery"].append(
            {"device": own, "boot": 1, "boot_ms": hour * 3_600_000,
             "wall_ms": START_MS + hour * 3_600_000, "wall_uncertainty_ms": 20, "mv": round(mv)}
        )  # fmt: skip
    rows["health"].append(
        health(own, last_ms=whole, messages_created=40, messages_delivered=400,
               segments_missing=3 if at == 5 else 0, retransmits=at, battery_low_mv=3900)
    )  # fmt: skip


UPGRADE_DAY = 12
UPGRADE_COST = 1.35  # times as long awake
FIRMWARE_BEFORE = {"firmware": "0.1.0", "firmware_set": "small"}
FIRMWARE_NOW = {"firmware": "0.2.0", "firmware_set": "small"}


def _upgraded(rows, own, at, carrier, days, generator):
    """A device with two boots: what the second adds stands behind what the first did."""
    before, after = ({name: [] for name in rows} for _ in range(2))
    draws = generator.getstate()
    _device(before, own, at, carrier, UPGRADE_DAY, generator)
    generator.setstate(draws)  # the same place, battery and habits
    _device(after, own, at, carrier, days - UPGRADE_DAY, generator)
    before["health"][-1].update(FIRMWARE_BEFORE)
    after["health"][-1].update(FIRMWARE_NOW)
    fallen = before["battery"][0]["mv"] - before["battery"][-1]["mv"]
    for table in after.values():
        for row in table:
            row["boot"] = 2
    for row in after["segments"]:
        row["number"] += UPGRADE_DAY
        row["wall_offset_ms"] += UPGRADE_DAY * DAY_MS
    for row in after["battery"]:
        row["wall_ms"] += UPGRADE_DAY * DAY_MS
        row["mv"] -= fallen
    awake = [row for row in after["state_time"] if row["state"] in (2, 3, 4)]
    for row in awake:
        row["ms"] = int(row["ms"] * UPGRADE_COST)
    for share, boot in ((UPGRADE_DAY / days, before), (1 - UPGRADE_DAY / days, after)):
        for name in ("messages_created", "messages_delivered"):
            boot["health"][-1][name] = round(boot["health"][-1][name] * share)
    for name, table in rows.items():
        table.extend(before[name] + after[name])


def _deliveries(rows, devices, generator):
    """Each device writes 40 messages that nine others get, one in twenty never."""
    for at, author in enumerate(devices):
        for turn in range(40):
            name = at << 16 | turn
            born = START_MS + turn * DAY_MS // 4
            rows["messages"].append(message(author, name, "created", born))
            for step in range(1, 10):
                other = devices[(at // 10 * 10 + (at + step) % 10) % len(devices)]
                if other == author:
                    continue
                sends = 1 + int(generator.expovariate(1.5))
                rows["messages"].append(
                    message(author, name, "sent", born, peer=step, count=sends, sends_max=sends)
                )
                if generator.random() > 0.05:
                    came = born + int(generator.expovariate(1 / 60_000))
                    rows["messages"].append(message(other, name, "delivered", came, peer=1))
                    rows["messages"].append(message(author, name, "acked", came, peer=step))
