"""What a world is joined by: groups, and links with their two ends."""

import hashlib
from typing import TYPE_CHECKING

from drupelet.members import FAMILY_MVDS
from drupelet.profiles import PROFILE_MVDS_1, PROFILE_MVDS_5001
from drupelet_tools.sim import readers
from drupelet_tools.sim.carriers import Rates, Wire

if TYPE_CHECKING:
    from drupelet.link import Link as CoreLink
    from drupelet.seal import Seal
    from drupelet_tools.sim.device import SimNode
    from drupelet_tools.sim.sealing import Keys
    from drupelet_tools.sim.world import World
    from drupelet_transports.sealed import Sealed

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
        "accepted", "carrier", "epoch_ms", "falls_back", "keys", "link", "mode", "node", "number",
        "other", "peer", "profile", "queue", "room", "rotation", "said", "seal", "size_max",
        "transport", "up", "visible", "wire",
    )  # fmt: skip

    link: "CoreLink"
    other: "End"

    def __init__(
        self, node: "SimNode", peer: "SimNode", carrier: int, profile: int, mode: int,
        epoch_ms: int, size_max: int, wire: Wire | None,
    ) -> None:  # fmt: skip
        self.node = node
        self.peer = peer
        self.carrier = carrier
        self.profile = profile
        self.mode = mode
        self.epoch_ms = epoch_ms
        self.size_max = size_max
        self.falls_back = PROFILE_MVDS_1 <= profile <= PROFILE_MVDS_5001
        self.wire = wire
        self.keys: Keys | None = None  # of a sealed link, durable
        self.seal: Seal | None = None  # since this boot
        self.transport: Sealed | None = None  # around the wire, since this boot
        self.rotation: tuple[bytes, int] | None = None  # the new root and its generation
        self.said: list[bytes] = []  # frames that left lately, before the seal
        self.room: bytearray | None = None
        self.accepted: set[int] = set()  # sealed frames that were taken, as hashes
        self.up = True
        self.number = 0
        self.visible: set[bytes] = set()
        self.queue: list[bytes] | None = None  # what a broker keeps while the peer is away

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

    def __init__(self, world: "World", ends: tuple[End, End], number: int) -> None:
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
