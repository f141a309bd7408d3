"""The clocks: for each peer, its live links count epochs by one clock.

An epoch has room for one payload (MVDS: one payload per peer and epoch). All waits are in epochs.
"""

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import ArbiterPort


class Clocks:
    """The epoch numbers, modulo 2^16, of each peer's live links."""

    # Made with the first peer that has more than one live link.
    arbiter: "ArbiterPort | None" = None

    def __init__(self, peers_max: int) -> None:
        # While a generation lasts, a link number means one message (wire/compact/numbering.py).
        self.generation = 0
        # By peer: the epoch; after these, each epoch's length in ms (0: no live link); its start.
        self.epochs = [1] * peers_max + [0] * (2 * peers_max)

    def epoch_ms(self, peer: int) -> int:
        """Return the length of a peer's (row) epochs; 0: it has no live link."""
        return self.epochs[len(self.epochs) // 3 + peer]

    def start_ms(self, peer: int) -> int:
        """Return when the present epoch of a peer (row) began."""
        return self.epochs[len(self.epochs) // 3 * 2 + peer]

    def set_start(self, peer: int, start_ms: int) -> None:
        """Set when the present epoch of a peer (row) began."""
        self.epochs[len(self.epochs) // 3 * 2 + peer] = start_ms

    def begin(self, peer: int, epoch_ms: int, now_ms: int, phase_ms: int) -> None:
        """Restart a peer's (row) epochs at 1; the first one ends after `phase_ms`."""
        assert 0 < epoch_ms <= WAIT_MS_MAX and 0 <= phase_ms < epoch_ms
        self.epochs[peer] = 1
        self.epochs[len(self.epochs) // 3 + peer] = epoch_ms
        self.set_start(peer, later_ms(now_ms, phase_ms - epoch_ms))
        if self.arbiter is not None:
            self.arbiter.end(peer)

    def advance(self, peer: int, now_ms: int) -> int:
        """Advance to the epoch that contains `now_ms` and return it; ignore a step back."""
        passed_ms = elapsed_ms(now_ms, self.start_ms(peer))
        if passed_ms < CLOCK_BACK_MS:
            epoch_ms = self.epoch_ms(peer)
            self.epochs[peer] = (self.epochs[peer] + passed_ms // epoch_ms) & 0xFFFF
            self.set_start(peer, elapsed_ms(now_ms, passed_ms % epoch_ms))
        return self.epochs[peer]

    def until_ms(self, peer: int, now_ms: int, epochs: int) -> int:
        """Return the ms from now to the start of the epoch `epochs` after the present one."""
        epoch_ms = self.epoch_ms(peer)
        if epochs > WAIT_MS_MAX // epoch_ms:
            return WAIT_MS_MAX
        passed_ms = elapsed_ms(now_ms, self.start_ms(peer))
        wait_ms = epochs * epoch_ms - (passed_ms if passed_ms < CLOCK_BACK_MS else 0)
        return wait_ms if wait_ms > 0 else 0
