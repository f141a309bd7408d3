"""What every MicroPython gives a board's port: clock, chance, light sleep, a console."""

import os
import select
import sys
import time

from drupelet.base.compat import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from boards.ports import StickPort

_COMMAND_SIZE_MAX = const(64)
_CTRL_C = const(3)


def is_ready(poll: "Any") -> bool:  # noqa: ANN401 - a class of MicroPython's
    """Whether a stream of this poll can be read, or written, now; allocates nothing."""
    for _stream, _event in poll.ipoll(0):
        return True
    return False


class Console:
    """Commands, one per line; end of input means stop.

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
            if not is_ready(self._poll):
                return b""
            byte = self.stream.read(1)
            # Ctrl-C is a byte where a port had to turn its interrupt off (boards/nrf/port.py).
            if not byte or byte[0] == _CTRL_C:
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


class BasePort:
    """What ports have in common; see `boards.ports.Port`. A subclass gives the rest."""

    def __init__(self) -> None:
        self.console = Console()
        self._poll = select.poll()

    def now_ms(self) -> int:
        """Modulo 2^30, as MicroPython's ticks are."""
        return time.ticks_ms() & 0x3FFFFFFF

    def timestamp_into(self, out: bytearray) -> None:
        """Write the 8 bytes of a message timestamp: ms since the Unix epoch, big-endian."""
        out[:] = self._unix_ms().to_bytes(8, "big")

    def anchor_into(self, out: bytearray) -> bool:
        """Write 6 bytes, little-endian: ms since the Unix epoch. False: the clock is not set."""
        out[:] = self._unix_ms().to_bytes(6, "little")
        return True

    def _unix_ms(self) -> int:
        return time.time_ns() // 1000000

    def random_byte(self) -> int:
        """0..255 from the chip or the operating system."""
        return os.urandom(1)[0]

    def watch(self, old: "object | None", new: "object | None") -> None:
        """Let bytes of `new` end a `wait` from now on, and those of `old` no more."""
        if old is new:
            return
        if old is not None:
            self._poll.unregister(old)
        if new is not None:
            self._poll.register(new, select.POLLIN)

    def wait(self, wait_ms: int) -> None:
        """Light sleep, at most `wait_ms`."""
        for _stream, _event in self._poll.ipoll(wait_ms):
            pass

    def feed(self) -> None:
        """There is no watchdog."""

    release = feed  # nor does a prompt follow

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> "StickPort":
        """A folder that somebody else mounts."""
        from drupelet_transports.stick import Stick

        return Stick(path, own_id)
