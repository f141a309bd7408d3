"""Tables of a channel: rows in one slab, each of which begins with an id's 8-byte key.

    row     key 8 (drupelet.wire.sds.bloom) | what the owner puts behind it

The rows in use are the first `count`; the last one moves into the place of one that is removed. A
key is no proof: two ids may share one, so whoever finds a row compares the id.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.memory import copy, fill, find
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

KEY_SIZE = const(8)


def is_due(now_ms: int, due_ms: int) -> bool:
    """Whether a time has come; both modulo 2^30, less than 6 days apart."""
    return elapsed_ms(now_ms, due_ms) < CLOCK_BACK_MS


def sooner_ms(due_ms: int, now_ms: int, wait_ms: int) -> int:
    """Milliseconds until a time, 0 if it has come, at most `wait_ms`."""
    return 0 if is_due(now_ms, due_ms) else min(elapsed_ms(due_ms, now_ms), wait_ms)


class KeyRows:
    """`rows_max` rows of `stride` bytes, each with a time of its own."""

    def __init__(self, rows_max: int, stride: int) -> None:
        self.stride = stride
        self.rows_max = rows_max
        self.count = 0
        self.table = bytearray(rows_max * stride)
        self.times_ms = [0] * rows_max

    def find(self, key: "bytes | bytearray", at: int) -> int:
        """The first row with this key, or -1."""
        if not self.count:
            return -1
        return find(self.table, self.stride, self.count, key, at, KEY_SIZE)

    def add(self, key: "bytes | bytearray", at: int, time_ms: int) -> int:
        """Take a row, zero behind its key; -1: all are in use."""
        row = self.count
        if row == self.rows_max:
            return -1
        self.count = row + 1
        place = row * self.stride
        fill(self.table, place, self.stride, 0)
        copy(self.table, place, key, at, KEY_SIZE)
        self.times_ms[row] = time_ms
        return row

    def remove(self, row: int) -> None:
        """Free a row; the last one moves into its place."""
        last = self.count - 1
        assert 0 <= row <= last
        if row != last:
            copy(self.table, row * self.stride, self.table, last * self.stride, self.stride)
            self.times_ms[row] = self.times_ms[last]
        self.count = last

    def keep_due(self, now_ms: int) -> None:
        """Move times that have come forward before they look like future ones.

        Call it at least once in three days.
        """
        for row in range(self.count):
            if WAIT_MS_MAX < elapsed_ms(now_ms, self.times_ms[row]) <= 2 * WAIT_MS_MAX:
                self.times_ms[row] = later_ms(self.times_ms[row], WAIT_MS_MAX)
