"""`drupelet.base.memory` for CPython, where slices are cheap and `binascii` is in C."""

from binascii import crc32, crc_hqx


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
    target[at : at + size] = source[start : start + size]


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
    return a[at : at + size] == b[start : start + size]


def fill(target: "bytearray | memoryview", at: int, size: int, value: int) -> None:
    """Set `size` bytes to `value`."""
    assert 0 <= at <= at + size <= len(target)
    assert 0 <= value <= 255
    target[at : at + size] = bytes((value,)) * size


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
    wanted = bytes(ids[at : at + size])
    whole = bytes(table) if isinstance(table, memoryview) else table
    end = count * stride
    found = whole.find(wanted, 0, end)
    while found >= 0:
        index, within = divmod(found, stride)
        if within == 0:
            return index
        found = whole.find(wanted, (index + 1) * stride, end)
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
    seed = 0 if seed_zero else int.from_bytes(out[at : at + 4], "little")
    out[at : at + 4] = crc32(data[start : start + size], seed).to_bytes(4, "little")


def crc16(data: "bytes | bytearray | memoryview", start: int, size: int, crc: int) -> int:
    """Return the CRC-16/CCITT-FALSE of data[start:start+size], continued from `crc`."""
    assert 0 <= start <= start + size <= len(data)
    return crc_hqx(data[start : start + size], crc)
