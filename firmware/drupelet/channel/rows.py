"""Tables of a channel: rows of fixed size in one slab, each beginning with an id's 8-byte key.

    row     key 8 (drupelet.wire.sds.bloom) | state 2 bits, handle 30 bits | fields of the owner,
            of which a time, if there is one, is the first: 4 bytes

The rows in use are the first `count`, in the order in which they were added or inserted. The owner
defines what state and time mean. Two ids may have the same key, so compare the id after `find`.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.memory import copy, fill, find, get_u16, get_u32, put_u32
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

KEY_SIZE = const(8)
_HANDLE_AT = const(8)
_TIME_AT = const(12)


def is_due(now_ms: int, due_ms: int) -> bool:
    """Whether `due_ms` has been reached; times are modulo 2^30, less than 6 days apart."""
    return elapsed_ms(now_ms, due_ms) < CLOCK_BACK_MS


def sooner_ms(due_ms: int, now_ms: int, wait_ms: int) -> int:
    """Return the time until `due_ms` in ms: 0 if it was reached, at most `wait_ms`."""
    return 0 if is_due(now_ms, due_ms) else min(elapsed_ms(due_ms, now_ms), wait_ms)


class KeyRows:
    """A table of at most `rows_max` rows of `stride` bytes."""

    def __init__(self, rows_max: int, stride: int) -> None:
        self.stride = stride
        self.rows_max = rows_max
        self.count = 0
        self.table = bytearray(rows_max * stride)

    def is_full(self) -> bool:
        """Whether all rows are in use."""
        return self.count == self.rows_max

    def find(self, key: "bytes | bytearray") -> int:
        """Return the first row with this key, or -1."""
        if not self.count:
            return -1
        return find(self.table, self.stride, self.count, key, 0, KEY_SIZE)

    def add(self, key: "bytes | bytearray", handle: int, time_ms: int) -> int:
        """Append a row with a time; return its number. Not if the table is full."""
        row = self.count
        self.insert(row, key, handle)
        self.set_time(row, time_ms)
        return row

    def insert(self, row: int, key: "bytes | bytearray", handle: int) -> None:
        """Insert a row at number `row`, its other fields 0. Not if the table is full."""
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
        """Remove a row; the following ones move up."""
        assert 0 <= row < self.count
        place = row * self.stride
        self.count -= 1
        copy(self.table, place, self.table, place + self.stride, self.count * self.stride - place)

    def find_handle(self, handle: int) -> int:
        """Return the first row with this handle, or -1."""
        for row in range(self.count):
            if self.handle(row) == handle:
                return row
        return -1

    def state(self, row: int) -> int:
        """The state of a row, 0 to 3."""
        return self.table[row * self.stride + _HANDLE_AT] >> 6

    def set_state(self, row: int, state: int) -> None:
        """Set the state of a row, 0 to 3."""
        at = row * self.stride + _HANDLE_AT
        self.table[at] = self.table[at] & 0x3F | state << 6

    def handle(self, row: int) -> int:
        """The keeper's handle of a row."""
        table = self.table
        at = row * self.stride + _HANDLE_AT
        return (table[at] & 0x3F) << 24 | table[at + 1] << 16 | get_u16(table, at + 2)

    def time_ms(self, row: int) -> int:
        """The time of a row, in ms modulo 2^30."""
        return get_u32(self.table, row * self.stride + _TIME_AT)

    def set_time(self, row: int, time_ms: int) -> None:
        """Set the time of a row."""
        put_u32(self.table, row * self.stride + _TIME_AT, time_ms)

    def next_due(self, state: int, now_ms: int) -> int:
        """Return the row in a state that has been due longest; -1: none is due."""
        best = -1
        longest_ms = -1
        for row in range(self.count):
            if self.state(row) == state:
                late_ms = elapsed_ms(now_ms, self.time_ms(row))
                if longest_ms < late_ms < CLOCK_BACK_MS:
                    best = row
                    longest_ms = late_ms
        return best

    def wait_ms(self, now_ms: int, wait_ms: int, state_max: int) -> int:
        """Return the time until a row of a state up to `state_max` is due, at most `wait_ms`."""
        for row in range(self.count):
            if self.state(row) <= state_max:
                wait_ms = sooner_ms(self.time_ms(row), now_ms, wait_ms)
        return wait_ms

    def keep_due(self, now_ms: int) -> None:
        """Move times that are long past forward, before they look like future ones.

        Call it at least once in three days.
        """
        for row in range(self.count):
            if WAIT_MS_MAX < elapsed_ms(now_ms, self.time_ms(row)) <= 2 * WAIT_MS_MAX:
                self.set_time(row, later_ms(self.time_ms(row), WAIT_MS_MAX))
