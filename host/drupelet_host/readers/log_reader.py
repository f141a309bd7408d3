"""A reader of a home's log under a name: what it has not done yet, in the log's order.

The log is read beside a running agent. What a reader has done is durable, and is known again after
a kill, and after the store was put back to an older state.
"""

import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from drupelet.base.errors import CapacityError, StorageError
from drupelet_host.home import config, file_lock, private_files
from drupelet_host.store import database
from drupelet_host.store.reader_database import ReaderDatabase
from drupelet_host.view.log_view import Entry, LogView

READERS_FOLDER = "readers"
_DATABASE_NAME = "readers.db"


class ReaderBusyError(CapacityError):
    """Another process, or another part of this one, reads under the same name."""


class LogReader:
    """Reads a group of a home's log under a name; `close` it at the end.

    group: one of `log_view.GROUPS`. starts_over: begin with the first message again.
    Raises ConfigError, StorageError, or ReaderBusyError.
    """

    def __init__(
        self, home: Path, name: str, group: str = "readings", starts_over: bool = False
    ) -> None:
        self.home = home
        self.name = name
        self.group = group
        self._view = LogView(home)
        self._lock_fd = -1
        self._database: ReaderDatabase | None = None
        self._looked_at = 0
        try:
            self._view.check_identity()
            folder = home / READERS_FOLDER
            private_files.make_folder(folder)
            self._database = ReaderDatabase(folder / _DATABASE_NAME)
            self._row = self._database.reader(name)
            self._lock_fd = self._lock(folder / f"{self._row.number}.lock")
            # Whoever held the lock before may have written since the row was read.
            if starts_over:
                self._row.reset()
            self._row = self._database.reader(name)
            self._begin()
        except sqlite3.Error as error:
            self.close()
            raise StorageError(database.explain(self._view.config.store_path, error)) from error
        except (config.ConfigError, StorageError, CapacityError, private_files.PrivateError):
            self.close()
            raise

    def _lock(self, path: Path) -> int:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
        if not file_lock.take(fd):
            os.close(fd)
            raise ReaderBusyError(
                f"{self.home}: another program reads under the name {self.name!r};"
                " stop it or choose another name"
            )
        return fd

    def _begin(self) -> None:
        self._store_gen = database.meta_int(self._view.connection, "store_gen", 0)
        self._file = _file_number(self._view.config.store_path)
        if self._view.begun:
            self._row.begin(self._store_gen)
        self._looked_at = self._row.handle if self._view.begun else 0

    def close(self) -> None:
        """Free the files and let others read under this name."""
        self._view.close()
        if self._database is not None:
            self._database.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @property
    def handle(self) -> int:
        """Everything up to this handle is done."""
        return self._row.handle

    @property
    def looked_at(self) -> int:
        """The handle of the last message that `batch` has looked at."""
        return self._looked_at

    @property
    def file_size(self) -> int:
        """Bytes of an export's file that are whole, as it was told to `finish`."""
        return self._row.file_size

    @property
    def config(self) -> config.Config:
        """The home's configuration when this reader began."""
        return self._view.config

    def look_behind(self, handle: int) -> None:
        """Have `batch` go on behind a handle, or with the first message that is not done."""
        self._looked_at = max(handle, self._row.handle)

    @property
    def number(self) -> int:
        """Tells the readers of a home apart, for life."""
        return self._row.number

    @property
    def sending_to(self) -> int:
        """A broker is being given what is behind `handle`, up to this handle; 0: nothing."""
        return self._row.sending_to

    @property
    def is_received(self) -> bool:
        """The broker has all that it is being given."""
        return self._row.is_received

    def note_sending(self, handle: int, is_received: bool) -> None:
        """A broker is being given, or has, everything up to `handle`; durable on return."""
        self._row.note_sending(handle, is_received)

    def recent(self, count_max: int) -> list[Entry]:
        """The last messages of the log, done or not."""
        rows = self._view.entries(self.group, max(0, self._row.handle - count_max))
        return list(deque((entry for entry in rows if not entry.is_damaged), count_max))

    def batch(self, count_max: int, last: int = 0) -> list[Entry]:
        """The next messages that are not done, at most `count_max`; none: that was all for now.

        last: none behind this handle; 0: no such bound.
        """
        try:
            self._follow_store()
            entries: list[Entry] = []
            rows = self._view.entries(self.group, self._looked_at)
            with contextlib.closing(rows):  # type: ignore[type-var]
                for entry in rows:
                    if last and entry.handle > last:
                        break
                    self._looked_at = entry.handle
                    is_done = self._row.is_done(entry.handle, entry.id)
                    if not is_done and self._view.is_sound(entry):
                        entries.append(entry)
                        if len(entries) == count_max:
                            break
        except sqlite3.Error as error:
            raise StorageError(database.explain(self._view.config.store_path, error)) from error
        return entries

    def finish(self, done: Iterable[tuple[int, bytes]], handle: int, file_size: int = 0) -> None:
        """Messages (handle, id) are done, and all up to `handle`; durable on return."""
        self._row.finish(done, handle, file_size)

    def _follow_store(self) -> None:
        """Open the store that is there now: the first one, or a copy that was put in its place."""
        path = self._view.config.store_path
        if self._view.begun and _file_number(path) in (0, self._file):
            if self._store_gen == database.meta_int(self._view.connection, "store_gen", 0):
                return
        elif not self._view.begun and not os.path.lexists(path):
            return
        self._view.close()
        self._view = LogView(self.home)
        self._view.check_identity()
        self._begin()


def _file_number(path: Path) -> int:
    """Tells a file from another one that was put in its place; 0: there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
