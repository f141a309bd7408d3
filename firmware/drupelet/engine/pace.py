"""How much goes to a peer in an epoch: what is there is not flooded, what is away is not fed."""

from drupelet.base.compat import const
from drupelet.base.limits import HEARD_EPOCHS_MAX, SEND_COUNT_MAX
from drupelet.base.time_ms import SILENT_EPOCHS, epochs_since
from drupelet.engine.answers import Answers
from drupelet.engine.backoff import BASE_EPOCHS, counted, interval_epochs
from drupelet.engine.slots import REQUESTED, WANTED
from drupelet.engine.states import HOLD, QUEUED, REQUEST
from drupelet.wire.registry import keeps_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.wire.bsp0.session import Session

# Offer, request, message and ACK take three epochs; after four without gain, slow down.
_STALL_EPOCHS = const(4)
# What a peer that comes back gets at once; the double of it for each epoch in which it answers.
_FIRST_PACE = const(16)
# `_due_epoch` where it is no epoch.
DUE_NEVER = const(-1)
DUE_NOW = const(-2)
_NEVER = const(1 << 16)


class Pace:
    """How fast one link goes: when its peer was heard, and what may go to it unasked.

    A peer that was not heard for HEARD_EPOCHS_MAX epochs, or not since an answer was due, is away:
    it gets one frame for each step of the back-off, whose first step is repeated as long as it was
    heard of late. To one that is there as much may be under way as it has answered: twice as much
    with each epoch in which it took something, half as much when it took nothing for some. A
    stream of bsp-0 is never away.
    """

    peer: int
    session: "Session | None" = None  # a stream of bsp-0, which loses nothing: instead of time
    every = 1  # epochs of the peer's clock that make one of this link
    _way: int  # the profile in the lower 4 bits

    def __init__(self, core: "Core") -> None:
        self.core = core
        self.heard_epoch = -1  # of the peer's clock; -1: not heard, or too long ago
        self._due_epoch = DUE_NOW  # when something is due again; DUE_NEVER: never of itself
        self.acks = Answers()  # to messages, and to offers
        self.replies = Answers()  # to requests
        self.is_away = True
        self.probes = 0  # steps of the back-off: frames that went unasked while it was away
        self._probe_epoch = 0  # when the last of them went
        # How many messages may be under way unasked, to a peer that is there.
        self._under_way_max = min(_FIRST_PACE, core.slots.count)
        self._stalled = 0  # epochs for which the peer took nothing; -1: it did in this one
        # How many messages may go or be offered unasked in this payload, at its begin and now.
        self._room = self._left = self._under_way_max

    @property
    def epoch(self) -> int:
        """The epoch of the peer's clock."""
        return self.core.clocks.epochs[self.peer]

    @property
    def attention(self) -> bool:
        """True while something may be due."""
        return self._due_epoch == DUE_NOW

    @attention.setter
    def attention(self, due: bool) -> None:
        self._due_epoch = DUE_NOW if due else DUE_NEVER

    def _has_due(self) -> bool:
        due = self._due_epoch
        if due >= 0 and epochs_since(self.epoch, due) < 0x8000:
            self._due_epoch = due = DUE_NOW
        return due == DUE_NOW

    def begin_stream(self) -> None:
        """Nothing is lost on this link from now on: all may go at once."""
        self.is_away = False
        self._under_way_max = self.core.slots.count
        self._room = self._left = self._under_way_max

    def begin_epoch(self, epoch: int) -> None:
        """A new epoch: see what the peer took."""
        self._has_due()  # a time that has come is not to come round as one ahead
        if epochs_since(epoch, self.heard_epoch) > SILENT_EPOCHS:
            self.heard_epoch = -1
        self.acks.begin_epoch(epoch, self.every)
        self.replies.begin_epoch(epoch, self.every)
        slots_max = self.core.slots.count
        if self.is_silent():
            first = _FIRST_PACE if self.session is None else slots_max
            self._under_way_max = min(first, slots_max)
            self._stalled = 0
        elif self._stalled < 0:
            self._under_way_max = min(2 * self._under_way_max, slots_max)
            self._stalled = 0
        elif self._left < self._room:
            self._stalled += 1
            if self._stalled == _STALL_EPOCHS:
                self._under_way_max = self._under_way_max // 2 or 1
                self._stalled = 0
        self._room = self._left = self._under_way_max

    def is_silent(self, epochs: int = 0) -> bool:
        """True if the peer was not heard for so long; 0: for HEARD_EPOCHS_MAX, so that not only a
        frame or its answer got lost."""
        epochs = epochs or HEARD_EPOCHS_MAX * self.every
        return self.heard_epoch < 0 or epochs_since(self.epoch, self.heard_epoch) > epochs

    def begin_payload(self) -> None:
        """See what is under way, and from that how much may go in this payload.

        A peer that is there and takes nothing may have tables full of what it cannot use yet; the
        oldest alone gets through (DESIGN 5).
        """
        if self.session is not None:
            return
        slots = self.core.slots
        waiting = 0
        self.is_away = self.is_silent()
        for slot in range(slots.count if self.core.window.queued(self.peer) else 0):
            cell = self.cell(slot)
            if slots.states[cell] & (QUEUED | HOLD) == QUEUED and slots.send_counts[cell]:
                wait = self._cell_wait(cell)
                if wait > 0:
                    waiting += 1
                    continue
                then = slots.send_epoch(cell)
                # Not since the epoch before it was due: by ages, for epochs of long ago look new.
                if not self.acks.shows_lost(then) and self.is_silent(self.every - wait):
                    self.is_away = True
                    if not self.probes:  # that send was the first step
                        self.probes = 1
                        self._probe_epoch = then
        if self.is_away:
            self._under_way_max = min(_FIRST_PACE, slots.count)
            self._left = self._under_way_max if self._probe_wait() <= 0 else 0
        else:
            self._left = max(self._under_way_max - waiting, 0)
        self._room = self._left

    def begin_frame(self) -> None:
        """Nothing goes unasked to a peer that is away and got its frame for this step."""
        if self.is_away and self._probe_wait() > 0:
            self._left = 0

    def _probe_wait(self) -> int:
        """Epochs until a peer that is away gets another frame; <= 0: now."""
        if not self.probes:
            return 0
        interval = interval_epochs(self.probes, False, keeps_records(self._way & 15))
        return interval * self.every - epochs_since(self.epoch, self._probe_epoch)

    def resume_probes(self, count: int, then: int) -> None:
        """After a deep sleep: so many frames had gone unanswered, the last of them in `then`."""
        if not self._heard_since(then):
            self.probes = min(count, SEND_COUNT_MAX)
            self._probe_epoch = then

    def note_heard(self) -> None:
        """The peer was heard."""
        self.heard_epoch = self.epoch
        self.is_away = False
        self.probes = 0

    def _heard_since(self, then: int) -> bool:
        return self.heard_epoch >= 0 and epochs_since(self.heard_epoch, then) < 0x8000

    def cell(self, slot: int) -> int:
        """Where the tables have a message (slot) for the peer."""
        return self.peer * self.core.slots.count + slot

    def _is_asked(self, cell: int) -> bool:
        """True for what the peer asked for and did not get since."""
        slots = self.core.slots
        return slots.states[cell] & REQUEST != 0 and not slots.send_counts[cell]

    def _may_go(self, cell: int) -> bool:
        """True when back-off and pace let a message go now, whole or as an offer."""
        return (self._left > 0 or self._is_asked(cell)) and self._cell_wait(cell) <= 0

    def _count_unasked(self) -> None:
        """A message goes, whole or as an offer, that was not asked for."""
        self._left -= 1
        if self.is_away and (not self.probes or self._probe_epoch != self.epoch):
            self.probes = counted(self.probes) if self.is_silent() else 1
            self._probe_epoch = self.epoch

    def _cell_wait(self, cell: int) -> int:
        """Epochs until a message may be sent again; <= 0: now."""
        if self.session is not None:
            return _NEVER if self.session.has_sent(cell) else 0
        slots = self.core.slots
        if not slots.send_counts[cell]:
            return 0
        then = slots.send_epoch(cell)
        return self.acks.wait_epochs(self.epoch, then, BASE_EPOCHS * self.every, self.every)

    def _entry_wait(self, entry: int) -> int:
        """Epochs until a request may be sent again; <= 0: now."""
        if self.session is not None:
            return _NEVER if self.session.has_sent(~entry) else 0
        offers = self.core.offers
        count = offers.send_count(entry)
        then = offers.send_epoch(entry)
        if not count:
            return 0
        interval = interval_epochs(count, self._heard_since(then), keeps_records(self._way & 15))
        return self.replies.wait_epochs(self.epoch, then, interval * self.every, self.every)

    def next_due_epochs(self) -> int:
        """Epochs until something may be due again, at least 1; 0 when nothing is outstanding."""
        slots = self.core.slots
        soonest = unasked = _NEVER
        waiting = 0
        for slot in range(slots.count):
            cell = self.cell(slot)
            state = slots.states[cell]
            if state & HOLD or not state & (QUEUED | REQUEST):
                continue
            wait = self._cell_wait(cell)
            if self._is_asked(cell):
                soonest = min(soonest, wait)
            elif slots.send_counts[cell]:
                unasked = min(unasked, wait)
                waiting += 0 < wait < _NEVER
            elif waiting < self._under_way_max:
                unasked = min(unasked, 1)
        if self.is_away and unasked != _NEVER:
            unasked = max(unasked, self._probe_wait())
        soonest = min(soonest, unasked)
        offers = self.core.offers
        for entry in range(offers.count):
            asks = REQUESTED <= offers.kinds[entry] <= WANTED
            if asks and offers.peer_of(entry) == self.peer:
                soonest = min(soonest, self._entry_wait(entry))
        return 0 if soonest == _NEVER else max(soonest, 1)
