"""Frames on a byte stream: COBS around the frame and its CRC, a zero byte behind it.

    wire   COBS( frame  crc u16 big-endian )  00

COBS (S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, 1999) takes every zero out of
the data, so a zero is always the end of a frame: after any noise the next but one frame at the
latest is read again. The CRC is CRC-16/CCITT-FALSE (polynomial 0x1021, initial 0xFFFF). Overhead:
4 bytes for a frame of up to 251, one more for every 254 after that.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.memory import copy, crc16, put_u16
from drupelet_transports.base import E_CLOSED, Transport

BLOCK_SIZE = const(254)  # the longest run that one code byte covers
_CODE_FULL = const(255)  # code of a block of 254 that no zero follows
_CRC_SIZE = const(2)
_CRC_START = const(0xFFFF)
_ZERO = b"\x00"

# What one read takes in; a UART or USB-CDC packet. Small, because frames gather in the decoder.
RX_SIZE = const(64)


def wire_size_max(frame_size: int) -> int:
    """Return the most bytes that a frame of this size takes on the wire, delimiter included."""
    return frame_size + _CRC_SIZE + (frame_size + _CRC_SIZE) // BLOCK_SIZE + 2


def encode_into(out: bytearray, frame: "bytes | bytearray", size: int, at: int = 0) -> int:
    """Write the first `size` bytes of `frame` to out[at:] as they go on the wire; return the end.

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
    """Write COBS of out[raw:end] to out[at:]; return the end.

    Works in place: `raw` is so far ahead that no code byte falls on data not yet moved.
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
            raw += 1  # the next code byte stands for it
        elif raw == end:
            return at


def unstuff(buf: bytearray, end: int) -> int:
    """Undo COBS of buf[:end], which holds no zero, in place; the size, -1 for a block cut off."""
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
    """Reads frames out of a byte stream; bounded, and only the constructor allocates.

    `frame` holds the last frame and `size` its size, 0 while there is none; `wire_size` is what it
    took on the wire. `damaged` counts what stood between two delimiters and was no frame.
    """

    def __init__(self, frame_size_max: int) -> None:
        self.frame = bytearray(wire_size_max(frame_size_max) - 1)  # as on the wire, until it ends
        self.size = 0
        self.wire_size = 0
        self.damaged = 0
        self._size_max = frame_size_max
        self._fill = 0  # bytes since the last delimiter; more than there is room for: damage

    def feed(self, rx: bytearray, start: int, end: int) -> int:
        """Take in bytes up to the end of the first frame or of rx[start:end]; return where.

        Call again with what it returns until that is `end`; look at `size` after each call.
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
        """A delimiter: what came before it is a frame or it is damage."""
        fill = self._fill
        self._fill = 0
        size = 0
        if fill <= len(self.frame):
            size = unstuff(self.frame, fill) - _CRC_SIZE
        # The CRC of data and its own CRC is zero.
        if 0 < size <= self._size_max and not crc16(self.frame, 0, size + _CRC_SIZE, _CRC_START):
            self.size = size
            self.wire_size = fill + 1
        else:
            self.damaged += 1


class StreamTransport(Transport):
    """Frames over a byte stream; subclasses give `_read`, `_write` and `close`.

    A frame is taken whole or not at all: what the stream does not take now stays in a buffer of
    one frame and goes out first with the next call. Beginning with a delimiter keeps the half
    frame of an earlier life from spoiling our first one.
    """

    def __init__(self, frame_size_max: int) -> None:
        super().__init__(frame_size_max)
        self._decoder = Decoder(frame_size_max)
        self._rx = bytearray(RX_SIZE)
        self._rx_at = 0
        self._rx_end = 0
        self._tx = bytearray(wire_size_max(frame_size_max) + 1)
        self._tx_at = 0
        self._tx_end = 0
        self._begun = False
        self.pending_size = 0  # of its own from the start: a new attribute allocates

    def _read(self) -> int:
        """Read into self._rx from its start: bytes read, 0 for none now, or E_CLOSED."""
        raise NotImplementedError

    def _write(self, at: int, size: int) -> int:
        """Write self._tx[at:at+size]: bytes taken, 0 for none now, or E_CLOSED."""
        raise NotImplementedError

    def flush(self) -> int:
        """Write what still waits: OK when nothing is left, E_CAPACITY or E_CLOSED."""
        while self._tx_at < self._tx_end:
            taken = self._write(self._tx_at, self._tx_end - self._tx_at)
            if taken <= 0:
                return taken if taken else E_CAPACITY
            self._tx_at += taken
            self.pending_size -= taken
        return OK

    def send(self, frame: bytearray, size: int) -> int:
        """Take one frame; see Transport.send."""
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
        self._tx_end = self.pending_size = end
        if self.flush() == E_CLOSED:
            self._tx_end = self._tx_at = self.pending_size = 0
            return E_CLOSED
        self._begun = True
        self.last_wire_size = end
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """Give one frame; see Transport.receive_into. Reads at most as much as two frames hold."""
        if self.pending_size and self.flush() == E_CLOSED:
            return E_CLOSED
        decoder = self._decoder
        budget = len(self._tx) * 2
        while budget > 0:
            if self._rx_at == self._rx_end:
                if (got := self._read()) <= 0:
                    return got
                self._rx_at = 0
                self._rx_end = got
                budget -= got
            self._rx_at = decoder.feed(self._rx, self._rx_at, self._rx_end)
            self.damaged = decoder.damaged
            if decoder.size:
                copy(frame, 0, decoder.frame, 0, decoder.size)
                self.last_wire_size = decoder.wire_size
                return decoder.size
        return 0
