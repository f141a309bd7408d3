"""What may go from the host's store when it is full, and what each group may hold of it."""

import sqlite3
from typing import Any

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import ID_SIZE
from drupelet.base.ports import Buffer
from drupelet_host.store.recent_rows import RecentRows

# Removed in one go when the store is full, so that a full store does not pay per message.
RECLAIM_COUNT = 1024
# Deleted messages that some sharer is not known to have; their ids stay.
KEPT_STORED_MAX = 4096
# Ids of messages that made room, for each that the store may hold: as many as four stores hold.
GONE_SHARE = 4
# Groups are told apart by their number modulo this, as on a board.
GROUPS = 8
# Of a deleted message `size` says who is not known to have it: such a row stays.
_COUNT = (
    "SELECT member_group & 7, count(*), coalesce(sum(state = 2), 0),"
    " coalesce(sum(state IN (3, 7) AND size != 0), 0) FROM log GROUP BY member_group & 7"
)
_RECLAIM = (
    "DELETE FROM log WHERE handle IN (SELECT handle FROM log WHERE handle < CASE member_group & 7"
    " WHEN 0 THEN ? WHEN 1 THEN ? WHEN 2 THEN ? WHEN 3 THEN ? WHEN 4 THEN ? WHEN 5 THEN ?"
    " WHEN 6 THEN ? ELSE ? END AND (? < 0 OR member_group & 7 = ?) AND state != 2"
    " AND NOT (state IN (3, 7) AND size != 0) ORDER BY handle LIMIT ?)"
    " RETURNING member_group, source = 0 AND state NOT IN (4, 6), id, state"
)
_NOTE_GONE = "INSERT OR REPLACE INTO gone (id, member_group, state) VALUES (?, ?, ?)"
_FORGET_GONE = "DELETE FROM gone WHERE entry <= (SELECT max(entry) FROM gone) - ?"
# In the table `gone` only: it never was in the log.
_STATE_ABSENT = 9
_NOTE_ABSENT = "INSERT OR IGNORE INTO gone (id, member_group, state) VALUES (?, 0, ?)"
_IS_ABSENT = "SELECT 1 FROM gone WHERE id = ? AND state = ?"
_KEEP = "UPDATE log SET size = ? WHERE handle = ? AND state IN (3, 7) AND size != 0"
_NEXT_KEPT = (
    "SELECT handle FROM log WHERE handle > ? AND state IN (3, 7) AND size != 0"
    " ORDER BY handle LIMIT 1"
)


class SqliteRoom:
    """Counts of what is there, and how room is made.

    `settled_handle`, `settled`: the owner's; every message before it may go, of all groups or of
    those with this number modulo 8. `quotas`: rows that a group may have, 0 for no bound.
    """

    def __init__(self) -> None:
        # A ring of one for the black box: here the log has room for every segment of it.
        self.box_slots = 1
        self.box_slot = 0
        self.settled_handle = 0
        self.settled = [0] * GROUPS
        self.quotas = [0] * GROUPS
        self.erases = 0
        self.forgotten = 0  # ids of messages that made room which are not known any more
        self.messages_max = 0
        self._messages = self._pending = self._kept = 0
        self._held = [0] * GROUPS
        self._body_handle = 0
        self._recent = RecentRows()
        self._has_gone = False  # there is something in the table `gone`
        self._last_handle = 0

    def write(self, statement: str, *values: object) -> int:
        """Run one statement in the open transaction; returns the rows touched or E_STORAGE."""
        raise NotImplementedError

    def bodies(self, _group: int) -> int:
        """Bodies are rows: they take nobody's room."""
        return 0

    @property
    def connection(self) -> sqlite3.Connection:
        """The open database."""
        raise NotImplementedError

    def _fail(self, error: sqlite3.Error) -> int:
        raise NotImplementedError

    def _row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        raise NotImplementedError

    def _recount(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(_COUNT).fetchall()
        self._held = [0] * GROUPS
        for group, held, _, _ in rows:
            self._held[group] = held
        self._pending = sum(row[2] for row in rows)
        self._kept = sum(row[3] for row in rows)
        self._messages = sum(self._held) - self._pending

    def _in_quota(self, group: int) -> bool:
        quota = self.quotas[group & 7]
        if not quota or self._held[group & 7] < quota:
            return True
        return self.reclaim(group) == OK and self._held[group & 7] < quota

    def unsettle(self) -> None:
        """Nothing is settled until the owner says so again."""
        self.settled_handle = 0
        self.settled[:] = [0] * GROUPS

    def reclaim(self, group: int = -1) -> int:
        """Remove the oldest settled messages, of one group or of all; E_CAPACITY when none is."""
        marks = [max(self.settled_handle, mark) for mark in self.settled]
        # Writing in its name begins the transaction.
        if self.write("UPDATE meta SET value = value WHERE key = 'wake'") < 0:
            return E_STORAGE
        row = group & 7 if group >= 0 else -1
        try:
            gone = self.connection.execute(
                _RECLAIM, (*marks, row, row, RECLAIM_COUNT)
            ).fetchall()  # fmt: skip
            ids = [(id, group, state) for group, _, id, state in gone]
            self._recent.clear()
            self._has_gone = True
            self.connection.executemany(_NOTE_GONE, ids)
            bound = self.messages_max * GONE_SHARE
            self.forgotten += self.connection.execute(_FORGET_GONE, (bound,)).rowcount
            self._recount(self.connection)
        except sqlite3.Error as error:
            return self._fail(error)
        self._body_handle = 0
        self.erases += len(gone)
        own = [row[0] for row in gone if row[1]]
        for number in set(own):
            value = self.dropped(number) + own.count(number)
            key = f"dropped.{number}"
            if self.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value) < 0:
                return E_STORAGE
        return OK if gone else E_CAPACITY

    def note(self, id: Buffer, at: int) -> bool:
        """Remember that nobody has a message any more, should it not come after all."""
        known = bytes(id[at : at + ID_SIZE])
        self._has_gone = True
        self.write(_NOTE_ABSENT, known, _STATE_ABSENT)
        self.write(_FORGET_GONE, self.messages_max * GONE_SHARE)
        return self.noted(id, at)

    def noted(self, id: Buffer, at: int) -> bool:
        """True for a message of which `note` said that nobody has it any more."""
        if not self._has_gone:
            return False
        known = bytes(id[at : at + ID_SIZE])
        return self._row(_IS_ABSENT, known, _STATE_ABSENT) is not None

    def dropped(self, group: int) -> int:
        """How many messages of our own in a group went to make room."""
        query = "SELECT value FROM meta WHERE key = ?"
        row = self.connection.execute(query, (f"dropped.{group}",)).fetchone()
        return int(row[0]) if row else 0

    # --- deletions that somebody may not know of ---

    def _may_keep(self, missing: int) -> bool:
        if missing and self._kept >= KEPT_STORED_MAX:
            return False
        self._kept += missing != 0
        return True

    def keep(self, handle: int, missing: int) -> int:
        """Change who is not known to have a deleted message (`next_kept`); OK or a code."""
        self._recent.forget(handle)
        touched = self.write(_KEEP, missing, handle)
        if touched > 0 and not missing:
            self._kept -= 1
        return OK if touched >= 0 else E_STORAGE

    def next_kept(self, handle: int) -> int:
        """Handle of the deleted message after `handle` that not all are known to have."""
        row = self.connection.execute(_NEXT_KEPT, (handle,)).fetchone()
        return int(row[0]) if row else 0
