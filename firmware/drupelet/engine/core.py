"""The tables of one node, built once at boot and shared by its links; and what a message costs
to take in, whatever brought it."""

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.base.events import CODE_CREATED, CODE_DELIVERED, COUNT_CREATED, COUNT_DELIVERED
from drupelet.base.limits import (
    CONTENT_HEADER_SIZE,
    DEPENDENCIES_MAX,
    ID_SIZE,
    SCRATCH_SIZE,
)
from drupelet.base.memory import get_u16
from drupelet.engine.clock import Clocks
from drupelet.engine.graph import ONCE, Graph
from drupelet.engine.members import (
    FAMILIES,
    FAMILY_MVDS,
    GROUP_TELEMETRY,
    HEAD_EPHEMERAL,
    HEAD_PARENTS,
    Members,
)
from drupelet.engine.slots import PART_ROW, PART_SIZE, TAG_SIZE, MessageSlots, OfferPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import BoxPort, HashPort
    from drupelet.engine.ports import ClientPort, CodecPort
    from drupelet.engine.sender import Dues
    from drupelet.store.ports import StorePort
    from drupelet.wire.bsp0.codec import Codecs


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


NO_BOX = NoBox()


class Core:
    """What all links of a node work on."""

    # What few nodes have.
    rivals: "Codecs | None" = None  # of bsp-0 on a host, made by the first link that speaks it
    # For policies: what was sent last, -1 to a silent peer, 0 for the first time, 1 again.
    again = -1

    def __init__(
        self, store: "StorePort", peers_max: int, groups_max: int, messages_max: int,
        offers_max: int, box: "BoxPort", parts_max: int,
    ) -> None:  # fmt: skip
        self.store = store
        self.members = Members(groups_max, peers_max)
        self.slots = MessageSlots(messages_max, peers_max, store)
        self.offers = OfferPool(offers_max)
        self.clocks = Clocks(peers_max)
        self.window = Graph(store, self.members, self.slots, self.offers)
        # By family: each brings its own with its first group.
        self._hashes: "list[HashPort | None]" = [None] * FAMILIES
        self.id = bytearray(ID_SIZE)  # of the copy that was identified last
        self.codecs: "dict[int, CodecPort]" = {}  # by profile, where links may share one
        self.box = box
        # What is taken in and given out in pieces, PART_SIZE bytes each: first by part file, whose
        # content it takes in (peer row + 1); then by peer, how far what goes to it has come, over
        # whatever link. In front of each stands which content it is.
        self.parts = bytearray(PART_SIZE * (parts_max + peers_max))
        self.part_rows = [0] * (PART_ROW * parts_max)  # what `segments` notes of what comes in
        self.delivered = 0
        self.duplicates = 0
        self.malformed = 0
        self.unknown = 0
        # Links work one at a time. Of the frame that is being read or written:
        self.now_ms = 0
        self.firm = False  # what the frame carries must be durable before it leaves
        self.message_handle = 0  # what `next_message` found: its handle and slot
        self.message_slot = -1
        self.taken = 0  # the slot of the id that was taken last; below 0: ~ its entry in the pool
        self.telemetry = False  # the message that was just taken or given was a black box
        # The scans for what is due, and the link that they are for; another one begins anew.
        self.scanner: "Dues | None" = None
        self.scan_from = 0
        self.ack_left = self.message_left = self.offer_left = 0
        self.owed_at = self.request_at = 0

    @property
    def graph(self) -> Graph:
        """The window with what it knows of dependencies; its `ids` are scratch for any step."""
        return self.window

    @property
    def message_group(self) -> int:
        """The group's row of the message that `next_message` found."""
        return self.members.group_slot(self.store.group)

    def is_box(self, group: int) -> bool:
        """True when messages of a group (row) are black boxes."""
        return self.members.flags(group) & GROUP_TELEMETRY != 0

    def regroup(self, group: int, client: "ClientPort | None") -> None:
        """A group (row) was joined or left; `client` looks after it, None: the default one."""
        self.graph.use_client(group, client)
        for profile in self.codecs:
            regroup = getattr(self.codecs[profile], "regroup", None)
            if regroup is not None:  # it keeps groups by number
                regroup(group)

    def trace(self, now_ms: int, code: int, peer: int, count: int, slot: int) -> None:
        """Log a step in a message's life, unless it is a black box itself."""
        if not self.is_box(self.slots.group(slot)):
            self.box.log_id(now_ms, code, peer, count, self.slots.tags, slot * TAG_SIZE)

    def use_family(self, family: int, made: "HashPort") -> None:
        """Have the hash of a family at hand; its first group brings it."""
        self._hashes[family] = made

    def has_family(self, family: int) -> bool:
        """True when the hash of this family is at hand."""
        return self._hashes[family] is not None

    def begin_hash(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, size: int
    ) -> "HashPort":  # fmt: skip
        """Begin the id of a message of a group (row) whose hashed body has `size` bytes."""
        made = self._hashes[self.members.family(group)]
        made.start(  # type: ignore[union-attr]
            self.members.group_ids, group * ID_SIZE, stamp, stamp_at, size
        )
        return made  # type: ignore[return-value]

    def head_size(self, group: int, first: int, size: int, stamp: int = 0) -> int:
        """Bytes of a stored body that are not hashed, or E_PEER; `first` is its first byte.

        `stamp` is the timestamp's: below zero is none (BSP v1 3), though segments may bring it.
        Dependencies are not hashed in the MVDS family: they stand in front (docs/SPEC.md 4.3).
        """
        self.window.todo &= ~ONCE
        if self.members.family(group) != FAMILY_MVDS:
            return E_PEER if stamp & 0x80 else 0
        self.window.todo |= ONCE if first & HEAD_EPHEMERAL else 0
        count = first & HEAD_PARENTS
        head = 1 + count * ID_SIZE
        return head if count <= DEPENDENCIES_MAX and head <= size else E_PEER

    def identify(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, body: "bytes | bytearray",
        at: int, size: int,
    ) -> int:  # fmt: skip
        """Compute `id` of a stored body in a buffer; OK or E_PEER."""
        head = self.head_size(group, body[at] if size else 0, size, stamp[stamp_at])
        if head < 0:
            return E_PEER
        made = self.begin_hash(group, stamp, stamp_at, size - head)
        made.update(body, at + head, size - head)
        made.digest_into(self.id, 0)
        return OK

    def identify_part(self, part: int) -> int:
        """Compute `id` of the content in a part file by reading it back; its group's row.

        E_STORAGE when it cannot be read, E_PEER when its group is not ours or its head is bad.
        """
        store = self.store
        scratch = self.window.ids  # what the graph looked at is done with
        size = store.part_size(part)
        have = store.part_read_into(part, 0, scratch, 0, CONTENT_HEADER_SIZE + 1)
        if have < CONTENT_HEADER_SIZE:
            return E_STORAGE
        group = self.members.group_of(scratch, 0)
        offset = CONTENT_HEADER_SIZE
        if group < 0:
            return E_PEER
        head = self.head_size(group, scratch[offset], size - offset, scratch[ID_SIZE])
        if head < 0:
            return E_PEER
        offset += head
        made = self.begin_hash(group, scratch, ID_SIZE, size - offset)
        while offset < size:
            count = store.part_read_into(part, offset, scratch, 0, SCRATCH_SIZE)
            if count <= 0:
                return E_STORAGE
            made.update(scratch, 0, count)
            offset += count
        made.digest_into(self.id, 0)
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
        if self.is_box(group):
            return
        self.delivered += 1
        tag = get_u16(self.members.group_ids, group * ID_SIZE)
        if source == 0:
            self.box.count(COUNT_CREATED, 1)
            self.box.log_id(now_ms, CODE_CREATED, 0, tag, ids, at)
        self.box.count(COUNT_DELIVERED, 1)
        self.box.log_id(now_ms, CODE_DELIVERED, source, tag, ids, at)
