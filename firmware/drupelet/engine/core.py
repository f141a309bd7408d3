"""The state of one node that all its links work on: tables, message ids and counters."""

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.base.events import CODE_CREATED, CODE_DELIVERED, COUNT_CREATED, COUNT_DELIVERED
from drupelet.base.limits import (
    CONTENT_HEADER_SIZE,
    DEPENDENCIES_MAX,
    ID_SIZE,
    INBOX_OFFERS_MIN,
    OUTBOX_ROWS_MIN,
    SCRATCH_SIZE,
)
from drupelet.base.memory import get_u16
from drupelet.engine.clock import Clocks
from drupelet.engine.graph import Graph
from drupelet.engine.inbox import Inbox
from drupelet.engine.members import (
    FAMILIES,
    FAMILY_MVDS,
    GROUP_TELEMETRY,
    HEAD_EPHEMERAL,
    HEAD_PARENTS,
    SHARED,
    Members,
)
from drupelet.engine.outbox import Outbox
from drupelet.engine.pending import Pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import BoxPort, HashPort
    from drupelet.engine.ports import ClientPort, CodecPort, LongPort, PassedOverPort
    from drupelet.store.ports import StorePort


class NoBox:
    """A black box that keeps nothing, for a node without one."""

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Keep nothing."""

    def log_id(
        self, now_ms: int, code: int, a: int, b: int, ids: "bytes | bytearray | memoryview",
        at: int,
    ) -> None:  # fmt: skip
        """Keep nothing."""

    def count(self, index: int, amount: int) -> None:
        """Keep nothing."""


NO_BOX = NoBox()


class Core:
    """The tables of a node. Peers and groups are given by their rows."""

    long: "LongPort"  # set by the node
    bsp0_codecs: "object | None" = None  # of a host; made by its first bsp-0 link
    # The messages that are too long for a peer's frames; only in a node with MVDS groups.
    passed_over: "PassedOverPort | None" = None

    def __init__(
        self, store: "StorePort", peers_max: int, groups_max: int, messages_max: int,
        offers_max: int, box: "BoxPort",
    ) -> None:  # fmt: skip
        self.store = store
        self.members = Members(groups_max, peers_max)
        self.pending = Pending(messages_max)
        self.outboxes: "list[Outbox]" = []
        self.inboxes: "list[Inbox]" = []
        self.graph = Graph(store, self.members, self.pending, self.outboxes, self.inboxes)
        self.clocks = Clocks(peers_max)
        # By family; a family's first group sets its hash.
        self.hashes: "list[HashPort | None]" = [None] * FAMILIES
        self.id = bytearray(ID_SIZE)  # of the copy that was identified last
        self.codecs: "dict[int, CodecPort]" = {}  # by profile, where links may share one
        self.box = box
        self._offers_max = offers_max
        self.consumed = 0  # the handle up to which the client has confirmed the log
        self.boot = 0
        self.is_dirty = False  # the wake state has changed, beside what the tables' own flags say
        self.delivered = 0
        self.duplicates = 0
        self.malformed = 0
        self.unknown = 0
        self.refused = 0
        self.now_ms = 0  # when the present frame is read or written
        # Of the record that is read or written.
        self.is_telemetry = False  # its message is a black box
        self.link_number = 0  # the peer's number, while `compact-1` reads it; 0: none
        self.message_handle = 0  # of the message last read, acknowledged or selected for sending
        self.message_row = -1  # the outbox row of the message last selected or offered

    # --- peers and groups ---

    def add_peer(self, peer: int) -> None:
        """Create the tables of a peer; a row of a removed peer keeps the tables that it has.

        The table rows are shared out among all peers.
        """
        if peer < len(self.outboxes):
            return
        self.outboxes.append(Outbox(peer, self.store, self.members))
        self.inboxes.append(Inbox())
        peers = peer + 1
        rows_max = max(self.pending.rows_max // peers, OUTBOX_ROWS_MIN)
        offers_max = max(self._offers_max // peers, INBOX_OFFERS_MIN)
        for row in range(peers):
            outbox = self.outboxes[row]
            inbox = self.inboxes[row]
            if outbox.rows_max != rows_max or inbox.offers_max != offers_max:
                outbox.resize(rows_max)
                inbox.resize(offers_max, rows_max)

    def refill(self, peer: int) -> bool:
        """Advance a peer's cursor while rows are free; return True if a row was filled."""
        return self.outboxes[peer].refill(self.graph.newest)

    def has_more(self, peer: int) -> bool:
        """Return True if the log has more for a peer and a row is free, or if a pending message
        may enter the log."""
        outbox = self.outboxes[peer]
        is_behind = outbox.cursor != self.graph.newest
        return (is_behind and outbox.room_left() > outbox.reserved_rows) or self.graph.may_promote

    def restart(self, peer: int, is_lost: bool) -> None:
        """Walk through the whole log again for a peer that is shown more, or lost what it held.

        `is_lost`: it may lack even what it sent to us.
        """
        self.store.unsettle()  # reclaim nothing before the next wake state
        self.outboxes[peer].restart(self.last_handle() if is_lost else 0)

    def note_long_held(self, peer: int, handle: int, is_ack: bool) -> None:
        """Record that a peer holds a message, which may be one that was passed over."""
        if self.passed_over is not None:
            self.passed_over.note_held(peer, handle, is_ack)

    def last_handle(self) -> int:
        """Return the handle of the last message of the store, in the log or pending."""
        handle = self.graph.newest
        while self.store.next_pending(handle):
            handle = self.store.next_pending(handle)
        return handle

    def regroup(self, group: int, client: "ClientPort | None") -> None:
        """Follow the joining or leaving of a group; `client`: its client, None for the default."""
        self.graph.use_client(group, client)
        for profile in self.codecs:
            regroup = getattr(self.codecs[profile], "regroup", None)
            if regroup is not None:  # it keeps groups by number
                regroup(group)

    def durable_size(self, size: int) -> int:
        """Make everything in the store durable; return `size` of the frame that may leave then, or
        0 if that failed: drop the frame.

        A power cut must not take what we have acknowledged. Nor our own messages that peers may
        hold: nobody sends these back to us.
        """
        return size if self.store.barrier() == OK else 0

    def is_box(self, group: int) -> bool:
        """Return True if the messages of a group are black boxes."""
        return self.members.flags(group) & GROUP_TELEMETRY != 0

    def holds(self, peer: int, handle: int) -> bool:
        """Return True if a peer is known to hold a message of the log."""
        outbox = self.outboxes[peer]
        row = outbox.row_of(handle)
        if row >= 0:
            return not outbox.is_open(row)
        if handle > outbox.cursor:
            return False
        return self.passed_over is None or not self.passed_over.lacks(peer, handle)

    def remove_transient(self, handle: int, group: int, is_ephemeral: bool) -> None:
        """Delete a black box, or an ephemeral message, once client and peers have it."""
        if not is_ephemeral and not self.is_box(group):
            return
        sharers = 0
        for peer in range(self.members.peers):
            if self.members.visibility(group, peer) == SHARED:
                sharers += 1
                if not self.holds(peer, handle):
                    return
        if sharers and handle <= self.consumed:
            self.store.entomb(handle, self.id, 0)

    # --- ids ---

    def begin_hash(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, size: int
    ) -> "HashPort":  # fmt: skip
        """Begin to hash a message of a group; `size`: bytes of its body that are hashed."""
        hashing = self.hashes[self.members.family(group)]
        hashing.start(  # type: ignore[union-attr]
            self.members.group_ids, group * ID_SIZE, stamp, stamp_at, size
        )
        return hashing  # type: ignore[return-value]

    def read_head(self, group: int, first: int, size: int, stamp: int = 0) -> int:
        """Return how many bytes at the start of a stored body are not hashed, or E_PEER.

        `first`: the body's first byte. `stamp`: the timestamp's first byte; a timestamp below zero
        is not allowed (BSP v1 3). In the MVDS family the body begins with parents, which the id
        does not cover (docs/SPEC.md 4.3). Sets `graph.is_ephemeral`.
        """
        self.graph.is_ephemeral = False
        if self.members.family(group) != FAMILY_MVDS:
            return E_PEER if stamp & 0x80 else 0
        self.graph.is_ephemeral = first & HEAD_EPHEMERAL != 0
        count = first & HEAD_PARENTS
        head = 1 + count * ID_SIZE
        return head if count <= DEPENDENCIES_MAX and head <= size else E_PEER

    def identify(
        self, group: int, stamp: "bytes | bytearray", stamp_at: int, body: "bytes | bytearray",
        at: int, size: int,
    ) -> int:  # fmt: skip
        """Compute `id` of a stored body in a buffer; return OK or E_PEER."""
        head = self.read_head(group, body[at] if size else 0, size, stamp[stamp_at])
        if head < 0:
            return E_PEER
        hashing = self.begin_hash(group, stamp, stamp_at, size - head)
        hashing.update(body, at + head, size - head)
        hashing.digest_into(self.id, 0)
        return OK

    def identify_part(self, part: int) -> int:
        """Compute `id` of the content in a part file by reading it back; return its group (row).

        E_STORAGE if it cannot be read, E_PEER if its group is not ours or its head is malformed.
        """
        store = self.store
        scratch = self.graph.ids
        size = store.spool.part_size(part)
        have = store.spool.part_read_into(part, 0, scratch, 0, CONTENT_HEADER_SIZE + 1)
        if have < CONTENT_HEADER_SIZE:
            return E_STORAGE
        group = self.members.group_of(scratch, 0)
        offset = CONTENT_HEADER_SIZE
        if group < 0:
            return E_PEER
        head = self.read_head(group, scratch[offset], size - offset, scratch[ID_SIZE])
        if head < 0:
            return E_PEER
        offset += head
        hashing = self.begin_hash(group, scratch, ID_SIZE, size - offset)
        while offset < size:
            count = store.spool.part_read_into(part, offset, scratch, 0, SCRATCH_SIZE)
            if count <= 0:
                return E_STORAGE
            hashing.update(scratch, 0, count)
            offset += count
        hashing.digest_into(self.id, 0)
        return group

    # --- accounts ---

    def after_entry(self, now_ms: int, group: int, source: int) -> None:
        """Count the message `id`, which entered the log, and promote what waited for it.

        Overwrites `graph.handle`.
        """
        self._note_delivered(now_ms, group, source, self.id)
        self.promote(now_ms)

    def promote(self, now_ms: int) -> None:
        """Move all pending messages whose dependencies are here into the log."""
        store = self.store
        while self.graph.promote():
            if store.load(self.graph.handle) == OK:
                group = self.members.group_row(store.group)
                self._note_delivered(now_ms, group, store.source, store.id)

    def _note_delivered(self, now_ms: int, group: int, source: int, id: bytearray) -> None:
        if self.is_box(group):
            return
        self.delivered += 1
        tag = get_u16(self.members.group_ids, group * ID_SIZE)
        if source == 0:
            self.box.count(COUNT_CREATED, 1)
            self.box.log_id(now_ms, CODE_CREATED, 0, tag, id, 0)
        self.box.count(COUNT_DELIVERED, 1)
        self.box.log_id(now_ms, CODE_DELIVERED, source, tag, id, 0)
