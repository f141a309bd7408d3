"""The console as a serial line: frames over a Pico's USB cable.

Meanwhile Ctrl-C is a byte like any other. The four bytes 00 03 03 00 (Ctrl-@ Ctrl-C Ctrl-C Ctrl-@)
bring the prompt of MicroPython back. No frame contains them: in COBS (drupelet_transports/common/
framing.py) the first 03 announces two more bytes before the delimiter, but there is only one.
"""

import select
import sys

import micropython

from boards.base import CTRL_C, NO_BYTE, is_ready
from drupelet.base.errors import DrupeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.base import Console

_ESCAPE = b"\x00\x03\x03\x00"


class ConsoleStream:
    """The console as a stream that never waits; raises KeyboardInterrupt for the escape sequence.

    It takes over the stream of `console`, which then is silent. It is closed if its peer has no
    keys; since the peer may go on sending, the console then prints again, but reads nothing but
    the escape sequence.
    """

    def __init__(self, console: "Console") -> None:
        if console.stream is None:
            raise DrupeletError("console: is another peer's line already: use a uart for one")
        self._console = console
        self.watched = console.stream
        console.stream = None
        self._poll = select.poll()
        self._poll.register(self.watched, select.POLLIN)
        self._room = select.poll()
        self._room.register(sys.stdout, select.POLLOUT)
        self._byte = bytearray(1)
        self._matched = 0  # how many bytes of the escape sequence were read last
        micropython.kbd_intr(NO_BYTE)

    def readinto(self, buf: bytearray) -> "int | None":
        """Read the available bytes into `buf`; return their count, None if there are none."""
        count = 0
        byte = self._byte
        while count < len(buf) and is_ready(self._poll):
            # Read one by one: a console blocks until all requested bytes are there.
            if not self.watched.readinto(byte, 1):
                break
            buf[count] = byte[0]
            count += 1
            if byte[0] == _ESCAPE[self._matched]:
                self._matched += 1
                if self._matched == len(_ESCAPE):
                    self._matched = 0
                    self._console.stream = self.watched
                    micropython.kbd_intr(CTRL_C)
                    raise KeyboardInterrupt
            else:
                self._matched = 1 if byte[0] == _ESCAPE[0] else 0
        return count or None

    def write(self, buf: bytearray, at: int, size: int) -> "int | None":
        """Write buf[at:at+size]; return how many bytes were taken, None if the other end does not
        read.
        """
        if not is_ready(self._room):
            return None
        return sys.stdout.buffer.write(buf, at, size) or None

    def close(self) -> None:
        """Become the stream of the console, which then calls `read`."""
        self._console.stream = self

    def read(self, _size: int) -> bytes:
        """Drop a byte and return a blank, so that no frame is a command or stops the board."""
        self.readinto(bytearray(1))
        return b" "
