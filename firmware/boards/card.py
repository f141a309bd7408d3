"""An SD card as the stick: mounted when it is inserted, unmounted when it was removed.

    "sd": {"spi": 0, "sck": 18, "mosi": 19, "miso": 16, "cs": 17, "detect": 22}

`detect` is the pin of the socket's switch, which connects it to ground while a card is in; without
it the driver probes for a card. The driver is micropython-lib's `sdcard`.
"""

import os
import time

import machine
import sdcard

from drupelet.base.compat import const
from drupelet.base.time_ms import elapsed_ms
from drupelet_transports.stick.stick import Stick

# How often a socket without a switch is probed: each probe waits for the card's timeout.
_ASK_MS = const(5000)
# A clock that all cards support; the driver initializes them at 100 kHz.
_BAUD = const(1320000)
_SECTOR_SIZE = const(512)


class Card(Stick):
    """The stick on an SD card that is mounted at `path`."""

    def __init__(self, path: str, own_id: "bytes | bytearray", settings: dict) -> None:
        Stick.__init__(self, path, own_id)
        self._spi = machine.SPI(
            settings["spi"], sck=machine.Pin(settings["sck"]), mosi=machine.Pin(settings["mosi"]),
            miso=machine.Pin(settings["miso"]),
        )  # fmt: skip
        self._cs = machine.Pin(settings["cs"], machine.Pin.OUT, value=1)
        self._switch = None
        if "detect" in settings:
            self._switch = machine.Pin(settings["detect"], machine.Pin.IN, machine.Pin.PULL_UP)
        self._card = None
        self._sector = bytearray(_SECTOR_SIZE)
        self._asked_ms = -1

    def present(self) -> bool:
        """Whether there is a card whose files can be read."""
        if self._switch is not None and self._switch.value():
            self._let_go()
            return False
        if self._card is not None:
            try:
                # Read a sector: the mounted card may have been removed.
                self._card.readblocks(0, self._sector)
            except OSError:
                self._let_go()
                return False
        elif not self._take():
            return False
        return Stick.present(self)

    def _take(self) -> bool:
        now_ms = time.ticks_ms() & 0x3FFFFFFF
        if self._asked_ms >= 0 and elapsed_ms(now_ms, self._asked_ms) < _ASK_MS:
            return False
        try:
            card = sdcard.SDCard(self._spi, self._cs, _BAUD)
            os.mount(card, self._root)
        except OSError:
            self._asked_ms = now_ms
            return False
        self._card = card
        self._asked_ms = -1
        return True

    def _let_go(self) -> None:
        if self._card is not None:
            self._card = None
            try:
                os.umount(self._root)
            except OSError:
                pass  # the card is gone, and so is what was not yet written to it
