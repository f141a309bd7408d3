"""The line harness's verbs for dialect `sds-nim`; on CPython only, like what it calls."""

from binascii import hexlify, unhexlify

from drupelet.wire import sds_nim
from drupelet.wire.farmhash import nim_hash

LAMPORT_MAX = (1 << 63) - 1


def to_hex(data):
    return hexlify(data).decode()


def text(value):
    return (value or "").encode()


def is_murmur(request):
    """The hash of a request: `farm`, unless it says `murmur`."""
    name = request.get("hash") or "farm"
    if name not in ("farm", "murmur"):
        raise ValueError("hash is farm or murmur")
    return name == "murmur"


def entry_from(entry):
    hint = entry.get("retrieval_hint")
    return sds_nim.Entry(
        text(entry["message_id"]), None if hint is None else unhexlify(hint),
        text(entry.get("sender_id")),
    )  # fmt: skip


def entry_to(entry):
    return {
        "message_id": entry.message_id.decode(),
        "retrieval_hint": None if entry.hint is None else to_hex(entry.hint),
        "sender_id": None if entry.sender_id is None else entry.sender_id.decode(),
    }


def encode(request):
    lamport = int(str(request.get("lamport_timestamp") or 0))
    if not -LAMPORT_MAX - 1 <= lamport <= LAMPORT_MAX:
        raise ValueError("lamport_timestamp")
    bloom = request.get("bloom_filter")
    message = sds_nim.Message(
        text(request.get("sender_id")), text(request.get("message_id")),
        text(request.get("channel_id")), lamport,
        [entry_from(entry) for entry in request.get("causal_history") or ()],
        None if bloom is None else unhexlify(bloom),
        [entry_from(entry) for entry in request.get("repair_request") or ()],
        unhexlify(request.get("content") or ""),
    )  # fmt: skip
    return {"wire": to_hex(sds_nim.encode(message))}


def decode(request):
    got = sds_nim.decode(unhexlify(request["wire"]))
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
    made = sds_nim.NimBloom(
        int(request["capacity"]), float(request["error_rate"]), int(request.get("k") or 0),
        int(request.get("bits_per_element") or 0), is_murmur(request),
    )  # fmt: skip
    for item in request.get("items") or ():
        made.add(text(item))
    contains = [made.has(text(item)) for item in request.get("probes") or ()]
    return {
        "bytes": to_hex(made.wire()), "k_hashes": made.k, "m_bits": made.m, "contains": contains,
    }  # fmt: skip


def hashn(request):
    item, murmur = text(request["item"]), is_murmur(request)
    top = int(request["max"])
    step = abs(nim_hash(item + b" b", murmur)) % top * int(request["n"])
    return {"value": (abs(nim_hash(item, murmur)) % top + step) % top}


def treq(request):
    times = sds_nim.NimTimes(text(request["participant_id"]), is_murmur(request))
    ident = text(request["message_id"])
    return {"offset_ms": times.t_req(ident, int(request["t_min"]), int(request["t_max"]))}


def tresp(request):
    times = sds_nim.NimTimes(text(request["participant_id"]), is_murmur(request))
    ident, sender = text(request["message_id"]), text(request["sender_id"])
    return {
        "offset_ms": times.t_resp(sender, ident, int(request["t_max"])),
        "in_group": times.grouped(sender, ident, int(request["num_response_groups"])),
    }
