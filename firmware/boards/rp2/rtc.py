"""Deep sleep of an RP2040: the snapshot in flash, and whether it counts in the watchdog's scratch.

Nothing but eight registers outlives the reset that ends its deep sleep. So the snapshot has the
two blocks behind the file system (boards/ports.py), where one follows the other: a wake costs one
program, and an erase whenever a block is full. The registers say which one counts, so using it up
costs none; they are zero after a power cut, and a snapshot then is none.

    scratch 0   u16 magic, u16 its first page
    scratch 1   its size in bytes, 0 for a sleep without one
    scratch 2   ms that the board slept
    scratch 3   ms from falling asleep to the next reading

Scratch 4 to 6 are the boot ROM's; 7 counts failed starts (boards/rp2/image/main.py), and a sleep
clears it.
"""

import os
import time

import machine
import rp2

from boards.rp2 import MAGIC, SCRATCH, has_woken, is_known, stop_watchdog
from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_FAILED_STARTS = const(0x40058028)
_BLOCK_SIZE = const(4096)
_BLOCKS = const(2)
_PAGE_SIZE = const(256)
_PAGES = const(32)  # of both blocks
_BLOCK_PAGES = const(16)
# Five pages: the longest snapshot has 492 bytes, and a black box's block with its counters 700.
_SIZE = const(1280)
_COUNT = const(4)  # ioctl: number of blocks
_ERASE = const(6)  # ioctl: erase one block
# The timer that ends light sleep counts microseconds in 32 bits: 71 minutes at most.
_PIECE_MS_MAX = const(4000000)


class Rtc:
    """See `boards.ports.RtcPort`. Only a sleeping board has one; flash is written by no other."""

    def __init__(self, folder: str) -> None:
        """folder: any one on the file system that ends before the snapshot's blocks."""
        if not is_known():
            raise DrupeletError("sleep: only an RP2040's registers are known: leave it out")
        blocks = rp2.Flash().ioctl(_COUNT, 0)
        if os.statvfs(folder)[2] > blocks - _BLOCKS:
            raise DrupeletError(
                "sleep: the file system leaves no flash for it: flash Drupelet's own image"
            )
        self._flash = rp2.Flash(start=(blocks - _BLOCKS) * _BLOCK_SIZE, len=_BLOCKS * _BLOCK_SIZE)
        self.size = _SIZE
        self.slept_ms = self.due_ms = 0
        self._kept = 0
        self._page = _PAGES  # where the next one begins: nowhere, so in an erased block
        if has_woken():
            self._first = machine.mem32[SCRATCH] & 0xFFFF
            self._kept = machine.mem32[SCRATCH + 4]
            # Ticks begin with the reset: what the start took until here belongs to the sleep.
            self.slept_ms = machine.mem32[SCRATCH + 8] + time.ticks_ms()
            self.due_ms = machine.mem32[SCRATCH + 12]
            self._page = self._first + _pages(self._kept)

    def load_into(self, buf: bytearray) -> int:
        """Copy what the last sleep left to `buf`; its size, 0 when the power was off since."""
        size = self._kept
        if size:
            view = memoryview(buf)[:size]
            self._flash.readblocks(
                self._first // _BLOCK_PAGES, view, self._first % _BLOCK_PAGES * _PAGE_SIZE
            )
        return size

    def forget(self) -> None:
        """What it left is used: a second boot must not find it."""
        self._kept = 0
        machine.mem32[SCRATCH] = 0

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> "NoReturn":
        """Keep `buf[:size]` and `due_ms`, sleep, and boot again."""
        first = self._page
        count = _pages(size)
        if first >= _PAGES or first % _BLOCK_PAGES + count > _BLOCK_PAGES:
            first = (first // _BLOCK_PAGES + 1) % _BLOCKS * _BLOCK_PAGES
        if size:
            if first % _BLOCK_PAGES == 0:
                self._flash.ioctl(_ERASE, first // _BLOCK_PAGES)
            view = memoryview(buf)[: count * _PAGE_SIZE]
            self._flash.writeblocks(first // _BLOCK_PAGES, view, first % _BLOCK_PAGES * _PAGE_SIZE)
        stop_watchdog()  # else it would end the sleep
        machine.mem32[_FAILED_STARTS] = 0
        machine.mem32[SCRATCH + 4] = size
        machine.mem32[SCRATCH + 8] = wait_ms
        machine.mem32[SCRATCH + 12] = due_ms
        machine.mem32[SCRATCH] = MAGIC << 16 | first
        # Any interrupt ends light sleep, a USB host's as well: until the time is over.
        began_ms = time.ticks_ms()
        while wait_ms > 0:
            machine.lightsleep(min(wait_ms, _PIECE_MS_MAX))
            now_ms = time.ticks_ms()
            wait_ms -= time.ticks_diff(now_ms, began_ms)
            began_ms = now_ms
        machine.reset()


def _pages(size: int) -> int:
    return (size + _PAGE_SIZE - 1) // _PAGE_SIZE
