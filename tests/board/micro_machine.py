"""Stands in for `machine` on the unix port: a UART whose number is a terminal in a variable."""

import os
import termios

import ffi

F_SETFL = 4
O_RDWR_NONBLOCK = 0o4002


class UART:
    """A UART over the terminal that UART0, UART1 … of the environment name."""

    def __init__(self, number, baudrate=9600, timeout=100, rxbuf=64):
        assert timeout == 0 and rxbuf >= 256 and baudrate >= 9600
        self._file = open(os.getenv(f"UART{number}"), "r+b")  # noqa: SIM115
        descriptor = self._file.fileno()
        termios.setraw(descriptor)
        fcntl = ffi.open(None).func("i", "fcntl", "iii")
        assert fcntl(descriptor, F_SETFL, O_RDWR_NONBLOCK) == 0

    def readinto(self, buf):
        return self._file.readinto(buf)

    def write(self, buf, at, size):
        return self._file.write(buf, at, size)
