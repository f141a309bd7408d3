"""How long to wait before a peer is asked again, or an absent one is probed, counted in epochs.

Messages to a peer that is there go again as `Pace.row_wait` says. The back-off of both families:
BSP v1 section 4.3: exponential, capped. MVDS 0.5.1 "Retransmission": exponential up to a bound,
from where it goes back to a lower epoch. Both are back at the base as soon as the peer was heard.
"""

from drupelet.base.compat import const
from drupelet.base.limits import (
    BACKOFF_EPOCHS_MAX,
    BACKOFF_FALL_EPOCHS,
    SEND_COUNT_MAX,
)

# An answer leaves in the peer's next epoch at the latest, so it is here before the second one.
BASE_EPOCHS = const(2)
# Odd factors that mix the bits of an epoch, so that epochs at equal distances draw all patterns.
_MIX = const(13849)
_DRAW = const(10037)
# Where doubling reaches the cap: 2^6 epochs.
_DOUBLINGS_MAX = const(6)
# Where falling back begins again: 2^3 epochs, and how many sends one climb from there takes.
_FALL_DOUBLINGS = const(3)
_CLIMB = const(4)

assert 1 << _DOUBLINGS_MAX == BACKOFF_EPOCHS_MAX
assert 1 << _FALL_DOUBLINGS == BACKOFF_FALL_EPOCHS
assert 0xFFFF * _MIX < 1 << 30
assert _CLIMB == _DOUBLINGS_MAX - _FALL_DOUBLINGS + 1


def interval_epochs(send_count: int, heard: bool, falls_back: bool) -> int:
    """Epochs to wait after the `send_count`-th send.

    `heard`: the peer was heard since then. `falls_back`: MVDS's rule, 2 4 8 16 32 64 8 16 32 64 8
    and so on; else BSP's, 2 4 8 16 32 64 64.
    """
    if heard or send_count <= 1:
        return BASE_EPOCHS
    if send_count <= _DOUBLINGS_MAX:
        return 1 << send_count
    if falls_back:
        return 1 << _FALL_DOUBLINGS + (send_count - _DOUBLINGS_MAX - 1) % _CLIMB
    return BACKOFF_EPOCHS_MAX


def counted(send_count: int) -> int:
    """The send count after one more send, in one byte.

    It does not stay at its bound: a back-off that falls back would stand still there. It goes
    back by one climb, which changes no interval of either rule.
    """
    return send_count + 1 if send_count < SEND_COUNT_MAX else SEND_COUNT_MAX + 1 - _CLIMB


def drawn(epoch: int) -> int:
    """0 or 1, as if drawn, for an epoch (u16): turns that were taken by a rule fall into step."""
    mixed = (epoch ^ epoch >> 7) * _MIX & 0xFFFF
    return (mixed ^ mixed >> 8) * _DRAW >> 15 & 1
