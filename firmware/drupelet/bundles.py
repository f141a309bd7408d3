"""Stick visits: what the peer is not known to hold goes into one bundle, all at once.

A visit writes through the same frames as a live link; what it wrote counts as sent, and what it
acknowledged as acknowledged, only once the bundle is on the stick, whole and durable.
"""

from drupelet._compat import const
from drupelet.limits import FRAMES_PER_EPOCH_MAX
from drupelet.segments import SegmentExchange
from drupelet.slots import OWED, OWED_BUNDLING, PEER_ROW, STICK_HOLDS, STICK_IN, STICK_OUT
from drupelet.states import ACK, ACKING, BUNDLED, BUNDLING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core


# `_way`: the profile, this bit, the carrier, the changes of the window that it has seen, and what
# its codec knows it by.
_OFFERS_FIRST = const(16)
_SEEN_SHIFT = const(8)
_ROW_SHIFT = const(16)
_ROW_MASK = const(0x3FFF)  # small ints of a board have 31 bits


class Bundles(SegmentExchange):
    """An exchange that can write and read bundles; `Link` adds live carriers."""

    def __init__(self, core: "Core", peer: int, visits: bool) -> None:
        SegmentExchange.__init__(self, core, peer, visits)
        # Frames that the payload may still have, FRAMES_PER_EPOCH_MAX before the first; then a
        # visit has 1 while it writes.
        self._train = 0
        if visits:
            self.peer_seen = 0  # the highest bundle of ours that the peer has told to have read

    @property
    def interactive(self) -> bool:
        """True when messages are offered before they are sent."""
        return self._way & _OFFERS_FIRST != 0

    @interactive.setter
    def interactive(self, offers_first: bool) -> None:
        if offers_first != self.interactive:
            self._way ^= _OFFERS_FIRST
            self._look_again()

    @property
    def codec_row(self) -> int:
        """Where a codec that all links share keeps what it knows of this one."""
        return self._way >> _ROW_SHIFT

    @codec_row.setter
    def codec_row(self, row: int) -> None:
        assert row <= _ROW_MASK
        self._way = self._way & 0xFFFF | row << _ROW_SHIFT

    def _is_shown(self) -> bool:
        """Whether all that the window queued for the peer was looked at."""
        changes = self.core.window.rows[self.peer * PEER_ROW + PEER_ROW - 1]
        return self._way >> _SEEN_SHIFT & 255 == changes

    def _look_again(self) -> None:
        rows = self.core.window.rows
        last = self.peer * PEER_ROW + PEER_ROW - 1
        rows[last] = changes = (rows[last] + 1) & 0xFE  # as it is, if others looked
        self._way = self._way & ~(255 << _SEEN_SHIFT) | changes << _SEEN_SHIFT
        self.attention = True
        self._rewind()

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
        if fresh:
            self._unbundle()
        window.refill(self.peer)
        self.logged = max(
            window.cursors[self.peer], window.rows[self.peer * PEER_ROW + STICK_HOLDS]
        )
        self._train = FRAMES_PER_EPOCH_MAX
        self._look_again()

    def _unbundle(self) -> None:
        """Nothing that we wrote is on a stick any more."""
        self._mark(BUNDLED, 0)
        self.core.window.rows[self.peer * PEER_ROW + STICK_HOLDS] = 0

    def commit(self, now_ms: int, number: int = 0) -> None:
        """The bundle is on the stick, whole and durable, under `number` (0: the next one)."""
        self.core.now_ms = now_ms
        self._mark(BUNDLING, BUNDLED)
        self._mark(ACKING, 0)
        self._owed(True)
        window = self.core.window
        row = self.peer * PEER_ROW
        window.rows[row + STICK_HOLDS] = self.logged
        window.rows[row + STICK_OUT] = number or self.bundle_out + 1
        window.dirty = True
        self._train = 0

    def abort(self, now_ms: int) -> None:
        """The bundle failed: nothing of it counts as written or acknowledged."""
        self.core.now_ms = now_ms
        self._mark(BUNDLING, 0)
        self._mark(ACKING, ACK)
        self._owed(False)
        self._end_long()
        self._train = self.logged = 0
        self.core.window.changed(self.peer)  # what it owes may go over a line

    def imported(self, number: int, seen: int) -> None:
        """The peer's bundle `number` was read to its end; it had read ours up to `seen`."""
        window = self.core.window
        if seen > self.peer_seen:
            self.peer_seen = seen
        if number > self.bundle_in:
            window.rows[self.peer * PEER_ROW + STICK_IN] = number
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
            if offers.kinds[entry] == OWED_BUNDLING and offers.peer_of(entry) == self.peer:
                offers.kinds[entry] = 0 if written else OWED
