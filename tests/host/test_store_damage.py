"""A bit that a disk turned over: the message is neither sent nor given out, and all others are."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet import host_api
from drupelet.base.errors import E_STORAGE, OK, StorageError
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from drupelet_host.home.config import Peer
from drupelet_host.store.checksum import damaged_rows
from drupelet_host.store.recent_rows import BODY_KEPT_MAX
from drupelet_host.store.sqlite_store import SqliteStore
from host.conftest import Cable, Home, wait_for
from opened import opened

MakeHome = Callable[..., Home]
BODY = b"\x00a reading of the third sensor"
LONG = b"\x00" + b"long" * BODY_KEPT_MAX


def put(store: SqliteStore, number: int, body: bytes, state: int = STATE_DELIVERED) -> int:
    id = bytes([number]) * 32
    stamp = (1_700_000_000_000).to_bytes(8)
    return store.put(1, 0, id, 0, stamp, 0, body, 0, len(body), state)


def change(path: Path, handle: int, column: str, value: object) -> None:
    """What a disk would do, by SQL."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE log SET {column} = ? WHERE handle = ?", (value, handle))


def read(store: SqliteStore, handle: int) -> bytes | int:
    """A body as a link reads it, or the code."""
    assert store.load(handle) == OK
    body = bytearray(1 << 15)
    count = store.read_into(handle, 0, body, 0, len(body))
    return bytes(body[:count]) if count >= 0 else count


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = opened(SqliteStore(tmp_path / "store.db"))
    store.open()
    return store


@pytest.mark.parametrize("body", [BODY, LONG])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", BODY[:-1] + b"s"),
        ("body", (BODY + b"!").decode()),
        ("body", b""),
        ("timestamp", (1_700_000_000_001).to_bytes(8)),
        ("timestamp", b"short"),
        ("member_group", 3),
        ("source", 1),
        ("state", STATE_PRIVATE),
        ("id", bytes(32)),
        ("id", "text"),
    ],
)
def test_a_damaged_message_is_gone_for_links_and_client(
    store: SqliteStore, column: str, value: object, body: bytes
) -> None:
    handles = [put(store, number, body) for number in (1, 2, 3)]
    store.barrier()
    change(store.path, handles[1], column, value)
    store.open()
    # A long body is looked at when it is read.
    assert store.load(handles[1]) == OK
    assert read(store, handles[1]) == E_STORAGE
    assert store.load(handles[1]) == OK
    assert (store.state, store.size, store.edges_size) == (STATE_DELETED, 0, 0)
    assert (len(store.id), len(store.timestamp)) == (32, 8)
    assert store.damaged == 1 and store.damaged_handles == {handles[1]}
    assert [handle for handle, _ in damaged_rows(store.connection)] == [handles[1]]
    # The log goes on behind it.
    assert [logged.handle for logged in host_api.messages(store)] == handles
    assert read(store, handles[0]) == read(store, handles[2]) == body
    assert not store.failure


@pytest.mark.parametrize("body", [BODY, LONG])
def test_a_damaged_message_does_not_enter_the_log(store: SqliteStore, body: bytes) -> None:
    handle = put(store, 1, body, STATE_PENDING)
    store.barrier()
    change(store.path, handle, "body", body[:-1] + b"?")
    assert store.promote(handle, STATE_DELIVERED) == E_STORAGE
    assert store.damaged == 1 and store.next(0) == 0
    # From the next start on it can come again.
    store.open()
    assert store.find(bytes([1]) * 32, 0) == 0 and store.damaged == 1
    assert put(store, 1, body, STATE_PENDING) > 0
    assert read(store, store.find(bytes([1]) * 32, 0)) == body


def test_what_is_changed_on_purpose_has_a_new_checksum(store: SqliteStore) -> None:
    shared = put(store, 1, BODY, STATE_PRIVATE)
    deleted = put(store, 2, BODY, STATE_PRIVATE)
    waits = put(store, 3, LONG, STATE_PENDING)
    dropped = put(store, 4, BODY, STATE_PENDING)
    invalid = put(store, 5, BODY, STATE_PENDING)
    assert store.open_up(shared) == OK
    assert store.entomb(deleted, b"\x01" + bytes(32), 33, missing=6) == OK
    assert store.keep(deleted, 2) is not None
    assert store.open_up(deleted) == OK
    assert store.promote(waits, STATE_DELIVERED) > 0
    assert store.entomb(dropped, b"\x00", 1) == OK
    assert store.bury(1, 0, bytes([5]) * 32, 0, bytes(8), 0, invalid) == invalid
    store.barrier()
    store.open()
    assert list(damaged_rows(store.connection)) == [] and store.damaged == 0
    loaded = [
        (store.load(store.find(bytes([number]) * 32, 0)), store.state) for number in range(1, 6)
    ]
    assert loaded == [
        (OK, state)
        for state in (
            STATE_DELIVERED, STATE_DELETED, STATE_DELIVERED, STATE_DELETED, STATE_INVALID,
        )
    ]  # fmt: skip


def test_every_bit_of_a_row(tmp_path: Path) -> None:
    """Each bit of the record in the file, one after the other: refused as a whole, or the message
    alone is; never another text under its handle."""
    path = tmp_path / "store.db"
    store = opened(SqliteStore(path))
    store.open()
    handles = [put(store, number, BODY) for number in (1, 2, 3)]
    store.barrier()
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.connection.execute("PRAGMA journal_mode = DELETE")
    store.close()
    whole = path.read_bytes()
    sound = dict.fromkeys(handles, BODY)
    # Payload size, handle, header with ten types; then the columns.
    begin = whole.index(bytes([2]) * 32) - 14
    end = whole.index(BODY, begin) + len(BODY) + 4
    outcomes = {"refused": 0, "damaged": 0, "not reached": 0, "untidy": 0}
    for at in range(begin * 8, end * 8):
        raw = bytearray(whole)
        raw[at // 8] ^= 1 << at % 8
        path.write_bytes(raw)
        store = SqliteStore(path)
        try:
            store.open()
            given = {
                logged.handle: host_api.body(store, logged)
                for logged in host_api.messages(store)
                if logged.state == STATE_DELIVERED
            }
        except StorageError as error:
            outcomes["refused" if "\n" not in str(error) else "untidy"] += 1
            continue
        finally:
            store.close()
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        assert given.items() <= sound.items(), f"bit {at % 8} of byte {at // 8 - begin}"
        whole_number = len(given) == len(sound)
        outcomes["not reached" if whole_number else "damaged"] += 1
    assert not outcomes["untidy"]
    assert outcomes["damaged"] > 8 * (len(BODY) + 32), outcomes
    # Only what a checksum need not cover may pass unseen: nothing here does.
    assert outcomes["not reached"] <= 8, outcomes


def test_messages_behind_a_damaged_one_arrive(make_home: MakeHome, cable: Cable) -> None:
    """Two agents: each message names the one before it, so the peer must learn that it is gone."""
    alice = make_home("alice", 0xA1, Peer("bob", b"\0\0\0\xb1", cable.url(0)))
    bob = make_home("bob", 0xB1, Peer("alice", b"\0\0\0\xa1", cable.url(1)))
    texts = ["one", "two", "three", "l" * 3000, "five", "six"]
    for text in texts:
        alice.put(text)
    alice.start("--wait")
    wait_for(lambda: len(alice.log()) == len(texts), "messages in the log")
    alice.stop()
    handles = [entry["handle"] for entry in alice.log()]
    for damaged, body in ((handles[1], b"\x00tvo"), (handles[3], b"\x00" + b"m" * 3000)):
        change(alice.path / "store.db", damaged, "body", body)
    alice.start("--wait")
    bob.start("--wait")
    alice.put("seven")
    expected = ["one", "three", "five", "six", "seven"]
    wait_for(
        lambda: [entry["text"] for entry in bob.log()] == expected,
        "messages behind the damaged ones",
    )
    alice.settle()
    assert alice.status()["counters"]["damaged"] == 2
    alarms = wait_for(lambda: alice.events("alarm"), "alarm")
    assert sorted(alarm["handle"] for alarm in alarms) == [handles[1], handles[3]]
    assert alice.stop() >= 0 and bob.stop() >= 0
    shown = alice.run("doctor").stdout
    for handle in (handles[1], handles[3]):
        assert f"message {handle} of store.db" in shown and "is damaged: it is not sent" in shown
    assert "every message is as it was written" in bob.run("doctor").stdout
