# host only: 64-bit integers
"""The string hashes of Nim's standard library, which dialect `sds-nim` uses.

Nim 2.2 and later use FarmHash64 (variant `na`), as a signed integer; older versions MurmurHash3
(32 bits). Both hash UTF-8 bytes.
"""

from functools import lru_cache  # noqa: TID251 - host only

from drupelet.base._murmur_ints import murmur3_32

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_CACHED_MAX = 16384  # ids; a few MB


def _rotate(value: int, bits: int) -> int:
    return (value >> bits | value << 64 - bits) & _MASK


def _fetch(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _shift_mix(value: int) -> int:
    return value ^ value >> 47


def _pair(u: int, v: int, factor: int) -> int:
    a = (u ^ v) * factor & _MASK
    b = (v ^ _shift_mix(a)) * factor & _MASK
    return _shift_mix(b) * factor & _MASK


def _to_16(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    if size >= 8:
        a = _fetch(data, 0) + _K2
        b = _fetch(data, size - 8)
        c = _rotate(b, 37) * factor + a & _MASK
        d = (_rotate(a & _MASK, 25) + b) * factor & _MASK
        return _pair(c, d, factor)
    if size >= 4:
        return _pair(size + (_fetch(data, 0, 4) << 3) & _MASK, _fetch(data, size - 4, 4), factor)
    if size:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[size - 1] << 2)
        return _shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _to_32(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    a = _fetch(data, 0) * _K1 & _MASK
    b = _fetch(data, 8)
    c = _fetch(data, size - 8) * factor & _MASK
    d = _fetch(data, size - 16) * _K2 & _MASK
    first = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    return _pair(first, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, factor)


def _to_64(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    a = _fetch(data, 0) * _K2 & _MASK
    b = _fetch(data, 8)
    c = _fetch(data, size - 8) * factor & _MASK
    d = _fetch(data, size - 16) * _K2 & _MASK
    y = _rotate(a + b & _MASK, 43) + _rotate(c, 30) + d & _MASK
    z = _pair(y, a + _rotate(b + _K2 & _MASK, 18) + c & _MASK, factor)
    e = _fetch(data, 16) * factor & _MASK
    f = _fetch(data, 24)
    g = (y + _fetch(data, size - 32)) * factor & _MASK
    h = (z + _fetch(data, size - 24)) * factor & _MASK
    first = _rotate(e + f & _MASK, 43) + _rotate(g, 30) + h & _MASK
    return _pair(first, e + _rotate(f + a & _MASK, 18) + g & _MASK, factor)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_fetch(data, at + 8 * index) for index in range(4))
    a = a + w & _MASK
    b = _rotate(b + a + z & _MASK, 21)
    c = a
    a = a + x + y & _MASK
    b = b + _rotate(a, 44) & _MASK
    return a + z & _MASK, b + c & _MASK


def farmhash64(data: bytes) -> int:
    """Return FarmHash64 of the data, unsigned."""
    size = len(data)
    if size <= 16:
        return _to_16(data)
    if size <= 32:
        return _to_32(data)
    if size <= 64:
        return _to_64(data)
    return _long(data)


_Pair = tuple[int, int]


def _round(
    data: bytes, at: int, x: int, y: int, z: int, v: _Pair, w: _Pair, factor: int, times: int
) -> tuple[int, int, int, _Pair, _Pair]:
    """Mix 64 bytes at data[at] into x, y, z, v and w; return these five."""
    x = _rotate(x + y + v[0] + _fetch(data, at + 8) & _MASK, 37) * factor & _MASK
    y = _rotate(y + v[1] + _fetch(data, at + 48) & _MASK, 42) * factor & _MASK
    x ^= w[1] * times & _MASK
    y = y + v[0] * times + _fetch(data, at + 40) & _MASK
    z = _rotate(z + w[0] & _MASK, 33) * factor & _MASK
    v = _weak(data, at, v[1] * factor & _MASK, x + w[0] & _MASK)
    w = _weak(data, at + 32, z + w[1] & _MASK, y + _fetch(data, at + 16) & _MASK)
    return z, y, x, v, w


def _long(data: bytes) -> int:
    seed = 81
    x = seed
    y = seed * _K1 + 113 & _MASK
    z = _shift_mix(y * _K2 + 113 & _MASK) * _K2 & _MASK
    v = w = (0, 0)
    x = x * _K2 + _fetch(data, 0) & _MASK
    end = (len(data) - 1) // 64 * 64
    last = end + ((len(data) - 1) & 63) - 63
    for at in range(0, end, 64):
        x, y, z, v, w = _round(data, at, x, y, z, v, w, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1) & _MASK
    w = (w[0] + ((len(data) - 1) & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    x, y, z, v, w = _round(data, last, x, y, z, v, w, factor, 9)
    first = _pair(v[0], w[0], factor) + _shift_mix(y) * _K0 + z & _MASK
    return _pair(first, _pair(v[1], w[1], factor) + x & _MASK, factor)


@lru_cache(_CACHED_MAX)
def nim_hash(data: bytes, murmur: bool = False) -> int:
    """Return Nim's `hash` of a string: FarmHash64, signed, or MurmurHash3 (`murmur`), unsigned."""
    if murmur:
        return murmur3_32(data)
    value = farmhash64(data)
    return value - (1 << 64) if value >> 63 else value
