"""A link: one peer over one carrier, with its profile, its epochs and its byte accounts.

A frame starts with its kind (docs/SPEC.md 2): 0x40 + profile number for records, 0x50 and 0x51 for
segments. Live links send one payload, a train of frames, per epoch. A stick has no epochs: a visit
writes everything that the peer is not known to hold, and counts as sent only once it is committed.
"""

from drupelet._compat import const
from drupelet.blackbox import COUNT_CARRIERS, COUNT_DAMAGED
from drupelet.errors import E_PEER, OK
from drupelet.limits import (
    FRAME_HEADER_SIZE,
    FRAMES_PER_EPOCH_MAX,
    WAIT_MS_MAX,
)
from drupelet.profiles import family_of
from drupelet.schedule import epochs_since
from drupelet.segments import KIND_SEGMENT, KIND_STATE, SegmentExchange
from drupelet.slots import OWED, OWED_BUNDLING
from drupelet.states import ACK, ACKING, BUNDLED, BUNDLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core
    from drupelet.ports import CodecPort
    from drupelet.schedule import EpochClock

BATCH = const(0)
INTERACTIVE = const(1)
CARRIER_SERIAL = const(0)
CARRIER_MQTT = const(1)
CARRIER_STICK = const(2)

_KIND_RECORDS = const(0x40)
_MESSAGE = const(1)  # of the four record types that have an account of their own
# Offsets in a carrier's half of the counters (docs/SPEC.md 6).
_FRAMES = const(0)
_CARRIER_BYTES = const(1)
_RECORD_BYTES = const(2)  # and three more, by record type: ACK, MESSAGE, OFFER, REQUEST
_SEGMENT_BYTES = const(6)
_LINK_BYTES = const(7)
_RECORDS = const(8)  # likewise
_SEGMENTS = const(12)
_DROPPED = const(14)
_TELEMETRY_BYTES = const(15)
# So many epochs of the peer's clock make at most one of a link: 64 times that, the longest
# back-off, stays below half of what an epoch number tells apart.
_EVERY_MAX = const(511)


class Link(SegmentExchange):
    """See `docs/DESIGN.md` 3; made by `Node.link`."""

    def __init__(
        self, core: "Core", peer: int, profile: int, codec: "CodecPort", carrier: int,
        epoch_ms: int, mode: int, clock: "EpochClock",
    ) -> None:  # fmt: skip
        visits = carrier == CARRIER_STICK
        # On a stick there is nobody to answer an offer.
        interactive = mode == INTERACTIVE and not visits
        SegmentExchange.__init__(self, core, peer, family_of(profile), interactive, visits)
        self.profile = profile
        self.codec = codec
        self.carrier = carrier
        if not self.visits:
            self.epoch_ms = epoch_ms
        self.use(clock)
        self._base = COUNT_CARRIERS + carrier * 32
        self._train = 0 if self.visits else FRAMES_PER_EPOCH_MAX
        self._used = False
        self._due_epochs = 0
        self._due_from = 0
        self._seen_changes = 0
        self.peer_seen = 0  # the highest bundle of ours that the peer has told to have read

    def use(self, clock: "EpochClock") -> None:
        """Count epochs by this clock: live links to one peer share what was sent when."""
        self.clock = clock
        every = (self.epoch_ms + clock.epoch_ms - 1) // clock.epoch_ms
        self.every = every if every < _EVERY_MAX else _EVERY_MAX
        self.epoch = self._began = clock.epoch

    # --- in ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Take in one frame; OK, or a negative code (counted; what could be used was used)."""
        self.now_ms = now_ms
        core = self.core
        box = core.box
        box.count(self._base + 16 + _FRAMES, 1)
        code = E_PEER
        if size > FRAME_HEADER_SIZE:
            self._hear(now_ms)
            kind = frame[0]
            if kind == _KIND_RECORDS | self.profile:
                box.count(self._base + 16 + _LINK_BYTES, FRAME_HEADER_SIZE)
                code = self.codec.parse(self, frame, FRAME_HEADER_SIZE, size)
            elif kind == KIND_SEGMENT:
                code = self.on_segment(frame, size)
                part = _TELEMETRY_BYTES if self.telemetry_in else _SEGMENT_BYTES
                box.count(self._base + 16 + part, size)
                box.count(self._base + 16 + _SEGMENTS, 1)
            elif kind == KIND_STATE:
                box.count(self._base + 16 + _LINK_BYTES, size)
                code = self.on_state(frame, size)
            else:
                box.count(self._base + 16 + _DROPPED, 1)
        if code == E_PEER:
            self.bad_record()
        return code

    def received(self, wire_size: int) -> None:
        """Account for what the carrier's framing made of the frame that came in."""
        self.core.box.count(self._base + 16 + _CARRIER_BYTES, wire_size)

    def damaged(self, count: int) -> None:
        """Account for frames that the carrier found damaged."""
        self.core.box.count(COUNT_DAMAGED, count)

    def _hear(self, now_ms: int) -> None:
        if not self.visits:
            self._tick(now_ms)
        self.heard = True
        self.heard_epoch = self.epoch
        if self._due_epochs:
            self.attention = True  # back-off is at its base again

    # --- out ---

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame due; its size, or 0 when there is nothing to send now.

        `frame` is as long as the carrier's frames may be. A frame with an ACK is returned only
        after the store's barrier; if the store fails, it is not returned at all.
        """
        self.now_ms = now_ms
        if not self.visits:
            self._tick(now_ms)
            self.core.window.refill(self.peer)
            if self._seen_changes != self.core.window.changes[self.peer]:
                self._look_again()
        if self._due_epochs and not self.attention:
            self.attention = epochs_since(self.epoch, self._due_from) >= self._due_epochs
        if not self.attention or not self._train:
            return 0
        size = self._next_frame(frame, len(frame))
        if size:
            self._used = True
            self._train -= 0 if self.visits else 1
            self.core.box.count(self._base + _FRAMES, 1)
            return size
        self.attention = False
        if self._used:
            self._train = 0
        self._due_epochs = self.next_due_epochs()
        self._due_from = self.epoch
        self._rewind()
        return 0

    def sent(self, wire_size: int) -> None:
        """Account for what the carrier's framing made of the frame that went out."""
        self.core.box.count(self._base + _CARRIER_BYTES, wire_size)

    def _look_again(self) -> None:
        self._seen_changes = self.core.window.changes[self.peer]
        self.attention = True
        self._rewind()

    def _tick(self, now_ms: int) -> None:
        clock = self.clock
        clock.advance(now_ms)
        passed = epochs_since(clock.epoch, self._began)
        if passed >= self.every:
            self._began = (clock.epoch - passed % self.every) & 0xFFFF
            self._train = FRAMES_PER_EPOCH_MAX
            self._used = False
            self.begin_epoch(clock.epoch)
            self.core.promote(now_ms)
        self.epoch = clock.epoch

    def _next_frame(self, frame: bytearray, limit: int) -> int:
        core = self.core
        self.firm = False
        size = 0 if self._used else self.state_into(frame)
        if size:
            core.box.count(self._base + _LINK_BYTES, size)
            return size
        # Records first: a long message would keep acknowledgements back for epochs.
        end = self.codec.fill(self, frame, FRAME_HEADER_SIZE, limit)
        while end == FRAME_HEADER_SIZE and self.long_handle:
            size = self.segment_into(frame, limit)
            if size:
                kind = _TELEMETRY_BYTES if self.telemetry else _SEGMENT_BYTES
                core.box.count(self._base + kind, size)
                core.box.count(self._base + _SEGMENTS, 1)
                self.firm = True
                return self._leave(size)
            end = self.codec.fill(self, frame, FRAME_HEADER_SIZE, limit)
        if end == FRAME_HEADER_SIZE:
            return 0
        frame[0] = _KIND_RECORDS | self.profile
        core.box.count(self._base + _LINK_BYTES, FRAME_HEADER_SIZE)
        return self._leave(end)

    def _leave(self, size: int) -> int:
        """`size` if all that the frame stands for is durable, else 0.

        What we acknowledge must be; and of our own messages those that others may hold, for
        nobody gives us back what came from us.
        """
        if not self.firm or self.core.store.barrier() == OK:
            return size
        if self.visits:
            self.abort(self.now_ms)
        return 0

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Account for a record of the profile; called after its content was written or read."""
        base = self._base if sent else self._base + 16
        if kind < 4:
            telemetry = kind == _MESSAGE and self.telemetry
            bytes_kind = _TELEMETRY_BYTES if telemetry else _RECORD_BYTES + kind
            self.core.box.count(base + bytes_kind, size)
            self.core.box.count(base + _RECORDS + kind, 1)
        else:
            self.core.box.count(base + _LINK_BYTES, size)

    def wake_ms(self, now_ms: int) -> int:
        """Milliseconds until `poll_into` may have something, unless a frame comes first."""
        window = self.core.window
        if self.visits:
            return WAIT_MS_MAX
        epoch = self.clock.epoch
        left = self.every - epochs_since(epoch, self._began)
        if self.attention or self._seen_changes != window.changes[self.peer]:
            if self._train:
                return 0
        elif not window.waits(self.peer):
            if not self._due_epochs:
                return WAIT_MS_MAX
            left = self._due_epochs - epochs_since(epoch, self._due_from)
        return self.clock.until_ms(now_ms, left)

    # --- stick visits ---

    @property
    def bundle_in(self) -> int:
        """The highest bundle of the peer's that was imported whole."""
        return self.core.window.bundles_in[self.peer]

    @property
    def bundle_out(self) -> int:
        """The number of the last bundle that we wrote."""
        return self.core.window.bundles_out[self.peer]

    def visit(self, now_ms: int, fresh: bool) -> None:
        """Begin a bundle; `fresh`: our last one is not on this stick, so write everything."""
        assert self.visits
        self.now_ms = now_ms
        window = self.core.window
        if fresh:
            self._unbundle()
        window.refill(self.peer)
        self.logged = max(window.cursors[self.peer], window.bundled[self.peer])
        self._train = 1
        self._used = False
        self._look_again()

    def _unbundle(self) -> None:
        """Nothing that we wrote is on a stick any more."""
        self._mark(BUNDLED, 0)
        self.core.window.bundled[self.peer] = 0

    def commit(self, now_ms: int, number: int = 0) -> None:
        """The bundle is on the stick, whole and durable, under `number` (0: the next one)."""
        self.now_ms = now_ms
        self._mark(BUNDLING, BUNDLED)
        self._mark(ACKING, 0)
        self._owed(True)
        window = self.core.window
        window.bundled[self.peer] = self.logged
        window.bundles_out[self.peer] = number or self.bundle_out + 1
        window.dirty = True
        self._train = 0

    def abort(self, now_ms: int) -> None:
        """The bundle failed: nothing of it counts as written or acknowledged."""
        self.now_ms = now_ms
        self._mark(BUNDLING, 0)
        self._mark(ACKING, ACK)
        self._owed(False)
        self._end_long()
        self._train = self.logged = 0

    def imported(self, number: int, seen: int) -> None:
        """The peer's bundle `number` was read to its end; it had read ours up to `seen`."""
        window = self.core.window
        if seen > self.peer_seen:
            self.peer_seen = seen
        if number > self.bundle_in:
            window.bundles_in[self.peer] = number
            window.dirty = True
            # It had what we wrote: what is still not acknowledged was refused, lost or torn.
            self._unbundle()

    def _mark(self, bit: int, instead: int) -> None:
        """In every state of this peer replace one of our own bits by another."""
        slots = self.core.slots
        for slot in range(slots.count):
            cell = self._cell(slot)
            state = slots.states[cell]
            if state & bit:
                slots.states[cell] = state & ~bit | instead

    def _owed(self, written: bool) -> None:
        offers = self.core.offers
        for entry in range(offers.count):
            if offers.kinds[entry] == OWED_BUNDLING and offers.peers[entry] == self.peer:
                if written:
                    offers.kinds[entry] = 0
                else:
                    offers.kinds[entry] = OWED
