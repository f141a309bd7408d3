"""Segments: a message longer than a frame travels in pieces, below every wire profile.

    SEGMENT        0x50 | content id 8 | total u16 | offset u16 | bytes
    SEGMENT STATE  0x51 | content id 8 | have u16

The content is group id, timestamp and body; its id is the first 8 bytes of the message id. Pieces
are contiguous. A receiver that sees a gap or what it has already says how far it has come, and the
sender goes on from there, over whatever carrier comes next; a sender that hears nothing sends the
last piece again, which the receiver has to answer. It takes in one content
of a peer at a time, and keeps to a long one: were it to follow a sender that goes on to the next
message, none would get done. The id is computed from what is read back
from flash, which verifies the pieces and their durability in one pass.
"""

from drupelet._compat import const
from drupelet.core import PART_ROW
from drupelet.due import Dues
from drupelet.errors import E_CAPACITY, E_PEER, OK
from drupelet.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    PART_FLUSH_SIZE,
    PART_INCOMING,
    PIECE_SIZE,
    SEGMENT_HEADER_SIZE,
)
from drupelet.members import SHARED
from drupelet.memory import copy, equal, fill, get_u16, put_u16
from drupelet.schedule import elapsed_ms
from drupelet.states import GOT_MESSAGE, GOT_REQUEST, HOLD, QUEUED, REQUEST
from drupelet.sync import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_KEY_SIZE = const(8)
_STATE_SIZE = const(11)
# In a row of `core.part_rows`: how long the content is and when it last grew; how much of it we
# had (+ 1) when its sender seemed not to know; how much it was told that we have (+ 1; 0: nothing
# yet), and when; whether it is a black box.
_TOTAL = const(0)
_GREW_MS = const(1)
_GAP = const(2)
_TOLD = const(3)
_TOLD_MS = const(4)
_BOX = const(5)
assert _BOX < PART_ROW
# A transfer that stood still for 2^3 epochs gives its part file up to another.
_STILL_SHIFT = const(3)


class SegmentExchange(Exchange):
    """An exchange whose long messages go out and come in piece by piece."""

    @property
    def epoch_ms(self) -> int:
        """Of a live link."""
        return 0

    def __init__(self, core: "Core", peer: int, visits: bool) -> None:
        Dues.__init__(self, core, peer, visits)
        if visits:
            self.offset = 0  # how far the message that goes out in pieces is written

    # --- out ---

    def segment_into(self, frame: bytearray, limit: int) -> int:
        """Write the next piece of the message `long_handle`; 0 when it is not due any more."""
        core = self.core
        store = core.store
        live = not self.visits
        if live:
            self._take_over()
        slot = self._slot()
        due = self.message_due(slot) if slot >= 0 else not live
        if not due or store.load(self.long_handle) != OK or not store.size:
            self._end_long()
            return 0
        total = CONTENT_HEADER_SIZE + store.size
        size = min(limit - SEGMENT_HEADER_SIZE, total)
        offset = self._resume(slot, total, size) if live else self.offset
        size = min(size, total - offset)
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, _KEY_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, offset)
        group = core.members.group_slot(store.group)
        core.telemetry = core.is_box(group)
        self._piece_into(frame, offset, size, group)
        offset += size
        if live:
            core.out_sizes[self.peer] = offset
        else:
            self.offset = offset
        if offset == total:
            if slot >= 0:
                self.note_sent(slot)
            self._end_long()
            if live:
                fill(core.part_keys, self._out_key(), _KEY_SIZE, 0)
            core.message_left = core.slots.count  # the next long one has its turn
        return SEGMENT_HEADER_SIZE + size

    def _out_key(self) -> int:
        return (len(self.core.part_owners) + self.peer) * _KEY_SIZE

    def _slot(self) -> int:
        """The slot where the message `long_handle` is queued for the peer, or -1."""
        slots = self.core.slots
        for slot in range(slots.count):
            queued = slots.states[self._cell(slot)] & (QUEUED | REQUEST)
            if queued and slots.handles[slot] == self.long_handle:
                return slot
        return -1

    def _take_over(self) -> None:
        """Go on with what another link to the peer has begun: it takes in one at a time."""
        slots = self.core.slots
        slot = slots.find_prefix(self.core.part_keys, self._out_key(), _KEY_SIZE)
        if slot >= 0 and self.message_due(slot):
            self.long_handle = slots.handles[slot]

    def _resume(self, slot: int, total: int, size: int) -> int:
        """The offset of a live link's next piece: where the last one ended, on whatever."""
        core = self.core
        key_at = self._out_key()
        offset = 0
        if equal(core.part_keys, key_at, core.store.id, 0, _KEY_SIZE):
            offset = core.out_sizes[self.peer]
        elif total > PART_FLUSH_SIZE and core.slots.send_counts[self._cell(slot)]:
            # It has left whole, but is not acknowledged: the last piece shows what arrived.
            offset = total - (size if size < PIECE_SIZE else PIECE_SIZE)
        copy(core.part_keys, key_at, core.store.id, 0, _KEY_SIZE)
        return offset

    def _end_long(self) -> None:
        self.long_handle = 0
        if self.visits:
            self.offset = 0

    def _piece_into(self, frame: bytearray, offset: int, size: int, group: int) -> None:
        """Copy `size` content bytes from `offset` on; the store has loaded the message."""
        core = self.core
        at = SEGMENT_HEADER_SIZE
        head = CONTENT_HEADER_SIZE - offset
        if head > 0:
            head = head if head < size else size
            scratch = core.scratch
            copy(scratch, 0, core.members.group_ids, group * ID_SIZE, ID_SIZE)
            copy(scratch, ID_SIZE, core.store.timestamp, 0, CONTENT_HEADER_SIZE - ID_SIZE)
            copy(frame, at, scratch, offset, head)
            offset += head
            at += head
            size -= head
        if size:
            core.store.read_into(self.long_handle, offset - CONTENT_HEADER_SIZE, frame, at, size)

    def on_state(self, frame: bytearray, size: int) -> int:
        """The peer tells how much of a content it has: go on from there."""
        if size != _STATE_SIZE:
            return E_PEER
        slots = self.core.slots
        slot = slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot < 0 or self.sight(slot) != SHARED or slots.states[self._cell(slot)] & HOLD:
            return OK
        have = get_u16(frame, 9)
        store = self.core.store
        known = store.load(slots.handles[slot]) == OK
        if not known or have >= CONTENT_HEADER_SIZE + store.size:
            have = 0
        copy(self.core.part_keys, self._out_key(), frame, 1, _KEY_SIZE)
        self.core.out_sizes[self.peer] = have
        if self.visits:
            self.offset = have
        self._step(slot, GOT_REQUEST)  # it asks for the rest
        slots.send_counts[self._cell(slot)] = 0
        # The peer takes in this one, and only this one, now.
        self.long_handle = slots.handles[slot]
        self.attention = True
        return OK

    # --- in ---

    def begun(self, id: bytearray, at: int) -> bool:
        """True when we have a part of this message from the peer: it is told, not asked for."""
        part = self._part()
        if part < 0 or not equal(self.core.part_keys, part * _KEY_SIZE, id, at, _KEY_SIZE):
            return False
        self._missed(part, self.core.store.part_size(PART_INCOMING + part))
        return True

    def _part(self) -> int:
        """The part that takes in this peer's content, over whatever link; -1 for none."""
        owners = self.core.part_owners
        for part in range(len(owners)):
            if owners[part] == self.peer + 1:
                return part
        return -1

    def state_into(self, frame: bytearray) -> int:
        """Write a SEGMENT STATE if the peer should know one; its size, or 0."""
        core = self.core
        part = self._part()
        row = part * PART_ROW
        rows = core.part_rows
        if part < 0 or not rows[row + _GAP]:
            return 0
        gap = rows[row + _GAP]
        rows[row + _GAP] = 0
        if core.store.part_size(PART_INCOMING + part) != gap - 1:
            return 0  # it has grown since: the sender is at it already
        rows[row + _TOLD] = gap
        rows[row + _TOLD_MS] = core.now_ms
        frame[0] = KIND_STATE
        copy(frame, 1, core.part_keys, part * _KEY_SIZE, _KEY_SIZE)
        put_u16(frame, 9, gap - 1)
        return _STATE_SIZE

    def _missed(self, part: int, have: int) -> None:
        """The peer does not know how far its content has come: tell it, but not all the time.

        What it sent before it heard of a gap shows the same gap.
        """
        row = part * PART_ROW
        rows = self.core.part_rows
        told_ms = elapsed_ms(self.core.now_ms, rows[row + _TOLD_MS])
        if rows[row + _TOLD] != have + 1 or told_ms >> 1 >= self.epoch_ms:
            rows[row + _GAP] = have + 1

    def on_segment(self, frame: bytearray, size: int) -> int:
        """Take in one piece; OK, or a negative code when it was not a piece at all."""
        core = self.core
        total = get_u16(frame, 9) if size > SEGMENT_HEADER_SIZE else 0
        if total <= CONTENT_HEADER_SIZE or total > CONTENT_HEADER_SIZE + BODY_SIZE_MAX:
            return E_PEER
        offset = get_u16(frame, 11)
        end = offset + size - SEGMENT_HEADER_SIZE
        if end > total:
            return E_PEER
        self.attention = True
        if not offset and not self._begins(frame, size):
            return OK
        slot = core.slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot >= 0:
            core.telemetry = core.is_box(core.slots.groups[slot])
            if self.sight(slot):
                self._step(slot, GOT_MESSAGE)
            return OK
        part = self._open(frame, offset, total)
        if part < 0:
            return E_CAPACITY
        row = part * PART_ROW
        if offset:
            core.telemetry = core.part_rows[row + _BOX] > 0
        else:
            core.part_rows[row + _BOX] = int(core.telemetry)
        file = PART_INCOMING + part
        have = core.store.part_size(file)
        if offset > have or end <= have < total:
            self._missed(part, have)
            return OK
        code = OK
        if end > have:
            at = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.part_append(file, frame, at, end - have)
            core.part_rows[row + _GREW_MS] = core.now_ms
        if code != OK:
            core.part_owners[part] = 0
        elif end >= total:
            core.part_owners[part] = 0
            self._complete(file, part * _KEY_SIZE)
        return code

    def _begins(self, frame: bytearray, size: int) -> bool:
        """Look at the group in a first piece; False when the peer may not send to it."""
        members = self.core.members
        if size < SEGMENT_HEADER_SIZE + ID_SIZE:
            return True  # seen when it is whole
        group = members.group_of(frame, SEGMENT_HEADER_SIZE)
        if group < 0 or not self.sees(group):
            self.core.unknown += 1
            return False
        self.core.telemetry = self.core.is_box(group)
        return True

    def _open(self, frame: bytearray, offset: int, total: int) -> int:
        """The part that this content goes into; -1 when others have them all."""
        core = self.core
        owners = core.part_owners
        part = self._part()
        if part < 0:
            # By key, so that a content finds the file again that it had before a reboot.
            part = frame[1] % len(owners)
            for _ in range(len(owners)):
                if not owners[part]:
                    break
                part = (part + 1) % len(owners)
        same = equal(core.part_keys, part * _KEY_SIZE, frame, 1, _KEY_SIZE)
        row = part * PART_ROW
        rows = core.part_rows
        same = same and rows[row + _TOTAL] == total
        if owners[part] == self.peer + 1 and same:
            return part
        if owners[part] and not self._gives_way(part, offset):
            if owners[part] == self.peer + 1:
                self._missed(part, core.store.part_size(PART_INCOMING + part))
            return -1
        owners[part] = self.peer + 1
        rows[row + _GREW_MS] = core.now_ms
        copy(core.part_keys, part * _KEY_SIZE, frame, 1, _KEY_SIZE)
        rows[row + _TOTAL] = total
        rows[row + _TOLD] = rows[row + _GAP] = rows[row + _BOX] = 0
        if core.store.part_open(PART_INCOMING + part, frame, 1, total) < 0:
            owners[part] = 0
            return -1
        return part

    def _gives_way(self, part: int, offset: int) -> bool:
        """True when a part's content is short, stands still, or came another way."""
        core = self.core
        ours = core.part_owners[part] == self.peer + 1
        if ours and not offset and core.store.part_size(PART_INCOMING + part) < PART_FLUSH_SIZE:
            return True
        known = core.slots.find_prefix(core.part_keys, part * _KEY_SIZE, _KEY_SIZE) >= 0
        still_ms = elapsed_ms(core.now_ms, core.part_rows[part * PART_ROW + _GREW_MS])
        return known or still_ms >> _STILL_SHIFT >= self.epoch_ms

    def _complete(self, file: int, key_at: int) -> None:
        """All pieces are here: verify, take in, and let the part file go."""
        core = self.core
        group = core.identify_part(file)
        if group < 0 or not self.sees(group):
            core.unknown += 1
        elif not equal(core.id, 0, core.part_keys, key_at, _KEY_SIZE):
            self.bad_record()
        elif not self.known(core.id, 0):
            self.took(core.graph.take_part(group, self._number(), core.id, file), group)
        core.store.part_drop(file)
