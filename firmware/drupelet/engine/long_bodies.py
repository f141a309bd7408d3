"""Segments: a message longer than a frame travels in pieces, below every wire profile.

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
    ID_SIZE,
    PART_FLUSH_SIZE,
    PART_INCOMING,
    PIECE_SIZE,
    SEGMENT_HEADER_SIZE,
    SEGMENT_TRIES_MAX,
)
from drupelet.base.memory import copy, equal, fill, get_u16, put_u16
from drupelet.base.time_ms import elapsed_ms
from drupelet.engine.members import FAMILY_MVDS, SHARED
from drupelet.engine.receiver import PART_GREW_MS, Exchange
from drupelet.engine.slots import PART_OWNER, PART_ROW, PART_SIZE
from drupelet.engine.states import GOT_MESSAGE, GOT_REQUEST, HOLD, QUEUED, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core

KIND_SEGMENT = const(0x50)
KIND_STATE = const(0x51)
_KEY_SIZE = const(8)
_STATE_SIZE = const(11)
# In a row of `core.part_rows`: how long the content is and when it last grew; how much of it we
# had (+ 1) when its sender seemed not to know; how much it was told that we have (+ 1; 0: nothing
# yet), and when; whether it is a black box.
_TOTAL = const(0)
_GAP = const(2)
_TOLD = const(3)
_TOLD_MS = const(4)
_BOX = const(5)
assert _BOX < PART_ROW
# In `_GAP`: it has left once.
_ONCE = const(0x10000)
# Of what goes out, behind its key in `core.parts`: where the next piece begins, u16; how much the
# peer said it has, u16; pieces that may leave before it is asked; whether the next one has left
# once; how often these are halved, 0 while nothing is lost; how often it was asked in vain.
_NEXT = const(8)
_BASE = const(10)
_ROOM = const(12)
_AGAIN = const(13)
_CAUTION = const(14)
_TRIES = const(15)
assert _KEY_SIZE == PART_OWNER == _NEXT and _TRIES < PART_SIZE
# Eight pieces at once: where 3 of 10 get lost, five of them come, sent twice.
_CAUTION_MAX = const(3)


class SegmentExchange(Exchange):
    """An exchange whose long messages go out and come in piece by piece."""

    def __init__(self, core: "Core", peer: int, visits: bool) -> None:
        Exchange.__init__(self, core, peer, visits)
        if visits:
            self.offset = 0

    def segment_into(self, frame: bytearray, limit: int) -> int:
        """Write the next piece of the message `long_handle`; 0 when it is not due any more."""
        core = self.core
        store = core.store
        row = self._out_key()
        live = not self.visits
        if live:
            self._stay()
        loaded = store.load(self.long_handle) == OK and store.size
        slot = core.slots.find(store.id, 0) if loaded else -1
        if slot >= 0 and not core.slots.states[self.cell(slot)] & (QUEUED | REQUEST):
            slot = -1
        group = core.members.group_slot(store.group) if loaded else -1
        due = self.message_due(slot) if slot >= 0 else self.visits
        if group < 0 or self.sees(group) != SHARED or not due:
            self._end_long()
            return 0
        total = CONTENT_HEADER_SIZE + store.size
        size = min(limit, FRAME_SIZE_MAX) - SEGMENT_HEADER_SIZE
        if live:
            self._choose(slot, total)
            offset = get_u16(core.parts, row + _NEXT)
            if not core.parts[row + _ROOM]:
                size = 1  # the last byte again: that is to ask
                offset -= 1
        else:
            offset = self.offset
        size = min(size, total - offset)
        frame[0] = KIND_SEGMENT
        copy(frame, 1, store.id, 0, _KEY_SIZE)
        put_u16(frame, 9, total)
        put_u16(frame, 11, offset)
        core.telemetry = core.is_box(group)
        self.content_into(frame, SEGMENT_HEADER_SIZE, offset, size, group)
        offset += size
        if live:
            self._went(slot, offset, total)
        else:
            self.offset = offset
            if offset == total:
                self._over(slot)
        return SEGMENT_HEADER_SIZE + size

    def _out_key(self) -> int:
        return (len(self.core.part_rows) // PART_ROW + self.peer) * PART_SIZE

    def _stay(self) -> None:
        """Stay with what was begun, over whatever link: the peer takes in one at a time."""
        slots = self.core.slots
        row = self._out_key()
        rows = self.core.parts
        slot = slots.find_prefix(rows, row, _KEY_SIZE)
        if slot < 0 or slots.states[self.cell(slot)] & HOLD:
            if get_u16(rows, row + _NEXT):  # it came
                rows[row + _CAUTION] = max(rows[row + _CAUTION], 1) - 1
                rows[row + _ROOM] = 0
            self._turn()
        elif self._cell_wait(self.cell(slot)) > 0 or self.message_due(slot):
            self.long_handle = slots.handles[slot]

    def _turn(self) -> None:
        """Another long message may have its turn."""
        fill(self.core.parts, self._out_key(), _BASE, 0)

    def _choose(self, slot: int, total: int) -> None:
        """Begin with the message that the store has loaded, unless it was begun."""
        core = self.core
        if equal(core.parts, self._out_key(), core.store.id, 0, _KEY_SIZE):
            return
        at = self._out_key() + _ROOM
        room = core.parts[at]
        self._go_on(core.store.id, 0, 0)
        core.parts[at] = room or core.parts[at]
        if total > PART_FLUSH_SIZE and core.slots.send_counts[self.cell(slot)]:
            # It has left whole, but is not acknowledged: its last byte shows what arrived.
            put_u16(core.parts, self._out_key() + _NEXT, total)
            core.parts[at] = 0

    def _go_on(self, id: bytearray, at: int, have: int) -> None:
        """The content of this key goes on at `have`."""
        row = self._out_key()
        rows = self.core.parts
        copy(rows, row, id, at, _KEY_SIZE)
        put_u16(rows, row + _NEXT, have)
        put_u16(rows, row + _BASE, have)
        rows[row + _ROOM] = FRAMES_PER_EPOCH_MAX >> rows[row + _CAUTION]
        rows[row + _AGAIN] = rows[row + _TRIES] = 0

    def _went(self, slot: int, end: int, total: int) -> None:
        """A piece up to `end` has left: see what follows it."""
        row = self._out_key()
        rows = self.core.parts
        caution = rows[row + _CAUTION]
        asks = not rows[row + _ROOM]
        early = asks or end <= get_u16(rows, row + _BASE) + PIECE_SIZE
        rows[row + _AGAIN] = int(caution and early and not rows[row + _AGAIN])
        if rows[row + _AGAIN]:
            return
        if not asks:
            put_u16(rows, row + _NEXT, end)
            if caution:
                rows[row + _ROOM] -= 1
            if end < total or not rows[row + _ROOM]:
                return
        rows[row + _TRIES] += 1
        if not asks or not caution or rows[row + _TRIES] >= SEGMENT_TRIES_MAX:
            self._turn()
            self._over(slot)
            return
        # It answers in its next epoch, if it does; else it is asked again.
        if rows[row + _TRIES] == 1 and get_u16(rows, row + _NEXT) == total:
            self.note_sent(slot)
        else:
            cell = self.cell(slot)
            self.core.slots.sent(cell, self.core.slots.send_counts[cell] or 1, self.epoch)
        self._end_long()

    def on_state(self, frame: bytearray, size: int) -> int:
        """The peer tells how much of a content it has: go on from there."""
        if size != _STATE_SIZE:
            return E_PEER
        slots = self.core.slots
        slot = slots.find_prefix(frame, 1, _KEY_SIZE)
        if slot < 0 or self.sight(slot) != SHARED or slots.states[self.cell(slot)] & HOLD:
            return OK
        have = get_u16(frame, 9)
        store = self.core.store
        if store.load(slots.handles[slot]) != OK or have >= CONTENT_HEADER_SIZE + store.size:
            have = 0
        if self.visits:
            self.offset = have
        self._step(slot, GOT_REQUEST)  # it asks for the rest
        self.attention = True
        if self._learn(frame, have):
            # The peer takes in this one, and only this one, now.
            slots.send_counts[self.cell(slot)] = 0
            self.long_handle = slots.handles[slot]
        return OK

    def _learn(self, frame: bytearray, have: int) -> bool:
        """See from a state how much the line loses; False when another one has its turn."""
        row = self._out_key()
        rows = self.core.parts
        caution = rows[row + _CAUTION]
        same = equal(rows, row, frame, 1, _KEY_SIZE)
        base = get_u16(rows, row + _BASE)
        sent = get_u16(rows, row + _NEXT) - base
        if same and have == base and caution and rows[row + _ROOM]:
            return True  # what is under way was not there yet
        if not same or have - base << 1 < sent:
            rows[row + _CAUTION] = min(caution + 1, _CAUTION_MAX)
        elif caution and 0 < sent <= have - base:
            rows[row + _CAUTION] = caution - 1
        tries = rows[row + _TRIES]
        self._go_on(frame, 1, have)
        rows[row + _TRIES] = tries if same and have <= base else 0
        if same and have < base:
            self._turn()  # it lost or refused what it had
        return not same or have >= base

    def begun(self, id: bytearray, at: int) -> bool:
        """True when we have a part of this message from the peer: it is told, not asked for."""
        part = self._part()
        if part < 0 or not equal(self.core.parts, part * PART_SIZE, id, at, _KEY_SIZE):
            return False
        self._missed(part, self.core.store.part_size(PART_INCOMING + part))
        return True

    def _part(self) -> int:
        """The part that takes in this peer's content, over whatever link; -1 for none."""
        core = self.core
        for part in range(len(core.part_rows) // PART_ROW):
            if core.parts[part * PART_SIZE + PART_OWNER] == self.peer + 1:
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
        gap = rows[row + _GAP] & 0xFFFF
        # On a line that loses more than one piece the answer may get lost, too: it goes twice.
        twice = rows[row + _TOLD] and rows[row + _GAP] == gap
        rows[row + _GAP] = gap | _ONCE if twice else 0
        if core.store.part_size(PART_INCOMING + part) != gap - 1:
            return 0  # it has grown since: the sender is at it already
        rows[row + _TOLD] = gap
        rows[row + _TOLD_MS] = core.now_ms
        frame[0] = KIND_STATE
        copy(frame, 1, core.parts, part * PART_SIZE, _KEY_SIZE)
        put_u16(frame, 9, gap - 1)
        return _STATE_SIZE

    def _missed(self, part: int, have: int) -> None:
        """The peer does not know how far its content has come: tell it, but not all the time.

        What it sent before it heard of a gap shows the same gap.
        """
        row = part * PART_ROW
        rows = self.core.part_rows
        told_ms = elapsed_ms(self.core.now_ms, rows[row + _TOLD_MS])
        if rows[row + _TOLD] != have + 1 or told_ms >= self.epoch_ms:
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
            core.telemetry = core.is_box(core.slots.group(slot))
            if self.sight(slot):
                self._step(slot, GOT_MESSAGE)
            return OK
        part = self._open(frame, total)
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
            # What ends where the run ends is a copy, unless it is a byte that asks.
            if end != have or size == SEGMENT_HEADER_SIZE + 1:
                self._missed(part, have)
            return OK
        code = OK
        if end > have:
            at = SEGMENT_HEADER_SIZE + have - offset
            code = core.store.part_append(file, frame, at, end - have)
            core.part_rows[row + PART_GREW_MS] = core.now_ms
        if code != OK or end >= total:
            core.parts[part * PART_SIZE + PART_OWNER] = 0
            if code == OK:
                self._complete(file, part * PART_SIZE)
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

    def _open(self, frame: bytearray, total: int) -> int:
        """The part that this content goes into; -1 when others have them all."""
        core = self.core
        part = self._part()
        if part < 0:
            # By key, so that a content finds the file again that it had before a reboot.
            count = len(core.part_rows) // PART_ROW
            part = frame[1] % count
            for _ in range(count):
                if not core.parts[part * PART_SIZE + PART_OWNER]:
                    break
                part = (part + 1) % count
        at = part * PART_SIZE
        owner = core.parts[at + PART_OWNER]
        same = equal(core.parts, at, frame, 1, _KEY_SIZE)
        row = part * PART_ROW
        rows = core.part_rows
        same = same and rows[row + _TOTAL] == total
        if owner == self.peer + 1 and same:
            return part
        if owner and not self.gives_way(part):
            if owner == self.peer + 1:
                self._missed(part, core.store.part_size(PART_INCOMING + part))
            return -1
        core.parts[at + PART_OWNER] = self.peer + 1
        rows[row + PART_GREW_MS] = core.now_ms
        copy(core.parts, at, frame, 1, _KEY_SIZE)
        rows[row + _TOTAL] = total
        rows[row + _TOLD] = rows[row + _GAP] = rows[row + _BOX] = 0
        if self.family == FAMILY_MVDS:
            # Its id does not cover parents: what a power cut tore there, nothing would show.
            core.store.part_drop(PART_INCOMING + part)
        if core.store.part_open(PART_INCOMING + part, frame, 1, total) < 0:
            core.parts[at + PART_OWNER] = 0
            return -1
        return part

    def _complete(self, file: int, key_at: int) -> None:
        """All pieces are here: verify, take in, and let the part file go."""
        core = self.core
        group = core.identify_part(file)
        if group < 0 or not self.sees(group):
            core.unknown += 1
        elif not equal(core.id, 0, core.parts, key_at, _KEY_SIZE):
            self.bad_record()
        elif not self.known(core.id, 0):
            self.took(core.graph.take_part(group, self._number(), core.id, file), group)
        core.store.part_drop(file)
