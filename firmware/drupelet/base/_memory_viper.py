# mypy: disable-error-code="arg-type, name-defined, no-untyped-def"
# ruff: noqa: ANN202, F821
"""`drupelet.base.memory` in machine code: MicroPython's viper, if the port has the emitter.

Viper ints have the width of the machine: no step depends on more than 32 bits, and words that are
shifted right are masked. `ptr8`, `ptr32` and `uint` exist for the viper compiler only, which does
not accept `-> None`.
"""

import micropython

# CRC-32 (polynomial 0xEDB88320) of the 16 nibbles. A bytearray, because its data is aligned.
_TABLE = bytearray(
    b"\x00\x00\x00\x00\x64\x10\xb7\x1d\xc8\x20\x6e\x3b\xac\x30\xd9\x26"
    b"\x90\x41\xdc\x76\xf4\x51\x6b\x6b\x58\x61\xb2\x4d\x3c\x71\x05\x50"
    b"\x20\x83\xb8\xed\x44\x93\x0f\xf0\xe8\xa3\xd6\xd6\x8c\xb3\x61\xcb"
    b"\xb0\xc2\x64\x9b\xd4\xd2\xd3\x86\x78\xe2\x0a\xa0\x1c\xf2\xbd\xbd"
)


@micropython.viper
def copy(target: object, at: int, source: object, start: int, size: int):
    """Copy `size` bytes; the areas may overlap."""
    assert 0 <= at <= at + size <= int(len(target))
    assert 0 <= start <= start + size <= int(len(source))
    to = ptr8(target)
    of = ptr8(source)
    if at <= start:
        for i in range(size):
            to[at + i] = of[start + i]
    else:
        n = size
        while n > 0:
            n -= 1
            to[at + n] = of[start + n]


@micropython.viper
def equal(a: object, at: int, b: object, start: int, size: int) -> bool:
    """Return True if `size` bytes are the same."""
    assert 0 <= at <= at + size <= int(len(a))
    assert 0 <= start <= start + size <= int(len(b))
    one = ptr8(a)
    other = ptr8(b)
    for i in range(size):
        if one[at + i] != other[start + i]:
            return False
    return True


@micropython.viper
def fill(target: object, at: int, size: int, value: int):
    """Set `size` bytes to `value`."""
    assert 0 <= at <= at + size <= int(len(target))
    assert 0 <= value <= 255
    to = ptr8(target)
    for i in range(size):
        to[at + i] = value


@micropython.viper
def find(table: object, stride: int, count: int, ids: object, at: int, size: int) -> int:
    """Return the index of the first row that begins with ids[at:at+size], or -1."""
    assert 0 < size <= stride
    assert 0 <= count * stride <= int(len(table))
    assert 0 <= at <= at + size <= int(len(ids))
    rows = ptr8(table)
    wanted = ptr8(ids)
    row = 0
    for index in range(count):
        i = 0
        while i < size and rows[row + i] == wanted[at + i]:
            i += 1
        if i == size:
            return index
        row += stride
    return -1


@micropython.viper
def crc32_into(out: object, at: int, data: object, start: int, size: int, seed_zero: bool):
    """Store the CRC-32 of data[start:start+size] at out[at], little-endian."""
    assert 0 <= start <= start + size <= int(len(data))
    assert 0 <= at <= at + 4 <= int(len(out))
    table = ptr32(_TABLE)
    of = ptr8(data)
    to = ptr8(out)
    crc = -1
    if not seed_zero:
        crc ^= to[at] | to[at + 1] << 8 | to[at + 2] << 16 | to[at + 3] << 24
    for i in range(start, start + size):
        crc ^= of[i]
        # The mask removes sign bits, and everything above bit 31 on 64-bit machines.
        crc = crc >> 4 & 0x0FFFFFFF ^ int(table[crc & 15])
        crc = crc >> 4 & 0x0FFFFFFF ^ int(table[crc & 15])
    crc ^= -1
    to[at] = crc
    to[at + 1] = crc >> 8
    to[at + 2] = crc >> 16
    to[at + 3] = crc >> 24


@micropython.viper
def crc16(data: object, start: int, size: int, crc: int) -> int:
    """Return the CRC-16/CCITT-FALSE of data[start:start+size], continued from `crc`."""
    assert 0 <= start <= start + size <= int(len(data))
    of = ptr8(data)
    for i in range(start, start + size):
        # Divide by x^16 + x^12 + x^5 + 1, eight bits at once.
        x = crc >> 8 ^ of[i]
        x ^= x >> 4
        crc = (crc << 8 ^ x << 12 ^ x << 5 ^ x) & 65535
    return crc
