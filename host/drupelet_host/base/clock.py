"""The host's clocks: the node's modulo-2^30 milliseconds and wall time in message form."""

import time

from drupelet.base.limits import NOW_MODULUS_MS, TIMESTAMP_SIZE

_MODULUS_MASK = NOW_MODULUS_MS - 1
# The first day of 2024: a clock that says less was not set.
SET_MS = 1_704_067_200_000


def now_ms() -> int:
    """Monotonic milliseconds modulo 2^30, as the core takes them."""
    return time.monotonic_ns() // 1_000_000 & _MODULUS_MASK


def wall_ms() -> int:
    """Milliseconds since the Unix epoch; 0 for a clock that stands before it, which was never set.

    A message's timestamp is not negative (BSP v1 section 2.3).
    """
    return max(0, time.time_ns() // 1_000_000)


def timestamp8(ms: int) -> bytes:
    """8 bytes, big-endian: the form a message carries (BSP v1 section 2.3)."""
    return ms.to_bytes(TIMESTAMP_SIZE)


def timestamp_text(timestamp: bytes) -> str:
    """A message timestamp as UTC to the millisecond, or the raw number when it is no date."""
    ms = int.from_bytes(timestamp)
    seconds, rest_ms = divmod(ms, 1000)
    try:
        moment = time.gmtime(seconds)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{rest_ms:03d}Z"


def age_text(since_ms: int) -> str:
    """How long ago a time of the wall clock was, for a person; 0 is never."""
    if not since_ms:
        return "never"
    seconds = max(0, (wall_ms() - since_ms) // 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
