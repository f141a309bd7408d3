"""Memory that was freed, handed back to the system, and what the garbage collector looks at.

The allocator of glibc keeps tens of megabytes of freed arrays for the next ones, more the longer
a process runs. A worker that is used for group after group, and a driver that waits for them,
would seem to grow with the events.
"""

from __future__ import annotations

import ctypes
import gc
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """Hand back what is free; a few ms. Where the C library has no such call, Arrow's only."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def freeze_loaded() -> None:
    """Keep the garbage collector from what this process has loaded by now; once per process.

    Spark's Python workers collect after each task (pyspark/daemon.py). With the modules of an
    ingest loaded, that takes a sixth of the time of a task.
    """
    gc.collect()
    gc.freeze()
