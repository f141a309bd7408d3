"""Profile `compact-1`, what comes in: each record of a frame to the engine (docs/SPEC.md 3.5).

A record begins with a byte: its type in the upper 3 bits, 5 bits of flags.

    0 ACK       1 MESSAGE   2 OFFER   3 REQUEST
    4 HELLO     5 BASE      6 GROUP   7 EXTENDED (type u8, size varint, content)
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BODY_SIZE_MAX, COMPACT_COVER_SIZE, COMPACT_GROUPS_MAX, ID_SIZE
from drupelet.base.memory import equal, fill, get_u16
from drupelet.engine.slots import OFFERED
from drupelet.engine.states import HOLD, INDEXED, QUEUED
from drupelet.wire.compact.hello import (
    FULL,
    FULL_ASKED,
    GREETING,
    IN_SYNC,
    SUM_SIZE,
    Contact,
    outstanding_into,
)
from drupelet.wire.compact.numbering import (
    FOLD_SIZE,
    NUMBER_MAX,
    STAMP_AT,
    begin_set,
    fold_in,
    folds_to,
)
from drupelet.wire.protobuf import get_varint, skip_varint
from drupelet.wire.stamps import STAMP_SIZE, get_stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.ports import LinkPort

ACK = const(0)
MESSAGE = const(1)
OFFER = const(2)
REQUEST = const(3)
HELLO = const(4)
BASE = const(5)
GROUP = const(6)
EXTENDED = const(7)

# ACK and REQUEST: the two lowest flags are the form.
FORM_RANGE = const(0)
FORM_BITS = const(1)
FORM_IDS = const(2)
FORM_PREFIXES = const(3)  # REQUEST only
# Where the 4 bytes of an id begin that go into a fold: an ACK is exact beyond the prefix of an
# offer; of what it asks for the asker knows no more than that prefix.
ACK_FOLD_AT = const(8)
REQUEST_FOLD_AT = const(4)

MESSAGE_SAME_SIZE = const(1)
MESSAGE_LAST = const(16)  # its body goes to the end of the frame: no size
MESSAGE_BASED = const(17)  # and generation and number are in it: no BASE stands before it
GROUP_IN_BYTE = const(7)  # the group index is in a byte of its own
OFFER_FULL = const(1)
HELLO_ANSWER = const(1)
HELLO_SUM = const(2)
HELLO_ASK = const(4)

EXTENDED_UNKNOWN = const(0)
EXTENDED_SKETCH = const(1)
EXTENDED_FULL = const(2)
PREFIX_SIZE = const(8)
_UNKNOWN_SIZE = const(3)


class CompactReader(Contact):
    """Reads frames of all links of a node. Nothing here allocates after construction."""

    def __init__(self, core: "Core") -> None:
        Contact.__init__(self, core)
        self._store_gen = getattr(core.store, "store_gen", 0) & 0xFFFF
        # Sets of an older generation, of what has no slot any more, or whose fold did not fit.
        self.ignored = 0
        # Of the frame that is being read or written.
        self._frame_generation = -1
        self._number = self._size = self._end = 0

    def parse_records(self, link: "LinkPort", frame: bytearray, at: int, end: int) -> int:
        """Hand each record to the engine; OK, or E_PEER at the first malformed one."""
        fill(self._slab, STAMP_AT, STAMP_SIZE, 0)
        self._frame_generation = -1
        self._number = self._size = 0
        self._end = end
        while at < end:
            start = at
            kind = frame[at] >> 5
            at = self._record(link, frame, at + 1, kind, frame[at] & 31)
            if at < 0:
                return E_PEER
            link.count_record(False, kind, at - start)
        self.heard()
        return OK

    def _record(self, link: "LinkPort", frame: bytearray, at: int, kind: int, flags: int) -> int:
        """One record whose first byte was read; the position behind it, or E_PEER."""
        if kind == ACK or kind == REQUEST:  # noqa: SIM109 - a tuple is code
            return self._set(link, frame, at, kind, flags)
        if kind == MESSAGE:
            return self._message(link, frame, at, flags)
        if kind == OFFER:
            return self._offer(link, frame, at, flags)
        if kind == BASE:
            return self._base(link, frame, at, flags)
        if kind == GROUP:
            if not self._number or flags >= COMPACT_GROUPS_MAX:
                return E_PEER
            if at + ID_SIZE > self._end:
                return E_PEER
            self.announced(flags, link.core.members.group_of(frame, at))
            return at + ID_SIZE
        if kind == HELLO:
            return self._hello(link, frame, at, flags)
        return self._extended(link, frame, at, flags)

    # --- sets: ACK and REQUEST ---

    def _set(self, link: "LinkPort", frame: bytearray, at: int, kind: int, flags: int) -> int:
        form = flags & 3
        count = flags >> 2
        if form >= FORM_IDS:
            return self._whole_ids(link, frame, at, kind, form, count)
        if self._end - at < 2 or (form == FORM_BITS and count):
            return E_PEER
        generation = get_u16(frame, at)
        number_at = at + 2
        at = skip_varint(frame, number_at, self._end)
        first = get_varint(frame, number_at, at) if at > 0 else 0
        if first <= 0 or first > NUMBER_MAX:
            return E_PEER
        bits_at = -1
        if form == FORM_BITS:
            size = frame[at] if at < self._end else 0
            if size == 0 or size > COMPACT_COVER_SIZE:
                return E_PEER
            bits_at = at + 1
            at = bits_at + size
            count = size * 8
        elif not count:
            number_at = at
            at = skip_varint(frame, number_at, self._end)
            count = get_varint(frame, number_at, at) if at > 0 else 0
            if count <= 0 or count > COMPACT_COVER_SIZE * 8:
                return E_PEER
        if self._end - at < FOLD_SIZE or (bits_at < 0 and first + count > NUMBER_MAX + 1):
            return E_PEER
        if generation == self.generation():
            self._apply(link, frame, first, count, bits_at, at, kind)
        else:
            self.ignored += 1
            if not self.has(GREETING):
                self.greet(link)  # segments name none: it would not hear of the present one
                link.attention = True
        return at + FOLD_SIZE

    def _apply(
        self, link: "LinkPort", frame: bytearray, first: int, count: int, bits_at: int,
        fold_at: int, kind: int,
    ) -> None:  # fmt: skip
        """A set of our own numbers counts if every message is here and their ids fold right."""
        slots = link.core.slots
        begin_set(self._slab)
        folds_at = ACK_FOLD_AT if kind == ACK else REQUEST_FOLD_AT
        for offset in range(count):
            if bits_at < 0 or frame[bits_at + (offset >> 3)] & 1 << (offset & 7):
                slot = self.slot_of(first + offset)
                if slot < 0 or not slots.id_into(slot, self._slab, 0):
                    self.ignored += 1
                    return
                fold_in(self._slab, folds_at)
        if not folds_to(self._slab, frame, fold_at):
            self.ignored += 1
            self.ask_whole_ids(link)
            return
        for offset in range(count):
            if bits_at < 0 or frame[bits_at + (offset >> 3)] & 1 << (offset & 7):
                slot = self.slot_of(first + offset)
                if slot >= 0:  # else it went with one before it
                    self._answer(link, slot, kind)

    def _answer(self, link: "LinkPort", slot: int, kind: int) -> None:
        if kind == REQUEST:
            link.requested(slot)
            return
        slots = link.core.slots
        if slots.states[link.peer * slots.count + slot] & INDEXED:
            self.confirm(slots.group(slot))
        link.acked(slot)

    def _whole_ids(
        self, link: "LinkPort", frame: bytearray, at: int, kind: int, form: int, count: int
    ) -> int:
        size = ID_SIZE if form == FORM_IDS else PREFIX_SIZE
        if not count or at + count * size > self._end:
            return E_PEER
        if form == FORM_PREFIXES and kind == ACK:
            return E_PEER
        slots = link.core.slots
        for _ in range(count):
            if form == FORM_PREFIXES:
                slot = slots.find_prefix(frame, at, PREFIX_SIZE)
                if slot >= 0:
                    link.requested(slot)
            elif kind == REQUEST:
                link.on_request(frame, at)
            else:
                link.on_ack(frame, at)
            at += size
        return at

    # --- numbered records ---

    def _base(self, link: "LinkPort", frame: bytearray, at: int, flags: int) -> int:
        if flags:
            self._number += flags
            return at if self._number > flags else E_PEER
        if self._end - at < 2:
            return E_PEER
        generation = get_u16(frame, at)
        if self._frame_generation >= 0 and generation != self._frame_generation:
            return E_PEER
        self._hear(link, generation)
        behind = skip_varint(frame, at + 2, self._end)
        number = get_varint(frame, at + 2, behind) if behind > 0 else 0
        if number <= 0 or number > NUMBER_MAX:
            return E_PEER
        self._number = number
        return behind

    def _hear(self, link: "LinkPort", generation: int) -> None:  # noqa: ARG002
        self._frame_generation = generation
        if self.hear(generation):
            self.mark(FULL, False)

    def _offer(self, link: "LinkPort", frame: bytearray, at: int, flags: int) -> int:
        count = flags >> 1
        size = ID_SIZE if flags & OFFER_FULL else PREFIX_SIZE
        if not count or at + count * size > self._end or not self._number:
            return E_PEER
        if self._number + count - 1 > NUMBER_MAX:
            return E_PEER
        slots = link.core.slots
        for _ in range(count):
            slot = slots.find_prefix(frame, at, size)
            if slot >= 0 and link.sight(slot):
                link.offered(slot)
                slots.note_number(link.peer, slot, self._number)
            else:
                if self.whole_id(link, frame, at, size):
                    link.on_offer(self._slab, 0)
                else:
                    link.core.offers.add(self._slab, 0, link.peer, OFFERED, link.epoch)
                    link.attention = True
                self.note_number(link, self._slab, self._number)
            at += size
            self._number += 1
        return at

    def _message(self, link: "LinkPort", frame: bytearray, at: int, flags: int) -> int:
        if flags & MESSAGE_BASED == MESSAGE_BASED:
            at = self._base(link, frame, at, 0)
        number = self._number
        if at < 0 or not number or number > NUMBER_MAX:
            return E_PEER
        index = flags >> 1 & GROUP_IN_BYTE
        if index == GROUP_IN_BYTE:
            index = frame[at] if at < self._end else COMPACT_GROUPS_MAX
            at += 1
        if not flags & MESSAGE_BASED:
            behind = skip_varint(frame, at, self._end)
            self._size = get_varint(frame, at, behind) if behind > 0 else -1
            at = behind
        if self._size < 0 or index >= COMPACT_GROUPS_MAX:
            return E_PEER
        at = get_stamp(frame, at, self._end, self._slab, STAMP_AT)
        if at > 0 and flags & MESSAGE_LAST:
            self._size = self._end - at
        if at < 0 or self._size > BODY_SIZE_MAX or at + self._size > self._end:
            return E_PEER
        self._number = number + 1
        if self.knows(index):
            self._take(link, frame, at, index, number)
        else:
            self.wonder(index)
            link.attention = True
        return at + self._size

    def _take(self, link: "LinkPort", frame: bytearray, at: int, index: int, number: int) -> None:
        core = link.core
        row = self.group_row(index)
        if row < 0 or not link.sees(row):
            core.unknown += 1
            return
        ids = core.members.group_ids
        link.on_message(ids, row * ID_SIZE, self._slab, STAMP_AT, frame, at, self._size)
        if core.message_slot >= 0:
            core.slots.note_number(link.peer, core.message_slot, number)
        else:
            self.note_number(link, core.id, number)

    # --- contacts ---

    def _hello(self, link: "LinkPort", frame: bytearray, at: int, flags: int) -> int:
        asks = flags & HELLO_ASK != 0
        size = 4 if asks and flags & HELLO_ANSWER else 2
        size += 2 + (SUM_SIZE if flags & HELLO_SUM else 0)
        if flags >= 8 or not flags & (HELLO_ASK | HELLO_ANSWER) or at + size > self._end:
            return E_PEER
        behind = at + size
        if asks:
            generation = get_u16(frame, at)
            if self._frame_generation >= 0 and generation != self._frame_generation:
                return E_PEER
            self._hear(link, generation)
            at += 2
            self.heard_ask(generation)
            link.attention = True
        if flags & HELLO_ANSWER:
            if get_u16(frame, at) == self.generation():
                self.mark(GREETING, False)  # it has read our HELLO
            at += 2
        self._hear_store(link, get_u16(frame, at))
        some = outstanding_into(link, self._slab)
        same = some == (flags & HELLO_SUM != 0)
        self.mark(IN_SYNC, same and (not some or equal(self._slab, 0, frame, at + 2, SUM_SIZE)))
        return behind

    def _hear_store(self, link: "LinkPort", store_gen: int) -> None:
        """A peer with another store has lost what it told to hold: it is shown all again."""
        if self.heard_store(store_gen):
            self.forget_holds(link)
            sketch = self.sketch_of(link)
            if sketch is not None:
                sketch.peer_lost(link)

    def ask_whole_ids(self, link: "LinkPort") -> None:
        """We found two ids with the same prefix: the peer should know."""
        self.mark(FULL_ASKED, not self.has(FULL))
        self._use_whole_ids(link)

    def _use_whole_ids(self, link: "LinkPort") -> None:
        """Two ids have the same prefix: what was told by prefixes may be wrong."""
        if not self.has(FULL):
            self.mark(FULL, True)
            self.forget_holds(link)

    def forget_holds(self, link: "LinkPort") -> None:
        """Show the peer all that it shares again, as if it held nothing."""
        core = link.core
        base = link.peer * core.slots.count
        for slot in range(core.slots.count):
            state = core.slots.states[base + slot]
            core.window.set_state(slot, link.peer, state & ~(HOLD | QUEUED))
        core.window.lose(link.peer)
        core.window.show_all(link.peer)
        core.window.dirty = link.attention = True

    def _extended(self, link: "LinkPort", frame: bytearray, at: int, flags: int) -> int:
        if flags or at >= self._end:
            return E_PEER
        kind = frame[at]
        behind = skip_varint(frame, at + 1, self._end)
        size = get_varint(frame, at + 1, behind) if behind > 0 else -1
        if size < 0 or behind + size > self._end:
            return E_PEER
        if kind == EXTENDED_UNKNOWN:
            if size != _UNKNOWN_SIZE or frame[behind + 2] >= COMPACT_GROUPS_MAX:
                return E_PEER
            if get_u16(frame, behind) == self.generation():
                self.doubt(frame[behind + 2])
        elif kind == EXTENDED_FULL:
            self._use_whole_ids(link)
        elif kind == EXTENDED_SKETCH:
            sketch = self.sketch_of(link)
            if sketch is not None and not sketch.take(link, frame, behind, size):
                return E_PEER
        return behind + size
