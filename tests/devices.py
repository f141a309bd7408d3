"""A device and the bytes that its peers see, written from the texts alone.

What a device sends is read, and what it gets is made, by the few lines of wire format here: they
know the texts and docs/SPEC.md 2, and nothing of the code. `tests/helpers.py` has whole networks.
"""

import hashlib
import struct
from dataclasses import dataclass, field

from drupelet.base.errors import OK
from drupelet.link.host_link import HostLink
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_MVDS,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
    SHARED,
    Link,
    Node,
)
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_host.member.mode_policy import set_mode

CLIENT = bytes(range(32))
EPOCH_MS = 1000
FRAMES_MAX = 200
ACK, MESSAGE, OFFER, REQUEST = range(4)


@dataclass
class Payload:
    """What one epoch's frames carried, or are to carry; messages are (timestamp, body)."""

    acks: list[bytes] = field(default_factory=list)
    offers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    messages: list[tuple[int, bytes]] = field(default_factory=list)
    groups: list[bytes] = field(default_factory=list)  # of each message read
    metadata: list[bytes | None] = field(default_factory=list)  # likewise; None: no such field
    frames: int = 0

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of its messages."""
        return [body for _, body in self.messages]

    def __bool__(self) -> bool:
        return bool(self.acks or self.offers or self.requests or self.messages)


def hash_of(*arguments: bytes) -> bytes:
    """HASH of BSP v1 section 1.3."""
    joined = b"".join(struct.pack(">I", len(x)) + x for x in arguments)
    return hashlib.blake2s(joined).digest()


def record(kind: int, payload: bytes) -> bytes:
    """BSP v1 section 3."""
    return struct.pack(">BBH", 1, kind, len(payload)) + payload


class Bsp:
    """Records of BSP v1 in frames of profile `bsp-1`."""

    kind = 0x40
    profile = PROFILE_BSP_1

    def group_id(self, descriptor: bytes) -> bytes:
        return hash_of(b"GROUP_ID", CLIENT, descriptor)

    def id_of(self, group: bytes, timestamp: int, body: bytes) -> bytes:
        return hash_of(b"MESSAGE_ID", group, struct.pack(">Q", timestamp), body)

    def write(self, payload: Payload, group: bytes) -> bytes:
        lists = ((ACK, payload.acks), (OFFER, payload.offers), (REQUEST, payload.requests))
        parts = [record(kind, b"".join(ids)) for kind, ids in lists if ids]
        for timestamp, body in payload.messages:
            parts.append(record(MESSAGE, group + struct.pack(">Q", timestamp) + body))
        return b"".join(parts)

    def read(self, wire: bytes, into: Payload) -> None:
        at = 0
        lists = {ACK: into.acks, OFFER: into.offers, REQUEST: into.requests}
        while at < len(wire):
            version, kind, size = struct.unpack_from(">BBH", wire, at)
            content = wire[at + 4 : at + 4 + size]
            assert version == 1 and len(content) == size
            if kind == MESSAGE:
                into.groups.append(content[:32])
                into.messages.append((struct.unpack_from(">Q", content, 32)[0], content[40:]))
            else:
                assert size and size % 32 == 0
                lists[kind] += [content[i : i + 32] for i in range(0, size, 32)]
            at += 4 + size


def varint(value: int) -> bytes:
    """A protobuf varint."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field_of(number: int, value: bytes | int) -> bytes:
    """One protobuf field: a length-delimited one, or a varint."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields_of(data: bytes) -> list[tuple[int, bytes | int]]:
    """All protobuf fields of a message."""
    found: list[tuple[int, bytes | int]] = []
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value

    while at < len(data):
        tag = number()
        assert tag & 7 in (0, 2)
        value = number()
        if tag & 7 == 0:
            found.append((tag >> 3, value))
        else:
            found.append((tag >> 3, data[at : at + value]))
            at += value
    assert at == len(data)
    return found


class Mvds:
    """Payloads of MVDS 0.5.1 and 0.6.0; with other field numbers those of the other profiles."""

    LISTS = ("acks", "offers", "requests")

    def __init__(self, profile: int = PROFILE_MVDS_1) -> None:
        self.profile = profile
        self.kind = 0x40 | profile
        self.nested = profile == PROFILE_MVDS_NESTED
        base = 5000 if profile == PROFILE_MVDS_5001 else 0
        self.outer = range(base + 1, base + 5)  # acks, offers, requests, messages
        inner = 6000 if base else 0
        self.inner = range(inner + 1, inner + 4)  # group_id, timestamp, body
        self.metadata = inner + 4

    def group_id(self, descriptor: bytes) -> bytes:
        return hashlib.sha256(descriptor).digest()  # the text does not say how it is made

    def id_of(self, group: bytes, timestamp: int, body: bytes) -> bytes:
        moment = struct.pack("<q", timestamp)
        return hashlib.sha256(b"MESSAGE_ID" + group + moment + body).digest()

    def write(self, payload: Payload, group: bytes) -> bytes:
        parts = []
        for number, name in zip(self.outer, self.LISTS, strict=False):
            entries = getattr(payload, name)
            if self.nested and entries:
                entries = [b"".join(field_of(1, id) for id in entries)]
            parts += [field_of(number, entry) for entry in entries]
        for message in payload.messages:
            values = zip(self.inner, (group, *message), strict=True)
            inside = b"".join(field_of(number, value) for number, value in values if value)
            parts.append(field_of(self.outer[3], inside))
        return b"".join(parts)

    def read(self, wire: bytes, into: Payload) -> None:
        assert wire, "an empty payload"
        for number, value in fields_of(wire):
            place = self.outer.index(number)
            if place == 3:
                inside = dict(fields_of(value))
                assert not set(inside) - {*self.inner, self.metadata}
                into.metadata.append(inside.get(self.metadata))
                group, moment, content = self.inner
                into.groups.append(inside.get(group, b""))
                time = struct.unpack("<q", struct.pack("<Q", inside.get(moment, 0)))[0]
                into.messages.append((time, inside.get(content, b"")))
            else:
                entries = [id for _, id in fields_of(value)] if self.nested else [value]
                assert all(len(id) == 32 for id in entries)
                getattr(into, self.LISTS[place]).extend(entries)


class Home:
    """Where a device keeps its store: flash in RAM. A test may bring another."""

    def __init__(self) -> None:
        self._files = RamFiles(1 << 22)

    def open(self) -> FlashStore:
        store = FlashStore(self._files)
        assert store.open() == OK
        return store

    def cut(self, store: FlashStore) -> None:
        """A power cut after all is durable."""
        assert store.barrier() == OK
        self._files.power_cut()


class Device:
    """A node with a link to each of some peers; time goes by whole epochs, with `tick`."""

    home = Home

    def __init__(
        self, peers: str = "B", mode: int = BATCH, visibility: int = SHARED,
        wire: Bsp | Mvds | None = None, **node: object,
    ) -> None:  # fmt: skip
        self.wire = wire or Bsp()
        self.descriptor = b"conformance"
        self._home = self.home()
        self._made = (peers, mode, visibility, node)
        self._start()

    def _start(self) -> None:
        peers, mode, visibility, node = self._made
        self.store = self._home.open()
        self.node = Node(self.store, lambda: 0, **node)
        self.now_ms = 0
        self.group = self.join(self.descriptor)
        self.peers: dict[str, int] = {}
        self.links: dict[str, Link] = {}
        for name in peers:
            self.peers[name] = self.node.add_peer(name.encode() * 4)
            self.node.share(self.group, self.peers[name], visibility)
        self.node.boot(0)
        for name in peers:
            self.connect(name, mode)

    def again(self, saved: bool = True) -> None:
        """A power cut after all messages are durable, what peers hold too if `saved`; a boot."""
        if saved:
            assert self.node.save(self.now_ms) == OK
        self._home.cut(self.store)
        self._start()

    def join(self, descriptor: bytes) -> int:
        if isinstance(self.wire, Mvds):
            return self.node.join_id(self.wire.group_id(descriptor), FAMILY_MVDS)
        return self.node.join(CLIENT, descriptor)

    @property
    def group_id(self) -> bytes:
        return self.wire.group_id(self.descriptor)

    def connect(self, name: str, mode: int) -> None:
        self.links[name] = self.node.link(
            self.peers[name], self.wire.profile, CARRIER_SERIAL, EPOCH_MS, BATCH, self.now_ms,
            HostLink,
        )  # fmt: skip
        set_mode(self.links[name], mode)

    def id_of(self, body: bytes, timestamp: int = 7) -> bytes:
        return self.wire.id_of(self.group_id, timestamp, body)

    def publish(self, body: bytes, timestamp: int = 7, group: int = 0) -> bytes:
        """Publish a message; its id."""
        mvds = isinstance(self.wire, Mvds)
        stamp = struct.pack("<q" if mvds else ">Q", timestamp)
        body = b"\0" + body if mvds else body  # a stored body's head: docs/SPEC.md 4.3
        code = self.node.publish(group or self.group, body, len(body), stamp, self.now_ms)
        assert code > 0
        assert self.store.load(code) == OK
        return bytes(self.store.id)

    def tick(self, epochs: int = 1) -> None:
        self.now_ms += epochs * EPOCH_MS

    def sent(self, name: str = "B") -> Payload:
        """Everything that is sent to this peer at this moment."""
        found = Payload()
        buffer = bytearray(1024)
        while size := self.links[name].poll_into(buffer, self.now_ms):
            assert buffer[0] == self.wire.kind
            self.wire.read(bytes(buffer[1:size]), found)
            found.frames += 1
            assert found.frames < FRAMES_MAX
        return found

    def next(self, name: str = "B") -> Payload:
        """What is sent in the next epoch."""
        self.tick()
        return self.sent(name)

    def hear(self, name: str = "B", **lists: list) -> int:
        """Take in one frame with these lists; the code that the node answered."""
        data = bytes([self.wire.kind]) + self.wire.write(Payload(**lists), self.group_id)
        return self.hear_raw(data, name)

    def hear_raw(self, data: bytes, name: str = "B") -> int:
        """Take in a frame as it is."""
        assert len(data) <= 1024
        buffer = bytearray(data) + bytes(1024 - len(data))
        return self.links[name].receive(buffer, len(data), self.now_ms)

    def log(self) -> list[bytes]:
        """The ids of the log in order."""
        found, handle = [], self.store.next(0)
        while handle:
            assert self.store.load(handle) == OK
            found.append(bytes(self.store.id))
            handle = self.store.next(handle)
        return found

    def events(self) -> list[bytes]:
        """The bodies that were delivered and not yet taken, in order; they count as taken."""
        found = []
        while self.node.next_event():
            handle = self.node.event_handle
            assert self.store.load(handle) == OK
            out = bytearray(self.store.size)
            assert self.store.read_into(handle, 0, out, 0, len(out)) == len(out)
            found.append(bytes(out))
            self.node.done(handle)
        return found
