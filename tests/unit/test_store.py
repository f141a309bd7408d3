"""FlashStore against a model through reboots, on damaged flash, and when the flash is full."""

import zlib
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import INLINE_SIZE_MAX, WAKE_STATE_SIZE_MAX
from drupelet.store.departed_ids import IdFilter
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from unit.numbered_messages import (
    SETTLED,
    body_of,
    bury,
    log_of,
    message_id,
    put,
    put_long,
    reboot,
    state_of,
    store_id,
)

OPTIONS = {
    "segment_size": 1200, "segments_max": 40, "pending_max": 5, "body_files_max": 4,
    "filter_size": 32,
}  # fmt: skip


@dataclass
class Row:
    """What the model knows about a message."""

    handle: int
    state: int
    size: int
    group: int
    edges: bytes = b""


class StoreMachine(RuleBasedStateMachine):
    """Any order of calls and reboots leaves what a dict would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.files = RamFiles()
        self.store = FlashStore(self.files, **OPTIONS)
        self.store.open()
        self.model: dict[int, Row] = {}
        self.newest = 0
        self.entered: list[int] = []
        self.saved = b""
        self.members: dict[tuple[int, bytes], int] = {}
        self.numbers_given: set[tuple[int, int]] = set()

    def group_of(self, number: int) -> int:
        """Odd and even messages are of two groups, which are joined when it is needed."""
        return self.member(1, number % 2)

    def numbers(self, *states: int) -> list[int]:
        return sorted(number for number, row in self.model.items() if row.state in states)

    def appears(self, number: int, handle: int, state: int, size: int, group: int) -> None:
        assert handle > self.newest
        self.newest = handle
        self.model[number] = Row(handle, state, size, group)
        if state in (STATE_DELIVERED, STATE_PRIVATE):
            self.entered.append(handle)

    @rule(number=st.integers(0, 40), size=st.sampled_from([0, 1, 63, 64, 65, 200, 952]))
    def put(self, number: int, size: int) -> None:
        state = (STATE_PENDING, STATE_DELIVERED, STATE_PRIVATE)[number % 3]
        group = self.group_of(number)
        row = self.model.get(number)
        handle = put(self.store, number, size, state=state, group=group)
        if row:
            assert handle == row.handle
        elif state == STATE_PENDING and len(self.numbers(STATE_PENDING)) == 5:
            assert handle == E_CAPACITY
        else:
            self.appears(number, handle, state, size, group)

    @rule(number=st.integers(100, 110), size=st.sampled_from([0, 953, 1500]))
    def put_part(self, number: int, size: int) -> None:
        group = self.group_of(number)
        long = [row for n, row in self.model.items() if n >= 100 and row.state != STATE_DELETED]
        handle = put_long(self.store, number, STATE_DELIVERED, group, size)
        if number in self.model:
            assert handle == self.model[number].handle and self.store.spool.part_size(0) == 0
        elif len(long) == 4:
            assert handle == E_CAPACITY and self.store.spool.part_size(0) == size + 40
        else:
            self.appears(number, handle, STATE_DELIVERED, size, group)

    @precondition(lambda self: self.numbers(STATE_PENDING))
    @rule(data=st.data(), state=st.sampled_from([1, STATE_PRIVATE]))
    def promote(self, data: st.DataObject, state: int) -> None:
        number = data.draw(st.sampled_from(self.numbers(STATE_PENDING)))
        row = self.model[number]
        handle = self.store.promote(row.handle, state)
        assert self.store.load(row.handle) == E_STORAGE
        self.appears(number, handle, state, row.size, row.group)

    @precondition(lambda self: self.numbers(STATE_PRIVATE, STATE_DELIVERED))
    @rule(data=st.data())
    def open_up(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.numbers(STATE_PRIVATE, STATE_DELIVERED)))
        row = self.model[number]
        assert self.store.open_up(row.handle) == OK
        row.state = STATE_DELIVERED

    @rule(number=st.integers(0, 40), by_handle=st.booleans())
    def bury(self, number: int, by_handle: bool) -> None:
        group = self.group_of(number)
        row = self.model.get(number)
        handle = bury(self.store, number, row.handle if row and by_handle else 0, group)
        if row:
            assert handle == row.handle
            if row.state == STATE_PENDING:
                row.state, row.size = STATE_INVALID, 0
        else:
            self.appears(number, handle, STATE_INVALID, 0, group)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(0, 3))
    def delete(self, data: st.DataObject, count: int) -> None:
        row = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        edges = bytes([count]) + message_id(count) * count
        assert self.store.entomb(row.handle, edges, len(edges)) == OK
        if row.state not in (STATE_DELETED, STATE_INVALID):
            row.state, row.size, row.edges = STATE_DELETED, 0, edges

    @rule(odd=st.integers(0, 1))
    def leave(self, odd: int) -> None:
        group = self.members.pop((1, message_id(odd)), 0)
        if group:
            assert self.store.dismiss(1, group) == OK
            gone = [number for number, row in self.model.items() if row.group == group]
            for number in gone:
                handle = self.model.pop(number).handle
                assert self.store.load(handle) == E_STORAGE
                self.entered = [other for other in self.entered if other != handle]

    @rule(state=st.binary(max_size=WAKE_STATE_SIZE_MAX))
    def save(self, state: bytes) -> None:
        assert self.store.save(state, len(state)) == OK
        self.saved = state

    @rule(kind=st.sampled_from([1, 2]), key=st.integers(0, 3))
    def join(self, kind: int, key: int) -> None:
        self.member(kind, key)

    def member(self, kind: int, key: int) -> int:
        bytes_ = message_id(key)[: 32 if kind == 1 else 4]
        number = self.store.member(kind, bytes_, 0, len(bytes_))
        if (kind, bytes_) not in self.members:
            assert (kind, number) not in self.numbers_given, "fewer than 32: never given again"
            self.numbers_given.add((kind, number))
            self.members[kind, bytes_] = number
        assert self.members[kind, bytes_] == number
        return number

    @rule()
    def reboot(self) -> None:
        assert self.store.barrier() == OK
        self.store = reboot(self.files, **OPTIONS)

    @invariant()
    def same_as_the_model(self) -> None:
        store = self.store
        buf = bytearray(1600)
        for number, row in self.model.items():
            handle = row.handle
            assert store.find(message_id(number), 0) == handle
            assert store.load(handle) == OK
            assert (store.state, store.group, store.source) == (row.state, row.group, 2)
            assert store.id == message_id(number) and store.timestamp == number.to_bytes(8)
            assert (store.size, store.edges_size) == (row.size, len(row.edges))
            left = row.edges or body_of(number, store.size)
            assert store.read_into(handle, 3, buf, 5, 1500) == max(len(left) - 3, 0)
            assert buf[5 : 2 + len(left)] == left[3:]
        assert store.find(message_id(999), 0) == 0
        assert log_of(store) == self.entered
        waiting, handle = [], store.next_pending(0)
        while handle:
            waiting.append(handle)
            handle = store.next_pending(handle)
        assert waiting == sorted(self.model[n].handle for n in self.numbers(STATE_PENDING))
        assert store.saved[: store.saved_size] == self.saved


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


class CountedFiles(RamFiles):
    """Files in RAM that count reads."""

    reads = 0

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        self.reads += 1
        return super().read_into(fd, offset, buf, at, size)


@pytest.mark.parametrize(("recent_max", "is_searched"), [(16, True), (64, False)])
def test_the_last_ids_are_found_without_a_search(recent_max: int, is_searched: bool) -> None:
    """In a group of 32 members a message depends on one that is as many messages back."""
    files = CountedFiles()
    store = reboot(files, recent_max=recent_max)
    handles = [put(store, number) for number in range(64)]
    files.reads = 0
    assert store.find(message_id(32), 0) == handles[32]
    assert (files.reads > 8) is is_searched


def test_any_damaged_byte_costs_the_record_that_it_hit() -> None:
    options = {"segment_size": 1024, "filter_size": 64}
    files = RamFiles()
    store = reboot(files, **options)
    handles = {number: put(store, number) for number in range(20)}
    store.barrier()
    handles[20] = put(store, 20)  # says that all before it was flushed
    store.barrier()
    store.save(b"state", 5)
    store.barrier()
    last = handles[20] % 1024
    pristine = {name: bytes(files.content(name)) for name in files.names()}
    assert len(pristine) == 4
    for name, content in pristine.items():
        for at in range(0, len(content), 7):
            files.power_cut()
            files.hold(name, content)
            files.content(name)[at] ^= 0x41
            store = FlashStore(files, **options)
            assert store.open() == 1 == store.damaged
            for number, handle in handles.items():
                place = int(name[1:8]) * 1024 + at if name.endswith(".LOG") else 0
                hit = place - 116 < handle <= place
                found = store.find(message_id(number), 0)
                # Damage at the very end may be what a power cut left of the last writes.
                assert found == (0 if hit else handle) or (name, at) >= ("S0000003.LOG", last)
            # Writing goes on, never behind the damage.
            new = put(store, 500)
            assert new > max(handles.values()) and store.barrier() == OK
            store = FlashStore(files, **options)
            assert store.open() <= 1 and store.find(message_id(500), 0) == new
            for other, whole in pristine.items():
                files.hold(other, whole)
            files.power_cut()
            for made in set(files.names()) - set(pristine):
                files.remove(made)


@pytest.mark.parametrize("tail", [b"\0", b"\xff" * 40, b"\x40\0\4\1" + bytes(300)])
def test_a_torn_tail_is_skipped_and_writing_goes_on_elsewhere(tail: bytes) -> None:
    files = RamFiles()
    store = reboot(files)
    first = put(store, 1)
    store.barrier()
    fd = files.open("S0000001.LOG", True)
    files.append(fd, tail, 0, len(tail))
    files.flush(fd)
    files.power_cut()
    store = FlashStore(files)
    assert store.open() == 1
    assert store.find(message_id(1), 0) == first
    second = put(store, 2)
    assert second // 4096 == 2
    store.barrier()
    files.power_cut()
    store = FlashStore(files)
    assert store.open() == 0, "the next segment says how long that one is"
    assert log_of(store) == [first, second]


def test_a_lost_segment_file_is_a_gap() -> None:
    options = {"segment_size": 1024}
    files = RamFiles()
    store = reboot(files, **options)
    handles = [put(store, number) for number in range(30)]
    store.barrier()
    files.power_cut()
    assert files.remove("S0000002.LOG") == OK
    store = reboot(files, **options)
    left = [handle for handle in handles if handle // 1024 != 2]
    assert log_of(store) == left
    assert store.load(handles[10]) == E_STORAGE and handles[10] // 1024 == 2
    assert store.next(handles[10]) == next(h for h in left if h > handles[10])
    assert store.read_into(handles[10], 0, bytearray(9), 0, 9) == E_STORAGE


def test_a_full_log_refuses_and_still_saves() -> None:
    files = RamFiles()
    options = {"segment_size": 1024, "segments_max": 6}
    store = reboot(files, **options)
    count = 0
    while put(store, count) > 0:
        count += 1
    assert count > 20
    assert put(store, 1000) == E_CAPACITY
    codes = [store.entomb(store.find(message_id(number), 0), b"", 0) for number in range(20, 30)]
    assert codes[-1] == E_CAPACITY, "a tombstone is data, too"
    # The wake state has room for ever: its old copies make room for it.
    for number in range(200):
        state = bytes([number]) * 400
        assert store.save(state, 400) == OK and store.barrier() == OK
    assert len(files.names()) <= 6
    assert put(store, 1000) == E_CAPACITY
    store = reboot(files, **options)
    assert store.saved[: store.saved_size] == bytes([199]) * 400
    assert len(log_of(store)) == count, "nothing unsettled was dropped"
    # Settled messages make room for new ones, oldest first.
    handles = log_of(store)
    store.settled_handle = handles[12]
    assert put(store, 1000) > handles[-1]
    assert store.erases > 0
    assert state_of(store, count - 1) == STATE_DELIVERED and state_of(store, 0) == STATE_GONE
    assert [handle for handle in log_of(store) if handle in handles][-1] == handles[-1]
    assert set(handles[12:]) <= set(log_of(store)), "only what was settled went"


def test_what_is_current_outlives_its_segment() -> None:
    files = RamFiles()
    options = {"segment_size": 1024, "segments_max": 6, "filter_size": 64}
    store = reboot(files, **options)
    store.settled_handle = SETTLED
    group = store.member(1, message_id(1), 0, 32)
    peer = store.member(2, b"peer", 0, 4)
    store.save(b"state", 5)
    waiting = put(store, 7000, 200, pending=True)
    content = bytes(32) + bytes(8) + body_of(5, 1000)
    store.spool.part_open(0, message_id(7001), 0, len(content))
    store.spool.part_append(0, content, 0, len(content))
    long = store.put_part(0, 1, 2, message_id(7001), 0, 2)
    for number in range(300):
        assert put(store, number) > 0
        if number % 37 == 0:
            store.barrier()
            store = reboot(files, **options)
            store.settled_handle = SETTLED
        assert store.next_pending(0) == waiting and store.next_pending(waiting) == long
        assert store.find(message_id(7000), 0) == waiting
    assert store.member(2, b"peer", 0, 4) == peer
    assert store.member(1, message_id(1), 0, 32) == group
    assert store.saved[: store.saved_size] == b"state"
    buf = bytearray(1000)
    for handle, body in ((waiting, body_of(7000, 200)), (long, body_of(5, 1000))):
        assert store.load(handle) == OK and store.state == STATE_PENDING
        assert store.read_into(handle, 0, buf, 0, 1000) == len(body)
        assert buf[: len(body)] == body
        entered = store.promote(handle, 1)
        assert store.load(entered) == OK and store.state == STATE_DELIVERED
        assert store.read_into(entered, 0, buf, 0, 1000) == len(body)
        assert buf[: len(body)] == body
    assert store.next_pending(0) == 0
    # Once it is settled, its body file goes with its segment.
    for number in range(300, 400):
        assert put(store, number) > 0
    assert [name for name in files.names() if name.endswith(".BOD")] == []
    assert len([name for name in files.names() if name.endswith(".LOG")]) <= 6
    assert len(files.names()) <= 6 + 9


def test_the_oldest_settled_body_makes_room_for_a_new_one() -> None:
    files = RamFiles()
    store = reboot(files, body_files_max=2)

    def put_long(number: int) -> int:
        content = bytes(40) + body_of(number, 1000)
        store.spool.part_drop(0)
        store.spool.part_open(0, message_id(number), 0, len(content))
        store.spool.part_append(0, content, 0, len(content))
        return store.put_part(0, 1, 2, message_id(number), 0, 1)

    first, second = put_long(1), put_long(2)
    assert put_long(3) == E_CAPACITY
    store.settled_handle = second
    third = put_long(3)
    assert third > second
    assert put_long(4) == E_CAPACITY, "the second one is not settled"
    for again in range(2):
        assert store.load(first) == OK and store.state == STATE_DELETED, again
        assert store.load(second) == OK and store.size == 1000
        assert store.load(third) == OK and store.size == 1000
        assert store.find(message_id(1), 0) == first
        store.barrier()
        store = reboot(files, body_files_max=2)


def test_a_full_disk_refuses_and_recovers() -> None:
    files = RamFiles(capacity=6000)
    store = reboot(files, segment_size=1024, segments_max=40)
    count = 0
    while put(store, count) > 0:
        count += 1
    assert count > 30
    for number in range(5):
        assert put(store, 2000 + number) == E_CAPACITY
    assert len(files.names()) < 10, "refusals leave no files behind"
    assert store.barrier() == OK
    store.settled_handle = SETTLED
    assert put(store, 3000) > 0 and store.barrier() == OK
    files.power_cut()
    store = FlashStore(files, segment_size=1024, segments_max=40)
    assert store.open() <= 1, "the record that met the end of the disk is torn"
    assert store.find(message_id(3000), 0)


def test_tables_are_bounded() -> None:
    store = reboot(RamFiles(), pending_max=2)
    assert put(store, 1, pending=True) > 0 and put(store, 2, pending=True) > 0
    assert put(store, 3, pending=True) == E_CAPACITY
    assert store.promote(store.find(message_id(1), 0), 1) > 0
    assert put(store, 3, pending=True) > 0
    numbers = [store.member(2, bytes([0, 0, 0, i]), 0, 4) for i in range(33)]
    assert numbers == [*range(1, 33), E_CAPACITY]
    assert put(store, 4, INLINE_SIZE_MAX) > 0
    few = RamFiles()
    reboot(few, segment_size=1024)
    store = FlashStore(few, segment_size=1024)
    store.open()
    for number in range(60):
        put(store, number)
    store.barrier()
    few.power_cut()
    assert FlashStore(few, segment_size=1024, segments_max=4).open() == E_CAPACITY


class ReadFiles(RamFiles):
    """Counts reads."""

    reads = 0

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        self.reads += 1
        return RamFiles.read_into(self, fd, offset, buf, at, size)


def test_the_newest_record_is_looked_up_without_the_flash() -> None:
    """A read seeks, and LittleFS then writes first what was appended: a flash program for each."""
    files = ReadFiles()
    store = reboot(files)
    for number in range(30):
        handle = put(store, number, pending=number % 3 == 2)
        before = files.reads
        assert store.find(message_id(number), 0) == handle and store.load(handle) == OK
        assert store.id == message_id(number) and store.size == 60
        assert store.find(message_id(number), 0, 8) == handle
        assert store.is_id(handle, message_id(number), 0, 32)
        assert store.next(handle) == 0 and files.reads == before
        assert read(store, handle) == body_of(number, 60) and files.reads > before
    assert store.entomb(store.find(message_id(28), 0), b"", 0) == OK
    assert state_of(store, 28) == STATE_DELETED and state_of(store, 27) == STATE_DELIVERED


@pytest.mark.parametrize("state", [STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE])
def test_what_was_written_is_noted_without_the_flash(state: int) -> None:
    """However short it is: a call of the files could fail, and what is in the log be unknown."""
    files = ReadFiles()
    store = reboot(files)
    for size in range(60):
        id = message_id(size)
        assert store.put(1, 2, id, 0, bytes(8), 0, body_of(size, size), 0, size, state) > 0
    assert files.reads == 0


def read(store: FlashStore, handle: int) -> bytes:
    buf = bytearray(100)
    return bytes(buf[: store.read_into(handle, 0, buf, 0, 100)])


def test_programs_are_what_was_made_durable() -> None:
    store = reboot(RamFiles())
    assert store.barrier() == OK and store.programs == 0
    for number in range(10):
        put(store, number)
    store.barrier()
    store.barrier()
    assert store.programs == 1
    store.save(bytes(100), 100)
    store.barrier()
    assert store.programs == 2


def sealed(payload: str) -> bytes:
    """A record as drawn: what is before its CRC, and the CRC."""
    record = bytes.fromhex(payload)
    return record + zlib.crc32(record).to_bytes(4, "little")


def test_the_drawn_bytes() -> None:
    """Every kind of record of docs/SPEC.md, written out by hand."""
    files = RamFiles()
    store = reboot(files)
    ids = [bytes([i]) * 32 for i in range(8)]
    ts = bytes.fromhex("0000018bcfe56800")
    peer = bytes.fromhex("a1b2c3d4")
    assert store.member(2, peer, 0, 4) == 1
    assert store.put(1, 2, ids[1], 0, ts, 0, b"body", 0, 4, 1) == 4096 + 16
    assert store.put(1, 2, ids[2], 0, ts, 0, b"", 0, 0, 2) == 4096 + 76
    assert store.promote(4096 + 76, 1) == 4096 + 132
    content = bytes(32) + ts + b"long"
    store.spool.part_open(1, b"part key", 0, len(content))
    store.spool.part_append(1, content, 0, len(content))
    assert store.put_part(1, 1, 0, ids[3], 0, 2) == 4096 + 188
    assert store.entomb(4096 + 16, b"", 0) == OK
    assert store.save(b"wake", 4) == OK
    head = sealed(b"part key".hex() + "2c00 0000")
    assert bytes(files.content("B0000001.BOD")) == head + content
    assert store.member(1, ids[4], 0, 32) == 1
    assert store.put(1, 2, ids[5], 0, ts, 0, b"", 0, 0, STATE_PRIVATE) == 4096 + 308
    assert store.open_up(4096 + 308) == OK
    assert store.entomb(4096 + 308, b"\1" + ids[1], 33) == OK
    assert store.bury(1, 2, ids[6], 0, ts, 0, 0) == 4096 + 513
    assert store.put(1, 2, ids[7], 0, ts, 0, b"", 0, 0, STATE_PRIVATE) == 4096 + 573
    assert store.entomb(4096 + 573, b"", 0) == OK
    assert store.dismiss(1, 1) == OK
    one, two, three, four, five, six, seven = (i.hex() for i in ids[1:])
    stamp = ts.hex()
    assert bytes(files.content("S0000001.LOG")) == (
        sealed("1000 81 04 4452504c 0100 0000")
        + sealed(f"3c00 04 01 02 00 0400 00000000 {stamp} {one} 626f6479")
        + sealed(f"3800 06 01 02 00 0000 00000000 {stamp} {two}")
        + sealed(f"3800 04 01 02 00 0000 4c100000 {stamp} {two}")
        + sealed(f"3c00 07 01 00 00 0400 00000000 {stamp} {three} 01000000")
        + sealed(f"3c00 08 01 02 00 0000 10100000 {stamp} {one} 00000000")
        + sealed(f"3800 84 01 02 01 0000 00000000 {stamp} {five}")
        + sealed(f"3800 09 01 02 00 0000 34110000 {stamp} {five}")
        + sealed(f"5d00 08 01 02 00 0000 34110000 {stamp} {five} 00000000 01 {one}")
        + sealed(f"3c00 08 01 02 02 0000 00000000 {stamp} {six} 00000000")
        + sealed(f"3800 04 01 02 01 0000 00000000 {stamp} {seven}")
        + sealed(f"3c00 08 01 02 01 0000 3d120000 {stamp} {seven} 00000000")
    )
    assert bytes(files.content("S0000001.MET")) == (
        sealed("1000 81 04 4452504c 0100 0000")
        + sealed("0800 02 00")
        + sealed("1500 03 02 01 00000000 00000000 a1b2c3d4")
        + sealed("0c00 82 00 77616b65")
        + sealed(f"3100 03 01 01 00000000 00000000 {four}")
        + sealed("1100 83 01 01 00000000 00000000")
    )
    assert "B0000001.BOD" not in files.names(), "the group was left"


def test_parts_resume_only_what_is_theirs() -> None:
    files = RamFiles()
    store = reboot(files)
    content = body_of(0, 2000)
    assert store.spool.part_open(0, b"keykeyke", 0, 2000) == 0
    assert store.spool.part_append(0, content, 0, 1999) == OK
    assert store.spool.part_append(0, content, 0, 2) == E_CAPACITY, "more than the total"
    assert store.spool.part_size(0) == 1999
    assert store.spool.part_open(0, b"keykeyke", 0, 2000) == 1999
    assert store.spool.part_open(0, b"KEYkeyke", 0, 2000) == 0, "another key starts anew"
    store.spool.part_append(0, content, 0, 1000)
    assert store.spool.part_open(0, b"KEYkeyke", 0, 1999) == 0, "another total starts anew"
    assert store.spool.part_open(2, b"compose!", 0, 0) == 0
    store.spool.part_append(2, content, 0, 700)
    assert store.spool.part_open(2, b"compose!", 0, 0) == 700, "no total"
    assert store.spool.part_drop(2) == OK and store.spool.part_drop(2) == OK
    assert store.spool.part_size(2) == 0 == store.spool.part_read_into(2, 0, bytearray(4), 0, 4)
    assert store.spool.part_append(2, content, 0, 1) == E_STORAGE
    assert store.put_part(2, 1, 2, message_id(1), 0, 1) == E_STORAGE


def test_a_part_on_a_full_disk_gives_its_room_back() -> None:
    files = RamFiles(capacity=3000)
    store = reboot(files)
    content = body_of(0, 2000)
    store.spool.part_open(0, b"keykeyke", 0, 4000)
    assert store.spool.part_append(0, content, 0, 2000) == OK
    assert store.spool.part_append(0, content, 0, 2000) == E_CAPACITY
    assert files.names() == [] and files.used == 0


def test_the_filter_has_no_false_negatives_and_few_false_positives() -> None:
    ids = IdFilter(2048)
    for number in range(1600):
        ids.add(message_id(number), 0, 0)
    assert all(ids.has(message_id(number), 0, 0) for number in range(1600))
    assert not ids.crowded()
    wrong = sum(ids.has(message_id(number), 0, 0) for number in range(10000, 20000))
    assert wrong < 200, "1.1 % expected"
    twisted = sum(ids.has(message_id(number), 0, 0x5A) for number in range(1600))
    assert twisted < 40, "a deleted id is another key"


def test_a_crowded_filter_is_made_anew() -> None:
    files = RamFiles()
    store = reboot(files, segment_size=1024, segments_max=6, filter_size=32)
    store.settled_handle = SETTLED
    for number in range(500):
        assert put(store, number) > 0
    assert store.index.filter.count < 100
    assert all(store.find(store_id(store, handle), 0) == handle for handle in log_of(store))


def test_the_last_ids_are_found_without_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What peers offer and acknowledge is mostly what came lately."""
    store = FlashStore(RamFiles(1 << 20), **OPTIONS)
    assert store.open() == OK
    handles = [put(store, number, pending=number == 19) for number in range(20)]
    handles[19] = store.promote(handles[19], STATE_DELIVERED)
    scans = []
    step_in = store.log.step_in
    monkeypatch.setattr(store.log, "step_in", lambda *at: scans.append(at) or step_in(*at))
    for number in range(4, 20):
        assert store.find(message_id(number), 0) == handles[number]
    assert scans == []
    assert store.find(message_id(0), 0) == handles[0] and scans
