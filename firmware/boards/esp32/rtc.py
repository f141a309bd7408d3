"""Deep sleep of an ESP32: the snapshot is in the memory of its real-time clock.

    ms to the next reading u32, ms of sleep u32, the snapshot

That memory survives resets of any kind, so it is valid only at the end of a deep sleep.
"""

import time

import machine

from drupelet.base.compat import const
from drupelet.base.memory import get_u32, put_u32

_SIZE_MAX = const(2048)  # of `RTC.memory`
_HEAD_SIZE = const(8)


class Rtc:
    """See `boards.ports.RtcPort`."""

    def __init__(self) -> None:
        self.size = _SIZE_MAX - _HEAD_SIZE
        self.slept_ms = self.due_ms = 0
        self._kept = b""
        if machine.reset_cause() == machine.DEEPSLEEP_RESET:
            kept = machine.RTC().memory()
            if len(kept) >= _HEAD_SIZE:
                self._kept = kept
                self.due_ms = get_u32(kept, 0)
                # Ticks begin at the wake: count the start so far as sleep.
                self.slept_ms = get_u32(kept, 4) + time.ticks_ms()

    def load_into(self, buf: bytearray) -> int:
        """Copy the snapshot of the last sleep to `buf`; its size, 0: none, or power was lost."""
        size = max(len(self._kept) - _HEAD_SIZE, 0)
        buf[:size] = self._kept[_HEAD_SIZE:]
        return size

    def forget(self) -> None:
        """Erase the snapshot, so that a second boot does not use it again."""
        self._kept = b""
        machine.RTC().memory(b"")

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, sleep, and boot again."""
        kept = bytearray(_HEAD_SIZE + size)
        put_u32(kept, 0, due_ms)
        put_u32(kept, 4, wait_ms)
        kept[_HEAD_SIZE:] = memoryview(buf)[:size]
        machine.RTC().memory(kept)
        machine.deepsleep(wait_ms)
