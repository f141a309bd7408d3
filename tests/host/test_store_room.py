"""The store port's contract where there is not room for all, on both stores alike."""

from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import GONE_HANDLE
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PRIVATE,
)
from drupelet_host.store.sqlite_store import SqliteStore
from host.store_bench import GROUP, PENDING_MAX, Bench, message_id
from opened import opened


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
    return Bench(lambda: opened(SqliteStore(path, 40, PENDING_MAX)), lambda: None)


def quota(bench: Bench) -> int:
    """A bound for one group in the store's own unit: about half of it."""
    return 3 if isinstance(bench.store, FlashStore) else 20


def test_a_full_store_refuses_and_loses_nothing(small: Bench) -> None:
    handles = []
    while (handle := small.put_as(len(handles), STATE_DELIVERED, bytes(60))) > 0:
        handles.append(handle)
        assert len(handles) < 100
    assert handle == E_CAPACITY
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
    assert handle == E_CAPACITY
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
    assert small.store.entomb(kept, edges, 33, 5) == OK
    assert small.store.entomb(known, edges, 33) == OK
    small.store.settled_handle = 1 << 29

    def fill(begin: int) -> None:
        for number in range(begin, begin + 80):
            assert small.put_as(number, STATE_DELIVERED, bytes(60)) > 0

    fill(1000)
    assert small.state(small.store.find(message_id(2), 0)) == STATE_GONE, "it made room"
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
    assert small.state(small.store.find(message_id(1), 0)) == STATE_GONE


def test_what_nobody_has_any_more_may_come_after_all(small: Bench) -> None:
    there, id = small.put(1, b"one"), message_id(7)
    assert not small.store.noted(id, 0)
    assert small.store.note(id, 0)
    small.durable()
    assert small.store.noted(b"." + id, 1) and not small.store.noted(message_id(1), 0)
    assert small.store.find(id, 0) == 0 == small.store.find(id, 0, 8), "it never was here"
    assert small.store.find(message_id(1), 0) == there
    late = small.put(7, b"late")
    assert small.store.find(id, 0) == late > there and small.body(late) == b"late"
    small.store.settled_handle = 1 << 29
    for number in range(1000, 1080):
        assert small.put_as(number, STATE_DELIVERED, bytes(60)) > 0
    for _ in range(2):
        assert small.state(small.store.find(id, 0)) == STATE_GONE, "it was here and made room"
        small.durable()


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


# --- ids of what made room ---


def overflow(bench: Bench, begin: int, count: int = 90, group: int = 1) -> None:
    """So many messages that all before them make room."""
    for number in range(begin, begin + count):
        bench.store.settled_handle = 1 << 29
        assert bench.put_as(number, STATE_DELIVERED, bytes(60), group) > 0


def found(bench: Bench, number: int, size: int = 32) -> int:
    return bench.store.find(message_id(number), 0, size)


def test_what_made_room_is_known_and_not_taken_in_again(small: Bench) -> None:
    small.put(1, b"one")
    small.put_as(2, STATE_PRIVATE, b"two")
    assert small.store.bury(1, 2, message_id(3), 0, bytes(8), 0, 0) > 0
    deleted = small.put(4, b"four")
    assert small.store.entomb(deleted, b"\0", 1) == OK
    overflow(small, 1000)
    for _ in range(2):
        for number in (1, 2, 3, 4):
            state = STATE_INVALID if number == 3 else STATE_GONE
            for size in (32, 8):
                handle = found(small, number, size)
                assert handle >= GONE_HANDLE and small.state(handle) == state
                assert bytes(small.store.id) == message_id(number)[:size].ljust(32, b"\0")
                assert (small.store.group, small.store.size) == (1, 0)
                assert not small.store.private and not small.store.missing
        log = small.log()
        assert small.put(1, b"one") >= GONE_HANDLE, "known"
        assert small.log() == log, "it is not in the log again"
        assert small.store.entomb(found(small, 1), b"", 0) == OK
        assert small.store.read_into(found(small, 1), 0, bytearray(8), 0, 8) < 0
        assert found(small, 77777) == 0
        small.durable()


def test_what_a_group_left_behind_is_taken_in_anew(small: Bench) -> None:
    group = small.store.member(GROUP, message_id(70), 0, 32)
    assert small.put_as(1, STATE_DELIVERED, b"one", group) > 0
    overflow(small, 1000)
    assert found(small, 1) >= GONE_HANDLE
    assert small.store.dismiss(GROUP, group) == OK
    assert found(small, 1) == 0, "it was left"
    again = small.store.member(GROUP, message_id(70), 0, 32)
    assert again != group or not isinstance(small.store, FlashStore)
    for _ in range(2):
        handle = small.put_as(1, STATE_DELIVERED, b"one", again)
        assert 0 < handle < GONE_HANDLE and small.state(handle) == STATE_DELIVERED
        small.durable()
    overflow(small, 2000, group=again)
    assert small.state(found(small, 1)) == STATE_GONE and small.store.group == again


def test_the_oldest_ids_are_forgotten_and_counted(small: Bench) -> None:
    """Four whole logs of them are kept at least."""
    overflow(small, 1000)
    held = len(small.log())
    overflow(small, 1090, 8 * held)
    assert small.store.forgotten == 0
    for number in range(1000, 1090 + 8 * held, 7):
        assert found(small, number) > 0
    overflow(small, 5000, 1500)
    assert small.store.forgotten > 100 and found(small, 1000) == 0
    newest = 5000 + 1500
    for number in range(newest - 4 * held, newest, 3):
        assert found(small, number) > 0
