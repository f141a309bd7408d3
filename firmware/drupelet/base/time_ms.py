"""Time: `now_ms` is modulo 2^30 from any origin, and epochs are numbered modulo 2^16.

`elapsed_ms` is the only way to compare two times, `epochs_since` the only one for two epochs.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX

# A peer counts as silent after so many epochs: before its epoch number, modulo 2^16, looks new.
SILENT_EPOCHS = const(1 << 14)
# More than this between two calls is a clock that went back, not one that went on.
CLOCK_BACK_MS = const(1 << 29)

assert WAIT_MS_MAX < CLOCK_BACK_MS


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
