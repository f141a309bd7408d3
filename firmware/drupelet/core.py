"""The tables of one node, built once at boot and shared by its links; and what a message costs
to take in, whatever brought it."""

from drupelet.blackbox import (
    CODE_CREATED,
    CODE_DELIVERED,
    COUNT_CREATED,
    COUNT_DELIVERED,
)
from drupelet.graph import Graph
from drupelet.hashes import MessageHash
from drupelet.limits import CONTENT_HEADER_SIZE, ID_SIZE, SCRATCH_SIZE
from drupelet.members import GROUP_TELEMETRY, Members
from drupelet.slots import MessageSlots, OfferPool
from drupelet.window import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import BoxPort, IndexPort, StorePort


class NoBox:
    """Stands where a node keeps no black box."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Nothing is kept."""

    def log_id(
        self, now_ms: int, code: int, a: int, b: int, ids: "bytes | bytearray | memoryview",
        at: int,
    ) -> None:  # fmt: skip
        """Nothing is kept."""

    def count(self, index: int, amount: int) -> None:
        """Nothing is kept."""


class Core:
    """What all links of a node work on."""

    def __init__(
        self, store: "StorePort", peers_max: int, groups_max: int, messages_max: int,
        offers_max: int, box: "BoxPort", index: "IndexPort | None", parts_max: int,
    ) -> None:  # fmt: skip
        self.store = store
        self.members = Members(groups_max, peers_max)
        self.slots = MessageSlots(messages_max, peers_max, index)
        self.offers = OfferPool(offers_max)
        self.window = Window(store, self.members, self.slots)
        self.graph = Graph(store, self.members, self.slots, self.offers, self.window)
        self.hash = MessageHash()
        self.id = bytearray(ID_SIZE)
        self.scratch = bytearray(SCRATCH_SIZE)
        self.box = box
        # Incoming part files: the peer (row + 1) whose content each takes in, which content, how
        # long it is, and when it last grew.
        self.part_owners = bytearray(parts_max)
        self.part_keys = bytearray(8 * parts_max)
        self.part_totals = [0] * parts_max
        self.part_grew_ms = [0] * parts_max
        self.delivered = 0
        self.duplicates = 0
        self.malformed = 0
        self.unknown = 0

    def trace(self, now_ms: int, code: int, peer: int, count: int, slot: int) -> None:
        """Log a step in a message's life, unless it is a black box itself."""
        if not self.members.group_flags[self.slots.groups[slot]] & GROUP_TELEMETRY:
            self.box.log_id(now_ms, code, peer, count, self.slots.ids, slot * ID_SIZE)

    def hash_part(self, part: int) -> bool:
        """Compute `id` of the content in a part file by reading it back; False if it cannot."""
        store = self.store
        scratch = self.scratch
        size = store.part_size(part)
        if store.part_read_into(part, 0, scratch, 0, CONTENT_HEADER_SIZE) != CONTENT_HEADER_SIZE:
            return False
        self.hash.start(scratch, 0, scratch, ID_SIZE, size - CONTENT_HEADER_SIZE)
        offset = CONTENT_HEADER_SIZE
        while offset < size:
            count = store.part_read_into(part, offset, scratch, 0, SCRATCH_SIZE)
            if count <= 0:
                return False
            self.hash.update(scratch, 0, count)
            offset += count
        self.hash.digest_into(self.id, 0)
        return True

    def entered(self, now_ms: int, group: int, source: int) -> None:
        """Account for `id`, which just entered the log, and for the children it sets free."""
        self._delivered(now_ms, group, source, self.id, 0)
        self.promote(now_ms)

    def promote(self, now_ms: int) -> None:
        """Put every pending message whose parents are here into the log."""
        slot = self.graph.promote()
        while slot >= 0:
            slots = self.slots
            self._delivered(now_ms, slots.groups[slot], slots.sources[slot], slots.ids, slot * 32)
            slot = self.graph.promote()

    def _delivered(self, now_ms: int, group: int, source: int, ids: bytearray, at: int) -> None:
        self.delivered += 1
        if self.members.group_flags[group] & GROUP_TELEMETRY:
            return
        if source == 0:
            self.box.count(COUNT_CREATED, 1)
            self.box.log_id(now_ms, CODE_CREATED, 0, 0, ids, at)
        self.box.count(COUNT_DELIVERED, 1)
        self.box.log_id(now_ms, CODE_DELIVERED, source, 0, ids, at)
