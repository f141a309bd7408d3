"""A link: one peer over one carrier, with its profile, its epochs and its byte accounts.

A frame starts with its kind (docs/SPEC.md 2): 0x40 + profile number for records, 0x50 and 0x51 for
pieces of long bodies. A live link sends one payload, a train of frames, per epoch. A stick has no
epochs: see `stick_visit`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.base.events import COUNT_DAMAGED
from drupelet.base.limits import (
    FRAME_HEADER_SIZE,
    FRAMES_PER_EPOCH_MAX,
    WAIT_MS_MAX,
)
from drupelet.base.time_ms import epochs_since
from drupelet.engine.exchange import Exchange
from drupelet.engine.long_bodies import KIND_SEGMENT, KIND_STATE
from drupelet.wire.profiles import PROFILE_COMPACT_1, PROFILE_MVDS_1
from drupelet.wire.registry import family_of, make_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.ports import CodecPort
    from drupelet.link.ports import WakePlanPort

BATCH = const(0)
INTERACTIVE = const(1)
CARRIER_SERIAL = const(0)
CARRIER_MQTT = const(1)
CARRIER_STICK = const(2)
CARRIER_UDP = const(3)

_KIND_RECORDS = const(0x40)
_KIND_WAKE = const(0x52)
# Offsets in the counters of one carrier (docs/SPEC.md 6); _IN is the half of received ones.
_IN = const(16)
_FRAMES = const(0)
_CARRIER_BYTES = const(1)
_SEGMENT_BYTES = const(6)
_LINK_BYTES = const(7)
_SEGMENTS = const(12)
_DROPPED = const(14)
_TELEMETRY_BYTES = const(15)
# The most epochs of the peer's clock in one epoch of a link: 64 times that, the longest back-off,
# stays below 2^15, half the range of epoch numbers.
_EVERY_MAX = const(511)
# Value of `due_epoch` if nothing will be due.
_DUE_NEVER = const(-1)


class Link:
    """One peer over one carrier, made by `Node.link`; see docs/DESIGN.md 3."""

    closed = False
    own_epoch_ms = 0  # if it differs from the clock's
    own_codec: "CodecPort | None" = None  # if links do not share the profile's codec
    plan: "WakePlanPort | None" = None  # when this device and its peers are awake
    visits = False  # a stick: no epochs, everything at once
    make_exchange: "type[Exchange]" = Exchange

    def __init__(
        self, core: "Core", peer: int, profile: int, carrier: int, epoch_ms: int, mode: int
    ) -> None:
        self.profile = profile
        self.exchange = self.make_exchange(core, peer, carrier, family_of(profile))
        # How many more frames this payload may have; FRAMES_PER_EPOCH_MAX before the first one.
        # On a stick: 0 between visits, 1 after the first frame of a visit.
        self._frames_left = 0 if self.visits else FRAMES_PER_EPOCH_MAX
        self.due_epoch = _DUE_NEVER  # the epoch in which something is due again
        self.seen_changes = -1  # `changes` of the peer's outbox when it was looked at last
        codec = make_codec(core, profile, peer)
        if profile not in core.codecs:
            self.own_codec = codec
        elif profile == PROFILE_COMPACT_1:
            codec.begin(self.exchange)  # type: ignore[attr-defined] # this profile alone keeps rows
        if not self.visits and epoch_ms != core.clocks.epoch_ms(peer):
            self.own_epoch_ms = epoch_ms
        self.count_anew()
        self.set_mode(mode)

    @property
    def codec(self) -> "CodecPort":
        """The codec of the profile: the link's own, or one that all links of the profile share."""
        return self.own_codec or self.core.codecs[self.profile]

    @property
    def core(self) -> "Core":
        """The tables of the node."""
        return self.exchange.core

    @property
    def peer(self) -> int:
        """The row of the peer."""
        return self.exchange.peer

    @property
    def epoch_ms(self) -> int:
        """The length of a live link's epoch in ms; 0 on a stick."""
        return 0 if self.visits else self.own_epoch_ms or self.core.clocks.epoch_ms(self.peer)

    def take_attention(self) -> bool:
        """Return `attention` and clear it: the caller takes care of what is due."""
        is_due = self.exchange.attention
        self.exchange.attention = False
        self.due_epoch = _DUE_NEVER
        return is_due

    def count_anew(self) -> None:
        """Begin an epoch of the peer's clock, whose length may have changed."""
        self._began = self.exchange.epoch
        self.exchange.attention = True  # `due_epoch` was counted by the clock before
        if not self.visits:
            epoch_ms = self.core.clocks.epoch_ms(self.peer)
            every = min((self.epoch_ms + epoch_ms - 1) // epoch_ms, _EVERY_MAX)
            if every != self.exchange.pace.every:
                self.exchange.pace.every = every

    def set_mode(self, mode: int) -> None:
        """Set the mode, from the next frame on: INTERACTIVE offers before sending, BATCH does not.

        A stick is always in BATCH mode, since nobody answers an offer there.
        """
        is_interactive = mode == INTERACTIVE and not self.visits
        if is_interactive != self.exchange.interactive:
            self.exchange.interactive = is_interactive
            self.exchange.attention = True
            self.exchange.rewind()

    def close(self) -> None:
        """Close the link to a peer that was removed: it neither receives nor sends any more."""
        if self.profile == PROFILE_COMPACT_1 and not self.closed:
            self.codec.end(self.exchange)  # type: ignore[attr-defined]
        self.closed = True

    def greet(self) -> None:
        """Begin a contact, as the carrier came up: reset the back-off, and greet if the profile
        has a greeting."""
        self.exchange.pace.probes = 0
        self.exchange.attention = True
        if self.profile == PROFILE_COMPACT_1:
            self.codec.greet(self.exchange)  # type: ignore[attr-defined]

    def resume(self) -> None:
        """After a deep sleep: the payload of the present epoch has been sent already."""
        self._frames_left = 0

    # --- in ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Handle one frame; OK, also if a message in it was refused.

        E_PEER (counted): it was malformed; records before the fault were handled. Other codes: a
        piece of a long body could not be stored.
        """
        if self.closed:
            return E_PEER
        exchange = self.exchange
        exchange.rewind_inbox()
        exchange.core.is_telemetry = False
        self.core.now_ms = now_ms
        exchange.count(_IN + _FRAMES, 1)
        code = E_PEER
        if size > FRAME_HEADER_SIZE:
            self.hear(now_ms)
            kind = frame[0]
            falls_back = self.profile == PROFILE_COMPACT_1 and kind == _KIND_RECORDS
            passed_over = self.core.passed_over
            if KIND_SEGMENT <= kind <= KIND_STATE and passed_over is not None:
                passed_over.note_reads_segments(self.peer)
            if kind == _KIND_RECORDS | self.profile or falls_back:
                exchange.count(_IN + _LINK_BYTES, FRAME_HEADER_SIZE)
                code = self.codec.parse(exchange, frame, FRAME_HEADER_SIZE, size)
            elif kind == KIND_SEGMENT:
                code = self.core.long.on_segment(exchange, frame, size)
                part = _TELEMETRY_BYTES if exchange.core.is_telemetry else _SEGMENT_BYTES
                exchange.count(_IN + part, size)
                exchange.count(_IN + _SEGMENTS, 1)
            elif kind == _KIND_WAKE and self.plan is not None:
                exchange.count(_IN + _LINK_BYTES, size)
                code = self.plan.on_wake(self.peer, frame, size, now_ms)
            elif kind == KIND_STATE:
                exchange.count(_IN + _LINK_BYTES, size)
                code = self.core.long.on_state(exchange, frame, size)
            else:
                exchange.count(_IN + _DROPPED, 1)
        if code == E_PEER:
            exchange.bad_record()
        return code

    def received(self, wire_size: int) -> None:
        """Count a received frame's bytes on the carrier, with framing."""
        self.exchange.count(_IN + _CARRIER_BYTES, wire_size)

    def sent(self, wire_size: int) -> None:
        """Count a sent frame's bytes on the carrier, with framing."""
        self.exchange.count(_CARRIER_BYTES, wire_size)

    def damaged(self, count: int) -> None:
        """Count frames that the carrier found damaged."""
        self.core.box.count(COUNT_DAMAGED, count)

    def hear(self, now_ms: int) -> None:
        """Record that the peer was heard: the back-off returns to its base."""
        if not self.visits:
            self._tick(now_ms)
        self.exchange.pace.note_heard()
        if self.due_epoch >= 0:
            self.exchange.attention = True

    # --- out ---

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame that is due; return its size, or 0 if nothing is due now.

        `len(frame)` is the carrier's frame size; a longer message goes out in pieces. Records and
        SEGMENTs are returned only after the store's barrier. If that fails, the frame is dropped
        as if it had been lost: its records are sent again later.
        """
        if self.closed:
            return 0
        self.core.now_ms = now_ms
        if not self.visits:
            self.turn(now_ms)
            if self.plan is not None:
                size = self.plan.wake_into(frame, self.peer, now_ms)
                if size:
                    self.exchange.count(_LINK_BYTES, size)
                    self.exchange.count(_FRAMES, 1)
                    return size
                if not self.plan.there(self.peer, now_ms):
                    return 0  # the peer is asleep, or not met yet, and would not hear it
        if not self._wake_if_due() or not self._frames_left or self._turn_ms(now_ms):
            return 0
        if self._frames_left == FRAMES_PER_EPOCH_MAX and not self.visits:
            self.exchange.pace.begin_payload()
        self.exchange.pace.begin_frame()
        size = self._next_frame(frame, len(frame))
        if not size:
            self._rest()
            return 0
        if self.visits:
            self._frames_left = 1
        else:
            self._frames_left -= 1
            arbiter = self.core.clocks.arbiter
            if arbiter is not None:
                arbiter.note_payload(self.peer, self)
        self.exchange.count(_FRAMES, 1)
        return size

    def turn(self, now_ms: int) -> None:
        """Advance the clock, and notice what is new for the peer.

        On a live link that is not polled, as while its carrier is down, the owner calls this at
        least once in six days: otherwise epoch numbers wrap.
        """
        self._tick(now_ms)
        # Not within a payload: a message that was sent on request may lose its row, and would get
        # a row and be sent again.
        if not 0 < self._frames_left < FRAMES_PER_EPOCH_MAX:
            self.core.refill(self.peer)
        if self.has_changes():
            self.seen_changes = self.exchange.outbox.changes
            self.exchange.attention = True
            self.exchange.rewind()

    def has_changes(self) -> bool:
        """Return True if rows of the outbox are new, or were moved, since this link looked."""
        return self.seen_changes != self.exchange.outbox.changes

    def _wake_if_due(self) -> bool:
        due = self.due_epoch
        exchange = self.exchange
        if not exchange.attention and due >= 0 and epochs_since(exchange.epoch, due) < 0x8000:
            exchange.attention = True
        return exchange.attention

    def _rest(self) -> None:
        """End the payload, and set when something will be due."""
        exchange = self.exchange
        if self._frames_left < FRAMES_PER_EPOCH_MAX:
            self._frames_left = 0
        due = self.exchange.pace.next_due_epochs()
        if PROFILE_MVDS_1 <= self.profile <= PROFILE_COMPACT_1:
            wait = self.codec.wait_epochs(exchange)  # type: ignore[attr-defined]
            if wait and not 0 < due < wait:
                due = wait
        exchange.attention = False
        self.due_epoch = (self.exchange.epoch + due) & 0xFFFF if due else _DUE_NEVER
        exchange.rewind()

    def _turn_ms(self, now_ms: int) -> int:
        """Return 0 if this link may send this epoch's payload, which links to one peer share."""
        arbiter = self.core.clocks.arbiter
        if arbiter is None or self.visits:
            return 0
        return arbiter.turn_ms(self.peer, self, now_ms)

    def _tick(self, now_ms: int) -> None:
        epoch = self.core.clocks.advance(self.peer, now_ms)
        passed = epochs_since(epoch, self._began)
        every = self.exchange.pace.every
        if passed >= every:
            self._wake_if_due()  # later, `due_epoch` may look like an epoch ahead
            self._began = (epoch - passed % every) & 0xFFFF
            self._begin_epoch(epoch)
            self.core.promote(now_ms)

    def _begin_epoch(self, epoch: int) -> None:
        self._frames_left = FRAMES_PER_EPOCH_MAX
        self.exchange.pace.begin_epoch(epoch)
        self.exchange.rewind()

    def _next_frame(self, frame: bytearray, limit: int) -> int:
        """Write one frame: a SEGMENT STATE, else records, else a SEGMENT; return its size.

        A STATE needs no barrier: if a power cut takes what it says, we say less, and the sender
        goes back.
        """
        exchange = self.exchange
        size = 0
        if self._frames_left >= FRAMES_PER_EPOCH_MAX - 1:  # in its first two frames
            size = self.core.long.state_into(exchange, frame)
        if size:
            exchange.count(_LINK_BYTES, size)
            return size
        # A codec that falls back to another profile overwrites it.
        frame[0] = _KIND_RECORDS | self.profile
        # Records first: a long body would hold acknowledgements back for epochs.
        end = self.codec.fill(exchange, frame, FRAME_HEADER_SIZE, limit)
        while end == FRAME_HEADER_SIZE and exchange.long_handle:
            size = self.core.long.segment_into(exchange, frame, limit)
            if size < 0:
                return 0
            if size:
                kind = _TELEMETRY_BYTES if exchange.core.is_telemetry else _SEGMENT_BYTES
                exchange.count(kind, size)
                exchange.count(_SEGMENTS, 1)
                return self._leave(size)
            end = self.codec.fill(exchange, frame, FRAME_HEADER_SIZE, limit)
        if end == FRAME_HEADER_SIZE:
            return 0
        exchange.count(_LINK_BYTES, FRAME_HEADER_SIZE)
        return self._leave(end)

    def _leave(self, size: int) -> int:
        """Return the frame's size once it may leave, as `Core.durable_size`."""
        return self.core.durable_size(size)

    def wake_ms(self, now_ms: int) -> int:
        """Return the ms until `poll_into` may have a frame, unless a frame comes in before."""
        if self.visits or self.closed:
            return WAIT_MS_MAX
        plan = self.plan
        if plan is None:
            return self._due_ms(now_ms)
        left = plan.awake_ms(now_ms)
        if not left:
            return plan.next_wake_ms(now_ms)
        left = min(left, plan.wake_due_ms(self.peer, now_ms))
        return min(left, self._due_ms(now_ms)) if plan.there(self.peer, now_ms) else left

    def _due_ms(self, now_ms: int) -> int:
        clocks = self.core.clocks
        epoch = self.exchange.epoch
        left = self.exchange.pace.every - epochs_since(epoch, self._began)
        if self.exchange.attention or self.has_changes():
            if self._frames_left:
                turn_ms = self._turn_ms(now_ms)
                if turn_ms >= 0:
                    return turn_ms
                left = 1
        elif not self.core.has_more(self.peer):
            if self.due_epoch < 0:
                return WAIT_MS_MAX
            left = epochs_since(self.due_epoch, epoch)
            if left >= 0x8000:
                left = 0  # it has passed
        return clocks.until_ms(self.peer, now_ms, left)
