"""Profile `compact-1`: the records of `bsp-1` in fewer bytes (docs/SPEC.md 3.5).

The first byte of a record has its type in the upper 3 bits and 5 bits of flags.

    0 ACK       1 MESSAGE   2 OFFER   3 REQUEST
    4 HELLO     5 BASE      6 GROUP   7 EXTENDED (type u8, size varint, content)

Messages have numbers (`numbering`), offers have 8-byte id prefixes, timestamps are deltas
(`stamps`), groups have indices; ACK and REQUEST name sets of numbers. Each frame can be read
without the previous ones. When a HELLO is due, and which profile the peer uses: see `hello`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    COMPACT_COVER_SIZE,
    COMPACT_GROUPS_MAX,
    FRAME_HEADER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
)
from drupelet.base.memory import copy, equal, fill, get_u16, put_u16
from drupelet.engine.states import INDEXED
from drupelet.wire import bsp1
from drupelet.wire.compact.hello import (
    ANSWERING,
    FULL,
    FULL_ASKED,
    GREETING,
    IN_SYNC,
    SUM_SIZE,
    Contact,
    outstanding_into,
)
from drupelet.wire.compact.numbering import (
    BITS_AT,
    FOLD_SIZE,
    NUMBER_MAX,
    STAMP_AT,
    add_to_set,
    begin_set,
    fold_in,
    folds_to,
    origin_of,
)
from drupelet.wire.protobuf import get_varint, put_varint, skip_varint, varint_size
from drupelet.wire.stamps import STAMP_SIZE, get_stamp, put_stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange
    from drupelet.wire.ports import SketchPort

_KIND_PLAIN = const(0x40)
_KIND_COMPACT = const(0x44)

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

# The size of a set record without its bits: type, generation, number, size of the bits, fold.
_SET_SIZE = const(11)
_WHOLE_SIZE = const(33)  # a record of one whole id
_BASE_SIZE_MAX = const(6)
_GROUP_SIZE = const(33)
_SKIP_MAX = const(31)
_OFFERS_MAX = const(15)  # ids in one OFFER record
_IDS_MAX = const(7)  # whole ids in one ACK or REQUEST record
_RANGE_SHORT_MAX = const(7)
_UNKNOWN_RECORD_SIZE = const(6)
_FULL_SIZE = const(3)
_SKETCH_HEAD_SIZE = const(4)

_ZEROS = bytes(ID_SIZE)


class Compact1(Contact):
    """Reads and writes the frames of all links of a node, one at a time.

    It falls back to bsp-1 for a peer that does not answer. Reading allocates nothing after
    construction.
    """

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
        self._base_bytes = 0  # bytes of BASE records in the frame
        # Where the BASE of a message begins that may turn out to be the frame's only one.
        self._lone_at = -1

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of frame[at:end] to the engine; OK, or E_PEER at a malformed one."""
        self.use(exchange)
        if frame[at - 1] == _KIND_PLAIN:
            code = bsp1.parse(exchange, frame, at, end)
            if code == OK:
                self.heard_plain(exchange.epoch)
                exchange.attention = True
            return code
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

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due to frame[at:limit] and the frame's kind to frame[at-1].

        Returns the end of what was written; `at` if nothing is due.
        """
        self.use(exchange)
        frame[at - 1] = _KIND_COMPACT
        if not self.plain(exchange.epoch, exchange.pace.every):
            return self.fill_records(exchange, frame, at, limit)
        if self.probe_due(exchange.epoch):
            self.probed(exchange.epoch)
            return self.ask(exchange, frame, at)
        frame[at - 1] = _KIND_PLAIN
        return bsp1.fill(exchange, frame, at, limit)

    def wait_epochs(self, exchange: "Exchange") -> int:
        """Epochs until `fill` may have something to write of its own accord; 0: never."""
        self.use(exchange)
        sketch = self.sketch_of(exchange)
        if sketch is not None and sketch.holds():
            return 1
        return self.wait(exchange.epoch, exchange.pace.every)

    # --- reading ---

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
            if not self._number or flags >= COMPACT_GROUPS_MAX or at + ID_SIZE > self._end:
                return E_PEER
            self.announced(flags, exchange.core.members.group_of(frame, at))
            return at + ID_SIZE
        if kind == HELLO:
            return self._hello(exchange, frame, at, flags)
        return self._extended(exchange, frame, at, flags)

    # --- reading: sets, ACK and REQUEST ---

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

    # --- reading: numbered records ---

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

    # --- reading: contacts ---

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
                sketch.hold_back()

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
            if sketch is not None and not sketch.take(frame, content_at, size):
                return E_PEER
        return content_at + size

    # --- writing ---

    def fill_records(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write the compact-1 records due to frame[at:limit]; return their end (`at`: none)."""
        begin = at
        self.begin_frame()
        fill(self._slab, STAMP_AT, STAMP_SIZE, 0)
        self._number = self._size = self._base_bytes = 0
        self._lone_at = -1
        asks = self.asks(exchange.epoch, exchange.pace.every)
        if asks or self.has(ANSWERING):
            at = self._put_hello(exchange, frame, at, asks)
        first = at
        at = self._fill_set(exchange, frame, at, limit, ACK)
        at = self._fill_set(exchange, frame, at, limit, REQUEST)
        at = self._fill_notes(exchange, frame, at, limit)
        sketch = self.sketch_of(exchange)
        if sketch is not None and limit - at > _SKETCH_HEAD_SIZE:
            at = self._fill_sketch(exchange, sketch, frame, at, limit)
        if sketch is None or not sketch.holds():
            at = self._fill_messages(exchange, frame, at, limit)
            at = self._fill_offers(exchange, frame, at, limit)
        if self._lone_at >= 0:
            at = self._shorten(frame, at)
        if self._base_bytes:
            exchange.count_record(True, BASE, self._base_bytes)
        if at == first and not self.may_go_alone():
            return begin
        if first > begin:
            self.mark(ANSWERING, False)
            exchange.count_record(True, HELLO, first - begin)
        if asks:
            self.asked_now(exchange.epoch)
        if asks or self._number:
            self.sent(exchange.epoch)
        return at

    # --- writing: sets, ACK and REQUEST ---

    def _fill_set(
        self, exchange: "Exchange", frame: bytearray, at: int, limit: int, kind: int
    ) -> int:
        """Write all ids due for an ACK or REQUEST, as sets of the peer's numbers if possible."""
        fold_at = ACK_FOLD_AT if kind == ACK else REQUEST_FOLD_AT
        count = first = last = origin = size = 0  # of the open set; there is one if count > 0
        has_crossed = False
        whole_at = -1  # where the last record of whole ids begins
        while True:
            open_size = _SET_SIZE + size if count else 0
            # The next id may need a record of its own after the open set.
            if limit - at - open_size < _WHOLE_SIZE:
                break
            number = self._take_id(exchange, kind) - 1  # the peer's; 0: it gave none
            if number < 0:
                break
            fits = number and 0 <= number - origin < size * 8
            if count and not (fits and has_crossed == exchange.is_crossed_pass):
                at = self._put_set(exchange, frame, at, kind, origin, first, last, count)
                count = 0
            if not number:
                begin = at
                at = self._put_whole(exchange, frame, at, kind, whole_at)
                if at - begin & 1:  # an odd size: a type byte was written, so a record begins here
                    whole_at = begin
                continue
            if not count:
                size = limit - at - _SET_SIZE - _WHOLE_SIZE
                size = min(size, COMPACT_COVER_SIZE) if size > 0 else 1
                origin = origin_of(number, size)
                first = last = number
                has_crossed = exchange.is_crossed_pass
                begin_set(self._slab)
            if add_to_set(self._slab, number - origin, fold_at):
                count += 1
                first = min(first, number)
                last = max(last, number)
        return (
            self._put_set(exchange, frame, at, kind, origin, first, last, count) if count else at
        )

    def _take_id(self, exchange: "Exchange", kind: int) -> int:
        if kind == ACK:
            return exchange.take_ack(self._slab, 0)
        return exchange.take_request(self._slab, 0, True)

    def _put_set(
        self, exchange: "Exchange", frame: bytearray, at: int, kind: int, origin: int, first: int,
        last: int, count: int,
    ) -> int:  # fmt: skip
        begin = at
        span = last - first + 1
        frame[at] = kind << 5
        put_u16(frame, at + 1, self.peer_generation())
        if count < span:
            frame[begin] |= FORM_BITS
            from_byte = (first - origin) >> 3
            at = put_varint(frame, at + 3, origin + from_byte * 8)
            size = ((last - origin) >> 3) + 1 - from_byte
            frame[at] = size
            copy(frame, at + 1, self._slab, BITS_AT + from_byte, size)
            at += 1 + size
        else:
            at = put_varint(frame, at + 3, first)
            if span <= _RANGE_SHORT_MAX:
                frame[begin] |= span << 2
            else:
                at = put_varint(frame, at, span)
        copy(frame, at, self._slab, BITS_AT + COMPACT_COVER_SIZE, FOLD_SIZE)
        at += FOLD_SIZE
        exchange.count_record(True, kind, at - begin)
        return at

    def _put_whole(
        self, exchange: "Exchange", frame: bytearray, at: int, kind: int, start: int
    ) -> int:  # fmt: skip
        """Append an id that has no number to the record at `start`, or begin a new record.

        The id is written as an 8-byte prefix if the peer's offer had no more than that.
        """
        form = FORM_IDS
        size = ID_SIZE
        if equal(self._slab, PREFIX_SIZE, _ZEROS, 0, ID_SIZE - PREFIX_SIZE):
            form = FORM_PREFIXES
            size = PREFIX_SIZE
        head = kind << 5 | form
        goes_on = start >= 0 and frame[start] & 0xE3 == head
        if goes_on and at == start + 1 + (frame[start] >> 2 & 7) * size < start + _IDS_MAX * size:
            frame[start] += 4
        else:
            frame[at] = head | 4
            at += 1
            exchange.count_record(True, kind, 1)
        copy(frame, at, self._slab, 0, size)
        return at + size

    # --- writing: numbered records ---

    def _base_size(self, number: int) -> int:
        ahead = number - self._number
        if ahead == 0:
            return 0
        return 1 if self._number and 0 < ahead <= _SKIP_MAX else 3 + varint_size(number)

    def _put_base(self, frame: bytearray, at: int, number: int) -> int:
        size = self._base_size(number)
        if size == 0:
            return at
        frame[at] = BASE << 5
        if size == 1:
            frame[at] |= number - self._number
        else:
            put_u16(frame, at + 1, self.generation())
            put_varint(frame, at + 3, number)
        self._number = number
        self._base_bytes += size
        return at + size

    def _shorten(self, frame: bytearray, end: int) -> int:
        """Merge BASE and MESSAGE into one record up to the frame's end; return the new end."""
        at = self._lone_at + 3 + varint_size(self._number - 1)
        frame[self._lone_at] = frame[at] | MESSAGE_BASED
        cut = 1 if frame[at] & MESSAGE_SAME_SIZE else 1 + varint_size(self._size)
        copy(frame, at, frame, at + cut, end - at - cut)
        self._base_bytes -= cut
        return end - cut

    def _fill_messages(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        core = exchange.core
        while limit - at > _BASE_SIZE_MAX and exchange.next_message():
            size = core.store.size
            index = self.index_of(exchange.message_group)
            if index < 0:
                break
            number = self.assign(exchange.core.message_row)
            total = self._base_size(number) + 1 + size
            total += 0 if self.is_announced(index) else _GROUP_SIZE
            total += 1 if index >= GROUP_IN_BYTE else 0
            total += 0 if size == self._size else varint_size(size)
            total += put_stamp(self._slab, 8, self._slab, STAMP_AT, core.store.timestamp) - 8
            if size > INLINE_SIZE_MAX or FRAME_HEADER_SIZE + total > len(frame):
                exchange.too_long()
            elif at + total > limit:
                break  # the next frame has room
            elif not exchange.body_into(frame, at + total - size, 0, size):
                exchange.put_message()  # flash failed: retry after the back-off
            else:
                self._put_message(exchange, frame, at, index, number)
                at += total
        return at

    def _put_message(
        self, exchange: "Exchange", frame: bytearray, at: int, index: int, number: int
    ) -> None:
        """Write the header of a message whose body is in its place already."""
        core = exchange.core
        size = core.store.size
        has_index = self.is_announced(index) and index < GROUP_IN_BYTE
        self._lone_at = at if has_index and not self._number else -1
        at = self._put_base(frame, at, number)
        if not self.is_announced(index):
            self.announce(index)
            frame[at] = GROUP << 5 | index
            copy(frame, at + 1, core.members.group_ids, exchange.message_group * ID_SIZE, ID_SIZE)
            exchange.count_record(True, GROUP, _GROUP_SIZE)
            at += _GROUP_SIZE
        begin = at
        index_bits = index if index < GROUP_IN_BYTE else GROUP_IN_BYTE
        frame[at] = MESSAGE << 5 | index_bits << 1
        at += 1
        if index_bits == GROUP_IN_BYTE:
            frame[at] = index
            at += 1
        if size == self._size:
            frame[begin] |= MESSAGE_SAME_SIZE
        else:
            at = put_varint(frame, at, size)
            self._size = size
        at = put_stamp(frame, at, self._slab, STAMP_AT, core.store.timestamp)
        copy(self._slab, STAMP_AT, core.store.timestamp, 0, STAMP_SIZE)
        self._number = number + 1
        self._outbox.mark(exchange.core.message_row, INDEXED)
        exchange.put_message()
        exchange.count_record(True, MESSAGE, at + size - begin)

    def _fill_offers(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        outbox = self._outbox
        record_at = -1
        count = 0
        while limit - at >= _BASE_SIZE_MAX + _WHOLE_SIZE and exchange.take_offer(self._slab, 0):
            row = exchange.core.message_row
            is_full = self.has(FULL) or outbox.find(self._slab, 0, PREFIX_SIZE) != row
            head = OFFER << 5 | (OFFER_FULL if is_full else 0)
            number = self.assign(row)
            self._lone_at = -1
            is_next = record_at >= 0 and number == self._number and count < _OFFERS_MAX
            before = at
            if is_next and frame[record_at] & 0xE1 == head:
                count += 1
                frame[record_at] += 2
            else:
                at = self._put_base(frame, at, number)
                before = record_at = at
                frame[at] = head | 2
                count = 1
                at += 1
            size = ID_SIZE if is_full else PREFIX_SIZE
            copy(frame, at, self._slab, 0, size)
            at += size
            self._number = number + 1
            exchange.count_record(True, OFFER, at - before)
        return at

    # --- writing: contacts ---

    def ask(self, exchange: "Exchange", frame: bytearray, at: int) -> int:
        """Write an asking HELLO to frame[at], with nothing else; return its end."""
        self.mark(GREETING, True)
        end = self._put_hello(exchange, frame, at, True)
        exchange.count_record(True, HELLO, end - at)
        return end

    def _put_hello(self, exchange: "Exchange", frame: bytearray, at: int, asks: bool) -> int:
        is_any = outstanding_into(exchange, self._slab)
        begin = at
        frame[at] = HELLO << 5 | (HELLO_SUM if is_any else 0)
        at += 1
        if asks:
            frame[begin] |= HELLO_ASK
            put_u16(frame, at, self.generation())
            at += 2
        if self.has(ANSWERING):
            frame[begin] |= HELLO_ANSWER
            put_u16(frame, at, self.asked())
            at += 2
        put_u16(frame, at, self._store_gen)
        at += 2
        if is_any:
            copy(frame, at, self._slab, 0, SUM_SIZE)
            at += SUM_SIZE
        return at

    def _fill_notes(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Report a group index that we do not know, and that the peer must use whole ids."""
        unknown = self.wondered() if limit - at >= _UNKNOWN_RECORD_SIZE else -1
        if unknown >= 0:
            frame[at] = EXTENDED << 5
            frame[at + 1] = EXTENDED_UNKNOWN
            frame[at + 2] = _UNKNOWN_SIZE
            put_u16(frame, at + 3, self.peer_generation())
            frame[at + 5] = unknown
            exchange.count_record(True, EXTENDED, _UNKNOWN_RECORD_SIZE)
            at += _UNKNOWN_RECORD_SIZE
        if self.has(FULL_ASKED) and limit - at >= _FULL_SIZE:
            self.mark(FULL_ASKED, False)
            frame[at] = EXTENDED << 5
            frame[at + 1] = EXTENDED_FULL
            frame[at + 2] = 0
            exchange.count_record(True, EXTENDED, _FULL_SIZE)
            at += _FULL_SIZE
        return at

    def _fill_sketch(
        self, exchange: "Exchange", sketch: "SketchPort", frame: bytearray, at: int, limit: int
    ) -> int:
        """Write a SKETCH record if the host has one for the peer; return its end."""
        end = sketch.put_into(frame, at + _SKETCH_HEAD_SIZE, limit)
        size = end - at - _SKETCH_HEAD_SIZE
        if size <= 0:
            return at
        frame[at] = EXTENDED << 5
        frame[at + 1] = EXTENDED_SKETCH
        # The size always takes two bytes: it was not known when the content was placed.
        frame[at + 2] = size & 0x7F | 0x80
        frame[at + 3] = size >> 7
        exchange.count_record(True, EXTENDED, end - at)
        return end
