"""Profiles `mvds-1`, `mvds-nested`, `mvds-5001`: payloads of MVDS, one codec with three tables.

    Payload   acks, offers, requests: message ids of 32 bytes; messages; group offers
    Message   group id, int64 timestamp, body, metadata: parents (ids) and ephemeral (bool)

`mvds-1` is MVDS 0.5.1 and 0.6.0 as written and the peers' metadata field; `mvds-nested` the mobile
paper's, where each id list is a message of its own; `mvds-5001` the published 2/MVDS with the
group offers of status-im and the metadata of 4/MVDS-META. Fields that are left out are empty or 0.

Malformed protobuf is the peer's error wherever it is. A well-formed id of another size than 32
bytes is skipped and counted, the rest of its list stands; so is any field not in the table.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER
from drupelet.base.memory import copy
from drupelet.wire.protobuf import (
    BYTES,
    VARINT,
    Reader,
    bytes_size,
    le8_size,
    put_bytes,
    put_le8,
    put_tag,
    put_varint,
    size_before,
    skip_varint,
    varint_size,
    varint_to_le8,
)

# What Decoder.next found; the first four and GROUP are also indices of a profile.
END = const(0)
ACK = const(1)
OFFER = const(2)
REQUEST = const(3)
MESSAGE = const(4)
GROUP = const(5)  # a group offer begins; its ids follow
GROUP_OFFER = const(6)

# Flags of a message; EPHEMERAL implies METADATA.
METADATA = const(1)
EPHEMERAL = const(2)

_GROUP_ID = const(6)
_TIMESTAMP = const(7)
_BODY = const(8)
_METADATA = const(9)
_NESTED = const(10)
# Field numbers, 0 where a profile has no such field; _NESTED: id lists are messages.
MVDS_1 = (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0)
MVDS_NESTED = (0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1)
MVDS_5001 = (0, 5001, 5002, 5003, 5004, 5005, 6001, 6002, 6003, 6004, 0)

# Fields of the messages within: Ack.id and its like, Offer.group_id, Offer.message_ids, Metadata.
_LIST_ID = const(1)
_OFFER_GROUP = const(1)
_OFFER_ID = const(2)
_PARENT = const(1)
_EPHEMERAL = const(2)

_ID_SIZE = const(32)
# Tag, length and id of an entry in a message within.
_ENTRY_SIZE = const(34)
# `flags` of a list that goes on: what is in it, above the flags of a message.
_LIST_SHIFT = const(2)
_LIST = const(4)
_GO_ON = const(-100)


class Payload(Reader):
    """Reads or writes one payload, after `open`; only `timestamp` allocates.

    What is nested is read by the same reader, whose `end` is narrowed to it meanwhile: three would
    be three times the heap. Reading and writing are never under way at once, and share all.

    Reading: `next` until it is not positive. ACK, OFFER, REQUEST, GROUP_OFFER: the id is at
    buf[at]. GROUP: group_at, group_size. MESSAGE: it begins at buf[at] before `next_parent` gives
    its parents; group_at, group_size, `timestamp`, body_at, body_size, `flags`. The field read
    last ends at buf[end]: what comes before is done with. `skipped` counts ids of a wrong size.

    Writing: put_... in the order ACK to MESSAGE, GROUP last. What is in buf[.. at] is a whole
    payload after every call; a call that does not fit returns E_CAPACITY and leaves no trace.
    `start` is where it goes on, `size` that of the list or message begun last.
    """

    # Eleven attributes have room for a twelfth: not taken before need be, since a full table of
    # them is slower to search. So the first id that is skipped allocates nothing, either.
    skipped = 0
    buf: bytearray  # that of a payload which is read may be a constant

    def __init__(self, profile: "tuple[int, ...]") -> None:
        Reader.__init__(self)
        self._fields = profile
        self._limit = 0
        self._moment = 0  # where the timestamp is
        self.group_at = self.body_at = 0  # 0: there is none
        self.flags = 0  # or a list that goes on, or E_PEER

    @property
    def at(self) -> int:
        """Where what was read begins; where what was written ends."""
        return self.start

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> None:
        """Begin with the payload in buf[at:end], or an empty one that may get as long."""
        Reader.open(self, buf, at, end)
        self._limit = end
        self.end = at
        self.flags = 0

    # --- in ---

    @property
    def group_size(self) -> int:
        """Of the group id at group_at."""
        return size_before(self.buf, self.group_at) if self.group_at else 0

    @property
    def body_size(self) -> int:
        """Of the body at body_at."""
        return size_before(self.buf, self.body_at) if self.body_at else 0

    @property
    def timestamp(self) -> bytearray:
        """A message's, in a buffer of its own; see `timestamp_into`."""
        out = bytearray(8)
        self.timestamp_into(out, 0)
        return out

    def timestamp_into(self, out: bytearray, at: int) -> None:
        """Store a message's timestamp as 8 bytes, little-endian, at out[at]."""
        end = skip_varint(self.buf, self._moment, self.end)
        varint_to_le8(self.buf, self._moment, end, out, at)

    def next(self) -> int:
        """Return what comes next, END, or E_PEER where the payload is malformed, for good."""
        what = _GO_ON if self.flags >= 0 else E_PEER
        while what == _GO_ON:
            what = self._next_id() if self.flags >= _LIST else self._next_field()
        if what < 0:
            self.flags = E_PEER
        return what

    def next_parent(self) -> int:
        """Return the position of the next parent of the message just read, -1: no more."""
        part_end = self.kind  # between two parents: where the metadata ends that they are in
        while True:
            inside = self.start + self.size < part_end
            field = Reader.next(self)
            if field <= 0:
                return -1
            if self.kind != BYTES:
                continue
            if not inside and field == self._fields[_METADATA]:
                part_end = self.start + self.size
                self.size = 0
            elif inside and field == _PARENT:
                if self.size == _ID_SIZE:
                    self.kind = part_end
                    return self.start
                self.skipped += 1

    def _next_field(self) -> int:
        self.start = self.end
        self.size = 0
        self.end = self._limit
        field = Reader.next(self)
        if field <= 0:
            return field
        self.end = self.start + self.size
        if self.kind != BYTES:
            return _GO_ON
        fields = self._fields
        if field == fields[MESSAGE]:
            return self._message()
        if field == fields[GROUP]:
            return self._group()
        for what in range(ACK, MESSAGE):
            if field == fields[what]:
                if not fields[_NESTED]:
                    return self._id(what)
                self.size = 0
                self.flags = what << _LIST_SHIFT
        return _GO_ON

    def _next_id(self) -> int:
        field = Reader.next(self)
        if field < 0:
            return field
        what = self.flags >> _LIST_SHIFT
        if field == 0:
            self.flags = 0
        elif field == (_OFFER_ID if what == GROUP_OFFER else _LIST_ID) and self.kind == BYTES:
            return self._id(what)
        return _GO_ON

    def _id(self, what: int) -> int:
        if self.size == _ID_SIZE:
            return what
        self.skipped += 1
        return _GO_ON

    def _group(self) -> int:
        # Its group may stand behind the ids: read it all once for that.
        at = self.start
        self.group_at = self.size = 0
        field = Reader.next(self)
        while field > 0:
            if field == _OFFER_GROUP and self.kind == BYTES:
                self.group_at = self.start
            field = Reader.next(self)
        self.start = at
        self.size = 0
        self.flags = GROUP_OFFER << _LIST_SHIFT
        return field or GROUP

    def _message(self) -> int:
        fields = self._fields
        at = self.start
        self._moment = self.end
        self.group_at = self.body_at = self.flags = self.size = 0
        field = Reader.next(self)
        while field > 0:
            if self.kind == VARINT:
                if field == fields[_TIMESTAMP]:
                    self._moment = self.start
            elif self.kind == BYTES:
                if field == fields[_GROUP_ID]:
                    self.group_at = self.start
                elif field == fields[_BODY]:
                    self.body_at = self.start
                elif field == fields[_METADATA] and self._metadata() < 0:
                    return E_PEER
            field = Reader.next(self)
        self.start = at
        self.size = self.kind = 0
        return field or MESSAGE

    def _metadata(self) -> int:
        end = self.end
        self.end = self.start + self.size
        self.size = 0
        self.flags |= METADATA
        field = Reader.next(self)
        while field > 0:
            if field == _EPHEMERAL and self.kind == VARINT:
                self.flags = METADATA | EPHEMERAL if self.is_true() else METADATA
            field = Reader.next(self)
        self.end = end
        return field

    # --- out ---

    @property
    def id_size_max(self) -> int:
        """Of an id at the beginning of a list of its own, whose length then takes a byte more."""
        return bytes_size(self._fields[OFFER], _ENTRY_SIZE) + 1

    def put_id(self, what: int, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        """Add an ACK, OFFER or REQUEST of ids[id_at:id_at+32]; the new end, or E_CAPACITY."""
        field = self._fields[what]
        nested = self._fields[_NESTED]
        if nested and self.flags == what << _LIST_SHIFT:
            return self._add(_LIST_ID, ids, id_at)
        at = self.start
        if at + bytes_size(field, _ENTRY_SIZE if nested else _ID_SIZE) > self._limit:
            return E_CAPACITY
        if nested:
            self._begin(what, 0)
            return self._add(_LIST_ID, ids, id_at)
        self.flags = 0
        self.start = put_bytes(self.buf, at, field, ids, id_at, _ID_SIZE)
        return self.start

    def put_group(self, group: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Begin a group offer for group[at:at+size]; the new end, or E_CAPACITY."""
        inside = bytes_size(_OFFER_GROUP, size) if size else 0
        if self.start + bytes_size(self._fields[GROUP], inside) > self._limit:
            return E_CAPACITY
        self._begin(GROUP, inside)
        if size:
            self.start = put_bytes(self.buf, self.start, _OFFER_GROUP, group, at, size)
        return self.start

    def put_group_offer(self, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        """Add ids[id_at:id_at+32] to the group offer just begun; the new end, or E_CAPACITY."""
        assert self.flags == GROUP << _LIST_SHIFT
        return self._add(_OFFER_ID, ids, id_at)

    def put_message(
        self,
        group: "bytes | bytearray | memoryview",
        group_at: int,
        group_size: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
        parents: "bytes | bytearray | memoryview" = b"",
        parents_count: int = 0,
        flags: int = 0,
    ) -> int:
        """Add a message but for its body: the caller writes that at the position returned.

        `timestamp` has 8 bytes little-endian at ts_at, `parents` as many ids of 32 bytes as
        counted, from 0 on; without `flags` there is no metadata. E_CAPACITY: it does not fit.
        """
        fields = self._fields
        meta = parents_count * _ENTRY_SIZE + (flags & EPHEMERAL)
        assert fields[_METADATA] or not (flags or meta), "this profile has no metadata"
        assert flags or not meta
        size = bytes_size(fields[_METADATA], meta) if flags else 0
        if group_size:
            size += bytes_size(fields[_GROUP_ID], group_size)
        if body_size:
            size += bytes_size(fields[_BODY], body_size)
        moment = le8_size(timestamp, ts_at)
        if moment > 1 or timestamp[ts_at]:
            size += varint_size(fields[_TIMESTAMP] << 3) + moment
        else:
            moment = 0
        if self.start + bytes_size(fields[MESSAGE], size) > self._limit:
            return E_CAPACITY
        buf = self.buf
        at = self._begin(MESSAGE, size)
        if group_size:
            at = put_bytes(buf, at, fields[_GROUP_ID], group, group_at, group_size)
        if moment:
            at = put_le8(buf, put_tag(buf, at, fields[_TIMESTAMP], VARINT), timestamp, ts_at)
        body_at = self._header(at, fields[_BODY], body_size) if body_size else at
        self.start = body_at + body_size
        if flags:
            self._put_metadata(meta, parents, parents_count, flags)
        return body_at

    def _put_metadata(
        self, size: int, parents: "bytes | bytearray | memoryview", count: int, flags: int
    ) -> None:
        at = self._header(self.start, self._fields[_METADATA], size)
        for index in range(count):
            at = put_bytes(self.buf, at, _PARENT, parents, index * 32, _ID_SIZE)
        if flags & EPHEMERAL:
            at = put_varint(self.buf, put_tag(self.buf, at, _EPHEMERAL, VARINT), 1)
        self.start = at

    def _header(self, at: int, field: int, size: int) -> int:
        return put_varint(self.buf, put_tag(self.buf, at, field, BYTES), size)

    def _begin(self, what: int, size: int) -> int:
        # A message within: its tag and length; _add makes it longer.
        self.flags = what << _LIST_SHIFT
        self.size = size
        self.start = self._header(self.start, self._fields[what], size)
        return self.start

    def _add(self, field: int, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        buf = self.buf
        at = self.start
        size = self.size
        length = varint_size(size)
        more = varint_size(size + _ENTRY_SIZE) - length
        if at + more + _ENTRY_SIZE > self._limit:
            return E_CAPACITY
        if more:
            copy(buf, at - size + more, buf, at - size, size)
        put_varint(buf, at - size - length, size + _ENTRY_SIZE)
        self.size = size + _ENTRY_SIZE
        self.start = put_bytes(buf, at + more, field, ids, id_at, _ID_SIZE)
        return self.start


# What it is for where only the one or the other is wanted.
Decoder = Encoder = Payload
