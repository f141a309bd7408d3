"""What is due to one peer, and when: ACKs, requests, messages and offers (BSP v1 4.2, 4.3).

Wire profiles call `take_*` for what they may write into a frame. Live links pace themselves by
epochs and back-off; a stick has no epochs, a visit writes everything that is not acknowledged.
"""

from drupelet._compat import const
from drupelet.backoff import counted, interval_epochs
from drupelet.blackbox import CODE_OFFERED, CODE_REQUESTED, CODE_SENT, COUNT_RETRANSMITS
from drupelet.errors import OK
from drupelet.flashread import STATE_DELIVERED
from drupelet.limits import ID_SIZE
from drupelet.members import FAMILY_MVDS, GROUP_TELEMETRY, INVISIBLE, SHARED
from drupelet.memory import copy
from drupelet.schedule import epochs_since
from drupelet.slots import EPHEMERAL, OFFERED, OWED, OWED_BUNDLING, PENDING, REQUESTED, WANTED
from drupelet.states import (
    ACK,
    ACKING,
    BUNDLED,
    BUNDLING,
    DO_ACK,
    DO_OFFER,
    DO_SEND,
    HOLD,
    NO,
    QUEUED,
    REQUEST,
    step,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core
    from drupelet.policy import Policy

# Offer, request, message and acknowledgement take three epochs; after four without gain, slow
# down.
_STALL_EPOCHS = const(4)
# A peer that was not heard for so many epochs counts as silent, before its epoch number, which
# is modulo 2^16, looks new again.
_SILENT_EPOCHS = const(1 << 14)
_NEVER = const(1 << 16)


class Dues:
    """One peer's side of the tables, seen from what goes out; `peer` is its row."""

    policy: "Policy | None" = None  # chooses the mode by what it is told; few links have one
    quiet = False  # filters tell what the peer lacks (docs/SPEC.md 14): nothing goes unasked

    def __init__(
        self, core: "Core", peer: int, family: int, interactive: bool, visits: bool
    ) -> None:
        self.core = core
        self.peer = peer
        self.family = family
        self.interactive = interactive
        self.visits = visits  # a stick: everything at once, no epochs
        self.now_ms = 0
        self.epoch = 0
        self.every = 1  # epochs of the peer's clock that make one of this link
        self.heard_epoch = 0
        self.heard = False
        self.attention = True  # something may be due
        self.firm = False  # what the frame carries must be durable before it leaves
        self.long_handle = 0  # a message that goes out in segments
        self.long_slot = -1  # its slot, if it has one
        self.logged = 0  # a stick visit: how far the log beyond the slots is written
        self.message_handle = 0  # what `next_message` found: its handle, slot and group's row
        self.message_slot = self.message_group = -1
        self.taken_entry = -1  # without a slot: its entry in the offered pool
        self.codec_wait = 0  # epochs after which the codec wants to be asked; 0: when need be
        self.taken_slot = -1  # the slot of the id that was taken last; -1: it has none
        self.telemetry = False  # the message that was just taken or given was a black box
        self.again = -1  # what was sent last: -1 to a silent peer, 0 for the first time, 1 again
        self._pace = core.slots.count  # unasked-for offers and messages per epoch
        self._paced = 0
        self._gained = False
        self._stalled_epochs = 0
        self._rewind()

    def _rewind(self) -> None:
        """Begin the scans of a payload anew, at the oldest where only few may go."""
        slots = self.core.slots
        self._oldest = slots.oldest if self._pace == slots.count else self._first_queued()
        self._ack_left = self._message_left = self._offer_left = slots.count
        self._owed_at = self._request_at = 0

    def _first_queued(self) -> int:
        """The slot of the oldest message that the peer lacks: after a reboot, slots that were
        filled anew are not in the order of the log."""
        slots = self.core.slots
        found = slots.oldest
        lowest = 0
        for slot in range(slots.count):
            handle = slots.handles[slot]
            queued = slots.states[self._cell(slot)] & (QUEUED | HOLD) == QUEUED
            if queued and (not lowest or handle < lowest):
                found = slot
                lowest = handle
        return found

    def _cell(self, slot: int) -> int:
        return self.peer * self.core.slots.count + slot

    def _number(self) -> int:
        return self.core.members.peer_numbers[self.peer]

    def sees(self, group: int) -> int:
        """What the peer sees of a group (row) here: a link carries its own family only."""
        members = self.core.members
        if members.families[group] != self.family:
            return INVISIBLE
        return members.visibility(group, self.peer)

    def sees_id(self, id: bytearray, at: int) -> bool:
        """True when a group, by its 32-byte id, exists for the peer on this link."""
        group = self.core.members.group_of(id, at)
        return group >= 0 and self.sees(group) != INVISIBLE

    def sight(self, slot: int) -> int:
        """What the peer sees of the message in `slot`: INVISIBLE, VISIBLE or SHARED."""
        return self.sees(self.core.slots.groups[slot])

    # --- what goes into a frame ---

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that we owe the peer an acknowledgement for."""
        core = self.core
        slots = core.slots
        while self._ack_left:
            slot = (self._oldest - self._ack_left) % slots.count
            self._ack_left -= 1
            state = slots.states[self._cell(slot)]
            if state & ACK:
                after = step(state, DO_ACK)
                core.window.set_state(slot, self.peer, after | ACKING if self.visits else after)
                copy(buf, at, slots.ids, slot * ID_SIZE, ID_SIZE)
                self.firm = True
                self.taken_slot = slot
                return True
        self.taken_slot = -1
        offers = core.offers
        while self._owed_at < offers.count:
            entry = self._owed_at
            self._owed_at += 1
            if offers.kinds[entry] == OWED and offers.peers[entry] == self.peer:
                self.taken_entry = entry
                copy(buf, at, offers.ids, entry * ID_SIZE, ID_SIZE)
                offers.kinds[entry] = OWED_BUNDLING if self.visits else 0
                self.firm = True
                return True
        return False

    def take_request(self, buf: bytearray, at: int) -> bool:
        """Write the next id to ask for: an offer once, a missing parent until it comes."""
        offers = self.core.offers
        while self._request_at < offers.count:
            entry = self._request_at
            self._request_at += 1
            kind = offers.kinds[entry]
            if offers.peers[entry] != self.peer:
                continue
            if kind == OFFERED:
                # MVDS keeps a REQUEST until the message comes; BSP is offered it again.
                offers.kinds[entry] = REQUESTED if self.family == FAMILY_MVDS else 0
                offers.sent(entry, self.epoch)
            elif REQUESTED <= kind <= WANTED and (self.visits or self._entry_wait(entry) <= 0):
                offers.sent(entry, self.epoch)
            else:
                continue
            at_id = entry * ID_SIZE
            self.taken_entry = entry
            copy(buf, at, offers.ids, at_id, ID_SIZE)
            self.core.box.log_id(self.now_ms, CODE_REQUESTED, self._number(), 0, offers.ids, at_id)
            return True
        return False

    def next_message(self) -> bool:
        """Look for the next message due; True with its head loaded in the store.

        `message_group` and `message_slot` tell more (-1: a stick's, from beyond the slots). It
        stays the next one until `put_message` or `too_long`.
        """
        slots = self.core.slots
        while self._message_left:
            slot = (self._oldest - self._message_left) % slots.count
            # One that goes out in pieces has been looked at.
            due = slot != self.long_slot and self.message_due(slot)
            if due and self._look(slots.handles[slot], slot):
                return True
            self._message_left -= 1
        return self.visits and self._next_logged()

    def _look(self, handle: int, slot: int) -> bool:
        core = self.core
        # The log may have dropped the body of what all had acknowledged.
        if core.store.load(handle) != OK or core.store.state != STATE_DELIVERED:
            return False
        self.message_handle = handle
        self.message_slot = slot
        self.message_group = core.members.group_slot(core.store.group)
        return self.message_group >= 0

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the stored body of the message that `next_message` found."""
        return self.core.store.read_into(self.message_handle, offset, buf, at, size) == size

    def put_message(self) -> None:
        """The message that `next_message` found is in the frame."""
        self.firm = True
        flags = self.core.members.group_flags[self.message_group]
        self.telemetry = flags & GROUP_TELEMETRY != 0
        if self.message_slot < 0:
            self.logged = self.message_handle
        else:
            self._message_left -= 1
            self.note_sent(self.message_slot)

    def too_long(self) -> None:
        """The message that `next_message` found fits no frame: it goes out in pieces."""
        if self.message_slot < 0:
            self.logged = self.message_handle
        else:
            self._message_left -= 1
        if not self.long_handle:
            self.long_handle = self.message_handle
            self.long_slot = self.message_slot

    def _next_logged(self) -> bool:
        """The same for what waits on flash beyond the slots: a stick takes the whole log."""
        store = self.core.store
        while not self.long_handle:
            handle = store.next(self.logged)
            if not handle:
                return False
            if self._wants_logged(handle) and self._look(handle, -1):
                return True
            self.logged = handle
        return False

    def _wants_logged(self, handle: int) -> bool:
        core = self.core
        store = core.store
        if store.load(handle) != OK or store.state != STATE_DELIVERED:
            return False
        group = core.members.group_slot(store.group)
        if group < 0 or self.sees(group) != SHARED:
            return False
        if core.members.peer_slot(store.source) == self.peer:
            return False
        slot = core.slots.find(store.id, 0)
        return slot < 0 or not core.slots.states[self._cell(slot)] & HOLD

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer."""
        slots = self.core.slots
        if self.quiet:
            return False
        while self.interactive and self._offer_left and self._paced < self._pace:
            slot = (self._oldest - self._offer_left) % slots.count
            self._offer_left -= 1
            cell = self._cell(slot)
            queued = slots.states[cell] & (QUEUED | HOLD | REQUEST) == QUEUED
            queued = queued and not slots.flags[slot] & EPHEMERAL
            if queued and self._cell_wait(cell) <= 0 and self.sight(slot) == SHARED:
                copy(buf, at, slots.ids, slot * ID_SIZE, ID_SIZE)
                self._sent(slot, DO_OFFER, CODE_OFFERED)
                self.firm = True  # the peer takes it that we hold what we offer
                self.taken_slot = slot
                return True
        return False

    def message_due(self, slot: int) -> bool:
        """True when the message itself is to be sent now, offered first or not."""
        slots = self.core.slots
        cell = self._cell(slot)
        state = slots.states[cell]
        if state & HOLD or not state & (QUEUED | REQUEST) or slots.flags[slot] & PENDING:
            return False
        if self.visits:
            return not state & (BUNDLED | BUNDLING) and self.sight(slot) == SHARED
        offered = (self.interactive or self.quiet) and not slots.flags[slot] & EPHEMERAL
        # A long one that was chosen goes, whatever small ones went before its pieces.
        paced = self._paced >= self._pace and slot != self.long_slot
        if not state & REQUEST and (offered or paced):
            return False
        return self._cell_wait(cell) <= 0 and self.sight(slot) == SHARED

    def note_sent(self, slot: int) -> None:
        """Note that the message in `slot` went out whole."""
        self._sent(slot, DO_SEND, CODE_SENT)

    def _sent(self, slot: int, event: int, code: int) -> None:
        core = self.core
        slots = core.slots
        cell = self._cell(slot)
        state = slots.states[cell]
        if not state & REQUEST:
            self._paced += 1
        state = step(state, event)
        assert state != NO  # else it was sent or offered to a holder
        count = slots.send_counts[cell]
        if code == CODE_SENT and count:
            core.box.count(COUNT_RETRANSMITS, 1)
        if code == CODE_SENT and self.family == FAMILY_MVDS:
            state |= REQUEST  # what was sent once is sent again until it is acknowledged
        if self.visits:
            state |= BUNDLING
        else:
            heard = self._heard_since(slots.send_epoch(cell))
            self.again = 0
            if count:
                self.again = 1 if heard else -1
            if heard:
                count = 0
            if self.policy is not None and code == CODE_OFFERED and self.again >= 0:
                self.policy.on_offered(self.again > 0)
            slots.sent(cell, counted(count), self.epoch)
        once = slots.flags[slot] & EPHEMERAL
        if once:
            state |= HOLD  # nobody acknowledges it, and it is not sent again
        core.window.set_state(slot, self.peer, state)
        core.trace(self.now_ms, code, self._number(), count + 1, slot)
        if once:
            core.window.clean(slot)

    # --- when ---

    def begin_epoch(self, epoch: int) -> None:
        """A new epoch: offer less to a peer that is there and takes nothing.

        Its tables are full of what it cannot use yet; the oldest alone gets through (DESIGN 5).
        """
        self.epoch = epoch
        silent = epochs_since(epoch, self.heard_epoch)
        if silent > _SILENT_EPOCHS:
            self.heard = False
        awake = self.heard and silent <= _STALL_EPOCHS * self.every
        if self._gained or not awake:
            doubled = self._pace * 2
            count = self.core.slots.count
            self._pace = doubled if awake and doubled < count else count
            self._stalled_epochs = 0
        elif self._paced:
            self._stalled_epochs += 1
            if self._stalled_epochs >= _STALL_EPOCHS:
                self._pace = self._pace // 2 or 1
                self._stalled_epochs = 0
        self._gained = False
        self._paced = 0
        self._rewind()

    def _heard_since(self, then: int) -> bool:
        return self.heard and epochs_since(self.heard_epoch, then) < 0x8000

    def _wait(self, count: int, then: int) -> int:
        """Epochs until it is sent again after `count` sends, the last in `then`; <= 0: now."""
        if not count:
            return 0
        falls_back = self.family == FAMILY_MVDS
        interval = interval_epochs(count, self._heard_since(then), falls_back) * self.every
        return interval - epochs_since(self.epoch, then)

    def _cell_wait(self, cell: int) -> int:
        slots = self.core.slots
        return self._wait(slots.send_counts[cell], slots.send_epoch(cell))

    def _entry_wait(self, entry: int) -> int:
        offers = self.core.offers
        return self._wait(offers.send_counts[entry], offers.send_epoch(entry))

    def next_due_epochs(self) -> int:
        """Epochs until the earliest resend, at least 1; 0 when nothing is outstanding."""
        slots = self.core.slots
        soonest = _NEVER
        for slot in range(slots.count):
            cell = self._cell(slot)
            state = slots.states[cell]
            if not state & HOLD and state & (QUEUED | REQUEST):
                soonest = min(soonest, self._cell_wait(cell))
        offers = self.core.offers
        for entry in range(offers.count):
            asks = REQUESTED <= offers.kinds[entry] <= WANTED
            if asks and offers.peers[entry] == self.peer:
                soonest = min(soonest, self._entry_wait(entry))
        return 0 if soonest == _NEVER else max(soonest, 1)
