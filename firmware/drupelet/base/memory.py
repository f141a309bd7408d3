"""Byte operations that allocate nothing: copy, compare, find, checksums, integers.

One interface with three implementations that give equal results, chosen at import: viper if the
port has the emitter, else bytecode; slices and `binascii` on CPython.

    copy(target, at, source, start, size)         size bytes, the areas may overlap
    equal(a, at, b, start, size) -> bool          not in constant time: never for a secret
    fill(target, at, size, value)                 value 0..255
    find(table, stride, count, ids, at, size)     index of the first of `count` rows of `stride`
                                                  bytes that begins with ids[at:at+size], or -1
    crc32_into(out, at, data, start, size, seed_zero)
                                                  IEEE CRC-32 (as zlib), 4 bytes little-endian
                                                  at out[at]; continues that if not seed_zero
    crc16(data, start, size, crc) -> int          CRC-16/CCITT-FALSE; begin with crc 0xFFFF

An offset outside a buffer is our own mistake and fails an assertion: check sizes from a peer
first. Ints are at most 2^30 - 1, in both directions: larger ones are heap objects on a 32-bit
board.
"""

from drupelet.base.compat import ON_BOARD

if not ON_BOARD:
    from drupelet.base._memory_slices import copy, crc16, crc32_into, equal, fill, find
else:
    # SyntaxError: the compiler has no viper; ValueError: an .mpy for another processor.
    try:
        from drupelet.base._memory_viper import copy, crc16, crc32_into, equal, fill, find
    except (ImportError, SyntaxError, ValueError):
        from drupelet.base._memory_plain import copy, crc16, crc32_into, equal, fill, find

__all__ = (
    "add_u48_le",
    "copy",
    "crc16",
    "crc32_into",
    "equal",
    "fill",
    "find",
    "get_u16",
    "get_u16_le",
    "get_u32",
    "get_u32_le",
    "put_u16",
    "put_u16_le",
    "put_u32",
    "put_u32_le",
)


def get_u16(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the 2-byte big-endian integer at buf[at]."""
    return buf[at] << 8 | buf[at + 1]


def put_u16(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Store `value` (0..65535) at buf[at] in 2 bytes, big-endian."""
    buf[at] = value >> 8
    buf[at + 1] = value & 255


def get_u32(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the 4-byte big-endian integer at buf[at]; allocates from 2^30 on."""
    return buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]


def put_u32(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Store `value` (0..2^32 - 1) at buf[at] in 4 bytes, big-endian."""
    buf[at] = value >> 24
    buf[at + 1] = value >> 16 & 255
    buf[at + 2] = value >> 8 & 255
    buf[at + 3] = value & 255


def get_u16_le(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the 2-byte little-endian integer at buf[at]."""
    return buf[at] | buf[at + 1] << 8


def put_u16_le(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Store `value` (0..65535) at buf[at] in 2 bytes, little-endian."""
    buf[at] = value & 255
    buf[at + 1] = value >> 8


def get_u32_le(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the 4-byte little-endian integer at buf[at]; allocates from 2^30 on."""
    return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16 | buf[at + 3] << 24


def put_u32_le(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Store `value` (0..2^32 - 1) at buf[at] in 4 bytes, little-endian."""
    buf[at] = value & 255
    buf[at + 1] = value >> 8 & 255
    buf[at + 2] = value >> 16 & 255
    buf[at + 3] = value >> 24


def add_u48_le(buf: "bytearray | memoryview", at: int, amount: int) -> None:
    """Add `amount` (0..2^29 - 1) to the 6-byte little-endian counter at buf[at], modulo 2^48."""
    end = at + 6
    while amount and at < end:
        # The carry plus 16 bits stays below 2^30, so nothing is allocated.
        amount += buf[at] | buf[at + 1] << 8
        buf[at] = amount & 255
        buf[at + 1] = amount >> 8 & 255
        amount >>= 16
        at += 2
