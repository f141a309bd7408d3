"""Reading what a store holds: a message by its id or handle, its body, its state, its successor.

A handle is where a message's record is, and stays so when a later record speaks of it: a
tombstone, or that it is shared from there on.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import CONTENT_HEADER_SIZE, GONE_HANDLE, ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.memory import copy, equal, fill, get_u16_le, get_u32_le
from drupelet.store.index import has_file, is_pending
from drupelet.store.log import (
    AT_BODY,
    AT_FLAGS,
    AT_ID,
    AT_SIZE,
    AT_SOURCE,
    AT_TIMESTAMP,
    FLAG_INVALID,
    FLAG_PRIVATE,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_OPENED,
    KIND_TOMBSTONE,
    MESSAGE_PAYLOAD,
)
from drupelet.store.parts import PART_HEAD_SIZE
from drupelet.store.registry import Roll
from drupelet.store.segments import RECORD_EXTRA

STATE_DELIVERED = const(1)
STATE_PENDING = const(2)
STATE_DELETED = const(3)
STATE_INVALID = const(4)  # buried: only its id is left
STATE_PRIVATE = const(5)  # delivered, not shared
STATE_GONE = const(8)  # it was in the log; only its id is left (6 and 7 are the host's own)


class Shelf(Roll):
    """A roll whose messages can be found, loaded and read."""

    def find(self, id: "bytes | bytearray | memoryview", at: int, size: int = ID_SIZE) -> int:
        """Handle of a message by the first `size` bytes of its id (8 to 32), in whatever state.

        0 for never seen or forgotten. Of a message that made room, this says all that `load` sets.
        """
        log = self._log
        count = log.count if self._filter.has(id, at, 0) else 0
        for index in range(count - 1, -1, -1):
            number = log.number(index)
            found = 0
            handle = log.enter(index)
            while handle and handle // log.segment_size == number:
                here = log.kind >= KIND_MESSAGE and not self._is_left(log.tag)
                if here and self._has_id(handle, id, at, size):
                    found = handle  # the last record of an id in the log is the valid one
                handle = log.step(handle)
            if found:
                return self._stands_for(found)
        found = self._gone.find(id, at, self._left)
        if found:
            copy(self.id, 0, id, at, size)
            fill(self.id, size, ID_SIZE - size, 0)
        return found

    def is_id(self, handle: int, id: "bytes | bytearray | memoryview", at: int, size: int) -> bool:
        """True when the id of a message begins with these bytes; what `load` set stays."""
        return self._look(handle) and equal(self._log.scratch, AT_ID, id, at, size)

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """Copy the id of a message; False when it is not there. What `load` set stays."""
        there = self._look(handle)
        if there:
            copy(buf, at, self._log.scratch, AT_ID, ID_SIZE)
        return there

    def load(self, handle: int) -> int:
        """Set id, timestamp, group, source, size and state; E_STORAGE if there is none.

        Of a message that made room group and state; the id is as it was given to `find`.
        """
        if handle >= GONE_HANDLE:
            self.group = handle & 0xFF
            self.state = STATE_INVALID if handle & FLAG_INVALID << 8 else STATE_GONE
            self.source = self.size = self.edges_size = self.missing = self._body = 0
            self.private = False
            return OK
        if not self._look(handle):
            return E_STORAGE
        log = self._log
        head = log.scratch
        kind = log.kind
        copy(self.timestamp, 0, head, AT_TIMESTAMP, TIMESTAMP_SIZE)
        copy(self.id, 0, head, AT_ID, ID_SIZE)
        self.group = log.tag
        self.source = head[AT_SOURCE]
        self.size = get_u16_le(head, AT_SIZE)
        self._body = get_u32_le(head, AT_BODY) if has_file(kind) else 0
        flags = head[AT_FLAGS]
        self.edges_size = 0
        self.missing = 0
        self._tombstone = log.at
        if kind != KIND_TOMBSTONE:
            self._tombstone = self._buried(handle, self.id, 0)
        private = flags & FLAG_PRIVATE
        self.private = private != 0 and not self._later(KIND_OPENED, handle, self.id, 0)
        self.state = STATE_DELIVERED
        if self._tombstone:
            self._load_tombstone()
        elif kind == KIND_OPENED or (self._body and self._find_row(self._bodies, self._body) < 0):
            self.state = STATE_DELETED  # its record went, or its body, to make room
        elif is_pending(kind):
            self.state = STATE_PENDING
            if self._find_row(self._pending, handle) < 0:
                return E_STORAGE  # promoted: it has another handle now
        elif self.private:
            self.state = STATE_PRIVATE
        if self.state == STATE_DELETED or self.state == STATE_INVALID:
            self.size = 0
        return OK

    def _load_tombstone(self) -> None:
        log = self._log
        log.look(self._tombstone)
        self.edges_size = log.length - RECORD_EXTRA - MESSAGE_PAYLOAD - 4
        log.read_into(self._tombstone, AT_SOURCE, log.scratch, 0, 4)
        # An older one may still say what is over.
        kept = self._find_place(self._kept, self._tombstone) >= 0
        self.missing = get_u16_le(log.scratch, 2) if kept else 0
        self.state = STATE_INVALID if log.scratch[1] & FLAG_INVALID else STATE_DELETED

    def _buried(self, handle: int, id: "bytes | bytearray", at: int) -> int:
        """The place of a message's tombstone, or 0."""
        row = self._find_row(self._kept, handle)
        if row >= 0:
            return get_u32_le(self._kept, row + 4)
        return self._later(KIND_TOMBSTONE, handle, id, at)

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read body bytes; the count, less only at the end, or E_STORAGE.

        Of a deleted message these are the bytes of its edges.
        """
        if not self._look(handle):
            return E_STORAGE
        log = self._log
        head = log.scratch
        place = log.at
        total = get_u16_le(head, AT_SIZE)
        body = get_u32_le(head, AT_BODY) if has_file(log.kind) else 0
        tombstone = place
        if log.kind != KIND_TOMBSTONE:
            tombstone = self._buried(handle, head, AT_ID)
        if tombstone:
            place = tombstone
            body = 0
            offset += 4
            log.look(tombstone)
            total = log.length - RECORD_EXTRA - MESSAGE_PAYLOAD
        size = min(size, total - offset)
        if size <= 0:
            return 0
        if not body:
            return log.read_into(place, AT_BODY + offset, buf, at, size)
        if self._find_row(self._bodies, body) < 0:
            return 0
        fd = log.descriptor(-body)
        if fd < 0:
            return E_STORAGE
        offset += PART_HEAD_SIZE + CONTENT_HEADER_SIZE
        return self._files.read_into(fd, offset, buf, at, size)

    def next(self, handle: int) -> int:
        """Handle of the message after `handle` in the log (0: the first); 0 at the end.

        One that was deleted keeps its place; one that is pending or invalid never had one.
        """
        log = self._log
        handle = log.step(handle)
        while handle:
            if KIND_MESSAGE <= log.kind <= KIND_MESSAGE_FILE and not self._is_left(log.tag):
                break
            handle = log.step(handle)
        return handle

    def next_pending(self, handle: int) -> int:
        """Handle of the pending message after `handle` (0: the first); 0 at the end."""
        return self._next_row(self._pending, handle)

    def next_kept(self, handle: int) -> int:
        """Handle of the deleted message after `handle` that not all are known to have."""
        return self._next_row(self._kept, handle)

    @staticmethod
    def _next_row(table: bytearray, handle: int) -> int:
        best = 0
        for row in range(0, len(table), 8):
            other = get_u32_le(table, row)
            if other > handle and (not best or other < best):
                best = other
        return best
