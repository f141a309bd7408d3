"""Hash keys of ids (`drupelet.wire.sds.bloom`) in bytecode, 16 bits at a time.

No product exceeds 2^30 - 1, so nothing is allocated on a 32-bit board.
"""


class _Word:
    """A 32-bit integer in two halves."""

    def __init__(self) -> None:
        self.high = 0
        self.low = 0

    def times(self, high: int, low: int) -> None:
        """Multiply modulo 2^32."""
        first = (self.low & 255) * low
        second = (self.low >> 8) * low
        total = first + ((second & 255) << 8)
        carry = (total >> 16) + (second >> 8)
        carry += self.high * (low & 255) + ((self.high * (low >> 8) & 255) << 8)
        carry += self.low * (high & 255) + ((self.low * (high >> 8) & 255) << 8)
        self.low = total & 0xFFFF
        self.high = carry & 0xFFFF

    def rotate(self, bits: int) -> None:
        """Rotate left by 1 to 15 bits."""
        high = self.high
        low = self.low
        self.high = (high << bits | low >> 16 - bits) & 0xFFFF
        self.low = (low << bits | high >> 16 - bits) & 0xFFFF

    def fold(self, bits: int) -> None:
        """XOR with itself shifted right, by 13 or 16 bits."""
        if bits == 16:
            self.low ^= self.high
        else:
            self.low ^= (self.high << 3 | self.low >> 13) & 0xFFFF
            self.high ^= self.high >> 13

    def mix(self, k: "_Word") -> None:
        """Mix in a block, and clear it."""
        k.times(0xCC9E, 0x2D51)
        k.rotate(15)
        k.times(0x1B87, 0x3593)
        self.high ^= k.high
        self.low ^= k.low
        k.high = k.low = 0


_H = _Word()
_K = _Word()


def hash_into(
    out: bytearray, at: int, data: "bytes | bytearray | memoryview", start: int, size: int,
    suffixed: bool,
) -> None:  # fmt: skip
    """Store |MurmurHash3_32| of the text, seed 0, of UTF-16; 4 bytes, little-endian."""
    h = _H
    h.high = h.low = _K.high = _K.low = 0
    end = start + size
    n = 0
    while start < end:
        byte = data[start]
        unit = byte
        second = -1
        if byte < 0x80:
            start += 1
        elif byte < 0xE0:
            unit = (byte & 31) << 6 | data[start + 1] & 63
            start += 2
        elif byte < 0xF0:
            unit = (byte & 15) << 12 | (data[start + 1] & 63) << 6 | data[start + 2] & 63
            start += 3
        else:
            point = (data[start + 1] & 63) << 12 | (data[start + 2] & 63) << 6
            point |= data[start + 3] & 63
            unit = 0xD800 + (((byte & 7) << 18 | point) - 0x10000 >> 10)
            second = 0xDC00 | point & 0x3FF
            start += 4
        n = _take(n, unit)
        if second >= 0:
            n = _take(n, second)
    if suffixed:
        n = _take(_take(n, 32), 98)
    _finish(n)
    high = h.high
    low = h.low
    if high & 0x8000:
        low = (0x10000 - low) & 0xFFFF
        high = (0xFFFF - high if low else 0x10000 - high) & 0xFFFF
    out[at] = low & 255
    out[at + 1] = low >> 8
    out[at + 2] = high & 255
    out[at + 3] = high >> 8


def _take(n: int, unit: int) -> int:
    k = _K
    place = n & 3
    if place == 0:
        k.low |= unit
    elif place == 1:
        k.low |= (unit & 255) << 8
        k.high |= unit >> 8
    elif place == 2:
        k.high |= unit
    else:
        k.high |= (unit & 255) << 8
    n += 1
    if n & 3 == 0:
        h = _H
        h.mix(k)
        h.rotate(13)
        h.times(0, 5)
        h.low += 0x6B64
        h.high = (h.high + 0xE654 + (h.low >> 16)) & 0xFFFF
        h.low &= 0xFFFF
    return n


def _finish(n: int) -> None:
    h = _H
    h.mix(_K)
    h.low ^= n & 0xFFFF
    h.high ^= n >> 16
    h.fold(16)
    h.times(0x85EB, 0xCA6B)
    h.fold(13)
    h.times(0xC2B2, 0xAE35)
    h.fold(16)
