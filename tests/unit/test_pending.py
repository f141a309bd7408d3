"""The table of messages that wait for what they depend on."""

import hashlib

from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet.engine.pending import Pending
from drupelet.store.states import STATE_PENDING
from ram_store import RamStore


def id_of(number: int) -> bytearray:
    return bytearray(hashlib.sha256(b"%d" % number).digest())


def put(store: RamStore, id: bytes, source: int = 1) -> int:
    handle: int = store.put(3, source, id, 0, bytes(8), 0, b"\1", 0, 1, STATE_PENDING)
    return handle


def make(rows_max: int = 4) -> tuple[Pending, RamStore]:
    store = RamStore()
    return Pending(rows_max), store


def add(pending: Pending, store: RamStore, id: bytearray, source: int = 1) -> int:
    """Have a message wait; its handle, or -1 when there is no row."""
    handle = put(store, id, source)
    return handle if pending.add(handle, 2, source) else -1


def test_a_message_waits_until_it_is_dropped() -> None:
    pending, store = make()
    handles = [add(pending, store, id_of(number), 5) for number in range(3)]
    assert pending.count == 3 == pending.count_of(5) and pending.count_of(1) == 0
    row = pending.row_of(handles[1])
    assert (pending.handles[row], pending.group(row), pending.source(row)) == (handles[1], 2, 5)
    assert pending.row_of(999) == -1
    pending.drop(row)
    assert pending.row_of(handles[1]) == -1 and pending.count == 2
    for number in (0, 2):
        pending.drop(pending.row_of(handles[number]))
    assert pending.count == 0 and pending.row_of(handles[0]) == -1


def test_a_full_table_takes_no_more() -> None:
    pending, store = make(2)
    assert add(pending, store, id_of(0)) > 0 and add(pending, store, id_of(1)) > 0
    assert not pending.has_room(1) and not pending.has_room(2)
    assert add(pending, store, id_of(2)) == -1 and pending.count == 2
    pending.drop(0)
    assert pending.has_room(1)
    assert pending.row_of(add(pending, store, id_of(3))) == 0


def test_a_table_without_rows_has_no_room() -> None:
    pending, store = make(0)
    assert not pending.has_room(1) and add(pending, store, id_of(0)) == -1
    assert pending.row_of(1) == -1


def test_a_free_row_is_nobodys() -> None:
    pending, store = make()
    handle = add(pending, store, id_of(0))
    assert pending.row_of(0) == pending.row_of(-1) == -1
    pending.drop(0)
    assert pending.row_of(handle) == -1


def test_one_peer_does_not_take_all_of_a_large_table() -> None:
    """A host has thousands of rows: what one peer sends without its parents leaves some."""
    rows_max = PENDING_PER_PEER_MAX + 8
    pending, store = make(rows_max)
    for number in range(PENDING_PER_PEER_MAX):
        assert pending.has_room(1)
        add(pending, store, id_of(number), 1)
    assert not pending.has_room(1) and pending.has_room(2)
    pending.drop(3)
    assert pending.has_room(1)


def test_a_small_table_may_be_of_one_peer() -> None:
    pending, store = make(8)
    for number in range(8):
        assert pending.has_room(1)
        add(pending, store, id_of(number), 1)
    assert not pending.has_room(1)


def test_asking_is_counted_and_begins_anew() -> None:
    pending, store = make()
    add(pending, store, id_of(0))
    assert pending.sends(0) == 0
    for epoch in range(300):
        pending.note_asked(0, epoch)
        assert 1 <= pending.sends(0) <= 255 and pending.epoch(0) == epoch
    pending.ask_again()
    assert pending.sends(0) == 0
    pending.note_asked(0, 7)
    pending.drop(0)
    add(pending, store, id_of(1))
    assert pending.sends(0) == pending.epoch(0) == 0, "nothing of the one before"
