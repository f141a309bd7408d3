"""The tables of a host's databases as numbered steps: a new file takes all, an older one the rest.

`PRAGMA user_version` is the number of the last step that a file has taken. The owner of a home
takes the missing ones when it opens the file, all in one transaction, so that a cut leaves the
file as it was. Never change a step that was released: add one, and dump a store of the release
before it with tests/host/stores/make.py.
"""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drupelet_host.base.errors import DamagedError
from drupelet_host.store.checksum import row_checksum

_STORE_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE members (kind INTEGER, number INTEGER, key BLOB NOT NULL,
    PRIMARY KEY (kind, number)) WITHOUT ROWID;
CREATE TABLE log (handle INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE,
    member_group INTEGER NOT NULL, source INTEGER NOT NULL, timestamp BLOB NOT NULL,
    size INTEGER NOT NULL, state INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX log_waiting ON log (handle) WHERE state = 2;
CREATE TABLE parts (part INTEGER PRIMARY KEY, key BLOB NOT NULL, total INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE TABLE descriptors (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE outbox (entry INTEGER PRIMARY KEY AUTOINCREMENT, timestamp BLOB NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE requests (entry INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,
    argument TEXT NOT NULL, result TEXT);
"""
# Stores of version 2 have `gone` unless they were made before messages that go left their ids.
_STORE_CHECKSUMS = """
CREATE TABLE IF NOT EXISTS gone (entry INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE,
    member_group INTEGER NOT NULL, state INTEGER NOT NULL);
ALTER TABLE log ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE log SET checksum = row_checksum(CAST(member_group AS INTEGER), CAST(source AS INTEGER),
    CAST(state AS INTEGER), CAST(id AS BLOB), CAST(timestamp AS BLOB), CAST(body AS BLOB));
CREATE INDEX log_delivered ON log (member_group) WHERE state = 1;
DROP TABLE requests;
"""
_CHANNELS_TABLES = """
CREATE TABLE IF NOT EXISTS messages (
    handle INTEGER PRIMARY KEY AUTOINCREMENT,
    channel BLOB NOT NULL,
    id BLOB NOT NULL,
    lamport BLOB NOT NULL,
    frame BLOB NOT NULL,
    UNIQUE (channel, id)
);
CREATE INDEX IF NOT EXISTS by_time ON messages (channel, lamport, id);
CREATE TABLE IF NOT EXISTS hints (
    channel BLOB NOT NULL,
    hint BLOB NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (channel, hint)
) WITHOUT ROWID;
"""


def _run(connection: sqlite3.Connection, statements: str) -> None:
    """Run statements in the open transaction, which `executescript` would commit."""
    for statement in statements.split(";"):
        connection.execute(statement)


def _begin_store(connection: sqlite3.Connection) -> None:
    _run(connection, _STORE_TABLES)
    store_gen = int.from_bytes(os.urandom(4))
    connection.execute("INSERT INTO meta VALUES ('store_gen', ?)", (store_gen,))


def _add_checksums(connection: sqlite3.Connection) -> None:
    connection.create_function("row_checksum", 6, row_checksum)
    _run(connection, _STORE_CHECKSUMS)


def _begin_channels(connection: sqlite3.Connection) -> None:
    _run(connection, _CHANNELS_TABLES)


def _note_what_is_logged(connection: sqlite3.Connection) -> None:
    """Files of before the numbers have version 0, with these columns or without."""
    for name in ("logged", "held"):
        if name not in columns_of(connection):
            connection.execute(f"ALTER TABLE messages ADD COLUMN {name} INTEGER")
    connection.execute(
        "CREATE INDEX IF NOT EXISTS waiting ON messages (channel, handle) WHERE logged = 0"
    )


def _note_what_a_bridge_owes(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE owed (channel BLOB NOT NULL, id BLOB NOT NULL, PRIMARY KEY (channel, id))"
        " WITHOUT ROWID"
    )


def columns_of(connection: sqlite3.Connection) -> set[str]:
    """The columns that a file's table of channel messages has."""
    return {row[1] for row in connection.execute("PRAGMA table_info(messages)")}


@dataclass(frozen=True)
class Schema:
    """One kind of database: what it is recognised by, and its steps, the oldest first.

    oldest: the lowest version that there are files of; a file that is new has 0.
    """

    what: str
    application_id: int
    oldest: int
    steps: tuple[tuple[int, Callable[[sqlite3.Connection], None]], ...]

    @property
    def newest(self) -> int:
        """The version of a file that has taken all steps."""
        return self.steps[-1][0]

    def recognise(self, connection: sqlite3.Connection, path: Path) -> int:
        """The version of a file that can be read; StorageError for another program's file, for
        one of a later release, and for one that no release made."""
        if _pragma(connection, "application_id") != self.application_id:
            raise DamagedError(f"{path}: not {self.what}; move it away or choose another --home")
        version = _pragma(connection, "user_version")
        if version > self.newest:
            raise DamagedError(
                f"{path}: {self.what} of version {version}, and this program knows versions up to"
                f" {self.newest}: a later release wrote it; update drupelet"
            )
        if version < self.oldest:
            raise DamagedError(
                f"{path}: {self.what} of version {version}, which no release made: it is damaged;"
                " move it away or restore a backup"
            )
        return version

    def begin(self, connection: sqlite3.Connection) -> None:
        """Make the tables in a file that has none; another program's file stays as it is."""
        if _is_empty(connection):
            self._take_steps(connection, is_new=True)

    def bring_up(self, connection: sqlite3.Connection, path: Path) -> None:
        """Take the steps that a file lacks, in one transaction. Raises StorageError as `recognise`
        does; only the owner of a home calls this, for others may run an older release."""
        self.begin(connection)
        if self.recognise(connection, path) < self.newest:
            self._take_steps(connection, is_new=False)

    def _take_steps(self, connection: sqlite3.Connection, is_new: bool) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Two processes may have come here at once: the second finds the first one's tables.
            if not is_new or _is_empty(connection):
                version = _pragma(connection, "user_version")
                for number, step in self.steps:
                    if number > version:
                        step(connection)
                connection.execute(f"PRAGMA application_id = {self.application_id}")
                connection.execute(f"PRAGMA user_version = {self.newest}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


# "DRP1" and "DRS2": what `file` and we recognise the databases by.
STORE = Schema("a drupelet store", 0x44525031, 2, ((2, _begin_store), (3, _add_checksums)))
CHANNELS = Schema(
    "a drupelet database of channels", 0x44525332, 0,
    ((1, _begin_channels), (2, _note_what_is_logged), (3, _note_what_a_bridge_owes)),
)  # fmt: skip
