"""The SD card in a Pyboard's own slot as the stick."""

import os

import pyb

from drupelet_transports.stick.stick import Stick


class Slot(Stick):
    """The stick on the card that is mounted at `path`; the slot has a switch."""

    def __init__(self, path: str, own_id: "bytes | bytearray") -> None:
        Stick.__init__(self, path, own_id)
        self._card = pyb.SDCard()
        self._mounted = False

    def present(self) -> bool:
        """Whether there is a card whose files can be read."""
        is_inserted = self._card.present()
        if is_inserted != self._mounted:
            self._mounted = False
            try:
                # When a card is inserted, the boot may have mounted one, perhaps another one.
                os.umount(self._root)
            except OSError:
                pass  # nothing was mounted, or the card is gone with what was not yet written
            if is_inserted:
                try:
                    os.mount(self._card, self._root)
                except OSError:  # not FAT, or the card is not fully inserted
                    return False
                self._mounted = True
        return is_inserted and Stick.present(self)
