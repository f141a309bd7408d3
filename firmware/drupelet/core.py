"""The tables of one node, built once at boot and shared by its links; and what a message costs
to take in, whatever brought it."""

from drupelet.blackbox import (
    CODE_CREATED,
    CODE_DELIVERED,
    COUNT_CREATED,
    COUNT_DELIVERED,
)
from drupelet.errors import E_PEER, E_STORAGE, OK
from drupelet.graph import Graph
from drupelet.hashes import MessageHash
from drupelet.limits import (
    CONTENT_HEADER_SIZE,
    DEPENDENCIES_MAX,
    ID_SIZE,
    PART_INCOMING,
    SCRATCH_SIZE,
)
from drupelet.members import FAMILIES, FAMILY_MVDS, GROUP_TELEMETRY, HEAD_PARENTS, Members
from drupelet.slots import MessageSlots, OfferPool
from drupelet.window import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import BoxPort, CodecPort, HashPort, IndexPort, StorePort
    from drupelet.wire.bsp0_link import Codecs
    from drupelet.wire.compact1_out import CompactEngine


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
        self.hash: "HashPort" = MessageHash()  # of the message that is being looked at
        # By family; the others bring their own with their first group.
        self._hashes: "list[HashPort]" = [self.hash] * FAMILIES
        self.id = bytearray(ID_SIZE)
        self.scratch = bytearray(SCRATCH_SIZE)
        self.box = box
        # Incoming part files: the peer (row + 1) whose content each takes in, which content, how
        # long it is, and when it last grew.
        self.part_owners = bytearray(parts_max)
        self.part_keys = bytearray(8 * parts_max)
        self.part_totals = [0] * parts_max
        self.part_grew_ms = [0] * parts_max
        # How much of it we had (+ 1) when its sender seemed not to know; how much it was told
        # that we have (+ 1; 0: nothing yet), and when.
        self.part_gaps = [0] * parts_max
        self.part_told = [0] * parts_max
        self.part_told_ms = [0] * parts_max
        # What goes out in pieces to each peer: which content, and how far it has come, over
        # whatever link.
        self.out_keys = bytearray(8 * peers_max)
        self.out_sizes = [0] * peers_max
        self.compact: "CompactEngine | None" = None  # made by the first link that speaks it
        self.rivals: "Codecs | None" = None  # likewise, of bsp-0 on a host
        self.codecs: "dict[int, CodecPort]" = {}  # by profile, where links may share one
        self.delivered = 0
        self.duplicates = 0
        self.malformed = 0
        self.unknown = 0

    def trace(self, now_ms: int, code: int, peer: int, count: int, slot: int) -> None:
        """Log a step in a message's life, unless it is a black box itself."""
        if not self.members.group_flags[self.slots.groups[slot]] & GROUP_TELEMETRY:
            self.box.log_id(now_ms, code, peer, count, self.slots.ids, slot * ID_SIZE)

    def free_part(self) -> int:
        """A part file that takes in nobody's content just now, or -1."""
        for part in range(len(self.part_owners)):
            if not self.part_owners[part]:
                return PART_INCOMING + part
        return -1

    def use_family(self, family: int, made: "HashPort") -> None:
        """Have the hash of a family at hand; its first group brings it."""
        self._hashes[family] = made

    def has_family(self, family: int) -> bool:
        """True when the hash of this family is at hand."""
        return not family or self._hashes[family] is not self._hashes[0]

    def begin_hash(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, size: int
    ) -> None:  # fmt: skip
        """Begin the id of a message of a group (row) whose hashed body has `size` bytes."""
        self.hash = self._hashes[self.members.families[group]]
        self.hash.start(self.members.group_ids, group * ID_SIZE, stamp, stamp_at, size)

    def head_size(self, group: int, first: int, size: int) -> int:
        """Bytes of a stored body that are not hashed, or E_PEER; `first` is its first byte.

        Dependencies are not hashed in the MVDS family: they stand in front (docs/SPEC.md 4.3).
        """
        if self.members.families[group] != FAMILY_MVDS:
            return 0
        count = first & HEAD_PARENTS
        head = 1 + count * ID_SIZE
        return head if count <= DEPENDENCIES_MAX and head <= size else E_PEER

    def identify(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, body: "bytes | bytearray",
        at: int, size: int,
    ) -> int:  # fmt: skip
        """Compute `id` of a stored body in a buffer; OK or E_PEER."""
        head = self.head_size(group, body[at] if size else 0, size)
        if head < 0:
            return E_PEER
        self.begin_hash(group, stamp, stamp_at, size - head)
        self.hash.update(body, at + head, size - head)
        self.hash.digest_into(self.id, 0)
        return OK

    def identify_part(self, part: int) -> int:
        """Compute `id` of the content in a part file by reading it back; its group's row.

        E_STORAGE when it cannot be read, E_PEER when its group is not ours or its head is bad.
        """
        store = self.store
        scratch = self.scratch
        size = store.part_size(part)
        have = store.part_read_into(part, 0, scratch, 0, CONTENT_HEADER_SIZE + 1)
        if have < CONTENT_HEADER_SIZE:
            return E_STORAGE
        group = self.members.group_of(scratch, 0)
        offset = CONTENT_HEADER_SIZE
        if group < 0:
            return E_PEER
        head = self.head_size(group, scratch[CONTENT_HEADER_SIZE], size - offset)
        if head < 0:
            return E_PEER
        offset += head
        self.begin_hash(group, scratch, ID_SIZE, size - offset)
        while offset < size:
            count = store.part_read_into(part, offset, scratch, 0, SCRATCH_SIZE)
            if count <= 0:
                return E_STORAGE
            self.hash.update(scratch, 0, count)
            offset += count
        self.hash.digest_into(self.id, 0)
        return group

    def entered(self, now_ms: int, group: int, source: int) -> None:
        """Account for `id`, which just entered the log, and for the children it sets free."""
        self._delivered(now_ms, group, source, self.id, 0)
        self.promote(now_ms)

    def promote(self, now_ms: int) -> None:
        """Put every pending message whose parents are here into the log."""
        store = self.store
        while self.graph.promote():
            if store.load(self.graph.handle) == OK:
                group = self.members.group_slot(store.group)
                self._delivered(now_ms, group, store.source, store.id, 0)

    def _delivered(self, now_ms: int, group: int, source: int, ids: bytearray, at: int) -> None:
        self.delivered += 1
        if self.members.group_flags[group] & GROUP_TELEMETRY:
            return
        if source == 0:
            self.box.count(COUNT_CREATED, 1)
            self.box.log_id(now_ms, CODE_CREATED, 0, 0, ids, at)
        self.box.count(COUNT_DELIVERED, 1)
        self.box.log_id(now_ms, CODE_DELIVERED, source, 0, ids, at)
