# host only: shapes for the reader and the type checker, never loaded on a board
"""What differs between boards: a board hands these to `boards.device.Device`."""

from collections.abc import Callable
from typing import Protocol

# One line of JSON to whoever listens.
Say = Callable[[str], None]


class ClockPort(Protocol):
    """Time: a count of milliseconds for the core, wall time for timestamps."""

    def now_ms(self) -> int:
        """Milliseconds from any origin, modulo 2^30."""

    def timestamp_into(self, out: bytearray) -> None:
        """Write 8 bytes, big-endian: ms since the Unix epoch."""


class SourcePort(Protocol):
    """Where readings come from; `number` counts from 0 over all boots."""

    def ready(self, number: int) -> bool:
        """Whether reading `number` can be taken now."""

    def size(self) -> int:
        """Take the reading that `ready` was asked for; the size of its payload in bytes."""

    def read_into(self, buf: bytearray, at: int, size: int) -> None:
        """Put the next `size` bytes of that payload at buf[at]."""


class BatteryPort(Protocol):
    """A voltage."""

    def millivolts(self) -> int:
        """What the battery has now; 0: not known."""


class RtcPort(Protocol):
    """Memory that outlives deep sleep but no power cut, and the sleep itself."""

    size: int
    """Bytes that a snapshot may have."""
    slept_ms: int
    """How long the sleep before this boot was."""
    due_ms: int
    """What `deep_sleep` was given."""

    def load_into(self, buf: bytearray) -> int:
        """Copy what the last sleep left to `buf`; its size, 0 when the power was off since."""

    def forget(self) -> None:
        """What it left is used: a second boot must not find it."""

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, lose all RAM, boot again after `wait_ms`."""


class KeeperPort(Protocol):
    """What keeps a carrier up: a broker's connection, or a line that may be unplugged."""

    def maintain(self, now_ms: int) -> object:
        """Open it where it is time; never waits."""

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may be left alone if no bytes come in."""


class ConsolePort(Protocol):
    """Where a board without keys is spoken to."""

    def line(self, size_max: int) -> bytes:
        """Wait for the next line, newline included; b"" at the end of input."""

    def say(self, line: str) -> None:
        """One line of JSON."""
