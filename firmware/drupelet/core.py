"""The tables of one node, built once at boot and shared by its links; and what a message costs
to take in, whatever brought it."""

from drupelet.blackbox import (
    CODE_CREATED,
    CODE_DELIVERED,
    COUNT_CREATED,
    COUNT_DELIVERED,
)
from drupelet.graph import ENTERED, Graph
from drupelet.hashes import MessageHash
from drupelet.limits import CONTENT_HEADER_SIZE, ID_SIZE, PART_IDLE_MS, SCRATCH_SIZE
from drupelet.members import GROUP_TELEMETRY, Members
from drupelet.memory import get_u32, put_u32
from drupelet.schedule import elapsed_ms
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
        self, now_ms: int, code: int, a: int, b: int, ids: "bytes | bytearray", at: int
    ) -> None:
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
        self.part_owners = bytearray(parts_max)  # peer row + 1 whose content a part file takes in
        self._part_grew_ms = bytearray(4 * parts_max)
        self.delivered = 0
        self.duplicates = 0
        self.malformed = 0
        self.unknown = 0

    def trace(self, now_ms: int, code: int, peer: int, count: int, slot: int) -> None:
        """Log a step in a message's life, unless it is a black box itself."""
        if not self.members.group_flags[self.slots.groups[slot]] & GROUP_TELEMETRY:
            self.box.log_id(now_ms, code, peer, count, self.slots.ids, slot * ID_SIZE)

    def claim_part(self, peer: int, now_ms: int) -> int:
        """An incoming part for this peer: its own, a free one, or one that stands still; or -1."""
        owners = self.part_owners
        count = len(owners)
        found = -1
        for step in range(count):
            part = (peer + step) % count
            if not owners[part] or owners[part] == peer + 1:
                found = part
                break
            idle_ms = elapsed_ms(now_ms, get_u32(self._part_grew_ms, part * 4))
            if found < 0 and idle_ms >= PART_IDLE_MS:
                found = part
        if found >= 0:
            owners[found] = peer + 1
            self.touch_part(found, now_ms)
        return found

    def touch_part(self, part: int, now_ms: int) -> None:
        """A piece has come for this part."""
        put_u32(self._part_grew_ms, part * 4, now_ms)

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
        self.offers.drop_id(self.id, 0)
        self._delivered(now_ms, group, source, self.id, 0)
        slot = self.graph.promote()
        while slot >= 0:
            slots = self.slots
            self._delivered(now_ms, slots.groups[slot], slots.sources[slot], slots.ids, slot * 32)
            slot = self.graph.promote()

    def _delivered(
        self, now_ms: int, group: int, source: int, ids: bytearray, at: int
    ) -> None:
        traced = not self.members.group_flags[group] & GROUP_TELEMETRY
        if source == 0:
            self.box.count(COUNT_CREATED, 1 if traced else 0)
            if traced:
                self.box.log_id(now_ms, CODE_CREATED, 0, 0, ids, at)
        self.delivered += 1
        self.box.count(COUNT_DELIVERED, 1 if traced else 0)
        if traced:
            self.box.log_id(now_ms, CODE_DELIVERED, source, 0, ids, at)

    def taken(self, now_ms: int, outcome: int, group: int, source: int) -> int:
        """Follow up a `Graph.take_*`; returns its outcome."""
        if outcome == ENTERED:
            self.entered(now_ms, group, source)
        return outcome
