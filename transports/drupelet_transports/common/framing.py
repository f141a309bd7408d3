"""Frames on a byte stream: COBS of the frame and its CRC, then a zero byte as the delimiter.

    wire   COBS( frame  crc u16 big-endian )  00

COBS (S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, 1999) removes all zeros from the
data, so a zero always ends a frame: after noise, at most one further frame is lost. The CRC is
CRC-16/CCITT-FALSE (polynomial 0x1021, initial 0xFFFF). Overhead: 4 bytes for a frame of up to 251
bytes, one more for every further 254.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.memory import copy, crc16, put_u16
from drupelet_transports.common.transport import E_CLOSED, Transport

BLOCK_SIZE = const(254)  # the longest run that one code byte covers
_CODE_FULL = const(255)  # the code of a block of 254 bytes that no zero follows
_CRC_SIZE = const(2)
_CRC_START = const(0xFFFF)
_ZERO = b"\x00"

# Bytes per read: a UART or USB-CDC packet. It is small, because the decoder collects the frame.
RX_SIZE = const(64)


def wire_size_max(frame_size: int) -> int:
    """Return the most bytes that a frame of this size takes on the wire, with delimiter."""
    return frame_size + _CRC_SIZE + (frame_size + _CRC_SIZE) // BLOCK_SIZE + 2


def encode_into(out: bytearray, frame: "bytes | bytearray", size: int, at: int = 0) -> int:
    """Write frame[:size] to out[at:] in wire format; return the end.

    `out` needs room for `wire_size_max(size)` bytes from `at`.
    """
    assert size > 0
    raw = at + 1 + (size + _CRC_SIZE) // BLOCK_SIZE
    copy(out, raw, frame, 0, size)
    put_u16(out, raw + size, crc16(frame, 0, size, _CRC_START))
    at = stuff(out, at, raw, raw + size + _CRC_SIZE)
    out[at] = 0
    return at + 1


def stuff(out: bytearray, at: int, raw: int, end: int) -> int:
    """Write the COBS encoding of out[raw:end] to out[at:]; return the end.

    It works in place if `raw` is so far after `at` that no code byte overwrites unmoved data:
    1 + (end - raw) // 254 bytes.
    """
    while True:
        stop = min(end, raw + BLOCK_SIZE)
        zero = out.find(_ZERO, raw, stop)
        size = (zero if zero >= 0 else stop) - raw
        copy(out, at + 1, out, raw, size)
        out[at] = size + 1
        at += size + 1
        raw += size
        if zero >= 0:
            raw += 1  # the next code byte replaces the zero
        elif raw == end:
            return at


def unstuff(buf: bytearray, end: int) -> int:
    """Decode COBS of buf[:end], which has no zeros, in place; the size, -1: a truncated block."""
    at = size = 0
    while at < end:
        code = buf[at]
        if at + code > end:
            return -1
        copy(buf, size, buf, at + 1, code - 1)
        size += code - 1
        at += code
        if code < _CODE_FULL and at < end:
            buf[size] = 0
            size += 1
    return size


class Decoder:
    """Extracts frames from a byte stream in bounded memory; only the constructor allocates.

    `frame` has the last frame and `size` its size, 0 if there is none; `wire_size` is its size on
    the wire. `damaged` counts data between two delimiters that was no valid frame.
    """

    def __init__(self, frame_size_max: int) -> None:
        self.frame = bytearray(wire_size_max(frame_size_max) - 1)  # encoded until its delimiter
        self.size = 0
        self.wire_size = 0
        self.damaged = 0
        self._size_max = frame_size_max
        self._fill = 0  # bytes since the last delimiter; more than fit in `frame`: damaged

    def feed(self, rx: bytearray, start: int, end: int) -> int:
        """Read rx[start:end] up to the end of the first frame; return the position reached.

        Call again from there until it is `end`; check `size` after each call.
        """
        self.size = 0
        zero = rx.find(_ZERO, start, end)
        size = (zero if zero >= 0 else end) - start
        room = len(self.frame) - self._fill
        if size <= room:
            copy(self.frame, self._fill, rx, start, size)
        self._fill += min(size, room + 1)
        if zero < 0:
            return end
        if self._fill:
            self._finish()
        return zero + 1

    def _finish(self) -> None:
        """Decode and check the data before a delimiter: a frame, or damaged."""
        fill = self._fill
        self._fill = 0
        size = 0
        if fill <= len(self.frame):
            size = unstuff(self.frame, fill) - _CRC_SIZE
        # The CRC over data followed by its CRC is zero.
        if 0 < size <= self._size_max and not crc16(self.frame, 0, size + _CRC_SIZE, _CRC_START):
            self.size = size
            self.wire_size = fill + 1
        else:
            self.damaged += 1


class StreamTransport(Transport):
    """Frames over a byte stream; subclasses implement `_read`, `_write` and `close`.

    A frame is accepted whole or not at all: bytes that the stream does not take now stay in a
    buffer of one frame, which the next call writes first. The first frame begins with a delimiter,
    so that an incomplete frame before a restart does not damage it.
    """

    def __init__(self, frame_size_max: int) -> None:
        super().__init__(frame_size_max)
        self._decoder = Decoder(frame_size_max)
        self._rx = bytearray(RX_SIZE)
        self._rx_at = 0
        self._rx_end = 0
        self._tx = bytearray(wire_size_max(frame_size_max) + 1)
        self._tx_at = 0  # where the pending bytes begin
        self._begun = False
        self.pending_size = 0  # created now, because adding an attribute later allocates

    def _read(self) -> int:
        """Read to the beginning of self._rx; the number of bytes, 0: none now, or E_CLOSED."""
        raise NotImplementedError

    def _write(self, at: int, size: int) -> int:
        """Write self._tx[at:at+size]; the number of bytes taken, 0: none now, or E_CLOSED."""
        raise NotImplementedError

    def flush(self) -> int:
        """Write the pending bytes; OK when all are written, else E_CAPACITY or E_CLOSED."""
        while self.pending_size > 0:
            count = self._write(self._tx_at, self.pending_size)
            if count <= 0:
                return count if count else E_CAPACITY
            self._tx_at += count
            self.pending_size -= count
        return OK

    def send(self, frame: bytearray, size: int) -> int:
        """Send one frame; see Transport.send."""
        assert 0 < size <= self.frame_size_max
        code = self.flush()
        if code != OK:
            return code
        at = 0
        if not self._begun:
            self._tx[0] = 0
            at = 1
        end = encode_into(self._tx, frame, size, at)
        self._tx_at = 0
        self.pending_size = end
        if self.flush() == E_CLOSED:
            self.pending_size = 0
            return E_CLOSED
        self._begun = True
        self.last_wire_size = end
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """Receive one frame; see Transport.receive_into. Reads at most the size of two frames."""
        if self.pending_size and self.flush() == E_CLOSED:
            return E_CLOSED
        decoder = self._decoder
        budget = len(self._tx) * 2
        while budget > 0:
            if self._rx_at == self._rx_end:
                if (count := self._read()) <= 0:
                    return count
                self._rx_at = 0
                self._rx_end = count
                budget -= count
            self._rx_at = decoder.feed(self._rx, self._rx_at, self._rx_end)
            self.damaged = decoder.damaged
            if decoder.size:
                copy(frame, 0, decoder.frame, 0, decoder.size)
                self.last_wire_size = decoder.wire_size
                return decoder.size
        return 0
