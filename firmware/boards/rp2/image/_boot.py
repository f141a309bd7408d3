"""Frozen into the image, run first at power-on: mounts the drive, prefers code in ROMFS.

The drive is formatted where there is none yet. One that was in use and cannot be read is left
alone, because its log may still be read by whoever knows how.
"""

import os
import sys

import rp2
import vfs

_PAGE_SIZE = 256
_BLOCK_SIZE = 4096
_SNAPSHOT_BLOCKS = 2  # behind the drive: what outlives a deep sleep (boards/rp2/rtc.py)
_ERASED = b"\xff"


def _was_used(flash: rp2.Flash) -> bool:
    """Whether there was a LittleFS with at least one file: a format that was cut has one page."""
    page = bytearray(_PAGE_SIZE)
    named = written = False
    for block in range(2):
        flash.readblocks(block, page, 0)
        named = named or page[8:16] == b"littlefs"
        flash.readblocks(block, page, _PAGE_SIZE)
        written = written or page != _ERASED * _PAGE_SIZE
    return named and written


def _mount() -> None:
    blocks = rp2.Flash().ioctl(4, 0) - _SNAPSHOT_BLOCKS
    flash = rp2.Flash(start=0, len=blocks * _BLOCK_SIZE)
    try:
        drive = vfs.VfsLfs2(flash, progsize=_PAGE_SIZE)
    except OSError:
        if _was_used(flash):
            sys.ps1 = (
                "drupelet: the drive cannot be read; this empties it:"
                " import rp2; rp2.Flash().ioctl(6, 0); rp2.Flash().ioctl(6, 1)\n>>> "
            )
            return
        vfs.VfsLfs2.mkfs(flash, progsize=_PAGE_SIZE)
        drive = vfs.VfsLfs2(flash, progsize=_PAGE_SIZE)
    vfs.mount(drive, "/")


_mount()
# A firmware set that was sent to the ROMFS partition is newer than the one in this image.
try:
    os.stat("/rom/boards/rp2")
    sys.path.insert(0, "/rom")
except OSError:
    pass
