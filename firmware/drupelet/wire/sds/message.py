"""SDS messages on the wire, dialect `sds`: the proto3 schema of specs/sds.md "Message".

    Message       sender_id 1  message_id 2  channel_id 3  lamport_timestamp 10
                  causal_history 11 (repeated)  bloom_filter 12  repair_request 13 (repeated)
                  content 20
    HistoryEntry  message_id 1  retrieval_hint 2  sender_id 3

An absent optional field differs from an empty one; an empty string is not written. A Lamport value
is never turned into an int: it stays 8 bytes, little-endian.
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.base.memory import fill
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

SENDER_ID = const(1)
MESSAGE_ID = const(2)
CHANNEL_ID = const(3)
LAMPORT = const(10)
CAUSAL = const(11)
BLOOM = const(12)
REPAIR = const(13)
CONTENT = const(20)

_ENTRY_ID = const(1)
_ENTRY_HINT = const(2)
_ENTRY_SENDER = const(3)
_ABSENT = const(-1)


def is_text(buf: "bytes | bytearray | memoryview", at: int, size: int) -> bool:
    """Whether buf[at:at+size] is valid UTF-8, as a proto3 string must be."""
    if not ON_BOARD and bytes(buf[at : at + size]).isascii():
        return True
    end = at + size
    while at < end:
        byte = buf[at]
        at += 1
        if byte < 0x80:
            continue
        continuation_count = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if byte < 0xC2 or byte > 0xF4 or at + continuation_count > end:
            return False
        second = buf[at]
        # Refuse overlong forms, surrogates and code points above U+10FFFF.
        if (byte == 0xE0 and second < 0xA0) or (byte == 0xED and second > 0x9F):
            return False
        if (byte == 0xF0 and second < 0x90) or (byte == 0xF4 and second > 0x8F):
            return False
        for _ in range(continuation_count):
            if buf[at] & 0xC0 != 0x80:
                return False
            at += 1
    return True


class Decoder:
    """Reads one message: `open`, then its HistoryEntries with `rewind` and `next`.

    Positions (..._at) are in the buffer given to `open`; -1: the field is absent.
    """

    def __init__(self) -> None:
        self._fields = Reader()
        self._inner = Reader()
        self.lamport = bytearray(8)
        self.entry_at = self.entry_size = 0
        self.hint_at = self.hint_size = _ABSENT
        self.entry_sender_at = self.entry_sender_size = _ABSENT
        self.open(b"", 0, 0)

    def open(self, buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
        """Parse and check the message in buf[at:end]; OK, or E_PEER if it is malformed."""
        self.buf: "bytes | bytearray | memoryview" = buf
        self._start = at
        self.sender_at = self.id_at = self.channel_at = at
        self.sender_size = self.id_size = self.channel_size = 0
        self.has_lamport = False
        self.bloom_at = self.content_at = _ABSENT
        self.bloom_size = self.content_size = 0
        self.causal_count = 0
        fill(self.lamport, 0, 8, 0)
        fields = self._fields
        fields.open(buf, at, end)
        field = fields.next()
        while field > 0:
            if not self._note(field):
                return E_PEER
            field = fields.next()
        return field

    def _note(self, field: int) -> bool:
        """Note one field of the message; False if it is malformed."""
        fields = self._fields
        if field == LAMPORT and fields.kind == VARINT:
            varint_to_le8(fields.buf, fields.start, fields.start + fields.size, self.lamport, 0)
            self.has_lamport = True
            return True
        if fields.kind != BYTES:
            return True  # skip unknown fields, and known numbers of another kind
        if field == CAUSAL or field == REPAIR:  # noqa: SIM109 - a tuple is code
            self.causal_count += field == CAUSAL
            return self._entry(True)
        if field == BLOOM:
            self.bloom_at = fields.start
            self.bloom_size = fields.size
        elif field == CONTENT:
            self.content_at = fields.start
            self.content_size = fields.size
        elif field <= CHANNEL_ID:
            return self._text(field)
        return True

    def _text(self, field: int) -> bool:
        fields = self._fields
        if field == SENDER_ID:
            self.sender_at = fields.start
            self.sender_size = fields.size
        elif field == MESSAGE_ID:
            self.id_at = fields.start
            self.id_size = fields.size
        else:
            self.channel_at = fields.start
            self.channel_size = fields.size
        return is_text(fields.buf, fields.start, fields.size)

    def _entry(self, check: bool) -> bool:
        """Parse the current HistoryEntry; False: malformed. check: test its strings, too."""
        fields = self._fields
        inner = self._inner
        self.entry_at = fields.start
        self.entry_size = 0
        self.hint_at = self.hint_size = _ABSENT
        self.entry_sender_at = self.entry_sender_size = _ABSENT
        inner.open(fields.buf, fields.start, fields.start + fields.size)
        field = inner.next()
        while field > 0:
            if inner.kind == BYTES:
                if field == _ENTRY_ID:
                    self.entry_at = inner.start
                    self.entry_size = inner.size
                elif field == _ENTRY_HINT:
                    self.hint_at = inner.start
                    self.hint_size = inner.size
                elif field == _ENTRY_SENDER:
                    self.entry_sender_at = inner.start
                    self.entry_sender_size = inner.size
                is_string = field != _ENTRY_HINT and field <= _ENTRY_SENDER
                if check and is_string and not is_text(inner.buf, inner.start, inner.size):
                    return False
            field = inner.next()
        return field == OK

    def rewind(self) -> None:
        """Go back to before the first entry of the opened message."""
        self._fields.open(self.buf, self._start, self._fields.end)

    def next(self, kind: int) -> bool:
        """Go to the next entry of a kind, CAUSAL or REPAIR; False if there is none."""
        fields = self._fields
        field = fields.next()
        while field > 0:
            if field == kind and fields.kind == BYTES:
                return self._entry(False)
            field = fields.next()
        return False


class Encoder:
    """Writes one message: `open`, then the fields in the order of their numbers.

    Every `put_` returns OK, or E_CAPACITY if the field does not fit; then it writes nothing.
    """

    def __init__(self) -> None:
        self.buf = bytearray(0)
        self.at = 0
        self.limit = 0

    def open(self, buf: bytearray, limit: int) -> None:
        """Start writing to buf[:limit]."""
        self.buf = buf
        self.at = 0
        self.limit = limit

    def put_text(
        self, field: int, source: "bytes | bytearray | memoryview", start: int, size: int
    ) -> int:
        """Write a string field; nothing if it is empty."""
        return self.put_bytes(field, source, start, size) if size else OK

    def put_bytes(
        self, field: int, source: "bytes | bytearray | memoryview", start: int, size: int
    ) -> int:
        """Write an optional bytes field, even if it is empty."""
        if self.at + bytes_size(field, size) > self.limit:
            return E_CAPACITY
        self.at = put_bytes(self.buf, self.at, field, source, start, size)
        return OK

    def put_lamport(self, value: "bytes | bytearray | memoryview") -> int:
        """Write a Lamport value, 8 bytes, little-endian."""
        if self.at + 1 + le8_size(value, 0) > self.limit:
            return E_CAPACITY
        self.at = put_le8(self.buf, put_tag(self.buf, self.at, LAMPORT, VARINT), value, 0)
        return OK

    def put_entry(
        self, kind: int, id: "bytes | bytearray | memoryview", at: int, size: int,
        hint: "bytes | bytearray | memoryview", hint_at: int, hint_size: int,
        sender: "bytes | bytearray | memoryview", sender_at: int, sender_size: int,
    ) -> int:  # fmt: skip
        """Write a HistoryEntry of a kind, CAUSAL or REPAIR; hint and sender: size -1 if absent."""
        content_size = bytes_size(_ENTRY_ID, size) if size else 0
        if hint_size >= 0:
            content_size += bytes_size(_ENTRY_HINT, hint_size)
        if sender_size >= 0:
            content_size += bytes_size(_ENTRY_SENDER, sender_size)
        if self.at + 1 + varint_size(content_size) + content_size > self.limit:
            return E_CAPACITY
        buf = self.buf
        at_end = put_varint(buf, put_tag(buf, self.at, kind, BYTES), content_size)
        if size:
            at_end = put_bytes(buf, at_end, _ENTRY_ID, id, at, size)
        if hint_size >= 0:
            at_end = put_bytes(buf, at_end, _ENTRY_HINT, hint, hint_at, hint_size)
        if sender_size >= 0:
            at_end = put_bytes(buf, at_end, _ENTRY_SENDER, sender, sender_at, sender_size)
        self.at = at_end
        return OK
