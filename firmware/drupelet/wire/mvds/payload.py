"""Payloads of profiles `mvds-1`, `mvds-nested`, `mvds-5001`: one reader and writer, three tables.

    Payload   acks, offers, requests: message ids of 32 bytes; messages; group offers
    Message   group id, int64 timestamp, body, metadata: parents (ids) and ephemeral (bool)

`mvds-1` is MVDS 0.5.1 and 0.6.0 as written, with the peers' metadata field; `mvds-nested` is the
mobile paper's encoding, where each id list is a nested message; `mvds-5001` is the published
2/MVDS with the group offers of status-im and the metadata of 4/MVDS-META. An absent field is empty
or 0.

Malformed protobuf anywhere is the peer's error. An id that is not 32 bytes long is skipped and
counted, without effect on the rest of its list; unknown fields are skipped.
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

# Results of `Payload.next`; ACK to GROUP are also indices into a profile's table.
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
# Field numbers by the indices above, 0: the profile has no such field. _NESTED: 1 if id lists are
# nested messages.
MVDS_1 = (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0)
MVDS_NESTED = (0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1)
MVDS_5001 = (0, 5001, 5002, 5003, 5004, 5005, 6001, 6002, 6003, 6004, 0)

# Fields of nested messages: Ack.id, Offer.id, Request.id; Offer.group_id, Offer.message_ids of a
# group offer; Metadata.
_LIST_ID = const(1)
_OFFER_GROUP = const(1)
_OFFER_ID = const(2)
_PARENT = const(1)
_EPHEMERAL = const(2)

_ID_SIZE = const(32)
# Tag, length and id of an entry in a nested message.
_ENTRY_SIZE = const(34)
# `flags` while in a list: its kind (ACK ...), shifted above the flags of a message.
_LIST_SHIFT = const(2)
_LIST = const(4)
_GO_ON = const(-100)


class Payload(Reader):
    """Reads or writes one payload after `open`; allocates nothing.

    One reader serves nested messages, too: its `end` is narrowed to them meanwhile, which saves
    the heap of two more readers. Reading and writing never overlap and share all attributes.

    Reading: call `next` until it is not positive. After ACK, OFFER, REQUEST and GROUP_OFFER the id
    is at buf[at]. After GROUP: group_at, group_size. After MESSAGE: it begins at buf[at], until
    `next_parent` is called for its parents; group_at, group_size, body_at, body_size,
    `flags`. The last field read ends at buf[end]; the caller may overwrite what is before that.
    `skipped` counts ids of a wrong size.

    Writing: call put_... in the order ACK to MESSAGE; group offers are only read. After every call
    buf[.. at] is a whole payload; a call whose field does not fit returns E_CAPACITY and changes
    nothing. `start` is the end so far, `size` the size of the list or message begun last.
    """

    # An instance gets this attribute when the first id is skipped. Its eleven other attributes
    # leave one place free in their table, so that allocates nothing; a full table is slower.
    skipped = 0
    buf: bytearray  # when reading, it may be a constant

    def __init__(self, profile: "tuple[int, ...]") -> None:
        Reader.__init__(self)
        self._fields = profile
        self._limit = 0
        self._moment = 0  # position of the timestamp
        self.group_at = self.body_at = 0  # 0: there is none
        self.flags = 0  # of a message; or the kind of the current list; or E_PEER

    @property
    def at(self) -> int:
        """Reading: where the current field begins. Writing: the end of the payload so far."""
        return self.start

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> None:
        """Start reading the payload in buf[at:end], or writing one of at most that length."""
        Reader.open(self, buf, at, end)
        self._limit = end
        self.end = at
        self.flags = 0

    # --- in ---

    @property
    def group_size(self) -> int:
        """Size of the group id at group_at, in bytes."""
        return size_before(self.buf, self.group_at) if self.group_at else 0

    @property
    def body_size(self) -> int:
        """Size of the body at body_at, in bytes."""
        return size_before(self.buf, self.body_at) if self.body_at else 0

    def timestamp_into(self, out: bytearray, at: int) -> None:
        """Store the message's timestamp as 8 bytes, little-endian, at out[at]."""
        end = skip_varint(self.buf, self._moment, self.end)
        varint_to_le8(self.buf, self._moment, end, out, at)

    def next(self) -> int:
        """Return the kind of the next entry, END, or E_PEER from a malformed field on."""
        entry = _GO_ON if self.flags >= 0 else E_PEER
        while entry == _GO_ON:
            entry = self._next_id() if self.flags >= _LIST else self._next_field()
        if entry < 0:
            self.flags = E_PEER
        return entry

    def next_parent(self) -> int:
        """Return the position of the next parent of the current message, or -1."""
        part_end = self.kind  # between two calls `kind` holds the end of the metadata
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
        for entry in range(ACK, MESSAGE):
            if field == fields[entry]:
                if not fields[_NESTED]:
                    return self._id(entry)
                self.size = 0
                self.flags = entry << _LIST_SHIFT
        return _GO_ON

    def _next_id(self) -> int:
        field = Reader.next(self)
        if field < 0:
            return field
        entry = self.flags >> _LIST_SHIFT
        if field == 0:
            self.flags = 0
        elif field == (_OFFER_ID if entry == GROUP_OFFER else _LIST_ID) and self.kind == BYTES:
            return self._id(entry)
        return _GO_ON

    def _id(self, what: int) -> int:
        if self.size == _ID_SIZE:
            return what
        self.skipped += 1
        return _GO_ON

    def _group(self) -> int:
        # The group may come after the ids, so scan the whole offer for it first.
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
        """Most bytes that `put_id` can add: a new list, or one whose length grows by a byte."""
        return bytes_size(self._fields[OFFER], _ENTRY_SIZE) + 1

    def put_id(self, what: int, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        """Add ids[id_at:id_at+32] as ACK, OFFER or REQUEST; return the new end, or E_CAPACITY."""
        field = self._fields[what]
        nested = self._fields[_NESTED]
        if nested and self.flags == what << _LIST_SHIFT:
            return self._add(ids, id_at)
        at = self.start
        if at + bytes_size(field, _ENTRY_SIZE if nested else _ID_SIZE) > self._limit:
            return E_CAPACITY
        if nested:
            self._begin(what, 0)
            return self._add(ids, id_at)
        self.flags = 0
        self.start = put_bytes(self.buf, at, field, ids, id_at, _ID_SIZE)
        return self.start

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
        """Add a message with room for its body; return the position at which to write the body.

        The timestamp is 8 bytes, little-endian, at timestamp[ts_at]; `parents` begins with
        `parents_count` ids of 32 bytes. If `flags` is 0, there is no metadata. E_CAPACITY: it
        does not fit.
        """
        fields = self._fields
        metadata_size = parents_count * _ENTRY_SIZE + (flags & EPHEMERAL)
        assert fields[_METADATA] or not (flags or metadata_size), "this profile has no metadata"
        assert flags or not metadata_size
        size = bytes_size(fields[_METADATA], metadata_size) if flags else 0
        if group_size:
            size += bytes_size(fields[_GROUP_ID], group_size)
        if body_size:
            size += bytes_size(fields[_BODY], body_size)
        timestamp_size = le8_size(timestamp, ts_at)
        if timestamp_size > 1 or timestamp[ts_at]:
            size += varint_size(fields[_TIMESTAMP] << 3) + timestamp_size
        else:
            timestamp_size = 0
        if self.start + bytes_size(fields[MESSAGE], size) > self._limit:
            return E_CAPACITY
        buf = self.buf
        at = self._begin(MESSAGE, size)
        if group_size:
            at = put_bytes(buf, at, fields[_GROUP_ID], group, group_at, group_size)
        if timestamp_size:
            at = put_le8(buf, put_tag(buf, at, fields[_TIMESTAMP], VARINT), timestamp, ts_at)
        body_at = self._header(at, fields[_BODY], body_size) if body_size else at
        self.start = body_at + body_size
        if flags:
            self._put_metadata(metadata_size, parents, parents_count, flags)
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
        # Write tag and length of a nested message; `_add` extends it.
        self.flags = what << _LIST_SHIFT
        self.size = size
        self.start = self._header(self.start, self._fields[what], size)
        return self.start

    def _add(self, ids: "bytes | bytearray | memoryview", id_at: int) -> int:
        # Add an id to the list that `_begin` began; its length may then take a byte more.
        buf = self.buf
        at = self.start
        size = self.size
        length_size = varint_size(size)
        length_growth = varint_size(size + _ENTRY_SIZE) - length_size
        if at + length_growth + _ENTRY_SIZE > self._limit:
            return E_CAPACITY
        if length_growth:
            copy(buf, at - size + length_growth, buf, at - size, size)
        put_varint(buf, at - size - length_size, size + _ENTRY_SIZE)
        self.size = size + _ENTRY_SIZE
        self.start = put_bytes(buf, at + length_growth, _LIST_ID, ids, id_at, _ID_SIZE)
        return self.start
