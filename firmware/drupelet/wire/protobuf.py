"""Reader and writer for the proto3 wire format over buffers, without allocation.

    message  fields in any order, each a tag and a value; the last value of a singular field wins
    tag      varint of field number << 3 | kind; field numbers 1 .. 2^29 - 1
    value    kind 0 a varint, 1 eight bytes, 2 a varint length and as many bytes, 5 four bytes
    varint   7 bits a byte, lowest first, bit 7 set in all but the last; at most 64 bits

(Protocol Buffers documentation, "Encoding".) Kinds 3 and 4 are proto2 groups: they have no length,
so they cannot be skipped, and proto3 has none. They count as malformed, like kinds 6 and 7.

An int64 is never turned into an int, because a 32-bit board allocates ints from 2^30 on. It stays
8 bytes, little-endian, two's complement; `varint_to_le8` and `put_le8` convert.
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
# The largest value that is still below 2^30 after a shift by 7 bits.
_BEFORE_SHIFT_MAX = const(0x7FFFFF)
# The largest field number without its lowest 4 bits, which are in the tag's first byte.
_FIELD_REST_MAX = const(0x1FFFFFF)


def skip_varint(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Return the end of the varint at `at`; E_PEER if it is truncated or exceeds 64 bits."""
    last_at = at + VARINT_SIZE_MAX - 1
    while at < end:
        byte = buf[at]
        if at == last_at and byte > 1:
            return E_PEER
        at += 1
        if byte < 0x80:
            return at
    return E_PEER


def get_varint(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Return the value of the varint in buf[at:end], -1 if it is 2^30 or more, 0 if at == end."""
    value = 0
    while end > at:
        if value > _BEFORE_SHIFT_MAX:
            return -1
        end -= 1
        value = value << 7 | buf[end] & 0x7F
    return value


def size_before(buf: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the size of the BYTES value at `at`, read from the length in front of it."""
    start = at - 1
    while buf[start - 1] & 0x80:  # the tag's last byte does not have this bit
        start -= 1
    return get_varint(buf, start, at)


def varint_to_le8(
    buf: "bytes | bytearray | memoryview", at: int, end: int, out: "bytearray", out_at: int
) -> None:
    """Store the valid varint in buf[at:end] as 8 bytes, little-endian, at out[out_at]."""
    buffered_bits = bit_count = 0
    for index in range(out_at, out_at + 8):
        while bit_count < 8 and at < end:
            buffered_bits |= (buf[at] & 0x7F) << bit_count
            bit_count += 7
            at += 1
        out[index] = buffered_bits & 0xFF
        buffered_bits >>= 8
        bit_count -= 8


class Reader:
    """Iterates over the fields of one message: `open`, then `next` until it is not positive.

    After `next`, the field's kind is in `kind` and its value in buf[start:start + size]; a varint
    is not decoded.
    """

    def __init__(self) -> None:
        self.buf: "bytes | bytearray | memoryview" = b""
        self.end = self.kind = self.start = self.size = 0

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> None:
        """Start at the message in buf[at:end]."""
        assert 0 <= at <= end <= len(buf)
        self.buf = buf
        self.start = at
        self.size = 0
        self.end = end

    def next(self) -> int:
        """Return the next field's number, 0 at the end, E_PEER from a malformed field on."""
        at = self.start + self.size
        end = self.end
        if at == end:
            return 0
        buf = self.buf
        start = skip_varint(buf, at, end)
        if start < 0:
            return E_PEER
        field_high = get_varint(buf, at + 1, start)
        if field_high < 0 or field_high > _FIELD_REST_MAX:
            return E_PEER
        kind = buf[at] & 7
        if kind == FIXED64 or kind == FIXED32:  # noqa: SIM109 - a tuple is code
            size = 8 if kind == FIXED64 else 4
        else:
            value_end = skip_varint(buf, start, end)
            if value_end < 0 or kind not in (VARINT, BYTES):
                return E_PEER
            size = value_end - start
            if kind == BYTES:
                size = get_varint(buf, start, value_end)
                start = value_end
        field = field_high << 4 | buf[at] >> 3 & 15
        if field == 0 or size < 0 or size > end - start:
            return E_PEER
        self.kind = kind
        self.start = start
        self.size = size
        return field

    def is_true(self) -> bool:
        """Whether the current varint is not zero: the value of a proto3 bool."""
        for at in range(self.start, self.start + self.size):
            if self.buf[at] & 0x7F:
                return True
        return False


def varint_size(value: int) -> int:
    """Return the size of `value` (0 .. 2^30 - 1) as a varint, in bytes."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def bytes_size(field: int, size: int) -> int:
    """Return the size of a BYTES field with `size` bytes of content, tag and length included."""
    return varint_size(field << 3) + varint_size(size) + size


def le8_size(value: "bytes | bytearray | memoryview", at: int) -> int:
    """Return the size of the int64 in value[at:at+8] as a varint: 10 bytes if it is negative."""
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
    """Write `value` (0 .. 2^30 - 1) as a varint at buf[at]; return its end."""
    while value > 0x7F:
        buf[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    buf[at] = value
    return at + 1


def put_tag(buf: "bytearray | memoryview", at: int, field: int, kind: int) -> int:
    """Write the tag of a field (number below 2^27) at buf[at]; return its end."""
    return put_varint(buf, at, field << 3 | kind)


def put_le8(
    buf: "bytearray | memoryview", at: int, value: "bytes | bytearray | memoryview", value_at: int
) -> int:
    """Write the int64 in value[value_at:value_at+8] as a varint at buf[at]; return its end."""
    bytes_left = le8_size(value, value_at)
    end = value_at + 8
    buffered_bits = bit_count = 0
    while bytes_left:
        if bit_count < 7 and value_at < end:
            buffered_bits |= value[value_at] << bit_count
            bit_count += 8
            value_at += 1
        bytes_left -= 1
        buf[at] = buffered_bits & 0x7F | (0x80 if bytes_left else 0)
        buffered_bits >>= 7
        bit_count -= 7
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
    """Write source[start:start+size] as a BYTES field at buf[at]; return its end."""
    at = put_varint(buf, put_tag(buf, at, field, BYTES), size)
    copy(buf, at, source, start, size)
    return at + size
