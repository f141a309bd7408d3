"""How long an answer takes, and what was lost: what one link knows of the answers to its messages,
and to its requests.

A carrier keeps the order of frames. So what was sent in an earlier epoch than something that was
answered is lost, and goes again after the base of back-off (RFC 8985 calls this RACK). For the
rest no answer says anything: it is awaited for twice as long as answers took of late, counted from
the last answer, for a slow peer works through what it was sent (RFC 6298 restarts its timer so).
"""

from drupelet.base.limits import BACKOFF_EPOCHS_MAX
from drupelet.base.time_ms import SILENT_EPOCHS, epochs_since


class Answers:
    """To one kind of record on one link. Epochs are of the peer's clock, modulo 2^16."""

    def __init__(self) -> None:
        self.trip_epochs = 0  # from a send to its answer: the longest of late
        # When that was sent which went once and is the newest to be answered; -1: none was.
        self._newest_epoch = -1
        self._last_epoch = -1  # when the last of them came

    def note(self, epoch: int, then: int, once: bool) -> None:
        """The answer came to what was sent in `then`; `once`: and not before.

        If it was, the answer may be to an earlier send: the trip was that long at least, and
        nothing shows what was lost. Were such answers left out, as by Karn's rule, a trip longer
        than the wait would never be measured: all would be sent again before its answer.
        """
        if once:
            self._last_epoch = epoch
        self.trip_epochs = max(self.trip_epochs, epochs_since(epoch, then))
        if once and (self._newest_epoch < 0 or epochs_since(then, self._newest_epoch) < 0x8000):
            self._newest_epoch = then

    def begin_epoch(self, epoch: int, every: int) -> None:
        """An epoch of the link begins, `every` of the clock's: forget what is too old to be
        compared, and after an answer in the epoch before that trips were longer once."""
        since = epochs_since(epoch, self._last_epoch)
        if since > SILENT_EPOCHS:
            self._newest_epoch = self._last_epoch = -1
        elif since <= every:
            self.trip_epochs = max(self.trip_epochs - every, 0)

    def shows_lost(self, then: int) -> bool:
        """True if something that was sent in a later epoch than `then` was answered."""
        newest = self._newest_epoch
        return newest >= 0 and 0 < epochs_since(newest, then) < 0x8000

    def wait_epochs(self, epoch: int, then: int, interval_epochs: int, every: int) -> int:
        """Epochs until what was sent in `then` goes again, at the earliest after an interval."""
        waited = epochs_since(epoch, then)
        if self.shows_lost(then):
            return interval_epochs - waited
        if self._last_epoch >= 0:
            waited = min(waited, epochs_since(epoch, self._last_epoch))
        return max(interval_epochs, min(2 * self.trip_epochs, BACKOFF_EPOCHS_MAX * every)) - waited
