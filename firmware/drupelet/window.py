"""The part of the log that is on its way: which messages have a slot, and for which peer.

The log on flash is the queue; the slots are a window onto it. For each peer a cursor walks the
log: every message up to the cursor is either held by the peer or QUEUED in a slot, and everything
after it waits on flash. So a pool of one slot completes, and a full pool loses nothing.
A message leaves its slot when no peer needs it there; its id stays known to the store.
"""

from drupelet._compat import const
from drupelet.errors import OK
from drupelet.flashread import STATE_DELIVERED
from drupelet.limits import RESERVED_SLOTS
from drupelet.members import FAMILY_MVDS, GROUP_TELEMETRY, HEAD_EPHEMERAL, SHARED
from drupelet.memory import get_u16, get_u32, put_u16, put_u32
from drupelet.slots import EPHEMERAL, PENDING, STICK_HOLDS, STICK_LOST, STICK_OUT, STICK_ROW, USED
from drupelet.states import ACK, ACKING, BUNDLED, HOLD, QUEUED, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.members import Members
    from drupelet.ports import StorePort
    from drupelet.slots import MessageSlots

_BUSY = ACK | ACKING | REQUEST
# What is saved before sleep (docs/SPEC.md 5): version, boot, consumed handle, peer rows, messages.
_VERSION = const(2)
_HEADER_SIZE = const(8)
_LOST = const(0x80)  # of the first byte of `low`: the peer may lack even what came from it
_PEER_SIZE = const(14)
_head = bytearray(1)  # the first byte of the body that is looked at


class Window:
    """Slots, log cursors and what of them survives a reboot."""

    def __init__(self, store: "StorePort", members: "Members", slots: "MessageSlots") -> None:
        self.store = store
        self.members = members
        self.slots = slots
        peers_max = len(members.peer_numbers)
        self.cursors = [0] * peers_max  # the handle up to which the log is queued for the peer
        self.queued = [0] * peers_max  # messages in slots that the peer is not known to hold
        self.changes = bytearray(peers_max)  # counts what was queued; the peer's links compare
        self.sticks = [0] * (STICK_ROW * peers_max)
        self.newest = 0
        self.consumed = 0
        self.boot = 0
        self.dirty = False

    def show_all(self, peer: int) -> None:
        """Walk the whole log again for a peer that shares more than it did."""
        self.store.settled_handle = 0  # until the next `pack`, nothing goes
        for row in range(len(self.store.settled)):
            self.store.settled[row] = 0
        self.dirty = self.dirty or self.boot != 0
        self.cursors[peer] = 0
        self._changed(peer)

    def show(self, handle: int) -> None:
        """A message in the log is shared from now on: it goes to all who share its group."""
        store = self.store
        for peer in range(self.members.peers):
            if not self.members.peer_numbers[peer] or handle > self.cursors[peer]:
                continue  # the cursor comes to it
            slot = self.fetch(handle, peer) if self.queued[peer] < self._share() else -1
            if slot >= 0:
                self._queue(slot, peer)
            elif slot == -1:
                # No room: the cursor goes back to what is before it in the log.
                before = 0
                after = store.next(0)
                while after and after < handle:
                    before = after
                    after = store.next(after)
                self.cursors[peer] = before
                self._changed(peer)

    def drop_peer(self, peer: int) -> None:
        """Forget what is known about a peer; its row is free for another one."""
        for slot in range(self.slots.count):
            self.set_state(slot, peer, 0)
        self.cursors[peer] = 0
        for row in range(STICK_ROW):
            self.sticks[peer * STICK_ROW + row] = 0
        self.dirty = True

    def hide(self, group: int, peer: int, kept: int) -> None:
        """A peer sees less of a group: of its states there only the flags `kept` stay."""
        slots = self.slots
        for slot in range(slots.count):
            if slots.groups[slot] == group:
                self.set_state(slot, peer, slots.states[peer * slots.count + slot] & kept)

    def _changed(self, peer: int) -> None:
        self.changes[peer] = (self.changes[peer] + 1) & 0xFF

    def waits(self, peer: int) -> bool:
        """True while the log goes on for the peer beyond its slots, and only room is missing."""
        return self.cursors[peer] != self.newest and self.queued[peer] < self._share()

    def set_state(self, slot: int, peer: int, state: int) -> None:
        """Store a state byte and keep the peer's queue count and the group's clean-up right."""
        cell = peer * self.slots.count + slot
        before = self.slots.states[cell]
        if before == state:
            return
        self.slots.states[cell] = state
        was = before & (QUEUED | HOLD) == QUEUED
        now = state & (QUEUED | HOLD) == QUEUED
        if was != now:
            self.queued[peer] += 1 if now else -1
        if (before ^ state) & HOLD:
            self.dirty = True

    def reset_slot(self, slot: int) -> None:
        """Free a slot, whatever was queued in it."""
        for peer in range(self.members.peers):
            self.set_state(slot, peer, 0)
        self.slots.free(slot)

    def settled(self, slot: int) -> bool:
        """True when no peer needs the message in its slot any more."""
        if self.slots.flags[slot] & PENDING:
            return False
        for peer in range(self.members.peers):
            state = self.slots.states[peer * self.slots.count + slot]
            if state & _BUSY or state & (QUEUED | HOLD) == QUEUED:
                return False
        return True

    def room(self, pending: bool) -> int:
        """A free slot, if need be that of the oldest settled message; -1 when there is none.

        The last RESERVED_SLOTS are refused to messages whose dependencies are missing.
        """
        slots = self.slots
        wanted = RESERVED_SLOTS if pending else 0
        found = -1
        for step in range(slots.count):
            slot = (slots.oldest + step) % slots.count
            if not slots.flags[slot] or self.settled(slot):
                if not wanted:
                    found = slot
                    break
                wanted -= 1
        if found >= 0 and slots.flags[found]:
            self.reset_slot(found)
        return found

    def admit(
        self, id: "bytes | bytearray", at: int, handle: int, group: int, source: int,
        pending: bool,
    ) -> int:  # fmt: skip
        """Give a message a slot; -1 when there is none. `group`, `source`: row and peer number."""
        slot = self.room(pending)
        if slot < 0:
            return -1
        self.slots.take(slot, id, at, handle)
        self.slots.groups[slot] = group
        if pending:
            self.slots.flags[slot] = USED | PENDING
        peer = self.members.peer_slot(source)
        if peer >= 0:
            self.set_state(slot, peer, HOLD)
        return slot

    def entered(self, slot: int, handle: int) -> None:
        """A message entered the log: peers that were up to date move on with it."""
        before = self.newest
        self.newest = handle
        if slot < 0:
            return
        for peer in range(self.members.peers):
            if self.cursors[peer] == before and self.queued[peer] < self._share():
                self._queue(slot, peer)
                self.cursors[peer] = handle

    def _queue(self, slot: int, peer: int) -> None:
        if self.members.visibility(self.slots.groups[slot], peer) == SHARED:
            state = self.slots.states[peer * self.slots.count + slot]
            if self.slots.handles[slot] <= self.sticks[peer * STICK_ROW + STICK_HOLDS]:
                state |= BUNDLED
            self.set_state(slot, peer, state | QUEUED)
            self._changed(peer)

    def _share(self) -> int:
        """Slots that one peer's queue may fill: one that never comes by starves no other."""
        return self.slots.count // self.members.peers or 1

    def refill(self, peer: int) -> bool:
        """Walk the peer's cursor on while there is room; True when something was queued."""
        moved = False
        while self.cursors[peer] != self.newest and self.queued[peer] < self._share():
            handle = self.store.next(self.cursors[peer])
            if not handle:
                self.cursors[peer] = self.newest
                break
            slot = self.fetch(handle, peer)
            if slot == -1:
                break
            if slot >= 0:
                self._queue(slot, peer)
                moved = True
            self.cursors[peer] = handle
        return moved

    def fetch(self, handle: int, peer: int) -> int:
        """The slot of a log message for this peer; -1: no room, -2: it is not for this peer."""
        store = self.store
        if store.load(handle) != OK or store.state != STATE_DELIVERED:
            return -2
        group = self.members.group_slot(store.group)
        if group < 0 or self.members.visibility(group, peer) != SHARED:
            return -2
        slot = self.slots.find(store.id, 0)
        if slot >= 0:
            return slot
        came = self.members.peer_slot(store.source) == peer
        if came and handle > self.sticks[peer * STICK_ROW + STICK_LOST]:
            return -2
        slot = self.admit(store.id, 0, handle, group, store.source, False)
        if came and slot >= 0:
            self.set_state(slot, peer, 0)  # it does not count as held by who gave it
        headed = slot >= 0 and self.members.families[group] == FAMILY_MVDS
        if headed and store.read_into(handle, 0, _head, 0, 1) == 1:
            self.slots.flags[slot] |= EPHEMERAL if _head[0] & HEAD_EPHEMERAL else 0
        return slot

    def clean(self, slot: int) -> bool:
        """Delete a black box, or what is sent once, when nobody needs it any more."""
        group = self.slots.groups[slot]
        passing = self.members.group_flags[group] & GROUP_TELEMETRY
        passing |= self.slots.flags[slot] & EPHEMERAL
        if not passing or not self.settled(slot):
            return False
        handle = self.slots.handles[slot]
        sharers = 0
        for peer in range(self.members.peers):
            if self.members.visibility(group, peer) == SHARED:
                sharers += 1
                if not self.slots.states[peer * self.slots.count + slot] & HOLD:
                    return False
        if not sharers or handle > self.consumed or self.store.delete(handle, _head, 0) != OK:
            return False
        self.reset_slot(slot)
        return True

    def save(self) -> int:
        """Write what a reboot must not forget, if it changed: one flash program."""
        if not self.dirty:
            return OK
        code = self.store.save(self.store.saved, self.pack(len(self.store.saved)))
        if code == OK:
            self.dirty = False
        return code

    def pack(self, limit: int) -> int:
        """Put the wake state (docs/SPEC.md 5.1) into `store.saved`; its size, at most `limit`."""
        members = self.members
        state = self.store.saved  # read at boot only
        state[0] = _VERSION
        state[1] = members.peers
        put_u16(state, 2, self.boot)
        put_u32(state, 4, self.consumed)
        at = 8
        lowest = self.consumed + 1
        self._settle_groups()
        for peer in range(members.peers):
            low = self._low(peer)
            lowest = min(low, lowest)
            state[at] = members.peer_numbers[peer]
            put_u32(state, at + 1, low)
            if self.sticks[peer * STICK_ROW + STICK_LOST] >= low:
                state[at + 1] |= _LOST
            put_u32(state, at + 5, self.sticks[peer * STICK_ROW])
            put_u32(state, at + 9, self.sticks[peer * STICK_ROW + STICK_OUT])
            state[at + 13] = members.shares(peer)
            at += _PEER_SIZE
        self.store.settled_handle = lowest
        return self._save_holders(state, at, lowest, limit)

    def _settle_groups(self) -> None:
        """Tell the store for each group what everybody has by cursor; `_low` takes back slots."""
        members = self.members
        settled = self.store.settled
        for row in range(len(settled)):
            settled[row] = 0
        for group in range(members.groups):
            number = members.group_numbers[group]
            if number:
                low = self.consumed + 1
                for peer in range(members.peers):
                    if members.visibility(group, peer) == SHARED:
                        low = min(low, self.cursors[peer] + 1)
                before = settled[number & 7]
                settled[number & 7] = min(before, low) if before else low

    def _low(self, peer: int) -> int:
        """The handle from which on the peer may miss something."""
        low = (self.cursors[peer] if self.members.shares(peer) else self.newest) + 1
        slots = self.slots
        settled = self.store.settled
        for slot in range(slots.count):
            if slots.states[peer * slots.count + slot] & (QUEUED | HOLD) == QUEUED:
                handle = slots.handles[slot]
                low = min(low, handle)
                row = self.members.group_numbers[slots.groups[slot]] & 7
                settled[row] = min(settled[row], handle)
        return low

    def _save_holders(self, state: bytearray, at: int, lowest: int, limit: int) -> int:
        slots = self.slots
        mask_size = (self.members.peers + 7) // 8
        for slot in range(slots.count):
            if slots.flags[slot] != USED or slots.handles[slot] < lowest:
                continue
            if at + 4 + mask_size > limit:
                break  # what does not fit is offered again: bytes, never a message
            put_u32(state, at, slots.handles[slot])
            for byte in range(mask_size):
                state[at + 4 + byte] = 0
            for peer in range(self.members.peers):
                if slots.states[peer * slots.count + slot] & HOLD:
                    state[at + 4 + peer // 8] |= 1 << peer % 8
            at += 4 + mask_size
        return at

    def restore(self) -> None:
        """Take up the saved state after `store.open()`; call once groups and peers are known."""
        saved = self.store.saved
        size = self.store.saved_size
        peers = 0
        at = _HEADER_SIZE
        if size >= _HEADER_SIZE and saved[0] == _VERSION:
            peers = saved[1]
            self.boot = get_u16(saved, 2)
            self.consumed = get_u32(saved, 4)
            at += peers * _PEER_SIZE
            self._restore_holders(saved, peers, at, size)
        for row in range(peers):
            at = _HEADER_SIZE + row * _PEER_SIZE
            peer = self.members.peer_slot(saved[at])
            if peer >= 0:
                self.sticks[peer * STICK_ROW] = get_u32(saved, at + 5)
                self.sticks[peer * STICK_ROW + STICK_OUT] = get_u32(saved, at + 9)
                lost = saved[at + 1] & _LOST
                saved[at + 1] -= lost
                if not self.members.shares(peer) & ~saved[at + 13]:
                    self.cursors[peer] = get_u32(saved, at + 1)
                self.sticks[peer * STICK_ROW + STICK_LOST] = -1 if lost else 0
        self._walk()
        for peer in range(self.members.peers):
            if self.sticks[peer * STICK_ROW + STICK_LOST]:
                self.sticks[peer * STICK_ROW + STICK_LOST] = self.newest

    def _walk(self) -> None:
        """Find the newest message, and for each peer the last one before what it may miss.

        Cursors hold where that begins. It may be no handle by now, so the log is walked: as far
        as possible from `consumed` on, which is one.
        """
        lows = self.cursors
        self.cursors = [0] * len(lows)
        handle = self.consumed
        for peer in range(self.members.peers):
            if lows[peer] <= handle:
                handle = 0
        while True:
            self.newest = handle
            for peer in range(self.members.peers):
                if handle < lows[peer]:
                    self.cursors[peer] = handle
            handle = self.store.next(handle)
            if not handle:
                break

    def _restore_holders(self, saved: bytearray, peers: int, at: int, size: int) -> None:
        store = self.store
        mask_size = (peers + 7) // 8
        while at + 4 + mask_size <= size:
            handle = get_u32(saved, at)
            if store.load(handle) == OK and store.state == STATE_DELIVERED:
                group = self.members.group_slot(store.group)
                if group >= 0 and self.slots.find(store.id, 0) < 0:
                    self._restore_holder(saved, peers, at + 4, group, handle)
            at += 4 + mask_size

    def _restore_holder(
        self, saved: bytearray, peers: int, at: int, group: int, handle: int
    ) -> None:
        store = self.store
        slot = self.admit(store.id, 0, handle, group, store.source, False)
        for row in range(peers if slot >= 0 else 0):
            peer = self.members.peer_slot(saved[_HEADER_SIZE + row * _PEER_SIZE])
            if peer >= 0 and saved[at + row // 8] & 1 << row % 8:
                self.set_state(slot, peer, HOLD)
