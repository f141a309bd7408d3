"""Stands in for `pyb`: the Pyboard's own slot for a card."""

import sdcard


class SDCard:
    def present(self):
        return sdcard.socket["card"] is not None

    def readblocks(self, block, buf):
        sdcard.socket["card"].readblocks(block, buf)

    def writeblocks(self, block, buf):
        sdcard.socket["card"].writeblocks(block, buf)

    def ioctl(self, request, argument):
        return sdcard.socket["card"].ioctl(request, argument) if request in (4, 5) else 0
