"""The black box: logs events and counters in 512-byte blocks, each of which has its own CRC.

A segment is a 32-byte header and 1 to BOX_BLOCKS_MAX blocks, little-endian:

    header  0..3   4        5      6..7  8..15   16..19   20..25       26..27       28..31
            DRBX   version  flags  boot  device  segment  wall anchor  uncertainty  crc32 of 0..27
    block   0      1      2..3    4..5  6..11             12..15                 16 + 12 n
            0xB1   count  number  boot  t0 ms since boot  crc32 (itself zero)    events, zeros
    event   0..3            4     5  6..7  8..11
            dt ms after t0  code  a  b     c

The wall anchor is the wall clock in ms since the Unix epoch at the first block's t0, valid if bit
0 of flags is set; the uncertainty is in units of 10 ms. Counters are cumulative since boot: a lost
block costs resolution, never totals.

Events are added by `log`, `log_id`, `state` and `count`. The owner stores finished blocks:

    while box.ready:
        append box.header if box.starts, then box.block    # box.ends: the segment's last block
        box.take()
"""

import struct

from drupelet.base.compat import const
from drupelet.base.events import CODE_COUNTER, CODE_STATE, COUNT_LOST
from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_BLOCKS_MAX,
    BOX_HEADER_SIZE,
    COUNTERS_MAX,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet.base.memory import add_u48_le, copy, crc32_into, fill
from drupelet.base.time_ms import elapsed_ms

# No counter has an index from 18 to 63, so the row of counter 64 follows that of counter 17.
COMMON = const(18)
GAP = const(46)

_BLOCK_MAGIC = const(0xB1)
_WALL_KNOWN = const(1)
_UNCERTAIN = const(0xFFFF)
_NO_STATE = const(255)
# An event this long after its block began opens a new block, so that dt stays a small int.
_DT_END_MS = const(1 << 28)
# A counter's row: changed since it was written u8, value u48 little-endian.
ROW_SIZE = const(7)
_MAGIC = b"DRBX\x01"  # with the version
# A longer time between two calls means that the clock went back.
_ELAPSED_END_MS = const(1 << 29)


class BlackBox:
    """Events and counters of one device since one boot; two blocks and the counters in RAM."""

    def __init__(self, device_id: bytes, boot: int, blocks: int = 4) -> None:
        assert 0 < len(device_id) <= 8 and 0 < blocks <= BOX_BLOCKS_MAX
        self.boot = boot
        self.lost = 0
        self.ready = False  # `block` is finished and waits for `take`
        self.starts = False  # `block` is its segment's first: store `header` before it
        self.ends = False  # `block` is its segment's last
        self.header = bytearray(BOX_HEADER_SIZE)
        copy(self.header, 0, _MAGIC, 0, len(_MAGIC))
        copy(self.header, 8, device_id, 0, len(device_id))
        self.block = bytearray(BLOCK_SIZE)
        self.writing = bytearray(BLOCK_SIZE)
        self._blocks = blocks
        self.events = 0  # events in `writing`
        self.block_number = 0
        self.segment_number = 0
        self.dt_ms = 0
        # Ms since boot u48, then the wall clock minus that, modulo 2^48; little-endian.
        self.clocks = bytearray(12)
        self.last_ms = -1
        self.wall_flags = 0  # a flag of headers
        self.uncertainty = _UNCERTAIN
        self.power_state = _NO_STATE
        self.counters = bytearray(ROW_SIZE * COUNTERS_MAX)

    # --- events in ---

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Log an event; its c is high << 16 | low. If both blocks are full, count it as lost."""
        at = self._event(now_ms, code, a, b)
        if at:
            struct.pack_into("<HH", self.writing, at, low, high)
            self._close_if_full()

    def log_id(
        self, now_ms: int, code: int, a: int, b: int, ids: "bytes | bytearray | memoryview",
        at: int,
    ) -> None:  # fmt: skip
        """Log an event whose field c is the first 4 bytes of the message id at ids[at]."""
        high = ids[at] << 8 | ids[at + 1]
        self.log(now_ms, code, a, b, high, ids[at + 2] << 8 | ids[at + 3])

    def state(self, now_ms: int, power_state: int) -> None:
        """Enter a power state; the time since the last call counts for the previous state."""
        self._tick(now_ms)
        if power_state != self.power_state:
            self.power_state = power_state
            self.log(now_ms, CODE_STATE, power_state, 0, 0, 0)

    def count(self, index: int, amount: int) -> None:
        """Add 0 <= amount < 2^29 to a counter."""
        if amount:
            at = ROW_SIZE * (index if index < COMMON else index - GAP)
            self.counters[at] = 1
            add_u48_le(self.counters, at + 1, amount)

    def wall(self, now_ms: int, anchor: "bytes | bytearray", uncertainty: int) -> None:
        """Set the wall clock: 6 bytes, little-endian, ms since the Unix epoch.

        uncertainty: in units of 10 ms.
        """
        self._tick(now_ms)
        borrow = 0
        for i in range(6):
            value = anchor[i] - self.clocks[i] - borrow
            self.clocks[6 + i] = value & 255
            borrow = 1 if value < 0 else 0
        self.wall_flags = _WALL_KNOWN
        self.uncertainty = uncertainty

    def flush_counters(self, now_ms: int) -> bool:
        """Log the counters that changed; False if both blocks are full: `take` and call again."""
        self._tick(now_ms)
        counters = self.counters
        for at in range(0, len(counters), ROW_SIZE):
            if counters[at]:
                if not self._has_room():
                    return False
                counters[at] = 0
                target = self._event(now_ms, CODE_COUNTER, counter_at(at), 0)
                copy(self.writing, target - 2, counters, at + 5, 2)
                copy(self.writing, target, counters, at + 1, 4)
                self._close_if_full()
        return True

    # --- blocks out ---

    def take(self) -> None:
        """Release `block`, which the owner has stored."""
        self.ready = self.starts = self.ends = False
        self._close_if_full()

    def finish(self) -> bool:
        """End the segment; False if a block waits for `take` first.

        True: the last block is ready now, or was taken already.
        """
        if self.ready:
            return False
        if self.events:
            self._close(True)
        elif self.block_number:
            self.segment_number += 1
            self.block_number = 0
        return True

    # --- how it is done ---

    def _tick(self, now_ms: int) -> None:
        elapsed = elapsed_ms(now_ms, self.last_ms) if self.last_ms >= 0 else 0
        if elapsed >= _ELAPSED_END_MS:
            return
        self.last_ms = now_ms
        add_u48_le(self.clocks, 0, elapsed)
        if self.dt_ms < _DT_END_MS:
            self.dt_ms += elapsed
        if self.power_state != _NO_STATE:
            self.count(self.power_state, elapsed)

    def _has_room(self) -> bool:
        return not self.ready or (self.events < EVENTS_PER_BLOCK and self.dt_ms < _DT_END_MS)

    def _event(self, now_ms: int, code: int, a: int, b: int) -> int:
        """Begin an event in `writing`; return the offset of its field c, 0 if it is lost."""
        if now_ms != self.last_ms:
            self._tick(now_ms)
        if not self._has_room():
            self.lost += 1
            self.count(COUNT_LOST, 1)
            return 0
        if self.events and self.dt_ms >= _DT_END_MS:
            self._close(False)
        if not self.events:
            copy(self.writing, 6, self.clocks, 0, 6)
            self.dt_ms = 0
        at = BLOCK_HEADER_SIZE + self.events * EVENT_SIZE
        self.events += 1
        struct.pack_into("<IBBH", self.writing, at, self.dt_ms, code, a, b)
        return at + 8

    def _close_if_full(self) -> None:
        if self.events == EVENTS_PER_BLOCK and not self.ready:
            self._close(False)

    def _close(self, last: bool) -> None:
        """Finish the block `writing` and swap it with `block`."""
        block = self.writing
        struct.pack_into(
            "<BBHH", block, 0, _BLOCK_MAGIC, self.events, self.block_number, self.boot & 0xFFFF
        )
        fill(block, 12, 4, 0)
        crc32_into(block, 12, block, 0, BLOCK_SIZE, True)
        self.writing = self.block
        self.block = block
        fill(self.writing, 0, BLOCK_SIZE, 0)
        self.events = 0
        self.ready = True
        self.starts = self.block_number == 0
        if self.starts:
            self._make_header()
        self.block_number += 1
        self.ends = last or self.block_number == self._blocks
        if self.ends:
            self.segment_number += 1
            self.block_number = 0

    def _make_header(self) -> None:
        header = self.header
        struct.pack_into("<BH", header, 5, self.wall_flags, self.boot & 0xFFFF)
        struct.pack_into("<I", header, 16, self.segment_number)
        carry = 0
        for i in range(6):
            if self.wall_flags:
                carry += self.block[6 + i] + self.clocks[6 + i]
            header[20 + i] = carry & 255
            carry >>= 8
        struct.pack_into("<H", header, 26, self.uncertainty)
        crc32_into(header, 28, header, 0, 28, True)


def counter_at(at: int) -> int:
    """Return the index of the counter whose row begins at offset `at`."""
    row = at // ROW_SIZE
    return row if row < COMMON else row + GAP
