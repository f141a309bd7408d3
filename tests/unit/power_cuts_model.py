"""A store beside a model of what it was told, for `power_cuts`."""

from collections.abc import Callable
from functools import cache

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.store.files import Files
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)
from unit.cut_files import CutFiles

ABSENT = 0
E_MEMORY = -99  # of a call that a full heap has ended
GROUP, PEER = 1, 2
SALT = 0x5A17C0DE
SEGMENT_SIZE = 512
META_SIZE = 400  # so that they are soon full
MEMBERS = 6  # rows of the table: as many as a small segment has room for
EDGES = b"\1" + bytes(range(32))


def make_store(files: Files) -> FlashStore:
    store = FlashStore(
        files, segment_size=SEGMENT_SIZE, segments_max=7, pending_max=4, body_files_max=3,
        filter_size=64, salt=SALT, meta_size=META_SIZE,
    )  # fmt: skip
    store.meta.rows = bytearray(8 * MEMBERS)
    store.own_max = store.data_max  # all that is put here is our own
    return store


def message_id(number: int) -> bytes:
    return bytes([number * 37 & 255, number]) * 16


def key_of(number: int) -> bytes:
    return bytes([number]) * 32


@cache
def body_of(number: int) -> bytes:
    size = 1100 if number >= 100 else 40 + number
    return bytes((number + i) & 255 for i in range(size))


def state_of(store: FlashStore, number: int, handle: int = -1) -> int:
    if handle < 0:
        handle = store.find(message_id(number), 0)
    if not handle:
        return ABSENT
    assert store.load(handle) == OK, "found, but not there"
    assert store.id == message_id(number), "another message"
    return store.state


class Model:
    """What the store was told: the states that each message may be found in after a cut."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.possible: dict[int, frozenset[int]] = {}
        self.handles: dict[int, int] = {}
        self.groups: dict[int, int] = {}  # of messages that are not in group 1
        self.kept: dict[int, int] = {}  # deleted, and somebody is not known to have it
        self.settled: frozenset[int] = frozenset()
        self.opened: frozenset[int] = frozenset()
        self.saved: tuple[bytes, ...] = (b"",)
        self.unsure = False  # which of them it is
        self.members: dict[tuple[int, bytes], int] = {}
        self.durable_members: dict[tuple[int, bytes], int] = {}
        self.descriptors: dict[int, bytes] = {}
        self.leaving = 0
        self.own = 0  # messages of our own so far
        self.own_durable = 0
        self.working = True  # the flash has refused nothing so far
        self.forgets = False  # the flash may be too full for the ids of what goes

    def sure(self, number: int, state: int) -> frozenset[int]:
        """What a durable message may be found as; one that is settled may have gone for room.

        Its id stays, unless the flash had no room for it either.
        """
        if number not in self.settled or number in self.kept:
            return frozenset((state,))
        # A body goes before its record, a record before the one that says that it is shared.
        hollow = number >= 100 or number in self.opened
        gone = state if state == STATE_INVALID else STATE_GONE
        possible = {state, gone}
        if hollow:
            possible.add(STATE_DELETED)
        if self.forgets:
            possible.add(ABSENT)
        return frozenset(possible)

    def copy(self) -> "Model":
        other = Model()
        for name, value in vars(self).items():
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other


class Run(Model):
    """A store beside its model. Calls that the flash refuses leave both as they were."""

    def __init__(self, files: CutFiles) -> None:
        super().__init__()
        self.files = files

    def boot(self) -> None:
        """Start; again, it is a reset that loses nothing of what was written."""
        self.files.reset()
        self.store = make_store(self.files)
        assert self.store.open() >= 0

    def code(self, code: int) -> bool:
        """True when the store did it; it must, while the flash does."""
        assert code >= 0 or not self.working, code
        return code >= 0

    @staticmethod
    def attempt(call: Callable[[], int]) -> int:
        try:
            return call()
        except MemoryError:
            return E_MEMORY

    def becomes(self, number: int, state: int) -> None:
        self.possible[number] = self.possible.get(number, frozenset((ABSENT,))) | {state}
        self.now[number] = state

    def barrier(self) -> None:
        if not self.code(self.attempt(self.store.barrier)):
            return
        self.possible = {number: self.sure(number, state) for number, state in self.now.items()}
        self.saved = self.saved if self.unsure else self.saved[-1:]
        self.durable_members = dict(self.members)
        self.own_durable = self.own

    def change(self, number: int, state: int, call: Callable[[], int]) -> None:
        """A call that gives a message another state, and perhaps another handle."""
        before = self.now.get(number, ABSENT)
        was_possible = self.possible.get(number, frozenset((ABSENT,)))
        self.becomes(number, state)
        code = self.attempt(call)
        if code == E_MEMORY:
            self.now[number] = state_of(self.store, number)
            assert self.now[number] in (before, state), "neither as it was nor as it is to be"
            code = self.store.find(message_id(number), 0)
        elif not self.code(code):
            self.now[number] = before
            self.possible[number] = was_possible
            assert state_of(self.store, number) == before, "refused, and not as it was"
        if code > 0:
            self.handles[number] = code

    def member(self, kind: int, key: bytes) -> int:
        number = self.attempt(lambda: self.store.member(kind, key, 0, len(key)))
        if self.code(number):
            self.members[kind, key] = number
        return number

    def _known(self, number: int) -> int:
        return self.store.find(message_id(number), 0)

    def put(self, number: int, state: int = STATE_DELIVERED, group: int = 1) -> None:
        self.groups[number] = group
        own = number % 2 and state == STATE_DELIVERED  # the odd ones are ours
        body = body_of(number)
        if number < 100:
            self.change(number, state, lambda: self._known(number) or self.store.put(
                group, 0 if own else 2, message_id(number), 0, number.to_bytes(8), 0, body, 0,
                len(body), state,
            ))  # fmt: skip
            self.own += own and group == 1 and number in self.handles
            return
        content = bytes(32) + number.to_bytes(8) + body
        part = number & 1
        store = self.store
        self.attempt(lambda: store.spool.part_drop(part))
        code = self.attempt(
            lambda: store.spool.part_open(part, message_id(number), 0, len(content))
        )
        if self.code(code):
            for at in range(0, len(content), 400):
                size = min(400, len(content) - at)
                code = self.attempt(lambda at=at, size=size: store.spool.part_append(
                    part, content, at, size
                ))  # type: ignore[misc]  # fmt: skip
                if not self.code(code):
                    return
            self.change(number, state, lambda: self._known(number) or self.store.put_part(
                part, group, 0 if own else 2, message_id(number), 0, state
            ))  # fmt: skip

    def promote(self, number: int, state: int = STATE_DELIVERED) -> None:
        if self.now.get(number) == STATE_PENDING:
            self.change(number, state, lambda: self.store.promote(self.handles[number], state))

    def delete(self, number: int, missing: int = 0) -> None:
        if self.now.get(number):
            if missing:
                self.kept[number] = missing
            handle = self.handles[number]
            self.change(
                number, STATE_DELETED,
                lambda: self.store.entomb(handle, EDGES, len(EDGES), missing),
            )  # fmt: skip
            if self.now[number] != STATE_DELETED:
                self.kept.pop(number, 0)

    def keep(self, number: int, missing: int) -> None:
        if number in self.kept:
            if not missing:
                del self.kept[number]  # from here on it may go
            self.code(self.attempt(lambda: self.store.keep(self.handles[number], missing)))

    def open_up(self, number: int) -> None:
        if self.now.get(number) == STATE_PRIVATE:
            self.opened |= {number}
            if number in self.settled:
                self.possible[number] |= self.sure(number, STATE_DELIVERED)
            self.change(number, STATE_DELIVERED, lambda: self.store.open_up(self.handles[number]))

    def bury(self, number: int) -> None:
        self.groups[number] = 1
        handle = self.handles.get(number, 0)
        self.change(number, STATE_INVALID, lambda: self.store.bury(
            1, 2, message_id(number), 0, number.to_bytes(8), 0, handle
        ))  # fmt: skip

    def describe(self, group: int, text: bytes) -> None:
        """Give a group its descriptor; that makes all before it durable."""
        content = bytes(32) + text
        store = self.store
        before = self.descriptors.get(group, b"")
        self.descriptors[group] = b"%b|%b" % (before, text)
        calls = (
            lambda: store.spool.part_drop(0), lambda: store.spool.part_open(0, b"describe", 0, 0),
            lambda: store.spool.part_append(0, content, 0, len(content)),
            lambda: store.descriptor_put(0, group),
        )  # fmt: skip
        if all(self.code(self.attempt(call)) for call in calls):
            self.descriptors[group] = text
            self.barrier()

    def forget(self, kind: int, key: bytes) -> None:
        """A cut meanwhile leaves all of it as it was, or nothing of it."""
        group = self.members[kind, key] if kind == GROUP else 0
        before = {n: (self.now[n], self.possible[n]) for n, its in self.groups.items()
                  if its == group and n in self.now}  # fmt: skip
        for number in before:
            self.becomes(number, ABSENT)
        self.leaving = group
        had = self.durable_members.pop((kind, key), 0)
        code = self.attempt(lambda: self.store.dismiss(kind, self.members[kind, key]))
        if self.code(code):
            self.members.pop((kind, key))
            self.descriptors.pop(group, None)
            for number in before:
                self.kept.pop(number, 0)
            self.leaving = 0
            self.barrier()
        elif kind == PEER and not self.store.meta.is_member(kind, self.members[kind, key]):
            self.members.pop((kind, key))  # it is done, but was not flushed: a cut may undo it
        elif had and code == E_CAPACITY:
            self.leaving = 0
            self.durable_members[kind, key] = had
            for number, (state, possible) in before.items():
                self.now[number], self.possible[number] = state, possible

    def save(self, state: bytes) -> None:
        before = self.saved
        self.saved = (*before, state)
        code = self.attempt(lambda: self.store.save(state, len(state)))
        self.unsure = code == E_MEMORY
        if not self.code(code) and not self.unsure:
            self.saved = before

    def settle(self, groups: int = 255) -> None:
        """Let everything so far go, of some groups (a bit each), when room is needed."""
        gone = {
            n for n, state in self.now.items()
            if state != STATE_PENDING and groups >> (self.groups.get(n, 1) & 7) & 1
        }  # fmt: skip
        self.settled |= gone
        for number in gone:
            self.possible[number] |= self.sure(number, self.now[number])
        for group in range(8):
            if groups >> group & 1:
                self.store.settled[group] = max([0, *self.handles.values()]) + 1
