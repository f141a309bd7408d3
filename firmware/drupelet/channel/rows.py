"""Tables of a channel: rows in one slab that begin with an id's 8-byte key.

    row     key 8 (drupelet.wire.sds.bloom) | what the owner puts behind it

The rows in use are the first `count`; the last one takes the place of one that is removed. A key
is no proof: two ids may share one, so who finds a row compares the id, in the store.
"""

from drupelet.base.compat import const
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.base.memory import copy, fill, find, put_u32
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.lamport import compare

KEY_SIZE = const(8)
# A row of the log: key 8 | handle 4, two flags in its highest bits | Lamport value 8,
# little-endian.
_LOG_HANDLE = const(8)
_LOG_LAMPORT = const(12)
_LOG_STRIDE = const(20)
REFERENCED = const(0x80)  # something in the log depends on it
AGAIN = const(0x40)  # it came again: our next frame names it


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
        """Take a row, zero behind its key; -1: all are taken."""
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
        """A time that has come is not to come round as one ahead: call it once in three days."""
        for row in range(self.count):
            if WAIT_MS_MAX < elapsed_ms(now_ms, self.times_ms[row]) <= 2 * WAIT_MS_MAX:
                self.times_ms[row] = later_ms(self.times_ms[row], WAIT_MS_MAX)


class RecentLog:
    """The newest messages of the local log, ordered by Lamport value, then by id."""

    def __init__(self, ids_max: int) -> None:
        self.ids_max = ids_max
        self.count = 0
        self.table = bytearray(ids_max * _LOG_STRIDE)
        self.left = 0  # rows that went to make room: the store has them
        self.again = 0  # rows with that flag

    def find(self, key: "bytes | bytearray", at: int) -> int:
        """The first row with this key, or -1."""
        if not self.count:
            return -1
        return find(self.table, _LOG_STRIDE, self.count, key, at, KEY_SIZE)

    def handle(self, row: int) -> int:
        """The store's handle of a row; rows count from the oldest."""
        table = self.table
        at = row * _LOG_STRIDE + _LOG_HANDLE
        high = (table[at] & 0x3F) << 24
        return high | table[at + 1] << 16 | table[at + 2] << 8 | table[at + 3]

    def has(self, row: int, flag: int) -> bool:
        """Whether a row has a flag: REFERENCED or AGAIN."""
        return self.table[row * _LOG_STRIDE + _LOG_HANDLE] & flag != 0

    def mark(self, row: int, flag: int) -> None:
        """Give a row a flag."""
        self.again += flag == AGAIN and not self.has(row, AGAIN)
        self.table[row * _LOG_STRIDE + _LOG_HANDLE] |= flag

    def unmark(self, row: int, flag: int) -> None:
        """Take a flag from a row."""
        self.again -= flag == AGAIN and self.has(row, AGAIN)
        self.table[row * _LOG_STRIDE + _LOG_HANDLE] &= ~flag

    def key_at(self, row: int) -> int:
        """Where the key of a row is in `table`."""
        return row * _LOG_STRIDE

    def lamport_at(self, row: int) -> int:
        """Where the Lamport value of a row is in `table`."""
        return row * _LOG_STRIDE + _LOG_LAMPORT

    def place(self, lamport: "bytes | bytearray", at: int) -> int:
        """The row behind all with a value up to this one."""
        row = self.count
        while row and compare(self.table, self.lamport_at(row - 1), lamport, at) > 0:
            row -= 1
        return row

    def insert(
        self, row: int, key: "bytes | bytearray", key_at: int, handle: int,
        lamport: "bytes | bytearray", at: int,
    ) -> None:  # fmt: skip
        """Put a message in at `row`; another one leaves a full table: see `_victim`."""
        table = self.table
        place = row * _LOG_STRIDE
        if self.count < self.ids_max:
            copy(table, place + _LOG_STRIDE, table, place, self.count * _LOG_STRIDE - place)
            self.count += 1
        else:
            self.left += 1
            victim = self._victim()
            again = self.has(victim, AGAIN)
            if victim < row:
                at_victim = victim * _LOG_STRIDE
                row -= 1
                place -= _LOG_STRIDE
                copy(table, at_victim, table, at_victim + _LOG_STRIDE, place - at_victim)
            elif self.has(victim, REFERENCED):
                copy(table, place + _LOG_STRIDE, table, place, victim * _LOG_STRIDE - place)
            else:
                return  # it is the oldest itself
            self.again -= again
        copy(table, place, key, key_at, KEY_SIZE)
        put_u32(table, place + _LOG_HANDLE, handle)
        copy(table, place + _LOG_LAMPORT, lamport, at, 8)

    def _victim(self) -> int:
        """The oldest row that something depends on, not of the newest quarter; or the oldest.

        What nothing depends on must stay as long as it can: others hear of it from us only.
        """
        for row in range(self.count * 3 // 4):
            if self.has(row, REFERENCED):
                return row
        return 0
