# mypy: ignore-errors
"""How long a call takes, on MicroPython and on CPython."""

import gc
import time

import meter

TRIES = 3


def now_us() -> int:
    """A clock; its origin is any."""
    if meter.MICROPYTHON:
        return time.ticks_us()
    return time.perf_counter_ns() // 1000


def passed_us(since: int) -> int:
    """Microseconds since then."""
    if meter.MICROPYTHON:
        return time.ticks_diff(time.ticks_us(), since)
    return now_us() - since


def best_us(call: "object", min_us: int) -> float:
    """Microseconds of one call, of so many as take `min_us`; the best of some tries, for the
    machine does other things meanwhile."""
    call(1)
    count = 1
    best = 0.0
    tries = 0
    while tries < TRIES:
        gc.collect()
        since = now_us()
        call(count)
        taken = passed_us(since)
        if taken < min_us:
            count *= 2
            continue
        tries += 1
        if not best or taken / count < best:
            best = taken / count
    return best
