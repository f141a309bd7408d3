"""Segments: a message longer than a frame travels in pieces, below every wire profile.

    SEGMENT        0x50 | content id 8 | total u16 | offset u16 | bytes
    SEGMENT STATE  0x51 | content id 8 | have u16

The content is group id, timestamp and body; its id is the first 8 bytes of the message id. Pieces
are contiguous. A receiver that sees a gap or a standstill says how far it has come, and the sender
goes on from there, over whatever carrier comes next. The id is computed from what is read back
from flash, which verifies the pieces and their durability in one pass.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, OK
from drupelet.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    PART_INCOMING,
    SEGMENT_HEADER_SIZE,
)
from drupelet.members import GROUP_TELEMETRY
from drupelet.memory import copy, equal, get_u16, put_u16
from drupelet.states import GOT_MESSAGE, HOLD
from drupelet.sync import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_KEY_SIZE = const(8)
_STATE_SIZE = const(11)
_NO_PART = const(-1)


class SegmentExchange(Exchange):
    """An exchange whose long messages go out and come in piece by piece."""

    def __init__(self, core: "Core", peer: int, interactive: bool, visits: bool) -> None:
        super().__init__(core, peer, interactive, visits)
        self._offset = 0
        self._peer_key = bytearray(_KEY_SIZE)
        self._peer_have = 0
        self._part = _NO_PART
        self._key = bytearray(_KEY_SIZE)
        self._total = 0
        self._seen = 0  # bytes that were here at the last epoch: a standstill is reported
        self._gap = False
        self.telemetry_in = False  # what comes in in pieces is a black box

    # --- out ---

    def segment_into(self, frame: bytearray, limit: int) -> int:
        """Write the next piece of the message `long_handle`; 0 when it is not due any more."""
        core = self.core
        store = core.store
        slot = self.long_slot
        due = slot < 0 or self.message_due(slot)
        if not due or store.load(self.long_handle) != OK:
            self._end_long()
            return 0
        if not self._offset and equal(self._peer_key, 0, store.id, 0, _KEY_SIZE):
            self._offset = self._peer_have
        total = CONTENT_HEADER_SIZE + store.size
        size = limit - SEGMENT_HEADER_SIZE
        if size > total - self._offset:
            size = total - self._offset
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, _KEY_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, self._offset)
        group = core.members.group_slot(store.group)
        self.telemetry = core.members.group_flags[group] & GROUP_TELEMETRY != 0
        self._piece_into(frame, SEGMENT_HEADER_SIZE, size, group)
        self._offset += size
        if self._offset == total:
            self._end_long()
            if slot >= 0:
                self.note_sent(slot)
        return SEGMENT_HEADER_SIZE + size

    def _end_long(self) -> None:
        self._offset = self._peer_have = self.long_handle = 0
        self.long_slot = -1

    def _piece_into(self, frame: bytearray, at: int, size: int, group: int) -> None:
        """Copy `size` content bytes from `_offset` on; the store has loaded the message."""
        core = self.core
        offset = self._offset
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
            return -1
        slots = self.core.slots
        slot = slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot < 0 or slots.states[self._cell(slot)] & HOLD:
            return OK
        have = get_u16(frame, 9)
        if have >= CONTENT_HEADER_SIZE + slots.size(slot):
            have = 0
        copy(self._peer_key, 0, frame, 1, _KEY_SIZE)
        self._peer_have = have
        if self.long_slot == slot:
            self._offset = have
        slots.send_counts[self._cell(slot)] = 0
        self.attention = True
        return OK

    # --- in ---

    def state_into(self, frame: bytearray) -> int:
        """Write a SEGMENT STATE if the peer should know one; its size, or 0."""
        if not self._has_part():
            return 0
        have = self.core.store.part_size(PART_INCOMING + self._part)
        stuck = self._gap or have == self._seen or self.visits
        self._seen = have
        self._gap = False
        if not stuck or have >= self._total:
            return 0
        frame[0] = KIND_STATE
        copy(frame, 1, self._key, 0, _KEY_SIZE)
        put_u16(frame, 9, have)
        return _STATE_SIZE

    def on_segment(self, frame: bytearray, size: int) -> int:
        """Take in one piece; OK, or a negative code when it was not a piece at all."""
        core = self.core
        total = get_u16(frame, 9) if size > SEGMENT_HEADER_SIZE else 0
        if total <= CONTENT_HEADER_SIZE or total > CONTENT_HEADER_SIZE + BODY_SIZE_MAX:
            return -1
        offset = get_u16(frame, 11)
        if offset == 0 and size >= SEGMENT_HEADER_SIZE + ID_SIZE:
            group = core.members.group_of(frame, SEGMENT_HEADER_SIZE)
            flags = core.members.group_flags[group] if group >= 0 else 0
            self.telemetry_in = flags & GROUP_TELEMETRY != 0
        end = offset + size - SEGMENT_HEADER_SIZE
        if end > total:
            return -1
        slot = core.slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot >= 0:
            self._step(slot, GOT_MESSAGE)
            self.attention = True
            return OK
        if not self._open(frame, total):
            return E_CAPACITY
        file = PART_INCOMING + self._part
        have = core.store.part_size(file)
        if offset > have:
            self._gap = self.attention = True
            return OK
        if end > have:
            skip = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.part_append(file, frame, skip, end - have)
            if code != OK:
                return code
        if end >= total:
            self._complete()
        return OK

    def _has_part(self) -> bool:
        """True while a part file is ours; another peer may have taken it over."""
        return self._part >= 0 and self.core.part_owners[self._part] == self.peer + 1

    def _open(self, frame: bytearray, total: int) -> bool:
        """Make the peer's part file the one of this content; False when all are in use."""
        core = self.core
        if self._has_part() and self._total == total:
            if equal(self._key, 0, frame, 1, _KEY_SIZE):
                core.touch_part(self._part, self.now_ms)
                return True
        self._part = core.claim_part(self.peer, self.now_ms)
        if self._part < 0:
            return False
        copy(self._key, 0, frame, 1, _KEY_SIZE)
        self._total = total
        self._seen = 0
        return core.store.part_open(PART_INCOMING + self._part, self._key, 0, total) >= 0

    def _complete(self) -> None:
        """All pieces are here: verify, take in, and let the part file go."""
        core = self.core
        file = PART_INCOMING + self._part
        if not core.hash_part(file):
            return
        if not equal(core.id, 0, self._key, 0, _KEY_SIZE):
            self.bad_record()
        elif not self.known(core.id, 0):
            core.store.part_read_into(file, 0, core.scratch, 0, ID_SIZE)
            group = core.members.group_of(core.scratch, 0)
            if group < 0 or not core.members.visibility(group, self.peer):
                core.unknown += 1
            else:
                source = core.members.peer_numbers[self.peer]
                self.took(core.graph.take_part(group, source, core.id, file), group)
        core.store.part_drop(file)
        core.part_owners[self._part] = 0
        self._part = _NO_PART
