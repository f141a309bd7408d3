"""Black boxes of a small fleet with known truth: four devices, each with its own carriers."""

import json

from telemetry import box_writer as box

WALL_MS = 1_795_000_000_000
# name: (device id, carriers by number, board, wait until it has a message of another, ms)
MEMBERS = {
    "A": (bytes.fromhex("a0000001"), (0,), "esp32", 1_000),
    "B": (bytes.fromhex("b0000002"), (1,), "esp32", 2_500),
    "C": (bytes.fromhex("c0000003"), (0, 2), "esp32", 14_000),
    "host": (bytes.fromhex("f0000009"), (0, 1, 2), "host", 400),
}
CARRIERS = ("serial", "mqtt", "stick")
ROUNDS = 30
EPOCH_MS = 1_000
# Bytes of one round per kind (SPEC.md 6): carrier, ack, message, offer, request, link, telemetry
ROUND_BYTES = {1: 640, 2: 68, 3: 440, 4: 36, 5: 0, 7: 12, 15: 60}
BOOT_GAP_MS = 3_000


def names():
    return {
        device.hex(): {"name": name, "carrier": [CARRIERS[c] for c in carriers], "board": board}
        for name, (device, carriers, board, _) in MEMBERS.items()
    }


def results():
    every = ROUNDS * len(MEMBERS)
    return {
        name: {"expected": every, "delivered": every, "duplicates": 2 * at, "out_of_order": 0}
        for at, name in enumerate(MEMBERS)
    }


def message_id(author, turn):
    return (author + 1) << 24 | 0x5A0000 | turn


def events_of(name):
    """Events of one boot; the state times are kept in the Duty that is returned."""
    me = list(MEMBERS).index(name)
    _device, carriers, board, wait_ms = MEMBERS[name]
    kind = 9 if board == "host" else 1
    duty = box.Duty()
    log = duty.events
    log += [(0, box.BOOT, 1, 1, 0), (0, box.DESCRIPTOR, 1, 0, 131_072)]
    log += [(0, box.DESCRIPTOR, 3, kind, 0)]
    for turn in range(ROUNDS):
        start = turn * EPOCH_MS
        duty.enter(6, 12)
        log.append((duty.now, box.CREATED, 0, 0, message_id(me, turn)))
        log.append((duty.now, box.DELIVERED, 0, 0, message_id(me, turn)))
        duty.enter(2, 60)
        duty.enter(4, 20 + 15 * len(carriers))
        duty.enter(3, 70)
        duty.enter(5, 9)
        for author in range(len(MEMBERS)):
            # Those of one author come in pairs, every other round.
            newest = turn - wait_ms // EPOCH_MS - 1
            for born in (newest - 1, newest):
                if author != me and (turn + author) % 2 and born >= 0:
                    log.append((duty.now, box.DELIVERED, author + 1, 0, message_id(author, born)))
        log.append((duty.now, box.HEAP_LOW, 0, 0, 40_000 - turn * 100))
        duty.enter(1, start + EPOCH_MS - duty.now)
        if turn % 10 == 9:
            write_counters(duty, carriers, turn + 1, me)
    return duty


def write_counters(duty, carriers, rounds, me):
    duty.write_counters()
    log = duty.events
    for index, value in ((8, rounds * 9), (10, rounds), (11, rounds * 4), (12, 2 * me)):
        log.append(box.counter(duty.now, index, value))
    for carrier in carriers:
        for direction in (0, 1):
            for kind, size in ROUND_BYTES.items():
                index = box.traffic_index(carrier, direction, kind)
                log.append(box.counter(duty.now, index, size * rounds))
            log.append(box.counter(duty.now, box.traffic_index(carrier, direction, 0), rounds * 3))


def write(folder, only=None):
    """Write the fleet's segments as files; returns their paths by device name."""
    written = {}
    for name, (device, *_rest) in MEMBERS.items():
        if only and name not in only:
            continue
        datas = box.segments(
            device, 1, events_of(name).events, per_segment=2, wall_ms=WALL_MS, uncertainty_ms=20
        )
        paths = [folder / f"{device.hex()}-1-{at + 1}.dbx" for at in range(len(datas))]
        for path, data in zip(paths, datas, strict=True):
            path.write_bytes(data)
        written[name] = paths
    (folder / "names.json").write_text(json.dumps(names()), "utf-8")
    return written
