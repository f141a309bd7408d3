"""What is due to one peer, and when: ACKs, requests, messages and offers (BSP v1 4.2, 4.3).

Wire profiles call `take_*` for what they may write into a frame. Live links pace themselves by
epochs and back-off; a stick has no epochs, a visit writes everything that is not acknowledged.
"""

from drupelet.base.events import CODE_OFFERED, CODE_REQUESTED, CODE_SENT, COUNT_RETRANSMITS
from drupelet.base.limits import CONTENT_HEADER_SIZE, ID_SIZE
from drupelet.base.memory import copy
from drupelet.engine.backoff import counted
from drupelet.engine.members import INVISIBLE, SHARED
from drupelet.engine.pace import Pace
from drupelet.engine.slots import (
    EPHEMERAL,
    OFFERED,
    OWED,
    OWED_BUNDLING,
    OWED_TWICE,
    PENDING,
    REQUESTED,
    WANTED,
)
from drupelet.engine.states import (
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
from drupelet.wire.registry import family_of, keeps_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.link.mode_policy import Policy
    from drupelet.link.topic import Topic


class Dues(Pace):
    """One peer's side of the tables, seen from what goes out; `peer` is its row."""

    policy: "Policy | None" = None  # chooses the mode by what it is told; few links have one
    topic: "Topic | None" = None  # all members hear it: what it carries need not go here
    quiet = False  # filters tell what the peer lacks (docs/SPEC.md 14): nothing goes unasked
    interactive: bool
    offset: int  # of a stick: how far the message that goes out in pieces is written
    visits = False  # a stick: everything at once, no epochs
    logged: int  # of a stick: how far the log beyond the slots is written

    def __init__(self, core: "Core", peer: int, visits: bool) -> None:
        Pace.__init__(self, core)
        self.peer = peer
        if visits:
            self.visits = True
        self.long_handle = 0  # a message that goes out in segments

    @property
    def family(self) -> int:
        """The family whose groups it carries."""
        return family_of(self._way & 15)

    def _rewind(self) -> None:
        """Begin the scans of a payload anew, at the oldest where only few may go."""
        core = self.core
        slots = core.slots
        core.scanner = self
        core.scan_from = (
            slots.oldest if self._under_way_max == slots.count else self._first_queued()
        )
        core.ack_left = core.message_left = core.offer_left = slots.count
        core.owed_at = core.request_at = 0

    def scan(self) -> None:
        """Have the node's scans for this link: another one may have begun its own."""
        if self.core.scanner is not self:
            self._rewind()

    def _first_queued(self) -> int:
        """The slot of the oldest message that the peer lacks: after a reboot, slots that were
        filled anew are not in the order of the log."""
        slots = self.core.slots
        found = slots.oldest
        lowest = 0
        for slot in range(slots.count):
            handle = slots.handles[slot]
            queued = slots.states[self.cell(slot)] & (QUEUED | HOLD) == QUEUED
            if queued and (not lowest or handle < lowest):
                found = slot
                lowest = handle
        return found

    def _number(self) -> int:
        return self.core.members.peer_numbers[self.peer]

    def sees(self, group: int) -> int:
        """What the peer sees of a group (row) here: a link carries its own family only."""
        members = self.core.members
        if members.family(group) != self.family:
            return INVISIBLE
        return members.visibility(group, self.peer)

    def sees_id(self, id: bytearray, at: int) -> bool:
        """True when a group, by its 32-byte id, exists for the peer on this link."""
        group = self.core.members.group_of(id, at)
        return group >= 0 and self.sees(group) != INVISIBLE

    def sight(self, slot: int) -> int:
        """What the peer sees of the message in `slot`: INVISIBLE, VISIBLE or SHARED."""
        return self.sees(self.core.slots.group(slot))

    def _carried(self, slot: int) -> bool:
        return self.topic is not None and self.topic.carries(self.peer, slot)

    # --- what goes into a frame ---

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that we owe the peer an acknowledgement for."""
        core = self.core
        slots = core.slots
        while core.ack_left:
            slot = (core.scan_from - core.ack_left) % slots.count
            core.ack_left -= 1
            state = slots.states[self.cell(slot)]
            if state & ACK and self.sight(slot) and not self._carried(slot):
                after = step(state, DO_ACK)
                core.window.set_state(slot, self.peer, after | ACKING if self.visits else after)
                if not slots.id_into(slot, buf, at):
                    continue  # its record made room: who still has it sends it again
                core.firm = True
                core.taken = slot
                return True
        offers = core.offers
        while core.owed_at < offers.count:
            entry = core.owed_at
            core.owed_at += 1
            kind = offers.kinds[entry]
            if OWED <= kind <= OWED_TWICE and offers.peer_of(entry) == self.peer:
                core.taken = ~entry
                copy(buf, at, offers.ids, entry * ID_SIZE, ID_SIZE)
                core.owed_at -= kind - OWED  # if twice, it is the next one, too
                kind = OWED if kind != OWED else OWED_BUNDLING if self.visits else 0
                offers.kinds[entry] = kind
                core.firm = True
                return True
        return False

    def take_request(self, buf: bytearray, at: int, prefixes: bool = False) -> bool:
        """Write the next id to ask for (`prefixes`: or 8 bytes of it and zeros): an offer once."""
        self.scan()
        core = self.core
        offers = core.offers
        while core.request_at < offers.count:
            entry = core.request_at
            core.request_at += 1
            kind = offers.kinds[entry]
            if offers.peer_of(entry) != self.peer or not (prefixes or offers.is_whole(entry)):
                continue
            if kind == OFFERED:
                offers.kinds[entry] = REQUESTED if keeps_records(self._way & 15) else 0
                offers.sent(entry, self.epoch)
            elif REQUESTED <= kind <= WANTED and (self.visits or self._entry_wait(entry) <= 0):
                offers.sent(entry, self.epoch)
            else:
                continue
            at_id = entry * ID_SIZE
            core.taken = ~entry
            copy(buf, at, offers.ids, at_id, ID_SIZE)
            core.box.log_id(core.now_ms, CODE_REQUESTED, self._number(), 0, offers.ids, at_id)
            return True
        return False

    def next_message(self) -> bool:
        """Look for the next message due; True with its head loaded in the store.

        `message_slot` and `message_group` tell more (-1: a stick's, from beyond the slots). It
        stays the next one until `put_message` or `too_long`.
        """
        core = self.core
        slots = core.slots
        while core.message_left:
            slot = (core.scan_from - core.message_left) % slots.count
            # One that goes out in pieces has been looked at.
            due = slots.handles[slot] != self.long_handle and self.message_due(slot)
            if due and self._look(slots.handles[slot], slot):
                return True
            core.message_left -= 1
        return False

    def _look(self, handle: int, slot: int) -> bool:
        core = self.core
        core.message_handle = handle
        core.message_slot = slot
        # The log may have dropped the body of what all had acknowledged.
        return core.window.look(handle) >= 0

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the stored body of the message that `next_message` found."""
        core = self.core
        return core.store.read_into(core.message_handle, offset, buf, at, size) == size

    def put_message(self) -> None:
        """The message that `next_message` found is in the frame."""
        core = self.core
        core.firm = True
        core.telemetry = core.is_box(core.message_group)
        if core.message_slot < 0:
            self.logged = core.message_handle
        else:
            core.message_left -= 1
            self.note_sent(core.message_slot)

    def too_long(self) -> None:
        """The message that `next_message` found fits no frame: it goes out in pieces."""
        core = self.core
        if core.message_slot < 0:
            self.logged = core.message_handle
        else:
            core.message_left -= 1
        # Of several the one sent longest ago: the peer may refuse each one but the last.
        slot = -1 if self.visits else core.message_slot
        last = self.long_handle
        if not last or (slot >= 0 and core.slots.sent_later(self.peer, last, slot, self.epoch)):
            self.long_handle = core.message_handle

    def _over(self, slot: int) -> None:
        """A message has left, for now: the next long one has its turn."""
        if slot >= 0:
            self.note_sent(slot)
        self._end_long()
        self.core.message_left = self.core.slots.count

    def _end_long(self) -> None:
        self.long_handle = 0
        if self.visits:
            self.offset = 0

    def content_into(self, frame: bytearray, at: int, offset: int, size: int, group: int) -> None:
        """Copy bytes of the content of `long_handle`, which the store has loaded."""
        core = self.core
        head = CONTENT_HEADER_SIZE - offset
        if head > 0:
            head = head if head < size else size
            scratch = core.graph.ids
            copy(scratch, 0, core.members.group_ids, group * ID_SIZE, ID_SIZE)
            copy(scratch, ID_SIZE, core.store.timestamp, 0, CONTENT_HEADER_SIZE - ID_SIZE)
            copy(frame, at, scratch, offset, head)
            offset += head
            at += head
            size -= head
        if size:
            core.store.read_into(self.long_handle, offset - CONTENT_HEADER_SIZE, frame, at, size)

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer."""
        core = self.core
        slots = core.slots
        if self.quiet:
            return False
        while self.interactive and core.offer_left and self._left > 0:
            slot = (core.scan_from - core.offer_left) % slots.count
            core.offer_left -= 1
            cell = self.cell(slot)
            queued = slots.states[cell] & (QUEUED | HOLD | REQUEST) == QUEUED
            queued = queued and not slots.flags[slot] & EPHEMERAL
            due = queued and self._may_go(cell) and not self._carried(slot)
            due = due and self.sight(slot) == SHARED
            if due and not slots.id_into(slot, buf, at):
                # The flash does not give it: it is looked at again as if it had gone.
                slots.sent(cell, counted(slots.send_counts[cell]), self.epoch)
            elif due:
                self._sent(slot, DO_OFFER, CODE_OFFERED)
                core.firm = True  # the peer takes it that we hold what we offer
                core.taken = slot
                return True
        return False

    def message_due(self, slot: int) -> bool:
        """True when the message itself is to be sent now, offered first or not."""
        slots = self.core.slots
        cell = self.cell(slot)
        state = slots.states[cell]
        if state & HOLD or not state & (QUEUED | REQUEST) or slots.flags[slot] & PENDING:
            return False
        if self.visits:
            return not state & (BUNDLED | BUNDLING) and self.sight(slot) == SHARED
        offered = (self.interactive or self.quiet) and not slots.flags[slot] & EPHEMERAL
        if offered and not state & REQUEST:
            return False
        # A long one that was chosen goes, whatever small ones went before its pieces.
        chosen = slots.handles[slot] == self.long_handle and self._cell_wait(cell) <= 0
        due = (chosen or self._may_go(cell)) and not self._carried(slot)
        return due and self.sight(slot) == SHARED

    def note_sent(self, slot: int) -> None:
        """Note that the message in `slot` went out whole."""
        self._sent(slot, DO_SEND, CODE_SENT)

    def _sent(self, slot: int, event: int, code: int) -> None:
        core = self.core
        slots = core.slots
        cell = self.cell(slot)
        state = slots.states[cell]
        if not self._is_asked(cell):
            self._count_unasked()
        state = step(state, event)
        assert state != NO  # else it was sent or offered to a holder
        count = slots.send_counts[cell]
        if code == CODE_SENT and count:
            core.box.count(COUNT_RETRANSMITS, 1)
        if (code == CODE_SENT or count) and keeps_records(self._way & 15):
            state |= REQUEST  # what was sent, or offered twice, goes as a MESSAGE from now on
        if self.visits:
            state |= BUNDLING
        else:
            heard = self._heard_since(slots.send_epoch(cell))
            if self.policy is not None:
                core.again = (1 if heard else -1) if count else 0
                if code == CODE_OFFERED and core.again >= 0:
                    self.policy.on_offered(core.again > 0)
            slots.sent(cell, counted(count), self.epoch)
        once = slots.flags[slot] & EPHEMERAL
        if once:
            state |= HOLD  # nobody acknowledges it, and it is not sent again
        core.window.set_state(slot, self.peer, state)
        core.trace(core.now_ms, code, self._number(), count + 1, slot)
        if once:
            core.window.clean(slot)
