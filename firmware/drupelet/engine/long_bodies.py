"""Long bodies: a message longer than a frame is sent in pieces, below every wire profile.

    SEGMENT        0x50 | content id 8 | total u16 | offset u16 | bytes
    SEGMENT STATE  0x51 | content id 8 | have u16

The content is group id, timestamp and body; the content id is the first 8 bytes of the message id.
The receiver keeps one contiguous run from the start. On a gap, or a piece that it has already, it
answers with the length of its run (STATE), and the sender continues there, over whatever carrier
comes next. The receiver assembles one content of a peer at a time, and both ends stay with it
until it is complete. On a line that loses pieces, the sender sends few of them and then asks how
far the receiver is, by repeating the last byte. A question about a content of which nothing is
here takes no part file: its answer waits until the peer's present run, if there is one, has ended.
The id is computed from what is read back from flash, so one pass verifies both the transfer and
the flash. The id of an MVDS message does not cover its parents, so a part of an MVDS content is
discarded at a reboot.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
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

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_STATE_SIZE = const(11)
# With the least room, 8 pieces are sent twice each: at 30 % loss, about five of them arrive.
_CAUTION_MAX = const(3)
# A transfer without progress for 2^4 epochs, at most six days, loses its part file to another one.
_STILL_SHIFT = const(4)


# A turn: the state of the one transfer of a long message to a peer, over whatever link.
_HANDLE = const(0)  # of the message; 0: none
_NEXT = const(1)  # offset of the next piece
_BASE = const(2)  # how many bytes the peer has, as far as it said
_ROOM = const(3)  # pieces that may be sent before asking the peer
_REPEATED = const(4)  # 1: the next piece was sent once already
_CAUTION = const(5)  # how often the room is halved; 0 while nothing is lost
_TRIES = const(6)  # how often the peer was asked without progress
_TURN_SIZE = const(7)
_ASKED_SIZE = const(9)  # key, and 1 while a STATE is due

assert _ASKED_SIZE == ID_PREFIX_SIZE + 1


class Incoming:
    """The content that is being assembled in one part file. Its fields are class attributes: an
    instance takes RAM for them once they are set."""

    peer = -1  # the row of the peer that sends it; -1: the file is free
    size = 0  # of the whole content
    grew_ms = 0  # when it last grew
    # The length of the run + 1 for which a STATE is due; 0: none is due.
    gap = 0
    gap_sends = 0  # how often that STATE was sent
    stated = 0  # the size + 1 in the last STATE; 0: none was sent
    stated_ms = 0  # when the last STATE was sent
    is_box = False  # it is a black box

    def __init__(self) -> None:
        self.key = bytearray(ID_PREFIX_SIZE)  # how its message id begins


class LongBodies:
    """The long bodies of one node, in both directions."""

    def __init__(self, core: "Core", parts_max: int) -> None:
        self._core = core
        self.incoming = [Incoming() for _ in range(parts_max)]  # by part file
        peers_max = core.members.peers_max
        self._turns = [0] * (_TURN_SIZE * peers_max)
        # By peer: the key of a content of which nothing is here, and 1 while a STATE that says so
        # is due. After that it is the content that was answered, complete or lost last.
        self._asked = bytearray(_ASKED_SIZE * peers_max)

    def forget_peer(self, peer: int) -> None:
        """Forget the transfers to and from a peer (row) that was removed."""
        self._end_turn(peer)
        self._asked[peer * _ASKED_SIZE + ID_PREFIX_SIZE] = 0
        part = self.part(peer)
        if part >= 0:
            self.incoming[part].peer = -1

    def _end_turn(self, peer: int) -> None:
        """End the transfer to a peer (row), so that another long message may go."""
        self._turns[peer * _TURN_SIZE + _HANDLE] = self._turns[peer * _TURN_SIZE + _NEXT] = 0

    def end_turn_of(self, peer: int, handle: int) -> None:
        """End the transfer to a peer (row) if it is that of this message."""
        if self._turns[peer * _TURN_SIZE + _HANDLE] == handle:
            self._end_turn(peer)

    def _resume(self, at: int, handle: int, have: int) -> None:
        """Continue with the content of a message at offset `have`; `at`: its transfer's row."""
        turns = self._turns
        turns[at + _HANDLE] = handle
        turns[at + _NEXT] = turns[at + _BASE] = have
        turns[at + _ROOM] = FRAMES_PER_EPOCH_MAX >> turns[at + _CAUTION]
        turns[at + _REPEATED] = turns[at + _TRIES] = 0

    # --- out ---

    def segment_into(self, exchange: "Exchange", frame: bytearray, limit: int) -> int:
        """Write the next piece of the link's long message; return its size, 0 if it is not due.

        E_STORAGE if the flash refuses to read it: a bundle ends there.
        """
        core = self._core
        store = core.store
        turns = self._turns
        at = exchange.peer * _TURN_SIZE
        is_live = not exchange.visits
        if is_live:
            self._stay(exchange, at)
        group = exchange.outbox.load_shared(exchange.long_handle)
        row = exchange.outbox.row_of(exchange.long_handle)
        if is_live and (row < 0 or not exchange.message_due(row)):
            group = -1
        if group < 0 or exchange.sees(group) != SHARED:
            self.end(exchange)
            return 0
        total = CONTENT_HEADER_SIZE + store.size
        size = min(limit, FRAME_SIZE_MAX) - SEGMENT_HEADER_SIZE
        offset = exchange.long_offset
        if is_live:
            self._choose(exchange, at, row, total)
            offset = turns[at + _NEXT]
            if not turns[at + _ROOM]:
                size = 1  # repeat the last byte, to ask
                offset -= 1
        size = min(size, total - offset)
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, ID_PREFIX_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, offset)
        core.is_telemetry = core.is_box(group)
        if not self._content_into(exchange.long_handle, frame, offset, size, group):
            if is_live:
                self.end(exchange)
            return E_STORAGE
        offset += size
        if is_live:
            self._note_piece(exchange, row, offset, total)
        else:
            exchange.long_offset = offset
            if offset == total:
                self.end(exchange)
        return SEGMENT_HEADER_SIZE + size

    def _content_into(
        self, handle: int, frame: bytearray, offset: int, size: int, group: int
    ) -> bool:  # fmt: skip
        """Copy bytes of the loaded message's content after the header; return True if read."""
        core = self._core
        at = SEGMENT_HEADER_SIZE
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
        offset -= CONTENT_HEADER_SIZE
        return size <= 0 or core.store.read_into(handle, offset, frame, at, size) == size

    def end(self, exchange: "Exchange") -> None:
        """End sending in pieces over a link for now."""
        exchange.long_last = exchange.long_handle
        exchange.long_handle = 0
        if exchange.visits:
            exchange.long_offset = 0

    def _stay(self, exchange: "Exchange", at: int) -> None:
        """Stay with the current transfer, over whatever link: the peer takes in one at a time."""
        turns = self._turns
        outbox = exchange.outbox
        row = outbox.row_of(turns[at + _HANDLE]) if turns[at + _HANDLE] else -1
        if row < 0 or not outbox.is_open(row):
            if turns[at + _NEXT]:  # the peer has it now
                turns[at + _CAUTION] = max(turns[at + _CAUTION], 1) - 1
                turns[at + _ROOM] = 0
            self._end_turn(exchange.peer)
        elif exchange.pace.row_wait(row) > 0 or exchange.message_due(row):
            exchange.long_handle = turns[at + _HANDLE]

    def _choose(self, exchange: "Exchange", at: int, row: int, total: int) -> None:
        """Begin the transfer of the message in a row, unless it is the current one."""
        turns = self._turns
        if turns[at + _HANDLE] == exchange.long_handle:
            return
        room = turns[at + _ROOM]
        self._resume(at, exchange.long_handle, 0)
        turns[at + _ROOM] = room or turns[at + _ROOM]
        if total > PART_FLUSH_SIZE and exchange.outbox.sends(row):
            # It was sent completely, but not acknowledged: the last byte asks what arrived.
            turns[at + _NEXT] = total
            turns[at + _ROOM] = 0

    def _note_piece(self, exchange: "Exchange", row: int, end: int, total: int) -> None:
        """Record that a piece up to offset `end` was written, and decide what follows it."""
        turns = self._turns
        at = exchange.peer * _TURN_SIZE
        caution = turns[at + _CAUTION]
        asks = not turns[at + _ROOM]
        is_repeatable = asks or end <= turns[at + _BASE] + PIECE_SIZE
        turns[at + _REPEATED] = caution > 0 and is_repeatable and not turns[at + _REPEATED]
        if turns[at + _REPEATED]:
            return
        if not asks:
            turns[at + _NEXT] = end
            if caution:
                turns[at + _ROOM] -= 1
            if end < total or not turns[at + _ROOM]:
                return
        turns[at + _TRIES] += 1
        if not asks or not caution or turns[at + _TRIES] >= SEGMENT_TRIES_MAX:
            self._end_turn(exchange.peer)
            exchange.note_sent(row)
            self.end(exchange)
            exchange.rewind()  # the next long message may go
            return
        # The peer answers in its next epoch; if it does not, it is asked again.
        if turns[at + _TRIES] == 1 and turns[at + _NEXT] == total:
            exchange.note_sent(row)
        else:
            outbox = exchange.outbox
            outbox.note_sent(row, outbox.sends(row) or 1, exchange.epoch)
        self.end(exchange)

    def on_state(self, exchange: "Exchange", frame: bytearray, size: int) -> int:
        """Handle a SEGMENT STATE: continue where the peer's run ends. OK, or E_PEER."""
        if size != _STATE_SIZE:
            return E_PEER
        outbox = exchange.outbox
        row = outbox.find(frame, 1, ID_PREFIX_SIZE)
        if row < 0 or outbox.state(row) & HOLD or exchange.sees(outbox.group(row)) != SHARED:
            return OK
        have = get_u16(frame, 9)
        store = self._core.store
        if store.load(outbox.handles[row]) != OK or have >= CONTENT_HEADER_SIZE + store.size:
            have = 0
        outbox.step(row, GOT_REQUEST)  # it requests the rest
        exchange.attention = True
        if self._note_state(exchange.peer, outbox.handles[row], have):
            # At present the peer takes in this message only.
            outbox.make_due(row)
            exchange.long_handle = outbox.handles[row]
            if exchange.visits:
                exchange.long_offset = have
        return OK

    def _note_state(self, peer: int, handle: int, have: int) -> bool:
        """Estimate the loss from a STATE, and adapt the room; False if the transfer has ended."""
        turns = self._turns
        at = peer * _TURN_SIZE
        caution = turns[at + _CAUTION]
        is_current = turns[at + _HANDLE] == handle
        base = turns[at + _BASE]
        sent_size = turns[at + _NEXT] - base
        if is_current and have == base and caution and turns[at + _ROOM]:
            return True  # this STATE was sent before our latest pieces arrived
        if not is_current or have - base << 1 < sent_size:
            turns[at + _CAUTION] = min(caution + 1, _CAUTION_MAX)
        elif caution and 0 < sent_size <= have - base:
            turns[at + _CAUTION] = caution - 1
        tries = turns[at + _TRIES]
        self._resume(at, handle, have)
        turns[at + _TRIES] = tries if is_current and have <= base else 0
        if is_current and have < base:
            self._end_turn(peer)  # the peer lost or refused what it had
        return not is_current or have >= base

    # --- in ---

    def tell_if_coming(self, exchange: "Exchange", id: bytearray, at: int) -> bool:
        """True if we have a part of this message from the peer: answer an OFFER by STATE."""
        part = self.part(exchange.peer)
        if part < 0 or not equal(self.incoming[part].key, 0, id, at, ID_PREFIX_SIZE):
            return False
        self._note_gap(exchange, part)
        return True

    def part(self, peer: int) -> int:
        """Return the index of the part file that a peer's content goes into, or -1."""
        for part in range(len(self.incoming)):
            if self.incoming[part].peer == peer:
                return part
        return -1

    def claim_part(self, key: bytearray, at: int, evict: bool) -> int:
        """Return the number of a part file for a content with the 8-byte key at `at`; -1: none.

        One that is free, or with `evict` the one whose transfer stands still the longest. The
        search begins by key, so that after a reboot a content finds its file again.
        """
        count = len(self.incoming)
        stillest = -1
        longest_ms = -1
        for step in range(count):
            part = (key[at] + step) % count
            incoming = self.incoming[part]
            if incoming.peer < 0:
                return PART_INCOMING + part
            idle_ms = elapsed_ms(self._core.now_ms, incoming.grew_ms)
            if evict and idle_ms > longest_ms and self._may_evict(part):
                stillest = part
                longest_ms = idle_ms
        if stillest < 0:
            return -1
        self.incoming[stillest].peer = -1
        return PART_INCOMING + stillest

    def _may_evict(self, part: int) -> bool:
        """Return True if a part made no progress, or its content came another way."""
        core = self._core
        incoming = self.incoming[part]
        idle_ms = elapsed_ms(core.now_ms, incoming.grew_ms)
        epoch_ms = core.clocks.epoch_ms(incoming.peer)
        if idle_ms >> _STILL_SHIFT >= min(epoch_ms, 1 << 25):
            return True
        return core.store.find(incoming.key, 0, ID_PREFIX_SIZE) > 0

    def state_into(self, exchange: "Exchange", frame: bytearray) -> int:
        """Write a SEGMENT STATE if one is due to the peer; return its size, or 0."""
        core = self._core
        frame[0] = KIND_STATE
        part = self.part(exchange.peer)
        if part < 0:
            at = exchange.peer * _ASKED_SIZE
            if not self._asked[at + ID_PREFIX_SIZE]:
                return 0
            self._asked[at + ID_PREFIX_SIZE] = 0
            copy(frame, 1, self._asked, at, ID_PREFIX_SIZE)
            put_u16(frame, 9, 0)
            return _STATE_SIZE
        incoming = self.incoming[part]
        gap = incoming.gap
        if not gap:
            return 0
        # On a line that lost a STATE before, send it twice.
        incoming.gap_sends += 1
        if not incoming.stated or incoming.gap_sends > 1:
            incoming.gap = 0
        if core.store.spool.part_size(PART_INCOMING + part) != gap - 1:
            return 0  # the run has grown since: the sender knows
        incoming.stated = gap
        incoming.stated_ms = core.now_ms
        copy(frame, 1, incoming.key, 0, ID_PREFIX_SIZE)
        put_u16(frame, 9, gap - 1)
        return _STATE_SIZE

    def _note_gap(self, exchange: "Exchange", part: int) -> None:
        """The peer does not know how long our run is: make a STATE due, at most once per epoch.

        The pieces that it had sent before our STATE reached it show the same gap.
        """
        incoming = self.incoming[part]
        have = self._core.store.spool.part_size(PART_INCOMING + part)
        quiet_ms = elapsed_ms(self._core.now_ms, incoming.stated_ms)
        if incoming.stated != have + 1 or quiet_ms >= _epoch_ms(exchange):
            incoming.gap = have + 1
            incoming.gap_sends = 0

    def on_segment(self, exchange: "Exchange", frame: bytearray, size: int) -> int:
        """Handle a SEGMENT; OK, E_PEER if it is malformed, or another code if it is not stored."""
        core = self._core
        total = get_u16(frame, 9) if size > SEGMENT_HEADER_SIZE else 0
        if total <= CONTENT_HEADER_SIZE or total > CONTENT_HEADER_SIZE + BODY_SIZE_MAX:
            return E_PEER
        offset = get_u16(frame, 11)
        end = offset + size - SEGMENT_HEADER_SIZE
        if end > total:
            return E_PEER
        exchange.attention = True
        if not offset and not self._begins(exchange, frame, size):
            return OK
        if exchange.reack_by_key(frame, 1):
            return OK
        part = self._open(exchange, frame, size)
        if part < 0:
            return OK if offset else E_CAPACITY
        incoming = self.incoming[part]
        if offset:
            core.is_telemetry = incoming.is_box
        else:
            incoming.is_box = core.is_telemetry
        part_file = PART_INCOMING + part
        have = core.store.spool.part_size(part_file)
        if offset > have or end <= have < total:
            # A piece that ends where our run ends is a copy; a single byte there is a question.
            if end != have or size == SEGMENT_HEADER_SIZE + 1:
                self._note_gap(exchange, part)
            return OK
        code = OK
        if end > have:
            at = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.spool.part_append(part_file, frame, at, end - have)
            incoming.grew_ms = core.now_ms
        if code != OK or max(end, have) >= total:  # it may be complete since before a reboot
            incoming.peer = -1
            at = exchange.peer * _ASKED_SIZE
            if not self._asked[at + ID_PREFIX_SIZE]:  # other copies of its pieces ask for nothing
                copy(self._asked, at, frame, 1, ID_PREFIX_SIZE)
            if code == OK:
                self._complete(exchange, part_file, incoming)
        return code

    def _begins(self, exchange: "Exchange", frame: bytearray, size: int) -> bool:
        """Check the group id in a first piece; False if the peer must not send to the group."""
        if size < SEGMENT_HEADER_SIZE + ID_SIZE:
            return True  # checked when the content is complete
        group = self._core.members.group_of(frame, SEGMENT_HEADER_SIZE)
        if group < 0 or not exchange.sees(group):
            self._core.unknown += 1
            return False
        self._core.is_telemetry = self._core.is_box(group)
        return True

    def _open(self, exchange: "Exchange", frame: bytearray, size: int) -> int:
        """Return the part of the content of a piece, opening its file if need be; -1: none.

        A piece behind the start of a content of which nothing is here opens none: a STATE tells
        the peer so. What the peer asked about first is answered first: it asks about the others
        again. Of the content that was answered, complete or lost last, only a question asks again:
        other pieces are copies, or were on their way.
        """
        peer = exchange.peer
        part = self.part(peer)
        if part >= 0:
            incoming = self.incoming[part]
            is_same = incoming.size == get_u16(frame, 9)
            if is_same and equal(incoming.key, 0, frame, 1, ID_PREFIX_SIZE):
                return part
            if self._may_evict(part):
                incoming.peer = part = -1
            else:
                self._note_gap(exchange, part)
        offset = get_u16(frame, 11)
        part = self._begin(exchange, frame, offset) if part < 0 else -1
        asked = self._asked
        at = peer * _ASKED_SIZE
        if part < 0 and offset and not asked[at + ID_PREFIX_SIZE]:
            is_same = equal(asked, at, frame, 1, ID_PREFIX_SIZE)
            if not is_same or size == SEGMENT_HEADER_SIZE + 1:
                copy(asked, at, frame, 1, ID_PREFIX_SIZE)
                asked[at + ID_PREFIX_SIZE] = 1
        return part

    def _begin(self, exchange: "Exchange", frame: bytearray, offset: int) -> int:
        """Return a part for a content that is not being assembled; -1: none.

        A piece behind the start continues a file that a reboot left: only a part that was not used
        since the boot has one.
        """
        core = self._core
        spool = core.store.spool
        part_file = self.claim_part(frame, 1, not offset)
        if part_file < 0:
            return -1
        incoming = self.incoming[part_file - PART_INCOMING]
        is_mvds = exchange.family == FAMILY_MVDS
        if offset and (is_mvds or incoming.size):
            return -1
        if is_mvds:
            # The id does not cover parents, so it would not show what a power cut tore there.
            spool.part_drop(part_file)
        incoming.size = get_u16(frame, 9)
        have = spool.part_open(part_file, frame, 1, incoming.size)
        if offset and not have:
            spool.part_drop(part_file)
            return -1
        if have < 0:
            return -1
        incoming.peer = exchange.peer
        incoming.grew_ms = core.now_ms
        copy(incoming.key, 0, frame, 1, ID_PREFIX_SIZE)
        incoming.stated = incoming.gap = 0
        incoming.is_box = False
        return part_file - PART_INCOMING

    def _complete(self, exchange: "Exchange", part_file: int, incoming: "Incoming") -> None:
        """Verify a complete content, take it in, and free its part file."""
        core = self._core
        group = core.identify_part(part_file)
        if group < 0 or not exchange.sees(group):
            core.unknown += 1
        elif not equal(core.id, 0, incoming.key, 0, ID_PREFIX_SIZE):
            exchange.bad_record()
        elif not exchange.reack_if_known(core.id):
            outcome = core.graph.take_part(group, exchange.peer_number, core.id, part_file)
            exchange.after_accept(outcome, group)
        core.store.spool.part_drop(part_file)


def _epoch_ms(exchange: "Exchange") -> int:
    """Return the length of a link's epoch in ms; 0 on a stick."""
    if exchange.visits:
        return 0
    return exchange.pace.every * exchange.core.clocks.epoch_ms(exchange.peer)
