"""How much to send to a peer in an epoch: a window if it is there, probes if it is away."""

from drupelet.base.compat import const
from drupelet.base.limits import BACKOFF_EPOCHS_MAX, HEARD_EPOCHS_MAX, SEND_COUNT_MAX
from drupelet.base.time_ms import SILENT_EPOCHS, epochs_since
from drupelet.engine.backoff import BASE_EPOCHS, counted, interval_epochs
from drupelet.engine.inbox import REQUESTED
from drupelet.engine.members import FAMILY_MVDS
from drupelet.engine.states import REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import ExchangePort

# An offer, a request, a message and its ACK take three epochs: after four without gain, slow down.
_STALL_EPOCHS = const(4)
NEVER = const(1 << 16)


# How long the answers of a peer take on one link, and what they show to be lost: a list with four
# numbers for each of two kinds of answers, at the offsets below.
#
# A carrier keeps the order of frames. So if something was answered, what was sent in an earlier
# epoch is lost, and is sent again after the base of the back-off (as RACK does it, RFC 8985). For
# the rest, wait twice the longest recent round trip, counted from the last answer, for a slow peer
# still works through its queue (RFC 6298 restarts its timer likewise). Epochs are those of the
# peer's clock, modulo 2^16.
ACKS = const(0)  # the first number of answers to messages and offers
REPLIES = const(4)  # the first number of answers to requests
TRIP_EPOCHS = const(0)  # the longest recent round trip
# When the newest of the answered records was sent, of those that were sent once; -1: unknown.
_NEWEST_EPOCH = const(1)
_LAST_EPOCH = const(2)  # when the last answer came; -1: none did
_IS_FRESH = const(3)  # 1: an answer came since the present epoch of the link began


def note_answer(answers: "list[int]", kind: int, epoch: int, sent_epoch: int, once: bool) -> None:
    """Record an answer to what was sent in `sent_epoch`; `once`: and was not sent before.

    If it was sent before, the answer may be to an earlier send: the round trip is at least that
    long, and nothing shows what was lost. If such answers were ignored, as by Karn's rule, a round
    trip longer than the wait would never be measured, and all would be sent again before it ends.
    """
    trip_epochs = epochs_since(epoch, sent_epoch)
    answers[kind + TRIP_EPOCHS] = max(answers[kind + TRIP_EPOCHS], trip_epochs)
    if once:
        answers[kind + _LAST_EPOCH] = epoch
        answers[kind + _IS_FRESH] = 1
        newest = answers[kind + _NEWEST_EPOCH]
        if newest < 0 or epochs_since(sent_epoch, newest) < 0x8000:
            answers[kind + _NEWEST_EPOCH] = sent_epoch


def age_answers(answers: "list[int]", kind: int, epoch: int, every: int) -> None:
    """Begin an epoch of the link, which is `every` epochs of the clock: drop epochs that are too
    old to compare, and lower the round trip if an answer came in the last epoch."""
    if epochs_since(epoch, answers[kind + _LAST_EPOCH]) > SILENT_EPOCHS:
        answers[kind + _NEWEST_EPOCH] = answers[kind + _LAST_EPOCH] = -1
    elif answers[kind + _IS_FRESH]:
        answers[kind + TRIP_EPOCHS] = max(answers[kind + TRIP_EPOCHS] - every, 0)
    answers[kind + _IS_FRESH] = 0


def shows_lost(answers: "list[int]", kind: int, sent_epoch: int) -> bool:
    """Return True if something that was sent in a later epoch than `sent_epoch` was answered."""
    newest = answers[kind + _NEWEST_EPOCH]
    return newest >= 0 and 0 < epochs_since(newest, sent_epoch) < 0x8000


def wait_epochs(
    answers: "list[int]", kind: int, epoch: int, sent_epoch: int, interval_epochs: int, every: int
) -> int:
    """Return the epochs until what was sent in `sent_epoch` may be sent again; <= 0: now.

    `interval_epochs`: the shortest wait. `every`: epochs of the clock in one of the link.
    """
    waited = epochs_since(epoch, sent_epoch)
    if shows_lost(answers, kind, sent_epoch):
        return interval_epochs - waited
    if answers[kind + _LAST_EPOCH] >= 0:
        waited = min(waited, epochs_since(epoch, answers[kind + _LAST_EPOCH]))
    longest = min(2 * answers[kind + TRIP_EPOCHS], BACKOFF_EPOCHS_MAX * every)
    return max(interval_epochs, longest) - waited


class Pace:
    """When a link's peer was heard, and how much may be sent to it unasked.

    A peer is away if it was not heard for HEARD_EPOCHS_MAX epochs, or not since an answer was due.
    It gets one frame per step of the back-off; while it was heard recently, the first step is
    repeated. For a peer that is there, a congestion window limits the unanswered messages. It
    doubles with each epoch in which the peer acknowledged something, and is halved after some
    epochs in which it did not.
    """

    every = 1  # how many epochs of the peer's clock make one of this link
    # Messages in the first window; it doubles in each epoch in which the peer answers.
    window_first = 16

    def __init__(self, exchange: "ExchangePort") -> None:
        self._exchange = exchange
        self.heard_epoch = -1  # of the peer's clock; -1: not heard, or too long ago
        self.answers = [0, -1, -1, 0, 0, -1, -1, 0]
        self.is_away = True
        self.probes = 0  # steps of the back-off: frames that were sent unasked while it was away
        self._probe_epoch = 0  # when the last of them was sent
        # The congestion window: how many messages may be unanswered, of those nobody requested.
        self._window = min(self.window_first, exchange.outbox.rows_max)
        self.stalled = 0  # epochs in which the peer took nothing; -1: it did in this one
        # How many messages may be sent or offered unasked in this payload: at its start, and now.
        self._left_first = self.left = self._window

    @property
    def epoch(self) -> int:
        """The epoch of the peer's clock."""
        return self._exchange.epoch

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch: adapt the congestion window to what the peer acknowledged."""
        if epochs_since(epoch, self.heard_epoch) > SILENT_EPOCHS:
            self.heard_epoch = -1
        age_answers(self.answers, ACKS, epoch, self.every)
        age_answers(self.answers, REPLIES, epoch, self.every)
        rows_max = self._exchange.outbox.rows_max
        if self.is_silent():
            self._window = min(self.window_first, rows_max)
            self.stalled = 0
        elif self.stalled < 0:
            self._window = min(2 * self._window, rows_max)
            self.stalled = 0
        elif self.left < self._left_first:
            self.stalled += 1
            if self.stalled == _STALL_EPOCHS:
                self._window = self._window // 2 or 1
                self.stalled = 0
        self._left_first = self.left = self._window

    def is_silent(self, epochs: int = 0) -> bool:
        """Return True if the peer was not heard for `epochs`; 0: for HEARD_EPOCHS_MAX, so many
        that more than one lost frame or answer is the reason."""
        epochs = epochs or HEARD_EPOCHS_MAX * self.every
        return self.heard_epoch < 0 or epochs_since(self.epoch, self.heard_epoch) > epochs

    def begin_payload(self) -> None:
        """Decide if the peer is away, and how many messages may go unasked in this payload.

        A peer that is there and takes nothing may have tables full of messages that wait for
        parents: only the oldest message helps then, so the window shrinks to one.
        """
        outbox = self._exchange.outbox
        waiting = 0
        self.is_away = self.is_silent()
        row = -1
        while (row := outbox.next_open(row + 1)) < outbox.count:
            if not outbox.sends(row):
                continue
            wait = self.row_wait(row)
            if wait > 0:
                waiting += 1
                continue
            then = outbox.epoch(row)
            # Compare ages, since an epoch number of long ago looks like a later one.
            if not shows_lost(self.answers, ACKS, then) and self.is_silent(self.every - wait):
                self.is_away = True
                if not self.probes:  # the send itself was the first step
                    self.probes = 1
                    self._probe_epoch = then
        if self.is_away:
            self._window = min(self.window_first, outbox.rows_max)
            self.left = self._window if self._probe_wait() <= 0 else 0
        else:
            self.left = max(self._window - waiting, 0)
        self._left_first = self.left

    def begin_frame(self) -> None:
        """Send nothing more unasked to a peer that is away and got its frame for this step."""
        if self.is_away and self._probe_wait() > 0:
            self.left = 0

    def _probe_wait(self) -> int:
        """Return the epochs until a peer that is away gets another frame; <= 0: now."""
        if not self.probes:
            return 0
        interval = interval_epochs(self.probes, False, self._exchange.family == FAMILY_MVDS)
        return interval * self.every - epochs_since(self.epoch, self._probe_epoch)

    def resume_probes(self, count: int, then: int) -> None:
        """After a deep sleep: `count` frames had no answer, the last of them in `then`."""
        if not self.is_heard_since(then):
            self.probes = min(count, SEND_COUNT_MAX)
            self._probe_epoch = then

    def note_heard(self) -> None:
        """Record that the peer was heard."""
        self.heard_epoch = self.epoch
        self.is_away = False
        self.probes = 0

    def is_heard_since(self, then: int) -> bool:
        """Return True if the peer was heard in the epoch `then` or later."""
        return self.heard_epoch >= 0 and epochs_since(self.heard_epoch, then) < 0x8000

    def is_asked(self, row: int) -> bool:
        """Return True if the peer requested the message, and did not get it since."""
        outbox = self._exchange.outbox
        return outbox.state(row) & REQUEST != 0 and not outbox.sends(row)

    def may_go(self, row: int) -> bool:
        """Return True if back-off and window let a message go now, whole or as an offer."""
        return (self.left > 0 or self.is_asked(row)) and self.row_wait(row) <= 0

    def count_unasked(self) -> None:
        """Count a message that goes, whole or as an offer, without having been requested."""
        self.left -= 1
        if self.is_away and (not self.probes or self._probe_epoch != self.epoch):
            self.probes = counted(self.probes) if self.is_silent() else 1
            self._probe_epoch = self.epoch

    def row_wait(self, row: int) -> int:
        """Return the epochs until a message may be sent again; <= 0: now."""
        outbox = self._exchange.outbox
        if not outbox.sends(row):
            return 0
        sent_epoch = outbox.epoch(row)
        interval = BASE_EPOCHS * self.every
        return wait_epochs(self.answers, ACKS, self.epoch, sent_epoch, interval, self.every)

    def ask_wait(self, sends: int, asked_epoch: int) -> int:
        """Return the epochs until an id that was requested `sends` times, last in `asked_epoch`,
        may be requested again; <= 0: now."""
        if not sends:
            return 0
        interval = interval_epochs(
            sends, self.is_heard_since(asked_epoch), self._exchange.family == FAMILY_MVDS
        )
        interval *= self.every
        return wait_epochs(self.answers, REPLIES, self.epoch, asked_epoch, interval, self.every)

    def next_due_epochs(self) -> int:
        """Return the epochs until something may be due, at least 1; 0: nothing is outstanding."""
        outbox = self._exchange.outbox
        soonest = unasked = NEVER
        waiting = 0
        row = -1
        while (row := outbox.next_open(row + 1)) < outbox.count:
            wait = self.row_wait(row)
            if self.is_asked(row):
                soonest = min(soonest, wait)
            elif outbox.sends(row):
                unasked = min(unasked, wait)
                waiting += 0 < wait < NEVER
            elif waiting < self._window:
                unasked = min(unasked, 1)
        if self.is_away and unasked != NEVER:
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
        return 0 if soonest == NEVER else max(soonest, 1)
