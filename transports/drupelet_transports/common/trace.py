"""Wraps a carrier and writes one line per frame, for debugging.

> 112 116 03a4f1...      sent: frame size, size on the wire, the first bytes in hexadecimal
< 38 42 01...            received
! send -11               refused, with the carrier's code
"""

from binascii import hexlify

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet_transports.common.transport import Transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

# Bytes shown: enough to see frame kind, record type and the beginning of an id.
_SHOWN_SIZE = const(16)


class TraceTransport(Transport):
    """The carrier `inner`, whose frames are traced to `out` (anything with `write(str)`)."""

    def __init__(self, inner: Transport, out: "TextIO") -> None:
        super().__init__(inner.frame_size_max, inner.duplex)
        self.poll_object = inner.poll_object
        self._inner = inner
        self._out = out

    def send(self, frame: bytearray, size: int) -> int:
        """Send through the inner carrier."""
        code = self._inner.send(frame, size)
        self._note_state()
        if code == OK:
            self._line(">", frame, size)
        else:
            self._out.write(f"! send {code}\n")
        return code

    def receive_into(self, frame: bytearray) -> int:
        """Receive from the inner carrier."""
        size = self._inner.receive_into(frame)
        self._note_state()
        if size > 0:
            self._line("<", frame, size)
        elif size < 0:
            self._out.write(f"! receive {size}\n")
        return size

    def close(self) -> None:
        """Close the inner carrier; `out` stays open."""
        self._inner.close()

    def _note_state(self) -> None:
        inner = self._inner
        self.last_wire_size = inner.last_wire_size
        self.pending_size = inner.pending_size
        self.damaged = inner.damaged

    def _line(self, sign: str, frame: bytearray, size: int) -> None:
        head = hexlify(frame[: size if size < _SHOWN_SIZE else _SHOWN_SIZE]).decode()
        self._out.write(f"{sign} {size} {self.last_wire_size} {head}\n")
