"""Time: `now_ms` is modulo 2^30 from any origin, and epochs are numbered modulo 2^16.

Compare two times with `elapsed_ms` only, and two epochs with `epochs_since` only.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX

# A peer counts as silent after this many epochs: later, epoch numbers, modulo 2^16, look new.
SILENT_EPOCHS = const(1 << 14)
# A longer time between two calls means that the clock was set back.
CLOCK_BACK_MS = const(1 << 29)

assert WAIT_MS_MAX < CLOCK_BACK_MS


def elapsed_ms(now_ms: int, then_ms: int) -> int:
    """Return the ms from `then_ms` to `now_ms`; both modulo 2^30, at most 2^28 apart."""
    return (now_ms - then_ms) & 0x3FFFFFFF


def later_ms(now_ms: int, wait_ms: int) -> int:
    """Return the time `wait_ms` after `now_ms`, modulo 2^30."""
    # The plain sum would not be a small int of a 32-bit board when it wraps.
    return (now_ms - 0x3FFFFFFF - 1 + wait_ms) & 0x3FFFFFFF


def epochs_since(epoch: int, then: int) -> int:
    """Return the epochs from `then` to `epoch`, both modulo 2^16."""
    return (epoch - then) & 0xFFFF
