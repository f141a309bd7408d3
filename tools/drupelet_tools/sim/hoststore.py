"""The host's SQLite store in memory: a crash rolls back what was not committed."""

import sqlite3
from pathlib import Path

from drupelet_host.store import database
from drupelet_host.store.sqlite_store import SqliteStore


def open_in_memory(path: Path) -> sqlite3.Connection:
    """A database that is gone when nobody holds the connection any more."""
    return database.connect(path)


class MemoryStore(SqliteStore):
    """`SqliteStore` over one connection that outlives the process it stands for."""

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))
        self.kept: sqlite3.Connection = open_in_memory(self.path)
        # The generation is drawn when a database is made; here it must not be by chance.
        self.kept.execute("UPDATE meta SET value = 1 WHERE key = 'store_gen'")

    def reopen(self) -> None:
        """Open it as a new process does."""
        self._connection = None
        self.__init_again()
        self._recover(self.kept)
        self._connection = self.kept

    def __init_again(self) -> None:
        kept = self.kept
        SqliteStore.__init__(self, self.path)
        self.kept = kept

    def crash(self) -> None:
        """The process is gone, and with it what was not committed."""
        if self.kept.in_transaction:
            self.kept.execute("ROLLBACK")

    def wipe(self) -> None:
        """Somebody removed the file."""
        self.kept = open_in_memory(self.path)

    def copied(self) -> sqlite3.Connection:
        """The database as it is, in another one."""
        other = open_in_memory(self.path)
        self.kept.backup(other)
        return other

    def put_back(self, copy: sqlite3.Connection) -> None:
        """The database is as it was when it was copied."""
        self.kept = open_in_memory(self.path)
        copy.backup(self.kept)

    def renumber(self, store_gen: int) -> None:
        """Another store has another number."""
        with self.kept:
            self.kept.execute("UPDATE meta SET value = ? WHERE key = 'store_gen'", (store_gen,))

    def volatile(self) -> bool:
        """Whether a crash now would take something."""
        return self.kept.in_transaction
