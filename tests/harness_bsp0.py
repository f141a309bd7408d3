"""The line harness's verbs for `bsp-0`, on CPython only: JSON-like dicts in and out."""

from drupelet.base.errors import PeerError
from drupelet.wire.bsp0 import records as bsp0
from harness_values import items, number, pieces, ranged, unhex

LISTS = {bsp0.ACK: "acks", bsp0.OFFER: "offers", bsp0.REQUEST: "requests"}
TYPES = ("ACK", "MESSAGE", "OFFER", "REQUEST", "VERSIONS", "PRIORITY")


def id_of(value: str) -> bytes:
    ident = unhex(value)
    if len(ident) != 32:
        raise ValueError(f"id of {len(ident)} bytes, an id has 32")
    return ident


def timestamp_bytes(value: "object") -> bytes:
    moment = number(value)
    if not 0 <= moment < 1 << 63:
        raise ValueError(f"timestamp {moment} is not of 63 bits")
    return moment.to_bytes(8, "big")


def group_id(request: "dict[str, object]") -> "dict[str, object]":
    client = request["client_id"]
    major = ranged(request, "major_version", 0, (1 << 31) - 1, 0)
    descriptor = unhex(request["descriptor"])
    if not isinstance(client, str) or not 0 < len(client.encode()) <= bsp0.CLIENT_ID_SIZE_MAX:
        raise ValueError("a client id has 1 to 100 bytes")
    if len(descriptor) > bsp0.DESCRIPTOR_SIZE_MAX:
        raise ValueError(f"descriptor of {len(descriptor)} bytes, at most 16384")
    return {"group_id": bsp0.group_id(client, major, descriptor).hex()}


def message_id(request: "dict[str, object]") -> "dict[str, object]":
    moment = timestamp_bytes(request["timestamp"])
    group = id_of(request["group_id"])
    made = bsp0.message_id(group, moment, unhex(request["body"]))
    return {"message_id": made.hex()}


def encode(request: "dict[str, object]") -> "dict[str, object]":
    wire = b""
    for kind, name in LISTS.items():
        ids = [id_of(value) for value in items(request, name)]
        for at in range(0, len(ids), bsp0.IDS_MAX):
            wire += bsp0.record(kind, b"".join(ids[at : at + bsp0.IDS_MAX]))
    for message in items(request, "messages"):
        payload = id_of(message["group_id"]) + timestamp_bytes(message["timestamp"])
        payload += unhex(message["body"])
        if not bsp0.is_well_formed(bsp0.MESSAGE, payload):
            raise ValueError("a body has 1 to 32768 bytes")
        wire += bsp0.record(bsp0.MESSAGE, payload)
    return {"wire": wire.hex()}


def fields_of(kind: int, payload: bytes) -> "dict[str, object]":
    """What a record holds, by the names of the harness."""
    if kind == bsp0.MESSAGE:
        group, moment, body = payload[:32], payload[32:40], payload[40:]
        return {
            "group_id": group.hex(),
            "timestamp": int.from_bytes(moment, "big"),
            "body": body.hex(),
            "message_id": bsp0.message_id(group, moment, body).hex(),
        }
    if kind == bsp0.VERSIONS:
        return {"versions": list(payload)}
    if kind == bsp0.PRIORITY:
        return {"nonce": payload.hex()}
    return {"ids": [payload[at : at + 32].hex() for at in range(0, len(payload), 32)]}


def decode(request: "dict[str, object]") -> "dict[str, object]":
    reader = bsp0.Reader()
    reader.push(unhex(request["wire"]))
    found = {"acks": [], "offers": [], "requests": [], "messages": []}
    while reader.next():
        fields = fields_of(reader.kind, reader.payload)
        if reader.kind == bsp0.MESSAGE:
            found["messages"].append(fields)
        elif reader.kind in LISTS:
            found[LISTS[reader.kind]] += fields["ids"]
    if reader.is_cut:
        raise PeerError("ends within a record")
    return found


def feed(request: "dict[str, object]") -> "dict[str, object]":
    stream = unhex(request["stream"])
    sizes = pieces(request, len(stream))
    reader = bsp0.Reader()
    records = []
    error = None
    at = turn = 0
    try:
        while at < len(stream):
            size = sizes[turn % len(sizes)]
            reader.push(stream[at : at + size])
            at += size
            turn += 1
            while reader.next():
                record = fields_of(reader.kind, reader.payload)
                record["type"] = TYPES[reader.kind]
                records.append(record)
    except PeerError as wrong:
        error = type(wrong).__name__
    return {"records": records, "error": error, "truncated": error is None and reader.is_cut}
