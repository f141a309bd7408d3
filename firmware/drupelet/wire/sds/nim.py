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

from drupelet.base.errors import OK, PeerError
from drupelet.wire.protobuf import BYTES, VARINT, Reader, varint_to_le8
from drupelet.wire.sds.bloom import parameters
from drupelet.wire.sds.farmhash import nim_hash
from drupelet.wire.sds.message import BLOOM, CAUSAL, CONTENT, LAMPORT, REPAIR, Decoder

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


def _varint(value: int) -> bytes:
    out = bytearray()
    value %= _U64
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(data)) + data


def _entry(number: int, entry: Entry) -> bytes:
    content = _bytes(1, entry.message_id)
    if entry.hint:
        content += _bytes(2, entry.hint)
    if entry.sender_id:
        content += _bytes(3, entry.sender_id)
    return _bytes(number, content)


def encode(message: Message) -> bytes:
    """Return a message as bytes, its fields in the order in which nim-sds writes them."""
    out = _bytes(1, message.message_id)
    out += _varint(2 << 3 | VARINT) + _varint(message.lamport or 0)
    out += b"".join(_entry(3, entry) for entry in message.causal)
    out += _bytes(4, message.channel_id) + _bytes(5, message.content or b"")
    out += _bytes(6, message.bloom or b"")
    if message.sender_id:
        out += _bytes(7, message.sender_id)
    return out + b"".join(_entry(13, entry) for entry in message.repair)


def _fields(data: bytes) -> "list[tuple[int, int, bytes | int]]":
    reader = Reader()
    reader.open(data, 0, len(data))
    fields: list[tuple[int, int, bytes | int]] = []
    number = reader.next()
    while number > 0:
        value: bytes | int = data[reader.start : reader.start + reader.size]
        if reader.kind == VARINT:
            out = bytearray(8)
            varint_to_le8(data, reader.start, reader.start + reader.size, out, 0)
            value = int.from_bytes(out, "little")
        fields.append((number, reader.kind, value))
        number = reader.next()
    if number < 0:
        raise PeerError("malformed message")
    return fields


def _texts(data: bytes, what: str) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise PeerError(f"{what} is not UTF-8") from None
    return data


def _decode_entry(data: bytes) -> Entry:
    entry = Entry(b"")
    for number, kind, value in _fields(data):
        if kind == BYTES and isinstance(value, bytes):
            if number == 1:
                entry.message_id = _texts(value, "message_id")
            elif number == 2:
                entry.hint = value
            elif number == 3:
                entry.sender_id = _texts(value, "sender_id")
    return entry


def decode(data: bytes) -> Message:
    """Parse a message. Raises PeerError; id, channel, Lamport value and content are required."""
    message = Message()
    seen = set()
    for number, kind, value in _fields(data):
        if number == 2 and kind == VARINT and isinstance(value, int):
            message.lamport = value - _U64 if value >> 63 else value
        elif kind == BYTES and isinstance(value, bytes):
            _decode_field(message, number, value)
        else:
            continue
        seen.add(number)
    if not {1, 2, 4, 5} <= seen:
        raise PeerError("a field that dialect sds-nim requires is missing")
    return message


def _decode_field(message: Message, number: int, value: bytes) -> None:
    if number == 1:
        message.message_id = _texts(value, "message_id")
    elif number == 3:
        message.causal.append(_decode_entry(value))
    elif number == 4:
        message.channel_id = _texts(value, "channel_id")
    elif number == 5:
        message.content = value
    elif number == 6:
        message.bloom = value
    elif number == 7:
        message.sender_id = _texts(value, "sender_id")
    elif number == 13:
        message.repair.append(_decode_entry(value))


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

    def places(self, id: bytes) -> "list[int]":
        """Return the positions of an id's bits."""
        first = abs(nim_hash(id, self._murmur)) % self.m
        step = abs(nim_hash(id + b" b", self._murmur)) % self.m
        return [(first + n * step) % self.m for n in range(self.k)]

    def add(self, id: bytes) -> None:
        """Add an id."""
        for place in self.places(id):
            self.words[place >> 3] |= 1 << (place & 7)

    def has(self, id: bytes) -> bool:
        """Whether the id seems to be in."""
        return all(self.words[place >> 3] & 1 << (place & 7) for place in self.places(id))

    def wire(self) -> bytes:
        """Return the content of the field bloom_filter."""
        out = _bytes(1, bytes(self.words)) if self.words else b""
        numbers = (self.capacity, round(self.error_rate * 1_000_000), self.k, self.m)
        for number, value in enumerate(numbers, 2):
            out += _varint(number << 3 | VARINT) + _varint(value)
        return out


@dataclass(frozen=True)
class Filter:
    """A received filter and its parameters."""

    words: bytes
    k: int
    m: int

    def has(self, id: bytes, murmur: bool = False) -> bool:
        """Whether the id seems to be in."""
        place = abs(nim_hash(id, murmur)) % self.m
        step = abs(nim_hash(id + b" b", murmur)) % self.m
        for _ in range(self.k):
            if not self.words[place >> 3] & 1 << (place & 7):
                return False
            place = (place + step) % self.m
        return True


def read_filter(data: bytes) -> "Filter | None":
    """Parse a received filter; None if it is malformed or more than six tenths full."""
    try:
        fields = {number: value for number, _, value in _fields(data)}
    except PeerError:
        return None
    words, k, m = fields.get(1), fields.get(4), fields.get(5)
    if not isinstance(words, bytes) or not isinstance(k, int) or not isinstance(m, int):
        return None
    if not 0 < k <= _K_MAX or not 0 < m <= len(words) * 8:
        return None
    ones = sum(byte.bit_count() for byte in words)
    return Filter(words, k, m) if ones * 10 <= m * 6 else None


def from_sds(frame: bytes) -> Message:
    """Parse a message of dialect `sds`. Raises PeerError."""
    decoder = Decoder()
    if decoder.open(frame, 0, len(frame)) != OK:
        raise PeerError("malformed message")

    def part(at: int, size: int) -> "bytes | None":
        return frame[at : at + size] if at >= 0 else None

    message = Message(
        frame[decoder.sender_at : decoder.sender_at + decoder.sender_size],
        frame[decoder.id_at : decoder.id_at + decoder.id_size],
        frame[decoder.channel_at : decoder.channel_at + decoder.channel_size],
        int.from_bytes(decoder.lamport, "little") if decoder.has_lamport else None,
        bloom=part(decoder.bloom_at, decoder.bloom_size),
        content=part(decoder.content_at, decoder.content_size),
    )
    for kind, entries in ((CAUSAL, message.causal), (REPAIR, message.repair)):
        decoder.rewind()
        while decoder.next(kind):
            id = frame[decoder.entry_at : decoder.entry_at + decoder.entry_size]
            hint = part(decoder.hint_at, decoder.hint_size)
            entries.append(
                Entry(id, hint, part(decoder.entry_sender_at, decoder.entry_sender_size))
            )
    return message


def to_sds(message: Message) -> bytes:
    """Return a message as bytes of dialect `sds`."""
    out = b"".join(
        _bytes(number, text)
        for number, text in enumerate(
            (message.sender_id, message.message_id, message.channel_id), 1
        )
        if text
    )
    if message.lamport is not None:
        out += _varint(LAMPORT << 3 | VARINT) + _varint(message.lamport)
    out += b"".join(_entry(CAUSAL, entry) for entry in message.causal)
    if message.bloom is not None:
        out += _bytes(BLOOM, message.bloom)
    out += b"".join(_entry(REPAIR, entry) for entry in message.repair)
    return out + (_bytes(CONTENT, message.content) if message.content is not None else b"")
