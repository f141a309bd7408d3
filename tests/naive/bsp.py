"""BSP v1 from its text alone: dictionaries, lists and hashlib, nothing of this project's.

Written to be obvious, neither small nor quick. Numbers in comments are sections of the text.
`BRIAR` has what Briar 1.5.19 does otherwise: version 0, its hash, labels and opening. A device
takes the bytes of records in with `receive`; `records` gives what it may send at one
opportunity. Times are in any unit and only go up.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

ACK, MESSAGE, OFFER, REQUEST, VERSIONS, PRIORITY = range(6)
HASH_LEN = 32
BODY_MAX = 1 << 15
DEPENDENCIES_MAX = 8
# 4.3 leaves open how send times grow, but for "exponentially".
FIRST_WAIT = 2
WAIT_MAX = 64


class MalformedError(Exception):
    """These bytes are no record of BSP v1."""


def joined(*parts: bytes) -> bytes:
    """What HASH of section 1.3 hashes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hash_of(*parts: bytes) -> bytes:
    """HASH of section 1.3."""
    return hashlib.blake2s(joined(*parts), digest_size=HASH_LEN).digest()


def briar_hash(label: str, *parts: bytes) -> bytes:
    """Briar's: BLAKE2b, and each label has its own format's version behind it."""
    data = joined(b"org.briarproject.bramble/" + label.encode(), b"\x01", *parts)
    return hashlib.blake2b(data, digest_size=HASH_LEN).digest()


def text_id(group: bytes, timestamp: int, body: bytes) -> bytes:
    """2.3."""
    return hash_of(b"MESSAGE_ID", group, timestamp.to_bytes(8, "big"), body)


def briar_id(group: bytes, timestamp: int, body: bytes) -> bytes:
    """Briar's id covers the hash of the body."""
    root = briar_hash("MESSAGE_BLOCK", body)
    return briar_hash("MESSAGE_ID", group, timestamp.to_bytes(8, "big"), root)


def group_id(client_id: bytes, descriptor: bytes) -> bytes:
    """2.2."""
    return hash_of(b"GROUP_ID", client_id, descriptor)


def briar_group_id(client_id: str, major_version: int, descriptor: bytes) -> bytes:
    """Briar's clients have names."""
    version = major_version.to_bytes(4, "big")
    return briar_hash("GROUP_ID", client_id.encode(), version, descriptor)


@dataclass(frozen=True)
class Dialect:
    """What differs between the text and Briar; `opening` comes first in what is sent."""

    version: int
    id_of: Callable[[bytes, int, bytes], bytes]
    opening: bytes
    body_min: int


TEXT = Dialect(1, text_id, b"", 0)
BRIAR = Dialect(0, briar_id, bytes.fromhex("0004000100"), 1)


@dataclass(frozen=True)
class Message:
    """2.3."""

    group: bytes
    timestamp: int
    body: bytes
    dialect: Dialect = TEXT

    @property
    def id(self) -> bytes:
        """2.3."""
        return self.dialect.id_of(self.group, self.timestamp, self.body)

    @property
    def payload(self) -> bytes:
        """3: group identifier, timestamp and message body."""
        return self.group + self.timestamp.to_bytes(8, "big") + self.body


def record(kind: int, payload: bytes, version: int = TEXT.version) -> bytes:
    """3: version, type, length, payload."""
    return bytes([version, kind]) + len(payload).to_bytes(2, "big") + payload


def ids_of(payload: bytes) -> list[bytes]:
    """3: one or more message identifiers."""
    if not payload or len(payload) % HASH_LEN:
        raise MalformedError("not a list of ids")
    return [payload[at : at + HASH_LEN] for at in range(0, len(payload), HASH_LEN)]


def message_of(payload: bytes, dialect: Dialect = TEXT) -> Message:
    """3: a message."""
    if not 40 + dialect.body_min <= len(payload) <= 40 + BODY_MAX:
        raise MalformedError("not a message")
    timestamp = int.from_bytes(payload[32:40], "big")
    if timestamp >> 63:
        raise MalformedError("before the Unix epoch")
    return Message(payload[:32], timestamp, payload[40:], dialect)


def records_of(stream: bytes, version: int = TEXT.version) -> list[tuple[int, bytes]]:
    """All records of a stream as (type, payload)."""
    found = []
    while stream:
        if len(stream) < 4 or stream[0] != version:
            raise MalformedError("not a header")
        size = int.from_bytes(stream[2:4], "big")
        if len(stream) < 4 + size:
            raise MalformedError("cut off")
        found.append((stream[1], stream[4 : 4 + size]))
        stream = stream[4 + size :]
    return found


def dependencies_of(body: bytes) -> list[bytes] | None:
    """The client's format (5): a count, that many ids, the payload; None: cannot be parsed."""
    if not body:
        return []
    count = body[0]
    if count > DEPENDENCIES_MAX or len(body) < 1 + 32 * count:
        return None
    return [body[1 + 32 * row : 33 + 32 * row] for row in range(count)]


@dataclass
class State:
    """4.1: what is kept for one message at one peer."""

    hold: bool = False
    ack: bool = False
    request: bool = False
    send_count: int = 0
    send_time: int = 0

    def sent(self, now: int) -> None:
        """4.3: it was offered or sent."""
        self.send_count += 1
        self.send_time = now + min(FIRST_WAIT << (self.send_count - 1), WAIT_MAX)


class Device:
    """A member of groups with some peers; `log` has the ids in the order of delivery (5)."""

    def __init__(
        self,
        parse: Callable[[bytes], list[bytes] | None] = dependencies_of,
        is_valid: Callable[[Message], bool] = lambda _: True,
        offered_max: int = 32,
        dialect: Dialect = TEXT,
    ) -> None:
        self.dialect = dialect
        self.parse = parse
        self.is_valid = is_valid
        self.offered_max = offered_max
        self.shared: dict[bytes, set[str]] = {}
        self.messages: dict[bytes, Message] = {}
        self.invalid: set[bytes] = set()
        self.log: list[bytes] = []
        self.states: dict[str, dict[bytes, State]] = {}
        self.offered: dict[str, list[bytes]] = {}
        self.malformed = 0
        self.copies = 0

    def share(self, group: bytes, peer: str) -> None:
        """Share a group with a peer (1.1)."""
        self.shared.setdefault(group, set()).add(peer)
        self.states.setdefault(peer, {})
        self.offered.setdefault(peer, [])

    def publish(self, message: Message) -> bytes:
        """Take a message of our own in."""
        self.messages[message.id] = message
        self._deliver()
        assert message.id in self.log, "published before what it depends on"
        return message.id

    def state(self, peer: str, id: bytes) -> State:
        """The synchronisation state of a message at a peer."""
        return self.states[peer].setdefault(id, State())

    def sharing(self, peer: str) -> list[tuple[bytes, State]]:
        """All messages that are shared with the peer: delivered, in a group that is shared."""
        return [
            (id, self.state(peer, id))
            for id in self.log
            if peer in self.shared.get(self.messages[id].group, ())
        ]

    def is_idle(self, peer: str) -> bool:
        """Whether the peer holds all that is shared with it and waits for no acknowledgement."""
        states = self.states[peer].values()
        return all(s.hold for _, s in self.sharing(peer)) and not any(s.ack for s in states)

    # --- 4.2, what is sent ---

    def records(self, peer: str, now: int, interactive: bool, ids_max: int = 2047) -> list[bytes]:
        """The records to send at this opportunity."""
        out = []
        acks = [id for id, state in self.states[peer].items() if state.ack]
        for id in acks:
            self.state(peer, id).ack = False
        requests, self.offered[peer] = self.offered[peer], []
        messages, offers = [], []
        for id, state in self.sharing(peer):
            if state.send_time > now or (state.hold and not state.request):
                continue
            if state.request or not interactive:
                messages.append(self._record(MESSAGE, self.messages[id].payload))
                state.request = False
            else:
                offers.append(id)
            state.sent(now)
        for kind, ids in ((ACK, acks), (REQUEST, requests), (OFFER, offers)):
            for at in range(0, len(ids), ids_max):
                out.append(self._record(kind, b"".join(ids[at : at + ids_max])))
        return out + messages

    def _record(self, kind: int, payload: bytes) -> bytes:
        return record(kind, payload, self.dialect.version)

    def restart(self) -> None:
        """End and begin again: states are kept, what was just heard is not."""
        for peer, states in self.states.items():
            self.offered[peer] = []
            for state in states.values():
                state.ack = state.request = False
                state.send_time = state.send_count = 0

    # --- 4.1, what is received ---

    def receive(self, peer: str, stream: bytes) -> None:
        """Take in records that a peer has sent."""
        try:
            for kind, payload in records_of(stream, self.dialect.version):
                if kind == MESSAGE:
                    self.on_message(peer, message_of(payload, self.dialect))
                elif kind in (ACK, OFFER, REQUEST):
                    for id in ids_of(payload):
                        {ACK: self.on_ack, OFFER: self.on_offer, REQUEST: self.on_request}[kind](
                            peer, id
                        )
        except MalformedError:
            self.malformed += 1

    def on_ack(self, peer: str, id: bytes) -> None:
        """The sender holds the message."""
        if id in dict(self.sharing(peer)):
            self.state(peer, id).hold = True

    def on_offer(self, peer: str, id: bytes) -> None:
        """The sender holds the message and does not know whether we do."""
        if id in self.messages or id in self.invalid:
            self.state(peer, id).hold = self.state(peer, id).ack = True
        elif id not in self.offered[peer]:
            # The oldest is replaced if there are too many.
            self.offered[peer] = [*self.offered[peer], id][-self.offered_max :]

    def on_request(self, peer: str, id: bytes) -> None:
        """The sender asks for the message."""
        if id in dict(self.sharing(peer)):
            self.state(peer, id).request = True

    def on_message(self, peer: str, message: Message) -> None:
        """The message itself."""
        if peer not in self.shared.get(message.group, ()):
            return
        id = message.id
        if id in self.messages or id in self.invalid:
            self.copies += 1
        else:
            self.messages[id] = message
            for offered in self.offered.values():
                if id in offered:
                    offered.remove(id)
            self._deliver()
        self.state(peer, id).hold = self.state(peer, id).ack = True

    # --- 5, the message graph ---

    def _deliver(self) -> None:
        """Deliver, or delete as invalid, whatever can be by now."""
        moved = True
        while moved:
            moved = False
            for id, message in list(self.messages.items()):
                if id in self.log:
                    continue
                parents = self.parse(message.body)
                if parents is None or self.invalid.intersection(parents):
                    self._delete(id)
                elif all(self._is_met(message, parent) for parent in parents):
                    if not self.is_valid(message):
                        self._delete(id)
                    else:
                        self.log.append(id)
                else:
                    continue
                moved = True

    def _is_met(self, message: Message, parent: bytes) -> bool:
        return parent in self.log and self.messages[parent].group == message.group

    def _delete(self, id: bytes) -> None:
        del self.messages[id]
        self.invalid.add(id)
