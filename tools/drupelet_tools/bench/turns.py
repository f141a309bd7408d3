"""A board and its peer that take turns, so that their exchange does not depend on timing.

The turns go over the board's console. In each turn the board prints `> MILLISECONDS HEX`: its
clock, and the bytes that its UART sent. Then it waits for a line of HEX, the bytes that its UART
receives. The board's clock advances by a fixed step per turn and stands still in between
(on-board/turns.py).
"""

from drupelet_tools.bench.errors import BenchError
from drupelet_tools.m3.machine import Machine
from drupelet_transports.common.framing import StreamTransport

_TURN_S = 60
_MARK = b"> "
_PROMPT = b">>> "


class TurnsLine(StreamTransport):
    """The other end of the board's UART; the board waits whenever `wait` has returned."""

    def __init__(self, machine: Machine, frame_size: int) -> None:
        super().__init__(frame_size)
        self.now_ms = 0
        """The board's clock."""
        self._machine = machine
        self._received = b""
        self._sent = bytearray()
        self._has_turned = False

    def wait(self) -> bytes:
        """Let the board take one turn. Raises BenchError if its program has ended, BoardError."""
        if self._has_turned:
            self._machine.write(self._sent.hex().encode() + b"\n")
            self._sent.clear()
        self._has_turned = True
        text = self._machine.wait_for(_MARK, _TURN_S, _PROMPT)
        if text.endswith(_PROMPT):
            raise BenchError(f"the board ended: {text[-200:].decode(errors='replace')}")
        words = self._machine.wait_for(b"\n", _TURN_S).split()
        self.now_ms = int(words[0])
        self._received += bytes.fromhex(words[1].decode()) if len(words) > 1 else b""
        return b""

    def _read(self) -> int:
        part = self._received[: len(self._rx)]
        self._rx[: len(part)] = part
        self._received = self._received[len(part) :]
        return len(part)

    def _write(self, at: int, size: int) -> int:
        self._sent += self._tx[at : at + size]
        return size

    def close(self) -> None:
        """End the board's program."""
        self._machine.write(b"stop\n")
