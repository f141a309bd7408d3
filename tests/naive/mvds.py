"""MVDS 0.6.0 and 0.5.1 from their texts alone, protobuf by hand; nothing of this project's.

Written to be obvious, neither small nor quick. A node takes a payload in with `receive`; once an
epoch `payload` gives what it sends to a peer. `pieces` cuts a payload for carriers with short
frames: protobuf messages one behind the other are one message, so every piece is a payload.

Where the text is silent, peers differ: `Fields` has the numbers of the three formats that exist,
and a `Node` is told how it answers an OFFER of what it holds. SILENT, with NEWEST, is what the Go
nodes do: no answer, parents in each message, and no reading of one that has no metadata.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

OFFER, REQUEST, MESSAGE = "OFFER", "REQUEST", "MESSAGE"
# "Exponentially increased until reaching an upper bound where it then goes back."
WAITS = (2, 4, 8, 16, 32)


# How an OFFER of a message that is here is answered: with a REQUEST, as the text has it; with an
# ACK; not at all.
LITERAL, ACKNOWLEDGING, SILENT = "literal", "acknowledging", "silent"


class MalformedError(Exception):
    """These bytes are no protobuf message."""


class CrashError(Exception):
    """The newest Go node would end here."""


@dataclass(frozen=True)
class Fields:
    """The numbers of a format; metadata 0: it has none; nested: each id list is a message."""

    acks: int
    offers: int
    requests: int
    messages: int
    group_id: int
    timestamp: int
    body: int
    metadata: int
    nested: bool = False


# 0.6.0 "Payloads", with the field of the Go node v0.0.25; the mobile paper; the published 2/MVDS.
NEWEST = Fields(1, 2, 3, 4, 1, 2, 3, 4)
PAPER = Fields(1, 2, 3, 4, 1, 2, 3, 0, nested=True)
PUBLISHED = Fields(5001, 5002, 5003, 5004, 6001, 6002, 6003, 0)
PARENT = 1  # in the metadata
ID_IN_LIST = 1  # of a nested list


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
    """A message of the texts; the timestamp is an int64 and nobody looks at it.

    `parents`: of the metadata, which is not hashed; None: there is no metadata.
    """

    group: bytes
    timestamp: int
    body: bytes
    parents: tuple[bytes, ...] | None = field(default=None, compare=False)

    @property
    def id(self) -> bytes:
        """HASH("MESSAGE_ID", group_id, timestamp, body): SHA-256 of them one behind the other."""
        stamp = self.timestamp.to_bytes(8, "little", signed=True)
        return hashlib.sha256(b"MESSAGE_ID" + self.group + stamp + self.body).digest()

    def encode(self, fields: Fields = NEWEST) -> bytes:
        """Its protobuf; proto3 leaves out what is empty or zero, but for a message within."""
        data = bytes_field(fields.group_id, self.group) if self.group else b""
        if self.timestamp:
            data += varint(fields.timestamp * 8) + varint(self.timestamp % (1 << 64))
        if self.body:
            data += bytes_field(fields.body, self.body)
        if self.parents is not None and fields.metadata:
            inside = b"".join(bytes_field(PARENT, parent) for parent in self.parents)
            data += bytes_field(fields.metadata, inside)
        return data


def message_of(data: bytes, fields: Fields = NEWEST) -> Message:
    """Read a Message; fields of other numbers are not ours."""
    group, timestamp, body = b"", 0, b""
    parents: tuple[bytes, ...] | None = None
    for number, value in fields_of(data):
        if number == fields.group_id and isinstance(value, bytes):
            group = value
        elif number == fields.timestamp and isinstance(value, int):
            timestamp = value - (1 << 64) if value >> 63 else value
        elif number == fields.body and isinstance(value, bytes):
            body = value
        elif number == fields.metadata and isinstance(value, bytes):
            inside = [id for at, id in fields_of(value) if at == PARENT]
            parents = tuple(id for id in inside if isinstance(id, bytes))
    return Message(group, timestamp, body, parents)


@dataclass
class Payload:
    """What one node tells another in one epoch."""

    acks: list[bytes] = field(default_factory=list)
    offers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def entries(self, fields: Fields = NEWEST) -> list[bytes]:
        """Its fields, each encoded by itself; a nested list may be written in parts."""
        lists = (
            (fields.acks, self.acks),
            (fields.offers, self.offers),
            (fields.requests, self.requests),
        )
        out = [
            bytes_field(number, bytes_field(ID_IN_LIST, id) if fields.nested else id)
            for number, ids in lists
            for id in ids
        ]
        encoded = [message.encode(fields) for message in self.messages]
        return out + [bytes_field(fields.messages, message) for message in encoded]

    def pieces(self, size_max: int, fields: Fields = NEWEST) -> list[bytes]:
        """The payload as few payloads of at most so many bytes; none when it is empty."""
        out: list[bytes] = []
        for entry in self.entries(fields):
            assert len(entry) <= size_max
            if out and len(out[-1]) + len(entry) <= size_max:
                out[-1] += entry
            else:
                out.append(entry)
        return out


def payload_of(data: bytes, fields: Fields = NEWEST) -> Payload:
    """Read a payload; an id that is not 32 bytes long is left out."""
    payload = Payload()
    lists = {
        fields.acks: payload.acks,
        fields.offers: payload.offers,
        fields.requests: payload.requests,
    }
    for number, value in fields_of(data):
        if not isinstance(value, bytes):
            continue
        if number == fields.messages:
            payload.messages.append(message_of(value, fields))
        elif number in lists:
            ids = [id for _, id in fields_of(value)] if fields.nested else [value]
            lists[number] += [id for id in ids if isinstance(id, bytes) and len(id) == 32]
    return payload


@dataclass
class Record:
    """0.5.1, "State": type, send count, send epoch."""

    type: str
    send_epoch: int
    send_count: int = 0


class Node:
    """Stores messages, keeps state per peer, makes a payload for each of them per epoch.

    `answer`: LITERAL, ACKNOWLEDGING or SILENT. `needs_metadata`: see CrashError.
    """

    def __init__(
        self, answer: str = ACKNOWLEDGING, fields: Fields = NEWEST, needs_metadata: bool = False
    ) -> None:
        self.answer = answer
        self.fields = fields
        self.needs_metadata = needs_metadata
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

    def childless(self, group: bytes) -> list[bytes]:
        """All messages of a group that no other one names as a parent, as they came."""
        inside = [message for message in self.messages.values() if message.group == group]
        named = {parent for message in inside for parent in message.parents or ()}
        return [message.id for message in inside if message.id not in named]

    def restart(self) -> None:
        """End and begin again: messages and records are kept, ACKs that were due are not."""
        for acks in self.acks.values():
            acks.clear()
        for records in self.state.values():
            for record in records.values():
                record.send_epoch, record.send_count = self.epoch, 0

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
            payload = payload_of(data, self.fields)
        except MalformedError:
            self.malformed += 1
            return
        state = self.state[peer]
        for id in payload.acks:
            # The text speaks of the MESSAGE; who has it needs no OFFER either.
            if id in state and state[id].type != REQUEST:
                del state[id]
        for id in payload.offers:
            if id in self.messages and self.answer != LITERAL:
                if self.answer == ACKNOWLEDGING:
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
        if self.needs_metadata and message.parents is None:
            raise CrashError("message.Metadata is nil")
        id = message.id
        if id in self.state[peer] and self.state[peer][id].type == REQUEST:
            del self.state[peer][id]
        if id in self.messages:
            self.copies += 1
        else:
            self.publish(message, interactive, peer)
        if id not in self.acks[peer]:
            self.acks[peer].append(id)
