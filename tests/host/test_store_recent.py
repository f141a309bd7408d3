"""What the SQLite store remembers of rows is what the database has, whatever was done to them."""

import random
from pathlib import Path

import pytest

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import ID_PREFIX_SIZE
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from drupelet_host.store import recent_rows
from drupelet_host.store.recent_rows import AHEAD_COUNT, BODY_KEPT_MAX
from drupelet_host.store.sqlite_store import SqliteStore
from opened import opened

IDS = 160
STEPS = 3000
MESSAGES_MAX = 100
BODY_SIZES = (0, 1, 100, BODY_KEPT_MAX, BODY_KEPT_MAX + 1, 5000)


class Forgetful(SqliteStore):
    """Asks the database each time."""

    def forget(self) -> None:
        self._recent.clear()


def open_store(kind: type[SqliteStore], path: Path) -> SqliteStore:
    store = opened(kind(path, MESSAGES_MAX, 20))
    store.open()
    return store


def shown(store: SqliteStore, handle: int) -> object:
    """All that `load` and the readers say of a handle."""
    code = store.load(handle)
    id, body = bytearray(32), bytearray(6000)
    is_there = store.id_into(handle, id, 0)
    size = store.read_into(handle, 0, body, 0, len(body)) if is_there else 0
    if code != OK:
        return code, is_there, id
    return (
        bytes(store.id), bytes(store.timestamp), store.group, store.source, store.size,
        store.state, store.edges_size, store.private, store.missing, is_there, id, size,
        bytes(body), store.is_id(handle, bytes(store.id), 0, 8), store.next(handle),
    )  # fmt: skip


def step(store: SqliteStore, draw: random.Random, handles: list[int]) -> object:
    """One call that may change something; what it returned."""
    id = draw.randrange(IDS).to_bytes(1).ljust(32, b"\1")
    handle = draw.choice(handles)
    body = bytes(draw.choice(BODY_SIZES))
    state = draw.choice((STATE_DELIVERED, STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE))
    group = draw.choice((1, 1, 1, 2))
    kind = draw.randrange(20)
    if kept := store.next_kept(0):
        shown(store, kept)
    if kind < 10:
        known = store.find(id, 0)
        return known or store.put(group, 3, id, 0, bytes(8), 0, body, 0, len(body), state)
    if kind == 10:
        return store.promote(handle, draw.choice((STATE_DELIVERED, STATE_PRIVATE)))
    if kind == 11:
        return store.entomb(handle, b"edge" * 8, 32, draw.choice((0, 0, 5)))
    if kind == 12:
        return store.bury(group, 3, id, 0, bytes(8), 0, draw.choice((0, handle)))
    if kind == 13:
        return store.open_up(handle)
    if kind == 14:
        kept = store.next_kept(0)
        missing = draw.choice((0, 6))
        return store.keep(kept, missing), shown(store, kept)
    if kind == 15:
        store.settled_handle = max(handles) - 50
        return store.reclaim()
    if kind == 16:
        return store.barrier()
    if kind == 17:
        return store.note(id, 0)
    if kind == 18 and draw.randrange(20) == 0:
        return store.dismiss(1, 2)
    return store.find(id, 0, 8), store.next(handle), store.next_kept(0), store.next_pending(0)


@pytest.mark.parametrize("ids_max", [recent_rows.IDS_MAX, AHEAD_COUNT + 6])
def test_what_is_remembered_is_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids_max: int
) -> None:
    monkeypatch.setattr(recent_rows, "IDS_MAX", ids_max)
    store = open_store(SqliteStore, tmp_path / "a.db")
    other = open_store(Forgetful, tmp_path / "b.db")
    assert isinstance(other, Forgetful)
    draws = random.Random(5), random.Random(5)
    look = random.Random(6)
    handles = [0]
    for _ in range(STEPS):
        other.forget()
        result = step(store, draws[0], handles)
        assert result == step(other, draws[1], handles)
        if isinstance(result, int) and result > 0:
            handles.append(result)
        for handle in (handles[-1], look.choice(handles)):
            other.forget()
            assert shown(store, handle) == shown(other, handle)
        id = look.randrange(IDS).to_bytes(1).ljust(32, b"\1")
        other.forget()
        size = look.choice((32, ID_PREFIX_SIZE))
        assert store.find(id, 0, size) == other.find(id, 0, size)
        assert store.noted(id, 0) == other.noted(id, 0)
    assert store.erases == other.erases > 0


def test_what_was_rolled_back_is_not_remembered(tmp_path: Path) -> None:
    store = open_store(SqliteStore, tmp_path / "a.db")
    ids = [number.to_bytes(32) for number in (1, 2)]
    handle = store.put(1, 3, ids[0], 0, bytes(8), 0, b"x", 0, 1, STATE_DELIVERED)
    assert store.find(ids[0], 0) == handle > 0
    store.connection.execute("PRAGMA query_only = 1")
    assert store.put(1, 3, ids[1], 0, bytes(8), 0, b"x", 0, 1, STATE_DELIVERED) == E_STORAGE
    assert store.find(ids[0], 0) == 0 and store.load(handle) == E_STORAGE


def test_a_walk_reads_many_rows_with_a_statement(tmp_path: Path) -> None:
    store = open_store(SqliteStore, tmp_path / "a.db")
    for number in range(MESSAGES_MAX):
        id = number.to_bytes(32)
        assert store.put(1, 3, id, 0, bytes(8), 0, b"body", 0, 4, STATE_DELIVERED) > 0
    assert store.barrier() == OK
    store.open()
    statements: list[str] = []
    store.connection.set_trace_callback(statements.append)
    buf = bytearray(4)
    handle, count = store.next(0), 0
    while handle:
        assert store.load(handle) == OK and store.read_into(handle, 0, buf, 0, 4) == 4
        handle, count = store.next(handle), count + 1
    assert count == MESSAGES_MAX
    assert len(statements) == -(-MESSAGES_MAX // AHEAD_COUNT)
    # A start that no id has says the same of each id that begins so, until one is added.
    lost = b"\xee" * 32
    statements.clear()
    assert store.find(lost, 0, ID_PREFIX_SIZE) == 0 and len(statements) == 1
    assert store.find(lost, 0) == store.find(lost[:8] + bytes(24), 0) == 0
    assert len(statements) == 1
    store.settled_handle = 10
    handle = store.put(1, 3, lost, 0, bytes(8), 0, b"body", 0, 4, STATE_PENDING)
    assert store.find(lost, 0) == store.find(lost, 0, ID_PREFIX_SIZE) == handle > 0
    assert store.find(lost[:8] + bytes(24), 0) == 0
    # What enters the log behind the end of the walk is known, too.
    for number in (200, 201):
        store.settled_handle = 10
        id = number.to_bytes(32)
        assert store.put(1, 3, id, 0, bytes(8), 0, b"body", 0, 4, STATE_DELIVERED) > 0
    last = store.find(number.to_bytes(32), 0)
    statements.clear()
    assert store.next(last) == 0 and store.next(last - 1) == last and not statements
