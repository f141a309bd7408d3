"""The message graph: a message enters the log after everything that it depends on (BSP v1 5).

A message whose dependencies are all in the log is put there at once. Any other waits as pending;
its missing parents are asked for by id, from its sender first. Everything here is iterative: a
chain costs passes over the slots, never stack.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, E_PEER, OK
from drupelet.limits import CONTENT_HEADER_SIZE, DEPENDENCIES_MAX, ID_SIZE
from drupelet.members import FAMILY_MVDS, HEAD_PARENTS
from drupelet.memory import copy
from drupelet.slots import PENDING, USED, WANTED
from drupelet.store import STATE_PENDING

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
        self._id = bytearray(ID_SIZE)
        self._body: "bytes | bytearray | memoryview" = self._id
        self._stamp: "bytes | bytearray" = self._id
        self._body_at = self._stamp_at = 0
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
        self._stamp = timestamp
        self._stamp_at = ts_at
        return self._take(group, source, id, _FROM_BUFFER, size)

    def take_part(self, group: int, source: int, id: bytearray, part: int) -> int:
        """Take in a message whose content is in a part file; as `take_body`."""
        size = self.store.part_size(part) - CONTENT_HEADER_SIZE
        return self._take(group, source, id, part, size)

    def _take(self, group: int, source: int, id: bytearray, where: int, size: int) -> int:
        missing = self._missing(group, where, 0, size)
        if missing < 0:
            self.invalid += 1
            return E_PEER
        pending = missing > 0
        number = self.members.group_numbers[group]
        handle = E_CAPACITY
        if pending and self.window.room(True) < 0:
            pass
        elif where == _FROM_BUFFER:
            handle = self.store.put(
                number, source, id, 0, self._stamp, self._stamp_at, self._body, self._body_at,
                size, pending,
            )  # fmt: skip
        else:
            handle = self.store.put_part(where, number, source, id, 0, pending)
        if handle < 0:
            self.refused += 1
            return TOO_EARLY if pending else REFUSED
        self.handle = handle
        self.slot = self.window.admit(id, 0, handle, group, source, size, pending)
        if pending:
            assert self.slot >= 0  # there was room before the message was stored
            return WAITING
        self.window.entered(self.slot, handle)
        self.promoted = True
        return ENTERED

    def _read(self, where: int, handle: int, offset: int, size: int) -> bool:
        """Read `size` body bytes into `_id`."""
        if where == _FROM_BUFFER:
            copy(self._id, 0, self._body, self._body_at + offset, size)
            return True
        if where == _FROM_STORE:
            return self.store.read_into(handle, offset, self._id, 0, size) == size
        offset += CONTENT_HEADER_SIZE
        return self.store.part_read_into(where, offset, self._id, 0, size) == size

    def _missing(self, group: int, where: int, handle: int, size: int) -> int:
        """How many dependencies are not in the log; E_PEER when the body is not well-formed.

        The default client's body: count byte, that many ids, payload.
        """
        if size == 0:
            return 0
        if not self._read(where, handle, 0, 1):
            return E_PEER
        count = self._id[0]
        if self.members.families[group] == FAMILY_MVDS:
            count &= HEAD_PARENTS
        if count > DEPENDENCIES_MAX or 1 + count * ID_SIZE > size:
            return E_PEER
        missing = 0
        for row in range(count):
            if not self._read(where, handle, 1 + row * ID_SIZE, ID_SIZE):
                return E_PEER
            if not self._met(group):
                missing += 1
                copy(self.missing_id, 0, self._id, 0, ID_SIZE)
        return missing

    def _met(self, group: int) -> bool:
        """True when the dependency in `_id` is in the log of this group."""
        id = self._id
        slot = self.slots.find(id, 0)
        if slot >= 0:
            return self.slots.groups[slot] == group and not self.slots.flags[slot] & PENDING
        handle = self.store.find(id, 0)
        if handle <= 0 or self.store.load(handle) != OK:
            return False
        if self.store.group != self.members.group_numbers[group]:
            return False
        return self.store.state != STATE_PENDING

    def want_parents(self, slot: int, peer: int, epoch: int) -> None:
        """Ask the peer for the missing parents of the pending message in `slot`."""
        handle = self.slots.handles[slot]
        for row in range(self.slots.size(slot) // ID_SIZE):
            if not self._read(_FROM_STORE, handle, 0, 1) or row >= self._id[0] & HEAD_PARENTS:
                break
            if not self._read(_FROM_STORE, handle, 1 + row * ID_SIZE, ID_SIZE):
                break
            if self.slots.find(self._id, 0) < 0 and not self._met(self.slots.groups[slot]):
                self.offers.add(self._id, 0, peer, WANTED, epoch)

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
            old = slots.handles[slot]
            if self._missing(slots.groups[slot], _FROM_STORE, old, slots.size(slot)):
                continue
            handle = self.store.promote(old)
            if handle < 0:
                break
            slots.flags[slot] = USED
            slots.handles[slot] = handle
            self.window.entered(slot, handle)
            return slot
        self.promoted = self._left_out  # tried again in the next epoch
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
        waits = self._missing(group, _FROM_STORE, handle, store.size) != 0
        store.load(handle)
        slot = self.window.admit(store.id, 0, handle, group, store.source, store.size, waits)
        if slot < 0:
            self._left_out = True  # the table is smaller than before the reboot
            return
        self.slots.flags[slot] = USED | PENDING
        self.offers.drop_id(store.id, 0)  # a child may have asked for it
        peer = members.peer_slot(store.source)
        for row in range(members.peers):
            if peer < 0 and members.visibility(group, row):
                peer = row  # its source is gone: ask somebody else
        if peer >= 0:
            self.want_parents(slot, peer, 0)

    def pending_count(self) -> int:
        """Messages that wait for a parent."""
        count = 0
        for slot in range(self.slots.count):
            if self.slots.flags[slot] & PENDING:
                count += 1
        return count
