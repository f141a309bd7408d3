"""Tables of a channel: rows in one slab, each of which begins with an id's 8-byte key.

    row     key 8 (drupelet.wire.sds.bloom) | state 2 bits, handle 30 bits | what the owner adds:
            time 4 first, where rows have a time

The rows in use are the first `count`, in the order in which they were added or inserted. What
state and time say is the owner's. A key is no proof: two ids may share one, so whoever finds a
row compares the id.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.memory import copy, fill, find, get_u16, get_u32, put_u32
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

KEY_SIZE = const(8)
_HANDLE_AT = const(8)
_TIME_AT = const(12)


def is_due(now_ms: int, due_ms: int) -> bool:
    """Whether a time has come; both modulo 2^30, less than 6 days apart."""
    return elapsed_ms(now_ms, due_ms) < CLOCK_BACK_MS


def sooner_ms(due_ms: int, now_ms: int, wait_ms: int) -> int:
    """Milliseconds until a time, 0 if it has come, at most `wait_ms`."""
    return 0 if is_due(now_ms, due_ms) else min(elapsed_ms(due_ms, now_ms), wait_ms)


class KeyRows:
    """`rows_max` rows of `stride` bytes."""

    def __init__(self, rows_max: int, stride: int) -> None:
        self.stride = stride
        self.rows_max = rows_max
        self.count = 0
        self.table = bytearray(rows_max * stride)

    def is_full(self) -> bool:
        """Whether all rows are in use."""
        return self.count == self.rows_max

    def find(self, key: "bytes | bytearray") -> int:
        """The first row with this key, or -1."""
        if not self.count:
            return -1
        return find(self.table, self.stride, self.count, key, 0, KEY_SIZE)

    def add(self, key: "bytes | bytearray", handle: int, time_ms: int) -> int:
        """Take a row with a time behind the others; its number. See `insert`."""
        row = self.count
        self.insert(row, key, handle)
        self.set_time(row, time_ms)
        return row

    def insert(self, row: int, key: "bytes | bytearray", handle: int) -> None:
        """Take a row and make it number `row`, zero but for key and handle; not all are in use."""
        assert self.count < self.rows_max
        table = self.table
        stride = self.stride
        place = row * stride
        copy(table, place + stride, table, place, self.count * stride - place)
        fill(table, place, stride, 0)
        copy(table, place, key, 0, KEY_SIZE)
        put_u32(table, place + _HANDLE_AT, handle)
        self.count += 1

    def remove(self, row: int) -> None:
        """Free a row."""
        assert 0 <= row < self.count
        place = row * self.stride
        self.count -= 1
        copy(self.table, place, self.table, place + self.stride, self.count * self.stride - place)

    def find_handle(self, handle: int) -> int:
        """The first row with this handle, or -1."""
        for row in range(self.count):
            if self.handle(row) == handle:
                return row
        return -1

    def state(self, row: int) -> int:
        """The state of a row."""
        return self.table[row * self.stride + _HANDLE_AT] >> 6

    def set_state(self, row: int, state: int) -> None:
        """Change the state of a row, 0 to 3."""
        at = row * self.stride + _HANDLE_AT
        self.table[at] = self.table[at] & 0x3F | state << 6

    def handle(self, row: int) -> int:
        """The keeper's handle of a row."""
        table = self.table
        at = row * self.stride + _HANDLE_AT
        return (table[at] & 0x3F) << 24 | table[at + 1] << 16 | get_u16(table, at + 2)

    def time_ms(self, row: int) -> int:
        """The time of a row."""
        return get_u32(self.table, row * self.stride + _TIME_AT)

    def set_time(self, row: int, time_ms: int) -> None:
        """Change the time of a row."""
        put_u32(self.table, row * self.stride + _TIME_AT, time_ms)

    def next_due(self, state: int, now_ms: int) -> int:
        """The row in a state whose time came first; -1: there is none whose time has come."""
        best = -1
        longest = -1
        for row in range(self.count):
            if self.state(row) == state:
                late = elapsed_ms(now_ms, self.time_ms(row))
                if longest < late < CLOCK_BACK_MS:
                    best = row
                    longest = late
        return best

    def wait_ms(self, now_ms: int, wait_ms: int, state_max: int) -> int:
        """Milliseconds until the next time of a row in a state up to that, at most `wait_ms`."""
        for row in range(self.count):
            if self.state(row) <= state_max:
                wait_ms = sooner_ms(self.time_ms(row), now_ms, wait_ms)
        return wait_ms

    def keep_due(self, now_ms: int) -> None:
        """Move times that have come forward before they look like future ones.

        Call it at least once in three days.
        """
        for row in range(self.count):
            if WAIT_MS_MAX < elapsed_ms(now_ms, self.time_ms(row)) <= 2 * WAIT_MS_MAX:
                self.set_time(row, later_ms(self.time_ms(row), WAIT_MS_MAX))
