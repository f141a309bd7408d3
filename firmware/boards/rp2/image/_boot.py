"""The image's boot stub, run first at power-on: mounts the drive, and prefers code in ROMFS.

It formats the drive if there is none yet. A drive that was in use and cannot be read is left
alone, because its log may be recoverable.
"""

import micropython

# Without the drive there would be no node: a byte 03 of a frame must not interrupt this.
micropython.kbd_intr(-1)

import os
import sys

import rp2
import vfs

_PAGE_SIZE = 256
_BLOCK_SIZE = 4096
_SNAPSHOT_BLOCKS = 2  # after the drive: the snapshots of deep sleep (boards/rp2/rtc.py)
_ERASED = b"\xff"


def _was_used(flash: rp2.Flash) -> bool:
    """Whether there was a LittleFS with a file; an interrupted format has one page only."""
    page = bytearray(_PAGE_SIZE)
    has_magic = has_second_page = False
    for block in range(2):
        flash.readblocks(block, page, 0)
        has_magic = has_magic or page[8:16] == b"littlefs"
        flash.readblocks(block, page, _PAGE_SIZE)
        has_second_page = has_second_page or page != _ERASED * _PAGE_SIZE
    return has_magic and has_second_page


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
# A firmware set in the ROMFS partition is newer than the one in this image.
try:
    os.stat("/rom/boards/rp2")
    sys.path.insert(0, "/rom")
except OSError:
    pass
