"""Epochs, the payload train of one epoch, and when a message is sent again.

Time is `now_ms`, modulo 2^30 from any origin; `elapsed_ms` is the only way to compare two times.
An epoch is a slice of a link's time with room for one payload (MVDS: one payload per peer and
epoch). Back-off is counted in epochs and doubles with each send (BSP v1 section 4.3); it is back
at its base as soon as the peer has been heard after the last send.
"""

from drupelet.limits import BACKOFF_EPOCHS_MAX, WAIT_MS_MAX

# An answer leaves in the peer's next epoch at the latest, so it is here before the second one.
_BASE_EPOCHS = 2
# Where doubling reaches the cap: 2^6 epochs.
_DOUBLINGS_MAX = 6

assert 1 << _DOUBLINGS_MAX == BACKOFF_EPOCHS_MAX


def elapsed_ms(now_ms: int, then_ms: int) -> int:
    """Milliseconds from `then_ms` to `now_ms`; both modulo 2^30, at most 2^28 apart."""
    return (now_ms - then_ms) & 0x3FFFFFFF


def later_ms(now_ms: int, wait_ms: int) -> int:
    """The time `wait_ms` after `now_ms`, modulo 2^30."""
    return (now_ms + wait_ms) & 0x3FFFFFFF


def epochs_since(epoch: int, then: int) -> int:
    """Epochs from `then` to `epoch`, both modulo 2^16."""
    return (epoch - then) & 0xFFFF


def interval_epochs(send_count: int, heard: bool) -> int:
    """Epochs to wait after the `send_count`-th send; `heard`: the peer was heard since then."""
    if heard or send_count <= 1:
        return _BASE_EPOCHS
    if send_count >= _DOUBLINGS_MAX:
        return BACKOFF_EPOCHS_MAX
    return 1 << send_count


class EpochClock:
    """Numbers a link's epochs (modulo 2^16) as time passes."""

    def __init__(self, epoch_ms: int, now_ms: int, phase_ms: int) -> None:
        assert 0 < epoch_ms <= WAIT_MS_MAX and 0 <= phase_ms < epoch_ms
        self.epoch_ms = epoch_ms
        self.epoch = 1
        self.start_ms = later_ms(now_ms, phase_ms - epoch_ms)

    def advance(self, now_ms: int) -> bool:
        """Move to the epoch that holds `now_ms`; True when it is a new one."""
        passed = elapsed_ms(now_ms, self.start_ms) // self.epoch_ms
        if passed == 0:
            return False
        self.epoch = (self.epoch + passed) & 0xFFFF
        self.start_ms = later_ms(self.start_ms, passed * self.epoch_ms)
        return True

    def until_ms(self, now_ms: int, epochs: int) -> int:
        """Milliseconds from now to the start of the epoch `epochs` after the present one."""
        if epochs > WAIT_MS_MAX // self.epoch_ms:
            return WAIT_MS_MAX
        wait_ms = epochs * self.epoch_ms - elapsed_ms(now_ms, self.start_ms)
        return wait_ms if wait_ms > 0 else 0
