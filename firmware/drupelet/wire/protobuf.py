"""The proto3 wire format over buffers: a bounded reader, a writer, nothing allocated.

    message  fields in any order, each a tag and a value; the last of a singular field counts
    tag      varint of field number << 3 | kind; field numbers 1 .. 2^29 - 1
    value    kind 0 a varint, 1 eight bytes, 2 a varint length and as many bytes, 5 four bytes
    varint   7 bits a byte, lowest first, bit 7 set in all but the last; at most 64 bits

(Protocol Buffers documentation, "Encoding".) Kinds 3 and 4, the groups of proto2, have no length
to skip them by and no proto3 field can be one: malformed here, like kinds 6 and 7.

An int64 never becomes an int, which a 32-bit board keeps on its heap from 2^30 on: it stays eight
bytes, little-endian, two's complement; `varint_to_le8` and `put_le8` convert.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.base.memory import copy

VARINT = const(0)
FIXED64 = const(1)
BYTES = const(2)
FIXED32 = const(5)

# 64 bits in groups of 7; the tenth byte holds the last one.
VARINT_SIZE_MAX = const(10)
# What `7 bits more` may be added to and still be under 2^30.
_BEFORE_SHIFT_MAX = const(0x7FFFFF)
# A field number less its lowest 4 bits, which are in the tag's first byte.
_FIELD_REST_MAX = const(0x1FFFFFF)


def skip_varint(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Return the position behind the varint at `at`; E_PEER: cut off, or more than 64 bits."""
    last = at + VARINT_SIZE_MAX - 1
    while at < end:
        byte = buf[at]
        if at == last and byte > 1:
            return E_PEER
        at += 1
        if byte < 0x80:
            return at
    return E_PEER


def get_varint(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Return the value of the varint in buf[at:end], or -1 from 2^30 on; 0 where at is end."""
    value = 0
    while end > at:
        if value > _BEFORE_SHIFT_MAX:
            return -1
        end -= 1
        value = value << 7 | buf[end] & 0x7F
    return value


def size_before(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the size of a value of kind BYTES at `at`, whose tag and length stand before it."""
    start = at - 1
    while buf[start - 1] & 0x80:  # the last byte of the tag has no such bit
        start -= 1
    return get_varint(buf, start, at)


def varint_to_le8(
    buf: "bytes | bytearray | memoryview", at: int, end: int, out: "bytearray", out_at: int
) -> None:
    """Store the checked varint in buf[at:end] as 8 bytes, little-endian, at out[out_at]."""
    held = bits = 0
    for index in range(out_at, out_at + 8):
        while bits < 8 and at < end:
            held |= (buf[at] & 0x7F) << bits
            bits += 7
            at += 1
        out[index] = held & 0xFF
        held >>= 8
        bits -= 8


class Reader:
    """Walks the fields of one message in a buffer: `open`, then `next` until it is not positive.

    After a field: its `kind`, and its value in buf[start:start + size] (a varint as it stands).
    """

    def __init__(self) -> None:
        self.buf: "bytes | bytearray | memoryview" = b""
        self.end = self.kind = self.start = self.size = 0

    @property
    def at(self) -> int:
        """Behind the field, where the next one begins."""
        return self.start + self.size

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> None:
        """Begin with the message in buf[at:end]."""
        assert 0 <= at <= end <= len(buf)
        self.buf = buf
        self.start = at
        self.size = 0
        self.end = end

    def next(self) -> int:
        """Return the next field's number, 0 at the end, E_PEER where it is malformed, for good."""
        at = self.start + self.size
        end = self.end
        if at == end:
            return 0
        buf = self.buf
        start = skip_varint(buf, at, end)
        if start < 0:
            return E_PEER
        rest = get_varint(buf, at + 1, start)
        if rest < 0 or rest > _FIELD_REST_MAX:
            return E_PEER
        kind = buf[at] & 7
        if kind == FIXED64 or kind == FIXED32:  # noqa: SIM109 - a tuple is code
            size = 8 if kind == FIXED64 else 4
        else:
            behind = skip_varint(buf, start, end)
            if behind < 0 or kind not in (VARINT, BYTES):
                return E_PEER
            size = behind - start
            if kind == BYTES:
                size = get_varint(buf, start, behind)
                start = behind
        field = rest << 4 | buf[at] >> 3 & 15
        if field == 0 or size < 0 or size > end - start:
            return E_PEER
        self.kind = kind
        self.start = start
        self.size = size
        return field

    def is_true(self) -> bool:
        """Whether the varint just read is not zero: a bool of proto3."""
        for at in range(self.start, self.start + self.size):
            if self.buf[at] & 0x7F:
                return True
        return False


def varint_size(value: int) -> int:
    """Return how many bytes `value` (0 .. 2^30 - 1) takes as a varint."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def bytes_size(field: int, size: int) -> int:
    """Return what a field of `size` bytes takes with tag and length."""
    return varint_size(field << 3) + varint_size(size) + size


def le8_size(value: "bytes | bytearray | memoryview", at: int) -> int:
    """Return how many bytes the int64 in value[at:at+8] takes as a varint: 10 if negative."""
    top = at + 7
    while top > at and value[top] == 0:
        top -= 1
    bits = (top - at) * 8
    byte = value[top]
    while byte:
        byte >>= 1
        bits += 1
    return (bits + 6) // 7 or 1


def put_varint(buf: "bytearray | memoryview", at: int, value: int) -> int:
    """Write `value` (0 .. 2^30 - 1) at buf[at]; return the position behind it."""
    while value > 0x7F:
        buf[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    buf[at] = value
    return at + 1


def put_tag(buf: "bytearray | memoryview", at: int, field: int, kind: int) -> int:
    """Write a field's tag (number below 2^27) at buf[at]; return the position behind it."""
    return put_varint(buf, at, field << 3 | kind)


def put_le8(
    buf: "bytearray | memoryview", at: int, value: "bytes | bytearray | memoryview", value_at: int
) -> int:
    """Write the int64 in value[value_at:value_at+8] as a varint; return the position behind."""
    left = le8_size(value, value_at)
    end = value_at + 8
    held = bits = 0
    while left:
        if bits < 7 and value_at < end:
            held |= value[value_at] << bits
            bits += 8
            value_at += 1
        left -= 1
        buf[at] = held & 0x7F | (0x80 if left else 0)
        held >>= 7
        bits -= 7
        at += 1
    return at


def put_bytes(
    buf: "bytearray | memoryview",
    at: int,
    field: int,
    source: "bytes | bytearray | memoryview",
    start: int,
    size: int,
) -> int:
    """Write source[start:start+size] as a field, all of it; return the position behind it."""
    at = put_varint(buf, put_tag(buf, at, field, BYTES), size)
    copy(buf, at, source, start, size)
    return at + size
