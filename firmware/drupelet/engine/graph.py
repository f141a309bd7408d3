"""The message graph: a message enters the log after everything that it depends on (BSP v1 5).

A message whose dependencies are all in the log is put there at once, if its client finds it valid.
Any other waits as pending; its missing parents are asked for by id, from its sender first. What is
invalid is buried, with all that depends on it: the id stays, so that it is acknowledged and never
taken in again. Everything here is iterative: a chain costs passes over the slots, never stack.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.base.limits import ID_SIZE, PENDING_PER_PEER_MAX, SCRATCH_SIZE
from drupelet.base.memory import copy
from drupelet.engine.body import DELETE, INVALID, KEEP, SHARE, BodyReader, DefaultClient
from drupelet.engine.members import FAMILY_MVDS, GROUP_UNORDERED, HEAD_EPHEMERAL, HEAD_PARENTS
from drupelet.engine.slots import EPHEMERAL, OWED, PEER_ROW, PENDING, STICK_LOST, USED, WANTED
from drupelet.engine.states import ACK, ACKING, HOLD
from drupelet.engine.window import Window
from drupelet.store.reader import (
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.members import Members
    from drupelet.engine.ports import ClientPort
    from drupelet.engine.slots import MessageSlots, OfferPool
    from drupelet.store.ports import StorePort

REFUSED = const(0)  # not taken in, not acknowledged: the peer sends it again
ENTERED = const(1)  # in the log
WAITING = const(2)  # pending
TOO_EARLY = const(3)  # refused because there is no room to wait for `ids`
BURIED = const(4)  # invalid: acknowledged, and never seen again

_DEFAULT = DefaultClient()
# Dependencies in front of the body: the MVDS family, and what a deleted message leaves.
HEADED = DefaultClient(HEAD_PARENTS)

# What there is to do (`Graph.todo`), and what the last message was.
_LEFT_OUT = const(1)  # a pending message has no slot yet, or no room to enter the log
SHORT = const(2)  # something came when there was no room, and is asked for no more
_PROMOTED = const(4)  # some message entered the log: call `promote` again
ASK_AGAIN = const(6)  # SHORT and _PROMOTED: ask for what pending messages lack
_PENDS = const(8)  # some slot may be pending: else there is no need to look
_PRIVATE = const(16)  # some dependency that was met, just now, is not shared
_NOTED = const(64)  # some dependency that was met, just now, never came
ONCE = const(32)  # the copy that was identified last is ephemeral
_FROM_BUFFER = const(-1)
# What `missing` says of a message that depends on an invalid one.
_POISONED = const(-100)


class Graph(Window):
    """Decides whether a message enters the log, waits, is refused or buried."""

    def __init__(
        self, store: "StorePort", members: "Members", slots: "MessageSlots", offers: "OfferPool"
    ) -> None:
        Window.__init__(self, store, members, slots, offers)
        self.reader = BodyReader(store)  # of the message that is being looked at
        self._clients: "list[ClientPort]" = [_DEFAULT] * members.groups_max()
        # A dependency; behind it the last one that was not met. `Core` has it for scratch, too.
        self.ids = bytearray(SCRATCH_SIZE)
        self.slot = -1  # of the message that was last taken in, -1 when it has none
        self.handle = 0
        self.refused = 0
        self.todo = _LEFT_OUT | _PROMOTED  # the store's have no slot yet

    def use_client(self, group: int, client: "ClientPort | None") -> None:
        """Let a client look after a group (row); None: the default one."""
        self._clients[group] = client or _DEFAULT

    def finder(self, group: int, reader: BodyReader) -> "ClientPort":
        """Who finds the dependencies in the body of a group that a reader has open."""
        headed = self.members.family(group) == FAMILY_MVDS or reader.bare
        return HEADED if headed else self._clients[group]

    # --- taking in ---

    def take_body(
        self, group: int, source: int, id: bytearray, timestamp: "bytes | bytearray", ts_at: int,
        body: "bytes | bytearray", at: int, size: int,
    ) -> int:  # fmt: skip
        """Take in a message whose body is in a buffer; what became of it.

        REFUSED, ENTERED, WAITING, TOO_EARLY or BURIED. `group`: row; `source`: peer number, 0 is
        ourselves; `id`: 32 bytes at 0. What we publish ourselves is never buried (E_PEER), and
        never waits (TOO_EARLY).
        """
        self.reader.open_buffer(group, source, timestamp, ts_at, body, at, size)
        return self._take(group, source, id, _FROM_BUFFER, body, at)

    def take_part(self, group: int, source: int, id: bytearray, part: int) -> int:
        """Take in a message whose content is in a part file; as `take_body`."""
        self.reader.open_part(group, source, part)
        return self._take(group, source, id, part, id, 0)

    def _take(
        self, group: int, source: int, id: bytearray, where: int, body: "bytes | bytearray",
        at: int,
    ) -> int:  # fmt: skip
        self.slot = -1
        missing = self.missing(group)
        if missing > 0 and not source:
            return TOO_EARLY  # and not kept: who publishes is told that it was refused
        if missing > 0 and self.members.family(group) == FAMILY_MVDS:
            from drupelet.engine.dependency_cycle import waits_for_itself

            if waits_for_itself(self, id):
                self.refused += 1
                return E_PEER  # the first copy's parents stand
        verdict = SHARE
        if missing == 0:
            verdict = self._clients[group].validate(self.reader)
        if missing < 0 or verdict == INVALID:
            return self._bury(group, id, 0, 0) if source else E_PEER
        if verdict == SHARE and self.todo & ONCE and source:
            verdict = KEEP  # it goes no further
        handle = self._put(group, id, where, body, at, missing, verdict)
        if handle < 0:
            self.refused += 1
            return TOO_EARLY if missing else REFUSED
        self.handle = handle
        if missing:
            self.slot = self.admit(id, 0, handle, group, source, True)
            assert self.slot >= 0  # there was room before the message was stored
            self.todo |= _PENDS
            return WAITING
        if verdict == SHARE:
            self.slot = self.admit(id, 0, handle, group, source, False)
        if source and self.todo & _NOTED:
            from drupelet.engine.unavailable import ask_once

            ask_once(self, group, source)
        if self.slot >= 0 and self.todo & ONCE:
            self.slots.flags[self.slot] |= EPHEMERAL
        self._enter(self.slot, handle, group, verdict)
        return ENTERED

    def _put(
        self, group: int, id: bytearray, where: int, body: "bytes | bytearray", at: int,
        missing: int, verdict: int,
    ) -> int:  # fmt: skip
        if missing and (self.room(True) < 0 or self._has_too_many_waiting()):
            return E_CAPACITY
        state = STATE_PENDING if missing else self._state_by(group, verdict)
        if state < 0:
            return state
        reader = self.reader
        number = self.members.group_number(group)
        if where == _FROM_BUFFER:
            return self.store.put(
                number, reader.source, id, 0, reader.timestamp, 0, body, at, reader.size, state
            )
        return self.store.put_part(where, number, reader.source, id, 0, state)

    def _has_too_many_waiting(self) -> bool:
        """True when the peer that sent the reader's message has its share of pending ones."""
        if self.slots.count <= PENDING_PER_PEER_MAX:
            return False
        peer = self.members.peer_slot(self.reader.source)
        return self.pending_count(peer) >= PENDING_PER_PEER_MAX

    def _enter(self, slot: int, handle: int, group: int, verdict: int) -> None:
        """A message is in the log: follow up what its client said."""
        self.entered(slot, handle)
        self.todo |= _PROMOTED
        if verdict == DELETE:
            from drupelet.engine.control import delete

            delete(self, group, handle)

    def _state_by(self, group: int, verdict: int) -> int:
        """The state in which the reader's message enters the log, or a code.

        What it depends on is shared before: it would not be validated again after a power cut.
        One to be deleted is private until then: no cut shares it, and what is behind it is found.
        """
        if verdict != SHARE:
            return STATE_PRIVATE
        if self.todo & _PRIVATE:
            from drupelet.engine.control import share

            code = share(self, group, 0)
            if code != OK:
                return code
        return STATE_DELIVERED

    def _is_ephemeral(self, group: int) -> bool:
        if self.members.family(group) != FAMILY_MVDS:
            return False
        return self.reader.read_into(0, self.ids, 0, 1) == 1 and self.ids[0] & HEAD_EPHEMERAL != 0

    def _bury(self, group: int, ids: bytearray, at: int, handle: int) -> int:
        """Keep only the id of an invalid message; BURIED, or REFUSED when there is no room."""
        reader = self.reader
        number = self.members.group_number(group)
        buried = self.store.bury(number, reader.source, ids, at, reader.timestamp, 0, handle)
        if buried < 0:
            self.refused += 1
            return REFUSED
        self.todo |= _PROMOTED  # what depends on it is invalid, too
        return BURIED

    # --- dependencies ---

    def missing(self, group: int, peer: int = -1, epoch: int = 0) -> int:
        """For how many dependencies, not in the log, the reader's message has to wait.

        E_PEER when its client cannot read the body, _POISONED when one of them is invalid.
        `peer`: whom to ask for those that nobody sent yet.
        """
        client = self.finder(group, self.reader)
        count = client.dependencies(self.reader)
        missing = 0
        self.todo &= ~(_PRIVATE | _NOTED)
        for row in range(count):
            if not client.dependency_into(self.reader, row, self.ids):
                return E_PEER
            state = self.state(group)
            if state == STATE_INVALID:
                return _POISONED
            if state == STATE_PENDING:
                missing += 1
                copy(self.ids, ID_SIZE, self.ids, 0, ID_SIZE)
                if peer >= 0 and self.slots.find(self.ids, 0) < 0:
                    wanted = self.offers.add(self.ids, 0, peer, WANTED, epoch)
                    self.todo |= SHORT if wanted < 0 else 0
        if self.members.flags(group) & GROUP_UNORDERED:
            missing = 0  # the owner of the group wants it now, not in its place
        return count if count < 0 else missing

    def state(self, group: int) -> int:
        """The state of the dependency in `ids`; STATE_PENDING when it is not there, either."""
        id = self.ids
        slot = self.slots.find(id, 0)
        if slot >= 0:
            met = self.slots.group(slot) == group and not self.slots.flags[slot] & PENDING
            return STATE_DELIVERED if met else STATE_PENDING
        handle = self.store.find(id, 0)
        if handle <= 0 and self.store.noted(id, 0):
            self.todo |= _NOTED
            return STATE_GONE
        if handle <= 0 or self.store.load(handle) != OK:
            return STATE_PENDING
        if self.store.group != self.members.group_number(group):
            return STATE_PENDING
        self.todo |= _PRIVATE if self.store.private else 0
        return self.store.state

    def want_parents(self, slot: int, peer: int = -1, epoch: int = 0) -> int:
        """Ask the peer, if one is given, for the missing parents of the pending message in `slot`.

        What `missing` says; 0 for a message that cannot be read.
        """
        group = self.slots.group(slot)
        there = self.reader.open_stored(group, self.slots.handles[slot])
        return self.missing(group, peer, epoch) if there else 0

    # --- entering later ---

    def promote(self) -> bool:
        """Put one pending message whose parents have arrived into the log, at `handle`.

        Call until it returns False: each call is a pass over the slots, and buries what depends
        on an invalid message.
        """
        if not self.todo & _PROMOTED:
            return False
        short = self.todo & SHORT
        self.todo ^= short
        if self.todo & _LEFT_OUT:
            from drupelet.engine.recover_pending import readmit

            self.todo |= _PENDS
            if readmit(self):
                self.todo ^= _LEFT_OUT
        slots = self.slots
        while self.todo & _PROMOTED:
            steps = slots.count if self.todo & _PENDS else 0
            self.todo &= ~(_PROMOTED | _PENDS)
            for step in range(steps):
                slot = (slots.oldest + step) % slots.count
                if not slots.flags[slot] & PENDING:
                    continue
                self.todo |= _PENDS
                if not self.reader.open_stored(slots.group(slot), slots.handles[slot]):
                    continue
                missing = self.missing(slots.group(slot))
                if missing > 0 and short:
                    self.ask_again(slot)  # what it lacks may have come when there was no room
                elif missing <= 0 and self._settle(slot, missing):
                    self.todo |= short  # the rest of them in the next call
                    return True
            # Once more when something was buried: what depends on it may come before it.
        if self.todo & (_LEFT_OUT | SHORT):
            self.todo |= _PROMOTED  # tried again in the next epoch
        return False

    def _settle(self, slot: int, missing: int) -> bool:
        """A pending message waits no longer: True when it entered the log, else it is buried."""
        slots = self.slots
        group = slots.group(slot)
        verdict = self._clients[group].validate(self.reader) if not missing else INVALID
        old = slots.handles[slot]
        if verdict == INVALID:
            known = slots.id_into(slot, self.ids, 0)
            if known and self._bury(group, self.ids, 0, old) == BURIED:
                self.offers.drop_id(self.ids, 0)
                self._let_go(slot)
            else:
                self.todo |= _LEFT_OUT
            return False
        if verdict == SHARE and self.reader.source and self._is_ephemeral(group):
            verdict = KEEP
        handle = self._state_by(group, verdict)
        if handle > 0:
            handle = self.store.promote(old, handle)
        if handle < 0:
            self.todo |= _LEFT_OUT  # a full log may have room in the next epoch
            return False
        self.handle = handle
        # A peer that lost what waited here lacks it under its new handle, too. (No peer: below 0.)
        lost = self.members.peer_slot(self.reader.source) * PEER_ROW + STICK_LOST
        if lost >= 0 and self.rows[lost] >= old:
            self.rows[lost] = handle
        slots.handles[slot] = handle
        slots.flags[slot] = USED
        self._enter(slot if verdict == SHARE else -1, handle, group, verdict)
        if verdict != SHARE:
            self.release(slot)
        return True

    def release(self, slot: int) -> None:
        """Free a slot; acknowledgements that are owed for it are owed without one."""
        if self.slots.id_into(slot, self.ids, 0):
            self._let_go(slot)
        else:
            self.reset_slot(slot)

    def _let_go(self, slot: int) -> None:
        """`ids` begins with the id of the message in the slot."""
        slots = self.slots
        for peer in range(self.members.peers):
            if slots.states[peer * slots.count + slot] & (ACK | ACKING):
                self.offers.add(self.ids, 0, peer, OWED, 0)
        self.reset_slot(slot)

    def ask_again(self, slot: int) -> None:
        """Ask for a pending message's parents: its source, or another if that is gone."""
        members = self.members
        group = self.slots.group(slot)
        known = self.store.load(self.slots.handles[slot]) == OK
        peer = members.peer_slot(self.store.source) if known else -1
        for row in range(members.peers):
            if peer < 0 or not members.visibility(group, peer):
                peer = row
        if peer >= 0 and members.visibility(group, peer):
            # As its epoch: which one of them has an only entry is drawn anew for each refusal.
            self.want_parents(slot, peer, self.refused & 0xFFFF)

    def lacks(self) -> bool:
        """Put what the id at ID_SIZE of `ids` waits for in its place; True if nobody sent it yet.

        What pends has asked for its parents, but others may have taken its turn since.
        """
        for _ in range(self.slots.count):
            slot = self.slots.find(self.ids, ID_SIZE)
            if slot < 0 or self.want_parents(slot) <= 0:
                return slot < 0
        return False

    def go_back(self, peer: int, handle: int) -> None:
        """Have the cursor come to a message again that it has passed."""
        self.cursors[peer] = 0
        before = self.store.next(0)
        while 0 < before < handle:
            self.cursors[peer] = before
            before = self.store.next(before)
        self.changed(peer)

    def waits(self, peer: int) -> bool:
        """True while the log goes on beyond the slots that the peer may have, or may itself."""
        goes_on = self.cursors[peer] != self.newest and self._has_share(peer)
        return goes_on or self.todo & _PROMOTED != 0

    def pending_count(self, peer: int = -1) -> int:
        """Messages that wait for a parent; of a peer (row): those that it is known to hold."""
        slots = self.slots
        count = 0
        for slot in range(slots.count):
            if slots.flags[slot] & PENDING:
                count += peer < 0 or slots.states[peer * slots.count + slot] & HOLD > 0
        return count
