"""Deep sleep on Linux: the process replaces itself, so RAM is lost; RTC memory is a file.

The file is valid only for a process whose last argument says that it woke: a process that was
killed and started again finds its RTC memory empty, as after a power cut.
"""

import os
import struct
import sys
import time

from drupelet.base.memory import get_u32

_WOKE = "woke="
_HEAD_SIZE = 4  # ms until the next reading, then the snapshot


class Rtc:
    """RTC memory of `size` bytes in a file; see `boards.ports.RtcPort`."""

    def __init__(self, path: str, size: int) -> None:
        self.size = size
        self.slept_ms = self.due_ms = 0
        self._path = path
        last = sys.argv[-1]
        self._woke = last.startswith(_WOKE)
        if self._woke:
            began_ms = int(last[len(_WOKE) :])
            self.slept_ms = time.ticks_diff(time.ticks_ms(), began_ms)

    def load_into(self, buf: bytearray) -> int:
        """Copy the snapshot of the last sleep to `buf`; its size, 0: none."""
        if not self._woke:
            return 0
        try:
            with open(self._path, "rb") as file:
                content = file.read(_HEAD_SIZE + self.size)
        except OSError:
            return 0
        if len(content) <= _HEAD_SIZE:
            return 0
        self.due_ms = get_u32(content, 0)
        buf[: len(content) - _HEAD_SIZE] = content[_HEAD_SIZE:]
        return len(content) - _HEAD_SIZE

    def forget(self) -> None:
        """Remove the file, so that a second boot does not use it again."""
        self._woke = False
        try:
            os.remove(self._path)
        except OSError:
            pass

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, sleep, and replace this process."""
        with open(self._path, "wb") as file:
            file.write(struct.pack(">I", due_ms))
            file.write(memoryview(buf)[:size])
        began_ms = time.ticks_ms()
        time.sleep_ms(wait_ms)
        _replace(began_ms)


def _replace(began_ms: int) -> None:
    """Run the same command again in this process; its last argument says when it fell asleep.

    The clock is the machine's, so the length of the sleep includes the start.
    """
    import ffi
    import uctypes

    with open("/proc/self/cmdline", "rb") as file:
        arguments = [word for word in file.read().split(b"\0") if word]
    if arguments[-1].startswith(_WOKE.encode()):
        arguments.pop()
    arguments.append(_WOKE.encode() + str(began_ms).encode())
    texts = [word + b"\0" for word in arguments]
    # execv takes an array of pointers that ends with NULL.
    pointers = struct.pack("%dP" % (len(texts) + 1), *[uctypes.addressof(t) for t in texts], 0)
    execv = ffi.open("libc.so.6").func("i", "execv", "pp")
    execv(texts[0], pointers)
    raise OSError("cannot start again after deep sleep")
