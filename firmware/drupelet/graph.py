"""The message graph: a message enters the log after everything that it depends on (BSP v1 5).

A message whose dependencies are all in the log is put there at once. Any other waits as pending;
its missing parents are asked for by id, from its sender first. Everything here is iterative: a
chain costs passes over the slots, never stack.
"""

from drupelet._compat import const
from drupelet.errors import E_PEER, OK
from drupelet.limits import CONTENT_HEADER_SIZE, DEPENDENCIES_MAX, ID_SIZE, SCRATCH_SIZE
from drupelet.memory import copy
from drupelet.slots import PENDING, USED, WANTED
from drupelet.store import STATE_DELETED, STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.members import Members
    from drupelet.ports import StorePort
    from drupelet.slots import MessageSlots, OfferPool
    from drupelet.window import Window

# Where a body that is being looked at lives.
_FROM_BUFFER = const(-1)
_FROM_STORE = const(-2)

REFUSED = const(0)  # not taken in, not acknowledged: the peer sends it again
ENTERED = const(1)  # in the log
WAITING = const(2)  # pending
TOO_EARLY = const(3)  # refused because there is no room to wait for `missing_id`


class Graph:
    """Decides whether a message enters the log, waits, or is refused."""

    def __init__(
        self, store: "StorePort", members: "Members", slots: "MessageSlots", offers: "OfferPool",
        window: "Window",
    ) -> None:  # fmt: skip
        self.store = store
        self.members = members
        self.slots = slots
        self.offers = offers
        self.window = window
        self._id = bytearray(SCRATCH_SIZE)
        self._body: "bytes | bytearray | memoryview" = self._id
        self._body_at = 0
        self.missing_id = bytearray(ID_SIZE)  # the last dependency that was not met
        self.slot = -1  # of the message that was last taken in, -1 when it has none
        self.handle = 0
        self.refused = 0
        self.invalid = 0
        self.promoted = False  # some message entered the log: call `promote` again
        self._left_out = False  # a pending message of the store has no slot yet

    def take_body(
        self, group: int, source: int, id: bytearray, timestamp: "bytes | bytearray", ts_at: int,
        body: "bytes | bytearray", at: int, size: int,
    ) -> int:  # fmt: skip
        """Take in a message whose body is in a buffer; what became of it, or E_PEER.

        ENTERED, WAITING, TOO_EARLY or REFUSED. `group`: row; `source`: peer number, 0 is
        ourselves; `id`: 32 bytes at 0.
        """
        self._body = body
        self._body_at = at
        missing = self._missing(group, _FROM_BUFFER, size)
        if not self._fits(missing):
            return self._refuse(missing)
        number = self.members.group_numbers[group]
        pending = missing > 0
        handle = self.store.put(number, source, id, 0, timestamp, ts_at, body, at, size, pending)
        return self._taken(group, source, id, handle, size, pending)

    def take_part(self, group: int, source: int, id: bytearray, part: int) -> int:
        """Take in a message whose content is in a part file; as `take_body`."""
        size = self.store.part_size(part) - CONTENT_HEADER_SIZE
        missing = self._missing(group, part, size)
        if not self._fits(missing):
            return self._refuse(missing)
        pending = missing > 0
        number = self.members.group_numbers[group]
        handle = self.store.put_part(part, number, source, id, 0, pending)
        return self._taken(group, source, id, handle, size, pending)

    def _fits(self, missing: int) -> bool:
        """True for a valid body that need not wait for parents, or has room to."""
        return missing == 0 or (missing > 0 and self.window.room(True) >= 0)

    def _refuse(self, missing: int) -> int:
        if missing < 0:
            self.invalid += 1
            return E_PEER
        self.refused += 1
        return TOO_EARLY if missing else REFUSED

    def _taken(
        self, group: int, source: int, id: bytearray, handle: int, size: int, pending: bool
    ) -> int:
        if handle < 0:
            return self._refuse(0)
        self.handle = handle
        self.slot = self.window.admit(id, 0, handle, group, source, size, pending)
        if pending:
            assert self.slot >= 0, "room was checked before the message was stored"
            return WAITING
        self.window.entered(self.slot, handle)
        self.promoted = True
        return ENTERED

    def _read(self, where: int, handle: int, offset: int, size: int) -> int:
        if where == _FROM_STORE:
            return self.store.read_into(handle, offset, self._id, 0, size)
        return self.store.part_read_into(where, CONTENT_HEADER_SIZE + offset, self._id, 0, size)

    def _missing(self, group: int, where: int, size: int, handle: int = 0) -> int:
        """How many dependencies are not in the log; E_PEER when the body is not well-formed.

        The default client's body: count byte, that many ids, payload.
        """
        if size == 0:
            return 0
        if where == _FROM_BUFFER:
            count = self._body[self._body_at]
        elif self._read(where, handle, 0, 1) == 1:
            count = self._id[0]
        else:
            return E_PEER
        if count > DEPENDENCIES_MAX or 1 + count * ID_SIZE > size:
            return E_PEER
        missing = 0
        for row in range(count):
            offset = 1 + row * ID_SIZE
            if where == _FROM_BUFFER:
                met = self._met(group, self._body, self._body_at + offset)
            elif self._read(where, handle, offset, ID_SIZE) == ID_SIZE:
                met = self._met(group, self._id, 0)
            else:
                return E_PEER
            if not met:
                missing += 1
                if where == _FROM_BUFFER:
                    copy(self.missing_id, 0, self._body, self._body_at + offset, ID_SIZE)
                else:
                    copy(self.missing_id, 0, self._id, 0, ID_SIZE)
        return missing

    def _met(self, group: int, id: "bytes | bytearray | memoryview", at: int) -> bool:
        slot = self.slots.find(id, at)
        if slot >= 0:
            return self.slots.groups[slot] == group and not self.slots.flags[slot] & PENDING
        handle = self.store.find(id, at)
        if handle <= 0 or self.store.load(handle) != OK:
            return False
        if self.store.group != self.members.group_numbers[group]:
            return False
        return self.store.state == STATE_DELIVERED or self.store.state == STATE_DELETED

    def want_parents(self, slot: int, peer: int) -> int:
        """Ask the peer for the missing parents of the pending message in `slot`; how many."""
        handle = self.slots.handle(slot)
        if self._read(_FROM_STORE, handle, 0, 1) != 1:
            return 0
        wanted = 0
        for row in range(self._id[0]):
            if self._read(_FROM_STORE, handle, 1 + row * ID_SIZE, ID_SIZE) != ID_SIZE:
                break
            if self.slots.find(self._id, 0) < 0 and not self._met(
                self.slots.groups[slot], self._id, 0
            ):
                self.offers.add(self._id, 0, peer, WANTED)
                wanted += 1
        return wanted

    def promote(self) -> int:
        """Put one pending message whose parents have arrived into the log; its slot, or -1.

        Call until it returns -1: each call is one pass over the slots.
        """
        if not self.promoted:
            return -1
        if self._left_out:
            self.recover()
        slots = self.slots
        for step in range(slots.count):
            slot = (slots.oldest + step) % slots.count
            if not slots.flags[slot] & PENDING:
                continue
            old = slots.handle(slot)
            if self._missing(slots.groups[slot], _FROM_STORE, slots.size(slot), old):
                continue
            handle = self.store.promote(old)
            if handle < 0:
                break
            slots.flags[slot] = USED
            slots.set_handle(slot, handle)
            self.window.entered(slot, handle)
            return slot
        self.promoted = False
        return -1

    def recover(self) -> None:
        """Give pending messages of the store their slots back after a reboot."""
        store = self.store
        self._left_out = False
        handle = store.next_pending(0)
        while handle:
            if store.load(handle) == OK:
                group = self.members.group_slot(store.group)
                if group >= 0 and self.slots.find(store.id, 0) < 0:
                    self._admit_again(group, handle)
            handle = store.next_pending(handle)
        self.promoted = True

    def _admit_again(self, group: int, handle: int) -> None:
        store = self.store
        members = self.members
        slot = self.window.admit(store.id, 0, handle, group, store.source, store.size, True)
        if slot < 0:
            self._left_out = True  # the table is smaller than before the reboot
            return
        peer = members.peer_slot(store.source)
        for row in range(members.peers):
            if peer < 0 and members.visibility(group, row):
                peer = row  # its source is gone: ask somebody else
        if peer >= 0:
            self.want_parents(slot, peer)

    def pending_count(self) -> int:
        """Messages that wait for a parent."""
        count = 0
        for slot in range(self.slots.count):
            if self.slots.flags[slot] & PENDING:
                count += 1
        return count
