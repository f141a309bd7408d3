"""What a record of the peer's does (BSP v1 section 4).

Wire profiles call `on_*` for what they read. Nothing here allocates, and no peer's bytes raise.
What belongs to a group that a peer does not see is to that peer as if it did not exist.
"""

from drupelet.blackbox import (
    CODE_ACKED,
    CODE_DUPLICATE,
    CODE_RECEIVED,
    COUNT_DUPLICATES,
    COUNT_MALFORMED,
    COUNT_REFUSED,
)
from drupelet.due import Dues
from drupelet.errors import E_PEER, OK
from drupelet.graph import ENTERED, REFUSED, TOO_EARLY, WAITING
from drupelet.limits import CONTENT_HEADER_SIZE, ID_SIZE
from drupelet.members import GROUP_TELEMETRY, INVISIBLE, SHARED
from drupelet.slots import OFFERED, OWED, PENDING, WANTED
from drupelet.states import (
    BUNDLED,
    GOT_ACK,
    GOT_MESSAGE,
    GOT_OFFER,
    GOT_REQUEST,
    HOLD,
    step,
)


class Exchange(Dues):
    """One peer's side of the tables, with what comes in. `Link` adds frames and time."""

    def _step(self, slot: int, event: int) -> None:
        """Apply a peer's event to the table."""
        core = self.core
        state = step(core.slots.states[self._cell(slot)], event)
        core.window.set_state(slot, self.peer, state)

    def on_ack(self, buf: bytearray, at: int) -> None:
        """The peer holds this message."""
        core = self.core
        slot = core.slots.find(buf, at)
        if slot < 0 and core.window.refill(self.peer):
            slot = core.slots.find(buf, at)
        if slot < 0 or not self.sight(slot):
            return
        held = core.slots.states[self._cell(slot)] & HOLD
        self._step(slot, GOT_ACK)
        if not held:
            self._gained = True
            core.trace(self.now_ms, CODE_ACKED, self._number(), 0, slot)
            core.window.clean(slot)

    def on_offer(self, buf: bytearray, at: int) -> None:
        """The peer holds this message and shares it: acknowledge it, or ask for it."""
        core = self.core
        self.attention = True
        slot = core.slots.find(buf, at)
        if slot >= 0 and self.sight(slot):
            self._step(slot, GOT_OFFER)
        elif slot < 0 and self._holds(buf, at):
            core.offers.add(buf, at, self.peer, OWED, self.epoch)
        else:
            core.offers.add(buf, at, self.peer, OFFERED, self.epoch)

    def _holds(self, id: bytearray, at: int) -> bool:
        """True for a message of the log, or deleted from it, whose group the peer sees."""
        store = self.core.store
        handle = store.find(id, at)
        if handle <= 0 or store.load(handle) != OK:
            return False
        group = self.core.members.group_slot(store.group)
        return group >= 0 and self.core.members.visibility(group, self.peer) != INVISIBLE

    def on_request(self, buf: bytearray, at: int) -> None:
        """The peer asks for this message; an unknown or unshared one is met with silence."""
        core = self.core
        slot = core.slots.find(buf, at)
        if slot < 0:
            handle = core.store.find(buf, at)
            slot = core.window.fetch(handle, self.peer) if handle > 0 else -1
        if slot < 0 or core.slots.flags[slot] & PENDING or self.sight(slot) != SHARED:
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
            outcome = core.graph.take_body(
                group, self._number(), core.id, buf, at + ID_SIZE, buf, body_at, body_size
            )
            self.took(outcome, group)

    def known(self, id: bytearray, at: int) -> bool:
        """True for a message that we have already: it is acknowledged again, nothing else.

        The peer sent its whole content, so the group is one that it sees.
        """
        core = self.core
        slot = core.slots.find(id, at)
        if slot >= 0:
            self._step(slot, GOT_MESSAGE)
            core.trace(self.now_ms, CODE_DUPLICATE, self._number(), 0, slot)
        elif core.store.find(id, at) > 0:
            core.offers.add(id, at, self.peer, OWED, self.epoch)
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
        offers = core.offers
        offers.drop_id(core.id, 0)
        if outcome == REFUSED or outcome == TOO_EARLY:  # noqa: SIM109 - a tuple is code
            core.box.count(COUNT_REFUSED, 1)
            if outcome == TOO_EARLY and core.slots.find(core.graph.missing_id, 0) < 0:
                offers.add(core.graph.missing_id, 0, self.peer, WANTED, self.epoch)
            return
        slot = core.graph.slot
        if slot >= 0:
            self._step(slot, GOT_MESSAGE)
            core.trace(self.now_ms, CODE_RECEIVED, self._number(), 0, slot)
        else:
            offers.add(core.id, 0, self.peer, OWED, self.epoch)
        if outcome == WAITING:
            core.graph.want_parents(slot, self.peer, self.epoch)
        elif outcome == ENTERED:
            core.entered(self.now_ms, group, self._number())

    def bad_record(self) -> None:
        """Count a malformed record."""
        self.core.malformed += 1
        self.core.box.count(COUNT_MALFORMED, 1)
