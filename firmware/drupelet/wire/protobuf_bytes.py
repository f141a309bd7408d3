# host only: whole values in place of buffers
"""The proto3 wire format for hosts: the fields of `protobuf` as bytes and integers."""

from drupelet.base.errors import PeerError
from drupelet.wire.protobuf import BYTES, VARINT, Reader, varint_to_le8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def varint(value: int) -> bytes:
    """Return `value` as a varint of up to 64 bits; a negative one in two's complement."""
    out = bytearray()
    value %= 1 << 64
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bytes_field(number: int, content: bytes) -> bytes:
    """Return a whole field of kind BYTES."""
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def fields(message: bytes) -> "Iterator[tuple[int, int, bytes | int]]":
    """Yield number, kind and value of each field; a varint's value is unsigned.

    Raises PeerError from a malformed field on.
    """
    reader = Reader()
    reader.open(message, 0, len(message))
    while number := reader.next():
        if number < 0:
            raise PeerError("not a protobuf")
        value: bytes | int = message[reader.start : reader.start + reader.size]
        if reader.kind == VARINT:
            out = bytearray(8)
            varint_to_le8(message, reader.start, reader.start + reader.size, out, 0)
            value = int.from_bytes(out, "little")
        yield number, reader.kind, value
