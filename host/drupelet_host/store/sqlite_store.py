"""The host's store: the board store's API over one SQLite file (docs/DESIGN.md 15).

Everything written since the last `barrier()` is one transaction; `barrier()` commits it. A handle
is the row number of the log, so it rises in log order and is never used twice. A message that
waits for its parents is a row too; entering the log gives it a new row.

A write that fails ends the store: SQLite may have rolled back messages that the node already
counts as stored. From then on every write and barrier returns E_STORAGE, nothing is acknowledged,
and the agent stops with `failure` as its reason; the next start recovers.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    GONE_HANDLE,
    ID_SIZE,
    TIMESTAMP_SIZE,
)
from drupelet.base.ports import Buffer
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from drupelet_host.store import database
from drupelet_host.store.checksum import CONTENT, row_checksum
from drupelet_host.store.long_bodies import PARTS_HOST_MAX, SqliteSpool, copy_out
from drupelet_host.store.recent_rows import AHEAD_COUNT, BODY_KEPT_MAX, READ, Row, row_of
from drupelet_host.store.reclaim import SqliteRoom

__all__ = ["PARTS_HOST_MAX", "SqliteStore"]

# A store of this many readings takes about 400 MB; settled ones go first when it is full.
MESSAGES_STORED_MAX = 1_000_000
# Messages whose parents are missing: as many as the agent has pending rows.
PENDING_STORED_MAX = 1024
# Member numbers are one byte on a board; 0 is ourselves and 255 is kept free.
MEMBER_NUMBER_MAX = 254
# 8 B header, 26 B for each of 32 peers, 8 B for each of 1,024 message rows; rounded up.
SAVED_SIZE_MAX = 16384
# Damaged rows that are known and counted; a disk that spoils more is beyond our help.
DAMAGED_KNOWN_MAX = 65_536
# A handle stays a small int on 32-bit boards too; what is above tells of an id that is gone.
HANDLE_MAX = GONE_HANDLE - 1
# In a handle from GONE_HANDLE on: the message was not valid. Below is its group's number.
_GONE_INVALID = 0x200
# In the database only: a pending message that was deleted has no place in the log.
_STATE_DROPPED = 6
# In the database only: a private message that was deleted.
_STATE_DELETED_PRIVATE = 7
# Private states, and what they are once the message is shared.
_OPENED_UP = {STATE_PRIVATE: STATE_DELIVERED, _STATE_DELETED_PRIVATE: STATE_DELETED}
MEMBER_GROUP = 1

_PUT = (
    "INSERT INTO log (id, member_group, source, timestamp, size, state, body, checksum)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_ROW = CONTENT + " WHERE handle = ?"
_PENDING = "SELECT handle FROM log WHERE state = 2"
_LOAD = READ + " WHERE handle = ?"
_FIND = READ + " WHERE id = ?"
_FIND_BY_START = READ + " WHERE id BETWEEN ? AND ?"
_FIND_GONE = "SELECT member_group, state FROM gone WHERE id BETWEEN ? AND ? AND member_group"
_WALK = READ + " WHERE handle > ? AND state IN (1, 3, 5, 7) ORDER BY handle LIMIT ?"


class SqliteStore(SqliteRoom):
    """Same calls, codes and attributes as `drupelet.store.flash_store.FlashStore`.

    Args:
        path: the database file; its folder must exist.
        messages_max: rows of the log, deleted ones included; full means E_CAPACITY.
        pending_max: messages that wait for parents.
    """

    def __init__(
        self,
        path: Path | str,
        messages_max: int = MESSAGES_STORED_MAX,
        pending_max: int = PENDING_STORED_MAX,
    ) -> None:
        super().__init__()
        self.spool = SqliteSpool(self.write, self._row)
        self.path = Path(path)
        self.messages_max = messages_max
        self.pending_max = pending_max
        self.id = bytearray(ID_SIZE)
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.group = self.source = self.size = self.state = self.edges_size = 0
        self.saved = bytearray(SAVED_SIZE_MAX)
        self.saved_size = 0
        self.missing = 0
        self.programs = self.damaged = 0
        self.damaged_handles: set[int] = set()
        self.private = False
        self.store_gen = 0
        self.failure = ""
        self._connection: sqlite3.Connection | None = None
        self._members: dict[tuple[int, bytes], int] = {}
        self._body = b""
        self._dirty = False
        self._together = False

    # --- life ---

    def open(self) -> int:
        """Open or create the file and check it; returns 0 damaged places.

        Raises StorageError with one clear line: a database is whole or it is not used.
        """
        self.close()
        connection = database.connect(self.path, is_owner=True)
        with database.closed_on_failure(self.path, connection):
            database.check(connection, self.path)
            self._recover(connection)
        self._connection = connection
        self.failure = ""
        return 0

    def _recover(self, connection: sqlite3.Connection) -> None:
        self.store_gen = database.meta_int(connection, "store_gen", 0)
        self._members = {
            (kind, bytes(key)): number
            for kind, number, key in connection.execute(
                "SELECT kind, number, key FROM members WHERE key != x''"
            )
        }
        self._recent.clear()
        self.damaged_handles.clear()
        self._drop_damaged_pending(connection)
        self._recount(connection)
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'log'"
        self._last_handle = (connection.execute(query).fetchone() or (0,))[0]
        query = "SELECT EXISTS (SELECT 1 FROM gone)"
        self._has_gone = bool(connection.execute(query).fetchone()[0])
        row = connection.execute("SELECT value FROM meta WHERE key = 'wake'").fetchone()
        blob = bytes(row[0]) if row else b""
        self.saved_size = min(len(blob), SAVED_SIZE_MAX)
        self.saved[: self.saved_size] = blob[: self.saved_size]
        self.spool.load(connection.execute("SELECT * FROM parts"))
        self._body_handle = 0
        self._dirty = False

    def _drop_damaged_pending(self, connection: sqlite3.Connection) -> None:
        """A damaged message that waits for a parent goes: what depends on it asks for it again."""
        for (handle,) in connection.execute(_PENDING).fetchall():
            *content, checksum = connection.execute(_ROW, (handle,)).fetchone()
            if row_checksum(*content) != checksum:
                connection.execute("DELETE FROM log WHERE handle = ?", (handle,))
                self._note_damaged(handle)

    def close(self) -> None:
        """Close without committing: call `barrier()` first."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> sqlite3.Connection:
        """For tables of the client that belong into the same transaction."""
        assert self._connection is not None, "the store is not open"
        return self._connection

    @property
    def last_handle(self) -> int:
        """The handle of the newest row, whatever became of it."""
        return self._last_handle

    def erase_deleted(self) -> None:
        """From now on the bytes of what is deleted are overwritten with zeros (`scrub`)."""
        self.connection.execute("PRAGMA secure_delete = ON")

    def scrub(self) -> bool:
        """Empty the write-ahead log, in which deleted bytes may stand; between two transactions.

        False: somebody reads just now, or something is not committed; try again later.
        """
        if self._dirty or self.failure:
            return False
        # Nobody waits for a reader that takes its time.
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            is_busy, *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:
            return False  # a disk that fails is told of by the next commit
        finally:
            wait_ms = int(database.BUSY_TIMEOUT_S * 1000)
            self.connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
        return not is_busy

    def next_boot(self) -> int:
        """Count this start (16 bits, never 0) and make that durable."""
        boot = (database.meta_int(self.connection, "boot", 0) + 1) & 0xFFFF or 1
        if self.write("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", boot) < 0:
            raise StorageError(self.failure)
        if self.barrier() != OK:
            raise StorageError(self.failure)
        return boot

    # --- transactions ---

    def write(self, statement: str, *values: object) -> int:
        """Run one statement in the open transaction; returns the rows touched or E_STORAGE."""
        cursor = self._write(statement, values)
        return cursor.rowcount if cursor is not None else E_STORAGE

    def _write(self, statement: str, values: Sequence[object]) -> sqlite3.Cursor | None:
        if self.failure:
            return None
        try:
            if not self._dirty:
                self.connection.execute("BEGIN IMMEDIATE")
                self._dirty = True
            return self.connection.execute(statement, values)
        except sqlite3.Error as error:
            self._fail(error)
            return None

    def _fail(self, error: sqlite3.Error) -> int:
        self.failure = database.explain(self.path, error)
        self._dirty = False
        self._recent.clear()
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the first failure is the reason; the file is left to the next open
        return E_STORAGE

    def _row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self.connection.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
            return None
        return row

    def barrier(self) -> int:
        """Commit: everything written before survives a power cut when this returns OK."""
        if self.failure:
            return E_STORAGE
        if self.spool.write_changed() != OK:
            return E_STORAGE
        if not self._dirty or self._together:
            return OK
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            return self._fail(error)
        self._dirty = False
        self.programs += 1
        return OK

    @contextmanager
    def without_commits(self) -> Iterator[None]:
        """A barrier inside waits for the next one outside: nothing inside leaves this host."""
        before, self._together = self._together, True
        try:
            yield
        finally:
            self._together = before

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written inside is one transaction; a barrier inside waits for the end.

        Raises StorageError when it could not be committed.
        """
        with self.without_commits():
            yield
        if self.barrier() != OK:
            raise StorageError(self.failure)

    # --- members ---

    def member(self, kind: int, key: Buffer, at: int, size: int) -> int:
        """The number, for life, of a group (1) or peer (2); E_CAPACITY when all are used."""
        name = (kind, bytes(key[at : at + size]))
        number = self._members.get(name, 0)
        if number:
            return number
        row = self._row("SELECT coalesce(max(number), 0) + 1 FROM members WHERE kind = ?", kind)
        number = row[0] if row else E_STORAGE
        if number > MEMBER_NUMBER_MAX:
            number = self._free_number(kind)
        if number < 0:
            return number
        if (
            self.write("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", kind, number, name[1])
            < 0
        ):
            return E_STORAGE
        self._members[name] = number
        return number

    def _free_number(self, kind: int) -> int:
        """A number that was given up and that no message carries any more; or E_CAPACITY."""
        row = self._row(
            "SELECT number FROM members WHERE kind = ? AND key = x'' AND NOT EXISTS"
            " (SELECT 1 FROM log WHERE iif(kind = 1, member_group, source) = number) LIMIT 1",
            kind,
        )
        return row[0] if row else E_CAPACITY

    def dismiss(self, kind: int, number: int) -> int:
        """A group was left: its messages are as if they had never been here; OK or a code.

        Or a peer was removed: its number is not given to another one before its messages go.
        """
        touched = self.write(
            "UPDATE members SET key = x'' WHERE kind = ? AND number = ?", kind, number
        )
        self._members = {
            name: n for name, n in self._members.items() if (name[0], n) != (kind, number)
        }
        if kind == MEMBER_GROUP and touched >= 0:
            self._body_handle = 0
            self._recent.clear()
            touched = self.write("DELETE FROM log WHERE member_group = ?", number)
            touched = min(touched, self.write("DELETE FROM gone WHERE member_group = ?", number))
            touched = min(touched, self.write("DELETE FROM descriptors WHERE number = ?", number))
            if touched >= 0:
                self._recount(self.connection)
        return OK if touched >= 0 else E_STORAGE

    # --- descriptors ---

    def descriptor_put(self, part: int, number: int) -> int:
        """Keep a finished part (client id 32 | descriptor) as a group's; OK or a code."""
        data = self.spool.content(part)
        if data is None or len(data) < ID_SIZE:
            return E_STORAGE
        if self.write("INSERT OR REPLACE INTO descriptors VALUES (?, ?)", number, data) < 0:
            return E_STORAGE
        return self.spool.part_drop(part)

    # --- messages ---

    def put(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        body: Buffer, at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Take a message in that `find` does not know; its handle, or E_CAPACITY or E_STORAGE."""
        return self._insert(
            group,
            source,
            bytes(id[id_at : id_at + ID_SIZE]),
            bytes(timestamp[ts_at : ts_at + TIMESTAMP_SIZE]),
            bytes(body[at : at + size]),
            state,
        )

    def _insert(
        self, group: int, source: int, id: bytes, timestamp: bytes, body: bytes, state: int
    ) -> int:
        if self.failure:
            return E_STORAGE
        room = self._room(state == STATE_PENDING) and self._in_quota(group)
        if len(body) > BODY_SIZE_MAX or not room:
            return E_CAPACITY
        handle = self._add(id, group, source, timestamp, state, body)
        if handle > 0:
            self._count(state, 1)
            self._held[group & 7] += 1
        return handle

    def _add(
        self, id: bytes, group: int, source: int, timestamp: bytes, state: int, body: bytes
    ) -> int:
        size = len(body)
        checksum = row_checksum(group, source, state, id, timestamp, body)
        cursor = self._write(_PUT, (id, group, source, timestamp, size, state, body, checksum))
        if cursor is None or cursor.lastrowid is None:
            return E_STORAGE
        self._last_handle = handle = cursor.lastrowid
        kept_body = body if size <= BODY_KEPT_MAX else None
        row = Row(id, timestamp, group, source, size, state, size, kept_body)
        self._recent.add(handle, row, state in (STATE_DELIVERED, STATE_PRIVATE))
        return handle

    def _count(self, state: int, change: int) -> None:
        if state == STATE_PENDING:
            self._pending += change
        else:
            self._messages += change

    def _room(self, pending: bool) -> bool:
        if pending:
            return self._pending < self.pending_max
        if self._messages >= self.messages_max and self.reclaim() != OK:
            return False
        return self._last_handle < HANDLE_MAX

    def find(self, id: Buffer, at: int, size: int = ID_SIZE) -> int:
        """The handle of a message by `size` first bytes of its id, in whatever state, or 0.

        Of a message that made room, this says all that `load` sets.
        """
        low = bytes(id[at : at + size])
        known = self._recent.handle_of(low)
        if known is not None:
            return known
        row = self._row(_FIND, low) if size == ID_SIZE else self._row(_FIND_BY_START, *_ends(low))
        if row:
            self._recent.keep(row[0], row_of(row))
            return int(row[0])
        return self._find_gone(low)

    def _find_gone(self, low: bytes) -> int:
        """The same among the messages that made room."""
        row = self._row(_FIND_GONE, *_ends(low)) if self._has_gone else None
        if row is None:
            if not self.failure:
                self._recent.lacks(low)
            return 0
        self.id[:] = _ends(low)[0]
        return GONE_HANDLE + int(row[0]) + (_GONE_INVALID if row[1] == STATE_INVALID else 0)

    def is_id(self, handle: int, id: Buffer, at: int, size: int) -> bool:
        """True when the id of a message begins with these bytes; what `load` set stays."""
        row = self._known(handle)
        return row is not None and row.id[:size] == id[at : at + size]

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """Copy the id of a message; False when it is not there. What `load` set stays."""
        row = self._known(handle)
        if row is None:
            return False
        buf[at : at + ID_SIZE] = row.id
        return True

    def _known(self, handle: int) -> Row | None:
        """The row of a handle; None when there is none, or after a failure."""
        row = self._recent.rows.get(handle)
        if row is None and (values := self._row(_LOAD, handle)):
            row = row_of(values)
            self._recent.keep(handle, row)
        return row

    def load(self, handle: int) -> int:
        """Fill the attributes from a row; E_STORAGE when there is none.

        Of a message that made room group and state; the id is as it was given to `find`. One whose
        row is damaged is as one that was deleted and left no edges: the log goes on behind it, and
        a peer that asks for it is told that it is gone (docs/SPEC.md 4.2).
        """
        if handle >= GONE_HANDLE:
            self.group = handle & 0xFF
            self.state = STATE_INVALID if handle & _GONE_INVALID else STATE_GONE
            self.source = self.size = self.edges_size = self.missing = 0
            self.private = False
            return OK
        row = self._known(handle)
        if row is None:
            return E_STORAGE
        self.id[:] = row.id
        self.timestamp[:] = row.timestamp
        self.group, self.source, self.size, state = row.group, row.source, row.size, row.state
        self.private = state in (STATE_PRIVATE, _STATE_DELETED_PRIVATE)
        self.state = STATE_DELETED if state in (_STATE_DROPPED, _STATE_DELETED_PRIVATE) else state
        self.edges_size = row.body_size if self.state == STATE_DELETED else 0
        self.missing = 0
        if self.state == STATE_DELETED:
            self.missing, self.size = self.size, 0
        if (row.is_damaged or handle in self.damaged_handles) and self.state != STATE_INVALID:
            self._note_damaged(handle)
            if self.state != STATE_PENDING:
                self.state = STATE_DELETED
                self.size = self.edges_size = self.missing = 0
        return OK

    def _note_damaged(self, handle: int) -> None:
        if len(self.damaged_handles) < DAMAGED_KNOWN_MAX:
            self.damaged_handles.add(handle)
            self.damaged = len(self.damaged_handles)

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Copy body bytes (of a deleted message: its edges); how many there were, or E_STORAGE.

        E_STORAGE, too, for a row that is damaged.
        """
        row = self._recent.rows.get(handle)
        if row is not None and row.body is not None and not row.is_damaged:
            return copy_out(row.body, offset, buf, at, size)
        if self._body_handle != handle:
            content = self._sound_row(handle)
            if content is None:
                return E_STORAGE
            self._body, self._body_handle = content[-1], handle
        return copy_out(self._body, offset, buf, at, size)

    def _sound_row(self, handle: int) -> list[Any] | None:
        """What a row's checksum covers, the body last; None: there is no row, or it is damaged."""
        values = self._row(_ROW, handle)
        if values is None:
            return None
        *content, checksum = values
        if row_checksum(*content) != checksum:
            self._note_damaged(handle)
            return None
        return content

    def promote(self, handle: int, state: int) -> int:
        """Move a waiting message into the log, delivered or private; its new handle or a code."""
        if self.load(handle) != OK or self.state != STATE_PENDING:
            return E_STORAGE
        if not self._room(False):
            return E_CAPACITY
        content = self._sound_row(handle)
        if content is None or self.write("DELETE FROM log WHERE handle = ?", handle) < 0:
            return E_STORAGE
        self._recent.forget(handle)
        self._pending -= 1
        entered = self._add(
            bytes(self.id), self.group, self.source, bytes(self.timestamp), state,
            content[-1],
        )  # fmt: skip
        if entered > 0:
            self._messages += 1
            self.state = state
        return entered

    def open_up(self, handle: int) -> int:
        """Share a private message from now on; its handle and place stay. OK or a code.

        One that was deleted meanwhile only counts as shared.
        """
        content = self._sound_row(handle) if self.load(handle) == OK else None
        if content is None:
            return E_STORAGE
        state = _OPENED_UP.get(content[2], content[2])
        content[2] = state
        self._recent.forget(handle)
        touched = self.write(
            "UPDATE log SET state = ?, checksum = ? WHERE handle = ?",
            state, row_checksum(*content), handle,
        )  # fmt: skip
        return OK if touched >= 0 else E_STORAGE

    def bury(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        handle: int,
    ) -> int:  # fmt: skip
        """Keep only the id of a message that is not valid; its handle or a code.

        `handle`: the pending message that it is, or 0. One that is in the log, or buried, stays
        what it is.
        """
        handle = handle or self.find(id, id_at)
        if not handle:
            return self.put(group, source, id, id_at, timestamp, ts_at, b"", 0, 0, STATE_INVALID)
        if self.load(handle) != OK:
            return E_STORAGE
        if self.state != STATE_PENDING:
            return handle
        code = self._empty(handle, STATE_INVALID, b"")
        return handle if code == OK else code

    def next(self, handle: int) -> int:
        """The next message in log order; 0 at the end.

        One that was deleted keeps its place; one that is pending or invalid never had one.
        """
        recent = self._recent
        following = recent.following.get(handle)
        if following is not None:
            return following
        if handle == recent.newest or handle >= self._last_handle:
            return 0
        try:
            rows = self.connection.execute(_WALK, (handle, AHEAD_COUNT)).fetchall()
        except sqlite3.Error as error:
            self._fail(error)
            return 0
        recent.keep_walk(handle, [(row[0], row_of(row)) for row in rows])
        return int(rows[0][0]) if rows else 0

    def next_pending(self, handle: int) -> int:
        """The next message that waits for a parent; 0 at the end."""
        row = self._row(
            "SELECT handle FROM log WHERE handle > ? AND state = 2 ORDER BY handle LIMIT 1",
            handle,
        )
        return row[0] if row else 0

    def entomb(self, handle: int, edges: Buffer, size: int, missing: int = 0) -> int:
        """Drop a body; its id, its place in the log and its edges stay known.

        `missing`: a bit (0..31) for each sharer that is not known to have the message; see `keep`.
        """
        if self.load(handle) != OK:
            return E_STORAGE
        if self.state in (STATE_DELETED, STATE_INVALID, STATE_GONE):
            return OK
        state = _STATE_DROPPED if self.state == STATE_PENDING else STATE_DELETED
        if self.state == STATE_PRIVATE:
            state = _STATE_DELETED_PRIVATE
        if not self._may_keep(missing):
            return E_CAPACITY
        return self._empty(handle, state, bytes(edges[:size]), missing)

    def _empty(self, handle: int, state: int, left: bytes, missing: int = 0) -> int:
        if self.load(handle) != OK:
            return E_STORAGE
        self._count(self.state, -1)
        self._count(state, 1)
        checksum = row_checksum(
            self.group, self.source, state, bytes(self.id), bytes(self.timestamp), left
        )  # fmt: skip
        self._body_handle = 0
        self._recent.forget(handle)
        touched = self.write(
            "UPDATE log SET state = ?, body = ?, size = ?, checksum = ? WHERE handle = ?",
            state, left, missing, checksum, handle,
        )  # fmt: skip
        return OK if touched == 1 else E_STORAGE

    def put_part(
        self, part: int, group: int, source: int, id: Buffer, id_at: int, state: int
    ) -> int:
        """Turn a part (group id, timestamp, body) into a message; as `put`."""
        data = self.spool.content(part)
        if data is None or len(data) < CONTENT_HEADER_SIZE:
            return E_STORAGE
        handle = self._insert(
            group,
            source,
            bytes(id[id_at : id_at + ID_SIZE]),
            data[ID_SIZE:CONTENT_HEADER_SIZE],
            data[CONTENT_HEADER_SIZE:],
            state,
        )
        if handle > 0 and self.spool.part_drop(part) != OK:
            return E_STORAGE
        return handle

    # --- the node's own state ---

    def save(self, state: Buffer, size: int) -> int:
        """Replace the saved blob; durable with the next barrier."""
        if size > SAVED_SIZE_MAX:
            return E_CAPACITY
        blob = bytes(state[:size])
        self.saved[:size] = blob
        self.saved_size = size
        touched = self.write("INSERT OR REPLACE INTO meta VALUES ('wake', ?)", blob)
        return OK if touched >= 0 else E_STORAGE


def _ends(start: bytes) -> tuple[bytes, bytes]:
    """The lowest and the highest id that begins with these bytes."""
    return start.ljust(ID_SIZE, b"\x00"), start.ljust(ID_SIZE, b"\xff")
