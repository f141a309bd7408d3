"""How far each reader of a home's log has come, in an SQLite file of its own.

A reader is an export or a program, and has a name. The file keeps the handle up to which all is
done, the length of the file that an export appends to, and the id of every message that is done:
after the store was put back to an older state its handles start anew, and what comes again is
known by its id. One COMMIT makes all of it durable at once.
"""

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from drupelet.base.errors import StorageError
from drupelet_host.base.errors import DamagedError
from drupelet_host.store import database

# "DRR1": what we recognise the file by.
APPLICATION_ID = 0x44525231
SCHEMA_VERSION = 1
# So many first bytes of an id tell the messages of a home apart.
DONE_ID_SIZE = 16

_SCHEMA = """
CREATE TABLE readers (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    store_gen INTEGER NOT NULL, handle INTEGER NOT NULL, file_size INTEGER NOT NULL,
    sending_to INTEGER NOT NULL, is_received INTEGER NOT NULL);
CREATE TABLE done (reader INTEGER, store_gen INTEGER, handle INTEGER, id BLOB NOT NULL,
    PRIMARY KEY (reader, store_gen, handle)) WITHOUT ROWID;
"""


class ReaderDatabase:
    """The readers of one home. Raises StorageError with one clear line.

    May be used by one thread at a time, whichever opened it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            connection = sqlite3.connect(
                path, timeout=database.BUSY_TIMEOUT_S, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
        except OSError as error:
            raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
        except sqlite3.Error as error:
            raise StorageError(database.explain(path, error)) from error
        with database.closed_on_failure(path, connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            _create(connection)
            _recognise(connection, path)
        self._connection = connection

    def close(self) -> None:
        """Free the file."""
        self._connection.close()

    def reader(self, name: str) -> "ReaderRow":
        """The reader of this name, which is added if there is none."""
        with database.closed_on_failure(self.path, self._connection) as connection:
            connection.execute(
                "INSERT INTO readers (name, store_gen, handle, file_size, sending_to,"
                " is_received) SELECT ?, 0, 0, 0, 0, 0"
                " WHERE NOT EXISTS (SELECT 1 FROM readers WHERE name = ?)",
                (name, name),
            )
            number = connection.execute(
                "SELECT number FROM readers WHERE name = ?", (name,)
            ).fetchone()[0]
        return ReaderRow(self.path, self._connection, int(number))


class ReaderRow:
    """One reader: what of the store it has done.

    handle: everything up to it is done. file_size: bytes of an export's file that are whole.
    sending_to: a broker is being given what is behind `handle`, up to this one; 0: nothing.
    is_received: the broker has all of that, and may not be given it again.
    Whoever uses it holds the reader's lock, so nobody else changes its rows.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, number: int) -> None:
        self.number = number
        self._path = path
        self._connection = connection
        with database.closed_on_failure(path, connection):
            row = connection.execute(
                "SELECT store_gen, handle, file_size, sending_to, is_received FROM readers"
                " WHERE number = ?",
                (number,),
            ).fetchone()
        self.store_gen, self.handle, self.file_size, self.sending_to = map(int, row[:4])
        self.is_received = bool(row[4])
        self._earlier: frozenset[bytes] = frozenset()
        self._ahead: set[int] = set()

    def reset(self) -> None:
        """Begin again with the first message; whoever reads the row next finds it so."""
        with database.closed_on_failure(self._path, self._connection) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM done WHERE reader = ?", (self.number,))
            connection.execute(
                "UPDATE readers SET handle = 0, file_size = 0, sending_to = 0 WHERE number = ?",
                (self.number,),
            )
            connection.execute("COMMIT")

    def begin(self, store_gen: int) -> None:
        """Read the store of this generation: if it is another one than last time, from its start.

        Then what was done of the others is looked up by id, so that it is not read twice.
        """
        if store_gen != self.store_gen:
            self.store_gen, self.handle, self.sending_to = store_gen, 0, 0
        with database.closed_on_failure(self._path, self._connection) as connection:
            self._earlier = frozenset(
                bytes(id)
                for (id,) in connection.execute(
                    "SELECT id FROM done WHERE reader = ? AND store_gen != ?",
                    (self.number, store_gen),
                )
            )
            self._ahead = {
                int(handle)
                for (handle,) in connection.execute(
                    "SELECT handle FROM done WHERE reader = ? AND store_gen = ? AND handle > ?",
                    (self.number, store_gen, self.handle),
                )
            }

    def is_done(self, handle: int, id: bytes) -> bool:
        """Whether a message was done before."""
        return handle <= self.handle or handle in self._ahead or id[:DONE_ID_SIZE] in self._earlier

    def note_sending(self, handle: int, is_received: bool) -> None:
        """A broker is being given, or has, everything up to `handle`; durable on return."""
        with database.closed_on_failure(self._path, self._connection) as connection:
            connection.execute(
                "UPDATE readers SET store_gen = ?, handle = ?, sending_to = ?, is_received = ?"
                " WHERE number = ?",
                (self.store_gen, self.handle, handle, is_received, self.number),
            )
        self.sending_to, self.is_received = handle, is_received

    def finish(
        self, messages: Iterable[tuple[int, bytes]], handle: int, file_size: int = 0
    ) -> None:
        """Messages (handle, id) are done, and all up to `handle`; durable on return."""
        messages = list(messages)
        with database.closed_on_failure(self._path, self._connection) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT OR IGNORE INTO done VALUES (?, ?, ?, ?)",
                [(self.number, self.store_gen, at, id[:DONE_ID_SIZE]) for at, id in messages],
            )
            connection.execute(
                "UPDATE readers SET store_gen = ?, handle = ?, file_size = ?, sending_to = 0"
                " WHERE number = ?",
                (self.store_gen, handle, file_size, self.number),
            )
            connection.execute("COMMIT")
        self.handle, self.file_size, self.sending_to = handle, file_size, 0
        self._ahead.update(at for at, _ in messages)
        self._ahead = {at for at in self._ahead if at > handle}


def _create(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0]:
        return
    connection.execute("BEGIN IMMEDIATE")
    # Two processes may have come here at once: the second finds the first one's tables.
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise DamagedError(f"{path}: not a file of readers; move it away")
    if version != SCHEMA_VERSION:
        raise DamagedError(
            f"{path}: version {version}, this program knows {SCHEMA_VERSION};"
            " use the drupelet release that wrote it"
        )
