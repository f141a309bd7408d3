"""Stands in for micropython-lib's `sdcard`: a card of 128 KB that can be pulled."""

import machine
import vfs
from ram_disk import RamDisk

socket = {"card": None}


def new_card():
    """A card with an empty FAT file system."""
    disk = RamDisk(512, 256)
    vfs.VfsFat.mkfs(disk)
    return disk


class SDCard:
    def __init__(self, spi, cs, baudrate=1320000):
        assert isinstance(spi, machine.SPI) and isinstance(cs, machine.Pin)
        self._disk = socket["card"]
        if self._disk is None:
            raise OSError("no SD card")

    def _check(self):
        if socket["card"] is not self._disk:
            raise OSError(5)

    def readblocks(self, block, buf):
        self._check()
        self._disk.readblocks(block, buf)

    def writeblocks(self, block, buf):
        self._check()
        self._disk.writeblocks(block, buf)

    def ioctl(self, request, argument):
        return self._disk.ioctl(request, argument) if request in (4, 5) else 0
