"""The exchange with one peer: what a record does, and what is due to be sent (BSP v1 section 4).

Wire profiles call `on_*` for what they read and `take_*` for what they may write; neither knows
the other's bytes. Nothing here allocates, and no peer's bytes raise.
"""

from drupelet._compat import const
from drupelet.blackbox import (
    CODE_ACKED,
    CODE_DUPLICATE,
    CODE_OFFERED,
    CODE_RECEIVED,
    CODE_REQUESTED,
    CODE_SENT,
    COUNT_DUPLICATES,
    COUNT_MALFORMED,
    COUNT_REFUSED,
    COUNT_RETRANSMITS,
)
from drupelet.errors import E_PEER, OK
from drupelet.graph import ENTERED, REFUSED, TOO_EARLY, WAITING
from drupelet.limits import CONTENT_HEADER_SIZE, ID_SIZE
from drupelet.members import GROUP_TELEMETRY, INVISIBLE, SHARED
from drupelet.memory import copy
from drupelet.schedule import epochs_since, interval_epochs
from drupelet.slots import OFFERED, OWED, OWED_BUNDLING, PENDING, WANTED
from drupelet.states import (
    ACK,
    ACKING,
    BUNDLED,
    BUNDLING,
    DO_ACK,
    DO_OFFER,
    DO_SEND,
    GOT_ACK,
    GOT_MESSAGE,
    GOT_OFFER,
    GOT_REQUEST,
    HOLD,
    NO,
    QUEUED,
    REQUEST,
    step,
)
from drupelet.store import STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core


# Offer, request, message and acknowledgement take three epochs; after four without gain, slow down.
_STALL_EPOCHS = const(4)


class Exchange:
    """One peer's side of the tables; `peer` is its row. `Link` adds frames and time."""

    def __init__(self, core: "Core", peer: int, interactive: bool, visits: bool) -> None:
        self.core = core
        self.peer = peer
        self.interactive = interactive
        self.visits = visits  # a stick: everything at once, no epochs
        self.epoch = 0
        self.heard_epoch = 0
        self.heard = False
        self.now_ms = 0
        self.attention = True  # something may be due
        self.acked = False  # the frame that is being made carries an ACK
        self.long_handle = 0  # a message that goes out in segments
        self.long_slot = -1  # its slot, if it has one
        self._pace = core.slots.count  # unasked-for offers and messages per epoch
        self._paced = 0
        self._gained = False
        self._stalled_epochs = 0
        self.logged = 0  # a stick visit: how far the log beyond the slots is written
        self.inline_max = 0
        self.telemetry = False  # the message that was just taken or given was a black box
        self._rewind()

    def _rewind(self) -> None:
        """Begin the scans of a payload anew."""
        oldest = self.core.slots.oldest
        self._ack_left = self._message_left = self._offer_left = self.core.slots.count
        self._oldest = oldest
        self._owed_at = self._request_at = 0

    def _cell(self, slot: int) -> int:
        return self.peer * self.core.slots.count + slot

    def _step(self, slot: int, event: int) -> bool:
        """Apply a peer's event to the table; False when the table forbids it."""
        state = step(self.core.slots.states[self._cell(slot)], event)
        if state == NO:
            return False
        self.core.window.set_state(slot, self.peer, state)
        return True

    # --- what a record does ---

    def on_ack(self, buf: bytearray, at: int) -> None:
        """The peer holds this message."""
        core = self.core
        slot = core.slots.find(buf, at)
        if slot < 0 and core.window.refill(self.peer):
            slot = core.slots.find(buf, at)
        if slot < 0:
            return
        held = core.slots.states[self._cell(slot)] & HOLD
        if self._step(slot, GOT_ACK) and not held:
            self._gained = True
            core.trace(self.now_ms, CODE_ACKED, self._number(), 0, slot)
            core.window.clean(slot)

    def on_offer(self, buf: bytearray, at: int) -> None:
        """The peer holds this message and shares it: acknowledge it, or ask for it."""
        core = self.core
        self.attention = True
        slot = core.slots.find(buf, at)
        if slot >= 0:
            self._step(slot, GOT_OFFER)
        elif core.store.find(buf, at) > 0:
            core.offers.add(buf, at, self.peer, OWED)
        else:
            core.offers.add(buf, at, self.peer, OFFERED)

    def on_request(self, buf: bytearray, at: int) -> None:
        """The peer asks for this message; an unknown or unshared one is met with silence."""
        core = self.core
        slot = core.slots.find(buf, at)
        if slot < 0:
            handle = core.store.find(buf, at)
            slot = core.window.fetch(handle, self.peer) if handle > 0 else -1
        if slot < 0 or core.slots.flags[slot] & PENDING or not self._shared(slot):
            return
        self._step(slot, GOT_REQUEST)
        cell = self._cell(slot)
        core.slots.send_counts[cell] = 0  # due at once
        core.slots.states[cell] &= ~BUNDLED & 0xFF
        self.attention = True

    def on_message(self, buf: bytearray, at: int, size: int) -> None:
        """Content (group id, timestamp, body) of `size` bytes at `at`; the profile checked it."""
        core = self.core
        group = core.members.group_of(buf, at)
        self.telemetry = False
        if group < 0 or core.members.visibility(group, self.peer) == INVISIBLE:
            core.unknown += 1
            return
        self.telemetry = core.members.group_flags[group] & GROUP_TELEMETRY != 0
        body_at = at + CONTENT_HEADER_SIZE
        body_size = size - CONTENT_HEADER_SIZE
        core.hash.start(buf, at, buf, at + ID_SIZE, body_size)
        core.hash.update(buf, body_at, body_size)
        core.hash.digest_into(core.id, 0)
        if not self.known(core.id, 0):
            source = core.members.peer_numbers[self.peer]
            outcome = core.graph.take_body(
                group, source, core.id, buf, at + ID_SIZE, buf, body_at, body_size
            )
            self.took(outcome, group)

    def known(self, id: bytearray, at: int) -> bool:
        """True for a message that we have already: it is acknowledged again, nothing else."""
        core = self.core
        slot = core.slots.find(id, at)
        if slot >= 0:
            self._step(slot, GOT_MESSAGE)
            core.trace(self.now_ms, CODE_DUPLICATE, self._number(), 0, slot)
        elif core.store.find(id, at) > 0:
            core.offers.add(id, at, self.peer, OWED)
        else:
            return False
        core.duplicates += 1
        core.box.count(COUNT_DUPLICATES, 1)
        self.attention = True
        return True

    def took(self, outcome: int, group: int) -> None:
        """Follow up what the graph made of a message whose id is in `core.id`."""
        core = self.core
        if outcome == E_PEER:
            self.bad_record()
            return
        self.attention = True
        if outcome == REFUSED or outcome == TOO_EARLY:
            core.box.count(COUNT_REFUSED, 1)
            core.offers.drop_id(core.id, 0)
            if outcome == TOO_EARLY and core.slots.find(core.graph.missing_id, 0) < 0:
                core.offers.add(core.graph.missing_id, 0, self.peer, WANTED)
            return
        slot = core.graph.slot
        if slot >= 0:
            self._step(slot, GOT_MESSAGE)
            core.trace(self.now_ms, CODE_RECEIVED, self._number(), 0, slot)
        else:
            core.offers.add(core.id, 0, self.peer, OWED)
        if outcome == WAITING:
            core.offers.drop_id(core.id, 0)
            core.graph.want_parents(slot, self.peer)
        elif outcome == ENTERED:
            core.entered(self.now_ms, group, self._number())

    def bad_record(self) -> None:
        """Count a malformed record."""
        self.core.malformed += 1
        self.core.box.count(COUNT_MALFORMED, 1)

    # --- what is due ---

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
                self.acked = True
                return True
        offers = core.offers
        while self._owed_at < offers.count:
            entry = self._owed_at
            self._owed_at += 1
            if offers.kinds[entry] == OWED and offers.peers[entry] == self.peer:
                copy(buf, at, offers.ids, entry * ID_SIZE, ID_SIZE)
                if self.visits:
                    offers.kinds[entry] = OWED_BUNDLING
                else:
                    offers.drop(entry)
                self.acked = True
                return True
        return False

    def take_request(self, buf: bytearray, at: int) -> bool:
        """Write the next id to ask the peer for: an offer once, a missing parent until it comes."""
        offers = self.core.offers
        while self._request_at < offers.count:
            entry = self._request_at
            self._request_at += 1
            kind = offers.kinds[entry]
            if offers.peers[entry] != self.peer or (kind != OFFERED and kind != WANTED):
                continue
            if kind == WANTED and not self._entry_due(entry):
                continue
            copy(buf, at, offers.ids, entry * ID_SIZE, ID_SIZE)
            self.core.box.log_id(
                self.now_ms, CODE_REQUESTED, self._number(), 0, offers.ids, entry * ID_SIZE
            )
            if kind == WANTED:
                offers.sent(entry, self.epoch)
            else:
                offers.drop(entry)
            return True
        return False

    def take_message(self, buf: bytearray, at: int, limit: int) -> int:
        """Write the content of the next message due and return its size; 0: none fits here.

        A message too long for any frame of this link is left in `long_handle`.
        """
        slots = self.core.slots
        while self._message_left:
            slot = (self._oldest - self._message_left) % slots.count
            if not self.message_due(slot):
                self._message_left -= 1
                continue
            size = slots.size(slot)
            if size > self.inline_max:
                if self.long_handle:
                    return 0  # one at a time; the scan goes on from here when it is through
                self._message_left -= 1
                self.long_handle = slots.handle(slot)
                self.long_slot = slot
                continue
            if at + CONTENT_HEADER_SIZE + size > limit:
                return 0
            self._message_left -= 1
            if self._content_of(slots.handle(slot), buf, at, size):
                self.note_sent(slot)
                return CONTENT_HEADER_SIZE + size
        return self._take_logged(buf, at, limit) if self.visits else 0

    def _content_of(self, handle: int, buf: bytearray, at: int, size: int) -> bool:
        core = self.core
        if core.store.load(handle) != OK:
            return False
        group = core.members.group_slot(core.store.group)
        self.telemetry = core.members.group_flags[group] & GROUP_TELEMETRY != 0
        copy(buf, at, core.members.group_ids, group * ID_SIZE, ID_SIZE)
        copy(buf, at + ID_SIZE, core.store.timestamp, 0, CONTENT_HEADER_SIZE - ID_SIZE)
        return core.store.read_into(handle, 0, buf, at + CONTENT_HEADER_SIZE, size) == size

    def _take_logged(self, buf: bytearray, at: int, limit: int) -> int:
        """The same for what waits on flash beyond the slots: a stick takes the whole log."""
        store = self.core.store
        while not self.long_handle:
            handle = store.next(self.logged)
            if not handle:
                return 0
            if self._wants_logged(handle):
                size = store.size
                if size > self.inline_max:
                    self.long_handle = handle
                    self.long_slot = -1
                elif at + CONTENT_HEADER_SIZE + size > limit:
                    return 0
                elif self._content_of(handle, buf, at, size):
                    self.logged = handle
                    return CONTENT_HEADER_SIZE + size
            self.logged = handle
        return 0

    def _wants_logged(self, handle: int) -> bool:
        core = self.core
        if core.store.load(handle) != OK or core.store.state != STATE_DELIVERED:
            return False
        group = core.members.group_slot(core.store.group)
        if group < 0 or core.members.visibility(group, self.peer) != SHARED:
            return False
        if core.members.peer_slot(core.store.source) == self.peer:
            return False
        slot = core.slots.find(core.store.id, 0)
        return slot < 0 or not core.slots.states[self._cell(slot)] & HOLD

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer."""
        slots = self.core.slots
        while self.interactive and self._offer_left and self._paced < self._pace:
            slot = (self._oldest - self._offer_left) % slots.count
            self._offer_left -= 1
            cell = self._cell(slot)
            state = slots.states[cell]
            if state & (QUEUED | HOLD | REQUEST) != QUEUED or not self._due(cell):
                continue
            if not self._shared(slot):
                continue
            copy(buf, at, slots.ids, slot * ID_SIZE, ID_SIZE)
            self._sent(slot, DO_OFFER, CODE_OFFERED)
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
            return not state & (BUNDLED | BUNDLING) and self._shared(slot)
        if not state & REQUEST and (self.interactive or self._paced >= self._pace):
            return False
        return self._due(cell) and self._shared(slot)

    def note_sent(self, slot: int) -> None:
        """Note that the message in `slot` went out whole."""
        self._sent(slot, DO_SEND, CODE_SENT)

    def _sent(self, slot: int, event: int, code: int) -> None:
        core = self.core
        slots = core.slots
        cell = self._cell(slot)
        if not slots.states[cell] & REQUEST:
            self._paced += 1
        state = step(slots.states[cell], event)
        assert state != NO, "sent or offered to a holder"
        count = slots.send_counts[cell]
        if code == CODE_SENT and count:
            core.box.count(COUNT_RETRANSMITS, 1)
        if self.visits:
            state |= BUNDLING
        else:
            if self._heard_since(slots.send_epoch(cell)):
                count = 0
            slots.sent(cell, count + 1, self.epoch)
        core.window.set_state(slot, self.peer, state)
        core.trace(self.now_ms, code, self._number(), count + 1, slot)

    def set_pace(self) -> None:
        """Once per epoch: offer less to a peer that is there and takes nothing.

        Its tables are full of what it cannot use yet; the oldest alone gets through (DESIGN 5).
        """
        awake = self.heard and epochs_since(self.epoch, self.heard_epoch) <= _STALL_EPOCHS
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

    def _number(self) -> int:
        return self.core.members.peer_numbers[self.peer]

    def _shared(self, slot: int) -> bool:
        members = self.core.members
        return members.visibility(self.core.slots.groups[slot], self.peer) == SHARED

    def _heard_since(self, then: int) -> bool:
        return self.heard and epochs_since(self.heard_epoch, then) < 0x8000

    def _due(self, cell: int) -> bool:
        count = self.core.slots.send_counts[cell]
        if not count:
            return True
        then = self.core.slots.send_epoch(cell)
        return epochs_since(self.epoch, then) >= interval_epochs(count, self._heard_since(then))

    def _entry_due(self, entry: int) -> bool:
        offers = self.core.offers
        count = offers.send_counts[entry]
        if not count or self.visits:
            return True
        then = offers.send_epoch(entry)
        return epochs_since(self.epoch, then) >= interval_epochs(count, self._heard_since(then))

    def next_due_epochs(self) -> int:
        """Epochs until the earliest resend; 0 when nothing is outstanding."""
        slots = self.core.slots
        soonest = 0
        for slot in range(slots.count):
            cell = self._cell(slot)
            state = slots.states[cell]
            if state & HOLD or not state & (QUEUED | REQUEST):
                continue
            left = self._left(slots.send_counts[cell], slots.send_epoch(cell))
            soonest = left if not soonest or left < soonest else soonest
        offers = self.core.offers
        for entry in range(offers.count):
            if offers.kinds[entry] == WANTED and offers.peers[entry] == self.peer:
                left = self._left(offers.send_counts[entry], offers.send_epoch(entry))
                soonest = left if not soonest or left < soonest else soonest
        return soonest

    def _left(self, count: int, then: int) -> int:
        if not count:
            return 1
        left = interval_epochs(count, self._heard_since(then)) - epochs_since(self.epoch, then)
        return left if left > 1 else 1
