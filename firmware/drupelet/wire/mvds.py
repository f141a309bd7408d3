"""Profiles `mvds-1`, `mvds-nested`, `mvds-5001`: payloads of MVDS, one codec with three tables.

    Payload   acks, offers, requests: message ids of 32 bytes; messages; group offers
    Message   group id, int64 timestamp, body, metadata: parents (ids) and ephemeral (bool)

`mvds-1` is MVDS 0.5.1 and 0.6.0 as written and the peers' metadata field; `mvds-nested` the mobile
paper's, where each id list is a message of its own; `mvds-5001` the published 2/MVDS with the
group offers of status-im and the metadata of 4/MVDS-META. Fields that are left out are empty or 0.

Malformed protobuf is the peer's error wherever it is. A well-formed id of another size than 32
bytes is skipped and counted, the rest of its list stands; so is any field not in the table.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, E_PEER
from drupelet.memory import copy, fill
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
_GO_ON = const(-100)


class Decoder:
    """Reads one payload: `open`, then `next` until it is not positive; allocates nothing.

    ACK, OFFER, REQUEST, GROUP_OFFER: the id is at buf[at]. GROUP: group_at, group_size.
    MESSAGE: it begins at buf[at]; group_at, group_size, `timestamp` (8 bytes, little-endian),
    body_at, body_size, `flags`; `next_parent` gives its parents. `skipped` counts ids of a wrong
    size.
    """

    def __init__(self, profile: "tuple[int, ...]") -> None:
        self._fields = profile
        self._outer = Reader()
        self._inner = Reader()
        self._part = Reader()
        self._list = 0
        self.at = 0
        self.group_at = 0
        self.group_size = 0
        self.body_at = 0
        self.body_size = 0
        self.flags = 0
        self.timestamp = bytearray(8)
        self.skipped = 0

    @property
    def end(self) -> int:
        """Where the field ends that was read last: what comes before is done with."""
        return self._outer.at

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> None:
        """Begin with the payload in buf[at:end]."""
        self._outer.open(buf, at, end)
        self._inner.open(buf, at, at)
        self._part.open(buf, at, at)
        self._list = 0

    def next(self) -> int:
        """Return what comes next, END, or E_PEER where the payload is malformed, for good."""
        what = _GO_ON if self._list >= 0 else E_PEER
        while what == _GO_ON:
            what = self._next_id() if self._list else self._next_field()
        if what < 0:
            self._list = E_PEER
        return what

    def next_parent(self) -> int:
        """Return the position of the next parent of the message just read, -1: no more."""
        inner = self._inner
        part = self._part
        while True:
            field = part.next()
            if field <= 0:
                field = inner.next()
                if field <= 0:
                    return -1
                if field == self._fields[_METADATA] and inner.kind == BYTES:
                    part.open(inner.buf, inner.start, inner.start + inner.size)
            elif field == _PARENT and part.kind == BYTES:
                if part.size == _ID_SIZE:
                    return part.start
                self.skipped += 1

    def _next_field(self) -> int:
        outer = self._outer
        field = outer.next()
        if field <= 0:
            return field
        if outer.kind != BYTES:
            return _GO_ON
        fields = self._fields
        end = outer.start + outer.size
        if field == fields[MESSAGE]:
            return self._message(outer.start, end)
        if field == fields[GROUP]:
            return self._group(outer.start, end)
        for what in range(ACK, MESSAGE):
            if field == fields[what]:
                if fields[_NESTED]:
                    self._inner.open(outer.buf, outer.start, end)
                    self._list = what
                    return _GO_ON
                return self._id(outer, what)
        return _GO_ON

    def _next_id(self) -> int:
        inner = self._inner
        field = inner.next()
        if field < 0:
            return field
        if field == 0:
            self._list = 0
        wanted = _OFFER_ID if self._list == GROUP_OFFER else _LIST_ID
        if field == wanted and inner.kind == BYTES:
            return self._id(inner, self._list)
        return _GO_ON

    def _id(self, reader: "Reader", what: int) -> int:
        if reader.size != _ID_SIZE:
            self.skipped += 1
            return _GO_ON
        self.at = reader.start
        return what

    def _group(self, at: int, end: int) -> int:
        # Its group may stand behind the ids: read it all once for that.
        inner = self._inner
        inner.open(self._outer.buf, at, end)
        self.group_at = at
        self.group_size = 0
        while inner.at < end:
            field = inner.next()
            if field < 0:
                return field
            if field == _OFFER_GROUP and inner.kind == BYTES:
                self.group_at = inner.start
                self.group_size = inner.size
        inner.open(inner.buf, at, end)
        self._list = GROUP_OFFER
        return GROUP

    def _message(self, at: int, end: int) -> int:
        inner = self._inner
        inner.open(self._outer.buf, at, end)
        self.at = self.group_at = self.body_at = at
        self.group_size = self.body_size = self.flags = 0
        fill(self.timestamp, 0, 8, 0)
        while inner.at < end:
            field = inner.next()
            if field < 0 or not self._message_field(field):
                return E_PEER
        inner.open(inner.buf, at, end)
        self._part.open(inner.buf, at, at)
        return MESSAGE

    def _message_field(self, field: int) -> bool:
        inner = self._inner
        fields = self._fields
        start = inner.start
        if inner.kind == VARINT:
            if field == fields[_TIMESTAMP]:
                varint_to_le8(inner.buf, start, start + inner.size, self.timestamp, 0)
        elif inner.kind == BYTES:
            if field == fields[_GROUP_ID]:
                self.group_at = start
                self.group_size = inner.size
            elif field == fields[_BODY]:
                self.body_at = start
                self.body_size = inner.size
            elif field == fields[_METADATA]:
                return self._metadata(start, start + inner.size)
        return True

    def _metadata(self, at: int, end: int) -> bool:
        part = self._part
        part.open(self._inner.buf, at, end)
        self.flags |= METADATA
        while part.at < end:
            field = part.next()
            if field < 0:
                return False
            if field == _EPHEMERAL and part.kind == VARINT:
                self.flags = METADATA | EPHEMERAL if part.is_true() else METADATA
        return True


class Encoder:
    """Writes one payload: `open`, then put_... in the order ACK to MESSAGE, GROUP last.

    What is in buf[.. at] is a whole payload after every call; a call that does not fit returns
    E_CAPACITY and leaves no trace. Allocates nothing.
    """

    def __init__(self, profile: "tuple[int, ...]") -> None:
        self._fields = profile
        self._buf = bytearray(0)
        self._limit = 0
        self._list = self._list_at = self._list_size = self.at = 0
        # An id at the beginning of a list of its own, whose length then takes a byte more.
        self.id_size_max = bytes_size(profile[OFFER], _ENTRY_SIZE) + 1

    def open(self, buf: bytearray, at: int, limit: int) -> None:
        """Begin an empty payload at buf[at]; it ends at buf[limit] at the latest."""
        assert 0 <= at <= limit <= len(buf)
        self._buf = buf
        self._limit = limit
        self._list = 0
        self.at = at

    def put_id(self, what: int, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        """Add an ACK, OFFER or REQUEST of ids[id_at:id_at+32]; the new end, or E_CAPACITY."""
        field = self._fields[what]
        nested = self._fields[_NESTED]
        if nested and self._list == what:
            return self._add(_LIST_ID, ids, id_at)
        if self.at + bytes_size(field, _ENTRY_SIZE if nested else _ID_SIZE) > self._limit:
            return E_CAPACITY
        if nested:
            self._begin(what, 0)
            return self._add(_LIST_ID, ids, id_at)
        self._list = 0
        self.at = put_bytes(self._buf, self.at, field, ids, id_at, _ID_SIZE)
        return self.at

    def put_group(self, group: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Begin a group offer for group[at:at+size]; the new end, or E_CAPACITY."""
        inside = bytes_size(_OFFER_GROUP, size) if size else 0
        if self.at + bytes_size(self._fields[GROUP], inside) > self._limit:
            return E_CAPACITY
        self._begin(GROUP, inside)
        if size:
            self.at = put_bytes(self._buf, self.at, _OFFER_GROUP, group, at, size)
        return self.at

    def put_group_offer(self, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        """Add ids[id_at:id_at+32] to the group offer just begun; the new end, or E_CAPACITY."""
        assert self._list == GROUP
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
        if self.at + bytes_size(fields[MESSAGE], size) > self._limit:
            return E_CAPACITY
        self._begin(MESSAGE, size)
        buf = self._buf
        if group_size:
            self.at = put_bytes(buf, self.at, fields[_GROUP_ID], group, group_at, group_size)
        if moment:
            self.at = put_tag(buf, self.at, fields[_TIMESTAMP], VARINT)
            self.at = put_le8(buf, self.at, timestamp, ts_at)
        body_at = self._header(self.at, fields[_BODY], body_size) if body_size else self.at
        self.at = body_at + body_size
        if flags:
            self._put_metadata(meta, parents, parents_count, flags)
        return body_at

    def _put_metadata(
        self, size: int, parents: "bytes | bytearray | memoryview", count: int, flags: int
    ) -> None:
        at = self._header(self.at, self._fields[_METADATA], size)
        for index in range(count):
            at = put_bytes(self._buf, at, _PARENT, parents, index * 32, _ID_SIZE)
        if flags & EPHEMERAL:
            at = put_varint(self._buf, put_tag(self._buf, at, _EPHEMERAL, VARINT), 1)
        self.at = at

    def _header(self, at: int, field: int, size: int) -> int:
        return put_varint(self._buf, put_tag(self._buf, at, field, BYTES), size)

    def _begin(self, what: int, size: int) -> None:
        # A message within: its tag and length; _add makes it longer.
        self._list_at = put_tag(self._buf, self.at, self._fields[what], BYTES)
        self.at = put_varint(self._buf, self._list_at, size)
        self._list = what
        self._list_size = size

    def _add(self, field: int, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        size = self._list_size + _ENTRY_SIZE
        old = self._list_at + varint_size(self._list_size)
        new = self._list_at + varint_size(size)
        if self.at + _ENTRY_SIZE + new - old > self._limit:
            return E_CAPACITY
        if new > old:
            copy(self._buf, new, self._buf, old, self._list_size)
            self.at += new - old
        put_varint(self._buf, self._list_at, size)
        self._list_size = size
        self.at = put_bytes(self._buf, self.at, field, ids, id_at, _ID_SIZE)
        return self.at
