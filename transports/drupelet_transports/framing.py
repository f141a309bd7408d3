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
        zero = out.find(_ZERO, raw, end)
        stop = zero if zero >= 0 else end
        full = False
        while stop - raw >= BLOCK_SIZE:
            copy(out, at + 1, out, raw, BLOCK_SIZE)
            out[at] = _CODE_FULL
            at += _CODE_FULL
            raw += BLOCK_SIZE
            full = True
        size = stop - raw
        if zero < 0 and size == 0 and full:
            return at  # the data ends with a full block
        copy(out, at + 1, out, raw, size)
        out[at] = size + 1
        at += size + 1
        if zero < 0:
            return at
        raw = zero + 1


class Decoder:
    """Reads frames out of a byte stream; bounded, and only the constructor allocates.

    `frame` holds the last frame and `size` its size, 0 while there is none; `wire_size` is what it
    took on the wire. `damaged` counts what stood between two delimiters and was no frame.
    """

    def __init__(self, frame_size_max: int) -> None:
        self.frame = bytearray(frame_size_max + _CRC_SIZE)
        self.size = 0
        self.wire_size = 0
        self.damaged = 0
        self._seen = 0  # bytes since the last delimiter
        self._reset()

    def _reset(self) -> None:
        self._fill = 0
        self._left = 0  # bytes until the next code
        self._zero = False  # whether a zero stood between this block and the next
        self._lost = False  # longer than any frame: wait for the delimiter

    def feed(self, rx: bytearray, start: int, end: int) -> int:
        """Take in bytes up to the end of the first frame or of rx[start:end]; return where.

        Call again with what it returns until that is `end`; look at `size` after each call.
        """
        self.size = 0
        zero = rx.find(_ZERO, start, end)
        stop = zero if zero >= 0 else end
        self._seen += stop - start
        self._take(rx, start, stop)
        if zero < 0:
            return end
        if self._seen:
            self._finish()
        return zero + 1

    def _take(self, rx: bytearray, start: int, stop: int) -> None:
        """Undo the stuffing of bytes that hold no zero."""
        frame = self.frame
        while start < stop and not self._lost:
            part = self._left
            if part:
                if part > stop - start:
                    part = stop - start
                if self._fill + part > len(frame):
                    self._lost = True
                    return
                copy(frame, self._fill, rx, start, part)
                self._fill += part
                self._left -= part
                start += part
            else:
                if self._zero:
                    if self._fill == len(frame):
                        self._lost = True
                        return
                    frame[self._fill] = 0
                    self._fill += 1
                self._left = rx[start] - 1
                self._zero = rx[start] != _CODE_FULL
                start += 1

    def _finish(self) -> None:
        """A delimiter: what came before it is a frame or it is damage."""
        size = self._fill
        whole = self._left == 0 and not self._lost and size > _CRC_SIZE
        # The CRC of data and its own CRC is zero.
        if whole and crc16(self.frame, 0, size, _CRC_START) == 0:
            self.size = size - _CRC_SIZE
            self.wire_size = self._seen + 1
        else:
            self.damaged += 1
        self._seen = 0
        self._reset()


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
                got = self._read()
                if got <= 0:
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
