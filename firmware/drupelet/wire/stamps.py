"""Timestamps as differences: a zigzag varint from one 8-byte timestamp to the next.

A timestamp is 8 bytes, big-endian, 0 .. 2^63 - 1; it never becomes an int, which a 32-bit board
keeps on its heap. zigzag(n) = 2n for n >= 0, -2n - 1 for n < 0; varints as in `protobuf`.
"""

from drupelet._compat import const
from drupelet.errors import E_PEER
from drupelet.wire.protobuf import put_le8, skip_varint, varint_to_le8

STAMP_SIZE = const(8)
# 64 bits in groups of 7.
DELTA_SIZE_MAX = const(10)


class Stamps:
    """The timestamps of one frame's messages, in order; `stamp` is the one that came last."""

    def __init__(self) -> None:
        # The timestamp; behind it a difference, little-endian, that is being written or read.
        self.stamp = bytearray(2 * STAMP_SIZE)

    def begin(self) -> None:
        """A frame begins: its first timestamp is the difference to 0."""
        for index in range(8):
            self.stamp[index] = 0

    def put(
        self, frame: "bytearray", at: int, stamp: "bytes | bytearray | memoryview", stamp_at: int
    ) -> int:
        """Write the difference to stamp[stamp_at:stamp_at+8]; the position behind it.

        `stamp` stays what it was until `take` is called.
        """
        here = self.stamp
        borrow = 0
        for index in range(8):
            digit = stamp[stamp_at + 7 - index] - here[7 - index] - borrow
            borrow = 1 if digit < 0 else 0
            here[8 + index] = digit & 0xFF
        flip = 0xFF if here[15] & 0x80 else 0
        carry = 0
        for index in range(8, 16):
            digit = here[index] << 1 | carry
            carry = digit >> 8
            here[index] = digit & 0xFF ^ flip
        return put_le8(frame, at, here, 8)

    def take(self, stamp: "bytes | bytearray | memoryview", stamp_at: int) -> None:
        """The timestamp that was put is in the frame."""
        for index in range(8):
            self.stamp[index] = stamp[stamp_at + index]

    def get(self, frame: "bytes | bytearray | memoryview", at: int, end: int) -> int:
        """Add the difference at frame[at] to `stamp`; the position behind it, or E_PEER.

        E_PEER: it is cut off, too long, or leads out of 0 .. 2^63 - 1.
        """
        behind = skip_varint(frame, at, end)
        if behind < 0:
            return E_PEER
        here = self.stamp
        varint_to_le8(frame, at, behind, here, 8)
        flip = 0xFF if here[8] & 1 else 0
        carry = 0
        for index in range(8):
            low = here[8 + index] >> 1
            if index < 7:
                low |= (here[9 + index] & 1) << 7
            digit = here[7 - index] + (low ^ flip) + carry
            carry = digit >> 8
            here[7 - index] = digit & 0xFF
        return E_PEER if here[0] & 0x80 else behind
