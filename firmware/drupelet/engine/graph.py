"""The message graph: a message enters the log after all its dependencies (BSP v1 5).

A message whose dependencies are all in the log enters it at once, if its client finds it valid.
Any other is pending, and its missing parents are requested. An invalid message is buried with all
that depends on it: its id stays, so that further copies are acknowledged and not taken in again.
Everything here is iterative: a chain costs passes over the pending table, not stack.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import ID_SIZE, SCRATCH_SIZE
from drupelet.base.memory import copy
from drupelet.engine.body import DELETE, INVALID, KEEP, SHARE, BodyReader, DefaultClient
from drupelet.engine.inbox import OFFERED
from drupelet.engine.members import FAMILY_MVDS, GROUP_UNORDERED, HEAD_EPHEMERAL, HEAD_PARENTS
from drupelet.store.states import (
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.inbox import Inbox
    from drupelet.engine.members import Members
    from drupelet.engine.outbox import Outbox
    from drupelet.engine.pending import Pending
    from drupelet.engine.ports import ClientPort, ControlPort
    from drupelet.store.ports import StorePort

# What became of a message that came in.
REFUSED = const(0)  # neither stored nor acknowledged: the peer sends it again
ENTERED = const(1)  # in the log
WAITING = const(2)  # pending
# Refused: its dependencies are missing, and the pending table or the store is full or has failed.
TOO_EARLY = const(3)
BURIED = const(4)  # invalid: acknowledged, and never taken in again

assert SCRATCH_SIZE >= 2 * ID_SIZE

_DEFAULT = DefaultClient()
# Dependencies precede the body: in the MVDS family, and in what remains of a deleted message.
HEADED = DefaultClient(HEAD_PARENTS)

_FROM_BUFFER = const(-1)
# Result of `missing` for a message that depends on an invalid one.
_POISONED = const(-100)


class Graph:
    """Decides if a message enters the log, waits, is refused or is buried."""

    # Deletes messages, and shares them late; only a node whose clients ask for that has one.
    control: "ControlPort | None" = None

    def __init__(
        self, store: "StorePort", members: "Members", pending: "Pending",
        outboxes: "list[Outbox]", inboxes: "list[Inbox]",
    ) -> None:  # fmt: skip
        self.store = store
        self.members = members
        self.pending = pending
        self.outboxes = outboxes
        self.inboxes = inboxes
        self.reader = BodyReader(store)  # of the message at hand
        self._clients: "list[ClientPort]" = [_DEFAULT] * members.groups_max()
        # Scratch of the whole node. In this class: a dependency, followed by the last one that is
        # missing, with which `deepest_absent` begins: until then, nobody else may write here.
        self.ids = bytearray(SCRATCH_SIZE)
        self.newest = 0  # the handle of the newest message of the log
        self.handle = 0  # of the message that was last taken in
        self.is_ephemeral = False  # do not acknowledge the copy that was identified last
        self.may_promote = True  # a pending message may have become ready
        self.must_look_again = True  # a pending message may have no row, or failed to enter
        self._row = 0  # where the pass over the pending table continues
        self._depends_on_private = False  # set by `missing`: a dependency is private
        self._depends_on_gone = False  # set by `missing`: a dependency exists nowhere any more

    def use_client(self, group: int, client: "ClientPort | None") -> None:
        """Set the client of a group (row); None: the default client."""
        self._clients[group] = client or _DEFAULT

    def finder(self, group: int, reader: BodyReader) -> "ClientPort":
        """Return the client that finds the dependencies in the body that a reader has open."""
        headed = self.members.family(group) == FAMILY_MVDS or reader.bare
        return HEADED if headed else self._clients[group]

    # --- taking in ---

    def take_body(
        self, group: int, source: int, id: bytearray, timestamp: "bytes | bytearray", ts_at: int,
        body: "bytes | bytearray", at: int, size: int,
    ) -> int:  # fmt: skip
        """Take in a message whose body is in a buffer; return what became of it.

        REFUSED, ENTERED, WAITING, TOO_EARLY, BURIED, or E_PEER for a message that depends on
        itself (MVDS). `group`: row; `source`: peer number, 0 for our own; `id`: 32 bytes at 0. Our
        own message is never buried (E_PEER instead), and never pending (TOO_EARLY).
        """
        self.reader.open_buffer(group, source, timestamp, ts_at, body, at, size)
        return self._take(group, source, id, _FROM_BUFFER, body, at)

    def take_part(self, group: int, source: int, id: bytearray, part: int) -> int:
        """Take in a message whose content is in a part file; return the same as `take_body`."""
        self.reader.open_part(group, source, part)
        return self._take(group, source, id, part, id, 0)

    def _take(
        self, group: int, source: int, id: bytearray, where: int, body: "bytes | bytearray",
        at: int,
    ) -> int:  # fmt: skip
        missing = self.missing(group)
        if missing > 0:
            if not source:
                return TOO_EARLY  # not stored: the publisher is told
            if self.members.family(group) == FAMILY_MVDS:
                from drupelet.engine.dependency_cycle import waits_for_itself

                if waits_for_itself(self, id):
                    return E_PEER  # keep the parents of the first copy
            if not self.pending.has_room(source):
                return TOO_EARLY
        verdict = SHARE
        if missing == 0:
            verdict = self._clients[group].validate(self.reader)
        if self.reader.has_failed:
            return REFUSED
        if missing < 0 or verdict == INVALID:
            return self._bury(group, id, 0, 0) if source else E_PEER
        if verdict == SHARE and self.is_ephemeral and source:
            verdict = KEEP  # an ephemeral message is not sent on
        handle = self._put(group, id, where, body, at, missing, verdict)
        if handle < 0:
            return TOO_EARLY if missing else REFUSED
        self.handle = handle
        if missing:
            self.pending.add(handle, group, source)
            return WAITING
        if source and self._depends_on_gone:
            self._ask_once(group, source)
        self._enter(id, handle, group, source, verdict)
        return ENTERED

    def _put(
        self, group: int, id: bytearray, where: int, body: "bytes | bytearray", at: int,
        missing: int, verdict: int,
    ) -> int:  # fmt: skip
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

    def _enter(self, id: bytearray, handle: int, group: int, source: int, verdict: int) -> None:
        """Follow up a message that entered the log, by the verdict of its client."""
        before = self.newest
        self.newest = handle
        self.may_promote = True
        if verdict == SHARE:
            for outbox in self.outboxes:
                outbox.enter(before, handle, id, group, source)
        elif verdict == DELETE and self.control is not None:
            self.control.delete(group, handle)

    def _state_by(self, group: int, verdict: int) -> int:
        """Return the state in which the message at hand enters the log, or a negative code.

        Private dependencies are shared first: after a power cut, nothing would do it. A message to
        be deleted enters as private, so that a power cut before that neither shares it nor loses
        what depends on it.
        """
        if verdict != SHARE:
            return STATE_PRIVATE
        if self._depends_on_private and self.control is not None:
            code = self.control.share(group, 0)
            if code != OK:
                return code
        return STATE_DELIVERED

    def _bury(self, group: int, ids: bytearray, at: int, handle: int) -> int:
        """Keep only the id of an invalid message; return BURIED, or REFUSED if the store fails."""
        reader = self.reader
        number = self.members.group_number(group)
        buried = self.store.bury(number, reader.source, ids, at, reader.timestamp, 0, handle)
        if buried < 0:
            return REFUSED
        self.handle = buried
        self.may_promote = True  # what depends on it is invalid as well
        return BURIED

    # --- dependencies ---

    def missing(self, group: int) -> int:
        """Return how many dependencies of the message at hand are not in the log.

        E_PEER if the body is malformed, _POISONED if a dependency is invalid. Neither means
        anything if the reader `has_failed`.
        """
        client = self.finder(group, self.reader)
        count = client.dependencies(self.reader)
        missing = 0
        self._depends_on_private = self._depends_on_gone = False
        for row in range(count):
            if not client.dependency_into(self.reader, row, self.ids):
                return E_PEER
            state = self._state(group)
            if state == STATE_INVALID:
                return _POISONED
            if state == STATE_PENDING:
                missing += 1
                copy(self.ids, ID_SIZE, self.ids, 0, ID_SIZE)
        if self.members.flags(group) & GROUP_UNORDERED:
            missing = 0  # the owner of the group wants messages at once, in any order
        return count if count < 0 else missing

    def _state(self, group: int) -> int:
        """Return the state of the dependency in `ids`; STATE_PENDING also if we do not have it, or
        it is in another group."""
        handle = self.store.find(self.ids, 0)
        if not handle and self.store.noted(self.ids, 0):
            self._depends_on_gone = True
            return STATE_GONE
        if handle <= 0 or self.store.load(handle) != OK:
            if handle:
                self.reader.has_failed = self.must_look_again = True
            return STATE_PENDING
        if self.store.group != self.members.group_number(group):
            return STATE_PENDING
        if self.store.private:
            self._depends_on_private = True
        return self.store.state

    def _ask_once(self, group: int, source: int) -> None:
        """Request dependencies that other peers lost from the sender of the message, once."""
        peer = self.members.peer_row(source)
        client = self.finder(group, self.reader)
        for row in range(client.dependencies(self.reader) if peer >= 0 else 0):
            if not client.dependency_into(self.reader, row, self.ids):
                continue
            if self._state(group) == STATE_GONE and self.store.find(self.ids, 0) <= 0:
                self.inboxes[peer].add(self.ids, 0, OFFERED, 0)

    def next_absent(self, row: int, parent: int) -> int:
        """Find the first dependency, from index `parent` on, of a pending message that we do not
        have at all; copy its id to `ids` and return its index, or -1."""
        group = self.pending.group(row)
        if not self.reader.open_stored(group, self.pending.handles[row]):
            return -1
        client = self.finder(group, self.reader)
        for index in range(parent, client.dependencies(self.reader)):
            if not client.dependency_into(self.reader, index, self.ids):
                break
            if self._state(group) == STATE_PENDING and self.store.find(self.ids, 0) <= 0:
                return index
        return -1

    def deepest_absent(self) -> bool:
        """From the missing dependency at ID_SIZE of `ids`, follow pending messages to the deepest
        ancestor that we do not have; copy its id to 0 of `ids`. False if there is none."""
        copy(self.ids, 0, self.ids, ID_SIZE, ID_SIZE)
        for _ in range(self.pending.rows_max + 1):
            handle = self.store.find(self.ids, 0)
            row = self.pending.row_of(handle)
            if row < 0:
                return handle <= 0
            group = self.pending.group(row)
            if not self.reader.open_stored(group, handle):
                return False
            if self.missing(group) <= 0:
                return False
            copy(self.ids, 0, self.ids, ID_SIZE, ID_SIZE)
        return False

    # --- entering later ---

    def promote(self) -> bool:
        """Move one pending message whose dependencies have arrived into the log, to `handle`.

        Call it until it returns False. After a pass that changed something, another one follows.
        """
        if self.must_look_again and self.may_promote and self._enter_without_row():
            return True
        pending = self.pending
        while self.may_promote or self._row:
            if not self._row:
                self.may_promote = False
            while pending.count and self._row < pending.rows_max:
                row = self._row
                self._row += 1
                group = pending.group(row)
                before = pending.handles[row]
                if before and self.reader.open_stored(group, before):
                    missing = self.missing(group)
                    if missing <= 0 and self._deliver_or_bury(row, before, group, missing):
                        return True
                elif before:
                    self.must_look_again = True
            self._row = 0
        if self.must_look_again:
            self.may_promote = True  # try again in the next epoch
        return False

    def _enter_without_row(self) -> bool:
        """Give rows to pending messages that have none, after a reboot or when rows were lacking;
        return True if one of them entered the log instead."""
        store = self.store
        self.must_look_again = False
        handle = 0
        while handle := store.next_pending(handle):
            group = self.members.group_row(store.group) if store.load(handle) == OK else -1
            if group >= 0 and self.pending.row_of(handle) < 0:
                for inbox in self.inboxes:
                    inbox.drop(store.id, 0)
                if not self.pending.add(handle, group, store.source):
                    self.must_look_again = True
                    missing = self.missing(group) if self.reader.open_stored(group, handle) else 1
                    if missing <= 0 and self._deliver_or_bury(-1, handle, group, missing):
                        return True
        return False

    def _deliver_or_bury(self, row: int, pending_handle: int, group: int, missing: int) -> bool:
        """End the wait of the pending message that the reader has open, at `pending_handle`.

        Returns True if it entered the log; else it was buried, or stays. `row`: its pending row,
        or -1. `missing`: 0, or negative if it is invalid.
        """
        source = self.reader.source
        verdict = self._clients[group].validate(self.reader) if not missing else INVALID
        if verdict == SHARE and source and self._is_stored_ephemeral(group):
            verdict = KEEP
        is_known = self.store.id_into(pending_handle, self.ids, 0)
        if self.reader.has_failed:
            self.must_look_again = True  # a read may succeed later
            return False
        if verdict == INVALID:
            if is_known and self._bury(group, self.ids, 0, pending_handle) == BURIED:
                self._end_wait(row, source, pending_handle)
            else:
                self.must_look_again = True
            return False
        handle = self._state_by(group, verdict)
        if handle > 0:
            handle = self.store.promote(pending_handle, handle)
        if handle < 0:
            self.must_look_again = True  # the log may have room in the next epoch
            return False
        self.handle = handle
        self._end_wait(row, source, pending_handle)
        self.store.id_into(handle, self.ids, 0)
        self._enter(self.ids, handle, group, source, verdict)
        return True

    def _end_wait(self, row: int, source: int, pending_handle: int) -> None:
        """Follow a message from the handle where it was pending to `self.handle`: the owed
        acknowledgement and a peer's `lost_until` move with it."""
        if row >= 0:
            self.pending.drop(row)
        if self.must_look_again:
            self.may_promote = True
        peer = self.members.peer_row(source)
        if peer >= 0:
            self.inboxes[peer].move_handle(pending_handle, self.handle)
            outbox = self.outboxes[peer]
            # The peer lost this message: under its new handle, too.
            if outbox.lost_until >= pending_handle:
                outbox.lost_until = max(outbox.lost_until, self.handle)

    def _is_stored_ephemeral(self, group: int) -> bool:
        if self.members.family(group) != FAMILY_MVDS:
            return False
        return self.reader.read_into(0, self.ids, 0, 1) == 1 and self.ids[0] & HEAD_EPHEMERAL != 0
