"""Runs on a board: calls the hot path under `heap_lock`, and counts what it allocates."""

import gc

import micropython


def locked(call, count):
    micropython.heap_lock()
    try:
        call(count)
    finally:
        micropython.heap_unlock()


def open_bytes(call, count):
    """Return what `call(count)` allocates without the lock, garbage included."""
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    call(count)
    used = gc.mem_alloc() - before
    gc.enable()
    return used


def sentinel(count):
    return [count] * 9


def run(name, call, count, warm_up, records):
    """Print `name calls records bytes`; any allocation under the lock ends the program.

    The warm-up round comes first: what is made once is made then. `records()` says how many
    records or frames there were so far.
    """
    call(warm_up)
    used = open_bytes(call, warm_up)
    before = records()
    locked(call, count)
    print(name, count, records() - before, used)


try:
    locked(sentinel, 1)
except MemoryError:
    pass
else:
    raise AssertionError("the lock must notice an allocation")
