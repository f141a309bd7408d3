"""Deep sleep of an RP2040: the snapshot is in flash, its address in the watchdog's scratch.

Only the eight scratch registers survive the reset that ends deep sleep. So snapshots are written
one after the other to the two blocks after the file system (boards/ports.py): each sleep costs one
flash program, and an erase when a block is full. The registers say which snapshot is valid, so
marking it as used writes no flash. They are zero after a power cut: then there is no snapshot.

    scratch 0   u16 magic, u16 first page of the snapshot
    scratch 1   its size in bytes, 0 for a sleep without a snapshot
    scratch 2   ms of sleep
    scratch 3   ms from falling asleep to the next reading

Scratch 4 to 6 belong to the boot ROM; 7 counts failed starts (boards/rp2/image/main.py), and deep
sleep clears it.
"""

import os
import time

import machine
import rp2

from boards.rp2 import MAGIC, SCRATCH, has_woken, is_known, stop_watchdog
from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError

_FAILED_STARTS = const(0x40058028)
_BLOCK_SIZE = const(4096)
_BLOCKS = const(2)
_PAGE_SIZE = const(256)
_BLOCK_PAGES = const(16)
# Five pages: the longest snapshot has 492 bytes, the state of a black box 700.
_SIZE = const(1280)
_COUNT = const(4)  # ioctl: number of blocks
_ERASE = const(6)  # ioctl: erase one block
# The timer of light sleep counts microseconds in 32 bits: 71 minutes at most.
_PIECE_MS_MAX = const(4000000)


class Rtc:
    """See `boards.ports.RtcPort`. Only boards that sleep deeply use it and write these blocks."""

    def __init__(self, folder: str) -> None:
        """folder: any folder of the file system, to check that it leaves the blocks free."""
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
        self._page = 0  # first page of the next snapshot; the first one of a block erases it
        if has_woken():
            self._first = machine.mem32[SCRATCH] & 0xFFFF
            self._kept = machine.mem32[SCRATCH + 4]
            # Ticks begin at the reset: count the start so far as sleep.
            self.slept_ms = machine.mem32[SCRATCH + 8] + time.ticks_ms()
            self.due_ms = machine.mem32[SCRATCH + 12]
            self._page = self._first + _pages(self._kept)

    def load_into(self, buf: bytearray) -> int:
        """Copy the snapshot of the last sleep to `buf`; its size, 0: none, or power was lost."""
        size = self._kept
        if size:
            block, page = divmod(self._first, _BLOCK_PAGES)
            self._flash.readblocks(block, memoryview(buf)[:size], page * _PAGE_SIZE)
        return size

    def forget(self) -> None:
        """Mark the snapshot as used, so that a second boot does not use it again."""
        self._kept = 0
        machine.mem32[SCRATCH] = 0

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, sleep, and boot again."""
        block, page = divmod(self._page, _BLOCK_PAGES)
        page_count = _pages(size)
        if page + page_count > _BLOCK_PAGES:
            block += 1
            page = 0
        block %= _BLOCKS
        if size:
            if page == 0:
                self._flash.ioctl(_ERASE, block)
            view = memoryview(buf)[: page_count * _PAGE_SIZE]
            self._flash.writeblocks(block, view, page * _PAGE_SIZE)
        stop_watchdog()  # it would end the sleep
        machine.mem32[_FAILED_STARTS] = 0
        machine.mem32[SCRATCH + 4] = size
        machine.mem32[SCRATCH + 8] = wait_ms
        machine.mem32[SCRATCH + 12] = due_ms
        machine.mem32[SCRATCH] = MAGIC << 16 | block * _BLOCK_PAGES + page
        # Any interrupt, such as USB, ends light sleep: repeat it until the time is over.
        began_ms = time.ticks_ms()
        while wait_ms > 0:
            machine.lightsleep(min(wait_ms, _PIECE_MS_MAX))
            now_ms = time.ticks_ms()
            wait_ms -= time.ticks_diff(now_ms, began_ms)
            began_ms = now_ms
        machine.reset()


def _pages(size: int) -> int:
    return (size + _PAGE_SIZE - 1) // _PAGE_SIZE
