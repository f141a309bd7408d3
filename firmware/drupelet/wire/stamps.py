"""Timestamps as differences: a zigzag varint from one 8-byte timestamp to the next.

A timestamp is 8 bytes, big-endian, 0 .. 2^63 - 1; it never becomes an int, which a 32-bit board
keeps on its heap. zigzag(n) = 2n for n >= 0, -2n - 1 for n < 0; varints as in `protobuf`.

The one before, zeros when a frame begins, stands at `last_at` of the codec's scratch, whose first
8 bytes hold a difference, little-endian, while it is written or read.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER
from drupelet.wire.protobuf import put_le8, skip_varint, varint_to_le8

STAMP_SIZE = const(8)
# 64 bits in groups of 7.
DELTA_SIZE_MAX = const(10)


def put_stamp(
    frame: "bytearray", at: int, scratch: "bytearray", last_at: int,
    stamp: "bytes | bytearray | memoryview", stamp_at: int,
) -> int:  # fmt: skip
    """Write the difference from the last to stamp[stamp_at:stamp_at+8]; the position behind it."""
    borrow = 0
    for index in range(8):
        digit = stamp[stamp_at + 7 - index] - scratch[last_at + 7 - index] - borrow
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
    """Add the difference at frame[at] to the last timestamp; the position behind it, or E_PEER.

    E_PEER: it is cut off, too long, or leads out of 0 .. 2^63 - 1.
    """
    behind = skip_varint(frame, at, end)
    if behind < 0:
        return E_PEER
    varint_to_le8(frame, at, behind, scratch, 0)
    flip = 0xFF if scratch[0] & 1 else 0
    carry = 0
    for index in range(8):
        low = scratch[index] >> 1
        if index < 7:
            low |= (scratch[index + 1] & 1) << 7
        digit = scratch[last_at + 7 - index] + (low ^ flip) + carry
        carry = digit >> 8
        scratch[last_at + 7 - index] = digit & 0xFF
    return E_PEER if scratch[last_at] & 0x80 else behind
