"""The black box: what a device did, in 512-byte blocks that any reader can check on its own.

A segment is a 32-byte header and 1 to BOX_BLOCKS_MAX blocks, little-endian:

    header  0..3   4        5      6..7  8..15   16..19   20..25       26..27       28..31
            DRBX   version  flags  boot  device  segment  wall anchor  uncertainty  crc32 of 0..27
    block   0      1      2..3    4..5  6..11             12..15                 16 + 12 n
            0xB1   count  number  boot  t0 ms since boot  crc32 (itself zero)    events, zeros
    event   0..3            4     5  6..7  8..11
            dt ms after t0  code  a  b     c

The wall anchor is the wall clock in ms since the Unix epoch at the first block's t0; flags bit 0
says that it is known; the uncertainty is in units of 10 ms. Counters are cumulative since boot: a
lost block costs resolution, never totals.

Events go in by `log`, `log_id`, `state`, `count`; blocks come out without a callback:

    while box.ready:                     # `header` first when box.starts
        append box.block; box.take()     # the segment ends with it when box.ends (asked before)
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
from drupelet.base.memory import add_u48_le, copy, crc32_into, equal, fill
from drupelet.base.time_ms import elapsed_ms

# No counter has the indices 18 to 63, so none has a row here: those from 64 on follow those below.
_COMMON = const(18)
_GAP = const(46)

_BLOCK_MAGIC = const(0xB1)
_WALL_KNOWN = const(1)
_UNCERTAIN = const(0xFFFF)
_NO_STATE = const(255)
# An event this long after its block began opens a new block: dt stays a small int.
_DT_END_MS = const(1 << 28)
# A counter: whether it changed since it was written u8, value u48 little-endian.
_ROW_SIZE = const(7)
_ZEROS = bytes(6)
# In a snapshot for deep sleep, what stands before the events: events and blocks so far, power
# state, flags, segment, dt, uncertainty, the two clocks of `_now`; then t0 of the block. Behind
# the events follow the counters that are not 0, an index and a row each.
_REST = "<BBBBIIH12s"
_REST_SIZE = const(32)
_T0_AT = const(26)
_MAGIC = b"DRBX\x01"  # and the version
# More than this between two calls is a clock that went back.
_ELAPSED_END_MS = const(1 << 29)


class BlackBox:
    """Events and counters of one device since one boot; two blocks and the counters in RAM."""

    def __init__(self, device_id: bytes, boot: int, blocks: int = 4) -> None:
        assert 0 < len(device_id) <= 8 and 0 < blocks <= BOX_BLOCKS_MAX
        self.boot = boot
        self.lost = 0
        self.ready = False  # `block` is finished and waits for `take`
        self.starts = False  # it is its segment's first: `header` goes before it
        self.ends = False  # it is its segment's last
        self.header = bytearray(BOX_HEADER_SIZE)
        copy(self.header, 0, _MAGIC, 0, len(_MAGIC))
        copy(self.header, 8, device_id, 0, len(device_id))
        self.block = bytearray(BLOCK_SIZE)
        self._writing = bytearray(BLOCK_SIZE)
        self._blocks = blocks
        self._count = 0  # events in the block that is written
        self._block_number = 0
        self.segment_number = 0
        self._dt_ms = 0
        # Ms since boot, then the wall clock less that, modulo 2^48; both little-endian.
        self._now = bytearray(12)
        self._last_ms = -1
        self._wall_known = 0  # a flag of headers
        self._uncertainty = _UNCERTAIN
        self._state = _NO_STATE
        self._counters = bytearray(_ROW_SIZE * COUNTERS_MAX)

    # --- events in ---

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Note an event; c is handed in as its two 16-bit halves. Full: counted as lost."""
        at = self._event(now_ms, code, a, b)
        if at:
            struct.pack_into("<HH", self._writing, at, low, high)
            self._close_if_full()

    def log_id(
        self, now_ms: int, code: int, a: int, b: int, ids: "bytes | bytearray | memoryview",
        at: int,
    ) -> None:  # fmt: skip
        """Note an event whose c is the first 4 bytes of the message id at ids[at]."""
        target = self._event(now_ms, code, a, b)
        if target:
            for i in range(4):
                self._writing[target + i] = ids[at + 3 - i]
            self._close_if_full()

    def state(self, now_ms: int, power_state: int) -> None:
        """Enter a power state; the time until now counts for the one before."""
        self._tick(now_ms)
        if power_state != self._state:
            self._state = power_state
            self.log(now_ms, CODE_STATE, power_state, 0, 0, 0)

    def count(self, index: int, amount: int) -> None:
        """Add 0 <= amount < 2^29 to a counter."""
        if amount:
            at = _ROW_SIZE * (index if index < _COMMON else index - _GAP)
            self._counters[at] = 1
            add_u48_le(self._counters, at + 1, amount)

    def wall(self, now_ms: int, anchor: "bytes | bytearray", uncertainty: int) -> None:
        """Tell the wall clock: 6 bytes little-endian, ms since the Unix epoch; units of 10 ms."""
        self._tick(now_ms)
        borrow = 0
        for i in range(6):
            value = anchor[i] - self._now[i] - borrow
            self._now[6 + i] = value & 255
            borrow = 1 if value < 0 else 0
        self._wall_known = _WALL_KNOWN
        self._uncertainty = uncertainty

    def flush_counters(self, now_ms: int) -> bool:
        """Write the counters that changed; False: blocks are full, `take` and call again."""
        self._tick(now_ms)
        counters = self._counters
        for at in range(0, len(counters), _ROW_SIZE):
            if counters[at]:
                if not self._has_room():
                    return False
                counters[at] = 0
                target = self._event(now_ms, CODE_COUNTER, _index(at), 0)
                copy(self._writing, target - 2, counters, at + 5, 2)
                copy(self._writing, target, counters, at + 1, 4)
                self._close_if_full()
        return True

    # --- blocks out ---

    def take(self) -> None:
        """The owner has stored `block`."""
        self.ready = self.starts = self.ends = False
        self._close_if_full()

    def finish(self) -> bool:
        """End the segment with what there is; False while a block waits for `take`.

        True: either a last block is ready now, or the last one had been taken already.
        """
        if self.ready:
            return False
        if self._count:
            self._close(True)
        elif self._block_number:
            self.segment_number += 1
            self._block_number = 0
        return True

    # --- deep sleep ---

    def rest_into(self, out: bytearray, at: int, limit: int) -> int:
        """Write what the next boot goes on with (docs/SPEC.md 10.3); its end, 0: no room.

        A block that waits for `take` is not in it: it must have been stored before.
        """
        end = at + _REST_SIZE + self._count * EVENT_SIZE
        if end > limit or self.ready:
            return 0
        struct.pack_into(
            _REST, out, at, self._count, self._block_number, self._state, self._wall_known,
            self.segment_number, self._dt_ms, self._uncertainty, self._now,
        )  # fmt: skip
        copy(out, at + _T0_AT, self._writing, 6, 6)
        copy(out, at + _REST_SIZE, self._writing, BLOCK_HEADER_SIZE, self._count * EVENT_SIZE)
        for row in range(0, len(self._counters), _ROW_SIZE):
            if not equal(self._counters, row + 1, _ZEROS, 0, 6):
                if end + 1 + _ROW_SIZE > limit:
                    return 0
                out[end] = _index(row)
                copy(out, end + 1, self._counters, row, _ROW_SIZE)
                end += 1 + _ROW_SIZE
        return end

    def wake_from(self, kept: bytearray, at: int, end: int, now_ms: int, slept_ms: int) -> None:
        """Go on after `slept_ms` with what `rest_into` wrote to kept[at:end]."""
        (
            self._count, self._block_number, self._state, self._wall_known,
            self.segment_number, self._dt_ms, self._uncertainty, now,
        ) = struct.unpack_from(_REST, kept, at)  # fmt: skip
        self._now[:] = now
        copy(self._writing, 6, kept, at + _T0_AT, 6)
        copy(self._writing, BLOCK_HEADER_SIZE, kept, at + _REST_SIZE, self._count * EVENT_SIZE)
        at += _REST_SIZE + self._count * EVENT_SIZE
        while at < end:
            row = _ROW_SIZE * (kept[at] if kept[at] < _COMMON else kept[at] - _GAP)
            copy(self._counters, row, kept, at + 1, _ROW_SIZE)
            at += 1 + _ROW_SIZE
        self._last_ms = (now_ms - slept_ms) & 0x3FFFFFFF

    # --- how it is done ---

    def _tick(self, now_ms: int) -> None:
        elapsed = elapsed_ms(now_ms, self._last_ms) if self._last_ms >= 0 else 0
        if elapsed >= _ELAPSED_END_MS:
            return
        self._last_ms = now_ms
        add_u48_le(self._now, 0, elapsed)
        if self._dt_ms < _DT_END_MS:
            self._dt_ms += elapsed
        if self._state != _NO_STATE:
            self.count(self._state, elapsed)

    def _has_room(self) -> bool:
        return not self.ready or (self._count < EVENTS_PER_BLOCK and self._dt_ms < _DT_END_MS)

    def _event(self, now_ms: int, code: int, a: int, b: int) -> int:
        """Begin an event; the offset of its c, 0 if it is lost."""
        self._tick(now_ms)
        if not self._has_room():
            self.lost += 1
            self.count(COUNT_LOST, 1)
            return 0
        if self._count and self._dt_ms >= _DT_END_MS:
            self._close(False)
        if not self._count:
            copy(self._writing, 6, self._now, 0, 6)
            self._dt_ms = 0
        at = BLOCK_HEADER_SIZE + self._count * EVENT_SIZE
        self._count += 1
        struct.pack_into("<IBBH", self._writing, at, self._dt_ms, code, a, b)
        return at + 8

    def _close_if_full(self) -> None:
        if self._count == EVENTS_PER_BLOCK and not self.ready:
            self._close(False)

    def _close(self, last: bool) -> None:
        """Finish the block that is written and go on in the other one."""
        block = self._writing
        struct.pack_into(
            "<BBHH", block, 0, _BLOCK_MAGIC, self._count, self._block_number, self.boot & 0xFFFF
        )
        fill(block, 12, 4, 0)
        crc32_into(block, 12, block, 0, BLOCK_SIZE, True)
        self._writing = self.block
        self.block = block
        fill(self._writing, 0, BLOCK_SIZE, 0)
        self._count = 0
        self.ready = True
        self.starts = self._block_number == 0
        if self.starts:
            self._make_header()
        self._block_number += 1
        self.ends = last or self._block_number == self._blocks
        if self.ends:
            self.segment_number += 1
            self._block_number = 0

    def _make_header(self) -> None:
        header = self.header
        struct.pack_into("<BH", header, 5, self._wall_known, self.boot & 0xFFFF)
        struct.pack_into("<I", header, 16, self.segment_number)
        carry = 0
        for i in range(6):
            if self._wall_known:
                carry += self.block[6 + i] + self._now[6 + i]
            header[20 + i] = carry & 255
            carry >>= 8
        struct.pack_into("<H", header, 26, self._uncertainty)
        crc32_into(header, 28, header, 0, 28, True)


def _index(at: int) -> int:
    """The index of the counter whose row is at `at`."""
    row = at // _ROW_SIZE
    return row if row < _COMMON else row + _GAP
