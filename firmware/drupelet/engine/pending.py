"""Pending messages: they are in the store and wait for dependencies before they enter the log.

The ids of missing dependencies are not kept here, but read from the body when they are requested.
"""

from drupelet.base.compat import const
from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet.base.memory import fill, get_u16, put_u16
from drupelet.engine.backoff import counted

# Offsets in a row; handles are in a list of their own.
_GROUP = const(0)
_SOURCE = const(1)
_SENDS = const(2)
_EPOCH = const(3)
ROW_SIZE = const(5)


class Pending:
    """A node's table of pending messages: handle (0: the row is free), group row, source (peer
    number), how often its missing parents were requested, and the epoch of the last time."""

    marks = bytearray(0)  # scratch of `dependency_cycle`, one byte per row

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self.count = 0
        self.handles = [0] * rows_max
        self.rows = bytearray(ROW_SIZE * rows_max)

    def row_of(self, handle: int) -> int:
        """Return the row of the message at a handle, or -1, also if `handle` is 0 or negative."""
        return self.handles.index(handle) if handle > 0 and handle in self.handles else -1

    def group(self, row: int) -> int:
        """Return the group (row) of the message in a row."""
        return self.rows[row * ROW_SIZE + _GROUP]

    def source(self, row: int) -> int:
        """Return the number of the peer that sent the message in a row."""
        return self.rows[row * ROW_SIZE + _SOURCE]

    def sends(self, row: int) -> int:
        """Return how often the missing parents of the message were requested."""
        return self.rows[row * ROW_SIZE + _SENDS]

    def epoch(self, row: int) -> int:
        """Return the epoch in which its missing parents were last requested."""
        return get_u16(self.rows, row * ROW_SIZE + _EPOCH)

    def has_room(self, source: int) -> bool:
        """Return True if one more message from a peer (number) may become pending."""
        if self.count == self.rows_max:
            return False
        is_small = self.rows_max <= PENDING_PER_PEER_MAX
        return is_small or self.count_of(source) < PENDING_PER_PEER_MAX

    def count_of(self, source: int) -> int:
        """Return how many messages from a peer (number) are pending."""
        count = 0
        for row in range(self.rows_max):
            if self.handles[row] and self.source(row) == source:
                count += 1
        return count

    def add(self, handle: int, group: int, source: int) -> bool:
        """Add a message (group: row, source: peer number); False if the table is full."""
        if 0 not in self.handles:
            return False
        row = self.handles.index(0)
        self.handles[row] = handle
        fill(self.rows, row * ROW_SIZE, ROW_SIZE, 0)
        self.rows[row * ROW_SIZE + _GROUP] = group
        self.rows[row * ROW_SIZE + _SOURCE] = source
        self.count += 1
        return True

    def drop(self, row: int) -> None:
        """Free a row: its message is no longer pending."""
        self.handles[row] = 0
        self.count -= 1

    def note_asked(self, row: int, epoch: int) -> None:
        """Record a request for the missing parents of the message in a row."""
        self.rows[row * ROW_SIZE + _SENDS] = counted(self.sends(row))
        put_u16(self.rows, row * ROW_SIZE + _EPOCH, epoch)

    def ask_again(self) -> None:
        """Let all parents be requested again at once: what peers hold or see has changed."""
        for row in range(self.rows_max):
            self.rows[row * ROW_SIZE + _SENDS] = 0
