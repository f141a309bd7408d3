"""What a record of the peer's does (BSP v1 section 4).

Wire profiles call `on_*` for what they read. Nothing here allocates, and no peer's bytes raise.
What belongs to a group that a peer does not see is to that peer as if it did not exist.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.events import (
    CODE_ACKED,
    CODE_DUPLICATE,
    CODE_RECEIVED,
    COUNT_DUPLICATES,
    COUNT_MALFORMED,
    COUNT_REFUSED,
)
from drupelet.base.limits import (
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    PART_INCOMING,
    TIMESTAMP_SIZE,
)
from drupelet.base.memory import copy, equal
from drupelet.base.time_ms import elapsed_ms, epochs_since
from drupelet.engine.graph import (
    ENTERED,
    ONCE,
    REFUSED,
    SHORT,
    TOO_EARLY,
    WAITING,
)
from drupelet.engine.members import INVISIBLE, SHARED
from drupelet.engine.sender import Dues
from drupelet.engine.slots import (
    OFFERED,
    OWED,
    OWED_TWICE,
    PART_OWNER,
    PART_ROW,
    PART_SIZE,
    PEER_ROW,
    PENDING,
    REQUESTED,
    WANTED,
)
from drupelet.engine.states import (
    BUNDLED,
    GOT_ACK,
    GOT_MESSAGE,
    GOT_OFFER,
    GOT_REQUEST,
    HOLD,
    QUEUED,
    REQUEST,
    step,
)
from drupelet.store.reader import STATE_DELETED, STATE_GONE

# In a row of `core.part_rows`, which `segments` keeps: when what comes in last grew.
PART_GREW_MS = const(1)
# A transfer that stood still for 2^4 epochs, at most six days, gives its part file up to another.
_STILL_SHIFT = const(4)

# `_way`: the profile, this bit, the carrier, the changes of the window that it has seen, and what
# its codec knows it by.
_OFFERS_FIRST = const(16)
_SEEN_SHIFT = const(8)
_ROW_SHIFT = const(16)
_ROW_MASK = const(0x3FFF)  # small ints of a board have 31 bits


class Exchange(Dues):
    """One peer's side of the tables, with what comes in. `Link` adds frames and time."""

    @property
    def epoch_ms(self) -> int:
        """Of a live link."""
        return 0

    @property
    def interactive(self) -> bool:
        """True when messages are offered before they are sent."""
        return self._way & _OFFERS_FIRST != 0

    @interactive.setter
    def interactive(self, offers_first: bool) -> None:
        if offers_first != self.interactive:
            self._way ^= _OFFERS_FIRST
            self._look_again()

    @property
    def codec_row(self) -> int:
        """Where a codec that all links share keeps what it knows of this one."""
        return self._way >> _ROW_SHIFT

    @codec_row.setter
    def codec_row(self, row: int) -> None:
        assert row <= _ROW_MASK
        self._way = self._way & 0xFFFF | row << _ROW_SHIFT

    def _is_shown(self) -> bool:
        """Whether all that the window queued for the peer was looked at."""
        changes = self.core.window.rows[self.peer * PEER_ROW + PEER_ROW - 1]
        return self._way >> _SEEN_SHIFT & 255 == changes

    def _look_again(self) -> None:
        rows = self.core.window.rows
        last = self.peer * PEER_ROW + PEER_ROW - 1
        rows[last] = changes = (rows[last] + 1) & 0xFE  # as it is, if others looked
        self._way = self._way & ~(255 << _SEEN_SHIFT) | changes << _SEEN_SHIFT
        self.attention = True
        self._rewind()

    def _step(self, slot: int, event: int) -> None:
        """Apply a peer's event to the table."""
        core = self.core
        state = step(core.slots.states[self.cell(slot)], event)
        core.window.set_state(slot, self.peer, state)

    def on_ack(self, buf: bytearray, at: int) -> None:
        """The peer holds this message."""
        core = self.core
        slot = core.slots.find(buf, at)
        if slot < 0 and core.window.refill(self.peer):
            slot = core.slots.find(buf, at)
        if slot < 0 and core.store.next_kept(0):
            self._holds(buf, at)
        if slot >= 0:
            self.acked(slot)
            return
        entry = core.offers.find(buf, at, OFFERED, WANTED, self.peer)
        # Once: the peer has it, and said so before we lost our store. Between two ids of
        # `mvds-5001` are a tag of 3 bytes and a length.
        for before in range(max(at - ID_SIZE - 4, 0) if entry >= 0 else at, at - ID_SIZE + 1):
            if equal(buf, before, buf, at, ID_SIZE):
                from drupelet.engine.unavailable import gone

                gone(core, entry)

    def acked(self, slot: int) -> None:
        """The peer holds the message in a slot."""
        if not self.sight(slot):
            return
        core = self.core
        cell = self.cell(slot)
        held = core.slots.states[cell] & HOLD
        self._step(slot, GOT_ACK)
        if not held:
            self._stalled = -1
            count = core.slots.send_counts[cell]
            if count:
                then = core.slots.send_epoch(cell)
                age = epochs_since(self.epoch, then)
                self.acks.note(self.epoch, then, count == 1)
                if self.policy is not None:
                    self.policy.on_acked(age if count == 1 else -1)
            core.trace(core.now_ms, CODE_ACKED, self._number(), 0, slot)
            core.window.clean(slot)

    def on_offer(self, buf: bytearray, at: int) -> None:
        """The peer holds this message and shares it: acknowledge it, or ask for it."""
        core = self.core
        self.attention = True
        slot = core.slots.find(buf, at)
        if slot >= 0 and self.sight(slot):
            self.offered(slot)
        elif slot < 0 and self._holds(buf, at):
            core.offers.add(buf, at, self.peer, OWED, self.epoch)
            self._came(True)
        elif not self.begun(buf, at):
            core.offers.add(buf, at, self.peer, OFFERED, self.epoch)

    def offered(self, slot: int) -> None:
        """The peer holds and shares the message in a slot, whose group it sees."""
        self.attention = True
        self._step(slot, GOT_OFFER)
        self._came(True)

    def _came(self, held: bool) -> None:
        """Tell the policy of a message or an offer that came in."""
        if self.policy is not None:
            self.policy.on_incoming(held)

    def begun(self, id: bytearray, at: int) -> bool:  # noqa: ARG002 - segments know
        """True when a part of this message is here and the peer is told how much."""
        return False

    def _known(self, id: bytearray, at: int) -> int:
        """The handle of what is or was in our log, if the peer sees its group; else 0."""
        store = self.core.store
        handle = store.find(id, at)
        if handle <= 0 or store.load(handle) != OK:
            return 0
        group = self.core.members.group_slot(store.group)
        return handle if group >= 0 and self.sees(group) != INVISIBLE else 0

    def _holds(self, id: bytearray, at: int) -> bool:
        """True for a message of the log, or deleted from it, whose group the peer sees."""
        handle = self._known(id, at)
        if handle and self.core.store.missing:
            from drupelet.engine.control import held

            held(self.core, self.peer, handle)
        return handle != 0

    def on_request(self, buf: bytearray, at: int) -> None:
        """The peer asks for this message; an unknown or unshared one is met with silence.

        What our log has dropped, or what never came to us, for nobody has it any more, is told
        with an ACK of it twice (docs/SPEC.md 4.2). What a client deleted keeps its edges: that was
        its will.
        """
        core = self.core
        store = core.store
        slot = core.slots.find(buf, at)
        if slot < 0:
            handle = self._known(buf, at)
            slot = core.window.fetch(handle, self.peer, True) if handle else -1
            gone = not handle and core.members.shares(self.peer) != 0 and store.noted(buf, at)
            if slot == -2 and not store.edges_size:
                gone = store.state == STATE_GONE or store.state == STATE_DELETED
            if gone:
                core.offers.add(buf, at, self.peer, OWED_TWICE, self.epoch)
                self.attention = True
        if slot >= 0:
            self.requested(slot)
        elif slot == -1 and 0 < handle <= core.window.cursors[self.peer]:
            self._walk_again(handle)

    def _walk_again(self, handle: int) -> None:
        """Walk the log again from what the peer asks for, which it held, if that finds no slot.

        What is behind gives up its slot to what it may depend on, and comes again.
        """
        window = self.core.window
        window.show_all(self.peer)
        window.go_back(self.peer, handle)
        slots = window.slots
        for slot in range(slots.count):
            state = slots.states[self.cell(slot)]
            if not state & HOLD and slots.handles[slot] > handle:
                window.set_state(slot, self.peer, state & ~(QUEUED | REQUEST))

    def requested(self, slot: int) -> None:
        """The peer asks for the message in a slot."""
        core = self.core
        if core.slots.flags[slot] & PENDING or self.sight(slot) != SHARED:
            return
        self._step(slot, GOT_REQUEST)
        if self.policy is not None:
            self.policy.on_requested()
        cell = self.cell(slot)
        core.slots.send_counts[cell] = 0  # due at once
        core.slots.states[cell] &= ~BUNDLED & 0xFF
        self.attention = True

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """A message: group id 32, timestamp 8, stored body (docs/SPEC.md 4); each where it is.

        `message_slot` and `core.id` tell the codec afterwards which one it was.
        """
        core = self.core
        core.message_slot = -1
        core.telemetry = False
        row = core.members.group_of(group, group_at)
        if row < 0 or not self.sees(row):
            core.unknown += 1
            return
        core.telemetry = core.is_box(row)
        if core.identify(row, stamp, stamp_at, body, at, size) != OK:
            self.bad_record()
        elif not self.known(core.id, 0):
            if size > INLINE_SIZE_MAX:
                outcome = self._take_long(row, stamp, stamp_at, body, at, size)
            else:
                outcome = core.graph.take_body(
                    row, self._number(), core.id, stamp, stamp_at, body, at, size
                )
            self.took(outcome, row)

    def _take_long(
        self, row: int, stamp: bytearray, stamp_at: int, body: bytearray, at: int, size: int
    ) -> int:
        """A body too long for a record of the store goes into a file of its own."""
        core = self.core
        store = core.store
        part = self._free_part()
        if part < 0:
            return REFUSED
        copy(core.graph.ids, 0, core.members.group_ids, row * ID_SIZE, ID_SIZE)
        copy(core.graph.ids, ID_SIZE, stamp, stamp_at, TIMESTAMP_SIZE)
        store.part_drop(part)
        code = store.part_open(part, core.id, 0, CONTENT_HEADER_SIZE + size)
        if code >= 0:
            code = store.part_append(part, core.graph.ids, 0, CONTENT_HEADER_SIZE)
        if code == OK:
            code = store.part_append(part, body, at, size)
        outcome = REFUSED
        if code == OK:
            outcome = core.graph.take_part(row, self._number(), core.id, part)
        store.part_drop(part)
        return outcome

    def _free_part(self) -> int:
        """A part file that takes in nobody's content just now; -1, and counted, without one."""
        parts = self.core.parts
        for part in range(len(self.core.part_rows) // PART_ROW):
            owner = part * PART_SIZE + PART_OWNER
            if not parts[owner] or self.gives_way(part):
                parts[owner] = 0
                return PART_INCOMING + part
        self.core.graph.refused += 1
        return -1

    def gives_way(self, part: int) -> bool:
        """True when a part is empty, stands still, or its content came another way."""
        core = self.core
        empty = not core.store.part_size(PART_INCOMING + part)
        known = core.slots.find_prefix(core.parts, part * PART_SIZE, PART_OWNER) >= 0
        still_ms = elapsed_ms(core.now_ms, core.part_rows[part * PART_ROW + PART_GREW_MS])
        return empty or known or still_ms >> _STILL_SHIFT >= min(self.epoch_ms, 1 << 25)

    def known(self, id: bytearray, at: int) -> bool:
        """True for a message that we have already: it is acknowledged again, nothing else.

        The peer sent its whole content, so the group is one that it sees. Whether it waits for an
        acknowledgement its own copy says: that is not hashed, and another peer's may differ.
        """
        core = self.core
        slot = core.slots.find(id, at)
        core.message_slot = slot
        ephemeral = core.graph.todo & ONCE
        if slot >= 0:
            if not ephemeral:
                self._step(slot, GOT_MESSAGE)
            core.trace(core.now_ms, CODE_DUPLICATE, self._number(), 0, slot)
        elif core.store.find(id, at) <= 0:
            return False
        elif not ephemeral:
            core.offers.add(id, at, self.peer, OWED, self.epoch)
        core.duplicates += 1
        self._came(True)
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
        self._came(False)
        offers = core.offers
        entry = offers.find(core.id, 0, REQUESTED, WANTED, self.peer)
        if entry >= 0 and offers.send_count(entry):
            self.replies.note(self.epoch, offers.send_epoch(entry), offers.send_count(entry) == 1)
        offers.drop_id(core.id, 0)
        if outcome == REFUSED or outcome == TOO_EARLY:  # noqa: SIM109 - a tuple is code
            core.box.count(COUNT_REFUSED, 1)
            core.graph.todo |= SHORT
            # What it waits for gives way to all else: this one comes again.
            if outcome == TOO_EARLY and core.graph.lacks():
                offers.add(core.graph.ids, ID_SIZE, self.peer, REQUESTED, self.epoch)
            return
        slot = core.graph.slot
        core.message_slot = slot
        once = core.graph.todo & ONCE  # nobody waits for its acknowledgement
        if slot >= 0 and not once:
            self._step(slot, GOT_MESSAGE)
            core.trace(core.now_ms, CODE_RECEIVED, self._number(), 0, slot)
        elif not once:
            offers.add(core.id, 0, self.peer, OWED, self.epoch)
        if outcome == WAITING:
            core.graph.want_parents(slot, self.peer, self.epoch)
        elif outcome == ENTERED:
            core.entered(core.now_ms, group, self._number())
        else:
            core.promote(core.now_ms)  # what depends on it is buried, too

    def bad_record(self) -> None:
        """Count a malformed record."""
        self.core.malformed += 1
        self.core.box.count(COUNT_MALFORMED, 1)
