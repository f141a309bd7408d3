"""The rolling bloom filter of a channel, dialect `sds` (specs/sds.md "Participant state").

The text leaves size, hashes and bytes open; these are those of the JavaScript peer. Parameters
are not on the wire: both ends are set to the same.

    key       |h(id)|, |h(id + " b")|, 4 bytes each, little-endian; h is MurmurHash3 (32 bits, seed
              0, signed) over the id in UTF-16, each code unit or-ed in where a byte would stand
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
# A received filter with more than six bits of ten set says nothing.
_FULL_TENTHS = const(6)
# (ln 2)^2 and ln 2, as 0.5^(ln 2) and in millionths.
_ERROR_PER_BIT = 0.6185031378
_LN2_MILLIONTHS = const(693147)


def parameters(capacity: int, error_rate: float, k: int = 0, bits: int = 0) -> "list[int]":
    """Return k and the bits per element for an error rate; both given (not 0): they stand.

    capacity: ids that it holds at that rate. Floats: for setting up only.
    """
    assert capacity > 0 and 0 < error_rate < 1 and (bits or not k)
    if k:
        return [k, bits]
    share = 1.0
    bits = 0
    while share > error_rate:
        share *= _ERROR_PER_BIT
        bits += 1
    return [(bits * _LN2_MILLIONTHS + 500000) // 1000000, bits]


def modulo(buf: "bytes | bytearray | memoryview", at: int, size: int, m: int) -> int:
    """Return the little-endian integer in buf[at:at+size] modulo m (at most 2^22)."""
    rest = 0
    while size:
        size -= 1
        rest = (rest << 8 | buf[at + size]) % m
    return rest


class Bloom:
    """A filter of its own: `bits` are the bytes on the wire; and reads those of others."""

    def __init__(self, capacity: int, bits_per_element: int, k: int) -> None:
        self.capacity = capacity
        self.k = k
        self.m = capacity * bits_per_element
        assert 0 < self.m <= 1 << 22
        self.bits = bytearray((1 + self.m // 64) * 8)
        self.count = 0  # ids put in since it was cleared

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.bits)

    def key_into(
        self, out: bytearray, at: int, id: "bytes | bytearray | memoryview", start: int, size: int
    ) -> None:
        """Store the key, 8 bytes, of the id in id[start:start+size], UTF-8."""
        hash_into(out, at, id, start, size, False)
        hash_into(out, at + 4, id, start, size, True)

    def clear(self) -> None:
        """Forget all ids."""
        fill(self.bits, 0, len(self.bits), 0)
        self.count = 0

    def add(self, key: "bytes | bytearray", at: int) -> None:
        """Put in the id with this key."""
        bits = self.bits
        m = self.m
        place = modulo(key, at, 4, m)
        step = modulo(key, at + 4, 4, m)
        for _ in range(self.k):
            bits[(place >> 6) * 8 + 7 - (place >> 3 & 7)] |= 1 << (place & 7)
            place += step
            if place >= m:
                place -= m
        self.count += 1

    def has(
        self, bits: "bytes | bytearray | memoryview", start: int, key: "bytes | bytearray", at: int
    ) -> bool:
        """Whether a filter's bytes at bits[start] seem to have the id with this key."""
        m = self.m
        place = modulo(key, at, 4, m)
        step = modulo(key, at + 4, 4, m)
        for _ in range(self.k):
            byte = bits[start + (place >> 6) * 8 + 7 - (place >> 3 & 7)]
            if not byte & 1 << (place & 7):
                return False
            place += step
            if place >= m:
                place -= m
        return True

    def usable(self, bits: "bytes | bytearray | memoryview", start: int, size: int) -> bool:
        """Whether received bytes are a filter of our parameters that says something."""
        if size != len(self.bits):
            return False
        ones = 0
        for at in range(start, start + size):
            byte = bits[at]
            while byte:
                byte &= byte - 1
                ones += 1
        return ones * 10 <= self.m * _FULL_TENTHS
