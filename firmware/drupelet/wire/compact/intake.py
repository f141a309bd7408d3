"""Reader of profile `compact-1`: hands each record of a frame to the engine (docs/SPEC.md 3.5).

The first byte of a record has its type in the upper 3 bits and 5 bits of flags.

    0 ACK       1 MESSAGE   2 OFFER   3 REQUEST
    4 HELLO     5 BASE      6 GROUP   7 EXTENDED (type u8, size varint, content)
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BODY_SIZE_MAX, COMPACT_COVER_SIZE, COMPACT_GROUPS_MAX, ID_SIZE
from drupelet.base.memory import equal, fill, get_u16
from drupelet.engine.states import INDEXED
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
    from drupelet.engine.exchange import Exchange

ACK = const(0)
MESSAGE = const(1)
OFFER = const(2)
REQUEST = const(3)
HELLO = const(4)
BASE = const(5)
GROUP = const(6)
EXTENDED = const(7)

# ACK and REQUEST: the two lowest flag bits are the form.
FORM_RANGE = const(0)
FORM_BITS = const(1)
FORM_IDS = const(2)
FORM_PREFIXES = const(3)  # REQUEST only
# Which 4 bytes of each id go into a fold. An ACK uses bytes after the 8-byte prefix of an offer,
# so it proves more than the prefix; who requests a message may know no more than that prefix.
ACK_FOLD_AT = const(8)
REQUEST_FOLD_AT = const(4)

MESSAGE_SAME_SIZE = const(1)
MESSAGE_LAST = const(16)  # the body extends to the end of the frame, and there is no size
MESSAGE_BASED = const(17)  # the same, and generation and number are in this record, not in a BASE
GROUP_IN_BYTE = const(7)  # the group index follows in a byte of its own
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
    """Reads the frames of all links of a node; allocates nothing after construction."""

    def __init__(self, core: "Core") -> None:
        Contact.__init__(self, core)
        self._store_gen = getattr(core.store, "store_gen", 0) & 0xFFFF
        # Sets ignored: of an older generation, of a message without a row, or with a wrong fold.
        self.ignored = 0
        # State of the frame that is being read or written: number of the next message, size of
        # the last body.
        self._frame_generation = -1
        self._number = self._size = self._end = 0
        # The previous whole id acknowledged: twice the same says that the message is gone.
        self._ack_at = -1

    def parse_records(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of frame[at:end] to the engine; OK, or E_PEER at a malformed one."""
        fill(self._slab, STAMP_AT, STAMP_SIZE, 0)
        self._frame_generation = -1
        self._number = self._size = 0
        self._end = end
        self._hint = 0
        self._ack_at = -1
        while at < end:
            start = at
            kind = frame[at] >> 5
            at = self._record(exchange, frame, at + 1, kind, frame[at] & 31)
            if at < 0:
                return E_PEER
            exchange.count_record(False, kind, at - start)
        self.heard()
        return OK

    def _record(
        self, exchange: "Exchange", frame: bytearray, at: int, kind: int, flags: int
    ) -> int:
        """Read the record whose first byte is before frame[at]; return its end, or E_PEER."""
        if kind == ACK or kind == REQUEST:  # noqa: SIM109 - a tuple is code
            return self._set(exchange, frame, at, kind, flags)
        if kind == MESSAGE:
            return self._message(exchange, frame, at, flags)
        if kind == OFFER:
            return self._offer(exchange, frame, at, flags)
        if kind == BASE:
            return self._base(frame, at, flags)
        if kind == GROUP:
            if not self._number or flags >= COMPACT_GROUPS_MAX:
                return E_PEER
            if at + ID_SIZE > self._end:
                return E_PEER
            self.announced(flags, exchange.core.members.group_of(frame, at))
            return at + ID_SIZE
        if kind == HELLO:
            return self._hello(exchange, frame, at, flags)
        return self._extended(exchange, frame, at, flags)

    # --- sets: ACK and REQUEST ---

    def _set(self, exchange: "Exchange", frame: bytearray, at: int, kind: int, flags: int) -> int:
        form = flags & 3
        count = flags >> 2
        if form >= FORM_IDS:
            return self._whole_ids(exchange, frame, at, kind, form, count)
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
            self._apply(exchange, frame, first, count, bits_at, at, kind)
        else:
            self.ignored += 1
            if not self.has(GREETING):
                # The peer learns our generation by a HELLO; SEGMENT frames do not carry it.
                self.greet(exchange)
                exchange.attention = True
        return at + FOLD_SIZE

    def _apply(
        self, exchange: "Exchange", frame: bytearray, first: int, count: int, bits_at: int,
        fold_at: int, kind: int,
    ) -> None:  # fmt: skip
        """Apply a set of our numbers if every message has a row and the fold of their ids fits."""
        outbox = self._outbox
        store = exchange.core.store
        begin_set(self._slab)
        folds_at = ACK_FOLD_AT if kind == ACK else REQUEST_FOLD_AT
        for offset in range(count):
            if bits_at < 0 or frame[bits_at + (offset >> 3)] & 1 << (offset & 7):
                row = self.row_of(first + offset)
                if row < 0 or not store.id_into(outbox.handles[row], self._slab, 0):
                    self.ignored += 1
                    return
                fold_in(self._slab, folds_at)
        if not folds_to(self._slab, frame, fold_at):
            self.ignored += 1
            self.ask_whole_ids(exchange)
            return
        for offset in range(count):
            if bits_at < 0 or frame[bits_at + (offset >> 3)] & 1 << (offset & 7):
                row = self.row_of(first + offset)
                if row < 0:
                    continue  # an earlier number of this set freed the row
                if kind == REQUEST:
                    exchange.requested(row)
                    continue
                if outbox.state(row) & INDEXED:
                    self.confirm(outbox.group(row))
                exchange.acked(row)

    def _whole_ids(
        self, exchange: "Exchange", frame: bytearray, at: int, kind: int, form: int, count: int
    ) -> int:
        size = ID_SIZE if form == FORM_IDS else PREFIX_SIZE
        if not count or at + count * size > self._end:
            return E_PEER
        if form == FORM_PREFIXES and kind == ACK:
            return E_PEER
        for _ in range(count):
            if form == FORM_PREFIXES:
                row = self._outbox.find(frame, at, PREFIX_SIZE)
                if row >= 0:
                    exchange.requested(row)
            elif kind == REQUEST:
                exchange.on_request(frame, at)
            else:
                exchange.on_ack(frame, at)
                if self._ack_at >= 0 and equal(frame, self._ack_at, frame, at, size):
                    exchange.on_gone(frame, at)
                self._ack_at = at
            at += size
        return at

    # --- numbered records ---

    def _base(self, frame: bytearray, at: int, flags: int) -> int:
        if flags:
            self._number += flags
            return at if self._number > flags else E_PEER
        if self._end - at < 2:
            return E_PEER
        generation = get_u16(frame, at)
        if self._frame_generation >= 0 and generation != self._frame_generation:
            return E_PEER
        self._hear(generation)
        number_end = skip_varint(frame, at + 2, self._end)
        number = get_varint(frame, at + 2, number_end) if number_end > 0 else 0
        if number <= 0 or number > NUMBER_MAX:
            return E_PEER
        self._number = number
        return number_end

    def _hear(self, generation: int) -> None:
        self._frame_generation = generation
        if self.hear(generation):
            self.mark(FULL, False)

    def _offer(self, exchange: "Exchange", frame: bytearray, at: int, flags: int) -> int:
        count = flags >> 1
        size = ID_SIZE if flags & OFFER_FULL else PREFIX_SIZE
        if not count or at + count * size > self._end or not self._number:
            return E_PEER
        if self._number + count - 1 > NUMBER_MAX:
            return E_PEER
        for _ in range(count):
            self.whole_id(exchange, frame, at, size)
            exchange.core.link_number = self._number
            exchange.on_offer(self._slab, 0)
            at += size
            self._number += 1
        exchange.core.link_number = 0
        return at

    def _message(self, exchange: "Exchange", frame: bytearray, at: int, flags: int) -> int:
        if flags & MESSAGE_BASED == MESSAGE_BASED:
            at = self._base(frame, at, 0)
        number = self._number
        if at < 0 or not number or number > NUMBER_MAX:
            return E_PEER
        index = flags >> 1 & GROUP_IN_BYTE
        if index == GROUP_IN_BYTE:
            index = frame[at] if at < self._end else COMPACT_GROUPS_MAX
            at += 1
        if not flags & MESSAGE_BASED:
            size_end = skip_varint(frame, at, self._end)
            self._size = get_varint(frame, at, size_end) if size_end > 0 else -1
            at = size_end
        if self._size < 0 or index >= COMPACT_GROUPS_MAX:
            return E_PEER
        at = get_stamp(frame, at, self._end, self._slab, STAMP_AT)
        if at > 0 and flags & MESSAGE_LAST:
            self._size = self._end - at
        if at < 0 or self._size > BODY_SIZE_MAX or at + self._size > self._end:
            return E_PEER
        self._number = number + 1
        if self.knows(index):
            self._take(exchange, frame, at, index, number)
        else:
            self.wonder(index)
            exchange.attention = True
        return at + self._size

    def _take(
        self, exchange: "Exchange", frame: bytearray, at: int, index: int, number: int
    ) -> None:
        core = exchange.core
        row = self.group_row(index)
        if row < 0 or not exchange.sees(row):
            core.unknown += 1
            return
        ids = core.members.group_ids
        exchange.core.link_number = number
        exchange.on_message(ids, row * ID_SIZE, self._slab, STAMP_AT, frame, at, self._size)
        exchange.core.link_number = 0

    # --- contacts ---

    def _hello(self, exchange: "Exchange", frame: bytearray, at: int, flags: int) -> int:
        asks = flags & HELLO_ASK != 0
        size = 4 if asks and flags & HELLO_ANSWER else 2
        size += 2 + (SUM_SIZE if flags & HELLO_SUM else 0)
        if flags >= 8 or not flags & (HELLO_ASK | HELLO_ANSWER) or at + size > self._end:
            return E_PEER
        record_end = at + size
        if asks:
            generation = get_u16(frame, at)
            if self._frame_generation >= 0 and generation != self._frame_generation:
                return E_PEER
            self._hear(generation)
            at += 2
            self.heard_ask(generation)
            exchange.attention = True
        if flags & HELLO_ANSWER:
            if get_u16(frame, at) == self.generation():
                self.mark(GREETING, False)  # it has read our HELLO
            at += 2
        self._hear_store(exchange, get_u16(frame, at))
        is_any = outstanding_into(exchange, self._slab)
        same = is_any == (flags & HELLO_SUM != 0)
        self.mark(IN_SYNC, same and (not is_any or equal(self._slab, 0, frame, at + 2, SUM_SIZE)))
        return record_end

    def _hear_store(self, exchange: "Exchange", store_gen: int) -> None:
        """Note the peer's store_gen; if it has changed, assume that the peer holds nothing."""
        if self.heard_store(store_gen):
            exchange.forget_holds()
            sketch = self.sketch_of(exchange)
            if sketch is not None:
                sketch.peer_lost(exchange)

    def ask_whole_ids(self, exchange: "Exchange") -> None:
        """Use whole ids and tell the peer to: two of our ids have the same prefix."""
        self.mark(FULL_ASKED, not self.has(FULL))
        self._use_whole_ids(exchange)

    def _use_whole_ids(self, exchange: "Exchange") -> None:
        """Use whole ids; forget what the peer holds, for a prefix may have meant another id."""
        if not self.has(FULL):
            self.mark(FULL, True)
            exchange.forget_holds()

    def _extended(self, exchange: "Exchange", frame: bytearray, at: int, flags: int) -> int:
        if flags or at >= self._end:
            return E_PEER
        kind = frame[at]
        content_at = skip_varint(frame, at + 1, self._end)
        size = get_varint(frame, at + 1, content_at) if content_at > 0 else -1
        if size < 0 or content_at + size > self._end:
            return E_PEER
        if kind == EXTENDED_UNKNOWN:
            if size != _UNKNOWN_SIZE or frame[content_at + 2] >= COMPACT_GROUPS_MAX:
                return E_PEER
            if get_u16(frame, content_at) == self.generation():
                self.doubt(frame[content_at + 2])
        elif kind == EXTENDED_FULL:
            self._use_whole_ids(exchange)
        elif kind == EXTENDED_SKETCH:
            sketch = self.sketch_of(exchange)
            if sketch is not None and not sketch.take(exchange, frame, content_at, size):
                return E_PEER
        return content_at + size
