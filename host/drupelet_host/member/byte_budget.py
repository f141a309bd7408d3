"""What a link may send per epoch, in bytes; a setting of a peer (docs/SPEC.md 10.1).

A payload is a train of frames inside the budget. What an epoch leaves over is lost.
"""

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms

# A longer time between two calls means that the clock was set back.
_BACK_MS = 1 << 29


class ByteBudget:
    """The bytes of one epoch. It counts epochs of its own, from the first call on."""

    def __init__(self, epoch_ms: int, bytes_max: int, overhead: int) -> None:
        """`overhead`: bytes that the carrier adds to each frame."""
        assert 0 < epoch_ms <= WAIT_MS_MAX and 0 <= overhead < bytes_max
        self._epoch_ms = epoch_ms
        self._bytes_max = bytes_max
        self._overhead = overhead
        self._left = bytes_max
        self._began_ms = -1  # before the first call

    def room(self, now_ms: int, size_max: int) -> int:
        """Return the longest frame, up to `size_max`, that may leave now; 0: none.

        So the last frame of a train uses up what is left.
        """
        self._refill(now_ms)
        return max(min(size_max, self._left - self._overhead), 0)

    def spend(self, size: int) -> None:
        """Take a frame of `size` bytes, for which `room` has been found, from the budget."""
        self._left -= size + self._overhead
        assert self._left >= 0

    def wait_ms(self, now_ms: int, size: int) -> int:
        """Return the ms until a frame of `size` bytes may leave; 0: at once."""
        if self.room(now_ms, size) == size:
            return 0
        return self._epoch_ms - elapsed_ms(now_ms, self._began_ms)

    def _refill(self, now_ms: int) -> None:
        """Begin another epoch if the last one is over."""
        passed_ms = elapsed_ms(now_ms, self._began_ms) if self._began_ms >= 0 else self._epoch_ms
        if passed_ms >= _BACK_MS:
            self._began_ms = now_ms  # setting a clock back refills nothing
        elif passed_ms >= self._epoch_ms:
            self._began_ms = now_ms
            self._left = self._bytes_max
