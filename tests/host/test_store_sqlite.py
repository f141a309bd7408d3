"""What only the SQLite store has: transactions, its bounds, and a disk that fails it."""

import sqlite3
from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
from drupelet.base.limits import GONE_HANDLE
from drupelet_host.store import database, outbox
from drupelet_host.store.reclaim import RECLAIM_COUNT
from drupelet_host.store.sqlite_store import SqliteStore
from opened import opened


def id_of(number: int) -> bytes:
    return number.to_bytes(32)


def put(store: SqliteStore, number: int, body: bytes = b"x") -> int:
    return store.put(1, 0, id_of(number), 0, bytes(8), 0, body, 0, len(body), 1)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    made = opened(SqliteStore(tmp_path / "store.db"))
    made.open()
    return made


def test_without_a_barrier_nothing_stays(store: SqliteStore) -> None:
    put(store, 1)
    assert store.barrier() == OK
    put(store, 2)
    store.close()  # as a killed process does
    store.open()
    assert store.find(id_of(1), 0) > 0
    assert store.find(id_of(2), 0) == 0


def test_a_barrier_with_nothing_to_do_is_free(store: SqliteStore) -> None:
    put(store, 1)
    store.barrier()
    before = store.programs
    assert store.barrier() == OK
    assert store.programs == before


def test_the_generation_is_made_once(store: SqliteStore, tmp_path: Path) -> None:
    made = store.store_gen
    store.close()
    store.open()
    assert store.store_gen == made
    other = opened(SqliteStore(tmp_path / "other.db"))
    other.open()
    assert other.store_gen != made


def test_boots_are_counted(store: SqliteStore) -> None:
    assert [store.next_boot() for _ in range(3)] == [1, 2, 3]


def test_together_is_one_transaction(store: SqliteStore, tmp_path: Path) -> None:
    outbox.post(store.connection, b"letter", wall_ms=5)
    other = database.connect(tmp_path / "store.db", read_only=True)
    with store.together():
        store.write("DELETE FROM outbox")
        put(store, 1)
        assert store.barrier() == OK
        assert outbox.waiting(other) == 1
    assert outbox.waiting(other) == 0
    assert other.execute("SELECT count(*) FROM log").fetchone()[0] == 1
    other.close()


def test_without_commits_a_barrier_waits_for_the_next_one(
    store: SqliteStore, tmp_path: Path
) -> None:
    with store.together():
        with store.without_commits():
            put(store, 1)
            assert store.barrier() == OK
        put(store, 2)
        assert store.barrier() == OK and store.programs == 0
    assert store.programs == 1
    with store.without_commits():
        put(store, 3)
        assert store.barrier() == OK
    reader = database.connect(tmp_path / "store.db", read_only=True)
    assert reader.execute("SELECT count(*) FROM log").fetchone()[0] == 2
    assert store.barrier() == OK and store.programs == 2
    assert reader.execute("SELECT count(*) FROM log").fetchone()[0] == 3
    reader.close()


def test_a_full_store_lets_go_of_what_is_settled_only(tmp_path: Path) -> None:
    store = opened(SqliteStore(tmp_path / "s.db", messages_max=10))
    store.open()
    handles = [put(store, number) for number in range(10)]
    assert put(store, 10) == E_CAPACITY
    store.settled_handle = handles[4]
    assert put(store, 10) > handles[-1]
    assert all(store.find(id_of(number), 0) >= GONE_HANDLE for number in range(4))
    assert store.find(id_of(4), 0) == handles[4]
    assert store.next(0) == handles[4]
    assert RECLAIM_COUNT > 4


def test_a_disk_that_fills_ends_the_store_and_keeps_what_is_in(store: SqliteStore) -> None:
    put(store, 1)
    store.barrier()
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    codes = []
    for number in range(2, 20):
        codes.append(put(store, number, bytes(20000)))
        codes.append(store.barrier())
    assert E_STORAGE in codes
    assert codes[-1] == E_STORAGE
    assert "disk is full" in store.failure
    last = codes.index(E_STORAGE)
    committed = [n for n in range(2, 20) if codes[2 * (n - 2) : 2 * (n - 1)][1] == OK]
    assert last // 2 == len(committed)
    store.open()
    assert store.failure == ""
    for number in [1, *committed]:
        assert store.find(id_of(number), 0) > 0


def test_a_damaged_file_is_told_in_one_line(store: SqliteStore, tmp_path: Path) -> None:
    for number in range(200):
        put(store, number, bytes(300))
    store.barrier()
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    path = tmp_path / "store.db"
    raw = bytearray(path.read_bytes())
    for at in range(8192, len(raw) - 4096, 4096):
        raw[at : at + 64] = b"\xff" * 64
    path.write_bytes(raw)
    with pytest.raises(StorageError) as caught:
        store.open()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"not a database at all, just text" * 40, b"\0" * 4096])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"not a database|not a drupelet store|damaged"):
        SqliteStore(path).open()
    assert path.read_bytes() == content


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (a)")
    other.commit()
    other.close()
    with pytest.raises(StorageError, match="not a drupelet store"):
        SqliteStore(path).open()


def test_a_newer_version_is_refused(store: SqliteStore) -> None:
    store.connection.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StorageError, match=r"of version 99.*update drupelet"):
        store.open()


def test_members_run_out(store: SqliteStore) -> None:
    numbers = [store.member(2, number.to_bytes(4), 0, 4) for number in range(254)]
    assert numbers == list(range(1, 255))
    assert store.member(2, b"more", 0, 4) == E_CAPACITY
    assert store.member(1, id_of(1), 0, 32) == 1


@pytest.mark.parametrize("erases", [False, True])
def test_a_deleted_body_is_overwritten_where_that_is_asked_for(
    store: SqliteStore, erases: bool
) -> None:
    """SQLite is built with either default; the write-ahead log keeps old pages until `scrub`."""
    store.connection.execute("PRAGMA secure_delete = OFF")
    if erases:
        store.erase_deleted()
    body = b"secret " * 100
    handles = [put(store, number, b"%d" % number + body) for number in range(20)]
    store.barrier()
    assert store.scrub()
    for handle in handles:
        assert store.entomb(handle, b"\0", 1) == OK
    assert not store.scrub(), "that is not committed"
    store.barrier()
    files = [store.path, store.path.with_name("store.db-wal")]
    assert any(body in path.read_bytes() for path in files)
    reader = sqlite3.connect(store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM log").fetchone()
    assert not store.scrub(), "somebody reads"
    reader.close()
    assert store.scrub()
    assert any(body in path.read_bytes() for path in files) == (not erases)
