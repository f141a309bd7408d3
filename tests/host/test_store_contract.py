"""The store port's contract, on the board's FlashStore and on the host's SqliteStore alike."""

import random
from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import DEPENDENCIES_MAX, DESCRIPTOR_SIZE_MAX, INLINE_SIZE_MAX
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.ports import StorePort
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from drupelet_host.store.sqlite_store import SqliteStore
from host.store_bench import GROUP, PEER, PENDING_MAX, Bench, message_id
from opened import opened


@pytest.fixture(params=["flash", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "flash":
        files = RamFiles()
        return Bench(lambda: FlashStore(files, pending_max=PENDING_MAX), files.power_cut)
    return Bench(
        lambda: opened(SqliteStore(tmp_path / "s.db", pending_max=PENDING_MAX)), lambda: None
    )


def test_a_message_survives_a_reboot_after_the_barrier(bench: Bench) -> None:
    handle = bench.put(1, b"reading")
    assert 0 < handle < 1 << 30
    assert bench.store.barrier() == OK
    store = bench.reboot()
    assert store.find(message_id(1), 0) == handle
    assert store.find(b"." + message_id(1)[:8], 1, 8) == handle
    assert store.find(message_id(1)[:8] + b"no", 0, 10) == 0
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


def test_a_known_id_is_found(bench: Bench) -> None:
    handle = bench.put(1, b"a")
    assert bench.store.find(message_id(1), 0) == handle
    assert bench.store.find(message_id(2), 0) == 0
    assert bench.log() == [handle]


def test_pending_messages_are_apart_until_promoted(bench: Bench) -> None:
    waiting = bench.put(2, b"child", pending=True)
    bench.put(1, b"parent")
    assert bench.pending() == [waiting]
    assert bench.store.find(message_id(2), 0) == waiting
    assert bench.store.load(waiting) == OK
    assert bench.store.state == STATE_PENDING
    assert waiting not in bench.log()
    entered = bench.store.promote(waiting, 1)
    assert entered > waiting
    assert bench.store.load(waiting) == E_STORAGE
    assert bench.store.barrier() == OK
    bench.reboot()
    assert bench.pending() == []
    assert bench.log()[-1] == entered
    assert bench.store.find(message_id(2), 0) == entered
    assert bench.body(entered) == b"child"
    assert bench.store.promote(entered, 1) == E_STORAGE


def test_a_full_pending_area_refuses(bench: Bench) -> None:
    for number in range(PENDING_MAX):
        assert bench.put(number, pending=True) > 0
    assert bench.put(50, pending=True) == E_CAPACITY
    assert bench.put(51) > 0


def test_a_deleted_message_keeps_its_id_and_place(bench: Bench) -> None:
    first, second = bench.put(1, b"one"), bench.put(2, b"two")
    assert bench.store.entomb(first, b"", 0) == OK
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
        assert store.spool.part_append(part, data, at, size) == OK


@pytest.mark.parametrize("pending", [False, True])
def test_a_part_becomes_a_message(bench: Bench, pending: bool) -> None:
    body = random.Random(5).randbytes(32768)
    data = content(body)
    store = bench.store
    assert store.spool.part_open(0, b"contents", 0, len(data)) == 0
    fill_part(store, 0, data, 1000)
    assert store.spool.part_append(0, b"x", 0, 1) == E_CAPACITY
    assert store.spool.part_size(0) == len(data)
    piece = bytearray(10)
    assert store.spool.part_read_into(0, 38, piece, 2, 8) == 8
    assert bytes(piece) == b"\0\0" + data[38:46]
    handle = store.put_part(0, 1, 3, message_id(9), 0, 1 + pending)
    assert handle > 0
    assert store.spool.part_size(0) == 0
    assert store.barrier() == OK
    store = bench.reboot()
    if pending:
        handle = store.promote(handle, 1)
        assert store.barrier() == OK
        store = bench.reboot()
    assert bench.body(handle) == body
    assert bytes(store.timestamp) == (77).to_bytes(8)
    assert bench.log() == [handle]
    assert store.entomb(handle, b"", 0) == OK


def test_an_incomplete_part_goes_on_where_it_ends(bench: Bench) -> None:
    data = content(bytes(3 * 512))
    store = bench.store
    store.spool.part_open(1, b"12345678", 0, len(data))
    fill_part(store, 1, data[: 2 * 512 + 100], 100)
    bench.put(1)
    store.barrier()
    store = bench.reboot()
    kept = store.spool.part_open(1, b"12345678", 0, len(data))
    assert kept <= 2 * 512 + 100
    fill_part(store, 1, data[kept:], 128)
    back = bytearray(len(data))
    assert store.spool.part_read_into(1, 0, back, 0, len(back)) == len(data)
    assert bytes(back) == data
    assert store.spool.part_open(1, b"another!", 0, len(data)) == 0


def test_parts_are_dropped_and_refuse_what_is_not_open(bench: Bench) -> None:
    store = bench.store
    store.spool.part_open(2, b"composed", 0, 0)
    fill_part(store, 2, content(b"abc"), 7)
    assert store.spool.part_drop(2) == OK
    assert store.spool.part_size(2) == 0
    assert store.spool.part_append(2, b"x", 0, 1) == E_STORAGE
    assert store.spool.part_open(2, b"composed", 0, 0) == 0
    assert store.put_part(2, 1, 0, message_id(1), 0, 1) == E_STORAGE


def test_a_composed_part_is_kept_to_the_byte(bench: Bench) -> None:
    store = bench.store
    store.spool.part_open(3, b"blackbox", 0, 0)
    fill_part(store, 3, content(b"z" * 1234), 512)
    size = store.spool.part_size(3)
    bench.put(1)
    store.barrier()
    store = bench.reboot()
    assert store.spool.part_open(3, b"blackbox", 0, 0) <= size


def test_the_id_of_a_message_is_told_without_loading_it(bench: Bench) -> None:
    handles = {
        1: bench.put(1, b"one"),
        2: bench.put(2, pending=True),
        3: bench.put_as(3, STATE_PRIVATE),
        4: bench.put(4),
    }
    assert bench.store.entomb(handles[4], b"\0", 1) == OK
    bench.durable()
    for number, handle in handles.items():
        id = message_id(number)
        state = bench.state(handles[1])
        buf = bytearray(40)
        assert bench.store.id_into(handle, buf, 4)
        assert bytes(buf) == bytes(4) + id + bytes(4)
        assert bench.store.is_id(handle, b"_" + id, 1, 32) and bench.store.is_id(handle, id, 0, 8)
        for index in (0, 31):
            other = bytearray(id)
            other[index] ^= 1
            assert not bench.store.is_id(handle, other, 0, 32)
        assert (bytes(bench.store.id), bench.store.state) == (message_id(1), state)
    for handle in (0, 99_999):
        assert not bench.store.id_into(handle, bytearray(32), 0)
        assert not bench.store.is_id(handle, bytes(32), 0, 32)


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


# --- private, invalid and deleted messages ---


def test_a_private_message_is_in_the_log_until_it_is_shared_there(bench: Bench) -> None:
    before, kept, after = bench.put(1), bench.put_as(2, STATE_PRIVATE, b"mine"), bench.put(3)
    for _ in range(2):
        assert bench.state(kept) == STATE_PRIVATE and bench.store.private
        assert bench.body(kept) == b"mine"
        assert bench.log() == [before, kept, after]
        bench.durable()
    for _ in range(2):
        assert bench.store.open_up(kept) == OK
        assert bench.state(kept) == STATE_DELIVERED and not bench.store.private
        bench.durable()
        assert bench.state(kept) == STATE_DELIVERED and not bench.store.private
        assert bench.body(kept) == b"mine"
        assert bench.log() == [before, kept, after]
        assert bench.store.find(message_id(2), 0) == kept
    assert bench.store.open_up(before) == OK and bench.state(before) == STATE_DELIVERED
    assert bench.store.open_up(12345) == E_STORAGE


def test_a_pending_message_can_become_private(bench: Bench) -> None:
    waiting = bench.put(1, b"child", pending=True)
    assert bench.state(waiting) == STATE_PENDING and not bench.store.private
    entered = bench.store.promote(waiting, STATE_PRIVATE)
    bench.durable()
    assert bench.state(entered) == STATE_PRIVATE
    assert bench.body(entered) == b"child"
    assert [bench.state(handle) for handle in bench.log()] == [STATE_PRIVATE]
    assert bench.pending() == []


@pytest.mark.parametrize("count", [0, 1, DEPENDENCIES_MAX])
def test_a_deleted_message_keeps_its_edges(bench: Bench, count: int) -> None:
    edges = bytes([count]) + random.Random(count).randbytes(32 * count)
    plain, kept = bench.put(1, b"one"), bench.put_as(2, STATE_PRIVATE, b"two")
    for handle, private in ((plain, False), (kept, True)):
        assert bench.store.entomb(handle, edges + b"not this", len(edges)) == OK
        for _ in range(2):
            assert bench.state(handle) == STATE_DELETED
            assert bench.store.private == private
            assert (bench.store.size, bench.store.edges_size) == (0, len(edges))
            back = bytearray(300)
            assert bench.store.read_into(handle, 0, back, 0, 300) == len(edges)
            assert back[: len(edges)] == edges
            assert bench.store.read_into(handle, 1, back, 5, 9) == min(9, len(edges) - 1)
            bench.durable()
    assert bench.store.open_up(kept) == OK
    for _ in range(2):
        assert bench.state(kept) == STATE_DELETED and not bench.store.private
        assert bench.store.edges_size == len(edges)
        bench.durable()
    assert bench.store.entomb(kept, b"", 0) == OK
    assert bench.state(kept) == STATE_DELETED and bench.store.edges_size == len(edges)
    assert bench.log() == [plain, kept]


def test_an_invalid_message_leaves_its_id_only(bench: Bench) -> None:
    entered = bench.put(1, b"valid")
    waiting = bench.put(2, b"pending", pending=True)
    never = bench.bury(3)
    assert never > 0 and bench.bury(2, waiting) == waiting
    another = bench.put(4, b"pending, too", pending=True)
    assert bench.bury(4) == another, "found by its id"
    for _ in range(2):
        for number, handle in ((2, waiting), (3, never), (4, another)):
            assert bench.store.find(message_id(number), 0) == handle
            assert bench.state(handle) == STATE_INVALID
            assert bytes(bench.store.id) == message_id(number)
            assert bytes(bench.store.timestamp) == number.to_bytes(8)
            assert (bench.store.group, bench.store.source) == (1, 3)
            assert (bench.store.size, bench.store.edges_size) == (0, 0)
            assert bench.store.read_into(handle, 0, bytearray(9), 0, 9) == 0
            assert not bench.store.private
            assert bench.store.promote(handle, STATE_DELIVERED) == E_STORAGE
        assert bench.log() == [entered] and bench.pending() == []
        bench.durable()
    assert bench.put(3, b"again") == never and bench.put(2, pending=True) == waiting
    assert bench.log() == [entered] and bench.pending() == []


def test_what_is_in_the_log_cannot_become_invalid(bench: Bench) -> None:
    entered, invalid = bench.put(1, b"valid"), bench.bury(2)
    assert bench.bury(1, entered) == entered == bench.bury(1)
    assert bench.bury(2, invalid) == invalid == bench.bury(2)
    assert bench.state(entered) == STATE_DELIVERED and bench.body(entered) == b"valid"
    assert bench.store.entomb(entered, b"", 0) == OK
    assert bench.bury(1, entered) == entered and bench.state(entered) == STATE_DELETED
    assert bench.store.entomb(invalid, b"\0", 1) == OK and bench.state(invalid) == STATE_INVALID
    assert bench.bury(3, 12345) == E_STORAGE
    assert bench.store.find(message_id(3), 0) == 0


@pytest.mark.parametrize("state", [STATE_PENDING, STATE_PRIVATE])
def test_long_bodies_go_with_what_is_buried_or_deleted(bench: Bench, state: int) -> None:
    store = bench.store
    data = content(bytes(5000))
    store.spool.part_open(0, b"contents", 0, len(data))
    fill_part(store, 0, data, 1000)
    handle = store.put_part(0, 1, 3, message_id(9), 0, state)
    assert bench.state(handle) == state
    if state == STATE_PENDING:
        assert bench.bury(9, handle) == handle
    else:
        assert store.entomb(handle, b"\0", 1) == OK
    bench.durable()
    assert bench.state(handle) == (STATE_INVALID if state == STATE_PENDING else STATE_DELETED)
    assert bench.store.read_into(handle, 0, bytearray(9), 0, 9) == bench.store.edges_size


# --- groups that are left, peers that are removed ---


def test_a_group_that_was_left_is_as_if_it_had_never_been_here(bench: Bench) -> None:
    ours, other = (bench.store.member(GROUP, message_id(n), 0, 32) for n in (70, 71))
    assert bench.put_as(1, STATE_DELIVERED, b"1", ours) > 0
    stays = bench.put_as(2, STATE_DELIVERED, b"2", other)
    kept = bench.put_as(3, STATE_PRIVATE, b"3", ours)
    waiting = [bench.put_as(n, STATE_PENDING, b"4", ours) for n in range(4, 4 + PENDING_MAX)]
    assert bench.store.open_up(kept) == OK and bench.store.entomb(kept, b"\0", 1) == OK
    bench.store.barrier()
    assert bench.store.dismiss(GROUP, ours) == OK
    later = [bench.put_as(n, STATE_PENDING, b"", other) for n in range(20, 20 + PENDING_MAX)]
    assert min(later) > 0, "their room is free"
    for _ in range(2):
        for number in (1, 3, 4):
            assert bench.store.find(message_id(number), 0) == 0
        for handle in (kept, waiting[0]):
            assert bench.store.load(handle) == E_STORAGE
            assert bench.store.read_into(handle, 0, bytearray(9), 0, 9) == E_STORAGE
        assert bench.store.promote(waiting[0], STATE_DELIVERED) == E_STORAGE
        assert bench.log() == [stays] and bench.pending() == later
        bench.durable()
    again = bench.store.member(GROUP, message_id(70), 0, 32)
    assert again not in (ours, other) and again > 0
    anew = bench.put_as(3, STATE_DELIVERED, b"anew", again)
    assert anew > later[-1]
    bench.durable()
    assert bench.store.member(GROUP, message_id(70), 0, 32) == again
    assert bench.store.member(GROUP, message_id(71), 0, 32) == other
    assert bench.store.find(message_id(3), 0) == anew and bench.body(anew) == b"anew"
    assert bench.store.group == again
    assert bench.log() == [stays, anew] and bench.pending() == later


def test_the_messages_of_a_peer_that_was_removed_stay(bench: Bench) -> None:
    first, other = (bench.store.member(PEER, key, 0, 4) for key in (b"abcd", b"efgh"))
    handle = bench.put_as(1, STATE_DELIVERED, b"1", 1, first)
    assert bench.store.dismiss(PEER, first) == OK
    for _ in range(2):
        assert bench.body(handle) == b"1" and bench.store.source == first
        bench.durable()
    again = bench.store.member(PEER, b"abcd", 0, 4)
    assert again not in (first, other) and again > 0
    assert bench.store.member(PEER, b"efgh", 0, 4) == other
    bench.durable()
    assert bench.store.member(PEER, b"abcd", 0, 4) == again


@pytest.mark.parametrize("kind", [GROUP, PEER])
def test_a_number_is_given_again_only_when_no_message_carries_it(bench: Bench, kind: int) -> None:
    numbers = []
    while (number := bench.store.member(kind, len(numbers).to_bytes(4), 0, 4)) > 0:
        numbers.append(number)
    assert number == E_CAPACITY and numbers == list(range(1, len(numbers) + 1))
    carried, free, live = numbers[3], numbers[5], numbers[7]
    group, source = (carried, 9) if kind == GROUP else (1, carried)
    assert bench.put_as(1, STATE_DELIVERED, b"1", group, source) > 0
    assert bench.store.dismiss(kind, carried) == OK
    if kind == PEER or isinstance(bench.store, FlashStore):
        assert bench.store.member(kind, b"news", 0, 4) == E_CAPACITY
    else:  # the rows of a group's messages go at once
        assert bench.store.member(kind, b"news", 0, 4) == carried
    assert bench.store.dismiss(kind, free) == OK
    bench.durable()
    assert bench.store.member(kind, b"more", 0, 4) == free
    bench.durable()
    assert bench.store.member(kind, b"more", 0, 4) == free
    assert bench.store.member(kind, (live - 1).to_bytes(4), 0, 4) == live


def put_descriptor(store: StorePort, number: int, descriptor: bytes) -> int:
    data = bytes(range(32)) + descriptor
    store.spool.part_drop(0)
    assert store.spool.part_open(0, b"describe", 0, 0) == 0
    fill_part(store, 0, data, 1000)
    return store.descriptor_put(0, number)


@pytest.mark.parametrize("size", [0, 1, DESCRIPTOR_SIZE_MAX])
def test_descriptors_are_kept_with_their_groups(bench: Bench, size: int) -> None:
    number = bench.store.member(GROUP, message_id(1), 0, 32)
    other = bench.store.member(GROUP, message_id(2), 0, 32)
    descriptor = random.Random(size).randbytes(size)
    assert bench.store.spool.descriptor_size(number) == -1
    assert bench.store.spool.descriptor_read_into(number, 0, bytearray(9), 0, 9) == E_STORAGE
    assert put_descriptor(bench.store, other, b"to be replaced") == OK
    assert put_descriptor(bench.store, other, b"other") == OK
    assert put_descriptor(bench.store, number, descriptor) == OK
    assert bench.store.spool.part_size(0) == 0
    for _ in range(2):
        assert bench.store.spool.descriptor_size(number) == size
        back, at = bytearray(), 0
        while True:
            piece = bytearray(1000)
            count = bench.store.spool.descriptor_read_into(number, at, piece, 3, 997)
            if count <= 0:
                break
            back += piece[3 : 3 + count]
            at += count
        assert count == 0 and back == descriptor
        assert bench.store.spool.descriptor_size(other) == 5
        bench.durable()
    assert bench.store.dismiss(PEER, number) == OK, "a peer of that number has no descriptor"
    assert bench.store.spool.descriptor_size(number) == size
    assert bench.store.dismiss(GROUP, number) == OK
    for _ in range(2):
        assert bench.store.spool.descriptor_size(number) == -1
        assert bench.store.spool.descriptor_size(other) == 5
        bench.durable()


def test_a_part_without_a_client_id_is_no_descriptor(bench: Bench) -> None:
    number = bench.store.member(GROUP, message_id(1), 0, 32)
    bench.store.spool.part_open(0, b"describe", 0, 0)
    fill_part(bench.store, 0, bytes(31), 31)
    assert bench.store.descriptor_put(0, number) == E_STORAGE
    assert bench.store.descriptor_put(1, number) == E_STORAGE, "it is not open"
    assert bench.store.spool.descriptor_size(number) == -1
