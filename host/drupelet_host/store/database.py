"""The SQLite file of one agent home: schema, safe opening, and one-line reasons for failures.

WAL with synchronous=FULL: a COMMIT that returned survives a power cut, and `drupelet log` reads
while the agent writes. Several processes open the file: the agent owns `log`, others only add
rows to `outbox` and `requests`.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from drupelet.base.errors import StorageError
from drupelet_host.base.errors import DamagedError

# "DRP1": what `file` and we recognise the database by.
APPLICATION_ID = 0x44525031
SCHEMA_VERSION = 2
# A key of `meta`, with the first handle behind it: the readings from there to the value came from
# a feed as if they were ours, and may be anybody's.
TAKEN = "taken."
# Another process holds the write lock for one commit (an fsync): a slow SD card takes ~0.5 s.
BUSY_TIMEOUT_S = 10.0
# quick_check reads the whole file; above this size it would delay the start by seconds.
CHECK_SIZE_MAX = 64 << 20

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE members (kind INTEGER, number INTEGER, key BLOB NOT NULL,
    PRIMARY KEY (kind, number)) WITHOUT ROWID;
CREATE TABLE log (handle INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE,
    member_group INTEGER NOT NULL, source INTEGER NOT NULL, timestamp BLOB NOT NULL,
    size INTEGER NOT NULL, state INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX log_waiting ON log (handle) WHERE state = 2;
CREATE TABLE gone (entry INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE,
    member_group INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE TABLE parts (part INTEGER PRIMARY KEY, key BLOB NOT NULL, total INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE TABLE descriptors (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE outbox (entry INTEGER PRIMARY KEY AUTOINCREMENT, timestamp BLOB NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE requests (entry INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,
    argument TEXT NOT NULL, result TEXT);
"""


def explain(path: Path, error: sqlite3.Error) -> str:
    """One line for a person: which file, what is wrong, what to do."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    reasons = {
        sqlite3.SQLITE_FULL: "the disk is full; free some space and start again",
        sqlite3.SQLITE_READONLY: "it cannot be written; check its owner and mode, and the mount",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and is yours",
        sqlite3.SQLITE_NOTADB: "it is not a database; move it away or restore a copy",
        sqlite3.SQLITE_CORRUPT: "it is damaged; move it away or restore a copy",
        sqlite3.SQLITE_IOERR: "the disk refused it (full, a size limit, or failing);"
        " free some space and start again",
        sqlite3.SQLITE_BUSY: "another program holds it locked; stop that one first",
        sqlite3.SQLITE_LOCKED: "another program holds it locked; stop that one first",
        sqlite3.SQLITE_PERM: "access denied; check its owner and mode",
    }
    return f"{path}: {reasons.get(code, str(error))}"


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open (and unless `read_only` create) the database; autocommit until a BEGIN.

    Raises StorageError with one clear line.
    """
    if path.is_dir():
        raise StorageError(f"{path}: cannot be opened: it is a folder; move it away")
    if read_only and not path.exists():
        raise StorageError(f"{path}: no store yet; run `drupelet agent` once")
    with closed_on_failure(path, open_file(path, read_only)) as connection:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            _create(connection)
        _recognise(connection, path)
    return connection


def open_file(path: Path, read_only: bool = False, autocommit: bool = True) -> sqlite3.Connection:
    """Open a database file as it is; raises StorageError."""
    level: Literal["DEFERRED"] | None = None if autocommit else "DEFERRED"
    try:
        if read_only and not os.access(path.parent, os.W_OK):
            return _open_fixed(path, has_index=path.with_name(path.name + "-shm").exists())
        name = f"{path.absolute().as_uri()}?mode=ro" if read_only else path
        connection = sqlite3.connect(
            name, uri=read_only, timeout=BUSY_TIMEOUT_S, isolation_level=level
        )
        if read_only and not _makes_index(connection):
            connection.close()
            return _open_fixed(path, has_index=False)
        return connection
    except sqlite3.Error as error:
        raise StorageError(explain(path, error)) from error


def _makes_index(connection: sqlite3.Connection) -> bool:
    """False where a reader cannot make the index of the WAL, as on a full disk."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return False
        raise
    return True


def _open_fixed(path: Path, has_index: bool) -> sqlite3.Connection:
    """Open a database where SQLite can make no index of its WAL: read-only folder, full disk.

    What stands in a WAL that has none is read from a copy, which goes with the connection.
    """
    log = path.with_name(path.name + "-wal")
    options = "mode=ro" if has_index else "mode=ro&immutable=1"
    if has_index or not log.exists() or not log.stat().st_size:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?{options}", uri=True, timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
        )  # fmt: skip
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for name in (path.name, log.name):
            shutil.copyfile(path.with_name(name), copy.with_name(name))
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("SELECT count(*) FROM sqlite_master")  # opens all three files
    return connection


@contextmanager
def closed_on_failure(path: Path, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close `connection` if the block fails; SQLite's errors become StorageError."""
    try:
        yield connection
    except sqlite3.Error as error:
        connection.close()
        raise StorageError(explain(path, error)) from error
    except StorageError:
        connection.close()
        raise


def empty() -> sqlite3.Connection:
    """What a home without a store reads like: the same tables, in memory, with nothing in them."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    return connection


def _create(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0]:
        # Stores of version 2 were made before messages that go left their ids.
        gone = next(line for line in _SCHEMA.split(";") if " gone " in line)
        connection.execute(gone.replace("TABLE", "TABLE IF NOT EXISTS"))
        return
    connection.execute("BEGIN IMMEDIATE")
    # Two processes may have come here at once: the second finds the first one's tables.
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        store_gen = int.from_bytes(os.urandom(4))
        connection.execute("INSERT INTO meta VALUES ('store_gen', ?)", (store_gen,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise DamagedError(f"{path}: not a drupelet store; move it away or choose another --home")
    if version != SCHEMA_VERSION:
        raise DamagedError(
            f"{path}: store version {version}, this program knows {SCHEMA_VERSION};"
            " use the drupelet release that wrote it"
        )


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Look the whole file over, unless it is too long for that; raises StorageError."""
    if path.stat().st_size > CHECK_SIZE_MAX:
        return
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise StorageError(explain(path, error)) from error
    if answer != "ok":
        first = str(answer).splitlines()[-1]
        raise DamagedError(f"{path}: damaged ({first}); move it away or restore a copy")


def meta_int(connection: sqlite3.Connection, key: str, default: int) -> int:
    """One number of the meta table."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else default
