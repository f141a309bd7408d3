"""Base of all boards' ports, with what every MicroPython has: clock, random bytes, console."""

import os
import select
import sys
import time

from drupelet.base.compat import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drupelet_transports.stick.stick import Stick

_COMMAND_SIZE_MAX = const(64)
_DAY_MS = const(86400000)
# Which byte at the console interrupts the program: arguments of micropython.kbd_intr.
CTRL_C = const(3)
NO_BYTE = const(-1)


def is_ready(poll: "Any") -> bool:  # noqa: ANN401 - a class of MicroPython's
    """Whether a stream registered with `poll` is ready now; allocates nothing."""
    for _stream, _event in poll.ipoll(0):
        return True
    return False


class Console:
    """Reads commands, one per line, and prints events.

    If `stream` is None, the console is the serial line of a peer: only the carrier may read and
    write it, and the console is silent.
    """

    def __init__(self) -> None:
        self.stream: "Any" = sys.stdin.buffer
        self._poll = select.poll()
        self._poll.register(self.stream, select.POLLIN)
        self._line = bytearray()

    def command(self) -> bytes:
        """Return the next whole line, b"" if there is none, b"stop" at end of input."""
        for _byte in range(_COMMAND_SIZE_MAX if self.stream else 0):
            if not is_ready(self._poll):
                return b""
            byte = self.stream.read(1)
            # Ctrl-C is an ordinary byte on ports that turn its interrupt off (boards/nrf/port.py).
            if not byte or byte[0] == CTRL_C:
                return b"stop"
            if byte == b"\n":
                line = bytes(self._line)
                self._line = bytearray()
                return line
            if len(self._line) < _COMMAND_SIZE_MAX:
                self._line.extend(byte)
        return b""

    def line(self, size_max: int) -> bytes:
        """Wait for the next line, at most `size_max` bytes; b"" at end of input."""
        return self.stream.readline(size_max)

    def say(self, line: str) -> None:
        """Print one line of JSON; if nobody listens, ignore the error."""
        try:
            if self.stream:
                print(line)
        except OSError:
            pass


class BasePort:
    """The common part of all ports; see `boards.ports.Port`. Subclasses add the rest."""

    clock_set_days = 0  # since 1970; a clock that shows less was never set

    def __init__(self, config: dict) -> None:
        self.console = Console()
        self._config = config
        self._poll = select.poll()

    def now_ms(self) -> int:
        """Return the ticks of MicroPython, modulo 2^30 ms."""
        return time.ticks_ms() & 0x3FFFFFFF

    def timestamp_into(self, out: bytearray) -> None:
        """Write the 8 bytes of a message timestamp: ms since the Unix epoch, big-endian."""
        out[:] = self._unix_ms().to_bytes(8, "big")

    def anchor_into(self, out: bytearray) -> bool:
        """Write 6 bytes, little-endian: ms since the Unix epoch. False: the clock is not set."""
        unix_ms = self._unix_ms()
        out[:] = unix_ms.to_bytes(6, "little")
        return unix_ms >= self.clock_set_days * _DAY_MS

    def _unix_ms(self) -> int:
        return time.time_ns() // 1000000

    def random_byte(self) -> int:
        """Return 0..255 from the chip's or the operating system's generator."""
        return os.urandom(1)[0]

    def watch(self, old: "object | None", new: "object | None") -> None:
        """Make readable bytes on `new` end a `wait` from now on, instead of those on `old`."""
        if old is new:
            return
        if old is not None:
            self._poll.unregister(old)
        if new is not None:
            self._poll.register(new, select.POLLIN)

    def wait(self, wait_ms: int) -> None:
        """Sleep lightly for at most `wait_ms`, or until a watched stream has bytes."""
        for _stream, _event in self._poll.ipoll(wait_ms):
            pass

    def feed(self) -> None:
        """Do nothing: there is no watchdog."""

    release = feed  # nor a prompt that needs the console
    restart = feed  # what started this process may start it again

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> "Stick":
        """Return the stick in a folder that the operating system mounts."""
        from drupelet_transports.stick.stick import Stick

        return Stick(path, own_id)
