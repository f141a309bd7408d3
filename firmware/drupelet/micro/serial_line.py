"""The serial line of a micro member: two buffers of 256 bytes, one frame at a time each way.

The bytes are those of docs/SPEC.md 7.1. Frames have at most 251 bytes, so that COBS needs a single
code byte at the start, and both directions are coded in place; the other end must not send longer
ones. Damaged and longer frames are dropped and counted.

The stream never blocks: `readinto(buf)` and `write(buf, at, size)` return None if they would.
"""

from drupelet.base.compat import const
from drupelet.base.memory import copy, crc16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol  # noqa: TID251

    from drupelet.micro.link import MicroLink

    class Stream(Protocol):
        """machine.UART(timeout=0), or a terminal that never blocks."""

        def readinto(self, buf: bytearray) -> int | None: ...

        def write(self, buf: bytearray, at: int, size: int) -> int | None: ...


_BUFFER_SIZE = const(256)  # delimiter, code, frame, crc, delimiter
_READ_SIZE = const(16)
_READS_MAX = const(32)  # per call: about two frames
_AROUND_SIZE = const(3)  # code byte and CRC
_CRC_START = const(0xFFFF)
# Delay of the next call if the line did not take all bytes.
_BUSY_MS = const(5)


class MicroSerial:
    """One link over one stream: call `pump` in a loop."""

    def __init__(self, link: "MicroLink", stream: "Stream") -> None:
        self._link = link
        self._stream = stream
        self._chunk = bytearray(_READ_SIZE)
        self._rx = bytearray(_BUFFER_SIZE)
        self._rx_end = 0
        self._tx = bytearray(_BUFFER_SIZE)
        self._tx_at = 0
        # A delimiter first: it ends a partial frame from before a reset.
        self._tx_end = 1
        self.damaged = 0

    def pump(self, now_ms: int) -> int:
        """Read what has arrived, send what is due; return the ms until the next call."""
        for _ in range(_READS_MAX):
            if not (got := self._stream.readinto(self._chunk)):
                break
            for at in range(got):
                self._take(self._chunk[at], now_ms)
        while self._flush():
            if not (size := self._link.poll_into(self._tx, now_ms)):
                return self._link.wake_ms(now_ms)
            self._encode(size)
        return _BUSY_MS

    def _take(self, byte: int, now_ms: int) -> None:
        if byte:
            if self._rx_end < _BUFFER_SIZE:
                self._rx[self._rx_end] = byte
                self._rx_end += 1
        elif self._rx_end:
            size = self._decode(self._rx_end)
            self._rx_end = 0
            if size:
                self._link.receive(self._rx, size, now_ms)
            else:
                self.damaged += 1

    def _decode(self, end: int) -> int:
        """Decode rx[:end] in place; return the size of the frame at its start, 0 if damaged."""
        rx = self._rx
        at = 0
        while at < end < _BUFFER_SIZE:
            code = rx[at]
            rx[at] = 0
            at += code
        size = end - _AROUND_SIZE
        # The CRC of data followed by its CRC is zero.
        if at != end or size < 1 or crc16(rx, 1, end - 1, _CRC_START):
            return 0
        copy(rx, 0, rx, 1, size)
        return size

    def _encode(self, size: int) -> None:
        """Encode the frame in tx[:size] in place."""
        tx = self._tx
        copy(tx, 1, tx, 0, size)
        put_u16(tx, size + 1, crc16(tx, 1, size, _CRC_START))
        end = size + _AROUND_SIZE
        tx[end] = 0
        code = 0
        for at in range(1, end + 1):
            if not tx[at]:
                tx[code] = at - code
                code = at
        self._tx_at = 0
        self._tx_end = end + 1

    def _flush(self) -> bool:
        """Write to the line; return True if nothing is left to write."""
        while self._tx_at < self._tx_end:
            taken = self._stream.write(self._tx, self._tx_at, self._tx_end - self._tx_at)
            if not taken:
                return False
            self._tx_at += taken
        return True
