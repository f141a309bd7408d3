"""Power cuts at every change of the flash, also while recovering: nothing lost, nothing twice."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from drupelet.errors import E_STORAGE, OK
from drupelet.files import Files
from drupelet.store import STATE_DELETED, STATE_DELIVERED, STATE_PENDING, FlashStore
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, PowerCut

ABSENT = 0
SEGMENT_SIZE = 512
EVERYTHING = 1 << 20
# Of each unflushed tail nothing, a few bytes, everything or everything but a hole survives.
KEPT = ((0, False), (13, False), (EVERYTHING, False), (EVERYTHING, True))


def make_store(files: Files) -> FlashStore:
    return FlashStore(
        files, segment_size=SEGMENT_SIZE, segments_max=8, pending_max=4, body_files_max=3,
        filter_size=64,
    )  # fmt: skip


def message_id(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


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

    def put(self, number: int, pending: bool) -> None:
        self.becomes(number, STATE_PENDING if pending else STATE_DELIVERED)
        body = body_of(number)
        if number < 100:
            code = self.store.put(
                1, 2, message_id(number), 0, number.to_bytes(8), 0, body, 0, len(body), pending
            )
        else:
            content = bytes(32) + number.to_bytes(8) + body
            self.store.part_open(number & 1, message_id(number), 0, len(content))
            for at in range(0, len(content), 400):
                piece = content[at : at + 400]
                assert self.store.part_append(number & 1, piece, 0, len(piece)) == OK
            code = self.store.put_part(number & 1, 1, 2, message_id(number), 0, pending)
        assert code > 0
        self.handles[number] = code

    def promote(self, number: int) -> None:
        self.becomes(number, STATE_DELIVERED)
        self.handles[number] = self.store.promote(self.handles[number])
        assert self.handles[number] > 0

    def delete(self, number: int) -> None:
        self.becomes(number, STATE_DELETED)
        assert self.store.delete(self.handles[number]) == OK

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


def scenario(run: Run) -> Iterator[None]:
    """Everything that a store does, over several segments, with one yield per finished call."""
    run.boot()
    assert run.store.member(1, bytes(range(32)), 0, 32) == 1
    assert run.store.member(2, b"peer", 0, 4) == 1
    yield run.put(1, False)
    yield run.put(2, True)
    yield run.barrier()
    yield run.save(b"first")
    yield run.put(3, False)
    yield run.put(4, True)
    yield run.promote(2)
    yield run.barrier()
    yield run.put(100, True)
    yield run.put(101, False)
    yield run.delete(3)
    yield run.barrier()
    yield run.promote(100)
    yield run.save(b"second" * 10)
    yield run.delete(101)
    yield run.put(103, True)
    yield run.barrier()
    yield run.delete(103)
    yield run.put(104, True)
    yield run.barrier()
    for number in range(5, 15):
        yield run.put(number, False)
    yield run.barrier()
    run.settle()
    for number in range(25, 37):
        yield run.put(number, False)
        yield run.save(bytes([number]) * 30)
        if number % 5 == 0:
            yield run.barrier()
            run.settle()
    yield run.promote(4)
    yield run.promote(104)
    yield run.put(102, False)
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
            check_body(store, handle)
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
        check_body(store, handle)
        handle = store.next_pending(handle)
    bodies = [name for name in run.files.names() if name.endswith(".BOD")]
    assert len(bodies) <= 3


def check_body(store: FlashStore, handle: int) -> None:
    number = store.id[1]
    body = body_of(number)
    assert store.timestamp == number.to_bytes(8) and (store.group, store.source) == (1, 2)
    buf = bytearray(1200)
    if store.state == STATE_DELETED:
        assert store.size == store.read_into(handle, 0, buf, 0, 1200) == 0
    else:
        assert store.size == len(body) == store.read_into(handle, 0, buf, 0, 1200)
        assert buf[: len(body)] == body


def go_on(run: Run) -> None:
    """The store works after all that: one more message survives another cut."""
    store = run.store
    store.settled_handle = 1 << 29
    saved = bytes(store.saved[: store.saved_size])
    assert saved in run.saved or saved == b""
    assert store.member(1, bytes(range(32)), 0, 32) == 1
    assert store.put(1, 2, message_id(99), 0, (99).to_bytes(8), 0, body_of(99), 0, 139, False) > 0
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
    for cut_at in range(STEPS):
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
        assert store.put_part(0, 1, 0, message_id(1), 0, False) > 0


def test_without_a_cut_nothing_is_forgotten() -> None:
    run = Run(CutFiles())
    for _ in scenario(run):
        check(run)
    assert run.store.promote(12345) == E_STORAGE
