"""SDS with SDS-R from its text alone, both dialects, protobuf by hand; nothing of this project's.

Written to be obvious, neither small nor quick. A participant takes frames in with `receive`; once
per tick `frames` gives what it broadcasts. Two things are as living peers have them: it names the
ten newest messages that it has, whether or not they still wait for what they depend on, and in
dialect `sds` it reads filters of its own size only and loses a message that has a shorter one.
"""

import hashlib
from bisect import insort
from dataclasses import dataclass, field, replace

from naive.mvds import bytes_field, fields_of, varint

# Field numbers: dialect `sds` is the text's, `sds-nim` has others.
SENDER, ID, CHANNEL, LAMPORT, CAUSAL, BLOOM, REPAIR, CONTENT = range(8)
NUMBERS = {
    "sds": (1, 2, 3, 10, 11, 12, 13, 20),
    "sds-nim": (7, 1, 4, 2, 3, 6, 13, 5),
}
HISTORY = 10
FILTER_SIZE = 18_752  # 10,000 ids at one in a thousand
PERIOD_S = 30
SYNC_S = 60
T_MIN_S = 30
T_MAX_S = 120
REQUESTS_MAX = 3


class MalformedError(Exception):
    """A frame that this peer cannot read."""


@dataclass(frozen=True)
class Message:
    """A message; `causal` and `repair` have (id, sender) of each entry."""

    sender: str
    id: str
    channel: str
    lamport: int
    causal: tuple[tuple[str, str], ...]
    content: bytes = b""
    repair: tuple[tuple[str, str], ...] = ()


def encode(message: Message, dialect: str) -> bytes:
    """Its protobuf, in the order of the numbers."""
    numbers = NUMBERS[dialect]
    parts = [
        (numbers[SENDER], bytes_field(numbers[SENDER], message.sender.encode())),
        (numbers[ID], bytes_field(numbers[ID], message.id.encode())),
        (numbers[CHANNEL], bytes_field(numbers[CHANNEL], message.channel.encode())),
        (numbers[LAMPORT], varint(numbers[LAMPORT] * 8) + varint(message.lamport)),
    ]
    filter_size = FILTER_SIZE if dialect == "sds" else 0
    parts.append((numbers[BLOOM], bytes_field(numbers[BLOOM], bytes(filter_size))))
    for number, entries in ((numbers[CAUSAL], message.causal), (numbers[REPAIR], message.repair)):
        for id, sender in entries:
            entry = bytes_field(1, id.encode()) + bytes_field(3, sender.encode())
            parts.append((number, bytes_field(number, entry)))
    if message.content:
        parts.append((numbers[CONTENT], bytes_field(numbers[CONTENT], message.content)))
    return b"".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def decode(frame: bytes, dialect: str) -> Message:
    """Read a frame as the peer of this dialect does. Raises MalformedError."""
    numbers = NUMBERS[dialect]
    texts = {numbers[SENDER]: "", numbers[ID]: "", numbers[CHANNEL]: ""}
    entries: dict[int, list[tuple[str, str]]] = {numbers[CAUSAL]: [], numbers[REPAIR]: []}
    lamport, content = 0, b""
    for number, value in fields_of(frame):
        if number == numbers[LAMPORT] and isinstance(value, int):
            lamport = value
        elif not isinstance(value, bytes):
            continue
        elif number in texts:
            texts[number] = value.decode()
        elif number in entries:
            inside = {key: one for key, one in fields_of(value) if isinstance(one, bytes)}
            entries[number].append((inside.get(1, b"").decode(), inside.get(3, b"").decode()))
        elif number == numbers[CONTENT]:
            content = value
        elif number == numbers[BLOOM] and dialect == "sds" and len(value) < FILTER_SIZE:
            raise MalformedError("Offset is outside the bounds")
    return Message(
        texts[numbers[SENDER]], texts[numbers[ID]], texts[numbers[CHANNEL]], lamport,
        tuple(entries[numbers[CAUSAL]]), content, tuple(entries[numbers[REPAIR]]),
    )  # fmt: skip


def hash_of(*parts: str) -> int:
    """The hash that all repair times are made of."""
    digest = hashlib.sha256("".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def order_of(message: Message) -> tuple[int, bytes]:
    """Where a message is in the log."""
    return message.lamport, message.id.encode()


@dataclass
class Participant:
    """A participant of one channel; times in whole seconds, all given by who runs it."""

    name: str
    channel: str
    dialect: str = "sds"
    lamport: int = 0
    log: list[Message] = field(default_factory=list)
    known: dict[str, Message] = field(default_factory=dict)  # the log by id
    incoming: list[Message] = field(default_factory=list)
    unacknowledged: dict[str, int] = field(default_factory=dict)  # id: when it goes out again
    requests: dict[str, tuple[str, int]] = field(default_factory=dict)  # id: sender, T_req
    responses: dict[str, int] = field(default_factory=dict)  # id: T_resp
    next_sync: int = SYNC_S
    unread: int = 0

    def has(self, id: str) -> Message | None:
        """A message of the log."""
        return self.known.get(id)

    # --- send message ---

    def _tick(self, wall: int) -> None:
        self.lamport = max(wall, self.lamport + 1)

    def _history(self) -> tuple[tuple[str, str], ...]:
        """The newest that are available here, which is early: some may still wait."""
        available = sorted(self.log[-HISTORY:] + self.incoming, key=order_of)
        return tuple((message.id, message.sender) for message in available[-HISTORY:])

    def publish(self, content: bytes, wall: int) -> str:
        """Take a message of our own into the log; it leaves at the next tick."""
        self._tick(wall)
        id = hashlib.sha256(f"{self.name} {self.lamport}".encode() + content).hexdigest()
        message = Message(self.name, id, self.channel, self.lamport, self._history(), content)
        self._deliver(message)
        self.unacknowledged[id] = 0
        return id

    def frames(self, now: int, wall: int) -> list[bytes]:
        """All that is due at this tick."""
        out = []
        for id, due in list(self.unacknowledged.items()):
            if due <= now:
                out.append(self.has(id))
                self.unacknowledged[id] = now + PERIOD_S
        for id, due in list(self.responses.items()):
            if due <= now:
                del self.responses[id]
                out.append(self.has(id))
        asks = [id for id, (_, due) in self.requests.items() if due <= now][:REQUESTS_MAX]
        repair = tuple((id, self.requests[id][0]) for id in asks)
        if self.dialect == "sds" and (self.next_sync <= now or asks):
            self.next_sync = now + SYNC_S
            self._tick(wall)
            out.append(
                Message(
                    self.name, f"sync-{now}", self.channel, self.lamport, self._history(),
                    repair=repair,
                )
            )  # fmt: skip
        elif asks:
            # No sync messages there: the newest message of its own goes out once more.
            own = [message for message in self.log if message.sender == self.name]
            out += [replace(message, repair=repair) for message in own[-1:]]
        for id in asks:
            self.requests[id] = (self.requests[id][0], now + T_MAX_S)
        return [encode(message, self.dialect) for message in out if message is not None]

    # --- receive message ---

    def receive(self, frame: bytes, now: int) -> None:
        """Take in a frame that somebody broadcast."""
        try:
            message = decode(frame, self.dialect)
        except MalformedError:
            self.unread += 1
            return
        if message.sender == self.name or message.channel != self.channel:
            return
        self.requests.pop(message.id, None)
        self.responses.pop(message.id, None)
        for id, _ in message.causal:
            self.unacknowledged.pop(id, None)
        for id, sender in message.repair:
            self.requests.pop(id, None)
            if self.has(id):
                distance = hash_of(self.name) ^ hash_of(sender)
                self.responses[id] = now + distance * hash_of(id) % T_MAX_S
        for id, sender in message.causal:
            if not self.has(id) and all(id != waiting.id for waiting in self.incoming):
                wait = hash_of(self.name, id) % (T_MAX_S - T_MIN_S) + T_MIN_S
                self.requests.setdefault(id, (sender, now + wait))
        waits = any(message.id == other.id for other in self.incoming)
        if message.content and not waits and message.id not in self.known:
            self.incoming.append(message)
            self._settle()

    def _settle(self) -> None:
        """Deliver what waits for nothing any more."""
        ready = True
        while ready:
            ready = False
            for message in sorted(self.incoming, key=lambda message: message.lamport):
                if all(id in self.known for id, _ in message.causal):
                    self.incoming.remove(message)
                    self._deliver(message)
                    ready = True

    def _deliver(self, message: Message) -> None:
        self.lamport = max(self.lamport, message.lamport)
        self.known[message.id] = message
        insort(self.log, message, key=order_of)
