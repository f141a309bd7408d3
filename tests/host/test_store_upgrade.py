"""Databases of every released version are brought up to this one, and nothing in them is lost."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import OK, StorageError
from drupelet.base.limits import GONE_HANDLE
from drupelet.store import states
from drupelet_host.agent.channels import history
from drupelet_host.cli import exit_codes
from drupelet_host.store import database, outbox, schema
from drupelet_host.store.channel_database import ChannelDatabase
from drupelet_host.store.checksum import damaged_rows
from drupelet_host.store.sqlite_store import SqliteStore
from host.conftest import Home
from opened import opened

STORES = Path(__file__).parent / "stores"
# Tables of version 2 that are kept, with the columns that are compared.
TABLES = {
    "meta": "*",
    "members": "*",
    "log": "handle, id, member_group, source, timestamp, size, state, body",
    "gone": "*",
    "parts": "*",
    "descriptors": "*",
    "outbox": "*",
    "sqlite_sequence WHERE name != 'requests'": "*",
}
# What messages 1 to 10 of the dump are to whoever loads them.
LOADED = {
    1: states.STATE_DELIVERED, 2: states.STATE_DELIVERED, 3: states.STATE_DELIVERED,
    4: states.STATE_PENDING, 5: states.STATE_DELETED, 6: states.STATE_INVALID,
    7: states.STATE_PRIVATE, 8: states.STATE_DELETED, 9: states.STATE_DELETED,
    10: states.STATE_DELIVERED, 100: states.STATE_GONE, 101: states.STATE_INVALID,
}  # fmt: skip


def make(path: Path, dump: str) -> None:
    """A database as a release left it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((STORES / dump).read_text("utf-8"))


def rows(path: Path) -> dict[str, list[Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall())
            for table, columns in TABLES.items()
        }


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def tables_of(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}


def body_of(number: int) -> bytes:
    return b"\x00body %d" % number + bytes(range(256)) * (5 if number == 3 else 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make(tmp_path / "store.db", "store-2.sql")
    return tmp_path / "store.db"


def test_every_released_version_has_a_dump() -> None:
    """A new version needs the dump of the one before it: stores/make.py, with its code."""
    dumps = {int(dump.stem.partition("-")[2]) for dump in STORES.glob("store-*.sql")}
    assert dumps >= set(range(schema.STORE.oldest, schema.STORE.newest))
    assert (STORES / "channels-0.sql").exists()


def test_nothing_is_lost(path: Path, tmp_path: Path) -> None:
    before = rows(path)
    store = opened(SqliteStore(path))
    store.open()
    for number, state in LOADED.items():
        handle = store.find(bytes([number]) * 32, 0)
        assert store.load(handle) == OK and store.state == state, number
        assert (handle >= GONE_HANDLE) == (number >= 100)
        if state in (states.STATE_DELIVERED, states.STATE_PRIVATE, states.STATE_PENDING):
            body = bytearray(len(body_of(number)))
            assert store.read_into(handle, 0, body, 0, len(body)) == len(body) == store.size
            assert body == body_of(number)
    assert store.noted(bytes([102]) * 32, 0)
    assert store.load(store.find(bytes([5]) * 32, 0)) == OK and store.missing == 2
    assert store.damaged == 0 and list(damaged_rows(store.connection)) == []
    assert (store.store_gen, bytes(store.saved[: store.saved_size])) == (77, b"wake state")
    assert store.spool.part_left(2) == 15 and store.spool.descriptor_size(1) == 12
    assert [letter.payload for letter in outbox.letters(store.connection, 9)] == [b"a letter"]
    store.close()
    assert rows(path) == before
    assert version_of(path) == schema.STORE.newest
    new = opened(SqliteStore(tmp_path / "new.db"))
    new.open()
    assert tables_of(path) == tables_of(tmp_path / "new.db")


def test_a_store_of_before_messages_left_their_ids(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE gone")
    store = opened(SqliteStore(path))
    store.open()
    assert store.find(bytes([100]) * 32, 0) == 0 and store.find(bytes([1]) * 32, 0) > 0
    assert "CREATE TABLE gone" in " ".join(tables_of(path))


def test_only_the_owner_brings_a_store_up(path: Path) -> None:
    """An agent of an earlier release may run: who reads, or leaves a letter, changes no table."""
    before = rows(path)
    for read_only in (True, False):
        database.connect(path, read_only).close()
        assert version_of(path) == 2 and rows(path) == before
    with contextlib.closing(database.connect(path)) as connection:
        outbox.post(connection, b"another")
    assert version_of(path) == 2
    store = opened(SqliteStore(path))
    store.open()
    assert [letter.payload for letter in outbox.letters(store.connection, 9)][1:] == [b"another"]


@pytest.mark.parametrize("cut", [2, 3])
def test_a_cut_in_the_middle_changes_nothing(
    path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone before the last step, or before what comes after it."""
    before = rows(path)

    def die(_: sqlite3.Connection) -> None:
        os._exit(9)

    steps = schema.STORE.steps
    broken = (*steps[: cut - 1], (schema.STORE.newest + 1, die))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STORE", schema.Schema("a store", 0x44525031, 2, broken))
        child = os.fork()
        if not child:
            SqliteStore(path).open()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert version_of(path) == 2 and rows(path) == before
    store = opened(SqliteStore(path))
    store.open()
    store.close()
    assert version_of(path) == schema.STORE.newest and rows(path) == before


def test_a_full_disk_is_one_line_and_the_store_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(path)

    def fill(connection: sqlite3.Connection) -> None:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    steps = (*schema.STORE.steps[:1], (3, fill), (3, schema.STORE.steps[1][1]))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STORE", schema.Schema("a store", 0x44525031, 2, steps))
        with pytest.raises(StorageError, match=r"store\.db: the disk is full; free some space"):
            SqliteStore(path).open()
    assert version_of(path) == 2 and rows(path) == before


@pytest.mark.parametrize(
    ("version", "says"),
    [(99, r"of version 99, .* a later release wrote it; update drupelet"), (1, "it is damaged")],
)
def test_another_version_is_one_line_for_every_command(
    make_home: Callable[..., Home], version: int, says: str
) -> None:
    home = make_home("alice", 0xA1)
    path = home.path / "store.db"
    make(path, "store-2.sql")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = rows(path)
    for words in (["agent"], ["put", "x"], ["log"], ["status"]):
        done = home.run(*words)
        assert done.returncode == exit_codes.DAMAGED and done.stdout == ""
        [line] = done.stderr.splitlines()
        with pytest.raises(StorageError, match=says):
            raise StorageError(line)
        assert line.startswith(f"drupelet: {path}: ")
    assert "cannot be looked at" in home.run("doctor").stdout
    assert rows(path) == before and version_of(path) == version


@pytest.mark.parametrize("has_columns", [True, False])
def test_channels_are_brought_up(tmp_path: Path, has_columns: bool) -> None:
    path = tmp_path / "channels.db"
    make(path, "channels-0.sql")
    if not has_columns:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP INDEX waiting")
            for name in ("logged", "held"):
                connection.execute(f"ALTER TABLE messages DROP COLUMN {name}")
    database = opened(ChannelDatabase(path))
    kept = database.rows("SELECT handle, channel, id, lamport, frame, logged, held FROM messages")
    logged = (1, 0) if has_columns else (None, None)
    assert kept == [
        (
            number, b"orchard", b"m%d" % number, number.to_bytes(8), b"frame %d" % number,
            logged[number - 1], 5 if has_columns else None,
        )
        for number in (1, 2)
    ]  # fmt: skip
    assert database.rows("SELECT * FROM hints") == [(b"orchard", b"hint", b"m1")]
    assert database.rows("SELECT * FROM owed") == []
    assert version_of(path) == schema.CHANNELS.newest


def test_newer_channels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "channels.db"
    make(path, "channels-0.sql")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    says = r"channels\.db: a drupelet database of channels of version 99, .*update drupelet"
    with pytest.raises(StorageError, match=says):
        ChannelDatabase(path)
    with pytest.raises(StorageError, match=says):
        history(path, "orchard")
    assert version_of(path) == 99
