"""Timestamps as deltas: the zigzag varint of the difference to the previous timestamp.

A timestamp is 8 bytes, big-endian, 0 .. 2^63 - 1. It is never turned into an int, which a 32-bit
board would allocate. zigzag(n) = 2n for n >= 0, -2n - 1 for n < 0; varints as in `protobuf`.

The codec's scratch has the previous timestamp at `last_at` (zeros at the beginning of a frame);
its first 8 bytes hold the delta, little-endian, while it is written or read.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.wire.protobuf import put_le8, skip_varint, varint_to_le8

STAMP_SIZE = const(8)
# 64 bits in groups of 7.
DELTA_SIZE_MAX = const(10)


def put_stamp(
    frame: "bytearray", at: int, scratch: "bytearray", last_at: int,
    stamp: "bytes | bytearray | memoryview",
) -> int:  # fmt: skip
    """Write a timestamp, 8 bytes, as a delta to frame[at]; return its end."""
    borrow = 0
    for index in range(8):
        digit = stamp[7 - index] - scratch[last_at + 7 - index] - borrow
        borrow = 1 if digit < 0 else 0
        scratch[index] = digit & 0xFF
    flip = 0xFF if scratch[7] & 0x80 else 0
    carry = 0
    for index in range(8):
        digit = scratch[index] << 1 | carry
        carry = digit >> 8
        scratch[index] = digit & 0xFF ^ flip
    return put_le8(frame, at, scratch, 0)


def get_stamp(
    frame: "bytes | bytearray | memoryview", at: int, end: int, scratch: "bytearray", last_at: int
) -> int:
    """Add the delta at frame[at] to the previous timestamp; return the delta's end, or E_PEER.

    E_PEER: the delta is truncated, too long, or the sum is outside 0 .. 2^63 - 1.
    """
    delta_end = skip_varint(frame, at, end)
    if delta_end < 0:
        return E_PEER
    varint_to_le8(frame, at, delta_end, scratch, 0)
    flip = 0xFF if scratch[0] & 1 else 0
    carry = 0
    for index in range(8):
        low = scratch[index] >> 1
        if index < 7:
            low |= (scratch[index + 1] & 1) << 7
        digit = scratch[last_at + 7 - index] + (low ^ flip) + carry
        carry = digit >> 8
        scratch[last_at + 7 - index] = digit & 0xFF
    return E_PEER if scratch[last_at] & 0x80 else delta_end
