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
from drupelet.base.memory import (
    add_u48_le,
    copy,
    crc32_into,
    equal,
    fill,
    get_u16_le,
    get_u32_le,
    put_u16_le,
    put_u32_le,
)
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
# In a snapshot for deep sleep: what stands before the events, and one counter.
_REST_SIZE = const(32)
_COUNTER_SIZE = const(8)
_ZEROS = bytes(6)
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
        self._wall_known = False
        self._uncertainty = _UNCERTAIN
        self._crc = bytearray(4)
        self._state = _NO_STATE
        self._counters = bytearray(6 * COUNTERS_MAX)
        self._changed = bytearray(COUNTERS_MAX)

    # --- events in ---

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Note an event; c is handed in as its two 16-bit halves. Full: counted as lost."""
        at = self._event(now_ms, code, a, b)
        if at:
            put_u16_le(self._writing, at, low)
            put_u16_le(self._writing, at + 2, high)
            self._close_if_full()

    def log_id(
        self,
        now_ms: int,
        code: int,
        a: int,
        b: int,
        ids: "bytes | bytearray | memoryview",
        at: int,
    ) -> None:
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
            row = index if index < _COMMON else index - _GAP
            add_u48_le(self._counters, row * 6, amount)
            self._changed[row] = 1

    def wall(self, now_ms: int, anchor: "bytes | bytearray", uncertainty: int) -> None:
        """Tell the wall clock: 6 bytes little-endian, ms since the Unix epoch; units of 10 ms."""
        self._tick(now_ms)
        borrow = 0
        for i in range(6):
            value = anchor[i] - self._now[i] - borrow
            self._now[6 + i] = value & 255
            borrow = 1 if value < 0 else 0
        self._wall_known = True
        self._uncertainty = uncertainty

    def flush_counters(self, now_ms: int) -> bool:
        """Write the counters that changed; False: blocks are full, `take` and call again."""
        self._tick(now_ms)
        for row in range(len(self._changed)):
            if self._changed[row]:
                if not self._has_room():
                    return False
                self._changed[row] = 0
                index = row if row < _COMMON else row + _GAP
                target = self._event(now_ms, CODE_COUNTER, index, 0)
                copy(self._writing, target - 2, self._counters, row * 6 + 4, 2)
                copy(self._writing, target, self._counters, row * 6, 4)
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
        out[at] = self._count
        out[at + 1] = self._block_number
        out[at + 2] = self._state
        out[at + 3] = _WALL_KNOWN if self._wall_known else 0
        put_u32_le(out, at + 4, self.segment_number)
        put_u32_le(out, at + 8, self._dt_ms)
        put_u16_le(out, at + 12, self._uncertainty)
        copy(out, at + 14, self._now, 0, 12)
        copy(out, at + 26, self._writing, 6, 6)
        copy(out, at + _REST_SIZE, self._writing, BLOCK_HEADER_SIZE, self._count * EVENT_SIZE)
        for row in range(len(self._changed)):
            if not equal(self._counters, row * 6, _ZEROS, 0, 6):
                if end + _COUNTER_SIZE > limit:
                    return 0
                out[end] = row if row < _COMMON else row + _GAP
                out[end + 1] = self._changed[row]
                copy(out, end + 2, self._counters, row * 6, 6)
                end += _COUNTER_SIZE
        return end

    def wake_from(self, kept: bytearray, at: int, end: int, now_ms: int, slept_ms: int) -> None:
        """Go on after `slept_ms` with what `rest_into` wrote to kept[at:end]."""
        self._count = kept[at]
        self._block_number = kept[at + 1]
        self._state = kept[at + 2]
        self._wall_known = kept[at + 3] == _WALL_KNOWN
        self.segment_number = get_u32_le(kept, at + 4)
        self._dt_ms = get_u32_le(kept, at + 8)
        self._uncertainty = get_u16_le(kept, at + 12)
        copy(self._now, 0, kept, at + 14, 12)
        copy(self._writing, 6, kept, at + 26, 6)
        copy(self._writing, BLOCK_HEADER_SIZE, kept, at + _REST_SIZE, self._count * EVENT_SIZE)
        at += _REST_SIZE + self._count * EVENT_SIZE
        while at < end:
            row = kept[at] if kept[at] < _COMMON else kept[at] - _GAP
            self._changed[row] = kept[at + 1]
            copy(self._counters, row * 6, kept, at + 2, 6)
            at += _COUNTER_SIZE
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
        block = self._writing
        put_u32_le(block, at, self._dt_ms)
        block[at + 4] = code
        block[at + 5] = a
        put_u16_le(block, at + 6, b)
        return at + 8

    def _close_if_full(self) -> None:
        if self._count == EVENTS_PER_BLOCK and not self.ready:
            self._close(False)

    def _close(self, last: bool) -> None:
        """Finish the block that is written and go on in the other one."""
        block = self._writing
        block[0] = _BLOCK_MAGIC
        block[1] = self._count
        put_u16_le(block, 2, self._block_number)
        put_u16_le(block, 4, self.boot & 0xFFFF)
        fill(block, 12, 4, 0)
        crc32_into(self._crc, 0, block, 0, BLOCK_SIZE, True)
        copy(block, 12, self._crc, 0, 4)
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
        header[5] = _WALL_KNOWN if self._wall_known else 0
        put_u16_le(header, 6, self.boot & 0xFFFF)
        put_u32_le(header, 16, self.segment_number)
        carry = 0
        for i in range(6):
            if self._wall_known:
                carry += self.block[6 + i] + self._now[6 + i]
            header[20 + i] = carry & 255
            carry >>= 8
        put_u16_le(header, 26, self._uncertainty)
        crc32_into(header, 28, header, 0, 28, True)
