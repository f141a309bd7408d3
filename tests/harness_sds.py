"""The line harness's verbs for channels: messages, filters, hashes and repair times of SDS.

Runs under CPython and both MicroPythons; dialect `sds-nim` (harness_sds_nim.py) on hosts only.
"""

from drupelet.base.errors import check
from drupelet.base.hashes_sds import Identity
from drupelet.wire.sds import message as sds
from drupelet.wire.sds.bloom import Bloom, modulo
from harness_bloom import sizes
from harness_values import INT64_MAX, items, number, ranged, text, to_hex, to_hex_pieces, unhex

ENTRIES = ((sds.CAUSAL, "causal_history"), (sds.REPAIR, "repair_request"))
OVERHEAD_SIZE = 64
LAMPORT_MAX = (1 << 64) - 1


def texts(data, at, size):
    return bytes(data[at : at + size]).decode()


def encode(request):
    size = OVERHEAD_SIZE
    for key in ("sender_id", "message_id", "channel_id", "bloom_filter", "content"):
        size += OVERHEAD_SIZE + len(text(request.get(key)))
    entries = []
    for kind, key in ENTRIES:
        for entry in items(request, key):
            entries.append((kind, entry))
            for part in ("message_id", "retrieval_hint", "sender_id"):
                size += OVERHEAD_SIZE + len(text(entry.get(part)))
    encoder = sds.Encoder()
    encoder.open(bytearray(size), size)
    for field, key in enumerate(("sender_id", "message_id", "channel_id"), 1):
        value = text(request.get(key))
        check(encoder.put_text(field, value, 0, len(value)), key)
    if request.get("lamport_timestamp") is not None:
        lamport = number(request["lamport_timestamp"])
        if not 0 <= lamport <= LAMPORT_MAX:
            raise ValueError("lamport_timestamp")
        check(encoder.put_lamport(lamport.to_bytes(8, "little")), "lamport_timestamp")
    put_entries(encoder, entries, sds.CAUSAL)
    put_bytes(encoder, sds.BLOOM, request.get("bloom_filter"))
    put_entries(encoder, entries, sds.REPAIR)
    put_bytes(encoder, sds.CONTENT, request.get("content"))
    return {"wire": to_hex_pieces(encoder.buf, encoder.at)}


def put_bytes(encoder, field, value):
    if value is not None:
        data = unhex(value)
        check(encoder.put_bytes(field, data, 0, len(data)), "bytes")


def put_entries(encoder, entries, kind):
    for wanted, entry in entries:
        if wanted == kind:
            ident = text(entry["message_id"])
            hint, sender = entry.get("retrieval_hint"), entry.get("sender_id")
            hint = None if hint is None else unhex(hint)
            sender = None if sender is None else text(sender)
            code = encoder.put_entry(
                kind, ident, 0, len(ident), hint or b"", 0, -1 if hint is None else len(hint),
                sender or b"", 0, -1 if sender is None else len(sender),
            )  # fmt: skip
            check(code, "entry")


def decode(request):
    wire = unhex(request["wire"])
    got = sds.Decoder()
    check(got.open(wire, 0, len(wire)), "malformed message")
    found = {
        "sender_id": texts(wire, got.sender_at, got.sender_size),
        "message_id": texts(wire, got.id_at, got.id_size),
        "channel_id": texts(wire, got.channel_at, got.channel_size),
        "lamport_timestamp": None,
        "bloom_filter": None,
        "content": None,
    }
    if got.has_lamport:
        found["lamport_timestamp"] = str(int.from_bytes(got.lamport, "little"))
    if got.bloom_at >= 0:
        found["bloom_filter"] = to_hex(wire[got.bloom_at : got.bloom_at + got.bloom_size])
    if got.content_at >= 0:
        found["content"] = to_hex(wire[got.content_at : got.content_at + got.content_size])
    for kind, key in ENTRIES:
        found[key] = []
        got.rewind()
        while got.next(kind):
            found[key].append(entry_of(got, wire))
    return found


def entry_of(got, wire):
    entry = {
        "message_id": texts(wire, got.entry_at, got.entry_size),
        "retrieval_hint": None,
        "sender_id": None,
    }
    if got.hint_at >= 0:
        entry["retrieval_hint"] = to_hex(wire[got.hint_at : got.hint_at + got.hint_size])
    if got.entry_sender_at >= 0:
        at = got.entry_sender_at
        entry["sender_id"] = texts(wire, at, got.entry_sender_size)
    return entry


def bloom(request):
    capacity, _, k, bits = sizes(request, False)
    bloom_filter = Bloom(capacity, bits, k)
    key = bytearray(8)
    for item in items(request, "items"):
        ident = text(item)
        bloom_filter.key_into(key, 0, ident, 0, len(ident))
        bloom_filter.add(key, 0)
    contains = []
    for item in items(request, "probes"):
        ident = text(item)
        bloom_filter.key_into(key, 0, ident, 0, len(ident))
        contains.append(bloom_filter.has(bloom_filter.bits, 0, key, 0))
    return {
        "bytes": to_hex(bloom_filter.bits),
        "k_hashes": k,
        "m_bits": bloom_filter.m,
        "contains": contains,
    }


def hashn(request):
    key = bytearray(8)
    item = text(request["item"])
    Bloom(1, 1, 1).key_into(key, 0, item, 0, len(item))
    top = ranged(request, "max", 1, INT64_MAX + 1)
    step = ranged(request, "n", 0, INT64_MAX) * modulo(key, 4, 4, top)
    return {"value": (modulo(key, 0, 4, top) + step) % top}


def treq(request):
    ident = text(request["message_id"])
    times = Identity(text(request["participant_id"]))
    low = ranged(request, "t_min", 0, INT64_MAX)
    high = ranged(request, "t_max", low + 1, INT64_MAX)
    return {"offset_ms": times.t_req_ms(ident, 0, len(ident), low, high)}


def tresp(request):
    ident, sender = text(request["message_id"]), text(request["sender_id"])
    times = Identity(text(request["participant_id"]))
    high = ranged(request, "t_max", 1, INT64_MAX)
    groups = ranged(request, "num_response_groups", 1, INT64_MAX)
    return {
        "offset_ms": times.t_resp_ms(sender, 0, len(sender), ident, 0, len(ident), high),
        "in_group": times.in_group(sender, 0, len(sender), ident, 0, len(ident), groups),
    }
