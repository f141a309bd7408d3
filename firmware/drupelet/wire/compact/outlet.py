"""Writer of profile `compact-1` (docs/SPEC.md 3.5).

Messages have numbers (`numbering`), offers have 8-byte id prefixes, timestamps are deltas
(`stamps`), groups have indices; ACK and REQUEST name sets of numbers. Each frame can be read
without the previous ones.
"""

from drupelet.base.compat import const
from drupelet.base.limits import COMPACT_COVER_SIZE, FRAME_HEADER_SIZE, ID_SIZE, INLINE_SIZE_MAX
from drupelet.base.memory import copy, equal, fill, put_u16
from drupelet.engine.states import INDEXED
from drupelet.wire.compact.hello import (
    ANSWERING,
    FULL,
    FULL_ASKED,
    GREETING,
    SUM_SIZE,
    outstanding_into,
)
from drupelet.wire.compact.intake import (
    ACK,
    ACK_FOLD_AT,
    BASE,
    EXTENDED,
    EXTENDED_FULL,
    EXTENDED_SKETCH,
    EXTENDED_UNKNOWN,
    FORM_BITS,
    FORM_IDS,
    FORM_PREFIXES,
    GROUP,
    GROUP_IN_BYTE,
    HELLO,
    HELLO_ANSWER,
    HELLO_ASK,
    HELLO_SUM,
    MESSAGE,
    MESSAGE_BASED,
    MESSAGE_SAME_SIZE,
    OFFER,
    OFFER_FULL,
    PREFIX_SIZE,
    REQUEST,
    REQUEST_FOLD_AT,
    CompactReader,
)
from drupelet.wire.compact.numbering import (
    BITS_AT,
    FOLD_SIZE,
    STAMP_AT,
    add_to_set,
    begin_set,
    origin_of,
)
from drupelet.wire.protobuf import put_varint, varint_size
from drupelet.wire.stamps import STAMP_SIZE, put_stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange

# The size of a set record without its bits: type, generation, number, size of the bits, fold.
_SET_SIZE = const(11)
_WHOLE_SIZE = const(33)  # a record of one whole id
_BASE_SIZE_MAX = const(6)
_GROUP_SIZE = const(33)
_SKIP_MAX = const(31)
_OFFERS_MAX = const(15)  # ids in one OFFER record
_IDS_MAX = const(7)  # whole ids in one ACK or REQUEST record
_RANGE_SHORT_MAX = const(7)
_UNKNOWN_SIZE = const(6)
_FULL_SIZE = const(3)
_SKETCH_HEAD_SIZE = const(4)

_ZEROS = bytes(ID_SIZE)


class CompactEngine(CompactReader):
    """Reads and writes the frames of all links of a node, one at a time."""

    def __init__(self, core: "Core") -> None:
        CompactReader.__init__(self, core)
        self._base_bytes = 0  # bytes of BASE records in the frame
        # Where the BASE of a message begins that may turn out to be the frame's only one.
        self._lone_at = -1

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
        if sketch is not None:
            at = self._fill_sketch(exchange, frame, at, limit)
        if sketch is None or not sketch.holds(exchange):
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

    # --- sets: ACK and REQUEST ---

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

    # --- numbered records ---

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
            total += put_stamp(self._slab, 8, self._slab, STAMP_AT, core.store.timestamp, 0) - 8
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
        at = put_stamp(frame, at, self._slab, STAMP_AT, core.store.timestamp, 0)
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

    # --- contacts ---

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
        unknown = self.wondered() if limit - at >= _UNKNOWN_SIZE else -1
        if unknown >= 0:
            frame[at] = EXTENDED << 5
            frame[at + 1] = EXTENDED_UNKNOWN
            frame[at + 2] = 3
            put_u16(frame, at + 3, self.peer_generation())
            frame[at + 5] = unknown
            exchange.count_record(True, EXTENDED, _UNKNOWN_SIZE)
            at += _UNKNOWN_SIZE
        if self.has(FULL_ASKED) and limit - at >= _FULL_SIZE:
            self.mark(FULL_ASKED, False)
            frame[at] = EXTENDED << 5
            frame[at + 1] = EXTENDED_FULL
            frame[at + 2] = 0
            exchange.count_record(True, EXTENDED, _FULL_SIZE)
            at += _FULL_SIZE
        return at

    def _fill_sketch(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write a SKETCH record if the host has one for the peer; return its end."""
        sketch = self.sketch_of(exchange)
        if sketch is None or limit - at <= _SKETCH_HEAD_SIZE:
            return at
        end = sketch.put_into(exchange, frame, at + _SKETCH_HEAD_SIZE, limit)
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
