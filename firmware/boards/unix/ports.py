"""What the unix port of MicroPython gives a board: clock, sleep, a console."""

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMMAND_SIZE_MAX = 64


def random_byte() -> int:
    """0..255 from the operating system."""
    return os.urandom(1)[0]


class Clock:
    """Milliseconds from any origin, and wall time for timestamps."""

    def now_ms(self) -> int:
        """Modulo 2^30, as MicroPython's ticks are."""
        return time.ticks_ms() & 0x3FFFFFFF

    def timestamp_into(self, out: bytearray) -> None:
        """Write the 8 bytes of a message timestamp: ms since the Unix epoch, big-endian."""
        out[:] = (time.time_ns() // 1000000).to_bytes(8, "big")

    def anchor_into(self, out: bytearray) -> None:
        """Write 6 bytes, little-endian: ms since the Unix epoch, for the black box."""
        out[:] = (time.time_ns() // 1000000).to_bytes(6, "little")


class Waiter:
    """Sleeps until a carrier or the console has bytes; the board's light sleep."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def add(self, stream: object) -> None:
        """Wake up when this stream can be read."""
        self._poll.register(stream, select.POLLIN)

    def replace(self, old: "object | None", new: "object | None") -> None:
        """A carrier was opened again under another descriptor."""
        if old is new:
            return
        if old is not None:
            self._poll.unregister(old)
        if new is not None:
            self._poll.register(new, select.POLLIN)

    def wait(self, wait_ms: int) -> None:
        """Sleep at most `wait_ms`."""
        for _stream, _event in self._poll.ipoll(wait_ms):
            pass


class Console:
    """Commands of whoever started the process, one per line; end of input means stop.

    Without its `stream` it hears and says nothing: that is the line of a peer, and a line has one
    reader and one writer, the carrier.
    """

    def __init__(self) -> None:
        self.stream: "Any" = sys.stdin.buffer
        self._poll = select.poll()
        self._poll.register(self.stream, select.POLLIN)
        self._line = bytearray()

    def command(self) -> bytes:
        """The next whole line, b"" when there is none, b"stop" at end of input."""
        for _byte in range(_COMMAND_SIZE_MAX if self.stream else 0):
            ready = False
            for _stream, _event in self._poll.ipoll(0):
                ready = True
            if not ready:
                return b""
            byte = self.stream.read(1)
            if not byte:
                return b"stop"
            if byte == b"\n":
                line = bytes(self._line)
                self._line = bytearray()
                return line
            if len(self._line) < _COMMAND_SIZE_MAX:
                self._line.extend(byte)
        return b""

    def line(self, size_max: int) -> bytes:
        """Wait for the next line, at most so long; b"" at end of input."""
        return self.stream.readline(size_max)

    def say(self, line: str) -> None:
        """One line of JSON; a listener that is gone does not stop the board."""
        try:
            if self.stream:
                print(line)
        except OSError:
            pass
