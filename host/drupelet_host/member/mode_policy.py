"""Choose the mode of a link by measurements (docs/SPEC.md 10.4).

Batch mode sends a message at once, with its full size `m`. Interactive mode offers it first: three
ids and one more round trip, but the message is sent only on request, to a peer that lacks it. The
policy estimates the expected bytes of both from the loss, and from the share of messages that the
peer has already. It chooses the cheaper mode, with a margin. All numbers are small ints; shares
are in 1/256.
"""

from drupelet import host_api
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE
from drupelet.link.link import BATCH, INTERACTIVE, Link
from drupelet.wire.profiles import PROFILE_COMPACT_1

AUTO = 2  # the mode of a link with a policy, beside BATCH and INTERACTIVE
MODES = {"interactive": INTERACTIVE, "batch": BATCH, "auto": AUTO}

# Counts are halved at this number, so that older events are forgotten.
EVENTS_MAX = 64
# With fewer events than this, a share is unknown.
EVENTS_MIN = 8
# Fewest epochs in a mode: one exchange takes three.
STAY_EPOCHS = 8
# Each change doubles that, up to this: modes of about the same cost do not alternate for ever.
STAY_EPOCHS_MAX = 256
# A line that loses more than three quarters of the frames is treated as if it lost three quarters:
# loss dominates the cost of either mode.
_PASS_MIN = 64
# Round trips are in 1/16 epoch.
_TRIP_SCALE = 16


def set_mode(link: Link, mode: int) -> None:
    """Set BATCH, INTERACTIVE or AUTO, from the next frame on; a stick stays in BATCH."""
    if mode != AUTO or link.visits:
        link.set_mode(mode)
        return
    id_size = ID_PREFIX_SIZE if link.profile == PROFILE_COMPACT_1 else ID_SIZE
    mode = INTERACTIVE if host_api.is_interactive(link) else BATCH
    host_api.set_policy(link, Policy(mode, id_size, 0))


class Policy:
    """The measurements of one link. Report every event, and call `begin_epoch` once per epoch."""

    def __init__(self, mode: int, id_size: int, epoch_price: int) -> None:
        """`mode`: the first one. `id_size`: bytes of one id in a record of the profile.
        `epoch_price`: bytes that it is worth to deliver a message one epoch earlier; 0: nothing.
        """
        assert mode in (BATCH, INTERACTIVE) and 0 < id_size <= 64 and 0 <= epoch_price <= 4096
        self.mode = mode
        self.changes = 0
        self.size = 0  # mean size of a message record; 0: unknown
        self.trip = 2 * _TRIP_SCALE  # mean time from a send to its answer, in 1/16 epoch
        self._id_size = id_size
        self._price = epoch_price
        self._sends = 0
        self._again = 0
        self._acks = 0
        self._requests = 0
        self._incoming = 0
        self._held = 0
        self._epochs = 0  # epochs in the present mode
        self._stay = STAY_EPOCHS  # epochs to stay in it at least
        self._last_send = -1  # 0 a first one, 1 a repetition, -1 a repetition to a silent peer

    # --- events ---

    def on_send(self, is_offer: bool, sends: int, is_heard: bool) -> None:
        """Report a send that begins; the size of a MESSAGE follows in `on_written`.

        `sends`: how often it or its offer had been sent before. `is_heard`: the peer was heard
        since the last of these.
        """
        self._last_send = (1 if is_heard else -1) if sends else 0
        if is_offer and self._last_send >= 0:
            self.on_offered(self._last_send > 0)

    def on_written(self, size: int) -> None:
        """Report the record of the MESSAGE that was sent last; `size`: its bytes."""
        if self._last_send >= 0:
            self.on_sent(size, self._last_send > 0)

    def on_sent(self, size: int, again: bool) -> None:
        """Report a MESSAGE that was sent; `size`: bytes of the whole record.

        `again`: it or its offer had been sent before, and the peer was heard since, so something
        was lost. Do not report a repetition to a silent peer: it says nothing about the line.
        """
        if not self.size:
            self.size = size
        elif size > self.size:  # mean of about the last eight, rounded towards the new one
            self.size += (size - self.size + 7) >> 3
        else:
            self.size -= (self.size - size + 7) >> 3
        self._count_send(again)

    def on_offered(self, again: bool) -> None:
        """Report an OFFER that was sent; `again` as in `on_sent`."""
        self._count_send(again)

    def on_acked(self, epochs: int) -> None:
        """Report the first ACK of a message that was offered or sent.

        `epochs`: since it was sent, if it was sent once; -1 otherwise.
        """
        self._acks += 1
        if epochs >= 0:
            if epochs > 64:
                epochs = 64
            self.trip += (epochs * _TRIP_SCALE - self.trip) >> 3
        if self._acks >= EVENTS_MAX:
            self._acks >>= 1
            self._requests >>= 1

    def on_requested(self) -> None:
        """Report that the peer requested a message that it was offered."""
        if self._requests < EVENTS_MAX:
            self._requests += 1

    def on_incoming(self, held: bool) -> None:
        """Report a received MESSAGE or OFFER; `held`: we had that message already."""
        self._incoming += 1
        self._held += held
        if self._incoming >= EVENTS_MAX:
            self._incoming >>= 1
            self._held >>= 1

    def _count_send(self, again: bool) -> None:
        self._sends += 1
        self._again += again
        if self._sends >= EVENTS_MAX:
            self._sends >>= 1
            self._again >>= 1

    # --- estimates ---

    def pass_share(self) -> int:
        """Return the share of frames that get through in one direction, in 1/256: 64 to 256.

        A send is repeated unless both it and its answer get through, so that is the square root.
        """
        if self._sends < EVENTS_MIN:
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
        """Return the share of our messages that the peer has already, in 1/256; -1: unknown.

        Interactive: those that it acknowledged without a request. A lost message is requested
        again, so requests are scaled by the share of frames that get through. Batch: no answer
        tells, but a peer that sends us messages that we have, has those that we would send. Copies
        that came because our ACK was lost are subtracted.
        """
        passes = self.pass_share()
        if self.mode == INTERACTIVE:
            if self._acks < EVENTS_MIN:
                return -1
            lacked = self._requests * passes // self._acks
            return 256 - lacked if lacked < 256 else 0
        if self._incoming < EVENTS_MIN:
            return -1
        held = self._held * 256 // self._incoming - (256 - passes)
        return held if held > 0 else 0

    def batch_cost(self, passes: int) -> int:
        """Return the expected bytes per message in batch mode: m / s^2 + i / s."""
        return _over(_over(self.size, passes), passes) + _over(self._id_size, passes)

    def interactive_cost(self, passes: int, held: int) -> int:
        """Return the expected bytes per message in interactive mode, with the price of its delay.

        Held by the peer:  offers i / s^2, ACKs i / s.
        Not held:          offers i / s^3, requests i / s^2, messages m / s, one ACK i; if that is
                           lost (1 - s), the same as for a held message.
        """
        one = _over(self._id_size, passes)
        two = _over(one, passes)
        known = two + one
        new = _over(two, passes) + two + _over(self.size, passes) + self._id_size
        new += (256 - passes) * known >> 8
        return (held * known + (256 - held) * new >> 8) + self._price * self.trip // _TRIP_SCALE

    def begin_epoch(self) -> int:
        """Return the mode of the epoch that begins: BATCH or INTERACTIVE."""
        if self._epochs < 0x7FFF:
            self._epochs += 1
        if self._epochs < self._stay or not self.size:
            return self.mode
        if self._epochs >= 4 * self._stay:
            self._stay = STAY_EPOCHS
        held = self.held_share()
        if held < 0 or self._sends < EVENTS_MIN:
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
        """Change the mode, stay in it longer than last time, and measure anew."""
        self.mode = mode
        self.changes += 1
        self._epochs = 0
        stay = self._stay * 2
        self._stay = stay if stay < STAY_EPOCHS_MAX else STAY_EPOCHS_MAX
        self._acks = self._requests = 0
        self._incoming = self._held = 0


def _over(size: int, passes: int) -> int:
    """Return `size` divided by a share in 1/256."""
    return (size << 8) // passes
