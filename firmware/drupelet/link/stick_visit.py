"""Stick visits: write what the peer may lack into a bundle, as far as there is room.

A visit writes the same frames as a live link. What it wrote counts as sent, or as acknowledged,
only once the bundle is on the stick, complete and durable. A bundle that was taken in
completely is acknowledged as a whole (docs/SPEC.md 7.3):

    TAKEN  0x57 | number u32 | handle u32   the first frame: we have the peer's bundles up to
                                            `number`
    MARK   0x58 | before u32 | handle u32   the last frame: this bundle and, if `before` is not 0,
                                            those up to bundle `before` hold the writer's log up
                                            to `handle`

The handle in a TAKEN is copied from the peer's MARK: only the peer can interpret it.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import FRAMES_PER_EPOCH_MAX, NOW_MODULUS_MS
from drupelet.base.memory import get_u32, put_u32
from drupelet.engine.exchange import Exchange
from drupelet.engine.members import SHARED
from drupelet.engine.states import BUNDLED, BUNDLING, HOLD, REQUEST
from drupelet.link.link import BATCH, CARRIER_STICK, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.wire.packed import Packed


KIND_TAKEN = const(0x57)
KIND_MARK = const(0x58)
_FRAME_SIZE = const(9)
_KIND_PACKED = const(0x46)
# Offsets in the counters of one carrier (docs/SPEC.md 6).
_IN = const(16)
_LINK_BYTES = const(7)
# More room than any stick has.
ROOM_MAX = NOW_MODULUS_MS - 1


class StickExchange(Exchange):
    """Selects what goes into a bundle: messages with a row, then the log after the cursor."""

    visits = True
    logged = 0  # the handle up to which the log after the rows has been written
    room = ROOM_MAX  # message bytes that the stick still has room for

    def begin(self, logged: int) -> None:
        """Begin a bundle that continues after a handle of the log."""
        self.logged = logged
        self.attention = True
        self.rewind()

    def next_message(self) -> bool:
        """See Exchange; False if the stick has no room."""
        has_message = not self.long_handle and (Exchange.next_message(self) or self._next_logged())
        if has_message:
            size = self.core.store.size
            if size + (size >> 4) > self.room:  # a long body has a header per piece
                self.room = 0
        return has_message and self.room > 0

    def message_due(self, row: int) -> bool:
        """See Exchange; True for everything that is not in a bundle yet."""
        outbox = self.outbox
        is_written = outbox.state(row) & (HOLD | BUNDLED | BUNDLING)
        return not is_written and self.sees(outbox.group(row)) == SHARED

    def _next_logged(self) -> bool:
        store = self.core.store
        # The bundle ends before a message that the flash refuses to read.
        while (handle := store.next(self.logged)) > 0 and store.load(handle) == OK:
            if self.wants(handle):
                self.core.message_handle = handle
                self.core.message_row = -1
                return True
            self.logged = handle
        return False

    def wants(self, handle: int) -> bool:
        """Return True if the peer may lack the loaded message, which is after the cursor."""
        outbox = self.outbox
        group = outbox.shared_group()
        if group < 0 or self.sees(group) != SHARED:
            return False
        row = outbox.row_of(handle)
        is_held = row >= 0 and not outbox.is_open(row)
        return not is_held and not outbox.is_source(self.core.store.source, handle)

    def put_message(self) -> None:
        """See Exchange; the message counts as sent once the bundle is on the stick."""
        self.core.is_telemetry = self.core.is_box(self.message_group)
        self.pass_message()

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """See Exchange; the bundle ends before a message that the flash refuses to read."""
        if not Exchange.body_into(self, buf, at, offset, size):
            self.room = 0
        return self.room > 0

    def pass_message(self) -> None:
        """See Exchange."""
        if self.core.message_row < 0 < self.room:
            self.logged = self.core.message_handle
        elif self.room:
            self.outbox.mark(self.core.message_row, BUNDLING)
            Exchange.pass_message(self)

    def too_long(self) -> None:
        """See Exchange; the message is written in pieces until it is complete."""
        self.pass_message()
        self.long_handle = self.core.message_handle


class BundleLink(Link):
    """A link by sticks to a peer; `Node.link` makes it."""

    visits = True
    packing: "Packed | None" = None  # of a host, and then its codec (wire/packed.py)
    make_exchange = StickExchange
    exchange: StickExchange

    def __init__(self, core: "Core", peer: int, profile: int) -> None:
        Link.__init__(self, core, peer, profile, CARRIER_STICK, 0, BATCH)
        self.peer_seen = 0  # the highest of our bundles that the peer has read, as it said
        # Of the bundle that is being read: what its MARK says, the bundle that it continues and
        # the peer's handle that it reaches (-1: no MARK yet); and refusals before it.
        self._before = self._refused = 0
        self._reaches = -1
        self._acknowledges = False  # a TAKEN is due in the bundle that is being made
        self._is_written = False  # the bundle has a frame

    def use_packing(self, packing: "Packed") -> None:
        """Read and write packed messages, as hosts do."""
        self.packing = self.own_codec = packing

    # --- out ---

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """See Link; a TAKEN may come first, and the MARK comes last."""
        if self._acknowledges:
            self._acknowledges = False
            if self.core.store.barrier() != OK:  # what TAKEN acknowledges is not durable
                self.abort(now_ms)
                return 0
            self._is_written = True
            taken = self.exchange.inbox.taken_until
            return self._put(frame, KIND_TAKEN, self.bundle_in, taken)
        size = Link.poll_into(self, frame, now_ms) if self.exchange.room else 0
        if size:
            self._is_written = True
        elif self._is_written:
            self._is_written = False
            self._frames_left = 0
            size = self._mark_into(frame)
        return size

    def _leave(self, size: int) -> int:
        size = Link._leave(self, size)
        if not size:
            self.abort(self.core.now_ms)
        return size

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """See Link; handles TAKEN, MARK and packed messages, too."""
        kind = frame[0]
        packed = self.packing is not None and _KIND_PACKED <= kind <= _KIND_PACKED + 1
        is_bundle_frame = size == _FRAME_SIZE and KIND_TAKEN <= kind <= KIND_MARK
        if self.closed or not (packed or is_bundle_frame):
            return Link.receive(self, frame, size, now_ms)
        self.core.now_ms = now_ms
        exchange = self.exchange
        exchange.count(_IN, 1)
        if packed:
            exchange.count(_IN + _LINK_BYTES, 1)
            code = self.packing.unpack(exchange, frame, size)  # type: ignore[union-attr]
        else:
            exchange.count(_IN + _LINK_BYTES, size)
            code = self._on_bundle(frame)
        if code != OK:
            exchange.bad_record()
        return code

    @property
    def bundle_in(self) -> int:
        """The highest bundle of the peer that was read to its end."""
        return self.exchange.inbox.bundle_number

    @property
    def bundle_out(self) -> int:
        """The number of our last bundle."""
        return self.exchange.outbox.bundle_number

    @property
    def is_full(self) -> bool:
        """True if the stick had no room for a message that is due."""
        return not self.exchange.room

    def visit(self, now_ms: int, fresh: bool) -> None:
        """Begin a bundle; `fresh`: our last one is not on this stick, so repeat everything."""
        self.core.now_ms = now_ms
        exchange = self.exchange
        outbox = exchange.outbox
        inbox = exchange.inbox
        if fresh or not outbox.bundled_until:
            self._unbundle()
        self.core.refill(self.peer)
        inbox.begin_bundle()
        # TAKEN acknowledges all messages of bundles that were taken in completely.
        self._acknowledges = inbox.taken_until > 0 and inbox.take_all_owed()
        self._frames_left = FRAMES_PER_EPOCH_MAX
        self._is_written = False
        if self.packing is not None:
            self.packing.begin()
        exchange.begin(max(outbox.cursor, outbox.bundled_until))

    def set_room(self, room: int) -> None:
        """Set the message bytes that the stick has room for.

        1 is less than any message takes, but leaves room for acknowledgements; 0 ends the bundle.
        """
        self.exchange.room = room

    def _unbundle(self) -> None:
        """Record that no bundle of ours is on a stick any more."""
        self._replace_bit(BUNDLED, 0)
        self.exchange.outbox.bundled_until = 0

    def commit(self, now_ms: int, number: int = 0) -> None:
        """Record that the bundle is on the stick, complete and durable, as `number` (0: next)."""
        self.core.now_ms = now_ms
        self._replace_bit(BUNDLING, BUNDLED)
        outbox = self.exchange.outbox
        self.exchange.inbox.end_bundle(True)
        number = number or self.bundle_out + 1
        if number > self.bundle_out + 1:
            # We may have been restored from an older copy: a TAKEN for a bundle that we no longer
            # know of has a handle of another log.
            outbox.void_until = number - 1
        outbox.bundled_until = self.exchange.logged
        outbox.bundle_number = number
        outbox.is_dirty = True
        self._frames_left = 0

    def abort(self, now_ms: int) -> None:
        """Drop a bundle that failed: nothing in it counts as written or acknowledged."""
        self.core.now_ms = now_ms
        self._replace_bit(BUNDLING, 0)
        exchange = self.exchange
        exchange.inbox.end_bundle(False)
        self._acknowledges = self._is_written = False
        self.core.long.end(exchange)
        self._frames_left = exchange.logged = 0
        exchange.outbox.changes += 1  # what is still owed may go over a line

    def begin_import(self) -> None:
        """Begin to read a bundle of the peer."""
        self._reaches = -1
        self._refused = self._refusals()
        if self.packing is not None:
            self.packing.begin()

    def _refusals(self) -> int:
        core = self.core
        return core.unknown + core.malformed + core.refused

    def imported(self, number: int, seen: int, whole: bool = True) -> None:
        """End reading the peer's bundle `number`, whose writer had read ours up to `seen`.

        `whole`: every frame was sound and accepted.
        """
        inbox = self.exchange.inbox
        if seen > self.peer_seen:
            self.peer_seen = seen
        if number > self.bundle_in:
            if (
                not whole
                or self._refusals() != self._refused
                or self.core.long.part(self.peer) >= 0
            ):
                inbox.taken_until = 0  # acknowledge each message on its own
            elif self._reaches >= 0:
                goes_on = not self._before or (
                    self._before == self.bundle_in and inbox.taken_until > 0
                )
                inbox.taken_until = self._reaches if goes_on else 0
            inbox.bundle_number = number
            inbox.is_dirty = True
            # Its writer had our bundles: what it does not acknowledge was refused, lost or torn.
            self._unbundle()

    def _mark_into(self, frame: bytearray) -> int:
        """Write the MARK, the last frame of a bundle; return its size."""
        outbox = self.exchange.outbox
        reaches = self.exchange.logged
        if self.exchange.long_handle:
            reaches = min(reaches, self.exchange.long_handle - 1)
        for row in range(outbox.count):
            if not outbox.state(row) & (HOLD | BUNDLED | BUNDLING):
                reaches = min(reaches, outbox.handles[row] - 1)
        goes_on = outbox.bundled_until
        return self._put(
            frame, KIND_MARK, self.bundle_out if goes_on else 0, self._of_this_store(reaches)
        )

    def _of_this_store(self, handle: int) -> int:
        """Convert a handle of this store to its form in a MARK, or back.

        After our store was wiped or restored, an old MARK's handle converts to one of no message.
        """
        return handle ^ getattr(self.core.store, "store_gen", 0) & 0x3FFFFFFF

    def _put(self, frame: bytearray, kind: int, number: int, handle: int) -> int:
        self.exchange.count(0, 1)
        self.exchange.count(_LINK_BYTES, _FRAME_SIZE)
        frame[0] = kind
        put_u32(frame, 1, number)
        put_u32(frame, 5, handle)
        return _FRAME_SIZE

    def _on_bundle(self, frame: bytearray) -> int:
        """Handle a MARK, or a TAKEN: the peer has what our bundles contained. OK or E_PEER."""
        if (frame[1] | frame[5]) & 0xC0:
            return E_PEER
        number = get_u32(frame, 1)
        handle = get_u32(frame, 5)
        if frame[0] == KIND_MARK:
            self._before = number
            self._reaches = handle
        elif self.exchange.outbox.void_until < number <= self.bundle_out:
            self._holds_through(self._of_this_store(handle))
        return OK

    def _holds_through(self, handle: int) -> None:
        """Record an ACK for each message of the log up to a handle.

        Messages that the peer requested since are left out, and sent again. The cursor stops at a
        message that is shared on links of another family: bundles do not carry it. A handle beyond
        the end of the log is not one of this store.
        """
        core = self.core
        exchange = self.exchange
        outbox = exchange.outbox
        if handle > core.graph.newest:
            return
        for row in range(outbox.count):
            # In MVDS, REQUEST is set from the first send on; a real request clears BUNDLED.
            is_asked = outbox.state(row) & (REQUEST | BUNDLED) == REQUEST
            if outbox.handles[row] <= handle and outbox.is_open(row) and not is_asked:
                exchange.acked(row)
        while outbox.cursor < handle:
            after = core.store.next(outbox.cursor)
            if not 0 < after <= handle:
                break
            group = outbox.load_shared(after)
            if group >= 0 and exchange.sees(group) != SHARED:
                break
            outbox.cursor = after
            if group >= 0:
                core.remove_transient(after, group, False)
        outbox.is_dirty = True

    def _replace_bit(self, bit: int, replacement: int) -> None:
        """Replace a bit in the state of every row of this peer."""
        outbox = self.exchange.outbox
        for row in range(outbox.count):
            if outbox.state(row) & bit:
                outbox.unmark(row, bit)
                outbox.mark(row, replacement)
