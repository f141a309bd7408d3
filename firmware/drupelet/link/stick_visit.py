"""Stick visits: what the peer is not known to hold goes into a bundle, as far as there is room.

A visit writes through the same frames as a live link; what it wrote counts as sent, and what it
acknowledged as acknowledged, only once the bundle is on the stick, whole and durable. A bundle
that was taken whole is acknowledged as a whole (docs/SPEC.md 7.3):

    TAKEN  0x57 | number u32 | handle u32   our first frame: your bundles up to `number` are here
    MARK   0x58 | before u32 | handle u32   the last one: this is the log up to `handle`, with
                                            bundle `before`, if that is not 0

The handle in a TAKEN is that of the peer's MARK: its own, which only the peer understands.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import FRAMES_PER_EPOCH_MAX, NOW_MODULUS_MS
from drupelet.base.memory import get_u32, put_u32
from drupelet.engine.members import SHARED
from drupelet.engine.slots import (
    OWED,
    OWED_BUNDLING,
    PEER_ROW,
    PENDING,
    STICK_HOLDS,
    STICK_IN,
    STICK_OUT,
    STICK_TAKEN,
    STICK_VOID,
)
from drupelet.engine.states import ACK, ACKING, BUNDLED, BUNDLING, HOLD, QUEUED, REQUEST
from drupelet.link.link import BATCH, CARRIER_STICK, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.wire.packed import Packed


KIND_TAKEN = const(0x57)
KIND_MARK = const(0x58)
_FRAME_SIZE = const(9)
_KIND_PACKED = const(0x46)
# Offsets in a carrier's counters (docs/SPEC.md 6): what came in, and the link's own bytes.
_IN = const(16)
_LINK_BYTES = const(7)
# More room than any stick has.
ROOM_MAX = NOW_MODULUS_MS - 1


class BundleLink(Link):
    """A link to a peer that sticks go to and from; `Node.link` makes it."""

    packing: "Packed | None" = None  # a host's, which is its codec then (wire/packed.py)

    def __init__(self, core: "Core", peer: int, profile: int) -> None:
        Link.__init__(self, core, peer, profile, CARRIER_STICK, 0, BATCH)
        self.peer_seen = 0  # the highest bundle of ours that the peer has told to have read
        self.room = ROOM_MAX  # bytes that messages may still take on the stick
        self.logged = 0  # how far the log beyond the slots is written
        # Of the bundle that is being read: what it goes on from and up to which handle of the
        # peer's it reaches (-1: it does not say), and what was refused before it.
        self._before = self._refused = 0
        self._reaches = -1
        self._tells = False  # the bundle that is being made is to acknowledge whole ones
        self._written = False  # something is in it

    # --- out ---

    def next_message(self) -> bool:
        """See Dues: what waits on flash beyond the slots goes, too, as far as there is room."""
        has_message = Link.next_message(self) or self._next_logged()
        size = self.core.store.size
        if has_message and size + (size >> 4) > self.room:  # a long one has headers for its pieces
            self.room = 0
        return has_message and self.room > 0

    def _next_logged(self) -> bool:
        """The same for what waits on flash beyond the slots: a stick takes the whole log."""
        store = self.core.store
        while not self.long_handle:
            handle = store.next(self.logged)
            if not handle:
                return False
            if self.wants_logged(handle) and self._look(handle, -1):
                return True
            self.logged = handle
        return False

    def wants_logged(self, handle: int) -> bool:
        """Whether the peer is to have a message of the log beyond the slots."""
        core = self.core
        store = core.store
        group = core.window.look(handle)
        if group < 0 or self.sees(group) != SHARED:
            return False
        if core.window.gave(self.peer, handle):
            return False
        slot = core.slots.find(store.id, 0)
        return slot < 0 or not core.slots.states[self.cell(slot)] & HOLD

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """See Link; TAKEN may come first, MARK comes last."""
        if self._tells:
            self._tells = False
            core = self.core
            if core.store.barrier() != OK:  # what it acknowledges is not durable
                self.abort(now_ms)
                return 0
            self._written = True
            taken = core.window.rows[self.peer * PEER_ROW + STICK_TAKEN]
            return self._put(frame, KIND_TAKEN, self.bundle_in, taken)
        size = Link.poll_into(self, frame, now_ms) if self.room else 0
        if size:
            self._written = True
        elif self._written:
            self._written = False
            self._train = 0
            size = self._mark_into(frame)
        return size

    def _leave(self, size: int) -> int:
        size = Link._leave(self, size)
        if not size:
            self.abort(self.core.now_ms)
        return size

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """See Link; and what bundles say of each other, and packed messages."""
        kind = frame[0]
        packed = self.packing is not None and _KIND_PACKED <= kind <= _KIND_PACKED + 1
        says = size == _FRAME_SIZE and KIND_TAKEN <= kind <= KIND_MARK
        if self.closed or not (packed or says):
            return Link.receive(self, frame, size, now_ms)
        self.core.now_ms = now_ms
        self._count(_IN, 1)
        if packed:
            self._count(_IN + _LINK_BYTES, 1)
            code = self.packing.unpack(self, frame, size)  # type: ignore[union-attr]
        else:
            self._count(_IN + _LINK_BYTES, size)
            code = self._on_bundle(frame)
        if code != OK:
            self.bad_record()
        return code

    @property
    def bundle_in(self) -> int:
        """The highest bundle of the peer's that was imported whole."""
        return self.core.window.rows[self.peer * PEER_ROW + STICK_IN]

    @property
    def bundle_out(self) -> int:
        """The number of the last bundle that we wrote."""
        return self.core.window.rows[self.peer * PEER_ROW + STICK_OUT]

    def visit(self, now_ms: int, fresh: bool) -> None:
        """Begin a bundle; `fresh`: our last one is not on this stick, so write everything."""
        assert self.visits
        self.core.now_ms = now_ms
        window = self.core.window
        row = self.peer * PEER_ROW
        if fresh or not window.rows[row + STICK_HOLDS]:
            self._unbundle()
        window.refill(self.peer)
        self.logged = max(window.cursors[self.peer], window.rows[row + STICK_HOLDS])
        # What is owed for messages of bundles that were taken whole is told in one frame.
        if window.rows[row + STICK_TAKEN]:
            owes = self._mark(ACK, ACKING)
            self._tells = self._owed(OWED, OWED_BUNDLING) or owes
        self._train = FRAMES_PER_EPOCH_MAX
        self._written = False
        if self.packing is not None:
            self.packing.begin()
        self._look_again()

    def set_room(self, room: int) -> None:
        """So many bytes of messages fit what is left of the stick; 1: none; 0: the bundle ends."""
        self.room = room

    def _unbundle(self) -> None:
        """Nothing that we wrote is on a stick any more."""
        self._mark(BUNDLED, 0)
        self.core.window.rows[self.peer * PEER_ROW + STICK_HOLDS] = 0

    def commit(self, now_ms: int, number: int = 0) -> None:
        """The bundle is on the stick, whole and durable, under `number` (0: the next one)."""
        self.core.now_ms = now_ms
        self._mark(BUNDLING, BUNDLED)
        self._mark(ACKING, 0)
        self._owed(OWED_BUNDLING, 0)
        window = self.core.window
        row = self.peer * PEER_ROW
        number = number or self.bundle_out + 1
        if number > self.bundle_out + 1:
            # We may have been set back to an older copy of ourselves: answers to what is forgotten
            # name handles of another log.
            window.rows[row + STICK_VOID] = number - 1
        window.rows[row + STICK_HOLDS] = self.logged
        window.rows[row + STICK_OUT] = number
        window.dirty = True
        self._train = 0

    def abort(self, now_ms: int) -> None:
        """The bundle failed: nothing of it counts as written or acknowledged."""
        self.core.now_ms = now_ms
        self._mark(BUNDLING, 0)
        self._mark(ACKING, ACK)
        self._owed(OWED_BUNDLING, OWED)
        self._tells = self._written = False
        self._end_long()
        self._train = self.logged = 0
        self.core.window.changed(self.peer)  # what it owes may go over a line

    def begin_import(self) -> None:
        """A bundle of the peer's is opened."""
        self._reaches = -1
        self._refused = self._refusals()
        if self.packing is not None:
            self.packing.begin()

    def _refusals(self) -> int:
        core = self.core
        return core.unknown + core.malformed + core.graph.refused

    def imported(self, number: int, seen: int, whole: bool = True) -> None:
        """The peer's bundle `number` was read to its end; it had read ours up to `seen`.

        whole: each frame of it was sound and taken.
        """
        window = self.core.window
        row = self.peer * PEER_ROW
        if seen > self.peer_seen:
            self.peer_seen = seen
        if number > self.bundle_in:
            if not whole or self._refusals() != self._refused or self._part() >= 0:
                window.rows[row + STICK_TAKEN] = 0  # each message is acknowledged for itself
            elif self._reaches >= 0:
                goes_on = not self._before or (
                    self._before == self.bundle_in and window.rows[row + STICK_TAKEN]
                )
                window.rows[row + STICK_TAKEN] = self._reaches if goes_on else 0
            window.rows[row + STICK_IN] = number
            window.dirty = True
            # It had what we wrote: what is still not acknowledged was refused, lost or torn.
            self._unbundle()

    def _mark_into(self, frame: bytearray) -> int:
        """Write MARK, the last frame of the bundle that is made; its size."""
        core = self.core
        slots = core.slots
        reaches = self.logged
        if self.long_handle:
            reaches = min(reaches, self.long_handle - 1)
        for slot in range(slots.count):
            state = slots.states[self.cell(slot)]
            left = state & (QUEUED | REQUEST) and not state & (HOLD | BUNDLED | BUNDLING)
            if left and not slots.flags[slot] & PENDING:
                reaches = min(reaches, slots.handles[slot] - 1)
        goes_on = core.window.rows[self.peer * PEER_ROW + STICK_HOLDS]
        return self._put(
            frame, KIND_MARK, self.bundle_out if goes_on else 0, self._of_this_store(reaches)
        )

    def _of_this_store(self, handle: int) -> int:
        """A handle of this store's as the peer keeps it, and the other way round.

        Of another store of ours, which was wiped or put back since, it becomes one of no message.
        """
        return handle ^ getattr(self.core.store, "store_gen", 0) & 0x3FFFFFFF

    def _put(self, frame: bytearray, kind: int, number: int, handle: int) -> int:
        self._count(0, 1)
        self._count(_LINK_BYTES, _FRAME_SIZE)
        frame[0] = kind
        put_u32(frame, 1, number)
        put_u32(frame, 5, handle)
        return _FRAME_SIZE

    def _on_bundle(self, frame: bytearray) -> int:
        """A MARK, or a TAKEN: the peer holds what our bundles brought; OK or E_PEER."""
        if (frame[1] | frame[5]) & 0xC0:
            return E_PEER
        number = get_u32(frame, 1)
        handle = get_u32(frame, 5)
        if frame[0] == KIND_MARK:
            self._before = number
            self._reaches = handle
        elif self.core.window.rows[self.peer * PEER_ROW + STICK_VOID] < number <= self.bundle_out:
            self._holds_through(self._of_this_store(handle))
        return OK

    def _holds_through(self, handle: int) -> None:
        """As if the peer had acknowledged each message of the log up to a handle.

        But for those that it asked for since, and where no slot is free: those go to it again.
        A handle that the log has not reached is none of this store's.
        """
        core = self.core
        slots = core.slots
        window = core.window
        while handle <= window.newest:
            for slot in range(slots.count):
                state = slots.states[self.cell(slot)]
                waits = state & (QUEUED | HOLD) == QUEUED
                # MVDS keeps REQUEST from the first send on; who asks takes BUNDLED away.
                asked = state & (REQUEST | BUNDLED) == REQUEST
                if waits and not asked and slots.handles[slot] <= handle:
                    self.acked(slot)
            if window.cursors[self.peer] >= handle or not window.refill(self.peer):
                break
        window.dirty = True

    def _mark(self, bit: int, instead: int) -> bool:
        """Replace one of our own bits in every state of this peer; True if any had it."""
        slots = self.core.slots
        was_set = False
        for slot in range(slots.count):
            cell = self.cell(slot)
            state = slots.states[cell]
            if state & bit:
                slots.states[cell] = state & ~bit | instead
                was_set = True
        return was_set

    def _owed(self, kind: int, instead: int) -> bool:
        """The same for the acknowledgements that are owed without a slot."""
        offers = self.core.offers
        was_set = False
        for entry in range(offers.count):
            if offers.kinds[entry] == kind and offers.peer_of(entry) == self.peer:
                offers.kinds[entry] = instead
                was_set = True
        return was_set
