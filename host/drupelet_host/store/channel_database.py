"""Messages of channels in one SQLite file: a channel's keeper on a host, and the store node.

A frame is in the keeper's form (drupelet.channel.keeper). Written rows are one transaction until
`commit`; a host commits before it sends.

SQLite may roll everything back when a write fails, on a full disk for one, and give the same
handles again later. So after a failure nothing is written any more: the agent stops with `failure`
as its reason, and the file tells the next start the truth.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
from drupelet.base.limits import WAIT_MS_MAX
from drupelet.channel.keeper import put_names
from drupelet.channel.ports import Buffer, Key
from drupelet.wire.sds.message import Decoder
from drupelet_host.base import clock
from drupelet_host.store import schema
from drupelet_host.store.database import closed_on_failure, explain, open_file

# A frame on a host: the filter of 10,000 ids that both peers have by default, and content.
FRAME_SIZE_MAX = 1 << 17
# A message that still waits is found at a start behind at most so many newer ones: a start takes
# a few seconds for them.
_WAITING_BEHIND_MAX = 10_000


class ChannelDatabase:
    """The file. Raises StorageError, one clear line, when it cannot be used.

    failure: why nothing is written any more, or ''.
    """

    def __init__(self, path: Path | str) -> None:
        self.failure = ""
        self._path = Path(path)
        self.connection = open_file(self._path, autocommit=False)
        with closed_on_failure(self._path, self.connection):
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = FULL")
            schema.CHANNELS.bring_up(self.connection, self._path)

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """All rows of a question."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StorageError(explain(self._path, error)) from error

    def write(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Run one statement in the open transaction."""
        self.check()
        try:
            return self.connection.execute(statement, values)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        """Make durable what was written."""
        self.check()
        try:
            self.connection.commit()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def check(self) -> None:
        """Raise StorageError if a write failed before."""
        if self.failure:
            raise StorageError(self.failure)

    def _failed(self, error: sqlite3.Error) -> StorageError:
        self.failure = explain(self._path, error)
        with suppress(sqlite3.Error):  # the first failure is the reason
            self.connection.rollback()
        return StorageError(self.failure)

    def close(self) -> None:
        """Commit and let go of the file. What was told of is durable since long."""
        with suppress(StorageError):
            self.commit()
        self.connection.close()


class SqliteKeeper:
    """A channel's messages, all of them, as `drupelet.channel.ports.KeeperPort`.

    wall_ms: the time of day, by which a message's waiting goes on over a restart.
    """

    def __init__(
        self, database: ChannelDatabase, channel: bytes,
        wall_ms: Callable[[], int] = clock.wall_ms,
    ) -> None:  # fmt: skip
        self._database = database
        self._wall_ms = wall_ms
        self._channel = channel
        self.work = bytearray(FRAME_SIZE_MAX)
        self.left = self.left_far = 0  # nothing ever goes
        self.horizon = bytearray(8)
        self.limit = bytearray(8)

    def put(self, key: Key, size: int, waits: bool) -> int:  # noqa: ARG002
        """Keep work[:size]; its handle or E_STORAGE."""
        work = self.work
        at = 3 + work[1]
        id = bytes(work[at + 1 : at + 1 + work[at]])
        try:
            done = self._database.write(
                "INSERT INTO messages (channel, id, lamport, frame, logged, held)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    self._channel, id, lamport_of(work, size), bytes(work[:size]), not waits,
                    self._wall_ms() if waits else None,
                ),
            )  # fmt: skip
        except StorageError:
            return E_STORAGE
        handle = done.lastrowid or 0
        return handle if 0 < handle < 1 << 30 else E_CAPACITY

    def load(self, handle: int) -> int:
        """The frame into `work`; its size, 0: there is none."""
        frame = self._frame(handle)
        self.work[: len(frame)] = frame
        return len(frame)

    def _frame(self, handle: int) -> bytes:
        rows = self._database.rows(
            "SELECT frame FROM messages WHERE handle = ? AND channel = ?", (handle, self._channel)
        )
        return rows[0][0] if rows else b""

    def find(self, key: Key, id: Buffer, at: int, size: int) -> int:  # noqa: ARG002
        """Handle of a message by its id, or 0."""
        rows = self._database.rows(
            "SELECT handle FROM messages WHERE channel = ? AND id = ?",
            (self._channel, bytes(id[at : at + size])),
        )
        return rows[0][0] if rows else 0

    def names_into(self, handle: int, out: bytearray) -> bool:
        """Write who sent a message and its id to `out`; False: there is none."""
        frame = self._frame(handle)
        if frame:
            put_names(out, frame, 0)
        return bool(frame)

    def barrier(self) -> int:
        """Commit what was put."""
        try:
            self._database.commit()
        except StorageError:
            return E_STORAGE
        return OK

    def pin(self, handle: int, pinned: bool) -> None:
        """Nothing goes here; what waited and is let go is in the log."""
        if pinned:
            return
        with suppress(StorageError):  # it waits again after a restart
            self._database.write(
                "UPDATE messages SET logged = 1, held = NULL WHERE handle = ? AND logged IS NOT 1",
                (handle,),
            )

    def waited_ms(self, handle: int) -> int:
        """For how long a message waits, at most 2^28 ms; 0: unknown; -1: it is in the log."""
        rows = self._database.rows("SELECT logged, held FROM messages WHERE handle = ?", (handle,))
        if not rows or rows[0][0] == 1:
            return -1
        held_ms = rows[0][1] or 0
        # A clock that went back since, or was not set then, does not tell.
        passed_ms = self._wall_ms() - held_ms if held_ms > clock.SET_MS else 0
        return min(max(passed_ms, 0), WAIT_MS_MAX)

    def drop(self, handle: int) -> None:
        """Forget a message: it may come again."""
        with suppress(StorageError):
            self._database.write("DELETE FROM messages WHERE handle = ?", (handle,))

    def next(self, handle: int) -> int:
        """Handle of the message put after it (0: the first), or 0."""
        rows = self._database.rows(
            "SELECT min(handle) FROM messages WHERE channel = ? AND handle > ?",
            (self._channel, handle),
        )
        return rows[0][0] or 0

    def tail(self, count: int) -> int:
        """The handle behind which are the last `count` messages that were put, and older ones
        that still wait."""
        handle = self._behind(count)
        rows = self._database.rows(
            "SELECT min(handle) FROM messages WHERE channel = ? AND logged = 0 AND handle > ?",
            (self._channel, self._behind(_WAITING_BEHIND_MAX)),
        )
        return min(handle, (rows[0][0] or handle + 1) - 1)

    def _behind(self, count: int) -> int:
        rows = self._database.rows(
            "SELECT handle FROM messages WHERE channel = ? ORDER BY handle DESC LIMIT 1 OFFSET ?",
            (self._channel, count),
        )
        return rows[0][0] if rows else 0


class OwedMessages:
    """Messages that a bridge brought to a channel and nobody there has acknowledged: their ids.

    What is written is durable with the next commit of the database.
    """

    def __init__(self, database: ChannelDatabase, channel: bytes) -> None:
        self._database = database
        self._channel = channel

    def load(self) -> list[bytes]:
        """Every id."""
        query = "SELECT id FROM owed WHERE channel = ?"
        return [bytes(row[0]) for row in self._database.rows(query, (self._channel,))]

    def add(self, id: bytes) -> None:
        """Note one. Raises StorageError."""
        self._database.write("INSERT OR IGNORE INTO owed VALUES (?, ?)", (self._channel, id))

    def remove(self, id: bytes) -> None:
        """Forget one. Raises StorageError."""
        self._database.write("DELETE FROM owed WHERE channel = ? AND id = ?", (self._channel, id))


def lamport_of(frame: Buffer, size: int) -> bytes:
    """The Lamport value of a kept frame, 8 bytes big-endian: SQLite compares them as they are."""
    decoder = Decoder()
    decoder.open(frame, 0, size)
    return bytes(reversed(decoder.lamport))
