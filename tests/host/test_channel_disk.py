"""channels.db on a disk that is full or damaged: nothing is told that is not in it."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drupelet.base.errors import E_STORAGE, OK, StorageError
from drupelet.node import Node
from drupelet_host.agent.channels import AgentChannel, history
from drupelet_host.base import clock
from drupelet_host.channel.store_node import StoreNode
from drupelet_host.home.config import Shared
from drupelet_host.store.channel_database import ChannelDatabase, SqliteKeeper
from helpers_channel import CHANNEL, START_MS, wire
from opened import opened
from ram_store import RamStore

SHARED = Shared(CHANNEL.decode(), "mqtt://localhost/t")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: START_MS)


def channel(database: ChannelDatabase, told: list[dict[str, Any]]) -> AgentChannel:
    settings = SimpleNamespace(id=b"ann_", listeners=lambda _: ())
    member = cast(Any, SimpleNamespace(node=Node(RamStore(), lambda: 0), config=settings))
    return AgentChannel(member, database, SHARED, told.append)


def fill_disk(database: ChannelDatabase) -> None:
    """From now on SQLite finds no room for one more page, as on a full disk."""
    [pages] = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(database: ChannelDatabase) -> None:
    database.connection.execute("PRAGMA max_page_count = 1000000")


def test_a_message_that_a_full_disk_took_back_is_never_told(tmp_path: Path) -> None:
    """SQLite rolls the whole transaction back, and a later commit has nothing to do."""
    path = tmp_path / "channels.db"
    told: list[dict[str, Any]] = []
    database = opened(ChannelDatabase(path))
    spoken = channel(database, told)
    fill_disk(database)
    codes = []
    while not codes or codes[-1] == OK:
        frame = wire(b"m%d" % len(codes), content=b"x" * 300)
        codes.append(spoken.channel.receive(frame, len(frame), 0))
    assert codes[-1] == E_STORAGE and len(codes) > 1 and spoken.channel.event_count
    free_disk(database)
    for does in (spoken.events, lambda: spoken.turn(1), lambda: spoken.publish(b"mine", 1)):
        with pytest.raises(StorageError, match=r"channels\.db: the disk is full"):
            does()
    assert told == []
    database.close()
    # The next start knows what the file knows; what is sent again is told once.
    spoken = channel(opened(ChannelDatabase(path)), told)
    assert history(path, "0") == []
    for _ in range(2):
        frame = wire(b"m0", content=b"x" * 300)
        assert spoken.receive(frame, len(frame), 0) == OK
    assert [entry["id"] for entry in told] == ["m0"]


def test_a_commit_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    """What it would have kept is gone: the second try finds nothing to do, and that is no OK."""

    class Full(sqlite3.Connection):
        def commit(self) -> None:
            self.rollback()
            raise sqlite3.OperationalError("database or disk is full")

    database = opened(ChannelDatabase(tmp_path / "channels.db"))
    database.connection.close()
    database.connection = opened(sqlite3.connect(tmp_path / "channels.db", factory=Full))
    keeper = SqliteKeeper(database, CHANNEL)
    frame = wire(b"m")
    keeper.work[: len(frame)] = frame
    assert [keeper.barrier(), keeper.barrier()] == [E_STORAGE, E_STORAGE]
    assert keeper.put(bytes(8), len(frame), False) == E_STORAGE
    assert "disk is full" in database.failure


def test_a_hint_that_finds_no_room_ends_it_too(tmp_path: Path) -> None:
    """It is in the transaction of the messages, and takes them along."""
    database = opened(ChannelDatabase(tmp_path / "channels.db"))
    node = StoreNode(database)
    fill_disk(database)

    def note() -> None:
        for number in range(1000):
            node.note(bytes(wire(b"b", causal=(b"a",), hint=b"%060d" % number)))

    with pytest.raises(StorageError, match=r"channels\.db: the disk is full"):
        note()
    assert database.failure


@pytest.mark.parametrize("content", [b"this is no database" * 300, b"\xff" * 8192])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "channels.db"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"channels\.db: it is not a database; move it away"):
        ChannelDatabase(path)


def test_a_damaged_page_is_named_with_the_remedy(tmp_path: Path) -> None:
    """The file opens, and its messages cannot be read."""
    path = tmp_path / "channels.db"
    database = opened(ChannelDatabase(path))
    spoken = channel(database, [])
    for number in range(40):
        frame = wire(b"m%d" % number, content=b"x" * 300)
        spoken.receive(frame, len(frame), 0)
    [root] = database.connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'messages'"
    ).fetchone()
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    [size] = opened(sqlite3.connect(path)).execute("PRAGMA page_size").fetchone()
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * size : root * size] = b"\xff" * size
    path.write_bytes(whole)
    with pytest.raises(StorageError, match=r"channels\.db: it is damaged; move it away"):
        channel(opened(ChannelDatabase(path)), [])
