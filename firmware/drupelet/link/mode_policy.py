"""Which mode a link should be in, by what it measured (docs/SPEC.md 10.4).

Batch sends the message at once: `m` bytes whenever it goes out. Interactive offers it first: three
ids and one more round trip, but the message only to who lacks it, and once per request. From loss
and from the share of messages that the peer has already follow the expected bytes of either; the
cheaper one is chosen, with a margin. Everything here is small ints; shares are of 256.
"""

from drupelet.base.compat import const
from drupelet.base.limits import (
    POLICY_EVENTS_MAX,
    POLICY_EVENTS_MIN,
    POLICY_STAY_EPOCHS,
    POLICY_STAY_EPOCHS_MAX,
)

BATCH = const(0)
INTERACTIVE = const(1)
AUTO = const(2)

# A line that lets less than a quarter of the frames through is taken for one that lets a quarter
# through: the cost of either mode is loss alone there, and m / s^2 stays a small int.
_PASS_MIN = const(64)
# Round trips are kept in sixteenths of an epoch.
_TRIP_SCALE = const(16)


class Policy:
    """One link's measurements. Feed it every event below; ask `begin_epoch` once per epoch."""

    def __init__(self, mode: int, id_size: int, epoch_price: int) -> None:
        """`mode` to begin with. `id_size`: bytes that one id costs in a record of the profile.
        `epoch_price`: bytes that the owner would pay to have a message an epoch earlier; 0: none.
        """
        assert mode in (BATCH, INTERACTIVE) and 0 < id_size <= 64 and 0 <= epoch_price <= 4096
        self.mode = mode
        self.changes = 0
        self.size = 0  # of a message record, mean; 0: not known
        self.trip = 2 * _TRIP_SCALE  # from a send to its answer, mean, sixteenths of an epoch
        self._id_size = id_size
        self._price = epoch_price
        self._sends = 0
        self._again = 0
        self._acks = 0
        self._requests = 0
        self._incoming = 0
        self._held = 0
        self._epochs = 0  # in this mode
        self._stay = POLICY_STAY_EPOCHS

    # --- events ---

    def on_sent(self, size: int, again: bool) -> None:
        """A MESSAGE of `size` bytes (the whole record) went out.

        `again`: it, or its offer, went out before and the peer was heard since: so something was
        lost. A repetition to a silent peer says nothing of the line, and is not fed at all.
        """
        if not self.size:
            self.size = size
        elif size > self.size:  # mean of about the last eight, rounded towards the new one
            self.size += (size - self.size + 7) >> 3
        else:
            self.size -= (self.size - size + 7) >> 3
        self._count_send(again)

    def on_offered(self, again: bool) -> None:
        """An OFFER went out; `again` as above."""
        self._count_send(again)

    def on_acked(self, epochs: int) -> None:
        """The peer acknowledged a message that it was not known to hold, and that was offered or
        sent. `epochs`: since that, if it was only once; -1 when it was more often."""
        self._acks += 1
        if epochs >= 0:
            if epochs > 64:
                epochs = 64
            self.trip += (epochs * _TRIP_SCALE - self.trip) >> 3
        if self._acks >= POLICY_EVENTS_MAX:
            self._acks >>= 1
            self._requests >>= 1

    def on_requested(self) -> None:
        """The peer asked for a message that it was offered."""
        if self._requests < POLICY_EVENTS_MAX:
            self._requests += 1

    def on_incoming(self, held: bool) -> None:
        """A MESSAGE or an OFFER came in; `held`: we had that message already."""
        self._incoming += 1
        self._held += held
        if self._incoming >= POLICY_EVENTS_MAX:
            self._incoming >>= 1
            self._held >>= 1

    def _count_send(self, again: bool) -> None:
        self._sends += 1
        self._again += again
        if self._sends >= POLICY_EVENTS_MAX:
            self._sends >>= 1
            self._again >>= 1

    # --- what they say ---

    def pass_share(self) -> int:
        """The share of frames that get through, one way, of 256: 64 .. 256.

        A send is repeated unless it and its answer got through: the share squared.
        """
        if self._sends < POLICY_EVENTS_MIN:
            return 256
        squared = ((self._sends - self._again) << 16) // self._sends
        root = 0
        bit = 256
        while bit:
            if (root + bit) * (root + bit) <= squared:
                root += bit
            bit >>= 1
        return root if root > _PASS_MIN else _PASS_MIN

    def held_share(self) -> int:
        """The share of our messages that the peer has already, of 256; -1: not known.

        Interactive: those acknowledged without a request. A message that is lost is asked for
        again, so requests are counted by the share that gets through. Batch: there is no answer
        that tells; but whoever sends us what we have, has what we would send. Of what comes in
        again because our ACK was lost, the lost share is taken off.
        """
        passes = self.pass_share()
        if self.mode == INTERACTIVE:
            if self._acks < POLICY_EVENTS_MIN:
                return -1
            lacked = self._requests * passes // self._acks
            return 256 - lacked if lacked < 256 else 0
        if self._incoming < POLICY_EVENTS_MIN:
            return -1
        held = self._held * 256 // self._incoming - (256 - passes)
        return held if held > 0 else 0

    def batch_cost(self, passes: int) -> int:
        """Expected bytes of a message in batch: m / s^2 + i / s."""
        return _over(_over(self.size, passes), passes) + _over(self._id_size, passes)

    def interactive_cost(self, passes: int, held: int) -> int:
        """Expected bytes of a message in interactive, and the price of the round trip more.

        Held by the peer:  offers i / s^2, ACKs i / s.
        Not held:          offers i / s^3, requests i / s^2, messages m / s, then the ACK i, and
                           if that is lost (1 - s) it is as with one that is held.
        """
        one = _over(self._id_size, passes)
        two = _over(one, passes)
        known = two + one
        new = _over(two, passes) + two + _over(self.size, passes) + self._id_size
        new += (256 - passes) * known >> 8
        return (held * known + (256 - held) * new >> 8) + self._price * self.trip // _TRIP_SCALE

    def begin_epoch(self) -> int:
        """The mode for the epoch that begins: BATCH or INTERACTIVE."""
        if self._epochs < 0x7FFF:
            self._epochs += 1
        if self._epochs < self._stay or not self.size:
            return self.mode
        if self._epochs >= 4 * self._stay:
            self._stay = POLICY_STAY_EPOCHS
        held = self.held_share()
        if held < 0 or self._sends < POLICY_EVENTS_MIN:
            return self.mode
        passes = self.pass_share()
        batch = self.batch_cost(passes)
        interactive = self.interactive_cost(passes, held)
        if self.mode == BATCH:
            if interactive + (batch >> 3) < batch:
                self._change(INTERACTIVE)
        elif batch + (interactive >> 3) < interactive:
            self._change(BATCH)
        return self.mode

    def _change(self, mode: int) -> None:
        """Go over, stay longer than the last time, and measure anew what the mode tells."""
        self.mode = mode
        self.changes += 1
        self._epochs = 0
        stay = self._stay * 2
        self._stay = stay if stay < POLICY_STAY_EPOCHS_MAX else POLICY_STAY_EPOCHS_MAX
        self._acks = self._requests = 0
        self._incoming = self._held = 0


def _over(size: int, passes: int) -> int:
    """`size` divided by a share of 256."""
    return (size << 8) // passes
