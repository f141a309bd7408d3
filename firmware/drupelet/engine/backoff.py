"""The back-off: epochs to wait before repeating a request, or probing a peer that is away.

Messages to a peer that is there are repeated as `Pace.row_wait` says. BSP v1 4.3: exponential,
capped. MVDS 0.5.1 "Retransmission": exponential up to a bound, and then back to a lower epoch.
Both return to the base as soon as the peer is heard.
"""

from drupelet.base.compat import const
from drupelet.base.limits import (
    BACKOFF_EPOCHS_MAX,
    BACKOFF_FALL_EPOCHS,
    SEND_COUNT_MAX,
)

# A peer answers in its next epoch at the latest, so the answer is here before our second one.
BASE_EPOCHS = const(2)
# Odd factors that mix the bits of an epoch number, so that regular epochs draw irregular values.
_MIX = const(13849)
_DRAW = const(10037)
# Doubling reaches the cap, 2^6 epochs, after so many sends.
_DOUBLINGS_MAX = const(6)
# MVDS falls back to 2^3 epochs, and reaches the cap again after so many sends.
_FALL_DOUBLINGS = const(3)
_CLIMB = const(4)

assert 1 << _DOUBLINGS_MAX == BACKOFF_EPOCHS_MAX
assert 1 << _FALL_DOUBLINGS == BACKOFF_FALL_EPOCHS
assert 0xFFFF * _MIX < 1 << 30
assert _CLIMB == _DOUBLINGS_MAX - _FALL_DOUBLINGS + 1


def interval_epochs(send_count: int, heard: bool, falls_back: bool) -> int:
    """Return the epochs to wait after the `send_count`-th send.

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
    """Return the send count after one more send; it fits one byte.

    At its bound it goes back by one climb, which changes no interval of either rule: if it stayed
    there, MVDS's interval would not fall back any more.
    """
    return send_count + 1 if send_count < SEND_COUNT_MAX else SEND_COUNT_MAX + 1 - _CLIMB


def drawn(epoch: int) -> int:
    """Return 0 or 1, pseudo-random, for an epoch (u16): with turns, links would fall into step."""
    mixed = (epoch ^ epoch >> 7) * _MIX & 0xFFFF
    return (mixed ^ mixed >> 8) * _DRAW >> 15 & 1
