"""The rolling Bloom filter of a channel, dialect `sds` (specs/sds.md "Participant state").

The specification leaves size, hashes and encoding open; these are the JavaScript implementation's.
The parameters are not on the wire: all participants must be configured alike.

    key       |h(id)|, |h(id + " b")|, 4 bytes each, little-endian; h is MurmurHash3 (32 bits, seed
              0, signed) over the id in UTF-16, each code unit OR-ed in at the position of a byte
    bit n     (a + n * b) mod m, for n < k, with a and b the key's halves mod m
    bytes     64-bit words, big-endian: bit i is bit i mod 64 of word i / 64; 1 + m / 64 words
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.memory import fill

if not ON_BOARD:
    from drupelet.base._murmur_ints import hash_into
else:
    # SyntaxError: the compiler has no viper; ValueError: an .mpy for another processor.
    try:
        from drupelet.base._murmur_viper import hash_into
    except (ImportError, SyntaxError, ValueError):
        from drupelet.base._murmur_plain import hash_into

KEY_SIZE = const(8)
# A received filter with more than six tenths of its bits set is ignored.
_FULL_TENTHS = const(6)
# An error rate falls by 0.5^(ln 2) with each bit per element; ln 2 in millionths.
_ERROR_PER_BIT = 0.6185031378
_LN2_MILLIONTHS = const(693147)


def parameters(capacity: int, error_rate: float, k: int = 0, bits: int = 0) -> "list[int]":
    """Return [k, bits per element] for an error rate, or `k` and `bits` if they are not 0.

    capacity: how many ids a filter holds at that rate. Uses floats, so for configuration only.
    """
    assert capacity > 0 and 0 < error_rate < 1 and (bits or not k)
    if k:
        return [k, bits]
    error = 1.0
    bits = 0
    while error > error_rate:
        error *= _ERROR_PER_BIT
        bits += 1
    return [(bits * _LN2_MILLIONTHS + 500000) // 1000000, bits]


def modulo(buf: "bytes | bytearray | memoryview", at: int, size: int, m: int) -> int:
    """Return the little-endian integer in buf[at:at+size] modulo m (at most 2^22)."""
    remainder = 0
    while size:
        size -= 1
        remainder = (remainder << 8 | buf[at + size]) % m
    return remainder


class Bloom:
    """A filter of our own, whose `bits` are its bytes on the wire; also reads received filters."""

    def __init__(self, capacity: int, bits_per_element: int, k: int) -> None:
        self.capacity = capacity
        self.k = k
        self.m = capacity * bits_per_element
        assert 0 < self.m <= 1 << 22
        self.bits = bytearray((1 + self.m // 64) * 8)
        self.count = 0  # ids added since the filter was cleared

    def key_into(
        self, out: bytearray, at: int, id: "bytes | bytearray | memoryview", start: int, size: int
    ) -> None:
        """Store the 8-byte key of the UTF-8 id in id[start:start+size] at out[at]."""
        hash_into(out, at, id, start, size, False)
        hash_into(out, at + 4, id, start, size, True)

    def clear(self) -> None:
        """Remove all ids."""
        fill(self.bits, 0, len(self.bits), 0)
        self.count = 0

    def add(self, key: "bytes | bytearray", at: int) -> None:
        """Add the id whose key is at key[at]."""
        bits = self.bits
        m = self.m
        bit = modulo(key, at, 4, m)
        step = modulo(key, at + 4, 4, m)
        for _ in range(self.k):
            bits[(bit >> 6) * 8 + 7 - (bit >> 3 & 7)] |= 1 << (bit & 7)
            bit += step
            if bit >= m:
                bit -= m
        self.count += 1

    def has(
        self, bits: "bytes | bytearray | memoryview", start: int, key: "bytes | bytearray", at: int
    ) -> bool:
        """Whether the filter at bits[start] may contain the id whose key is at key[at]."""
        m = self.m
        bit = modulo(key, at, 4, m)
        step = modulo(key, at + 4, 4, m)
        for _ in range(self.k):
            byte = bits[start + (bit >> 6) * 8 + 7 - (bit >> 3 & 7)]
            if not byte & 1 << (bit & 7):
                return False
            bit += step
            if bit >= m:
                bit -= m
        return True

    def usable(self, bits: "bytes | bytearray | memoryview", start: int, size: int) -> bool:
        """Whether bits[start:start+size] is a filter with our parameters and not too full."""
        if size != len(self.bits):
            return False
        ones = 0
        for at in range(start, start + size):
            byte = bits[at]
            while byte:
                byte &= byte - 1
                ones += 1
        return ones * 10 <= self.m * _FULL_TENTHS
