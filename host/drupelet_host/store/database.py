"""The SQLite file of one agent home: safe opening, and one-line reasons for failures.

WAL with synchronous=FULL: a COMMIT that returned survives a power cut, and `drupelet log` reads
while the agent writes. Several processes open the file: the agent owns `log`, others only add
rows to `outbox`.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from drupelet.base.errors import StorageError
from drupelet_host.base.errors import DamagedError
from drupelet_host.store import schema

# A key of `meta`, with the first handle behind it: the readings from there to the value came from
# a feed as if they were ours, and may be anybody's.
TAKEN = "taken."
# Another process holds the write lock for one commit (an fsync): a slow SD card takes ~0.5 s.
BUSY_TIMEOUT_S = 10.0
# quick_check reads the whole file; above this size it would delay the start by seconds.
CHECK_SIZE_MAX = 64 << 20


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


def connect(
    path: Path, read_only: bool = False, is_owner: bool = False
) -> sqlite3.Connection:  # fmt: skip
    """Open (and unless `read_only` create) the database; autocommit until a BEGIN.

    is_owner: the caller holds the home's lock, and brings a store of an older release up to this
    one; others read it, or add rows, as it is. Raises StorageError with one clear line.
    """
    if path.is_dir():
        raise StorageError(f"{path}: cannot be opened: it is a folder; move it away")
    if read_only and not path.exists():
        raise StorageError(f"{path}: no store yet; run `drupelet agent` once")
    with closed_on_failure(path, open_file(path, read_only)) as connection:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            schema.STORE.begin(connection)
        if is_owner:
            schema.STORE.bring_up(connection, path)
        schema.STORE.recognise(connection, path)
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
    # They take long to load, and few commands come here.
    import shutil
    from tempfile import TemporaryDirectory

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
    schema.STORE.begin(connection)
    return connection


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


def has_checksums(connection: sqlite3.Connection) -> bool:
    """False for a store of an earlier release that is only read."""
    return any(row[1] == "checksum" for row in connection.execute("PRAGMA table_info(log)"))


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the store has a table."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def meta_int(connection: sqlite3.Connection, key: str, default: int) -> int:
    """One number of the meta table."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(row[0]) if row else default
