"""The part of the log that is on its way: which messages have a slot, and for which peer.

The log on flash is the queue; the slots are a window onto it. For each peer a cursor walks the
log: every message up to the cursor is either held by the peer or QUEUED in a slot, and everything
after it waits on flash. So a pool of one slot completes, and a full pool loses nothing.
A message leaves its slot when no peer needs it there; its id stays known to the store.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import GONE_HANDLE, ID_SIZE, OVERSIZE_ASKS_MAX, RESERVED_SLOTS
from drupelet.base.memory import fill, put_u16, put_u32
from drupelet.engine.members import FAMILY_MVDS, GROUP_TELEMETRY, HEAD_EPHEMERAL, SHARED
from drupelet.engine.slots import (
    EPHEMERAL,
    OWED,
    PEER_ROW,
    PENDING,
    STICK_HOLDS,
    STICK_LOST,
    STICK_OUT,
    STICK_TAKEN,
    STICK_VOID,
)
from drupelet.engine.states import ACK, ACKING, BUNDLED, HOLD, QUEUED, REQUEST
from drupelet.store.reader import STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.members import Members
    from drupelet.engine.slots import MessageSlots, OfferPool
    from drupelet.store.ports import StorePort

_ROW_QUEUED = const(4)
_ROW_CHANGES = const(7)
_BUSY = ACK | ACKING | REQUEST
# What is saved before sleep (docs/SPEC.md 5): version, boot, consumed handle, peer rows, messages.
STATE_FORM = const(3)
STATE_HEAD_SIZE = const(8)
STATE_LOST = const(0x80)  # of the first byte of `low`: the peer may lack even what came from it
STATE_PEER_SIZE = const(22)
# What a message row says of its peers, first what counts most: for whom it is the first one that
# was passed over (both flags), who is owed an ACK, who asked for the message, who holds it. The
# flags ACK and REQUEST stand above the handle.
_ROWS = bytes((HOLD | ACK, REQUEST, HOLD))
STATE_SHIFT = const(5)
_head = bytearray(1)  # the first byte of the body that is looked at


class Window:
    """Slots, log cursors and what of them survives a reboot."""

    # Of a node with groups of MVDS: by peer the first message that was passed over since it is too
    # long for a frame (its handle; 0: none; below 0, ~ of it: it is held by now); behind them
    # whether the peer reads segments (-1: yes; else see `oversize`).
    oversize: "list[int]" = []

    def __init__(
        self, store: "StorePort", members: "Members", slots: "MessageSlots", offers: "OfferPool"
    ) -> None:
        self.store = store
        self.members = members
        self.slots = slots
        self.offers = offers
        peers_max = members.peers_max
        self.cursors = [0] * peers_max  # the handle up to which the log is queued for the peer
        self.rows = [0] * (PEER_ROW * peers_max)
        self.newest = 0
        self.consumed = 0
        self.boot = 0
        self.dirty = False

    def show_all(self, peer: int) -> None:
        """Walk the whole log again for a peer that shares more than it did."""
        self.store.unsettle()  # until the next `pack`, nothing goes
        self.dirty = self.dirty or self.boot != 0
        self.cursors[peer] = 0
        self.void_bundles(peer)
        self.changed(peer)

    def void_bundles(self, peer: int) -> None:
        """The peer lacks what our bundles went without: that it took them says no more."""
        row = peer * PEER_ROW
        self.rows[row + STICK_HOLDS] = 0
        self.rows[row + STICK_VOID] = self.rows[row + STICK_OUT]

    def changed(self, peer: int) -> None:
        """The peer's links have to look again."""
        self.rows[peer * PEER_ROW + _ROW_CHANGES] |= 1

    def shows_segments(self, peer: int) -> None:
        """The peer reads segments: what is too long for a frame may go to it in pieces."""
        row = len(self.oversize) // 2 + peer
        if self.oversize and self.oversize[row] >= 0:
            self.oversize[row] = -1
            self.changed(peer)

    def queued(self, peer: int) -> int:
        """Messages in slots that the peer is not known to hold."""
        return self.rows[peer * PEER_ROW + _ROW_QUEUED]

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
            self.rows[peer * PEER_ROW + _ROW_QUEUED] += 1 if now else -1
        if (before ^ state) & (HOLD | ACK):
            self.dirty = True
            if before & ~state & HOLD:
                self.slots.send_counts[cell] = 0  # as if it had never been sent
            first = self.oversize[peer] if self.oversize and state & HOLD else 0
            if first > 0 and first == self.slots.handles[slot]:
                self.oversize[peer] = ~first  # the next one that was passed over may go
                self.changed(peer)

    def reset_slot(self, slot: int) -> None:
        """Free a slot, whatever was queued in it."""
        for peer in range(self.members.peers):
            self.set_state(slot, peer, 0)
        self.slots.free(slot)

    def settled(self, slot: int, hard: int) -> bool:
        """True when no peer needs the message in its slot any more; `hard`: or may ask again."""
        if self.slots.flags[slot] & PENDING:
            return False
        for peer in range(self.members.peers):
            cell = peer * self.slots.count + slot
            state = self.slots.states[cell]
            if hard and self.slots.send_counts[cell]:
                state &= ~REQUEST
            if state & _BUSY or state & (QUEUED | HOLD) == QUEUED:
                return False
        return True

    def room(self, pending: bool) -> int:
        """A free slot, if need be that of the oldest settled message; -1 when there is none.

        The last RESERVED_SLOTS are refused to messages whose dependencies are missing. Hard
        pressed, one that was asked for and sent gives way: its peer may wait for its parent.
        """
        slots = self.slots
        wanted = RESERVED_SLOTS if pending else 0
        for step in range(slots.count if pending else 2 * slots.count):
            slot = (slots.oldest + step) % slots.count
            if not slots.flags[slot] or self.settled(slot, step // slots.count):
                if not wanted:
                    if slots.flags[slot]:
                        self.reset_slot(slot)
                    return slot
                wanted -= 1
        return -1

    def admit(
        self, id: "bytes | bytearray", at: int, handle: int, group: int, source: int,
        pending: bool,
    ) -> int:  # fmt: skip
        """Give a message a slot; -1 when there is none. `group`, `source`: row and peer number."""
        slot = self.room(pending)
        if slot < 0:
            return -1
        self.slots.take(slot, id, at, handle, group)
        if pending:
            self.slots.flags[slot] |= PENDING
        peer = self.members.peer_slot(source)
        if peer >= 0 and handle > self.rows[peer * PEER_ROW + STICK_LOST]:
            self.set_state(slot, peer, HOLD)
        return slot

    def entered(self, slot: int, handle: int) -> None:
        """A message entered the log: peers that were up to date move on with it."""
        before = self.newest
        self.newest = handle
        for peer in range(self.members.peers if slot >= 0 else 0):
            if self.cursors[peer] == before and self._has_share(peer):
                self._queue(slot, peer)
                self.cursors[peer] = handle

    def _queue(self, slot: int, peer: int) -> None:
        if self.members.visibility(self.slots.group(slot), peer) == SHARED:
            state = self.slots.states[peer * self.slots.count + slot]
            if self.slots.handles[slot] <= self.rows[peer * PEER_ROW + STICK_HOLDS]:
                state |= BUNDLED
            self.set_state(slot, peer, state | QUEUED)
            self.changed(peer)

    def _has_share(self, peer: int) -> bool:
        """True while it may fill more slots; its last is for what was passed over and may go."""
        rows = self.oversize
        goes = rows and rows[peer] and rows[len(rows) // 2 + peer] < 0
        return self.share_left(peer) > (1 if goes else 0)

    def share_left(self, peer: int) -> int:
        """How many more slots its queue may fill: a peer that never comes starves no other."""
        return (self.slots.count // self.members.peers or 1) - self.queued(peer)

    def refill(self, peer: int) -> bool:
        """Walk the peer's cursor on while there is room; True when something was queued."""
        moved = False
        while self.cursors[peer] != self.newest and self._has_share(peer):
            handle = self.store.next(self.cursors[peer]) or self.newest
            slot = self.take_up(handle, peer)
            if slot == -1:
                break
            moved = moved or slot >= 0
            self.cursors[peer] = handle
        return moved

    def take_up(self, handle: int, peer: int) -> int:
        """Queue a log message for a peer; its slot, -1: no room, -2: it is not for this peer."""
        slot = self.fetch(handle, peer) if self._has_share(peer) else -1
        if slot >= 0:
            self._queue(slot, peer)
        return slot

    def gave(self, peer: int, handle: int) -> bool:
        """True if the message that was loaded came from a peer, which has not lost it since."""
        came = self.members.peer_slot(self.store.source) == peer
        return came and handle > self.rows[peer * PEER_ROW + STICK_LOST]

    def look(self, handle: int) -> int:
        """Load a message of the log that is delivered; its group's row, or -1."""
        if self.store.load(handle) != OK or self.store.state != STATE_DELIVERED:
            return -1
        return self.members.group_slot(self.store.group)

    def fetch(self, handle: int, peer: int, asked: bool = False) -> int:
        """The slot of a log message for this peer; -1: no room, -2: it is not for this peer.

        Who asks for what came from it has lost it.
        """
        store = self.store
        group = self.look(handle)
        if group < 0 or self.members.visibility(group, peer) != SHARED:
            return -2
        slot = self.slots.find(store.id, 0)
        if slot >= 0:
            return slot
        if not asked and self.gave(peer, handle):
            return -2
        slot = self.admit(store.id, 0, handle, group, store.source, False)
        headed = slot >= 0 and self.members.family(group) == FAMILY_MVDS
        if headed and store.read_into(handle, 0, _head, 0, 1) == 1:
            self.slots.flags[slot] |= EPHEMERAL if _head[0] & HEAD_EPHEMERAL else 0
        return slot

    def clean(self, slot: int) -> bool:
        """Delete a black box, or what is sent once, when nobody needs it any more."""
        group = self.slots.group(slot)
        passing = self.members.flags(group) & GROUP_TELEMETRY
        passing |= self.slots.flags[slot] & EPHEMERAL
        if not passing or not self.settled(slot, 0):
            return False
        handle = self.slots.handles[slot]
        sharers = 0
        for peer in range(self.members.peers):
            if self.members.visibility(group, peer) == SHARED:
                sharers += 1
                if not self.slots.states[peer * self.slots.count + slot] & HOLD:
                    return False
        if not sharers or handle > self.consumed or self.store.entomb(handle, _head, 0) != OK:
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
        state = self.store.saved  # read at boot only
        state[0] = STATE_FORM
        state[1] = self.members.peers
        put_u16(state, 2, self.boot)
        put_u32(state, 4, self.consumed)
        at = 8
        lowest = self.consumed + 1
        self._settle_groups()
        for peer in range(self.members.peers):
            kept = self._keep_passed_over(peer)
            low = self._low(peer, kept)
            lowest = min(low, lowest, kept or low)
            state[at] = self.members.peer_numbers[peer]
            put_u32(state, at + 1, low)
            lost = self.rows[peer * PEER_ROW + STICK_LOST]
            if lost and (lost >= low or 0 < self.store.next_pending(0) <= lost):
                state[at + 1] |= STATE_LOST
            put_u32(state, at + 5, self.rows[peer * PEER_ROW])
            put_u32(state, at + 9, self.rows[peer * PEER_ROW + STICK_OUT])
            state[at + 13] = self.members.shares(peer)
            put_u32(state, at + 14, self.rows[peer * PEER_ROW + STICK_TAKEN])
            put_u32(state, at + 18, self.rows[peer * PEER_ROW + STICK_VOID])
            at += STATE_PEER_SIZE
        self.store.settled_handle = lowest
        return self._save_rows(state, at, lowest, limit)

    def _settle_groups(self) -> None:
        """Tell the store for each group what everybody has by cursor; `_low` takes back slots."""
        members = self.members
        settled = self.store.settled
        for row in range(len(settled)):
            settled[row] = 0
        for group in range(members.groups):
            number = members.group_number(group)
            if number:
                low = self.consumed + 1
                for peer in range(members.peers):
                    if members.visibility(group, peer) == SHARED:
                        low = min(low, self.cursors[peer] + 1)
                before = settled[number & 7]
                settled[number & 7] = min(before, low) if before else low

    def _low(self, peer: int, kept: int) -> int:
        """The handle from which on the peer may miss something, but for what was passed over."""
        low = (self.cursors[peer] if self.members.shares(peer) else self.newest) + 1
        slots = self.slots
        settled = self.store.settled
        for slot in range(slots.count):
            handle = slots.handles[slot]
            state = slots.states[peer * slots.count + slot]
            if state & (QUEUED | HOLD) == QUEUED and handle != kept:
                low = min(low, handle)
                row = self.members.group_number(slots.group(slot)) & 7
                settled[row] = min(settled[row], handle)
        return low

    def _keep_passed_over(self, peer: int) -> int:
        """Keep the first message that was passed over and that the peer may yet read; 0: none."""
        rows = self.oversize
        # Who was asked so often and never showed that it reads segments never will.
        if not rows or rows[len(rows) // 2 + peer] >= OVERSIZE_ASKS_MAX << 16:
            return 0
        handle = rows[peer] if rows[peer] >= 0 else ~rows[peer]
        for row in range(len(self.store.settled) if handle else 0):
            self.store.settled[row] = min(self.store.settled[row], handle)
        return handle

    def _save_rows(self, state: bytearray, at: int, lowest: int, limit: int) -> int:
        slots = self.slots
        offers = self.offers
        for peer in range(len(self.oversize) // 2):
            handle = self.oversize[peer]
            handle = self.store.next(~handle) if handle < 0 else handle
            if 0 < handle <= self.cursors[peer]:
                at = self._save_row(state, at, at, handle, peer, ACK | REQUEST, limit)
        for entry in range(offers.count):
            if offers.kinds[entry] == OWED:
                handle = self.store.find(offers.ids, entry * ID_SIZE)
                if 0 < handle < GONE_HANDLE:
                    at = self._save_row(state, at, at, handle, offers.peer_of(entry), ACK, limit)
        states = slots.states
        kinds = 0
        for cell_state in states:
            kinds |= cell_state
        for kind in _ROWS:
            for slot in range(slots.count if kinds & kind == kind else 0):
                handle = slots.handles[slot]
                if kind == HOLD and (slots.flags[slot] & (EPHEMERAL | PENDING) or handle < lowest):
                    continue
                row = at
                cell = slot
                for peer in range(self.members.peers):
                    sent = kind == REQUEST and slots.send_counts[cell]
                    if states[cell] & (HOLD | ACK | REQUEST) == kind and not sent:
                        at = self._save_row(state, row, at, handle, peer, kind, limit)
                    cell += slots.count
        return at

    def _save_row(
        self, state: bytearray, row: int, at: int, handle: int, peer: int, kind: int, limit: int
    ) -> int:
        """Add a peer to a message row, which begins if `at` is still there; where it ends."""
        if at == row:
            at += 4 + (self.members.peers + 7) // 8
            if at > limit:
                return row  # bytes, never a message
            fill(state, row, at - row, 0)
            put_u32(state, row, handle)
            state[row] |= (kind & (ACK | REQUEST)) << STATE_SHIFT
        state[row + 4 + peer // 8] |= 1 << peer % 8
        return at

    def lose(self, peer: int) -> None:
        """All that came from a peer so far, what is pending too, is not with it any more."""
        mark = self.newest
        while self.store.next_pending(mark):
            mark = self.store.next_pending(mark)
        self.rows[peer * PEER_ROW + STICK_LOST] = mark
