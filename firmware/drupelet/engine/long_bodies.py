"""Long bodies: a message longer than a frame travels in pieces, below every wire profile.

    SEGMENT        0x50 | content id 8 | total u16 | offset u16 | bytes
    SEGMENT STATE  0x51 | content id 8 | have u16

The content is group id, timestamp and body; its id is the first 8 bytes of the message id. Pieces
are contiguous. A receiver that sees a gap or what it has already says how far it has come, and the
sender goes on from there, over whatever carrier comes next. It takes in one content of a peer at a
time, and both keep to it, or none would get done. On a line that loses pieces the sender asks, by
the last byte again, before it sends more than is likely to come. The id is computed from what is
read back from flash, which verifies the pieces and their durability in one pass, but for the
parents of a message of MVDS: a part of one is not gone on with after a reboot.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    FRAME_SIZE_MAX,
    FRAMES_PER_EPOCH_MAX,
    ID_PREFIX_SIZE,
    ID_SIZE,
    PART_FLUSH_SIZE,
    PART_INCOMING,
    PIECE_SIZE,
    SEGMENT_HEADER_SIZE,
    SEGMENT_TRIES_MAX,
)
from drupelet.base.memory import copy, equal, get_u16, put_u16
from drupelet.base.time_ms import elapsed_ms
from drupelet.engine.members import FAMILY_MVDS, SHARED
from drupelet.engine.states import GOT_REQUEST, HOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange
    from drupelet.engine.inbox import Incoming

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_STATE_SIZE = const(11)
# Eight pieces at once: where 3 of 10 get lost, five of them come, sent twice.
_CAUTION_MAX = const(3)
# A transfer that stood still for 2^4 epochs, at most six days, gives its part file up to another.
_STILL_SHIFT = const(4)


class LongBodies:
    """The long bodies of one exchange, both ways."""

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._core: "Core" = exchange.core
        self._outgoing = exchange.core.outgoing[exchange.peer]
        self.handle = 0  # the message that goes out in pieces; 0: none
        self.offset = 0  # of a stick: how far it is written
        self.epoch_ms = 0  # of a live link

    # --- out ---

    def segment_into(self, frame: bytearray, limit: int) -> int:
        """Write the next piece of the message `handle`; 0 when it is not due any more."""
        core = self._core
        store = core.store
        exchange = self._exchange
        outgoing = self._outgoing
        is_live = not exchange.visits
        if is_live:
            self._stay()
        group = exchange.outbox.look(self.handle)
        row = exchange.outbox.row_of(self.handle)
        if is_live and (row < 0 or not exchange.message_due(row)):
            group = -1
        if group < 0 or exchange.sees(group) != SHARED:
            self.end()
            return 0
        total = CONTENT_HEADER_SIZE + store.size
        size = min(limit, FRAME_SIZE_MAX) - SEGMENT_HEADER_SIZE
        offset = self.offset
        if is_live:
            self._choose(row, total)
            offset = outgoing.next
            if not outgoing.room:
                size = 1  # the last byte again: that is to ask
                offset -= 1
        size = min(size, total - offset)
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, ID_PREFIX_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, offset)
        exchange.is_telemetry = core.is_box(group)
        self._content_into(frame, SEGMENT_HEADER_SIZE, offset, size, group)
        offset += size
        if is_live:
            self._note_piece(row, offset, total)
        else:
            self.offset = offset
            if offset == total:
                self.end()
        return SEGMENT_HEADER_SIZE + size

    def _content_into(
        self, frame: bytearray, at: int, offset: int, size: int, group: int
    ) -> None:  # fmt: skip
        """Copy bytes of the content of `handle`, which the store has loaded."""
        core = self._core
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
            core.store.read_into(self.handle, offset - CONTENT_HEADER_SIZE, frame, at, size)

    def end(self) -> None:
        """Nothing goes out in pieces just now."""
        self.handle = self.offset = 0

    def _pass_on(self, row: int) -> None:
        """A message has left, for now: the next long one has its turn."""
        exchange = self._exchange
        exchange.note_sent(row)
        self.end()
        exchange.rewind()

    def _stay(self) -> None:
        """Stay with what was begun, over whatever link: the peer takes in one at a time."""
        exchange = self._exchange
        outbox = exchange.outbox
        outgoing = self._outgoing
        row = outbox.find(outgoing.key, 0, ID_PREFIX_SIZE)
        if row < 0 or not outbox.is_open(row):
            if outgoing.next:  # it arrived
                outgoing.caution = max(outgoing.caution, 1) - 1
                outgoing.room = 0
            outgoing.end_turn()
        elif exchange.pace.row_wait(row) > 0 or exchange.message_due(row):
            self.handle = outbox.handles[row]

    def _choose(self, row: int, total: int) -> None:
        """Begin with the message that the store has loaded, unless it was begun."""
        outgoing = self._outgoing
        store = self._core.store
        if equal(outgoing.key, 0, store.id, 0, ID_PREFIX_SIZE):
            return
        room = outgoing.room
        self._resume_transfer(store.id, 0, 0)
        outgoing.room = room or outgoing.room
        if total > PART_FLUSH_SIZE and self._exchange.outbox.sends(row):
            # It has left whole, but is not acknowledged: its last byte shows what arrived.
            outgoing.next = total
            outgoing.room = 0

    def _resume_transfer(self, id: bytearray, at: int, have: int) -> None:
        """The content of this key goes on at `have`."""
        outgoing = self._outgoing
        copy(outgoing.key, 0, id, at, ID_PREFIX_SIZE)
        outgoing.next = outgoing.base = have
        outgoing.room = FRAMES_PER_EPOCH_MAX >> outgoing.caution
        outgoing.is_repeated = False
        outgoing.tries = 0

    def _note_piece(self, row: int, end: int, total: int) -> None:
        """A piece up to `end` has left: see what follows it."""
        outgoing = self._outgoing
        caution = outgoing.caution
        asks = not outgoing.room
        early = asks or end <= outgoing.base + PIECE_SIZE
        outgoing.is_repeated = caution > 0 and early and not outgoing.is_repeated
        if outgoing.is_repeated:
            return
        if not asks:
            outgoing.next = end
            if caution:
                outgoing.room -= 1
            if end < total or not outgoing.room:
                return
        outgoing.tries += 1
        if not asks or not caution or outgoing.tries >= SEGMENT_TRIES_MAX:
            outgoing.end_turn()
            self._pass_on(row)
            return
        # It answers in its next epoch, if it does; else it is asked again.
        exchange = self._exchange
        if outgoing.tries == 1 and outgoing.next == total:
            exchange.note_sent(row)
        else:
            outbox = exchange.outbox
            outbox.note_sent(row, outbox.sends(row) or 1, exchange.epoch)
        self.end()

    def on_state(self, frame: bytearray, size: int) -> int:
        """The peer tells how much of a content it has: go on from there."""
        if size != _STATE_SIZE:
            return E_PEER
        exchange = self._exchange
        outbox = exchange.outbox
        row = outbox.find(frame, 1, ID_PREFIX_SIZE)
        if row < 0 or outbox.state(row) & HOLD or exchange.sees(outbox.group(row)) != SHARED:
            return OK
        have = get_u16(frame, 9)
        store = self._core.store
        if store.load(outbox.handles[row]) != OK or have >= CONTENT_HEADER_SIZE + store.size:
            have = 0
        if exchange.visits:
            self.offset = have
        outbox.step(row, GOT_REQUEST)  # it asks for the rest
        exchange.attention = True
        if self._note_state(frame, have):
            # The peer takes in this one, and only this one, now.
            outbox.make_due(row)
            self.handle = outbox.handles[row]
        return OK

    def _note_state(self, frame: bytearray, have: int) -> bool:
        """See from a STATE how much the line loses; False when another one has its turn."""
        outgoing = self._outgoing
        caution = outgoing.caution
        same = equal(outgoing.key, 0, frame, 1, ID_PREFIX_SIZE)
        base = outgoing.base
        sent = outgoing.next - base
        if same and have == base and caution and outgoing.room:
            return True  # this STATE was sent before our latest pieces arrived
        if not same or have - base << 1 < sent:
            outgoing.caution = min(caution + 1, _CAUTION_MAX)
        elif caution and 0 < sent <= have - base:
            outgoing.caution = caution - 1
        tries = outgoing.tries
        self._resume_transfer(frame, 1, have)
        outgoing.tries = tries if same and have <= base else 0
        if same and have < base:
            outgoing.end_turn()  # it lost or refused what it had
        return not same or have >= base

    # --- in ---

    def is_coming(self, id: bytearray, at: int) -> bool:
        """True when we have a part of this message from the peer: it is told, not asked for."""
        part = self.part()
        if part < 0 or not equal(self._core.incoming[part].key, 0, id, at, ID_PREFIX_SIZE):
            return False
        have = self._core.store.spool.part_size(PART_INCOMING + part)
        self._note_gap(self._core.incoming[part], have)
        return True

    def part(self) -> int:
        """The part that takes in this peer's content, over whatever link; -1 for none."""
        for part in range(len(self._core.incoming)):
            if self._core.incoming[part].peer == self._exchange.peer:
                return part
        return -1

    def free_part(self) -> int:
        """A part file that takes in nobody's content just now; -1, and counted, without one."""
        for part in range(len(self._core.incoming)):
            incoming = self._core.incoming[part]
            if incoming.peer < 0 or self._gives_way(part):
                incoming.peer = -1
                return PART_INCOMING + part
        self._core.graph.refused += 1
        return -1

    def _gives_way(self, part: int) -> bool:
        """True when a part is empty, stands still, or its content came another way."""
        core = self._core
        incoming = core.incoming[part]
        if not core.store.spool.part_size(PART_INCOMING + part):
            return True
        still_ms = elapsed_ms(core.now_ms, incoming.grew_ms)
        if still_ms >> _STILL_SHIFT >= min(self.epoch_ms, 1 << 25):
            return True
        return core.store.find(incoming.key, 0, ID_PREFIX_SIZE) > 0

    def state_into(self, frame: bytearray) -> int:
        """Write a SEGMENT STATE if the peer should know one; its size, or 0."""
        core = self._core
        part = self.part()
        if part < 0 or not core.incoming[part].gap:
            return 0
        incoming = core.incoming[part]
        gap = incoming.gap
        # On a line that loses more than one piece the answer may get lost, too: it goes twice.
        incoming.gap_sends += 1
        if not incoming.stated or incoming.gap_sends > 1:
            incoming.gap = 0
        if core.store.spool.part_size(PART_INCOMING + part) != gap - 1:
            return 0  # it has grown since: the sender is at it already
        incoming.stated = gap
        incoming.stated_ms = core.now_ms
        frame[0] = KIND_STATE
        copy(frame, 1, incoming.key, 0, ID_PREFIX_SIZE)
        put_u16(frame, 9, gap - 1)
        return _STATE_SIZE

    def _note_gap(self, incoming: "Incoming", have: int) -> None:
        """The peer does not know how far its content has come: tell it, but not all the time.

        What it sent before it heard of a gap shows the same gap.
        """
        stated_ms = elapsed_ms(self._core.now_ms, incoming.stated_ms)
        if incoming.stated != have + 1 or stated_ms >= self.epoch_ms:
            incoming.gap = have + 1
            incoming.gap_sends = 0

    def on_segment(self, frame: bytearray, size: int) -> int:
        """Take in one piece; OK, or a negative code when it was not a piece at all."""
        core = self._core
        exchange = self._exchange
        total = get_u16(frame, 9) if size > SEGMENT_HEADER_SIZE else 0
        if total <= CONTENT_HEADER_SIZE or total > CONTENT_HEADER_SIZE + BODY_SIZE_MAX:
            return E_PEER
        offset = get_u16(frame, 11)
        end = offset + size - SEGMENT_HEADER_SIZE
        if end > total:
            return E_PEER
        exchange.attention = True
        if not offset and not self._begins(frame, size):
            return OK
        if exchange.is_held_by_key(frame, 1):
            return OK
        part = self._open(frame, total)
        if part < 0:
            return E_CAPACITY
        incoming = core.incoming[part]
        if offset:
            exchange.is_telemetry = incoming.is_box
        else:
            incoming.is_box = exchange.is_telemetry
        file = PART_INCOMING + part
        have = core.store.spool.part_size(file)
        if offset > have or end <= have < total:
            # What ends where the run ends is a copy, unless it is a byte that asks.
            if end != have or size == SEGMENT_HEADER_SIZE + 1:
                self._note_gap(incoming, have)
            return OK
        code = OK
        if end > have:
            at = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.spool.part_append(file, frame, at, end - have)
            incoming.grew_ms = core.now_ms
        if code != OK or end >= total:
            incoming.peer = -1
            if code == OK:
                self._complete(file, incoming)
        return code

    def _begins(self, frame: bytearray, size: int) -> bool:
        """Look at the group in a first piece; False when the peer may not send to it."""
        if size < SEGMENT_HEADER_SIZE + ID_SIZE:
            return True  # seen when it is whole
        group = self._core.members.group_of(frame, SEGMENT_HEADER_SIZE)
        if group < 0 or not self._exchange.sees(group):
            self._core.unknown += 1
            return False
        self._exchange.is_telemetry = self._core.is_box(group)
        return True

    def _open(self, frame: bytearray, total: int) -> int:
        """The part that this content goes into; -1 when others have them all."""
        core = self._core
        peer = self._exchange.peer
        part = self.part()
        if part < 0:
            # By key, so that a content finds the file again that it had before a reboot.
            count = len(core.incoming)
            part = frame[1] % count
            for _ in range(count):
                if core.incoming[part].peer < 0:
                    break
                part = (part + 1) % count
        incoming = core.incoming[part]
        same = incoming.size == total and equal(incoming.key, 0, frame, 1, ID_PREFIX_SIZE)
        if incoming.peer == peer and same:
            return part
        if incoming.peer >= 0 and not self._gives_way(part):
            if incoming.peer == peer:
                self._note_gap(incoming, core.store.spool.part_size(PART_INCOMING + part))
            return -1
        incoming.peer = peer
        incoming.grew_ms = core.now_ms
        copy(incoming.key, 0, frame, 1, ID_PREFIX_SIZE)
        incoming.size = total
        incoming.stated = incoming.gap = 0
        incoming.is_box = False
        if self._exchange.family == FAMILY_MVDS:
            # Its id does not cover parents: what a power cut tore there, nothing would show.
            core.store.spool.part_drop(PART_INCOMING + part)
        if core.store.spool.part_open(PART_INCOMING + part, frame, 1, total) < 0:
            incoming.peer = -1
            return -1
        return part

    def _complete(self, file: int, incoming: "Incoming") -> None:
        """All pieces are here: verify, take in, and let the part file go."""
        core = self._core
        exchange = self._exchange
        group = core.identify_part(file)
        if group < 0 or not exchange.sees(group):
            core.unknown += 1
        elif not equal(core.id, 0, incoming.key, 0, ID_PREFIX_SIZE):
            exchange.bad_record()
        elif not exchange.reack_if_known(core.id):
            outcome = core.graph.take_part(group, exchange.number_of_peer, core.id, file)
            exchange.after_accept(outcome, group)
        core.store.spool.part_drop(file)
