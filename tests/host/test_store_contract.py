"""The store port's contract, on the board's FlashStore and on the host's SqliteStore alike."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.files import RamFiles
from drupelet.limits import INLINE_SIZE_MAX, PIECE_SIZE
from drupelet.ports import StorePort
from drupelet.store import STATE_DELETED, STATE_DELIVERED, STATE_PENDING, FlashStore
from drupelet_host.store_sqlite import SqliteStore

GROUP, PEER = 1, 2
PENDING_MAX = 4


class Bench:
    """A store and the way to open it again as after a reboot."""

    def __init__(self, make: Callable[[], StorePort], cut: Callable[[], None]) -> None:
        self._make = make
        self._cut = cut
        self.store = self.reboot()

    def reboot(self) -> StorePort:
        """Cut the power and open anew: what no barrier covers is lost."""
        old = getattr(self, "store", None)
        if isinstance(old, SqliteStore):
            old.close()
        self._cut()
        self.store = self._make()
        assert self.store.open() == 0
        return self.store

    def put(self, number: int, body: bytes = b"", pending: bool = False) -> int:
        return self.store.put(
            1, 3, message_id(number), 0, number.to_bytes(8), 0, body, 0, len(body), pending
        )

    def body(self, handle: int) -> bytes:
        assert self.store.load(handle) == OK
        buf = bytearray(self.store.size)
        assert self.store.read_into(handle, 0, buf, 0, len(buf)) == len(buf)
        return bytes(buf)

    def log(self) -> list[int]:
        handles, handle = [], self.store.next(0)
        while handle:
            handles.append(handle)
            handle = self.store.next(handle)
        return handles

    def pending(self) -> list[int]:
        handles, handle = [], self.store.next_pending(0)
        while handle:
            handles.append(handle)
            handle = self.store.next_pending(handle)
        return handles


def message_id(number: int) -> bytes:
    return random.Random(number).randbytes(32)


@pytest.fixture(params=["flash", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "flash":
        files = RamFiles()
        return Bench(lambda: FlashStore(files, pending_max=PENDING_MAX), files.power_cut)
    return Bench(lambda: SqliteStore(tmp_path / "s.db", pending_max=PENDING_MAX), lambda: None)


def test_a_message_survives_a_reboot_after_the_barrier(bench: Bench) -> None:
    handle = bench.put(1, b"reading")
    assert 0 < handle < 1 << 30
    assert bench.store.barrier() == OK
    store = bench.reboot()
    assert store.find(message_id(1), 0) == handle
    assert store.load(handle) == OK
    assert bytes(store.id) == message_id(1)
    assert bytes(store.timestamp) == (1).to_bytes(8)
    assert (store.group, store.source, store.size, store.state) == (1, 3, 7, STATE_DELIVERED)
    assert bench.body(handle) == b"reading"
    assert bench.log() == [handle]


def test_handles_rise_in_log_order_and_reading_goes_on_from_any_number(bench: Bench) -> None:
    handles = [bench.put(n, b"x" * n) for n in range(1, 30)]
    assert handles == sorted(set(handles))
    bench.store.barrier()
    bench.reboot()
    assert bench.log() == handles
    assert bench.put(99) > handles[-1]


def test_a_known_id_is_counted_and_keeps_its_handle(bench: Bench) -> None:
    handle = bench.put(1, b"a")
    assert bench.put(1, b"a") == handle
    assert bench.store.duplicates == 1
    assert bench.log() == [handle]


def test_pending_messages_are_apart_until_promoted(bench: Bench) -> None:
    waiting = bench.put(2, b"child", pending=True)
    bench.put(1, b"parent")
    assert bench.pending() == [waiting]
    assert bench.store.find(message_id(2), 0) == waiting
    assert bench.store.load(waiting) == OK
    assert bench.store.state == STATE_PENDING
    assert waiting not in bench.log()
    entered = bench.store.promote(waiting)
    assert entered > waiting
    assert bench.store.load(waiting) == E_STORAGE
    assert bench.store.barrier() == OK
    bench.reboot()
    assert bench.pending() == []
    assert bench.log()[-1] == entered
    assert bench.store.find(message_id(2), 0) == entered
    assert bench.body(entered) == b"child"
    assert bench.store.promote(entered) == E_STORAGE


def test_pending_that_comes_again_as_delivered_enters_the_log(bench: Bench) -> None:
    waiting = bench.put(2, b"child", pending=True)
    entered = bench.put(2, b"child")
    assert entered > waiting
    assert bench.log() == [entered]
    assert bench.pending() == []


def test_a_full_pending_area_refuses_and_counts(bench: Bench) -> None:
    for number in range(PENDING_MAX):
        assert bench.put(number, pending=True) > 0
    assert bench.put(50, pending=True) == E_CAPACITY
    assert bench.store.refused == 1
    assert bench.put(51) > 0


def test_a_deleted_message_keeps_its_id_and_place(bench: Bench) -> None:
    first, second = bench.put(1, b"one"), bench.put(2, b"two")
    assert bench.store.delete(first) == OK
    assert bench.store.barrier() == OK
    store = bench.reboot()
    assert store.find(message_id(1), 0) == first
    assert store.load(first) == OK
    assert (store.state, store.size) == (STATE_DELETED, 0)
    assert store.read_into(first, 0, bytearray(3), 0, 3) == 0
    assert bench.log() == [first, second]
    assert bench.put(1, b"one") == first


def test_members_keep_their_numbers_for_life(bench: Bench) -> None:
    store = bench.store
    group = store.member(GROUP, message_id(7), 0, 32)
    peer = store.member(PEER, b"..\xa0\x00\x00\x01", 2, 4)
    other = store.member(PEER, b"\xa0\x00\x00\x02", 0, 4)
    assert (group, peer, other) == (1, 1, 2)
    store.barrier()
    store = bench.reboot()
    assert store.member(PEER, b"\xa0\x00\x00\x02", 0, 4) == other
    assert store.member(PEER, b"\xa0\x00\x00\x01", 0, 4) == peer
    assert store.member(GROUP, message_id(7), 0, 32) == group


def test_only_the_newest_saved_state_counts(bench: Bench) -> None:
    assert bench.store.saved_size == 0
    bench.store.save(b"older, longer", 13)
    bench.store.save(b"newest", 6)
    bench.store.barrier()
    store = bench.reboot()
    assert bytes(store.saved[: store.saved_size]) == b"newest"


def content(body: bytes) -> bytes:
    return message_id(1000) + (77).to_bytes(8) + body


def fill_part(store: StorePort, part: int, data: bytes, step: int) -> None:
    for at in range(0, len(data), step):
        size = min(step, len(data) - at)
        assert store.part_append(part, data, at, size) == OK


@pytest.mark.parametrize("pending", [False, True])
def test_a_part_becomes_a_message(bench: Bench, pending: bool) -> None:
    body = random.Random(5).randbytes(32768)
    data = content(body)
    store = bench.store
    assert store.part_open(0, b"contents", 0, len(data)) == 0
    fill_part(store, 0, data, 1000)
    assert store.part_append(0, b"x", 0, 1) == E_CAPACITY
    assert store.part_size(0) == len(data)
    piece = bytearray(10)
    assert store.part_read_into(0, 38, piece, 2, 8) == 8
    assert bytes(piece) == b"\0\0" + data[38:46]
    handle = store.put_part(0, 1, 3, message_id(9), 0, pending)
    assert handle > 0
    assert store.part_size(0) == 0
    assert store.barrier() == OK
    store = bench.reboot()
    if pending:
        handle = store.promote(handle)
        assert store.barrier() == OK
        store = bench.reboot()
    assert bench.body(handle) == body
    assert bytes(store.timestamp) == (77).to_bytes(8)
    assert bench.log() == [handle]
    assert store.delete(handle) == OK


def test_an_incomplete_part_goes_on_at_a_whole_piece(bench: Bench) -> None:
    data = content(bytes(3 * PIECE_SIZE))
    store = bench.store
    store.part_open(1, b"12345678", 0, len(data))
    fill_part(store, 1, data[: 2 * PIECE_SIZE + 100], 100)
    bench.put(1)
    store.barrier()
    store = bench.reboot()
    kept = store.part_open(1, b"12345678", 0, len(data))
    assert kept % PIECE_SIZE == 0 and kept <= 2 * PIECE_SIZE
    fill_part(store, 1, data[kept:], 128)
    back = bytearray(len(data))
    assert store.part_read_into(1, 0, back, 0, len(back)) == len(data)
    assert bytes(back) == data
    assert store.part_open(1, b"another!", 0, len(data)) == 0


def test_parts_are_dropped_and_refuse_what_is_not_open(bench: Bench) -> None:
    store = bench.store
    store.part_open(2, b"composed", 0, 0)
    fill_part(store, 2, content(b"abc"), 7)
    assert store.part_drop(2) == OK
    assert store.part_size(2) == 0
    assert store.part_append(2, b"x", 0, 1) == E_STORAGE
    assert store.part_open(2, b"composed", 0, 0) == 0
    assert store.put_part(2, 1, 0, message_id(1), 0, False) == E_STORAGE


def test_a_composed_part_is_kept_to_the_byte(bench: Bench) -> None:
    store = bench.store
    store.part_open(3, b"blackbox", 0, 0)
    fill_part(store, 3, content(b"z" * 1234), 512)
    size = store.part_size(3)
    bench.put(1)
    store.barrier()
    store = bench.reboot()
    assert store.part_open(3, b"blackbox", 0, 0) <= size


def test_unknown_handles_and_ids(bench: Bench) -> None:
    store = bench.store
    assert store.find(message_id(1), 0) == 0
    assert store.load(12345) == E_STORAGE
    assert store.read_into(12345, 0, bytearray(4), 0, 4) == E_STORAGE
    assert (store.next(0), store.next_pending(0)) == (0, 0)
    assert store.barrier() == OK


def test_bodies_of_every_inline_size(bench: Bench) -> None:
    bodies = {n: random.Random(n).randbytes(n) for n in (0, 1, 63, 64, 65, INLINE_SIZE_MAX)}
    handles = {n: bench.put(n + 1, body) for n, body in bodies.items()}
    bench.store.barrier()
    bench.reboot()
    for n, handle in handles.items():
        assert bench.body(handle) == bodies[n]
        if n > 8:
            piece = bytearray(9)
            assert bench.store.read_into(handle, n - 5, piece, 1, 8) == 5
            assert bytes(piece[1:6]) == bodies[n][-5:]
