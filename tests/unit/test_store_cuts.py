"""Power cuts at every change of the flash, also while recovering: nothing lost, nothing twice."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from drupelet.errors import E_STORAGE, OK
from drupelet.files import Files
from drupelet.flashread import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from drupelet.store import FlashStore
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut

ABSENT = 0
SEGMENT_SIZE = 512
EVERYTHING = 1 << 20
GROUP_KEY = bytes(range(32))
LEFT_KEY = bytes(range(32, 64))
SHORT_KEY = bytes(range(64, 96))
# What is in the groups that are left: number -> key, messages.
LEFT = {2: (LEFT_KEY, [60, 61, 105, 62]), 4: (SHORT_KEY, [67])}
DESCRIPTOR = bytes(range(200))
EDGES = b"\1" + bytes(32)
# Of each unflushed tail nothing, a few bytes, everything or everything but a hole survives.
KEPT = ((0, False), (13, False), (EVERYTHING, False), (EVERYTHING, True))


def make_store(files: Files) -> FlashStore:
    return FlashStore(
        files, segment_size=SEGMENT_SIZE, segments_max=13, pending_max=4, body_files_max=3,
        filter_size=64,
    )  # fmt: skip


def message_id(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


@cache
def body_of(number: int) -> bytes:
    size = 1100 if number >= 100 else 40 + number
    return bytes((number + i) & 255 for i in range(size))


class Run:
    """A store beside a model: the states that each message may be found in after a cut."""

    def __init__(self, files: CutFiles) -> None:
        self.files = files
        self.now: dict[int, int] = {}
        self.possible: dict[int, set[int]] = {}
        self.handles: dict[int, int] = {}
        self.saved = [b""]
        self.groups: dict[int, int] = {}  # of messages that are not in group 1
        self.left = 0  # the group that is being left just now
        self.settled: set[int] = set()

    def boot(self) -> None:
        self.store = make_store(self.files)
        self.store.open()

    def becomes(self, number: int, state: int) -> None:
        self.possible.setdefault(number, {ABSENT}).add(state)
        self.now[number] = state

    def barrier(self) -> None:
        assert self.store.barrier() == OK
        self.possible = {
            number: {state, ABSENT} if number in self.settled else {state}
            for number, state in self.now.items()
        }
        del self.saved[:-1]

    def put(self, number: int, state: int, group: int = 1) -> None:
        self.becomes(number, state)
        self.groups[number] = group
        body = body_of(number)
        if number < 100:
            code = self.store.put(
                group, 2, message_id(number), 0, number.to_bytes(8), 0, body, 0, len(body), state
            )
        else:
            content = bytes(32) + number.to_bytes(8) + body
            self.store.part_open(number & 1, message_id(number), 0, len(content))
            for at in range(0, len(content), 400):
                piece = content[at : at + 400]
                assert self.store.part_append(number & 1, piece, 0, len(piece)) == OK
            code = self.store.put_part(number & 1, group, 2, message_id(number), 0, state)
        assert code > 0
        self.handles[number] = code

    def promote(self, number: int, state: int = STATE_DELIVERED) -> None:
        self.becomes(number, state)
        self.handles[number] = self.store.promote(self.handles[number], state)
        assert self.handles[number] > 0

    def delete(self, number: int) -> None:
        self.becomes(number, STATE_DELETED)
        assert self.store.delete(self.handles[number], EDGES, len(EDGES)) == OK

    def open_up(self, number: int) -> None:
        self.becomes(number, STATE_DELIVERED)
        assert self.store.open_up(self.handles[number]) == OK

    def bury(self, number: int) -> None:
        self.becomes(number, STATE_INVALID)
        handle = self.handles.get(number, 0)
        self.groups[number] = 1
        self.handles[number] = self.store.bury(
            1, 2, message_id(number), 0, number.to_bytes(8), 0, handle
        )
        assert self.handles[number] > 0

    def describe(self, group: int) -> None:
        """Give a group its descriptor; that makes all before it durable."""
        content = bytes(32) + DESCRIPTOR
        self.store.part_drop(0)
        assert self.store.part_open(0, b"describe", 0, 0) == 0
        assert self.store.part_append(0, content, 0, len(content)) == OK
        assert self.store.descriptor_put(0, group) == OK
        self.barrier()

    def leave(self, group: int) -> None:
        """Leave a group: a cut meanwhile leaves all of it as it was, or nothing of it."""
        self.left = group
        for number in [number for number, its in self.groups.items() if its == group]:
            self.becomes(number, ABSENT)
        assert self.store.forget(1, group) == OK
        assert self.store.descriptor_size(group) == -1
        self.barrier()
        self.left = 0

    def save(self, state: bytes) -> None:
        self.saved.append(state)
        assert self.store.save(state, len(state)) == OK

    def settle(self) -> None:
        """Let everything so far go when room is needed."""
        for number, state in self.now.items():
            if state != STATE_PENDING:
                self.settled.add(number)
                self.possible[number].add(ABSENT)
        self.store.settled_handle = max(self.handles.values()) + 1


def leave_and_join_again(run: Run) -> Iterator[None]:
    """A group with messages of every kind is left, and joined under another number."""
    assert run.store.member(1, LEFT_KEY, 0, 32) == 2
    yield run.put(60, STATE_DELIVERED, 2)
    yield run.describe(2)
    yield run.put(61, STATE_PENDING, 2)
    yield run.put(105, STATE_PENDING, 2)
    yield run.put(62, STATE_PRIVATE, 2)
    yield run.barrier()
    yield run.delete(62)
    yield run.leave(2)
    assert run.store.member(1, LEFT_KEY, 0, 32) == 3
    yield run.put(61, STATE_PENDING, 3)
    yield run.describe(3)
    assert run.store.member(1, SHORT_KEY, 0, 32) == 4
    yield run.put(67, STATE_DELIVERED, 4)
    yield run.describe(4)
    yield run.leave(4)


def keep_and_bury(run: Run) -> Iterator[None]:
    """Private messages are shared or deleted, others turn out to be invalid."""
    yield run.put(63, STATE_PRIVATE)
    yield run.put(64, STATE_PRIVATE)
    yield run.put(65, STATE_PENDING)
    yield run.put(106, STATE_PENDING)
    yield run.barrier()
    yield run.open_up(63)
    yield run.delete(64)
    yield run.bury(65)
    yield run.bury(106)
    yield run.bury(66)
    yield run.barrier()
    yield run.promote(61, STATE_PRIVATE)
    yield run.open_up(61)
    yield run.delete(63)


def scenario(run: Run) -> Iterator[None]:
    """Everything that a store does, over several segments, with one yield per finished call."""
    run.boot()
    assert run.store.member(1, bytes(range(32)), 0, 32) == 1
    assert run.store.member(2, b"peer", 0, 4) == 1
    yield run.put(1, STATE_DELIVERED)
    yield run.put(2, STATE_PENDING)
    yield run.barrier()
    yield run.save(b"first")
    yield from leave_and_join_again(run)
    yield from keep_and_bury(run)
    yield run.put(3, STATE_DELIVERED)
    yield run.put(4, STATE_PENDING)
    yield run.promote(2)
    yield run.barrier()
    yield run.put(100, STATE_PENDING)
    yield run.put(101, STATE_DELIVERED)
    yield run.delete(3)
    yield run.barrier()
    yield run.promote(100)
    yield run.save(b"second" * 10)
    yield run.delete(101)
    yield run.put(103, STATE_PENDING)
    yield run.barrier()
    yield run.delete(103)
    yield run.put(104, STATE_PENDING)
    yield run.barrier()
    for number in range(5, 15):
        yield run.put(number, STATE_DELIVERED)
    yield run.barrier()
    run.settle()
    for number in range(25, 37):
        yield run.put(number, STATE_DELIVERED)
        yield run.save(bytes([number]) * 30)
        if number % 5 == 0:
            yield run.barrier()
            run.settle()
    yield run.promote(4)
    yield run.promote(104)
    yield run.put(102, STATE_DELIVERED)
    yield run.barrier()


def state_of(store: FlashStore, number: int) -> int:
    handle = store.find(message_id(number), 0)
    if not handle:
        return ABSENT
    assert store.load(handle) == OK
    assert store.id == message_id(number)
    return store.state


def check(run: Run) -> None:
    """What is on the flash is what the model allows; nothing is half there or there twice."""
    store = run.store
    for number, possible in run.possible.items():
        assert state_of(store, number) in possible, (number, possible)
    ids = []
    handle = store.next(0)
    while handle:
        assert store.load(handle) == OK
        if handle == store.find(store.id, 0):
            check_body(run, handle)
        elif store.state != STATE_DELETED:
            raise AssertionError(f"{handle} is not where its id leads")
        ids.append(bytes(store.id))
        after = store.next(handle)
        assert after == 0 or after > handle
        handle = after
    assert len(ids) == len(set(ids)), "a message is in the log twice"
    handle = store.next_pending(0)
    while handle:
        assert store.load(handle) == OK and store.state == STATE_PENDING
        assert bytes(store.id) not in ids
        check_body(run, handle)
        handle = store.next_pending(handle)
    bodies = [name for name in run.files.names() if name.endswith(".BOD")]
    assert len(bodies) <= 3
    if run.left:
        check_group(run)


def check_group(run: Run) -> None:
    """A group that is being left is there with all that it had, or without anything."""
    store = run.store
    key, numbers = LEFT[run.left]
    present = [number for number in numbers if state_of(store, number)]
    described = store.descriptor_size(run.left)
    if store.member(1, key, 0, 32) == run.left:
        assert present == numbers and described == len(DESCRIPTOR)
    else:
        assert not present and described == -1


def check_body(run: Run, handle: int) -> None:
    store = run.store
    number = store.id[1]
    body = body_of(number)
    group = run.groups.get(number, 1)
    assert store.timestamp == number.to_bytes(8) and store.source == 2
    assert store.group == group or (number == 61 and store.group in (2, 3))
    buf = bytearray(1200)
    if store.state == STATE_DELETED:
        assert store.size == 0
        assert store.edges_size == store.read_into(handle, 0, buf, 0, 1200)
        assert store.edges_size in (0, len(EDGES))
    else:
        assert store.size == len(body) == store.read_into(handle, 0, buf, 0, 1200)
        assert buf[: len(body)] == body


def go_on(run: Run) -> None:
    """The store works after all that: one more message survives another cut."""
    store = run.store
    store.settled_handle = 1 << 29
    for number, state in run.now.items():
        if state != STATE_PENDING:
            run.possible[number].add(ABSENT)
    run.left = 0
    saved = bytes(store.saved[: store.saved_size])
    assert saved in run.saved or saved == b""
    assert store.member(1, bytes(range(32)), 0, 32) == 1
    assert store.put(1, 2, message_id(99), 0, (99).to_bytes(8), 0, body_of(99), 0, 139, 1) > 0
    assert store.barrier() == OK
    run.files.power_on()
    run.boot()
    assert state_of(run.store, 99) == STATE_DELIVERED
    check(run)


def count_steps() -> int:
    run = Run(CutFiles())
    for _ in scenario(run):
        pass
    check(run)
    assert run.store.erases > 3 and run.store.damaged == 0 and run.store.refused == 0
    return run.files.steps


STEPS = count_steps()


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER], ids=["before", "torn", "after"])
def test_a_cut_at_every_step(moment: int) -> None:
    # After a step the flash is as before the next one.
    for cut_at in range(0, STEPS, 3 if moment == AFTER else 1):
        files = CutFiles(cut_at, moment, garbled=bool(cut_at & 1))
        run = Run(files)
        with suppress(PowerCut):
            for _ in scenario(run):
                pass
        assert files.off, "the cut came"
        kept, hole = KEPT[cut_at % 4]
        files.power_on(kept, hole=hole)
        run.boot()
        check(run)
        go_on(run)


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER], ids=["before", "torn", "after"])
def test_cuts_while_recovering_from_a_cut(moment: int) -> None:
    recovery_cuts = 0
    for cut_at in range(0, STEPS, 5):
        files = CutFiles(cut_at, moment)
        run = Run(files)
        with suppress(PowerCut):
            for _ in scenario(run):
                pass
        # What the first cut left is durable; each further boot is cut one step later.
        files.power_on(EVERYTHING, cut_at=0)
        for step in range(20):
            try:
                run.boot()
                break
            except PowerCut:
                recovery_cuts += 1
                files.power_on(0, cut_at=step + 1)
        else:
            raise AssertionError("recovery does not end")
        files.cut_at = -1
        check(run)
        go_on(run)
    assert recovery_cuts, "some recovery changed the flash"


def test_a_cut_while_a_part_is_resumed() -> None:
    content = bytes(range(250)) * 8
    for cut_at in range(60):
        files = CutFiles()
        store = make_store(files)
        store.open()
        store.part_open(0, b"whose-id", 0, len(content))
        store.part_append(0, content, 0, 1300)
        files.power_on(EVERYTHING, cut_at)
        store = make_store(files)
        try:
            kept = store.part_open(0, b"whose-id", 0, len(content))
            files.cut_at = -1
        except PowerCut:
            files.power_on(0)
            store = make_store(files)
            kept = store.part_open(0, b"whose-id", 0, len(content))
        assert kept == 1024 == store.part_size(0)
        files.power_on(0)
        store = make_store(files)
        assert store.part_open(0, b"whose-id", 0, len(content)) == 1024
        buf = bytearray(1100)
        assert store.part_read_into(0, 0, buf, 0, 1100) == 1024
        assert buf[:1024] == content[:1024]
        assert store.part_append(0, content, 1024, len(content) - 1024) == OK
        assert store.put_part(0, 1, 0, message_id(1), 0, 1) > 0


def test_without_a_cut_nothing_is_forgotten() -> None:
    run = Run(CutFiles())
    for _ in scenario(run):
        check(run)
    assert run.store.promote(12345, 1) == E_STORAGE
