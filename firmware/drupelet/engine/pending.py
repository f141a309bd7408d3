"""Messages that wait for what they depend on: they are in the store, and not yet in the log.

The ids that a message waits for are not kept: they are read from its body when they are asked for.
"""

from drupelet.base.compat import const
from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet.base.memory import fill, get_u16, put_u16
from drupelet.engine.backoff import counted

# A row, beside its handle.
_GROUP = const(0)
_SOURCE = const(1)
_SENDS = const(2)
_EPOCH = const(3)
ROW_SIZE = const(5)


class Pending:
    """One node's table: handle (0: the row is free), group row, source (peer number), and how
    often and when what it waits for was last asked for."""

    marks = bytearray(0)  # of `dependency_cycle`, a byte for each row

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self.count = 0
        self.handles = [0] * rows_max
        self.rows = bytearray(ROW_SIZE * rows_max)

    def row_of(self, handle: int) -> int:
        """The row of a message by its handle, or -1; 0 and below is no handle."""
        return self.handles.index(handle) if handle > 0 and handle in self.handles else -1

    def group(self, row: int) -> int:
        """The group's row of the message in a row."""
        return self.rows[row * ROW_SIZE + _GROUP]

    def source(self, row: int) -> int:
        """The number of the peer that sent the message in a row."""
        return self.rows[row * ROW_SIZE + _SOURCE]

    def sends(self, row: int) -> int:
        """How often what the message in a row waits for was asked for."""
        return self.rows[row * ROW_SIZE + _SENDS]

    def epoch(self, row: int) -> int:
        """When what the message in a row waits for was asked for last."""
        return get_u16(self.rows, row * ROW_SIZE + _EPOCH)

    def has_room(self, source: int) -> bool:
        """True when one more message from a peer (number) may wait."""
        if self.count == self.rows_max:
            return False
        is_small = self.rows_max <= PENDING_PER_PEER_MAX
        return is_small or self.count_of(source) < PENDING_PER_PEER_MAX

    def count_of(self, source: int) -> int:
        """Messages from a peer (number) that wait."""
        count = 0
        for row in range(self.rows_max):
            if self.handles[row] and self.source(row) == source:
                count += 1
        return count

    def add(self, handle: int, group: int, source: int) -> bool:
        """Take a message in (group: row, source: peer number); False when there is no room."""
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
        """A message waits no longer."""
        self.handles[row] = 0
        self.count -= 1

    def note_asked(self, row: int, epoch: int) -> None:
        """What a message waits for was asked for."""
        self.rows[row * ROW_SIZE + _SENDS] = counted(self.sends(row))
        put_u16(self.rows, row * ROW_SIZE + _EPOCH, epoch)

    def ask_again(self) -> None:
        """Ask for everything at once: what peers hold or see has changed."""
        for row in range(self.rows_max):
            self.rows[row * ROW_SIZE + _SENDS] = 0
