"""Messages that wait for what they depend on: they are in the store, and not yet in the log.

The ids that a message waits for are not kept: they are read from its body when they are asked for.
"""

from drupelet.base.limits import ID_SIZE, PENDING_PER_PEER_MAX
from drupelet.base.memory import copy, equal, find
from drupelet.engine.backoff import counted
from drupelet.engine.outbox import TAG_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StorePort


class Pending:
    """One node's table: handle (0: the row is free), tag, group row, source (peer number), and how
    often and when what it waits for was last asked for."""

    def __init__(self, rows_max: int, store: "StorePort") -> None:
        self._store = store
        self.rows_max = rows_max
        self.count = 0
        self.handles = [0] * rows_max
        self.epochs = [0] * rows_max
        self.tags = bytearray(TAG_SIZE * rows_max)
        self.groups = bytearray(rows_max)
        self.sources = bytearray(rows_max)
        self.sends = bytearray(rows_max)
        self.marks = bytearray(0)  # of `dependency_cycle`

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The row of a message id, or -1."""
        if not self.count:
            return -1
        row = find(self.tags, TAG_SIZE, self.rows_max, id, at, TAG_SIZE)
        while 0 <= row < self.rows_max:
            if (
                self.handles[row]
                and equal(self.tags, row * TAG_SIZE, id, at, TAG_SIZE)
                and self._store.is_id(self.handles[row], id, at, ID_SIZE)
            ):
                return row
            row += 1
        return -1

    def has_room(self, source: int) -> bool:
        """True when one more message from a peer (number) may wait."""
        if self.count == self.rows_max:
            return False
        return self.rows_max <= PENDING_PER_PEER_MAX or (
            self.count_of(source) < PENDING_PER_PEER_MAX
        )

    def count_of(self, source: int) -> int:
        """Messages from a peer (number) that wait."""
        count = 0
        for row in range(self.rows_max):
            if self.handles[row] and self.sources[row] == source:
                count += 1
        return count

    def add(self, id: bytearray, at: int, handle: int, group: int, source: int) -> bool:
        """Take a message in (group: row, source: peer number); False when there is no room."""
        for row in range(self.rows_max):
            if not self.handles[row]:
                copy(self.tags, row * TAG_SIZE, id, at, TAG_SIZE)
                self.handles[row] = handle
                self.groups[row] = group
                self.sources[row] = source
                self.sends[row] = self.epochs[row] = 0
                self.count += 1
                return True
        return False

    def drop(self, row: int) -> None:
        """A message waits no longer."""
        self.handles[row] = 0
        self.count -= 1

    def note_asked(self, row: int, epoch: int) -> None:
        """What a message waits for was asked for."""
        self.sends[row] = counted(self.sends[row])
        self.epochs[row] = epoch

    def ask_again(self) -> None:
        """Ask for everything at once: what peers hold or see has changed."""
        for row in range(self.rows_max):
            self.sends[row] = 0
