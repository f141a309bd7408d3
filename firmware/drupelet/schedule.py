"""Epochs, the payload train of one epoch, and when a message is sent again.

Time is `now_ms`, modulo 2^30 from any origin; `elapsed_ms` is the only way to compare two times.
An epoch is a slice of a link's time with room for one payload (MVDS: one payload per peer and
epoch). Back-off is counted in epochs and doubles with each send (BSP v1 section 4.3); it is back
at its base as soon as the peer has been heard after the last send.
"""

from drupelet._compat import const
from drupelet.limits import WAIT_MS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.link import Link

# More than this between two calls is a clock that went back, not one that went on.
_BACK_MS = const(1 << 29)

assert WAIT_MS_MAX < _BACK_MS


def elapsed_ms(now_ms: int, then_ms: int) -> int:
    """Milliseconds from `then_ms` to `now_ms`; both modulo 2^30, at most 2^28 apart."""
    return (now_ms - then_ms) & 0x3FFFFFFF


def later_ms(now_ms: int, wait_ms: int) -> int:
    """The time `wait_ms` after `now_ms`, modulo 2^30."""
    # The sum itself would leave the small ints of a 32-bit board where time wraps.
    return (now_ms - 0x3FFFFFFF - 1 + wait_ms) & 0x3FFFFFFF


def epochs_since(epoch: int, then: int) -> int:
    """Epochs from `then` to `epoch`, both modulo 2^16."""
    return (epoch - then) & 0xFFFF


class EpochClock:
    """Numbers the epochs (modulo 2^16) that the live links to one peer share."""

    # The links that count by this clock share one payload per epoch (MVDS "Flow").
    users = 1  # how many they are; of more than one:
    payload_epoch = 0  # when a payload went last, and over which of them
    payload_link: "Link | None" = None

    def __init__(self, epoch_ms: int, now_ms: int, phase_ms: int) -> None:
        assert 0 < epoch_ms <= WAIT_MS_MAX and 0 <= phase_ms < epoch_ms
        self.epoch_ms = epoch_ms
        self.epoch = 1
        self.start_ms = later_ms(now_ms, phase_ms - epoch_ms)

    def share(self, users: int) -> None:
        """So many links count by this clock from now on."""
        self.users = users
        self.payload_epoch = 0
        self.payload_link = None

    def advance(self, now_ms: int) -> None:
        """Move to the epoch that holds `now_ms`; a clock that went back is not followed."""
        passed_ms = elapsed_ms(now_ms, self.start_ms)
        if passed_ms < _BACK_MS:
            passed = passed_ms // self.epoch_ms
            self.epoch = (self.epoch + passed) & 0xFFFF
            self.start_ms = later_ms(self.start_ms, passed * self.epoch_ms)

    def half_ms(self, now_ms: int) -> int:
        """Milliseconds until half of the present epoch is over; 0: it is."""
        passed_ms = elapsed_ms(now_ms, self.start_ms)
        wait_ms = (self.epoch_ms >> 1) - passed_ms
        return wait_ms if passed_ms < _BACK_MS and wait_ms > 0 else 0

    def until_ms(self, now_ms: int, epochs: int) -> int:
        """Milliseconds from now to the start of the epoch `epochs` after the present one."""
        if epochs > WAIT_MS_MAX // self.epoch_ms:
            return WAIT_MS_MAX
        passed_ms = elapsed_ms(now_ms, self.start_ms)
        wait_ms = epochs * self.epoch_ms - (passed_ms if passed_ms < _BACK_MS else 0)
        return wait_ms if wait_ms > 0 else 0
