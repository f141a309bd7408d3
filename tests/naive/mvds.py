"""MVDS 0.6.0 and 0.5.1 from their texts alone, protobuf by hand; nothing of this project's.

Written to be obvious, neither small nor quick. A node takes a payload in with `receive`; once an
epoch `payload` gives what it sends to a peer. `pieces` cuts a payload for carriers with short
frames: protobuf messages one behind the other are one message, so every piece is a payload.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

# Fields of Payload and of Message (0.6.0, "Payloads").
ACKS, OFFERS, REQUESTS, MESSAGES = 1, 2, 3, 4
GROUP_ID, TIMESTAMP, BODY = 1, 2, 3
OFFER, REQUEST, MESSAGE = "OFFER", "REQUEST", "MESSAGE"
# "Exponentially increased until reaching an upper bound where it then goes back."
WAITS = (2, 4, 8, 16, 32)


class MalformedError(Exception):
    """These bytes are no protobuf message."""


def varint(value: int) -> bytes:
    """An unsigned integer, 7 bits a byte, lowest first."""
    out = []
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of wire type 2."""
    return varint(number * 8 + 2) + varint(len(value)) + value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The value at `at`, and where it ends."""
    value = shift = 0
    while True:
        if at == len(data) or shift > 63:
            raise MalformedError("varint")
        byte = data[at]
        value += (byte & 127) << shift
        at += 1
        if byte < 128:
            return value % (1 << 64), at
        shift += 7


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """All fields of a message as (number, value)."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag % 8
        if kind == 0:
            value, at = read_varint(data, at)
            yield tag // 8, value
            continue
        if kind == 2:
            size, at = read_varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise MalformedError("wire type")
        if at + size > len(data):
            raise MalformedError("cut off")
        yield tag // 8, data[at : at + size]
        at += size


@dataclass(frozen=True)
class Message:
    """A message of the texts; the timestamp is an int64 and nobody looks at it."""

    group: bytes
    timestamp: int
    body: bytes

    @property
    def id(self) -> bytes:
        """HASH("MESSAGE_ID", group_id, timestamp, body): SHA-256 of them one behind the other."""
        stamp = self.timestamp.to_bytes(8, "little", signed=True)
        return hashlib.sha256(b"MESSAGE_ID" + self.group + stamp + self.body).digest()

    def encode(self) -> bytes:
        """Its protobuf; proto3 leaves out what is empty or zero."""
        data = bytes_field(GROUP_ID, self.group) if self.group else b""
        if self.timestamp:
            data += varint(TIMESTAMP * 8) + varint(self.timestamp % (1 << 64))
        return data + (bytes_field(BODY, self.body) if self.body else b"")


def message_of(data: bytes) -> Message:
    """Read a Message; fields of other numbers are not ours."""
    group, timestamp, body = b"", 0, b""
    for number, value in fields_of(data):
        if number == GROUP_ID and isinstance(value, bytes):
            group = value
        elif number == TIMESTAMP and isinstance(value, int):
            timestamp = value - (1 << 64) if value >> 63 else value
        elif number == BODY and isinstance(value, bytes):
            body = value
    return Message(group, timestamp, body)


@dataclass
class Payload:
    """What one node tells another in one epoch."""

    acks: list[bytes] = field(default_factory=list)
    offers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def entries(self) -> list[bytes]:
        """Its fields, each encoded by itself."""
        lists = ((ACKS, self.acks), (OFFERS, self.offers), (REQUESTS, self.requests))
        out = [bytes_field(number, id) for number, ids in lists for id in ids]
        return out + [bytes_field(MESSAGES, message.encode()) for message in self.messages]

    def pieces(self, size_max: int) -> list[bytes]:
        """The payload as few payloads of at most so many bytes; none when it is empty."""
        out: list[bytes] = []
        for entry in self.entries():
            assert len(entry) <= size_max
            if out and len(out[-1]) + len(entry) <= size_max:
                out[-1] += entry
            else:
                out.append(entry)
        return out


def payload_of(data: bytes) -> Payload:
    """Read a payload; an id that is not 32 bytes long is left out."""
    payload = Payload()
    lists = {ACKS: payload.acks, OFFERS: payload.offers, REQUESTS: payload.requests}
    for number, value in fields_of(data):
        if number == MESSAGES and isinstance(value, bytes):
            payload.messages.append(message_of(value))
        elif number in lists and isinstance(value, bytes) and len(value) == 32:
            lists[number].append(value)
    return payload


@dataclass
class Record:
    """0.5.1, "State": type, send count, send epoch."""

    type: str
    send_epoch: int
    send_count: int = 0


class Node:
    """Stores messages, keeps state per peer, makes a payload for each of them per epoch.

    `literal`: an OFFER is always answered by a REQUEST, as the text has it; else by an ACK when
    the message is here.
    """

    def __init__(self, literal: bool = False) -> None:
        self.literal = literal
        self.epoch = 0
        self.groups: dict[bytes, set[str]] = {}
        self.messages: dict[bytes, Message] = {}
        self.state: dict[str, dict[bytes, Record]] = {}
        self.acks: dict[str, list[bytes]] = {}
        self.malformed = 0
        self.copies = 0

    def share(self, group: bytes, peer: str) -> None:
        """Take part in a group with a peer."""
        self.groups.setdefault(group, set()).add(peer)
        self.state.setdefault(peer, {})
        self.acks.setdefault(peer, [])

    def publish(self, message: Message, interactive: bool, source: str = "") -> bytes:
        """Store a message and set about sending it to all peers of its group but `source`."""
        self.messages[message.id] = message
        for peer in self.groups[message.group] - {source}:
            first = OFFER if interactive else MESSAGE
            self.state[peer][message.id] = Record(first, self.epoch)
        return message.id

    def is_idle(self, peer: str) -> bool:
        """Whether nothing is to be sent to the peer, now or later."""
        return not self.state[peer] and not self.acks[peer]

    def payload(self, peer: str) -> Payload:
        """What is due to the peer in this epoch."""
        payload = Payload(acks=self.acks[peer])
        self.acks[peer] = []
        for id, record in self.state[peer].items():
            if record.send_epoch > self.epoch:
                continue
            if record.type == OFFER:
                payload.offers.append(id)
            elif record.type == REQUEST:
                payload.requests.append(id)
            else:
                payload.messages.append(self.messages[id])
            record.send_epoch = self.epoch + WAITS[record.send_count % len(WAITS)]
            record.send_count += 1
        return payload

    def receive(self, peer: str, data: bytes, interactive: bool) -> None:
        """Take a payload in; what is new goes on to the other peers in the mode given."""
        try:
            payload = payload_of(data)
        except MalformedError:
            self.malformed += 1
            return
        state = self.state[peer]
        for id in payload.acks:
            # The text speaks of the MESSAGE; who has it needs no OFFER either.
            if id in state and state[id].type != REQUEST:
                del state[id]
        for id in payload.offers:
            if id in self.messages and not self.literal:
                self.acks[peer].append(id)
            elif id not in state:
                state[id] = Record(REQUEST, self.epoch)
        for id in payload.requests:
            if id in state and state[id].type == OFFER:
                state[id] = Record(MESSAGE, self.epoch)
        for message in payload.messages:
            self._on_message(peer, message, interactive)

    def _on_message(self, peer: str, message: Message, interactive: bool) -> None:
        if peer not in self.groups.get(message.group, ()):
            return
        id = message.id
        if id in self.state[peer] and self.state[peer][id].type == REQUEST:
            del self.state[peer][id]
        if id in self.messages:
            self.copies += 1
        else:
            self.publish(message, interactive, peer)
        if id not in self.acks[peer]:
            self.acks[peer].append(id)
