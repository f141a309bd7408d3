"""`drupelet.base.memory` in bytecode, for MicroPython ports without the viper emitter."""

# CRC-32 (polynomial 0xEDB88320) of the 16 nibbles, as low and high 16 bits, which are small ints.
# fmt: off
_LOW = (0x0000, 0x1064, 0x20C8, 0x30AC, 0x4190, 0x51F4, 0x6158, 0x713C,
        0x8320, 0x9344, 0xA3E8, 0xB38C, 0xC2B0, 0xD2D4, 0xE278, 0xF21C)
_HIGH = (0x0000, 0x1DB7, 0x3B6E, 0x26D9, 0x76DC, 0x6B6B, 0x4DB2, 0x5005,
         0xEDB8, 0xF00F, 0xD6D6, 0xCB61, 0x9B64, 0x86D3, 0xA00A, 0xBDBD)
# fmt: on


def copy(
    target: "bytearray | memoryview",
    at: int,
    source: "bytes | bytearray | memoryview",
    start: int,
    size: int,
) -> None:
    """Copy `size` bytes; the areas may overlap."""
    assert 0 <= at <= at + size <= len(target)
    assert 0 <= start <= start + size <= len(source)
    if at <= start:
        for i in range(size):
            target[at + i] = source[start + i]
    else:
        i = size
        while i:
            i -= 1
            target[at + i] = source[start + i]


def equal(
    a: "bytes | bytearray | memoryview",
    at: int,
    b: "bytes | bytearray | memoryview",
    start: int,
    size: int,
) -> bool:
    """Return True if `size` bytes are the same."""
    assert 0 <= at <= at + size <= len(a)
    assert 0 <= start <= start + size <= len(b)
    for i in range(size):
        if a[at + i] != b[start + i]:
            return False
    return True


def fill(target: "bytearray | memoryview", at: int, size: int, value: int) -> None:
    """Set `size` bytes to `value`."""
    assert 0 <= at <= at + size <= len(target)
    assert 0 <= value <= 255
    for i in range(at, at + size):
        target[i] = value


def find(
    table: "bytes | bytearray | memoryview",
    stride: int,
    count: int,
    ids: "bytes | bytearray | memoryview",
    at: int,
    size: int,
) -> int:
    """Return the index of the first row that begins with ids[at:at+size], or -1."""
    assert 0 < size <= stride
    assert 0 <= count * stride <= len(table)
    assert 0 <= at <= at + size <= len(ids)
    row = 0
    for index in range(count):
        i = 0
        while table[row + i] == ids[at + i]:
            i += 1
            if i == size:
                return index
        row += stride
    return -1


def crc32_into(
    out: "bytearray | memoryview",
    at: int,
    data: "bytes | bytearray | memoryview",
    start: int,
    size: int,
    seed_zero: bool,
) -> None:
    """Store the CRC-32 of data[start:start+size] at out[at], little-endian."""
    assert 0 <= start <= start + size <= len(data)
    assert 0 <= at <= at + 4 <= len(out)
    low = high = 65535
    if not seed_zero:
        low ^= out[at] | out[at + 1] << 8
        high ^= out[at + 2] | out[at + 3] << 8
    for i in range(start, start + size):
        low ^= data[i]
        for _ in range(2):
            nibble = low & 15
            low = (low >> 4 | (high & 15) << 12) ^ _LOW[nibble]
            high = high >> 4 ^ _HIGH[nibble]
    out[at] = low & 255 ^ 255
    out[at + 1] = low >> 8 ^ 255
    out[at + 2] = high & 255 ^ 255
    out[at + 3] = high >> 8 ^ 255


def crc16(data: "bytes | bytearray | memoryview", start: int, size: int, crc: int) -> int:
    """Return the CRC-16/CCITT-FALSE of data[start:start+size], continued from `crc`."""
    assert 0 <= start <= start + size <= len(data)
    for i in range(start, start + size):
        # Divide by x^16 + x^12 + x^5 + 1, eight bits at once.
        x = crc >> 8 ^ data[i]
        x ^= x >> 4
        crc = (crc << 8 ^ x << 12 ^ x << 5 ^ x) & 65535
    return crc
