"""Content-addressed stores with update pointers: what a remote log stands on (docs/SPEC.md 15).

Content is named by its multihash, so whoever fetches it can check it; a name points to the newest
content and has a sequence number in front, so that an older pointer never replaces a newer one.
Everything in a store is sealed by its writer: a store needs no trust, and its loss only delays.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from drupelet.base.errors import CapacityError, StorageError
from drupelet_host.base.atomic_write import atomic_write

# Multihash: code of SHA-256, 32 bytes follow.
_MULTIHASH_HEAD = b"\x12\x20"
ADDRESS_SIZE = 34
# One content: a body of 32 KiB with its protobuf and seal, or a page of a log.
CONTENT_SIZE_MAX = 40 << 10
# A name's content: sequence number and a sealed pointer.
POINTER_SIZE_MAX = 256
NAME_SIZE_MAX = 32
_SEQUENCE_SIZE = 8
# What one store may fill the disk with: at 1 KB each, 1 GB.
CONTENTS_MAX = 1_000_000
NAMES_MAX = 10_000


def address_of(content: bytes) -> bytes:
    """The multihash of a content, 34 bytes."""
    return _MULTIHASH_HEAD + sha256(content).digest()


class RemoteStore(Protocol):
    """A content-addressed store with names. StorageError: it cannot be reached or written."""

    def add(self, content: bytes) -> bytes:
        """Keep a content; its address. Raises CapacityError or StorageError."""

    def get(self, address: bytes) -> bytes | None:
        """The content, checked; None: not there, or damaged. Raises StorageError."""

    def drop(self, address: bytes) -> None:
        """A hint that a content is not needed any more."""

    def update(self, name: bytes, content: bytes) -> bool:
        """Point a name to a content; False: it points to a newer one already."""

    def fetch(self, name: bytes) -> bytes | None:
        """What a name points to, None for nothing. Raises StorageError."""


def check_content(content: bytes) -> None:
    """Raise CapacityError for a content that no store takes."""
    if not 0 < len(content) <= CONTENT_SIZE_MAX:
        raise CapacityError(f"a content of {len(content)} bytes; 1 to {CONTENT_SIZE_MAX} fit")


def check_pointer(name: bytes, content: bytes) -> None:
    """Raise CapacityError for a pointer that no store takes."""
    if not 0 < len(name) <= NAME_SIZE_MAX:
        raise CapacityError(f"a name of {len(name)} bytes")
    if not _SEQUENCE_SIZE < len(content) <= POINTER_SIZE_MAX:
        raise CapacityError(f"a pointer of {len(content)} bytes")


class FolderStore:
    """A store in a folder: on a disk, a stick or whatever is mounted.

    CAS/<2 hex>/<address>.BLK and FEEDS/<name>.PTR, written beside, flushed and renamed: a pulled
    stick leaves a whole file or none. What is damaged counts as absent (`damaged`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0

    def add(self, content: bytes) -> bytes:
        """See RemoteStore."""
        check_content(content)
        address = address_of(content)
        if self.get(address) is None:
            self._write(self._file(address), content)
        return address

    def get(self, address: bytes) -> bytes | None:
        """See RemoteStore."""
        content = self._read(self._file(address), CONTENT_SIZE_MAX)
        if content is not None and address_of(content) != address:
            self.damaged += 1
            return None
        return content

    def drop(self, address: bytes) -> None:
        """See RemoteStore."""
        with contextlib.suppress(OSError):
            self._file(address).unlink()

    def update(self, name: bytes, content: bytes) -> bool:
        """See RemoteStore."""
        check_pointer(name, content)
        held = self.fetch(name)
        if held is not None and held[:_SEQUENCE_SIZE] >= content[:_SEQUENCE_SIZE]:
            return held == content
        self._write(self._pointer(name), content)
        return True

    def fetch(self, name: bytes) -> bytes | None:
        """See RemoteStore."""
        content = self._read(self._pointer(name), POINTER_SIZE_MAX)
        return content if content is not None and len(content) > _SEQUENCE_SIZE else None

    def _file(self, address: bytes) -> Path:
        digits = address.hex()
        return self.path / "CAS" / digits[4:6] / f"{digits}.BLK"

    def _pointer(self, name: bytes) -> Path:
        return self.path / "FEEDS" / f"{name.hex()}.PTR"

    def _check_there(self) -> None:
        if not os.path.isdir(self.path):  # on an ill medium `Path.is_dir` raises
            raise StorageError(f"{self.path}: no such folder; plug the stick in")

    def _read(self, path: Path, size_max: int) -> bytes | None:
        self._check_there()
        try:
            with path.open("rb") as source:
                content = source.read(size_max + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
        if len(content) > size_max:
            self.damaged += 1
            return None
        return content

    def _write(self, path: Path, content: bytes) -> None:
        self._check_there()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content, durable=True)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror})") from error


_SCHEMA = """
CREATE TABLE IF NOT EXISTS remote_contents (address BLOB PRIMARY KEY, content BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS remote_names (name BLOB PRIMARY KEY, content BLOB NOT NULL)
    WITHOUT ROWID;
"""


class SqliteRemoteStore:
    """A store in two tables of an agent's own SQLite file, for others to use over MQTT.

    Each write is a transaction, or part of the one that is open; `settle` runs before it, and may
    raise StorageError.
    """

    def __init__(
        self, connection: sqlite3.Connection, contents_max: int = CONTENTS_MAX,
        names_max: int = NAMES_MAX, settle: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._settle = settle
        self._contents_max = contents_max
        self._names_max = names_max
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        count = connection.execute("SELECT count(*) FROM remote_contents").fetchone()[0]
        self._contents = int(count)

    def add(self, content: bytes) -> bytes:
        """See RemoteStore."""
        check_content(content)
        address = address_of(content)
        if self.get(address) is None:
            if self._contents >= self._contents_max:
                raise CapacityError("the remote store is full")
            self._write("INSERT OR IGNORE INTO remote_contents VALUES (?, ?)", address, content)
            self._contents += 1
        return address

    def get(self, address: bytes) -> bytes | None:
        """See RemoteStore."""
        return self._one("SELECT content FROM remote_contents WHERE address = ?", address)

    def drop(self, address: bytes) -> None:
        """See RemoteStore."""
        if self.get(address) is not None:
            self._write("DELETE FROM remote_contents WHERE address = ?", address)
            self._contents -= 1

    def update(self, name: bytes, content: bytes) -> bool:
        """See RemoteStore."""
        check_pointer(name, content)
        held = self.fetch(name)
        if held is None:
            names = self._connection.execute("SELECT count(*) FROM remote_names").fetchone()[0]
            if names >= self._names_max:
                raise CapacityError("the remote store has no room for another name")
        elif held[:_SEQUENCE_SIZE] >= content[:_SEQUENCE_SIZE]:
            return held == content
        self._write("INSERT OR REPLACE INTO remote_names VALUES (?, ?)", name, content)
        return True

    def fetch(self, name: bytes) -> bytes | None:
        """See RemoteStore."""
        return self._one("SELECT content FROM remote_names WHERE name = ?", name)

    def _one(self, query: str, key: bytes) -> bytes | None:
        try:
            row = self._connection.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            raise StorageError(f"the remote store cannot be read ({error})") from error
        return bytes(row[0]) if row else None

    def _write(self, statement: str, *values: bytes) -> None:
        self._settle()
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise StorageError(f"the remote store cannot be written ({error})") from error
