# host only: objects and integers of 64 bits
"""SDS messages of nim-sds, dialect `sds-nim`: other field numbers, its own filter and hashes.

SdsMessage    message_id 1  lamport_timestamp 2 (int64)  causal_history 3 (repeated)
              channel_id 4  content 5  bloom_filter 6  sender_id 7
                  repair_request 13 (repeated)
BloomFilter   words 1 (64 bits each, little-endian)  capacity 2  error rate in millionths 3
              k 4  m 5
HistoryEntry  as in dialect `sds`
"""

from dataclasses import dataclass, field  # noqa: TID251 - host only
from typing import Any  # noqa: TID251 - host only

from drupelet.base.errors import PeerError
from drupelet.wire.protobuf import BYTES, VARINT
from drupelet.wire.protobuf_bytes import bytes_field, fields, varint
from drupelet.wire.sds.bloom import parameters
from drupelet.wire.sds.farmhash import nim_hash
from drupelet.wire.sds.message import BLOOM, CAUSAL, CONTENT, LAMPORT, REPAIR

_U64 = 1 << 64
_K_MAX = 64


@dataclass
class Entry:
    """A HistoryEntry; hint and sender are None if they are absent."""

    message_id: bytes
    hint: bytes | None = None
    sender_id: bytes | None = None


@dataclass
class Message:
    """A message of either dialect as a host keeps it; ids are UTF-8."""

    sender_id: bytes = b""
    message_id: bytes = b""
    channel_id: bytes = b""
    lamport: int | None = None
    causal: list[Entry] = field(default_factory=list)
    bloom: bytes | None = None
    repair: list[Entry] = field(default_factory=list)
    content: bytes | None = None


# The fields of a Message by their numbers, in either dialect.
_NIM_NAMES = dict(zip((7, 1, 4, 2, 3, 6, 13, 5), Message.__match_args__, strict=True))
_SDS_NAMES = dict(zip((1, 2, 3, 10, 11, 12, 13, 20), Message.__match_args__, strict=True))


def _entry(number: int, entry: Entry) -> bytes:
    content = bytes_field(1, entry.message_id)
    if entry.hint:
        content += bytes_field(2, entry.hint)
    if entry.sender_id:
        content += bytes_field(3, entry.sender_id)
    return bytes_field(number, content)


def encode(message: Message) -> bytes:
    """Return a message as bytes, its fields in the order in which nim-sds writes them."""
    out = bytes_field(1, message.message_id)
    out += varint(2 << 3 | VARINT) + varint(message.lamport or 0)
    out += b"".join(_entry(3, entry) for entry in message.causal)
    out += bytes_field(4, message.channel_id) + bytes_field(5, message.content or b"")
    out += bytes_field(6, message.bloom or b"")
    if message.sender_id:
        out += bytes_field(7, message.sender_id)
    return out + b"".join(_entry(13, entry) for entry in message.repair)


def _texts(data: bytes, what: str) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise PeerError(f"{what} is not UTF-8") from None
    return data


def _decode_entry(data: bytes) -> Entry:
    entry = Entry(b"")
    for number, kind, value in fields(data):
        if kind == BYTES and isinstance(value, bytes):
            if number == 1:
                entry.message_id = _texts(value, "message_id")
            elif number == 2:
                entry.hint = value
            elif number == 3:
                entry.sender_id = _texts(value, "sender_id")
    return entry


def _read(data: bytes, names: dict[int, str]) -> dict[str, Any]:
    """Return the values of a message's fields by their names. Raises PeerError."""
    values: dict[str, Any] = {}
    for number, kind, value in fields(data):
        name = names.get(number, "")
        if name == "lamport":
            if kind == VARINT:
                values[name] = value
        elif name and kind == BYTES and isinstance(value, bytes):
            if name in ("causal", "repair"):
                values.setdefault(name, []).append(_decode_entry(value))
            else:
                values[name] = _texts(value, name) if name.endswith("_id") else value
    return values


def decode(data: bytes) -> Message:
    """Parse a message. Raises PeerError; id, channel, Lamport value and content are required."""
    values = _read(data, _NIM_NAMES)
    if not {"message_id", "channel_id", "lamport", "content"} <= values.keys():
        raise PeerError("a field that dialect sds-nim requires is missing")
    message = Message(**values)
    if message.lamport is not None and message.lamport >> 63:
        message.lamport -= _U64
    return message


def from_sds(frame: bytes) -> Message:
    """Parse a message of dialect `sds`. Raises PeerError."""
    return Message(**_read(frame, _SDS_NAMES))


class NimTimes:
    """T_req, T_resp and response groups as nim-sds computes them; replaces `Identity` of
    `base/hashes_sds.py`.
    """

    def __init__(self, participant: bytes, murmur: bool = False) -> None:
        self._participant = participant
        self._murmur = murmur

    def _hash(self, data: bytes) -> int:
        return abs(nim_hash(data, self._murmur))

    def t_req(self, message_id: bytes, t_min: int, t_max: int) -> int:
        """Return the time from now to T_req, in ms."""
        return self._hash(self._participant + message_id) % (t_max - t_min) + t_min

    def t_resp(self, sender: bytes, message_id: bytes, t_max: int) -> int:
        """Return the time from now to T_resp, in ms."""
        mine = nim_hash(self._participant, self._murmur)
        distance = abs(mine ^ nim_hash(sender, self._murmur))
        return distance % t_max * (self._hash(message_id) % t_max) % t_max

    def grouped(self, sender: bytes, message_id: bytes, groups: int) -> bool:
        """Whether we are in the response group of a sender's message."""
        mine = self._hash(self._participant + message_id)
        return mine % groups == self._hash(sender + message_id) % groups


def _places(id: bytes, k: int, m: int, murmur: bool) -> "list[int]":
    """Return the positions of an id's `k` bits in a filter of `m` bits."""
    first = abs(nim_hash(id, murmur)) % m
    step = abs(nim_hash(id + b" b", murmur)) % m
    return [(first + n * step) % m for n in range(k)]


class NimBloom:
    """The filter of nim-sds, whose parameters are on the wire."""

    def __init__(
        self, capacity: int, error_rate: float, k: int = 0, bits: int = 0, murmur: bool = False
    ) -> None:
        self.capacity = capacity
        self.error_rate = error_rate
        self.k, bits = parameters(capacity, error_rate, k, bits)
        self.m = capacity * bits
        self.words = bytearray((1 + self.m // 64) * 8)
        self._murmur = murmur

    def add(self, id: bytes) -> None:
        """Add an id."""
        for place in _places(id, self.k, self.m, self._murmur):
            self.words[place >> 3] |= 1 << (place & 7)

    def wire(self) -> bytes:
        """Return the content of the field bloom_filter."""
        out = bytes_field(1, bytes(self.words)) if self.words else b""
        numbers = (self.capacity, round(self.error_rate * 1_000_000), self.k, self.m)
        for number, value in enumerate(numbers, 2):
            out += varint(number << 3 | VARINT) + varint(value)
        return out


@dataclass(frozen=True)
class Filter:
    """A received filter and its parameters."""

    words: bytes
    k: int
    m: int

    def has(self, id: bytes, murmur: bool = False) -> bool:
        """Whether the id seems to be in."""
        places = _places(id, self.k, self.m, murmur)
        return all(self.words[place >> 3] & 1 << (place & 7) for place in places)


def read_filter(data: bytes) -> "Filter | None":
    """Parse a received filter; None if it is malformed or more than six tenths full."""
    try:
        values = {number: value for number, kind, value in fields(data) if kind in (BYTES, VARINT)}
    except PeerError:
        return None
    words, k, m = values.get(1), values.get(4), values.get(5)
    if not isinstance(words, bytes) or not isinstance(k, int) or not isinstance(m, int):
        return None
    if not 0 < k <= _K_MAX or not 0 < m <= len(words) * 8:
        return None
    ones = sum(byte.bit_count() for byte in words)
    return Filter(words, k, m) if ones * 10 <= m * 6 else None


def to_sds(message: Message) -> bytes:
    """Return a message as bytes of dialect `sds`."""
    out = b"".join(
        bytes_field(number, text)
        for number, text in enumerate(
            (message.sender_id, message.message_id, message.channel_id), 1
        )
        if text
    )
    if message.lamport is not None:
        out += varint(LAMPORT << 3 | VARINT) + varint(message.lamport)
    out += b"".join(_entry(CAUSAL, entry) for entry in message.causal)
    if message.bloom is not None:
        out += bytes_field(BLOOM, message.bloom)
    out += b"".join(_entry(REPAIR, entry) for entry in message.repair)
    return out + (bytes_field(CONTENT, message.content) if message.content is not None else b"")
