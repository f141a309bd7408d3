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
from drupelet.members import GROUP_TELEMETRY, SHARED
from drupelet.memory import copy, equal, fill, get_u16, put_u16
from drupelet.schedule import elapsed_ms
from drupelet.states import GOT_MESSAGE, GOT_REQUEST, HOLD
from drupelet.sync import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_KEY_SIZE = const(8)
_STATE_SIZE = const(11)
# A transfer that stood still for 2^3 epochs gives its part file up to another.
_STILL_SHIFT = const(3)


class SegmentExchange(Exchange):
    """An exchange whose long messages go out and come in piece by piece."""

    def __init__(
        self, core: "Core", peer: int, family: int, interactive: bool, visits: bool
    ) -> None:
        Dues.__init__(self, core, peer, family, interactive, visits)
        self.epoch_ms = 0  # of a live link
        self._offset = 0
        self.telemetry_in = False  # what comes in in pieces is a black box

    # --- out ---

    def segment_into(self, frame: bytearray, limit: int) -> int:
        """Write the next piece of the message `long_handle`; 0 when it is not due any more."""
        core = self.core
        store = core.store
        live = not self.visits
        if live:
            self._take_over()
        slot = self.long_slot
        due = slot < 0 or self.message_due(slot)
        if not due or store.load(self.long_handle) != OK or not store.size:
            self._end_long()
            return 0
        total = CONTENT_HEADER_SIZE + store.size
        size = min(limit - SEGMENT_HEADER_SIZE, total)
        if live:
            self._resume(slot, total, size)
        size = min(size, total - self._offset)
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, _KEY_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, self._offset)
        group = core.members.group_slot(store.group)
        self.telemetry = core.members.group_flags[group] & GROUP_TELEMETRY != 0
        self._piece_into(frame, SEGMENT_HEADER_SIZE, size, group)
        self._offset += size
        if live:
            core.out_sizes[self.peer] = self._offset
        if self._offset == total:
            if slot >= 0:
                self.note_sent(slot)
            self._end_long()
            if live:
                fill(core.out_keys, self.peer * _KEY_SIZE, _KEY_SIZE, 0)
            self._message_left = core.slots.count  # the next long one has its turn
        return SEGMENT_HEADER_SIZE + size

    def _take_over(self) -> None:
        """Go on with what another link to the peer has begun: it takes in one at a time."""
        slots = self.core.slots
        slot = slots.find_prefix(self.core.out_keys, self.peer * _KEY_SIZE, _KEY_SIZE)
        if slot >= 0 and slot != self.long_slot and self.message_due(slot):
            self.long_slot = slot
            self.long_handle = slots.handles[slot]

    def _resume(self, slot: int, total: int, size: int) -> None:
        """Set the offset of a live link's next piece: where the last one ended, on whatever."""
        core = self.core
        key_at = self.peer * _KEY_SIZE
        self._offset = 0
        if equal(core.out_keys, key_at, core.store.id, 0, _KEY_SIZE):
            self._offset = core.out_sizes[self.peer]
        elif total > PART_FLUSH_SIZE and self._went_out(slot):
            # The last piece shows what of it arrived.
            self._offset = total - (size if size < PIECE_SIZE else PIECE_SIZE)
        copy(core.out_keys, key_at, core.store.id, 0, _KEY_SIZE)

    def _went_out(self, slot: int) -> bool:
        """True when the message has left whole over a live link, but is not acknowledged."""
        return slot >= 0 and not self.visits and self.core.slots.send_counts[self._cell(slot)] > 0

    def _end_long(self) -> None:
        self._offset = self.long_handle = 0
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
            return E_PEER
        slots = self.core.slots
        slot = slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot < 0 or self.sight(slot) != SHARED or slots.states[self._cell(slot)] & HOLD:
            return OK
        have = get_u16(frame, 9)
        if have >= CONTENT_HEADER_SIZE + slots.size(slot):
            have = 0
        copy(self.core.out_keys, self.peer * _KEY_SIZE, frame, 1, _KEY_SIZE)
        self.core.out_sizes[self.peer] = have
        if self.long_slot != slot:
            self._end_long()  # the peer takes in this one, and only this one, now
        self._offset = have
        self._step(slot, GOT_REQUEST)  # it asks for the rest
        slots.send_counts[self._cell(slot)] = 0
        self.long_handle = slots.handles[slot]
        self.long_slot = slot
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
        if part < 0 or not core.part_gaps[part]:
            return 0
        gap = core.part_gaps[part]
        core.part_gaps[part] = 0
        if core.store.part_size(PART_INCOMING + part) != gap - 1:
            return 0  # it has grown since: the sender is at it already
        core.part_told[part] = gap
        core.part_told_ms[part] = self.now_ms
        frame[0] = KIND_STATE
        copy(frame, 1, core.part_keys, part * _KEY_SIZE, _KEY_SIZE)
        put_u16(frame, 9, gap - 1)
        return _STATE_SIZE

    def _missed(self, part: int, have: int) -> None:
        """The peer does not know how far its content has come: tell it, but not all the time.

        What it sent before it heard of a gap shows the same gap.
        """
        core = self.core
        told_ms = elapsed_ms(self.now_ms, core.part_told_ms[part])
        if core.part_told[part] != have + 1 or told_ms >> 1 >= self.epoch_ms:
            core.part_gaps[part] = have + 1

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
            if self.sight(slot):
                self._step(slot, GOT_MESSAGE)
            return OK
        part = self._open(frame, offset, total)
        if part < 0:
            return E_CAPACITY
        file = PART_INCOMING + part
        have = core.store.part_size(file)
        if offset > have or end <= have < total:
            self._missed(part, have)
            return OK
        code = OK
        if end > have:
            at = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.part_append(file, frame, at, end - have)
            core.part_grew_ms[part] = self.now_ms
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
        self.telemetry_in = members.group_flags[group] & GROUP_TELEMETRY != 0
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
        same = same and core.part_totals[part] == total
        if owners[part] == self.peer + 1 and same:
            return part
        if owners[part] and not self._gives_way(part, offset):
            if owners[part] == self.peer + 1:
                self._missed(part, core.store.part_size(PART_INCOMING + part))
            return -1
        owners[part] = self.peer + 1
        core.part_grew_ms[part] = self.now_ms
        copy(core.part_keys, part * _KEY_SIZE, frame, 1, _KEY_SIZE)
        core.part_totals[part] = total
        core.part_told[part] = core.part_gaps[part] = 0
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
        still_ms = elapsed_ms(self.now_ms, core.part_grew_ms[part])
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
