"""What lets a hundred people with a link to each other run: C looks where a board's loops look.

Everything here gives the results of what it stands for, to the byte: a log that only grows, in
dicts; links and topics whose scans are taken to the next slot that is worth a look, where the
core's own code goes on.
"""

import gc
import re

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.ports import Buffer
from drupelet.engine.core import Core
from drupelet.engine.graph import Graph
from drupelet.engine.members import FAMILY_BSP, SHARED
from drupelet.engine.slots import (
    OFFERED,
    OWED,
    OWED_TWICE,
    PEER_ROW,
    WANTED,
    MessageSlots,
    OfferPool,
)
from drupelet.engine.states import ACK, HOLD, QUEUED, REQUEST
from drupelet.engine.window import _ROW_CHANGES, _ROW_QUEUED
from drupelet.link.link import Link
from drupelet.store.reader import STATE_DELIVERED
from drupelet_tools.sim.hoststore import MemoryStore

_PREFIX = 8
_NEVER = 1 << 16


def _bytes(*fits: int) -> "re.Pattern[bytes]":
    return re.compile(b"[" + b"".join(re.escape(bytes((value,))) for value in fits) + b"]", re.S)


_OWES = _bytes(*(state for state in range(256) if state & ACK))
_DUE = _bytes(*(s for s in range(256) if s & (QUEUED | REQUEST) and not s & HOLD))
_OFFERS = _bytes(*(s for s in range(256) if s & (QUEUED | HOLD | REQUEST) == QUEUED))
_ASKED = _bytes(*(s for s in range(256) if s & REQUEST and not s & HOLD))
_QUEUES = _bytes(*(s for s in range(256) if s & (QUEUED | HOLD) == QUEUED))
_KIND_OWED = _bytes(OWED, OWED_TWICE)
_KIND_ASKED = _bytes(*range(OFFERED, WANTED + 1))


def collect_seldom() -> None:
    """Have Python look for circles of garbage at each 20,000th object: worlds leave few."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


class SwiftStore(MemoryStore):
    """A store whose log only grows: nothing is deleted, buried, or waits for a parent."""

    def __init__(self) -> None:
        super().__init__()
        # Handle h is row h - 1: id, timestamp, group, source, body.
        self._log: list[tuple[bytes, bytes, int, int, bytes]] = []
        self._handles: dict[bytes, int] = {}  # by id, and by its first 8 bytes

    def put(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        body: Buffer, at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Add to the log."""
        assert state == STATE_DELIVERED
        name = bytes(id[id_at : id_at + ID_SIZE])
        assert name not in self._handles
        stamp = bytes(timestamp[ts_at : ts_at + TIMESTAMP_SIZE])
        self._log.append((name, stamp, group, source, bytes(body[at : at + size])))
        self._handles[name] = len(self._log)
        self._handles.setdefault(name[:_PREFIX], len(self._log))
        return len(self._log)

    def find(self, id: Buffer, at: int, size: int = ID_SIZE) -> int:
        """By a whole id or its first 8 bytes."""
        return self._handles.get(bytes(id[at : at + size]), 0)

    def is_id(self, handle: int, id: Buffer, at: int, size: int) -> bool:
        """As the port has it."""
        return self._log[handle - 1][0][:size] == id[at : at + size]

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """As the port has it."""
        buf[at : at + ID_SIZE] = self._log[handle - 1][0]
        return True

    def load(self, handle: int) -> int:
        """The attributes of a row."""
        if not 0 < handle <= len(self._log):
            return E_STORAGE
        self.id[:], self.timestamp[:], self.group, self.source, body = self._log[handle - 1]
        self.size = len(body)
        self.state = STATE_DELIVERED
        self.private = False
        self.missing = self.edges_size = 0
        return OK

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Bytes of a body."""
        if not 0 < handle <= len(self._log):
            return E_STORAGE
        part = self._log[handle - 1][4][offset : offset + size]
        buf[at : at + len(part)] = part
        return len(part)

    def next(self, handle: int) -> int:
        """The row after it."""
        return handle + 1 if handle < len(self._log) else 0

    def next_pending(self, handle: int) -> int:  # noqa: ARG002 - as the port has it
        """Nothing waits."""
        return 0

    def next_kept(self, handle: int) -> int:  # noqa: ARG002 - as the port has it
        """Nothing was deleted."""
        return 0

    def barrier(self) -> int:
        """Memory is as durable as it gets."""
        return OK


class RoomyWindow(Graph):
    """A window of a table that holds all that will ever be: no peer's queue takes another's room.

    Every peer moves on with every message that enters the log. To the byte it is what `Window`
    does with as many slots for each peer (`tests/sim/test_paper.py`).
    """

    def _has_share(self, peer: int) -> bool:  # noqa: ARG002 - as the window has it
        return True

    def entered(self, slot: int, handle: int) -> None:
        """As `Window.entered`."""
        before = self.newest
        self.newest = handle
        slots = self.slots
        group = slots.group(slot)
        cursors, states, rows = self.cursors, slots.states, self.rows
        for peer in range(self.members.peers):
            if cursors[peer] != before:
                continue
            cursors[peer] = handle
            if self.members.visibility(group, peer) != SHARED:
                continue
            cell = peer * slots.count + slot
            if not states[cell] & (HOLD | QUEUED):
                rows[peer * PEER_ROW + _ROW_QUEUED] += 1
            states[cell] |= QUEUED
            changes = peer * PEER_ROW + _ROW_CHANGES
            rows[changes] = (rows[changes] + 1) & 0xFF


class SwiftOffers(OfferPool):
    """A pool that knows where an id was put, and counts in C."""

    # Where an id of a peer was put last; `kinds` tells whether it is still there.
    _entries: dict[tuple[int, bytes], int]

    def _is_there(self, entry: int, peer: int, id: bytes) -> bool:
        at = entry * ID_SIZE
        there = self.kinds[entry] and self.peer_of(entry) == peer
        return bool(there) and self.ids[at : at + ID_SIZE] == id

    def add(self, id: Buffer, at: int, peer: int, kind: int, epoch: int) -> int:
        """As `OfferPool.add`."""
        name = peer, bytes(id[at : at + ID_SIZE])
        entry = self._entries.get(name, -1)
        if entry >= 0 and self._is_there(entry, *name):
            if kind > self.kinds[entry] or self.kinds[entry] > WANTED:
                self.kinds[entry] = kind
            return entry
        entry = self._room(peer, kind, epoch)
        if entry < 0:
            return -1
        self.ids[entry * ID_SIZE : (entry + 1) * ID_SIZE] = name[1]
        self.put(entry, peer, kind, epoch)
        self._entries[name] = entry
        return entry

    def _room(self, peer: int, kind: int, epoch: int) -> int:
        """As `OfferPool._room`."""
        held = 0
        at = self.kinds.find(peer, self.count, 2 * self.count)
        while at >= 0 and held < self.quota:
            held += self.kinds[at - self.count] != 0
            at = self.kinds.find(peer, at + 1, 2 * self.count)
        free = self.kinds.rfind(0, 0, self.count)
        if free >= 0 and held < self.quota and kind != WANTED:
            return free
        return super()._room(peer, kind, epoch)

    def drop_id(self, id: Buffer, at: int) -> None:
        """As `OfferPool.drop_id`."""
        name = bytes(id[at : at + ID_SIZE])
        found = self.ids.find(name[:_PREFIX])
        while found >= 0:
            entry, within = divmod(found, ID_SIZE)
            kind = 0 if within else self.kinds[entry]
            size = _PREFIX if kind == OFFERED else ID_SIZE
            if 0 < kind <= WANTED and self.ids[found : found + size] == name[:size]:
                self.kinds[entry] = 0
            found = self.ids.find(name[:_PREFIX], found + 1)


class SwiftSlots(MessageSlots):
    """Slots that know where an id is; none is freed, for there is one for each message."""

    _found: dict[bytes, int]

    def find(self, id: Buffer, at: int) -> int:
        """As `MessageSlots.find`."""
        return self._found.get(bytes(id[at : at + ID_SIZE]), -1)

    def take(
        self, slot: int, id: bytes | bytearray, at: int, handle: int, group: int
    ) -> None:  # fmt: skip
        """As `MessageSlots.take`."""
        super().take(slot, id, at, handle, group)
        self._found[bytes(id[at : at + ID_SIZE])] = slot

    def free(self, slot: int) -> None:
        """Not here."""
        raise AssertionError(slot)


def hasten(core: Core) -> None:
    """Make the tables of a node swift, while there is nothing in them."""
    core.offers.__class__ = SwiftOffers
    core.slots.__class__ = SwiftSlots
    assert isinstance(core.offers, SwiftOffers)
    assert isinstance(core.slots, SwiftSlots)
    core.offers._entries = {}
    core.slots._found = {}


class SwiftLink(Link):
    """A live link whose scans skip what they would pass over."""

    def _skip(self, left: int, states: "re.Pattern[bytes]") -> int:
        """`left` at the next slot whose state is one of these; 0: there is none."""
        slots = self.core.slots
        count = slots.count
        oldest = self.core.scan_from
        base = self.peer * count
        while left > 0:
            slot = (oldest - left) % count
            end = count if slot >= oldest else oldest
            found = states.search(slots.states, base + slot, base + end)
            if found is not None:
                return left - (found.start() - base - slot)
            left -= end - slot
        return 0

    def _entry(self, at: int, kinds: "re.Pattern[bytes]") -> int:
        """The next entry of the pool, from `at` on, that is the peer's and one of these."""
        offers = self.core.offers
        while found := kinds.search(offers.kinds, at, offers.count):
            at = found.start()
            if offers.peer_of(at) == self.peer:
                return at
            at += 1
        return offers.count

    def _wanted(self) -> "re.Pattern[bytes]":
        """States of what may be sent: where nothing goes unasked, of what was asked for."""
        asked = (self.quiet or self.interactive) and self.family == FAMILY_BSP
        return _ASKED if asked else _DUE

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """As `Dues.take_ack`."""
        core = self.core
        core.ack_left = self._skip(core.ack_left, _OWES)
        if not core.ack_left:
            core.owed_at = self._entry(core.owed_at, _KIND_OWED)
        return super().take_ack(buf, at)

    def take_request(self, buf: bytearray, at: int, prefixes: bool = False) -> bool:
        """As `Dues.take_request`."""
        self.scan()
        core = self.core
        entry = self._entry(core.request_at, _KIND_ASKED)
        while entry < core.offers.count and core.offers.kinds[entry] != OFFERED:
            if self._entry_wait(entry) <= 0:
                break
            entry = self._entry(entry + 1, _KIND_ASKED)
        core.request_at = entry
        return super().take_request(buf, at, prefixes)

    def next_message(self) -> bool:
        """As `Dues.next_message`."""
        core = self.core
        wanted = self._wanted()
        while left := self._skip(core.message_left, wanted):
            core.message_left = left
            if self.message_due((core.scan_from - left) % core.slots.count):
                return super().next_message()
            core.message_left -= 1
        core.message_left = 0
        return False

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """As `Dues.take_offer`."""
        if self.quiet or not self.interactive:
            return False
        core = self.core
        count = core.slots.count
        while left := self._skip(core.offer_left, _OFFERS):
            core.offer_left = left
            if self._cell_wait(self.peer * count + (core.scan_from - left) % count) <= 0:
                return super().take_offer(buf, at)
            core.offer_left -= 1
        core.offer_left = 0
        return False

    def next_due_epochs(self) -> int:
        """As `Dues.next_due_epochs`; where nothing goes unasked, nothing else falls due."""
        core = self.core
        count = core.slots.count
        base = self.peer * count
        soonest = _NEVER
        due = _ASKED if self.quiet and self.family == FAMILY_BSP else _DUE
        for found in due.finditer(core.slots.states, base, base + count):
            soonest = min(soonest, self._cell_wait(found.start()))
            if soonest <= 1:
                return 1
        entry = self._entry(0, _KIND_ASKED)
        while entry < core.offers.count:
            if core.offers.kinds[entry] != OFFERED:
                soonest = min(soonest, self._entry_wait(entry))
            entry = self._entry(entry + 1, _KIND_ASKED)
        return 0 if soonest == _NEVER else max(soonest, 1)

    def _first_queued(self) -> int:
        slots = self.core.slots
        base = self.peer * slots.count
        found = slots.oldest
        lowest = 0
        for match in _QUEUES.finditer(slots.states, base, base + slots.count):
            handle = slots.handles[match.start() - base]
            if not lowest or handle < lowest:
                found, lowest = match.start() - base, handle
        return found
