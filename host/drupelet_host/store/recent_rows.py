"""Rows of the log that the store has written or read lately, so that it need not ask SQLite again.

The agent is the only one that writes the log, so what is here is what the database has, as long as
the store forgets a row with each change of it, and everything when rows are removed or a
transaction is rolled back.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE, TIMESTAMP_SIZE
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from drupelet_host.store.checksum import row_checksum

# With bodies of BODY_KEPT_MAX these take 12 MB; full, all go, and what is needed comes back.
IDS_MAX = 8192
# Rows that are read ahead in log order: one statement for as many messages of a walk.
AHEAD_COUNT = 64
# A longer body is not kept: who reads one reads it piece by piece, and the store keeps the last.
# READ has this number, too.
BODY_KEPT_MAX = 1024
# In these states `size` is the body's; in others it is something else.
_WITH_BODY = (STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE)


class Row(NamedTuple):
    """A row of the table `log`; `body` is None for one that is longer than BODY_KEPT_MAX.

    is_damaged: its checksum does not fit; of a long body only who reads it finds out.
    """

    id: bytes
    timestamp: bytes
    group: int
    source: int
    size: int
    state: int
    body_size: int
    body: bytes | None
    is_damaged: bool = False


# What `row_of` takes; which rows follows. A bit of a damaged row may have changed a value's type.
READ = (
    "SELECT handle, CAST(id AS BLOB), CAST(timestamp AS BLOB), CAST(member_group AS INTEGER),"
    " CAST(source AS INTEGER), CAST(size AS INTEGER), CAST(state AS INTEGER),"
    " length(CAST(body AS BLOB)),"
    " iif(length(CAST(body AS BLOB)) <= 1024, CAST(body AS BLOB), NULL), checksum FROM log"
)


def row_of(values: Sequence[Any]) -> Row:
    """The Row of a handle and its values, as READ selects them."""
    _, id, timestamp, group, source, size, state, body_size, body, checksum = values
    is_sound = len(id) == ID_SIZE and len(timestamp) == TIMESTAMP_SIZE
    if state in _WITH_BODY:
        is_sound &= size == body_size
    if body is not None:
        is_sound &= row_checksum(group, source, state, id, timestamp, body) == checksum
    if is_sound:
        return Row(id, timestamp, group, source, size, state, body_size, body)
    # Whoever looks at it gets fields of the usual sizes.
    return Row(
        id[:ID_SIZE].ljust(ID_SIZE, b"\0"),
        timestamp[:TIMESTAMP_SIZE].ljust(TIMESTAMP_SIZE, b"\0"),
        group, source, size, state, body_size, body, True,
    )  # fmt: skip


class RecentRows:
    """`rows` by handle, `handles` by id, `following` in log order.

    An id, or the first ID_PREFIX_SIZE bytes of one, has 0 in `handles` when no row begins so.
    Nothing in the log is behind the handle `newest`; -1 when that is not known.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.handles: dict[bytes, int] = {}
        self.following: dict[int, int] = {}
        self.newest = -1

    def clear(self) -> None:
        """Forget everything."""
        self.rows.clear()
        self.handles.clear()
        self.following.clear()
        self.newest = -1

    def forget(self, handle: int) -> None:
        """A row was changed; its id and its place in the log were not."""
        self.rows.pop(handle, None)

    def keep(self, handle: int, row: Row) -> None:
        """A row as the database has it."""
        self._make_room(1)
        self.rows[handle] = row
        self.handles[row.id] = handle

    def handle_of(self, id: bytes) -> int | None:
        """The handle of an id or of its first bytes, 0 where there is none, None: ask SQLite."""
        handle = self.handles.get(id)
        if handle is None:
            # An id that begins as none does is not there, either.
            return self.handles.get(id[:ID_PREFIX_SIZE])
        return handle

    def lacks(self, id: bytes) -> None:
        """The database has no row whose id is this, or begins so."""
        if len(id) in (ID_SIZE, ID_PREFIX_SIZE):
            self._make_room(1)
            self.handles[id] = 0

    def add(self, handle: int, row: Row, is_logged: bool) -> None:
        """A row that is new in the database; is_logged: it has the last place in the log."""
        self.handles.pop(row.id[:ID_PREFIX_SIZE], None)
        self.keep(handle, row)
        if is_logged:
            if self.newest >= 0:
                self.following[self.newest] = handle
            self.newest = handle

    def keep_walk(self, after: int, rows: Sequence[tuple[int, Row]]) -> None:
        """The rows that follow a handle in log order; fewer than AHEAD_COUNT reach its end."""
        self._make_room(len(rows))
        for handle, row in rows:
            self.keep(handle, row)
            self.following[after] = handle
            after = handle
        if len(rows) < AHEAD_COUNT:
            self.newest = after

    def _make_room(self, count: int) -> None:
        """Each row and each place in the log has its id in `handles`: that bounds all three."""
        if len(self.handles) + count > IDS_MAX:
            self.clear()
