"""Which port the modules beside this one stand in for, and what of a board outlives a reset."""

import os
import sys

import vfs

NAME = os.getenv("FAKE_PORT")
_SCRATCH = 0x4005800C
_BACKUP_SIZE = 4096
KEPT = {"cause": "PWRON_RESET", "registers": {}}
if NAME == "rp2":
    KEPT["registers"] = {_SCRATCH + 4 * row: 0 for row in range(8)} | {0x4005B000: 0}
if NAME == "stm32":  # those of stm.py
    KEPT["registers"] = dict.fromkeys((0x40023830, 0x40023840, 0x40007000, 0x40007004), 0)
FOLDER = "/board/log"


class Reset(BaseException):
    """RAM is lost: whoever catches it starts the board anew."""


def power_cut():
    """What needs power is as after a reset by switching on."""
    KEPT["cause"] = "PWRON_RESET"
    KEPT.pop("rtc", None)
    for address in KEPT["registers"]:
        KEPT["registers"][address] = 0


def prepare():
    """The board's drive, and what a module cannot stand in for."""
    if NAME == "rp2":
        import rp2

        import boards.rp2

        boards.rp2.CHIP = "Raspberry Pi Pico with RP2040"
        device = rp2.Flash(start=0, len=rp2.SIZE - 8192)
    else:
        from ram_disk import RamDisk

        device = RamDisk(4096, 64)
    if NAME == "stm32":
        backup = bytearray(_BACKUP_SIZE)

        class Uctypes:
            @staticmethod
            def bytearray_at(address, size):
                if address != 0x40024000 or size > _BACKUP_SIZE:
                    raise ValueError("no memory there")
                if not KEPT["registers"][0x40007004] & 1 << 9:
                    raise ValueError("the regulator is off: it would not outlive standby")
                return memoryview(backup)[:size]

        sys.modules["uctypes"] = Uctypes
    vfs.VfsLfs2.mkfs(device, progsize=256)
    vfs.mount(vfs.VfsLfs2(device, progsize=256), "/board")
