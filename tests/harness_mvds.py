"""The line harness's verbs for the `mvds` profiles: JSON-like dicts in and out.

Runs under CPython and both MicroPythons, like harness.py which calls it.
"""

from drupelet.base.errors import check
from drupelet.base.hashes_mvds import MvdsMessageHash
from drupelet.wire.mvds import payload as mvds
from drupelet.wire.protobuf import bytes_size
from harness_values import items, number, to_hex, to_hex_pieces, unhex
from mvds_payloads import Encoder, timestamp_of

PROFILES = {
    "mvds-1": mvds.MVDS_1,
    "mvds-nested": mvds.MVDS_NESTED,
    "mvds-5001": mvds.MVDS_5001,
}
LISTS = ((mvds.ACK, "acks"), (mvds.OFFER, "offers"), (mvds.REQUEST, "requests"))
# Tags, lengths and a timestamp of one message or entry, more than any profile needs.
OVERHEAD_SIZE = 64
MODULUS = 1 << 64


def timestamp_bytes(value: "int | str") -> bytes:
    """An int64 as 8 bytes little-endian; MicroPython's to_bytes knows no sign."""
    moment = number(value)
    if not -(MODULUS >> 1) <= moment < MODULUS >> 1:
        raise ValueError(f"timestamp beyond 64 bits: {moment}")
    return (moment % MODULUS).to_bytes(8, "little")


def timestamp_int(data: "bytes | bytearray") -> int:
    value = int.from_bytes(data, "little")
    return value - MODULUS if data[7] & 0x80 else value


def ids_of(request: "dict[str, object]", key: str) -> "list[bytes]":
    ids = [unhex(value) for value in items(request, key)]
    for ident in ids:
        if len(ident) != 32:
            raise ValueError(f"id of {len(ident)} bytes, an id has 32")
    return ids


def identify(group: bytes, timestamp: "bytes | bytearray", body: bytes) -> str:
    made = MvdsMessageHash()
    made.start_sized(group, 0, len(group), timestamp, 0)
    made.update(body, 0, len(body))
    out = bytearray(32)
    made.digest_into(out, 0)
    return to_hex(out)


def message_id(request: "dict[str, object]") -> "dict[str, object]":
    group = unhex(request["group_id"])
    moment = timestamp_bytes(request["timestamp"])
    return {"message_id": identify(group, moment, unhex(request["body"]))}


def encode(request: "dict[str, object]") -> "dict[str, object]":
    profile = PROFILES[request["profile"]]
    buf = bytearray(wire_size_max(profile, request))
    encoder = Encoder(profile)
    encoder.open(buf, 0, len(buf))
    for what, name in LISTS:
        for ident in ids_of(request, name):
            check(encoder.put_id(what, ident, 0), name)
    for message in items(request, "messages"):
        put_message(encoder, buf, profile, message)
    offers = items(request, "group_offers")
    if offers and not profile[mvds.GROUP]:
        raise ValueError("this profile has no group offers")
    for offer in offers:
        group = unhex(offer["group_id"])
        check(encoder.put_group(group, 0, len(group)), "group_offers")
        for ident in ids_of(offer, "message_ids"):
            check(encoder.put_group_offer(ident, 0), "group_offers")
    return {"wire": to_hex_pieces(buf, encoder.at)}


def wire_size_max(profile: "tuple[int, ...]", request: "dict[str, object]") -> int:
    """No payload of these entries is longer."""
    size = OVERHEAD_SIZE
    for _, name in LISTS:
        size += OVERHEAD_SIZE * (1 + len(items(request, name)))
    for message in items(request, "messages"):
        inside = len(message["group_id"]) + len(message["body"])
        inside += OVERHEAD_SIZE * (1 + len(items(message, "parents")))
        size += OVERHEAD_SIZE + bytes_size(profile[mvds.MESSAGE], inside)
    for offer in items(request, "group_offers"):
        inside = len(offer["group_id"]) + OVERHEAD_SIZE * len(items(offer, "message_ids"))
        size += OVERHEAD_SIZE + inside
    return size


def put_message(
    encoder: Encoder,
    buf: bytearray,
    profile: "tuple[int, ...]",
    message: "dict[str, object]",
) -> None:
    group = unhex(message["group_id"])
    body = unhex(message["body"])
    moment = timestamp_bytes(message["timestamp"])
    parents = ids_of(message, "parents")
    flags = mvds.METADATA if message.get("parents") is not None else 0
    if message.get("ephemeral"):
        flags = mvds.METADATA | mvds.EPHEMERAL
    if flags and not profile[9]:
        raise ValueError("this profile has no metadata")
    joined = b"".join(parents)
    at = encoder.put_message(
        group, 0, len(group), moment, 0, len(body), joined, len(parents), flags
    )
    check(at, "messages")
    buf[at : at + len(body)] = body


def decode(request: "dict[str, object]") -> "dict[str, object]":
    profile = PROFILES[request["profile"]]
    wire = unhex(request["wire"])
    found = {name: [] for _, name in LISTS}
    found["messages"] = []
    if profile[mvds.GROUP]:
        found["group_offers"] = []
    decoder = mvds.Payload(profile)
    decoder.open(wire, 0, len(wire))
    what = decoder.next()
    while what > 0:
        take(decoder, what, wire, found)
        what = decoder.next()
    check(what, "malformed payload")
    return found


def take(
    decoder: "mvds.Payload", what: int, wire: bytes, found: "dict[str, list[object]]"
) -> None:
    ident = to_hex(wire[decoder.at : decoder.at + 32])
    group = wire[decoder.group_at : decoder.group_at + decoder.group_size]
    if what == mvds.MESSAGE:
        found["messages"].append(message_of(decoder, wire, group))
    elif what == mvds.GROUP:
        found["group_offers"].append({"group_id": to_hex(group), "message_ids": []})
    elif what == mvds.GROUP_OFFER:
        found["group_offers"][-1]["message_ids"].append(ident)
    else:
        found[LISTS[what - 1][1]].append(ident)


def message_of(decoder: "mvds.Payload", wire: bytes, group: bytes) -> "dict[str, object]":
    body = wire[decoder.body_at : decoder.body_at + decoder.body_size]
    message = {
        "group_id": to_hex(group),
        "timestamp": timestamp_int(timestamp_of(decoder)),
        "body": to_hex(body),
        "message_id": identify(group, timestamp_of(decoder), body),
    }
    if decoder.flags:
        parents = []
        at = decoder.next_parent()
        while at >= 0:
            parents.append(to_hex(wire[at : at + 32]))
            at = decoder.next_parent()
        message["parents"] = parents
        message["ephemeral"] = decoder.flags & mvds.EPHEMERAL != 0
    return message
