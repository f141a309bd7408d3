"""What a world is joined by: groups, and links with their two ends.

`NodePort` and `WorldPort` are what ends, and what is built on them, need of the device they belong
to and of the world around it; so devices and worlds know ends, and ends know neither.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from drupelet import host_api
from drupelet.engine.members import FAMILY_MVDS
from drupelet.seal.record import ANEW, URGENT
from drupelet_host.base.aead import Aead
from drupelet_tools.sim import readers
from drupelet_tools.sim.carriers import Rates, Wire
from drupelet_tools.sim.keys import Keys
from drupelet_tools.sim.oracle import Oracle

if TYPE_CHECKING:
    from drupelet.duty.wake_plan import WakePlan
    from drupelet.link.link import Link as CoreLink
    from drupelet.node import Node
    from drupelet.seal.seal import Seal
    from drupelet.store.flash_store import FlashStore
    from drupelet.telemetry.black_box import BlackBox
    from drupelet_tools.sim.hoststore import MemoryStore
    from drupelet_transports.seal.sealed_carrier import Sealed

CLIENT_ID = bytes.fromhex("6f1d5e0b92c84a37b5e3f0a7d41c9826e57b3a90c6124df8a9e07bb15d83f264")


class Group:
    """A group, its members, and the number that it has at each."""

    def __init__(self, descriptor: bytes, family: int, members: list[str]) -> None:
        self.descriptor = descriptor
        self.family = family
        self.members = members
        self.numbers: dict[str, int] = {}
        if family == FAMILY_MVDS:
            self.id = hashlib.sha256(descriptor).digest()
        else:
            self.id = readers.bsp_group_id(CLIENT_ID, descriptor)

    def message_id(self, stamp: bytes, body: bytes) -> bytes:
        """The id of a message, as the specifications have it."""
        if self.family == FAMILY_MVDS:
            return readers.mvds_message_id(self.id, stamp, body)
        return readers.bsp_message_id(self.id, stamp, body)


class End:
    """One node's end of a link: its core link, and the wire that its frames leave by."""

    __slots__ = (
        "accepted", "accepts", "carrier", "epoch_ms", "keys", "link", "mode",
        "node", "number", "other", "peer", "profile", "queue", "recent_frames", "room", "rotation",
        "seal", "size_max", "transport", "up", "visible", "wire",
    )  # fmt: skip

    link: "CoreLink"
    other: "End"

    def __init__(
        self, node: "NodePort", peer: "NodePort", carrier: int, profile: int, mode: int,
        epoch_ms: int, size_max: int, wire: Wire | None,
    ) -> None:  # fmt: skip
        self.node = node
        self.peer = peer
        self.carrier = carrier
        self.profile = profile
        self.mode = mode
        self.epoch_ms = epoch_ms
        self.size_max = size_max
        self.wire = wire
        self.keys: Keys | None = None  # of a sealed link, durable
        self.seal: Seal | None = None  # since this boot
        self.transport: Sealed | None = None  # around the wire, since this boot
        self.rotation: tuple[bytes, int] | None = None  # the new root and its generation
        self.recent_frames: list[bytes] = []  # the last frames sent, as they were before the seal
        self.room: bytearray | None = None
        self.accepted: set[int] = set()  # sealed frames that were taken, as hashes
        self.up = True
        self.number = 0
        self.visible: set[bytes] = set()  # groups that are shared with the peer
        self.accepts: set[bytes] = set()  # groups of which it takes what the peer has, no more
        self.queue: list[bytes] | None = None  # what a broker keeps while the peer is away

    @property
    def tells(self) -> bool:
        """Whether its seal has something to say alone, over a carrier that is looked at."""
        return self.transport is not None and bool(self.transport.seal.flags & (URGENT | ANEW))

    @property
    def rekeying(self) -> bool:
        """Whether the peer still has to be told a new root."""
        if self.rotation is None or self.seal is None:
            return False
        return bool(self.seal.generation_in < self.rotation[1])

    @property
    def owes(self) -> bool:
        """Whether the peer is not known to hold something that goes to it."""
        node = self.node.node
        assert node is not None
        passed_over = host_api.peer_state(node, self.number).passed_over
        return bool(passed_over) or not host_api.is_current(node, self.number)

    def frame(self, room: bytearray) -> bytearray:
        """A buffer as long as this carrier's frames may be."""
        size = self.size_max if self.transport is None else self.transport.frame_size_max
        if size == len(room):
            return room
        if self.room is None or len(self.room) != size:
            self.room = bytearray(size)
        return self.room


class Link:
    """Two ends of one carrier between two nodes."""

    def __init__(self, world: "WorldPort", ends: tuple[End, End], number: int) -> None:
        self.world = world
        self.ends = ends
        self.number = number

    def up(self, up: bool) -> None:
        """Connect or disconnect; what is sent meanwhile is lost, unless a broker keeps it."""
        for end in self.ends:
            was = end.up
            end.up = up
            if up and not was and end.node.node is not None:
                end.link.greet()
                self.world.oracle.heard(end.node.name, end.peer.name)  # the back-off begins anew
                end.node.wake_by(self.world.now_ms)
                self.world.drain(end)

    def rates(self, there: Rates, back: Rates | None = None) -> None:
        """Set the faults of both directions."""
        for end, rates in zip(self.ends, (there, back or there), strict=True):
            if end.wire is not None:
                end.wire.rates = rates

    def contacts(self, times: list[tuple[int, int]]) -> None:
        """Down but for these (from, to) in ms."""
        self.up(False)
        for since, until in times:
            self.world.at(since, lambda: self.up(True))
            self.world.at(until, lambda: self.up(False))


class NodePort(Protocol):
    """A device, as its ends show it; `node` is the core while it runs."""

    name: str
    number: int
    id: bytes
    node: "Node | None"
    box: "BlackBox | None"
    plan: "WakePlan | None"
    database: "MemoryStore | None"
    store: "FlashStore | MemoryStore"
    groups: list[Group]
    frame: bytearray
    draw: Callable[[int], int]
    token: int
    seen: dict[int, bytes]

    @property
    def store_gen(self) -> int:
        """The number of its store."""

    def clock_ms(self) -> int:
        """Its milliseconds."""

    def hears(self) -> bool:
        """Whether its receiver is on."""

    def finds(self, id: bytes) -> bool:
        """Whether its store knows this id."""

    def volatile(self, id: bytes) -> bool:
        """Whether a power cut now could take this message."""

    def consume(self) -> None:
        """Give its client every event."""

    def save(self) -> bool:
        """Write what a reboot must not forget; whether that is done."""

    def wake_by(self, at_ms: int) -> None:
        """Have a turn at that time at the latest."""


class WorldPort(Protocol):
    """The world, as devices see it."""

    now_ms: int
    save_ms: int
    oracle: Oracle

    @property
    def aead(self) -> Aead:
        """What seals for everybody."""

    def drawer(self, purpose: str) -> Callable[[int], int]:
        """Random numbers of their own for one purpose."""

    def at(self, at_ms: int, call: Callable[[], object]) -> None:
        """Call something at a time."""

    def push_wake(self, at_ms: int, node: NodePort) -> None:
        """A node wants a turn."""

    def transmit(self, end: End, frame: bytes) -> None:
        """A frame of a link leaves over a live carrier."""

    def fly(self, end: End, frame: bytes) -> None:
        """A frame is on its wire."""

    def stick_frame(self, end: End, frame: bytes) -> None:
        """A frame is written to a stick."""

    def drain(self, end: End) -> None:
        """Deliver what a broker kept of this end's frames."""

    def note(self, what: str, node: str, id: bytes = b"") -> None:
        """Something happened."""
