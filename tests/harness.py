"""The line harness: one request per line on stdin, one reply per line on stdout (DESIGN 15).

    verb {json}   ->   ok {json}   or   error {"kind": "PeerError", "message": "..."}

It runs under CPython and both MicroPythons alike and prints the same bytes on each: keys are
sorted, bytes are lower-case hex. It imports the core, and for the `cobs_` verbs the framing.
Profiles of other families, and the verbs of sealed links, have files of their own, loaded when the
first request names one.
"""

import gc
import json
import sys
from binascii import hexlify, unhexlify

TESTS = __file__.rpartition("/")[0] or "."
for folder in ("/../transports", "/../firmware", ""):
    sys.path.insert(0, TESTS + folder)

from drupelet.errors import E_PEER, CapacityError, DrupeletError, check  # noqa: E402
from drupelet.hashes import Blake2s, MessageHash, group_id_into  # noqa: E402
from drupelet.limits import (  # noqa: E402
    BODY_SIZE_MAX,
    DESCRIPTOR_SIZE_MAX,
    ID_SIZE,
    RECORD_HEADER_SIZE,
    RECORD_IDS_MAX,
)
from drupelet.wire import bsp1  # noqa: E402

LISTS = ((bsp1.ACK, "acks"), (bsp1.OFFER, "offers"), (bsp1.REQUEST, "requests"))
TYPES = {bsp1.ACK: "ACK", bsp1.OFFER: "OFFER", bsp1.REQUEST: "REQUEST"}
TIMESTAMP_MAX = (1 << 63) - 1


class RequestError(ValueError):
    """A request that makes no sense, whatever the profile."""


def to_hex(data):
    return hexlify(bytes(data)).decode()


def sized(data, size_max, what, size=-1):
    """Bytes of a hex value, of the size that is wanted."""
    data = unhexlify(data)
    if len(data) > size_max or (size >= 0 and len(data) != size):
        raise CapacityError(f"{what} of {len(data)} bytes")
    return data


def timestamp_bytes(value):
    number = int(str(value))
    if not 0 <= number <= TIMESTAMP_MAX:
        raise CapacityError(f"timestamp {number} is not 0..2^63-1")
    return number.to_bytes(8, "big")


def identify(group, timestamp, body):
    made = MessageHash()
    made.start(group, 0, timestamp, 0, len(body))
    made.update(body, 0, len(body))
    out = bytearray(ID_SIZE)
    made.digest_into(out, 0)
    return to_hex(out)


class Reading:
    """Stands where a link does for the wire profile: keeps what it is given, in order."""

    def __init__(self):
        self.records = []
        self._ids = []
        self.left = 0  # bytes behind the last whole record

    def count_record(self, sent, kind, size):
        """A record ended: its ids are together."""
        assert not sent
        if kind in TYPES:
            self.records.append({"type": TYPES[kind], "ids": self._ids})
            assert len(self._ids) * ID_SIZE + RECORD_HEADER_SIZE == size
        self._ids = []

    def on_ack(self, buf, at):
        self._ids.append(to_hex(buf[at : at + ID_SIZE]))

    on_offer = on_request = on_ack

    def on_message(self, groups, group_at, stamps, stamp_at, buf, at, size):
        group = bytes(groups[group_at : group_at + ID_SIZE])
        timestamp = bytes(stamps[stamp_at : stamp_at + 8])
        body = bytes(buf[at : at + size])
        self.records.append(
            {
                "type": "MESSAGE",
                "group_id": to_hex(group),
                "timestamp": int.from_bytes(timestamp, "big"),
                "body": to_hex(body),
                "message_id": identify(group, timestamp, body),
            }
        )


class Bsp1:
    """Profile `bsp-1`."""

    @staticmethod
    def group_id(request):
        client = sized(request["client_id"], ID_SIZE, "client id", ID_SIZE)
        descriptor = sized(request["descriptor"], DESCRIPTOR_SIZE_MAX, "descriptor")
        out = bytearray(ID_SIZE)
        group_id_into(out, client, descriptor, len(descriptor))
        return {"group_id": to_hex(out)}

    @staticmethod
    def message_id(request):
        group = sized(request["group_id"], ID_SIZE, "group id", ID_SIZE)
        body = sized(request["body"], BODY_SIZE_MAX, "body")
        return {"message_id": identify(group, timestamp_bytes(request["timestamp"]), body)}

    @staticmethod
    def encode(request):
        wire = b""
        for kind, name in LISTS:
            ids = [sized(id, ID_SIZE, "id", ID_SIZE) for id in request.get(name) or ()]
            for at in range(0, len(ids), RECORD_IDS_MAX):
                wire += record(kind, b"".join(ids[at : at + RECORD_IDS_MAX]))
        for message in request.get("messages") or ():
            group = sized(message["group_id"], ID_SIZE, "group id", ID_SIZE)
            body = sized(message["body"], BODY_SIZE_MAX, "body")
            wire += record(bsp1.MESSAGE, group + timestamp_bytes(message["timestamp"]) + body)
        return {"wire": to_hex(wire)}

    @staticmethod
    def decode(request):
        wire = bytearray(unhexlify(request["wire"]))
        reading = Reading()
        check(bsp1.parse(reading, wire, 0, len(wire)), "not a record of bsp-1")
        found = {name: [] for _, name in LISTS}
        found["messages"] = []
        for made in reading.records:
            name = made.pop("type").lower() + "s"
            found[name] += made.get("ids", [made])
        return found

    @staticmethod
    def feed(request):
        stream = unhexlify(request["stream"])
        sizes = [int(str(size)) for size in request.get("pieces") or ()] or [len(stream) or 1]
        if min(sizes) < 1:
            raise RequestError("a piece has 1 byte at least")
        reading = Reading()
        held = bytearray()
        at = turn = code = 0
        while at < len(stream) and not code:
            held += stream[at : at + sizes[turn % len(sizes)]]
            at += sizes[turn % len(sizes)]
            turn += 1
            code = take_records(reading, held)
            held = held[len(held) - reading.left :]
        error = "PeerError" if code else None
        return {"records": reading.records, "error": error, "truncated": not code and held != b""}


def record(kind, payload):
    out = bytearray(RECORD_HEADER_SIZE) + payload
    bsp1.put_header(out, 0, kind, len(payload))
    assert bsp1.check_record(out, 0, len(out)) == len(payload)
    return bytes(out)


def take_records(reading, held):
    """Read every whole record of `held`; `reading.left` bytes are the beginning of the next."""
    at = code = 0
    while at + RECORD_HEADER_SIZE <= len(held) and not code:
        size = RECORD_HEADER_SIZE + (held[at + 2] << 8 | held[at + 3])
        if at + size > len(held):
            # What the header says wrong is wrong at once: try it with a payload of zeros.
            head = held[at : at + RECORD_HEADER_SIZE]
            code = min(bsp1.check_record(head + bytes(size), 0, size), 0)
            break
        code = bsp1.parse(reading, held, at, at + size)
        at += size
    if at < len(held) and held[at] != bsp1.VERSION:
        code = E_PEER
    reading.left = len(held) - at
    return code


def family(request):
    """What answers for the request's profile."""
    profile = request["profile"]
    if profile == "bsp-1":
        return Bsp1
    if profile == "bsp-0":
        return __import__("harness_bsp0")
    if profile == "compact-1":
        return __import__("harness_compact")
    if profile.startswith("mvds-"):
        return __import__("harness_mvds")
    if profile in ("sds", "sds-nim"):
        return dialect(profile)
    raise RequestError(f"unknown profile {profile}")


def dialect(name):
    """What answers for a dialect of channels."""
    if name == "sds":
        return __import__("harness_sds")
    if name == "sds-nim" and sys.implementation.name == "cpython":
        return __import__("harness_sds_nim")
    raise RequestError(f"unknown dialect {name}")


def blake2s(request):
    made = Blake2s()
    made.start(unhexlify(request.get("key") or ""))
    data = unhexlify(request["data"])
    made.update(data, 0, len(data))
    out = bytearray(ID_SIZE)
    made.digest_into(out, 0)
    return {"digest": to_hex(out)}


def cobs_encode(request):
    from drupelet_transports import cobs

    return {"wire": to_hex(cobs.cobs_encode(unhexlify(request["data"])))}


def cobs_decode(request):
    from drupelet_transports import cobs

    return {"data": to_hex(cobs.cobs_decode(unhexlify(request["wire"])))}


DIALECT_VERBS = ("bloom", "hashn", "treq", "tresp")
FAMILY_VERBS = ("group_id", "message_id", "encode", "decode", "feed")
SEAL_VERBS = ("hmac", "hkdf", "ccm_seal", "ccm_open")
VERBS = {"blake2s": blake2s, "cobs_encode": cobs_encode, "cobs_decode": cobs_decode}


def reply_to(verb, request):
    if verb in VERBS:
        return VERBS[verb](request)
    if verb in SEAL_VERBS:
        return __import__("harness_seal").VERBS[verb](request)
    if verb in DIALECT_VERBS:
        return getattr(dialect(request["dialect"]), verb)(request)
    call = getattr(family(request), verb, None) if verb in FAMILY_VERBS else None
    if call is None:
        raise RequestError(f"unknown verb {verb}")
    return call(request)


def emit(value):
    """Print JSON with sorted keys: MicroPython's dictionaries have no order.

    Piece by piece, because a reply may be half of a board's heap.
    """
    before = ""
    if isinstance(value, dict):
        for key in sorted(value):
            sys.stdout.write((before or "{") + json.dumps(key) + ": ")
            emit(value[key])
            before = ", "
        sys.stdout.write("}" if value else "{}")
    elif isinstance(value, list):
        for item in value:
            sys.stdout.write(before or "[")
            emit(item)
            before = ", "
        sys.stdout.write("]" if value else "[]")
    elif isinstance(value, str):
        sys.stdout.write(quoted(value))
    else:
        sys.stdout.write(json.dumps(value))


def quoted(value):
    """A JSON string in ASCII: MicroPython's dumps would write UTF-8."""
    if len(value) == len(value.encode()):
        return json.dumps(value)
    parts = []
    for sign in value:
        point = ord(sign)
        if point < 128:
            parts.append(json.dumps(sign)[1:-1])
        elif point < 0x10000:
            parts.append(f"\\u{point:04x}")
        else:
            point -= 0x10000
            parts.append(f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}")
    return '"' + "".join(parts) + '"'


def answer(line):
    verb, _, rest = line.partition(" ")
    try:
        status, reply = "ok ", reply_to(verb, json.loads(rest))
    except (DrupeletError, RequestError) as error:
        kind = "ValueError" if isinstance(error, RequestError) else type(error).__name__
        status, reply = "error ", {"kind": kind, "message": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError):
        # Which of them, and in what words, is up to the interpreter.
        status, reply = "error ", {"kind": "ValueError", "message": "not such a request"}
    sys.stdout.write(status)
    emit(reply)
    sys.stdout.write("\n")


def main():
    for line in sys.stdin:
        if line.strip():
            gc.collect()
            answer(line.strip())


main()
