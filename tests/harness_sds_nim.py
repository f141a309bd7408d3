"""The line harness's verbs for dialect `sds-nim`; on CPython only, like what it calls."""

from drupelet.wire.sds import nim as sds_nim
from drupelet.wire.sds.farmhash import nim_hash
from harness_bloom import sizes
from harness_values import INT64_MAX, items, ranged, text, to_hex, unhex


def is_murmur(request):
    """The hash of a request: `farm`, unless it says `murmur`."""
    name = request.get("hash") or "farm"
    if name not in ("farm", "murmur"):
        raise ValueError("hash is farm or murmur")
    return name == "murmur"


def entry_from(entry):
    hint = entry.get("retrieval_hint")
    return sds_nim.Entry(
        text(entry["message_id"]), None if hint is None else unhex(hint),
        text(entry.get("sender_id")),
    )  # fmt: skip


def entry_to(entry):
    return {
        "message_id": entry.message_id.decode(),
        "retrieval_hint": None if entry.hint is None else to_hex(entry.hint),
        "sender_id": None if entry.sender_id is None else entry.sender_id.decode(),
    }


def encode(request):
    lamport = ranged(request, "lamport_timestamp", -INT64_MAX - 1, INT64_MAX, 0)
    bloom = request.get("bloom_filter")
    message = sds_nim.Message(
        text(request.get("sender_id")), text(request.get("message_id")),
        text(request.get("channel_id")), lamport,
        [entry_from(entry) for entry in items(request, "causal_history")],
        None if bloom is None else unhex(bloom),
        [entry_from(entry) for entry in items(request, "repair_request")],
        unhex(request.get("content") or ""),
    )  # fmt: skip
    return {"wire": to_hex(sds_nim.encode(message))}


def decode(request):
    got = sds_nim.decode(unhex(request["wire"]))
    return {
        "sender_id": got.sender_id.decode(),
        "message_id": got.message_id.decode(),
        "channel_id": got.channel_id.decode(),
        "lamport_timestamp": str(got.lamport),
        "causal_history": [entry_to(entry) for entry in got.causal],
        "bloom_filter": None if got.bloom is None else to_hex(got.bloom),
        "repair_request": [entry_to(entry) for entry in got.repair],
        "content": to_hex(got.content),
    }


def bloom(request):
    capacity, error_rate, k, bits = sizes(request, True)
    murmur = is_murmur(request)
    sent = sds_nim.NimBloom(capacity, error_rate, k, bits, murmur)
    for item in items(request, "items"):
        sent.add(text(item))
    received = sds_nim.Filter(bytes(sent.words), sent.k, sent.m)
    contains = [received.has(text(item), murmur) for item in items(request, "probes")]
    return {
        "bytes": to_hex(sent.wire()), "k_hashes": sent.k, "m_bits": sent.m, "contains": contains,
    }  # fmt: skip


def hashn(request):
    item, murmur = text(request["item"]), is_murmur(request)
    top = ranged(request, "max", 1, INT64_MAX + 1)
    step = abs(nim_hash(item + b" b", murmur)) % top * ranged(request, "n", 0, INT64_MAX)
    return {"value": (abs(nim_hash(item, murmur)) % top + step) % top}


def treq(request):
    times = sds_nim.NimTimes(text(request["participant_id"]), is_murmur(request))
    ident = text(request["message_id"])
    low = ranged(request, "t_min", 0, INT64_MAX)
    high = ranged(request, "t_max", low + 1, INT64_MAX)
    return {"offset_ms": times.t_req(ident, low, high)}


def tresp(request):
    times = sds_nim.NimTimes(text(request["participant_id"]), is_murmur(request))
    ident, sender = text(request["message_id"]), text(request["sender_id"])
    groups = ranged(request, "num_response_groups", 1, INT64_MAX)
    return {
        "offset_ms": times.t_resp(sender, ident, ranged(request, "t_max", 1, INT64_MAX)),
        "in_group": times.grouped(sender, ident, groups),
    }
