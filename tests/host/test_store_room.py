"""The store port's contract where there is not room for all, on both stores alike."""

from pathlib import Path

import pytest

from drupelet.errors import E_CAPACITY, OK
from drupelet.files import RamFiles
from drupelet.flashread import STATE_DELETED, STATE_DELIVERED
from drupelet.store import FlashStore
from drupelet_host.store_sqlite import SqliteStore
from host.test_store_contract import GROUP, PENDING_MAX, Bench, message_id


def settle(bench: Bench, group: int, handle: int) -> None:
    bench.store.settled[group & 7] = handle


@pytest.fixture(params=["flash", "sqlite"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """A store that is soon full."""
    if request.param == "flash":
        files = RamFiles()
        return Bench(
            lambda: FlashStore(files, segment_size=1024, segments_max=8, pending_max=PENDING_MAX),
            files.power_cut,
        )
    path = tmp_path / "s.db"
    return Bench(lambda: SqliteStore(path, 40, PENDING_MAX), lambda: None)


def quota(bench: Bench) -> int:
    """A bound for one group in the store's own unit: about half of it."""
    return 3 if isinstance(bench.store, FlashStore) else 20


def test_a_full_store_refuses_counts_and_loses_nothing(small: Bench) -> None:
    handles = []
    while (handle := small.put_as(len(handles), STATE_DELIVERED, bytes(60))) > 0:
        handles.append(handle)
        assert len(handles) < 100
    assert handle == E_CAPACITY and small.store.refused == 1
    assert small.put_as(500, STATE_DELIVERED, bytes(60)) == E_CAPACITY
    small.durable()
    assert small.log() == handles
    settle(small, 1, handles[20])
    assert small.put_as(500, STATE_DELIVERED, bytes(60)) > handles[-1]
    assert small.log()[-2] == handles[-1] and set(handles[20:]) <= set(small.log())


def test_no_group_takes_what_is_left_to_others(small: Bench) -> None:
    small.store.quotas[2] = quota(small)
    waits = []
    while (handle := small.put_as(len(waits), STATE_DELIVERED, bytes(60), 2)) > 0:
        waits.append(handle)
        assert len(waits) < 100
    assert handle == E_CAPACITY and small.store.refused == 1
    for number in range(1000, 1080):
        handle = small.put_as(number, STATE_DELIVERED, bytes(60))
        assert handle > 0
        settle(small, 1, handle)
    assert set(waits) <= set(small.log()), "what waits stays"
    assert small.put_as(2000, STATE_DELIVERED, bytes(60), 2) == E_CAPACITY
    settle(small, 2, 1 << 29)
    assert small.put_as(2000, STATE_DELIVERED, bytes(60), 2) > 0


def test_a_deletion_stays_until_all_are_known_to_have_the_message(small: Bench) -> None:
    kept, known = small.put(1, b"one"), small.put(2, b"two")
    small.put(3, b"three")
    edges = b"\1" + bytes(32)
    assert small.store.delete(kept, edges, 33, 5) == OK
    assert small.store.delete(known, edges, 33) == OK
    small.store.settled_handle = 1 << 29

    def fill(begin: int) -> None:
        for number in range(begin, begin + 80):
            assert small.put_as(number, STATE_DELIVERED, bytes(60)) > 0

    fill(1000)
    assert small.store.find(message_id(2), 0) == 0, "it made room"
    for missing in (5, 4):
        for _ in range(2):
            assert small.store.find(message_id(1), 0) == kept == small.store.next_kept(0)
            assert small.state(kept) == STATE_DELETED and small.store.missing == missing
            assert (small.store.size, small.store.edges_size) == (0, 33)
            assert small.put(1, b"one") == kept, "it is not taken in again"
            small.durable()
        assert small.store.next_kept(kept) == 0
        assert small.store.keep(kept, missing & 4 if missing & 1 else 0) == OK
    assert small.store.next_kept(0) == 0
    small.store.settled_handle = 1 << 29
    fill(2000)
    assert small.store.find(message_id(1), 0) == 0


def test_messages_of_our_own_that_made_room_are_counted(small: Bench) -> None:
    group = small.store.member(GROUP, message_id(70), 0, 32)
    for number in range(120):
        small.store.settled_handle = 1 << 29
        assert small.put_as(number, STATE_DELIVERED, bytes(60), group, number % 3) > 0
        if number % 30 == 0:
            small.durable()
        here = 0
        for handle in small.log():
            small.state(handle)
            here += not small.store.source
        assert small.store.dropped(group) + here == number // 3 + 1
    assert small.store.dropped(group) > 10 and small.store.dropped(7) == 0
