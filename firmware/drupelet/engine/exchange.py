"""One peer on one link, for every wire profile: handle records, find what is due (BSP v1 4).

A profile calls `on_*` for each record that it parses, and `take_*`, `next_message` and
`put_message` to learn what to write. Nothing here allocates, except for modules that are imported
at first use (`control`, `unavailable`), and no input of a peer raises an exception. Toward a peer
that does not see a group, everything in that group is treated as if it did not exist.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.events import (
    CODE_ACKED,
    CODE_DUPLICATE,
    CODE_OFFERED,
    CODE_RECEIVED,
    CODE_REQUESTED,
    CODE_SENT,
    COUNT_CARRIERS,
    COUNT_DUPLICATES,
    COUNT_MALFORMED,
    COUNT_REFUSED,
    COUNT_RETRANSMITS,
)
from drupelet.base.limits import (
    ASKED_TAGS_MAX,
    CONTENT_HEADER_SIZE,
    GONE_HANDLE,
    ID_PREFIX_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    TIMESTAMP_SIZE,
)
from drupelet.base.memory import copy, get_u16
from drupelet.base.time_ms import epochs_since
from drupelet.engine.backoff import counted
from drupelet.engine.graph import ENTERED, REFUSED, TOO_EARLY
from drupelet.engine.inbox import (
    BY_ROW,
    CROSSED,
    ENTRY_SIZE,
    OFFERED,
    OWED,
    OWED_BUNDLING,
    OWED_TWICE,
    REQUESTED,
)
from drupelet.engine.members import FAMILY_MVDS, INVISIBLE, SHARED
from drupelet.engine.outbox import NOT_SHARED, ROW_SIZE
from drupelet.engine.pace import ACKS, REPLIES, Pace, note_answer
from drupelet.engine.states import (
    BUNDLED,
    DO_OFFER,
    DO_SEND,
    EPHEMERAL,
    GOT_ACK,
    GOT_MESSAGE,
    GOT_OFFER,
    GOT_REQUEST,
    HOLD,
    INDEXED,
    REQUEST,
    WANTED,
)
from drupelet.store.states import STATE_DELETED, STATE_GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.inbox import Inbox
    from drupelet.engine.outbox import Outbox
    from drupelet.engine.ports import TopicPort

# Offsets in the counters of one carrier (docs/SPEC.md 6), which has a half for each direction:
# bytes for each of the record types ACK, MESSAGE, OFFER, REQUEST, then bytes of the link's own
# records; from _RECORDS on, record counts in the same order; bytes of black boxes.
_IN = const(16)
_RECORD_BYTES = const(2)
_LINK_BYTES = const(7)
_RECORDS = const(8)
_TELEMETRY_BYTES = const(15)
_MESSAGE = const(1)
_COUNTERS = const(32)  # per carrier

# Indices in `Exchange._scan`: how far each scan of the present payload has come. The scans cover
# owed rows, entries that are owed an acknowledgement, entries to request, pending rows and the
# parents of the current one, and outbox rows for messages and for offers. After them come the
# number of parents that were requested, and the 24-bit tags of the last ASKED_TAGS_MAX of them.
_OWED_ROW = const(0)
_OWED_ENTRY = const(1)
_REQUEST_ENTRY = const(2)
_PENDING_ROW = const(3)
_PARENT = const(4)
_MESSAGE_ROW = const(5)
_OFFER_ROW = const(6)
_ASKED = const(7)
_ASKED_TAGS = const(8)


class Exchange:
    """The tables of a node as seen from one link to a peer."""

    topic: "TopicPort | None" = None  # a topic that the peer hears, too: skip what it carries
    is_quiet = False  # something else shows what the peer lacks: send only on request
    group_only = -1  # on a topic: the only group (row) that it carries
    visits = False  # True for a stick, which has no epochs
    codec_row = 0  # the row of this link in the tables of a codec that several links share
    long_offset = 0  # on a stick: bytes of the long message that have been written

    def __init__(self, core: "Core", peer: int, carrier: int, family: int) -> None:
        """`family` says whose groups the link carries. MVDS repeats a REQUEST or MESSAGE until it
        is answered; BSP sends a REQUEST once and repeats the OFFER."""
        self.core = core
        self.peer = peer  # row
        self.carrier = carrier
        self.family = family
        self.pace = Pace(self)
        self.interactive = False  # offer messages before sending them
        self.attention = True  # something may be due
        self.long_handle = 0  # the message that is being sent in pieces; 0: none
        self.long_last = 0  # the long message that was sent before it
        self._scan = [0] * (_ASKED_TAGS + ASKED_TAGS_MAX)

    def rewind(self) -> None:
        """Reset all scans, at the start of a payload."""
        for scan in range(_ASKED_TAGS):
            self._scan[scan] = 0

    def rewind_inbox(self) -> None:
        """Reset the scans for acknowledgements and requests, since received records may add some.

        The scan for messages goes on: otherwise a peer that repeats a REQUEST would get the
        message several times in one payload.
        """
        for scan in range(_MESSAGE_ROW):
            self._scan[scan] = 0

    @property
    def outbox(self) -> "Outbox":
        """The outbox of the peer."""
        return self.core.outboxes[self.peer]

    @property
    def inbox(self) -> "Inbox":
        """The inbox of the peer."""
        return self.core.inboxes[self.peer]

    @property
    def epoch(self) -> int:
        """The epoch of the peer's clock."""
        return self.core.clocks.epochs[self.peer]

    @property
    def peer_number(self) -> int:
        """The peer's number in the store."""
        return self.core.members.peer_number(self.peer)

    # --- what the peer sees ---

    def sees(self, group: int) -> int:
        """Return what the peer sees of a group (row) on this link, which carries one family."""
        members = self.core.members
        if members.family(group) != self.family or (0 <= self.group_only != group):
            return INVISIBLE
        return members.visibility(group, self.peer)

    def sees_id(self, id: bytearray, at: int) -> bool:
        """Return True if the group with this 32-byte id exists for the peer on this link."""
        group = self.core.members.group_of(id, at)
        return group >= 0 and self.sees(group) != INVISIBLE

    def _find_visible(self, id: bytearray, at: int) -> int:
        """Return the handle of a message that is or was in the store and load it; 0 if there is
        none, or if the peer does not see its group."""
        store = self.core.store
        handle = store.find(id, at)
        if handle <= 0 or store.load(handle) != OK:
            return 0
        group = self.core.members.group_row(store.group)
        return handle if group >= 0 and self.sees(group) != INVISIBLE else 0

    def _is_carried(self, group: int, row: int) -> bool:
        """Return True if the topic beside this link carries messages of the group to the peer.

        `row`: the message's outbox row; -1 for an acknowledgement.
        """
        return self.topic is not None and self.topic.carries(self.peer, group, row)

    # --- in: acknowledgements ---

    def on_ack(self, buf: bytearray, at: int) -> None:
        """Handle an ACK: the peer holds this message."""
        core = self.core
        row = self.outbox.find(buf, at)
        if row < 0 and core.refill(self.peer):
            row = self.outbox.find(buf, at)
        if row >= 0:
            self.acked(row)
        else:
            handle = self._find_visible(buf, at)
            if handle:
                self._note_held(handle, GOT_ACK)

    def acked(self, row: int) -> None:
        """Handle an ACK of the message in an outbox row."""
        outbox = self.outbox
        group = outbox.group(row)
        if not self.sees(group):
            return
        was_open = outbox.is_open(row)
        sends = outbox.sends(row)
        outbox.step(row, GOT_ACK)
        if not was_open:
            return
        self.pace.stalled = -1
        if sends:
            note_answer(self.pace.answers, ACKS, self.epoch, outbox.epoch(row), sends == 1)
        core = self.core
        self._trace(CODE_ACKED, 0, core.is_box(group), outbox.rows, row * ROW_SIZE)
        handle = outbox.handles[row]
        core.note_long_held(self.peer, handle, True)
        core.remove_transient(handle, group, outbox.state(row) & EPHEMERAL != 0)

    def _note_held(self, handle: int, event: int) -> None:
        """Record that the peer holds the message that the store has loaded. It may have been
        deleted here: its id may go once every peer holds it. Overwrites what the store loaded."""
        core = self.core
        group = core.members.group_row(core.store.group)
        row = self.outbox.note_held(handle, group, event)
        core.note_long_held(self.peer, handle, event == GOT_ACK)
        if core.store.missing:
            from drupelet.engine.control import on_held

            on_held(core, self.peer, handle)
        if row >= 0:
            core.remove_transient(handle, group, self.outbox.state(row) & EPHEMERAL != 0)

    def on_gone(self, buf: bytearray, at: int) -> None:
        """Handle two ACKs in a row, the answer to our REQUEST for a message that no longer
        exists at the peer (docs/SPEC.md 4.2)."""
        from drupelet.engine.unavailable import give_up

        give_up(self.core, self.peer, buf, at)

    # --- in: offers and requests ---

    def on_offer(self, buf: bytearray, at: int) -> None:
        """Handle an OFFER: acknowledge the message if we have it, else request it."""
        self.attention = True
        handle = self._find_visible(buf, at)
        if handle:
            self._owe_reply(handle, buf, at)
            self._note_held(handle, GOT_OFFER)
        elif not self.core.long.tell_if_coming(self, buf, at):
            self.inbox.add(buf, at, OFFERED, self.epoch, self.core.link_number)

    def _owe_reply(self, handle: int, id: bytearray, at: int) -> None:
        """Owe an acknowledgement of a message that we have and that the store has loaded."""
        if handle >= GONE_HANDLE:
            entry = self.inbox.add(id, at, OWED, self.epoch, self.core.link_number)
            if entry >= 0 and not self.inbox.is_whole(entry):
                self.inbox.set_kind(entry, OFFERED)  # an ACK needs the whole id
        else:
            group = self.core.members.group_row(self.core.store.group)
            row = self.outbox.row_of(handle)
            has_crossed = row >= 0 and self.outbox.sends(row) > 0
            state = BY_ROW | CROSSED if has_crossed else BY_ROW
            self.inbox.owe(handle, group, self.core.link_number, state)

    def on_request(self, buf: bytearray, at: int) -> None:
        """Handle a REQUEST: make the message due; ignore an id that is unknown or not shared.

        A message that our log dropped, or that nobody has any more and never came to us, is
        answered with two ACKs (docs/SPEC.md 4.2). A message that a client deleted still has its
        edges, and is not answered: the deletion was intended.
        """
        core = self.core
        store = core.store
        row = self.outbox.find(buf, at)
        if row < 0 and core.refill(self.peer):
            row = self.outbox.find(buf, at)
        if row < 0 or not self._revive_or_drop(row):
            handle = self._find_visible(buf, at)
            row = self.outbox.want(handle) if handle else -1
            is_gone = not handle and core.members.shares(self.peer) != 0 and store.noted(buf, at)
            if row == NOT_SHARED and not store.edges_size:
                is_gone = store.state == STATE_GONE or store.state == STATE_DELETED
            if is_gone:
                self.inbox.add(buf, at, OWED_TWICE, self.epoch)
                self.attention = True
        if row >= 0:
            self.requested(row)

    def requested(self, row: int) -> None:
        """Handle a REQUEST for the message in an outbox row: it may go at once."""
        outbox = self.outbox
        if self.sees(outbox.group(row)) != SHARED or not self._revive_or_drop(row):
            return
        outbox.step(row, GOT_REQUEST)
        outbox.make_due(row)
        outbox.unmark(row, BUNDLED)
        self.attention = True

    def _revive_or_drop(self, row: int) -> bool:
        """Return True if the message in a row can be sent. If the peer held it before, and the log
        does not have it any more, drop the row."""
        outbox = self.outbox
        if outbox.state(row) & HOLD and self.sees(outbox.group(row)) == SHARED:
            if outbox.load_shared(outbox.handles[row]) < 0:
                outbox.drop(row)
                return False
            self.core.store.unsettle()  # keep it in the log
        return True

    # --- in: messages ---

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """Handle a MESSAGE: group id (32 bytes), timestamp (8), stored body (docs/SPEC.md 4).

        Each part has its own buffer and offset.
        """
        core = self.core
        core.message_handle = 0
        core.is_telemetry = False
        row = core.members.group_of(group, group_at)
        if row < 0 or not self.sees(row):
            core.unknown += 1
            return
        core.is_telemetry = core.is_box(row)
        if core.identify(row, stamp, stamp_at, body, at, size) != OK:
            self.bad_record()
        elif not self.reack_if_known(core.id):
            if size > INLINE_SIZE_MAX:
                outcome = self._take_long(row, stamp, stamp_at, body, at, size)
            else:
                outcome = core.graph.take_body(
                    row, self.peer_number, core.id, stamp, stamp_at, body, at, size
                )
            self.after_accept(outcome, row)

    def _take_long(
        self, row: int, stamp: bytearray, stamp_at: int, body: bytearray, at: int, size: int
    ) -> int:
        """Write a body that exceeds INLINE_SIZE_MAX to a part file, and take it in from there.

        Returns what became of it, as `Graph.take_part`; REFUSED if there is no part file.
        """
        core = self.core
        store = core.store
        part = core.long.claim_part(core.id, 0, True)
        if part < 0:
            return REFUSED
        scratch = core.graph.ids
        copy(scratch, 0, core.members.group_ids, row * ID_SIZE, ID_SIZE)
        copy(scratch, ID_SIZE, stamp, stamp_at, TIMESTAMP_SIZE)
        store.spool.part_drop(part)
        code = store.spool.part_open(part, core.id, 0, CONTENT_HEADER_SIZE + size)
        if code >= 0:
            code = store.spool.part_append(part, scratch, 0, CONTENT_HEADER_SIZE)
        if code == OK:
            code = store.spool.part_append(part, body, at, size)
        outcome = REFUSED
        if code == OK:
            outcome = core.graph.take_part(row, self.peer_number, core.id, part)
        store.spool.part_drop(part)
        return outcome

    def reack_if_known(self, id: bytearray) -> bool:
        """Return True for a message that we have: the peer holds it, and is owed an answer. True
        also if the flash cannot tell: nothing is taken in or owed, and the peer sends it again.

        The peer sent the whole content, so it sees the group. Whether the message is ephemeral,
        and thus not acknowledged, is taken from the copy that the peer sent: the id does not cover
        that flag, so copies of other peers may differ.
        """
        core = self.core
        handle = core.store.find(id, 0)
        if not handle:
            return False
        if handle < 0 or core.store.load(handle) != OK:
            core.refused += 1
            return True
        self.core.message_handle = handle
        self.inbox.drop(id, 0)  # it may have been requested while its group was hidden
        if not core.graph.is_ephemeral:
            self._owe_reply(handle, id, 0)
            self._note_held(handle, GOT_MESSAGE)
            self._trace(CODE_DUPLICATE, 0, core.is_telemetry, id, 0)
        core.duplicates += 1
        core.box.count(COUNT_DUPLICATES, 1)
        self.attention = True
        return True

    def reack_by_key(self, key: bytearray, at: int) -> bool:
        """Return True if we have the message whose id begins with these 8 bytes, as a piece of a
        long body says it. It is acknowledged if the peer sees its group.

        False for a private message: it may be ephemeral, and only the head of the whole copy says
        whether it is acknowledged.
        """
        store = self.core.store
        handle = store.find(key, at, ID_PREFIX_SIZE)
        if handle <= 0 or handle >= GONE_HANDLE or store.load(handle) != OK or store.private:
            return False
        group = self.core.members.group_row(store.group)
        if group >= 0 and self.sees(group):
            self.core.is_telemetry = self.core.is_box(group)
            self.inbox.owe(handle, group, 0, BY_ROW)
            self._note_held(handle, GOT_MESSAGE)
        return True

    def after_accept(self, outcome: int, group: int) -> None:
        """Update the tables after the graph took in or refused the message with id `core.id`."""
        core = self.core
        if outcome == E_PEER:
            self.bad_record()
            return
        self.attention = True
        inbox = self.inbox
        entry = inbox.find(core.id, 0)
        if entry >= 0 and inbox.kind(entry) == REQUESTED and inbox.sends(entry):
            was_asked_once = inbox.sends(entry) == 1
            answers = self.pace.answers
            note_answer(answers, REPLIES, self.epoch, inbox.epoch(entry), was_asked_once)
        for other in core.inboxes:
            other.drop(core.id, 0)
        if outcome == REFUSED or outcome == TOO_EARLY:  # noqa: SIM109 - a tuple is code
            core.refused += 1
            core.box.count(COUNT_REFUSED, 1)
            if outcome == TOO_EARLY and core.graph.deepest_absent():
                inbox.ask(core.graph.ids, 0, self.epoch)
            return
        core.message_handle = core.graph.handle  # promotion overwrites it
        if not core.graph.is_ephemeral:
            inbox.owe(core.graph.handle, group, core.link_number, 0)
            self._trace(CODE_RECEIVED, 0, core.is_telemetry, core.id, 0)
        if outcome == ENTERED:
            core.after_entry(core.now_ms, group, self.peer_number)
        else:
            core.promote(core.now_ms)  # if it is invalid, bury what depends on it

    def bad_record(self) -> None:
        """Count a malformed record."""
        self.core.malformed += 1
        self.core.box.count(COUNT_MALFORMED, 1)

    # --- out: acknowledgements ---

    @property
    def is_crossed_pass(self) -> bool:
        """True while `take_ack` returns messages of which copies have crossed on the way.

        The peer may no longer have a number for these, so they come last, in a set of their own.
        """
        return self._scan[_OWED_ROW] > self.inbox.owed_end

    def take_ack(self, buf: bytearray, at: int) -> int:
        """Write the next 32-byte id to acknowledge; return 1 + the peer's number for it (0: it
        gave none), or 0 if there is no id."""
        inbox = self.inbox
        store = self.core.store
        scan = self._scan
        while scan[_OWED_ROW] < 2 * inbox.owed_end:
            row = scan[_OWED_ROW] % inbox.owed_end
            scan[_OWED_ROW] += 1
            if not inbox.is_owed(row) or inbox.is_crossed(row) != self.is_crossed_pass:
                continue
            group = inbox.owed_group(row)
            if self.sees(group) and not self._is_carried(group, -1):
                self.core.message_handle = inbox.owed(row)
                number = inbox.take_owed(row, self.visits)
                # Skip a record that reclaim removed: a peer that has the message sends it again.
                if store.id_into(self.core.message_handle, buf, at):
                    return 1 + number
        return self._take_ack_of_log(buf, at) or self._take_ack_by_id(buf, at)

    def _take_ack_of_log(self, buf: bytearray, at: int) -> int:
        inbox = self.inbox
        store = self.core.store
        while inbox.owed_from:
            handle = inbox.owed_from
            inbox.owed_from = max(store.next(handle), 0)  # copies cover what a read hid
            if store.load(handle) == OK and store.source == self.peer_number:
                group = self.core.members.group_row(store.group)
                if group < 0:
                    continue
                if self.sees(group) and not self._is_carried(group, -1):
                    copy(buf, at, store.id, 0, ID_SIZE)
                    self.core.message_handle = handle
                    return 1
                if self.core.members.visibility(group, self.peer) != INVISIBLE:
                    inbox.owe(handle, group, 0, BY_ROW)  # left to another link to the peer
        return 0

    def _take_ack_by_id(self, buf: bytearray, at: int) -> int:
        inbox = self.inbox
        scan = self._scan
        while scan[_OWED_ENTRY] < min(inbox.end(), inbox.offers_max):
            entry = scan[_OWED_ENTRY]
            kind = inbox.kind(entry)
            if kind < OWED or kind > OWED_TWICE:
                scan[_OWED_ENTRY] = entry + 1
                continue
            copy(buf, at, inbox.entries, entry * ENTRY_SIZE, ID_SIZE)
            self.core.message_handle = 0
            if kind == OWED_TWICE:
                inbox.set_kind(entry, OWED)  # GONE is sent as two ACKs: stay here
            else:
                inbox.set_kind(entry, OWED_BUNDLING if self.visits else 0)
                scan[_OWED_ENTRY] = entry + 1
            return 1 + inbox.entry_number(entry)
        return 0

    # --- out: requests ---

    def take_request(self, buf: bytearray, at: int, prefixes: bool = False) -> int:
        """Write the next id to request; return what `take_ack` returns.

        Offered ids come first, then missing parents of the peer's pending messages. `prefixes`:
        also ids of which only 8 bytes are known, followed by zeros.
        """
        inbox = self.inbox
        scan = self._scan
        while scan[_REQUEST_ENTRY] < inbox.end():
            entry = scan[_REQUEST_ENTRY]
            scan[_REQUEST_ENTRY] = entry + 1
            kind = inbox.kind(entry)
            if kind == OFFERED:
                due = True
            else:
                sends = inbox.sends(entry)
                due = kind == REQUESTED and self._may_ask(sends, inbox.epoch(entry))
            if due and (prefixes or inbox.is_whole(entry)):
                if kind == OFFERED:
                    inbox.set_kind(entry, REQUESTED if self.family == FAMILY_MVDS else 0)
                inbox.note_asked(entry, self.epoch)
                self._write_request(buf, at, inbox.entries, entry * ENTRY_SIZE)
                return 1 + inbox.entry_number(entry)
        return self._take_parent(buf, at)

    def _may_ask(self, sends: int, asked_epoch: int) -> bool:
        return self.visits or self.pace.ask_wait(sends, asked_epoch) <= 0

    def _take_parent(self, buf: bytearray, at: int) -> bool:
        """Write the next missing parent of the peer's pending messages; False if there is none."""
        core = self.core
        pending = core.pending
        ids = core.graph.ids
        scan = self._scan
        while pending.count and scan[_PENDING_ROW] < pending.rows_max:
            row = scan[_PENDING_ROW]
            if scan[_PARENT] or (
                pending.handles[row]
                and self._is_asked_for(row)
                and self._may_ask(pending.sends(row), pending.epoch(row))
            ):
                parent = core.graph.next_absent(row, scan[_PARENT])
                if not scan[_PARENT]:
                    pending.note_asked(row, self.epoch)
                if parent >= 0:
                    scan[_PARENT] = parent + 1
                    if self.inbox.find(ids, 0) < 0 and self._note_new(ids):
                        self._write_request(buf, at, ids, 0)
                        return True
                    continue
            scan[_PENDING_ROW] = row + 1
            scan[_PARENT] = 0
        return False

    def _is_asked_for(self, row: int) -> bool:
        """Return True if the parents of a pending message are to be requested from this peer: it
        sent the message, or the peer that sent it is gone or no longer sees the group."""
        pending = self.core.pending
        members = self.core.members
        group = pending.group(row)
        if not self.sees(group):
            return False
        source = members.peer_row(pending.source(row))
        return source == self.peer or source < 0 or not members.visibility(group, source)

    def _note_new(self, id: bytearray) -> bool:
        """Add an id to the last ones requested in this payload; False if it is one of these."""
        scan = self._scan
        tag = id[0] << 16 | get_u16(id, 1)
        for asked in range(min(scan[_ASKED], ASKED_TAGS_MAX)):
            if scan[_ASKED_TAGS + asked] == tag:
                return False
        scan[_ASKED_TAGS + scan[_ASKED] % ASKED_TAGS_MAX] = tag
        scan[_ASKED] += 1
        return True

    def _write_request(self, buf: bytearray, at: int, ids: bytearray, id_at: int) -> None:
        core = self.core
        core.box.log_id(core.now_ms, CODE_REQUESTED, self.peer_number, 0, ids, id_at)
        copy(buf, at, ids, id_at, ID_SIZE)

    # --- out: messages and offers ---

    def next_message(self) -> bool:
        """Select the next message that is due and load its head in the store; False if none is.

        `message_handle`, `message_row` and `message_group` describe it. It stays selected until
        `put_message`, `too_long` or `pass_message`.
        """
        outbox = self.outbox
        scan = self._scan
        while (row := outbox.next_open(scan[_MESSAGE_ROW])) < outbox.count:
            scan[_MESSAGE_ROW] = row
            # Skip the long message that was selected already.
            if outbox.handles[row] != self.long_handle and self.message_due(row):
                self.core.message_handle = outbox.handles[row]
                self.core.message_row = row
                # The log may have dropped a message that every peer had acknowledged.
                if outbox.load_shared(self.core.message_handle) >= 0:
                    return True
                if outbox.state(row) & WANTED:
                    outbox.drop(row)  # if the peer asks again, it is answered then
                    continue
            scan[_MESSAGE_ROW] = row + 1
        return False

    @property
    def message_group(self) -> int:
        """The group (row) of the selected message."""
        return self.core.members.group_row(self.core.store.group)

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the selected message's stored body; False if the store fails."""
        return self.core.store.read_into(self.core.message_handle, offset, buf, at, size) == size

    def put_message(self) -> None:
        """Record that the selected message was written into the frame."""
        self.core.is_telemetry = self.core.is_box(self.message_group)
        self.pass_message()
        self.note_sent_whole(self.core.message_row)

    def pass_message(self) -> None:
        """Skip the selected message in this payload."""
        self._scan[_MESSAGE_ROW] += 1

    def too_long(self) -> None:
        """Skip the selected message, which fits no frame; consider sending it in pieces."""
        self.pass_message()
        # Alternate between the oldest long message, which the peer can take in whatever it lacks,
        # and the one that was sent the longest ago, whichever of them the peer requests.
        outbox = self.outbox
        handle = self.long_handle
        row = outbox.row_of(handle)
        if row < 0 or handle == self.long_last:
            self.long_handle = self.core.message_handle
        elif handle > self.long_last:
            age = epochs_since(self.epoch, outbox.epoch(row))
            if epochs_since(self.epoch, outbox.epoch(self.core.message_row)) > age:
                self.long_handle = self.core.message_handle

    def message_due(self, row: int) -> bool:
        """Return True if the message in a row is to be sent now, not just offered."""
        outbox = self.outbox
        state = outbox.state(row)
        if state & HOLD:
            return False
        is_offered_first = (self.interactive or self.is_quiet) and not state & EPHEMERAL
        if is_offered_first and not state & REQUEST:
            return False
        # The selected long message stays due even if short ones have used up the pace.
        is_chosen = outbox.handles[row] == self.long_handle and self.pace.row_wait(row) <= 0
        if not is_chosen and not self.pace.may_go(row):
            return False
        group = outbox.group(row)
        return self.sees(group) == SHARED and not self._is_carried(group, row)

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer; False if there is none. `message_row` is its row then."""
        outbox = self.outbox
        pace = self.pace
        scan = self._scan
        if not self.interactive or self.is_quiet:
            return False
        while (row := outbox.next_open(scan[_OFFER_ROW])) < outbox.count and pace.left > 0:
            scan[_OFFER_ROW] = row + 1
            group = outbox.group(row)
            due = not outbox.state(row) & (REQUEST | EPHEMERAL) and pace.may_go(row)
            if not due or self.sees(group) != SHARED or self._is_carried(group, row):
                continue
            if not self.core.store.id_into(outbox.handles[row], buf, at):
                # The flash cannot be read: back off as if the offer had been sent.
                outbox.note_sent(row, counted(outbox.sends(row)), self.epoch)
                continue
            self._note_sent(row, DO_OFFER, CODE_OFFERED)
            outbox.unmark(row, INDEXED)
            self.core.message_row = row
            return True
        return False

    def note_sent_whole(self, row: int) -> None:
        """Record that the message in a row was sent in one frame. A transfer of it in pieces ends:
        the peer may refuse the message until others come, and these may have to go in pieces."""
        self.core.long.end_turn_of(self.peer, self.outbox.handles[row])
        self.note_sent(row)

    def note_sent(self, row: int) -> None:
        """Record that the message in a row was sent completely."""
        self._note_sent(row, DO_SEND, CODE_SENT)

    def _note_sent(self, row: int, event: int, code: int) -> None:
        core = self.core
        outbox = self.outbox
        if not self.pace.is_asked(row):
            self.pace.count_unasked()
        sends = outbox.sends(row)
        outbox.step(row, event)
        if code == CODE_SENT and sends:
            core.box.count(COUNT_RETRANSMITS, 1)
        if (code == CODE_SENT or sends) and self.family == FAMILY_MVDS:
            # From the first MESSAGE or the second OFFER on, repeat the MESSAGE itself.
            outbox.mark(row, REQUEST)
        outbox.note_sent(row, counted(sends), self.epoch)
        group = outbox.group(row)
        self._trace(code, sends + 1, core.is_box(group), outbox.rows, row * ROW_SIZE)
        if outbox.state(row) & EPHEMERAL:
            # It is neither acknowledged nor sent again.
            outbox.set_state(row, outbox.state(row) | HOLD)
            core.remove_transient(outbox.handles[row], group, True)

    def forget_holds(self) -> None:
        """Show the peer all that we share with it again, as if it held nothing: it lost its store,
        or it acknowledged by prefixes that fit two messages."""
        self.core.restart(self.peer, True)
        self.attention = True

    # --- accounts ---

    def _trace(self, code: int, count: int, is_box: bool, ids: bytearray, at: int) -> None:
        """Log an event of a message to the black box, unless the message is a black box itself."""
        if not is_box:
            self.core.box.log_id(self.core.now_ms, code, self.peer_number, count, ids, at)

    def count(self, kind: int, amount: int) -> None:
        """Add an amount to a counter of this carrier (docs/SPEC.md 6)."""
        self.core.box.count(COUNT_CARRIERS + self.carrier * _COUNTERS + kind, amount)

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Count a record of the profile, after its content was written or read.

        `kind`: 0 to 3 for ACK, MESSAGE, OFFER, REQUEST; 4 for the link's own records.
        """
        base = 0 if sent else _IN
        bytes_kind = _LINK_BYTES
        if kind < 4:
            telemetry = kind == _MESSAGE and self.core.is_telemetry
            bytes_kind = _TELEMETRY_BYTES if telemetry else _RECORD_BYTES + kind
            self.count(base + _RECORDS + kind, 1)
        self.count(base + bytes_kind, size)
