"""The clock of each peer's live links: it numbers epochs, each with room for one payload.

MVDS: one payload per peer and epoch. All waiting is counted in epochs.
"""

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import ArbiterPort


class Clocks:
    """Numbers the epochs (modulo 2^16) of each peer's live links, which share one clock."""

    shared: "ArbiterPort | None" = (
        None  # made with the first peer that has more live links than one
    )

    def __init__(self, peers_max: int) -> None:
        # The newest one, within which a link number means one message (wire/compact/numbering.py).
        self.generation = 0
        # By peer; behind them how long each takes, 0: there is no live link; then when it began.
        self.epochs = [1] * peers_max + [0] * (2 * peers_max)

    def epoch_ms(self, peer: int) -> int:
        """How long an epoch of a peer (row) takes; 0: there is no live link."""
        return self.epochs[len(self.epochs) // 3 + peer]

    def start_ms(self, peer: int) -> int:
        """When the present epoch of a peer (row) began."""
        return self.epochs[len(self.epochs) // 3 * 2 + peer]

    def set_start(self, peer: int, start_ms: int) -> None:
        """Have the present epoch of a peer (row) begin then."""
        self.epochs[len(self.epochs) // 3 * 2 + peer] = start_ms

    def begin(self, peer: int, epoch_ms: int, now_ms: int, phase_ms: int) -> None:
        """Count the epochs of a peer (row) anew: the first one begins after `phase_ms`."""
        assert 0 < epoch_ms <= WAIT_MS_MAX and 0 <= phase_ms < epoch_ms
        self.epochs[peer] = 1
        self.epochs[len(self.epochs) // 3 + peer] = epoch_ms
        self.set_start(peer, later_ms(now_ms, phase_ms - epoch_ms))
        if self.shared is not None:
            self.shared.end(peer)

    def advance(self, peer: int, now_ms: int) -> int:
        """Move to the epoch that holds `now_ms`; a clock that went back is not followed."""
        passed_ms = elapsed_ms(now_ms, self.start_ms(peer))
        if passed_ms < CLOCK_BACK_MS:
            epoch_ms = self.epoch_ms(peer)
            self.epochs[peer] = (self.epochs[peer] + passed_ms // epoch_ms) & 0xFFFF
            self.set_start(peer, elapsed_ms(now_ms, passed_ms % epoch_ms))
        return self.epochs[peer]

    def until_ms(self, peer: int, now_ms: int, epochs: int) -> int:
        """Milliseconds from now to the start of the epoch `epochs` after the present one."""
        epoch_ms = self.epoch_ms(peer)
        if epochs > WAIT_MS_MAX // epoch_ms:
            return WAIT_MS_MAX
        passed_ms = elapsed_ms(now_ms, self.start_ms(peer))
        wait_ms = epochs * epoch_ms - (passed_ms if passed_ms < CLOCK_BACK_MS else 0)
        return wait_ms if wait_ms > 0 else 0
