"""Pseudo-terminals that stand for serial devices, under paths of their own.

The kernel gives the number of a closed terminal to the next one. A program that still opens
/dev/pts/3 after its cable was pulled would so take a cable of somebody else. A link that goes
before the terminal does, and whose name no other terminal has again, keeps them apart.
"""

import os
import pty
import tempfile
import tty
from pathlib import Path


class DeviceLink:
    """`path` leads to a terminal until `close`, which comes before the terminal goes."""

    def __init__(self, terminal: str) -> None:
        self._link = Path(tempfile.mkdtemp(prefix="drupelet-")) / "tty"
        self._link.symlink_to(terminal)
        self.path = str(self._link)

    def close(self) -> None:
        """Who opens `path` from now on finds no device."""
        self._link.unlink()
        self._link.parent.rmdir()


class Terminal:
    """`path` is what a program opens as its device; its bytes are read and written at `fd`.

    `device_fd` is the device itself, held open: it stays when the program that uses it ends.
    """

    def __init__(self) -> None:
        self.fd, self.device_fd = pty.openpty()
        tty.setraw(self.device_fd)
        self._link = DeviceLink(os.ttyname(self.device_fd))
        self.path = self._link.path

    def close(self) -> None:
        """Unplug: who opens `path` from now on finds no device."""
        self._link.close()
        os.close(self.fd)
        os.close(self.device_fd)
