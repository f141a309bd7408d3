"""The line harness (docs/DESIGN.md 19): a request per line on stdin, a reply per line on stdout.

    verb {json}   ->   ok {json}   or   error {"kind": "PeerError", "message": "..."}

It runs under CPython and both MicroPythons alike and prints the same bytes on each: keys are
sorted, bytes are lower-case hex. Whatever a line holds, it is answered with one line. It imports
the core, and for the `cobs_` verbs the framing. Profiles of other families, and the verbs of
sealed links, have files of their own, loaded when the first request names one.
"""

import gc
import sys

TESTS = __file__.rpartition("/")[0] or "."
for folder in ("/../transports", "/../firmware", ""):
    sys.path.insert(0, TESTS + folder)

from drupelet.base.errors import E_PEER, CapacityError, DrupeletError, check  # noqa: E402
from drupelet.base.hashes import Blake2s, MessageHash, group_id_into  # noqa: E402
from drupelet.base.limits import (  # noqa: E402
    BODY_SIZE_MAX,
    DESCRIPTOR_SIZE_MAX,
    ID_SIZE,
    RECORD_HEADER_SIZE,
    RECORD_IDS_MAX,
)
from drupelet.wire import bsp1  # noqa: E402
from harness_json import JsonError, read, write  # noqa: E402
from harness_values import (  # noqa: E402
    INT64_MAX,
    RequestError,
    items,
    number,
    pieces,
    to_hex,
    unhex,
)

ON_HOST = sys.implementation.name == "cpython"
LISTS = ((bsp1.ACK, "acks"), (bsp1.OFFER, "offers"), (bsp1.REQUEST, "requests"))
TYPES = {bsp1.ACK: "ACK", bsp1.OFFER: "OFFER", bsp1.REQUEST: "REQUEST"}
# BLAKE2s takes no longer key (RFC 7693).
KEY_SIZE_MAX = 32
# What follows a record's header in a check of the header alone: no type looks further.
ZEROS = bytes(ID_SIZE + 1)
# A line of a request; longer ones are passed over. It is read in pieces of so many bytes.
LINE_SIZE_MAX = 1 << 24
PIECE_SIZE = 4096
# What a request that makes no sense can raise on one interpreter or the other.
WRONG = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip


def sized(value, size_max, what, size=-1):
    """Bytes of a hex value, of the size that is wanted."""
    data = unhex(value)
    if len(data) > size_max or (size >= 0 and len(data) != size):
        raise CapacityError(f"{what} of {len(data)} bytes")
    return data


def timestamp_bytes(value):
    moment = number(value)
    if not 0 <= moment <= INT64_MAX:
        raise CapacityError(f"timestamp {moment} is not 0..2^63-1")
    return moment.to_bytes(8, "big")


def identify(group, timestamp, buf, at, size):
    made = MessageHash()
    made.start(group, 0, timestamp, 0, size)
    made.update(buf, at, size)
    out = bytearray(ID_SIZE)
    made.digest_into(out, 0)
    return to_hex(out)


class Reading:
    """Stands where a link does for the wire profile: keeps what it is given, in order."""

    def __init__(self):
        self.records = []
        self._ids = []
        self.at = 0  # behind the last whole record
        self.judged = -1  # where a record begins whose header was looked at

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
        group = groups[group_at : group_at + ID_SIZE]
        timestamp = stamps[stamp_at : stamp_at + 8]
        self.records.append(
            {
                "type": "MESSAGE",
                "group_id": to_hex(group),
                "timestamp": int.from_bytes(timestamp, "big"),
                "body": to_hex(memoryview(buf)[at : at + size]),
                "message_id": identify(group, timestamp, buf, at, size),
            }
        )

    def take(self, stream, end):
        """Read every whole record of stream[:end] that was not read yet; OK or E_PEER."""
        while self.at + RECORD_HEADER_SIZE <= end:
            size = RECORD_HEADER_SIZE + (stream[self.at + 2] << 8 | stream[self.at + 3])
            if self.at + size > end:
                return self._judge(stream, size)
            if bsp1.parse(self, stream, self.at, self.at + size) < 0:
                return E_PEER
            self.at += size
        return E_PEER if self.at < end and stream[self.at] != bsp1.VERSION else 0

    def _judge(self, stream, size):
        """What a header says wrong is wrong at once: try it, and a payload of zeros."""
        if self.judged == self.at:
            return 0
        self.judged = self.at
        head = stream[self.at : self.at + RECORD_HEADER_SIZE] + ZEROS
        return min(bsp1.check_record(head, 0, size), 0)


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
        stamp = timestamp_bytes(request["timestamp"])
        return {"message_id": identify(group, stamp, body, 0, len(body))}

    @staticmethod
    def encode(request):
        parts = []
        for kind, name in LISTS:
            ids = [sized(id, ID_SIZE, "id", ID_SIZE) for id in items(request, name)]
            for at in range(0, len(ids), RECORD_IDS_MAX):
                put_record(parts, kind, ids[at : at + RECORD_IDS_MAX])
        for message in items(request, "messages"):
            group = sized(message["group_id"], ID_SIZE, "group id", ID_SIZE)
            body = sized(message.pop("body"), BODY_SIZE_MAX, "body")
            stamp = timestamp_bytes(message["timestamp"])
            put_record(parts, bsp1.MESSAGE, (group, stamp, body))
        return {"wire": tuple(parts)}

    @staticmethod
    def decode(request):
        wire = unhex(request.pop("wire"))
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
        stream = unhex(request.pop("stream"))
        sizes = pieces(request, len(stream))
        reading = Reading()
        end = turn = code = 0
        while end < len(stream) and not code:
            end = min(end + sizes[turn % len(sizes)], len(stream))
            turn += 1
            code = reading.take(stream, end)
        return {
            "records": reading.records,
            "error": "PeerError" if code else None,
            "truncated": not code and reading.at < len(stream),
        }


def put_record(out, kind, payload):
    """Append a record to `out`, as hex."""
    head = bytearray(RECORD_HEADER_SIZE)
    bsp1.put_header(head, 0, kind, sum([len(part) for part in payload]))
    out.append(to_hex(head))
    out += [to_hex(part) for part in payload]


def family(request, verb):
    """What answers for the request's profile."""
    profile = request["profile"]
    if profile == "bsp-1" or (profile == "compact-1" and verb in ID_VERBS):
        return Bsp1
    if profile == "bsp-0" and ON_HOST:
        return __import__("harness_bsp0")
    if profile == "compact-1":
        return __import__("harness_compact")
    if profile in ("mvds-1", "mvds-nested", "mvds-5001"):
        return __import__("harness_mvds")
    if profile in ("sds", "sds-nim"):
        return dialect(profile)
    raise RequestError("a profile that is unknown here")


def dialect(name):
    """What answers for a dialect of channels."""
    if name == "sds":
        return __import__("harness_sds")
    if name == "sds-nim" and ON_HOST:
        return __import__("harness_sds_nim")
    raise RequestError("a dialect that is unknown here")


def blake2s(request):
    made = Blake2s()
    made.start(sized(request.get("key") or "", KEY_SIZE_MAX, "key"))
    data = unhex(request["data"])
    made.update(data, 0, len(data))
    out = bytearray(ID_SIZE)
    made.digest_into(out, 0)
    return {"digest": to_hex(out)}


def cobs_encode(request):
    from drupelet_transports.common import cobs

    return {"wire": to_hex(cobs.cobs_encode(unhex(request["data"])))}


def cobs_decode(request):
    from drupelet_transports.common import cobs

    return {"data": to_hex(cobs.cobs_decode(unhex(request["wire"])))}


DIALECT_VERBS = ("bloom", "hashn", "treq", "tresp")
ID_VERBS = ("group_id", "message_id")
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
    call = getattr(family(request, verb), verb, None) if verb in FAMILY_VERBS else None
    if call is None:
        raise RequestError("unknown verb")
    return call(request)


def take_line():
    """The next line, without the space around it; None at the end of input.

    Raises CapacityError for one that is too long, or does not fit into memory; it is passed over.
    """
    stdin = sys.stdin.buffer
    parts = []
    size = 0
    part = b"-"
    while part and not part.endswith(b"\n"):
        try:
            # In pieces: MicroPython's readline alone takes the square of a line's size.
            part = stdin.readline(PIECE_SIZE)
            size += len(part)
            if size <= LINE_SIZE_MAX:
                parts.append(part)
            else:
                parts = []
        except MemoryError:
            parts = []
            size = LINE_SIZE_MAX + 1
            gc.collect()
    if size > LINE_SIZE_MAX:
        raise CapacityError("a line longer than there is memory for")
    parts[0] = parts[0].lstrip()
    parts[-1] = parts[-1].rstrip()
    return b"".join(parts) if size else None


def take_request():
    """The next line's verb and request; None at the end of input.

    In a frame of its own: the line is no longer needed when the request is answered, and it may be
    a fifth of a board's heap.
    """
    line = take_line()
    while line == b"":
        line = take_line()
    if line is None:
        return None
    at = line.find(b" ")
    if at < 0:
        raise RequestError("a request is a verb and a JSON object")
    try:
        request = read(line, at)
    except JsonError as error:
        raise RequestError(str(error)) from None
    if not isinstance(request, dict):
        raise RequestError("a request is a verb and a JSON object")
    verb = line[:at]
    if max(verb) > 0x7F:
        raise RequestError("unknown verb")
    return verb.decode(), request


def failure(kind, message):
    return "error ", {"kind": kind, "message": message}


def outcome():
    """Status and reply of the next line; None at the end of input."""
    try:
        asked = take_request()
        return asked and ("ok ", reply_to(*asked))
    except RequestError as error:
        return failure("ValueError", str(error))
    except DrupeletError as error:
        return failure(type(error).__name__, str(error))
    except MemoryError:
        return failure("CapacityError", "more than there is memory for")
    except WRONG:
        # Which of them, and in what words, is up to the interpreter.
        return failure("ValueError", "not such a request")


def main():
    while True:
        if not ON_HOST:
            gc.collect()  # whole: what one request leaves behind is in the way of the next
        made = outcome()
        if made is None:
            return
        status, reply = made
        sys.stdout.write(status)
        write(sys.stdout.write, reply)
        sys.stdout.write("\n")
        if ON_HOST:
            sys.stdout.flush()


main()
