"""How much goes to a peer in an epoch: what is there is not flooded, what is away is not fed."""

from drupelet.base.compat import const
from drupelet.base.limits import BACKOFF_EPOCHS_MAX, HEARD_EPOCHS_MAX, SEND_COUNT_MAX
from drupelet.base.time_ms import SILENT_EPOCHS, epochs_since
from drupelet.engine.backoff import BASE_EPOCHS, counted, interval_epochs
from drupelet.engine.inbox import REQUESTED
from drupelet.engine.members import FAMILY_MVDS
from drupelet.engine.states import HOLD, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import ExchangePort

# Offer, request, message and ACK take three epochs; after four without gain, slow down.
_STALL_EPOCHS = const(4)
# What a peer that comes back gets at once; the double of it for each epoch in which it answers.
_FIRST_PACE = const(16)
_NEVER = const(1 << 16)


# How long answers to records of two kinds take on one link, and what was lost: a list of numbers.
#
# A carrier keeps the order of frames. So what was sent in an earlier epoch than something that was
# answered is lost, and goes again after the base of back-off (RFC 8985 calls this RACK). For the
# rest no answer says anything: it is awaited for twice as long as answers took of late, counted
# from the last answer, for a slow peer works through what it was sent (RFC 6298 restarts its timer
# so). Epochs are of the peer's clock, modulo 2^16.
ACKS = const(0)  # where the numbers of answers to messages and offers begin
REPLIES = const(4)  # likewise, to requests
TRIP_EPOCHS = const(0)  # from a send to its answer: the longest of late
# When that was sent which went once and is the newest to be answered; -1: none was.
_NEWEST_EPOCH = const(1)
_LAST_EPOCH = const(2)  # when the last of them came; -1: none did
_IS_FRESH = const(3)  # one came since the present epoch of the link began


def note_answer(answers: "list[int]", kind: int, epoch: int, then: int, once: bool) -> None:
    """The answer came to what was sent in `then`; `once`: and not before.

    If it was, the answer may be to an earlier send: the trip was that long at least, and nothing
    shows what was lost. Were such answers left out, as by Karn's rule, a trip longer than the wait
    would never be measured: all would be sent again before its answer.
    """
    trip_epochs = epochs_since(epoch, then)
    answers[kind + TRIP_EPOCHS] = max(answers[kind + TRIP_EPOCHS], trip_epochs)
    if once:
        answers[kind + _LAST_EPOCH] = epoch
        answers[kind + _IS_FRESH] = 1
        newest = answers[kind + _NEWEST_EPOCH]
        if newest < 0 or epochs_since(then, newest) < 0x8000:
            answers[kind + _NEWEST_EPOCH] = then


def age_answers(answers: "list[int]", kind: int, epoch: int, every: int) -> None:
    """An epoch of the link begins, `every` of the clock's: forget what is too old to be compared,
    and after an answer in an epoch that trips were longer once."""
    if epochs_since(epoch, answers[kind + _LAST_EPOCH]) > SILENT_EPOCHS:
        answers[kind + _NEWEST_EPOCH] = answers[kind + _LAST_EPOCH] = -1
    elif answers[kind + _IS_FRESH]:
        answers[kind + TRIP_EPOCHS] = max(answers[kind + TRIP_EPOCHS] - every, 0)
    answers[kind + _IS_FRESH] = 0


def shows_lost(answers: "list[int]", kind: int, then: int) -> bool:
    """True if something that was sent in a later epoch than `then` was answered."""
    newest = answers[kind + _NEWEST_EPOCH]
    return newest >= 0 and 0 < epochs_since(newest, then) < 0x8000


def wait_epochs(
    answers: "list[int]", kind: int, epoch: int, then: int, interval_epochs: int, every: int
) -> int:
    """Epochs until what was sent in `then` goes again, at the earliest after an interval."""
    waited = epochs_since(epoch, then)
    if shows_lost(answers, kind, then):
        return interval_epochs - waited
    if answers[kind + _LAST_EPOCH] >= 0:
        waited = min(waited, epochs_since(epoch, answers[kind + _LAST_EPOCH]))
    longest = min(2 * answers[kind + TRIP_EPOCHS], BACKOFF_EPOCHS_MAX * every)
    return max(interval_epochs, longest) - waited


class Pace:
    """How fast one link goes: when its peer was heard, and what may go to it unasked.

    A peer that was not heard for HEARD_EPOCHS_MAX epochs, or not since an answer was due, is away:
    it gets one frame for each step of the back-off, whose first step is repeated as long as it was
    heard of late. To one that is there as much may be under way as it has answered: twice as much
    with each epoch in which it took something, half as much when it took nothing for some. A
    stream of bsp-0 is never away.
    """

    is_stream = False  # a connection of bsp-0, which loses nothing: one send is enough

    every = 1  # epochs of the peer's clock that make one of this link

    def __init__(self, exchange: "ExchangePort") -> None:
        self._exchange = exchange
        self.heard_epoch = -1  # of the peer's clock; -1: not heard, or too long ago
        self.answers = [0, -1, -1, 0, 0, -1, -1, 0]
        self.is_away = True
        self.probes = 0  # steps of the back-off: frames that went unasked while it was away
        self._probe_epoch = 0  # when the last of them went
        # How many messages may be under way unasked, to a peer that is there.
        self._under_way_max = min(_FIRST_PACE, exchange.outbox.rows_max)
        self.stalled = 0  # epochs for which the peer took nothing; -1: it did in this one
        # How many messages may go or be offered unasked in this payload, at its begin and now.
        self._room = self.left = self._under_way_max

    @property
    def epoch(self) -> int:
        """The epoch of the peer's clock."""
        return self._exchange.epoch

    def begin_stream(self) -> None:
        """Nothing is lost on this link from now on: all may go at once, and once."""
        self.is_stream = True
        self.is_away = False
        self._room = self.left = self._under_way_max = self._exchange.outbox.rows_max

    def begin_epoch(self, epoch: int) -> None:
        """A new epoch: see what the peer took."""
        if epochs_since(epoch, self.heard_epoch) > SILENT_EPOCHS:
            self.heard_epoch = -1
        age_answers(self.answers, ACKS, epoch, self.every)
        age_answers(self.answers, REPLIES, epoch, self.every)
        rows_max = self._exchange.outbox.rows_max
        if self.is_silent():
            first = _FIRST_PACE if not self.is_stream else rows_max
            self._under_way_max = min(first, rows_max)
            self.stalled = 0
        elif self.stalled < 0:
            self._under_way_max = min(2 * self._under_way_max, rows_max)
            self.stalled = 0
        elif self.left < self._room:
            self.stalled += 1
            if self.stalled == _STALL_EPOCHS:
                self._under_way_max = self._under_way_max // 2 or 1
                self.stalled = 0
        self._room = self.left = self._under_way_max

    def is_silent(self, epochs: int = 0) -> bool:
        """True if the peer was not heard for so long; 0: for HEARD_EPOCHS_MAX, so that not only a
        frame or its answer got lost."""
        epochs = epochs or HEARD_EPOCHS_MAX * self.every
        return self.heard_epoch < 0 or epochs_since(self.epoch, self.heard_epoch) > epochs

    def begin_payload(self) -> None:
        """See what is under way, and from that how much may go in this payload.

        A peer that is there and takes nothing may have tables full of what it cannot use yet; the
        oldest alone gets through.
        """
        if self.is_stream:
            return
        outbox = self._exchange.outbox
        waiting = 0
        self.is_away = self.is_silent()
        for row in range(outbox.count if outbox.open_count else 0):
            if outbox.state(row) & HOLD or not outbox.sends(row):
                continue
            wait = self.row_wait(row)
            if wait > 0:
                waiting += 1
                continue
            then = outbox.epoch(row)
            # Not since the epoch before it was due: by ages, for epochs of long ago look new.
            if not shows_lost(self.answers, ACKS, then) and self.is_silent(self.every - wait):
                self.is_away = True
                if not self.probes:  # that send was the first step
                    self.probes = 1
                    self._probe_epoch = then
        if self.is_away:
            self._under_way_max = min(_FIRST_PACE, outbox.rows_max)
            self.left = self._under_way_max if self._probe_wait() <= 0 else 0
        else:
            self.left = max(self._under_way_max - waiting, 0)
        self._room = self.left

    def begin_frame(self) -> None:
        """Nothing goes unasked to a peer that is away and got its frame for this step."""
        if self.is_away and self._probe_wait() > 0:
            self.left = 0

    def _probe_wait(self) -> int:
        """Epochs until a peer that is away gets another frame; <= 0: now."""
        if not self.probes:
            return 0
        interval = interval_epochs(self.probes, False, self._exchange.family == FAMILY_MVDS)
        return interval * self.every - epochs_since(self.epoch, self._probe_epoch)

    def resume_probes(self, count: int, then: int) -> None:
        """After a deep sleep: so many frames had gone unanswered, the last of them in `then`."""
        if not self.is_heard_since(then):
            self.probes = min(count, SEND_COUNT_MAX)
            self._probe_epoch = then

    def note_heard(self) -> None:
        """The peer was heard."""
        self.heard_epoch = self.epoch
        self.is_away = False
        self.probes = 0

    def is_heard_since(self, then: int) -> bool:
        """True if the peer was heard in the epoch `then` or later."""
        return self.heard_epoch >= 0 and epochs_since(self.heard_epoch, then) < 0x8000

    def is_asked(self, row: int) -> bool:
        """True for what the peer asked for and did not get since."""
        return self._exchange.outbox.state(row) & REQUEST != 0 and not self._exchange.outbox.sends(
            row
        )

    def may_go(self, row: int) -> bool:
        """True when back-off and pace let a message go now, whole or as an offer."""
        return (self.left > 0 or self.is_asked(row)) and self.row_wait(row) <= 0

    def count_unasked(self) -> None:
        """A message goes, whole or as an offer, that was not asked for."""
        self.left -= 1
        if self.is_away and (not self.probes or self._probe_epoch != self.epoch):
            self.probes = counted(self.probes) if self.is_silent() else 1
            self._probe_epoch = self.epoch

    def row_wait(self, row: int) -> int:
        """Epochs until a message may be sent again; <= 0: now."""
        outbox = self._exchange.outbox
        if self.is_stream:
            return _NEVER if outbox.sends(row) and not outbox.state(row) & REQUEST else 0
        if not outbox.sends(row):
            return 0
        then = outbox.epoch(row)
        interval = BASE_EPOCHS * self.every
        return wait_epochs(self.answers, ACKS, self.epoch, then, interval, self.every)

    def ask_wait(self, sends: int, then: int) -> int:
        """Epochs until what was asked for `sends` times, last in `then`, may be asked for again;
        <= 0: now."""
        if not sends or self.is_stream:
            return _NEVER if sends else 0
        interval = interval_epochs(
            sends, self.is_heard_since(then), self._exchange.family == FAMILY_MVDS
        )
        interval *= self.every
        return wait_epochs(self.answers, REPLIES, self.epoch, then, interval, self.every)

    def next_due_epochs(self) -> int:
        """Epochs until something may be due again, at least 1; 0 when nothing is outstanding."""
        outbox = self._exchange.outbox
        soonest = unasked = _NEVER
        waiting = 0
        for row in range(outbox.count):
            if outbox.state(row) & HOLD:
                continue
            wait = self.row_wait(row)
            if self.is_asked(row):
                soonest = min(soonest, wait)
            elif outbox.sends(row):
                unasked = min(unasked, wait)
                waiting += 0 < wait < _NEVER
            elif waiting < self._under_way_max:
                unasked = min(unasked, 1)
        if self.is_away and unasked != _NEVER:
            unasked = max(unasked, self._probe_wait())
        soonest = min(soonest, unasked)
        inbox = self._exchange.inbox
        for entry in range(inbox.end()):
            if inbox.kind(entry) == REQUESTED:
                soonest = min(soonest, self.ask_wait(inbox.sends(entry), inbox.epoch(entry)))
        pending = self._exchange.core.pending
        if pending.count:
            number = self._exchange.peer_number
            for row in range(pending.rows_max):
                if pending.handles[row] and pending.source(row) == number:
                    wait = self.ask_wait(pending.sends(row), pending.epoch(row))
                    soonest = min(soonest, wait)
        return 0 if soonest == _NEVER else max(soonest, 1)
