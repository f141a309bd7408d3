"""One peer over one link, as wire profiles see it: what a record does, and what is due (BSP v1 4).

Profiles call `on_*` for what they read and `take_*`, `next_message` and `put_message` for what
they write. Nothing here allocates but what is loaded when it first happens (`control`,
`unavailable`), and no peer's bytes raise. What belongs to a group that a peer
does not see is to that peer as if it did not exist.
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
    from drupelet.engine.ports import PolicyPort, TopicPort

# Offsets in a carrier's half of the counters (docs/SPEC.md 6): bytes, and from _RECORDS on counts,
# of the four record types ACK, MESSAGE, OFFER, REQUEST; the link's own bytes; black boxes.
_IN = const(16)
_RECORD_BYTES = const(2)
_LINK_BYTES = const(7)
_RECORDS = const(8)
_TELEMETRY_BYTES = const(15)
_MESSAGE = const(1)
_COUNTERS = const(32)  # of one carrier

# How far the scans of a payload have come: over owed rows, entries that are owed an
# acknowledgement, entries to ask for, pending rows and the parents of the one at hand, and the
# outbox's rows for messages and for offers. Behind them how many parents were asked for, and the
# tags of the last ones, cut to 24 bits.
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
    """The tables of one node as seen from one link; `peer` is the row of its other end."""

    policy: "PolicyPort | None" = None  # chooses the mode by what it measures; few links have one
    topic: "TopicPort | None" = None  # all members hear it: what it carries need not go here
    is_quiet = False  # filters tell what the peer lacks (docs/SPEC.md 14): nothing goes unasked
    group_only = -1  # of a topic: it carries this group (row) alone
    visits = False  # a stick, which has no epochs
    codec_row = 0  # where a codec that all links share keeps what it knows of this one
    again = -1  # what was sent last: 0 for the first time, 1 again, -1 to a silent peer
    long_offset = 0  # of a stick: how far the message that goes out in pieces is written

    def __init__(self, core: "Core", peer: int, carrier: int, family: int) -> None:
        """family: whose groups it carries. MVDS keeps what was sent until it is answered; in BSP
        an offer is made again."""
        self.core = core
        self.peer = peer
        self.carrier = carrier
        self.family = family
        self.outbox = core.outboxes[peer]
        self.inbox = core.inboxes[peer]
        self.pace = Pace(self)
        self.interactive = False  # messages are offered before they are sent
        self.attention = True  # something may be due
        # The frame says that we hold something, or has what we hold: that must be durable first.
        self.needs_barrier = False
        self.is_telemetry = False  # the message that was just taken or written is a black box
        self.link_number = 0  # `compact-1`: the peer's for what is read or was written; 0: none
        self.message_handle = 0  # what was read, acknowledged or found to send last
        self.message_row = -1  # of what was found to send, or written as an offer, last
        self.long_handle = 0  # the message that goes out in pieces; 0: none
        self.long_last = 0  # the one that left so last
        self._scan = [0] * (_ASKED_TAGS + ASKED_TAGS_MAX)

    def rewind(self) -> None:
        """Begin the scans of a payload anew."""
        for scan in range(_ASKED_TAGS):
            self._scan[scan] = 0

    def rewind_inbox(self) -> None:
        """Begin those of acknowledgements and requests anew: more may be due by what came in.

        Messages that are asked for wait for the next payload: else a peer that asks for one again
        and again would get it as often.
        """
        for scan in range(_MESSAGE_ROW):
            self._scan[scan] = 0

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
        """What the peer sees of a group (row) here: a link carries its own family only."""
        members = self.core.members
        if members.family(group) != self.family or (0 <= self.group_only != group):
            return INVISIBLE
        return members.visibility(group, self.peer)

    def sees_id(self, id: bytearray, at: int) -> bool:
        """True when a group, by its 32-byte id, exists for the peer on this link."""
        group = self.core.members.group_of(id, at)
        return group >= 0 and self.sees(group) != INVISIBLE

    def _known(self, id: bytearray, at: int) -> int:
        """The handle of what is or was in our store, if the peer sees its group; else 0."""
        store = self.core.store
        handle = store.find(id, at)
        if handle <= 0 or store.load(handle) != OK:
            return 0
        group = self.core.members.group_row(store.group)
        return handle if group >= 0 and self.sees(group) != INVISIBLE else 0

    def _is_carried(self, group: int, row: int) -> bool:
        """True when the topic beside this link reaches the peer with a message of a group."""
        return self.topic is not None and self.topic.carries(self.peer, group, row)

    # --- in: acknowledgements ---

    def on_ack(self, buf: bytearray, at: int) -> None:
        """The peer holds this message."""
        core = self.core
        row = self.outbox.find(buf, at)
        if row < 0 and core.refill(self.peer):
            row = self.outbox.find(buf, at)
        if row >= 0:
            self.acked(row)
        else:
            handle = self._known(buf, at)
            if handle:
                self._note_held(handle, GOT_ACK)

    def acked(self, row: int) -> None:
        """The peer holds the message in a row."""
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
            then = outbox.epoch(row)
            note_answer(self.pace.answers, ACKS, self.epoch, then, sends == 1)
            if self.policy is not None:
                self.policy.on_acked(epochs_since(self.epoch, then) if sends == 1 else -1)
        core = self.core
        self._trace(CODE_ACKED, 0, group, outbox.rows, row * ROW_SIZE)
        handle = outbox.handles[row]
        core.note_long_held(self.peer, handle, True)
        core.remove_passing(handle, group, outbox.state(row) & EPHEMERAL != 0)

    def _note_held(self, handle: int, event: int) -> None:
        """The peer has what the store has loaded, which may have been deleted here: once all have
        it, its id may go. Overwrites what the store has loaded."""
        core = self.core
        group = core.members.group_row(core.store.group)
        row = self.outbox.note_held(handle, group, event)
        core.note_long_held(self.peer, handle, event == GOT_ACK)
        if core.store.missing:
            from drupelet.engine.control import held

            held(core, self.peer, handle)
        if row >= 0:
            core.remove_passing(handle, group, self.outbox.state(row) & EPHEMERAL != 0)

    def on_gone(self, buf: bytearray, at: int) -> None:
        """The peer said twice in a row that it holds this message: it is gone there (docs/SPEC.md
        4.2)."""
        from drupelet.engine.unavailable import give_up

        give_up(self.core, self.peer, buf, at)

    # --- in: offers and requests ---

    def on_offer(self, buf: bytearray, at: int) -> None:
        """The peer holds this message and shares it: acknowledge it, or ask for it."""
        self.attention = True
        handle = self._known(buf, at)
        if handle:
            self._owe_reply(handle, buf, at)
            self._note_held(handle, GOT_OFFER)
            self._note_incoming(True)
        elif not self.core.long.tell_if_coming(self, buf, at):
            self.inbox.add(buf, at, OFFERED, self.epoch, self.link_number)

    def _owe_reply(self, handle: int, id: bytearray, at: int) -> None:
        """Owe an acknowledgement of what we have already; the store has loaded it."""
        if handle >= GONE_HANDLE:
            entry = self.inbox.add(id, at, OWED, self.epoch, self.link_number)
            if entry >= 0 and not self.inbox.is_whole(entry):
                self.inbox.set_kind(entry, OFFERED)  # an ACK needs more than a prefix: ask for it
        else:
            group = self.core.members.group_row(self.core.store.group)
            row = self.outbox.row_of(handle)
            has_crossed = row >= 0 and self.outbox.sends(row) > 0
            self.inbox.owe(
                handle, group, self.link_number, BY_ROW | CROSSED if has_crossed else BY_ROW
            )

    def _note_incoming(self, is_held: bool) -> None:
        """Tell the policy of a message or an offer that came in."""
        if self.policy is not None:
            self.policy.on_incoming(is_held)

    def on_request(self, buf: bytearray, at: int) -> None:
        """The peer asks for this message; an unknown or unshared one is met with silence.

        What our log has dropped, or what never came to us, for nobody has it any more, is answered
        with an ACK of it twice (docs/SPEC.md 4.2). What a client deleted keeps its edges: that was
        its will.
        """
        core = self.core
        store = core.store
        row = self.outbox.find(buf, at)
        if row < 0 and core.refill(self.peer):
            row = self.outbox.find(buf, at)
        if row < 0 or not self._revive_or_drop(row):
            handle = self._known(buf, at)
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
        """The peer asks for the message in a row."""
        outbox = self.outbox
        if self.sees(outbox.group(row)) != SHARED or not self._revive_or_drop(row):
            return
        outbox.step(row, GOT_REQUEST)
        if self.policy is not None:
            self.policy.on_requested()
        outbox.make_due(row)
        outbox.unmark(row, BUNDLED)
        self.attention = True

    def _revive_or_drop(self, row: int) -> bool:
        """True if what the peer held, and asks for again, can be sent; else its row goes."""
        outbox = self.outbox
        if outbox.state(row) & HOLD and self.sees(outbox.group(row)) == SHARED:
            if outbox.look(outbox.handles[row]) < 0:
                outbox.drop(row)
                return False
            self.core.store.unsettle()  # the log needs it again
        return True

    # --- in: messages ---

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """A message: group id 32, timestamp 8, stored body (docs/SPEC.md 4); each where it is."""
        core = self.core
        self.message_handle = 0
        self.is_telemetry = False
        row = core.members.group_of(group, group_at)
        if row < 0 or not self.sees(row):
            core.unknown += 1
            return
        self.is_telemetry = core.is_box(row)
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
        """A body too long for a record of the store goes into a file of its own."""
        core = self.core
        store = core.store
        part = core.long.free_part(self)
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
        """True for a message that we have already: the peer holds it, and is owed an answer.

        The peer sent its whole content, so the group is one that it sees. Whether it waits for an
        acknowledgement its own copy says: that is not hashed, and another peer's may differ.
        """
        core = self.core
        handle = core.store.find(id, 0)
        if handle < 0:
            core.refused += 1  # the flash does not say whether we have it: it comes again
        if handle <= 0:
            return handle < 0
        core.store.load(handle)
        self.message_handle = handle
        self.inbox.drop(id, 0)  # it may have been asked for while its group was hidden
        if not core.graph.is_ephemeral:
            self._owe_reply(handle, id, 0)
            self._note_held(handle, GOT_MESSAGE)
            self._trace_id(CODE_DUPLICATE, id)
        core.duplicates += 1
        self._note_incoming(True)
        core.box.count(COUNT_DUPLICATES, 1)
        self.attention = True
        return True

    def reack_by_key(self, key: bytearray, at: int) -> bool:
        """True when we have the message whose id begins with these 8 bytes: a piece of it is
        answered with its acknowledgement, if the peer sees its group.

        What is private may be ephemeral: only the head of the copy says whether it is answered.
        """
        store = self.core.store
        handle = store.find(key, at, ID_PREFIX_SIZE)
        if handle <= 0 or handle >= GONE_HANDLE or store.load(handle) != OK or store.private:
            return False
        group = self.core.members.group_row(store.group)
        if group >= 0 and self.sees(group):
            self.is_telemetry = self.core.is_box(group)
            self.inbox.owe(handle, group, 0, BY_ROW)
            self._note_held(handle, GOT_MESSAGE)
        return True

    def after_accept(self, outcome: int, group: int) -> None:
        """Follow up what the graph made of a message whose id is in `core.id`."""
        core = self.core
        if outcome == E_PEER:
            self.bad_record()
            return
        self.attention = True
        self._note_incoming(False)
        inbox = self.inbox
        entry = inbox.find(core.id, 0)
        if entry >= 0 and inbox.kind(entry) == REQUESTED and inbox.sends(entry):
            once = inbox.sends(entry) == 1
            answers = self.pace.answers
            note_answer(answers, REPLIES, self.epoch, inbox.epoch(entry), once)
        for other in core.inboxes:
            other.drop(core.id, 0)
        if outcome == REFUSED or outcome == TOO_EARLY:  # noqa: SIM109 - a tuple is code
            core.refused += 1
            core.box.count(COUNT_REFUSED, 1)
            if outcome == TOO_EARLY and core.graph.deepest_absent():
                inbox.ask(core.graph.ids, 0, self.epoch)
            return
        self.message_handle = core.graph.handle  # before others enter
        if not core.graph.is_ephemeral:
            inbox.owe(core.graph.handle, group, self.link_number, 0)
            self._trace_id(CODE_RECEIVED, core.id)
        if outcome == ENTERED:
            core.after_entry(core.now_ms, group, self.peer_number)
        else:
            core.promote(core.now_ms)  # what depends on a buried one is buried, too

    def bad_record(self) -> None:
        """Count a malformed record."""
        self.core.malformed += 1
        self.core.box.count(COUNT_MALFORMED, 1)

    # --- out: acknowledgements ---

    @property
    def is_crossed_pass(self) -> bool:
        """True if copies of what was just acknowledged left both ends: then the peer may have no
        number for it any more. Such acknowledgements come last."""
        return self._scan[_OWED_ROW] > self.inbox.owed_end

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that we owe an acknowledgement for; `link_number` is the peer's."""
        inbox = self.inbox
        store = self.core.store
        scan = self._scan
        while scan[_OWED_ROW] < 2 * inbox.owed_end:
            row = scan[_OWED_ROW] % inbox.owed_end
            scan[_OWED_ROW] += 1
            if inbox.is_crossed(row) != self.is_crossed_pass:
                continue
            group = inbox.owed_group(row)
            if inbox.is_owed(row) and self.sees(group) and not self._is_carried(group, -1):
                self.message_handle = inbox.owed(row)
                self.link_number = inbox.take_owed(row, self.visits)
                # A record that made room is not there: who still has the message sends it again.
                if store.id_into(self.message_handle, buf, at):
                    self.needs_barrier = True
                    return True
        return self._take_ack_of_log(buf, at) or self._take_ack_by_id(buf, at)

    def _take_ack_of_log(self, buf: bytearray, at: int) -> bool:
        inbox = self.inbox
        store = self.core.store
        while inbox.owed_from:
            handle = inbox.owed_from
            inbox.owed_from = max(store.next(handle), 0)  # for the rest copies come
            if store.load(handle) == OK and store.source == self.peer_number:
                group = self.core.members.group_row(store.group)
                if group < 0:
                    continue
                if self.sees(group) and not self._is_carried(group, -1):
                    copy(buf, at, store.id, 0, ID_SIZE)
                    self.message_handle = handle
                    self.link_number = 0
                    self.needs_barrier = True
                    return True
                if self.core.members.visibility(group, self.peer) != INVISIBLE:
                    inbox.owe(handle, group, 0, BY_ROW)  # another link to the peer carries it
        return False

    def _take_ack_by_id(self, buf: bytearray, at: int) -> bool:
        inbox = self.inbox
        scan = self._scan
        while scan[_OWED_ENTRY] < min(inbox.end(), inbox.offers_max):
            entry = scan[_OWED_ENTRY]
            kind = inbox.kind(entry)
            if kind < OWED or kind > OWED_TWICE:
                scan[_OWED_ENTRY] = entry + 1
                continue
            copy(buf, at, inbox.entries, entry * ENTRY_SIZE, ID_SIZE)
            self.link_number = inbox.entry_number(entry)
            self.message_handle = 0
            if kind == OWED_TWICE:
                inbox.set_kind(entry, OWED)  # and it is the next one, too
            else:
                inbox.set_kind(entry, OWED_BUNDLING if self.visits else 0)
                scan[_OWED_ENTRY] = entry + 1
            self.needs_barrier = True
            return True
        return False

    # --- out: requests ---

    def take_request(self, buf: bytearray, at: int, prefixes: bool = False) -> bool:
        """Write the next id to ask for (`prefixes`: or 8 bytes of it and zeros): an offered one,
        then what the peer's pending messages wait for. `link_number` is the peer's for it."""
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
                self.link_number = inbox.entry_number(entry)
                self._write_request(buf, at, inbox.entries, entry * ENTRY_SIZE)
                return True
        return self._take_parent(buf, at)

    def _may_ask(self, sends: int, then: int) -> bool:
        return self.visits or self.pace.ask_wait(sends, then) <= 0

    def _take_parent(self, buf: bytearray, at: int) -> bool:
        """Write a missing parent of a message from the peer."""
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
                        self.link_number = 0
                        self._write_request(buf, at, ids, 0)
                        return True
                    continue
            scan[_PENDING_ROW] = row + 1
            scan[_PARENT] = 0
        return False

    def _is_asked_for(self, row: int) -> bool:
        """True if this peer is to be asked for what a pending message waits for: it sent it, or
        who did is not there any more."""
        pending = self.core.pending
        members = self.core.members
        group = pending.group(row)
        if not self.sees(group):
            return False
        source = members.peer_row(pending.source(row))
        return source == self.peer or source < 0 or not members.visibility(group, source)

    def _note_new(self, id: bytearray) -> bool:
        """True for an id that was not among the last ones asked for in this payload."""
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
        """Look for the next message due; True with its head loaded in the store.

        `message_handle`, `message_row` and `message_group` tell more. It stays the next one until
        `put_message`, `too_long` or `pass_message`.
        """
        outbox = self.outbox
        scan = self._scan
        while scan[_MESSAGE_ROW] < outbox.count:
            row = scan[_MESSAGE_ROW]
            # One that goes out in pieces has been looked at.
            if outbox.handles[row] != self.long_handle and self.message_due(row):
                self.message_handle = outbox.handles[row]
                self.message_row = row
                # The log may have dropped the body of what all had acknowledged.
                if outbox.look(self.message_handle) >= 0:
                    return True
                if outbox.state(row) & WANTED:
                    outbox.drop(row)  # it kept no room in the log: the peer asks again, or is told
                    continue
            scan[_MESSAGE_ROW] = row + 1
        return False

    @property
    def message_group(self) -> int:
        """The group's row of the message that `next_message` found."""
        return self.core.members.group_row(self.core.store.group)

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the stored body of the message that `next_message` found."""
        return self.core.store.read_into(self.message_handle, offset, buf, at, size) == size

    def put_message(self) -> None:
        """The message that `next_message` found is in the frame."""
        self.needs_barrier = True
        self.is_telemetry = self.core.is_box(self.message_group)
        self.pass_message()
        self.note_sent(self.message_row)

    def pass_message(self) -> None:
        """The message that `next_message` found does not go in this payload."""
        self._scan[_MESSAGE_ROW] += 1

    def too_long(self) -> None:
        """The message that `next_message` found fits no frame: it goes out in pieces."""
        self.pass_message()
        # Of several the oldest has every other turn, for the peer can take it whatever it lacks;
        # in between goes the one that left longest ago, whichever the peer asks for.
        outbox = self.outbox
        handle = self.long_handle
        row = outbox.row_of(handle)
        if row < 0 or handle == self.long_last:
            self.long_handle = self.message_handle
        elif handle > self.long_last:
            age = epochs_since(self.epoch, outbox.epoch(row))
            if epochs_since(self.epoch, outbox.epoch(self.message_row)) > age:
                self.long_handle = self.message_handle

    def message_due(self, row: int) -> bool:
        """True when the message itself is to be sent now, offered first or not."""
        outbox = self.outbox
        state = outbox.state(row)
        if state & HOLD:
            return False
        is_offered_first = (self.interactive or self.is_quiet) and not state & EPHEMERAL
        if is_offered_first and not state & REQUEST:
            return False
        # A long one that was chosen goes, whatever small ones went before its pieces.
        is_chosen = outbox.handles[row] == self.long_handle and self.pace.row_wait(row) <= 0
        if not is_chosen and not self.pace.may_go(row):
            return False
        group = outbox.group(row)
        return self.sees(group) == SHARED and not self._is_carried(group, row)

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer; `message_row` is its row."""
        outbox = self.outbox
        pace = self.pace
        scan = self._scan
        while self.interactive and scan[_OFFER_ROW] < outbox.count and pace.left > 0:
            row = scan[_OFFER_ROW]
            scan[_OFFER_ROW] = row + 1
            group = outbox.group(row)
            due = not outbox.state(row) & (HOLD | REQUEST | EPHEMERAL) and pace.may_go(row)
            if self.is_quiet or not due or self.sees(group) != SHARED:
                continue
            if self._is_carried(group, row):
                continue
            if not self.core.store.id_into(outbox.handles[row], buf, at):
                # The flash does not give it: it is looked at again as if it had gone.
                outbox.note_sent(row, counted(outbox.sends(row)), self.epoch)
                continue
            self._note_sent(row, DO_OFFER, CODE_OFFERED)
            outbox.unmark(row, INDEXED)
            self.needs_barrier = True  # the peer takes it that we hold what we offer
            self.message_row = row
            return True
        return False

    def note_sent(self, row: int) -> None:
        """The message in a row went out whole."""
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
            # What was sent, or offered twice, goes as a MESSAGE from now on.
            outbox.mark(row, REQUEST)
        if self.policy is not None:
            is_heard = self.pace.is_heard_since(outbox.epoch(row))
            self.again = (1 if is_heard else -1) if sends else 0
            if code == CODE_OFFERED and self.again >= 0:
                self.policy.on_offered(self.again > 0)
        outbox.note_sent(row, counted(sends), self.epoch)
        group = outbox.group(row)
        self._trace(code, sends + 1, group, outbox.rows, row * ROW_SIZE)
        if outbox.state(row) & EPHEMERAL:
            # Nobody acknowledges it, and it is not sent again.
            outbox.set_state(row, outbox.state(row) | HOLD)
            core.remove_passing(outbox.handles[row], group, True)

    def forget_sends(self) -> None:
        """A connection that loses nothing begins or ends: what it did not bring goes again."""
        outbox = self.outbox
        for row in range(outbox.count):
            outbox.make_due(row)
        self.inbox.ask_again()
        self.core.pending.ask_again()
        self.attention = True

    def forget_holds(self) -> None:
        """The peer lost what it told to hold, or told it by prefixes that mean two messages: show
        it everything that we share, as if it held nothing."""
        self.core.restart(self.peer, True)
        self.attention = True

    # --- accounts ---

    def _trace(self, code: int, count: int, group: int, ids: bytearray, at: int) -> None:
        """Log a step in a message's life, unless it is a black box itself."""
        core = self.core
        if not core.is_box(group):
            core.box.log_id(core.now_ms, code, self.peer_number, count, ids, at)

    def _trace_id(self, code: int, id: bytearray) -> None:
        if not self.is_telemetry:
            self.core.box.log_id(self.core.now_ms, code, self.peer_number, 0, id, 0)

    def count(self, kind: int, amount: int) -> None:
        """Add to a counter of this carrier (docs/SPEC.md 6)."""
        self.core.box.count(COUNT_CARRIERS + self.carrier * _COUNTERS + kind, amount)

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Account for a record of the profile; called after its content was written or read."""
        base = 0 if sent else _IN
        if kind < 4:
            telemetry = kind == _MESSAGE and self.is_telemetry
            bytes_kind = _TELEMETRY_BYTES if telemetry else _RECORD_BYTES + kind
            self.count(base + bytes_kind, size)
            self.count(base + _RECORDS + kind, 1)
            if sent and kind == _MESSAGE and self.policy is not None and self.again >= 0:
                self.policy.on_sent(size, self.again > 0)
        else:
            self.count(base + _LINK_BYTES, size)
