"""The board's store: messages, members and the wake state in a log of flash segments.

    store = FlashStore(files); damaged = store.open()
    handle = store.put(...); store.barrier()            # now it survives a power cut

A message is PENDING while dependencies are missing, DELIVERED once it is in the log, DELETED when
only its id is kept. Whatever instant the power goes, after `open` a message is there whole or not
at all, and in the log once. Handles are > 0 and < 2^30, rising in log order and stable.

When the log is full, the oldest segment goes if everything in it is below `settled_handle`;
members, the wake state and pending messages in it are written again first. Otherwise new data is
refused (E_CAPACITY) and counted; the wake state still has room.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.flashlog import (
    AT_BODY,
    AT_ID,
    AT_SIZE,
    AT_SOURCE,
    AT_TIMESTAMP,
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    KIND_WAKE,
    MESSAGE_PAYLOAD,
    RECORD_EXTRA,
    RecordLog,
    body_name,
)
from drupelet.flashroom import Room
from drupelet.flashtables import has_file, is_pending
from drupelet.limits import (
    BODY_FILES_MAX,
    CONTENT_HEADER_SIZE,
    FILTER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    PENDING_MAX,
    SEGMENT_SIZE,
    SEGMENTS_MAX,
    SEGMENTS_SPARE,
    TIMESTAMP_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.memory import copy, equal, get_u16_le, get_u32_le, put_u16_le, put_u32_le
from drupelet.parts import PART_HEAD_SIZE

STATE_DELIVERED = const(1)
STATE_PENDING = const(2)
STATE_DELETED = const(3)

MEMBER_GROUP = const(1)
MEMBER_PEER = const(2)
_NUMBER_MAX = const(254)  # members are one byte on flash; 0 is ourselves, 255 nobody

_TRIES = const(4)

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.files import Files


class FlashStore(Room):
    """A store over a Files port. Full tables refuse and count; codes are those of `errors`."""

    def __init__(
        self, files: "Files", segment_size: int = SEGMENT_SIZE, segments_max: int = SEGMENTS_MAX,
        pending_max: int = PENDING_MAX, body_files_max: int = BODY_FILES_MAX,
        filter_size: int = FILTER_SIZE,
    ) -> None:  # fmt: skip
        assert segments_max > SEGMENTS_SPARE + 1, "data needs two segments beside the spare ones"
        log = RecordLog(files, segment_size, segments_max)
        Room.__init__(self, files, log, pending_max, body_files_max, filter_size)
        self._data_max = segments_max - SEGMENTS_SPARE
        self._stamp = bytearray(TIMESTAMP_SIZE)
        # What `load` sets.
        self.id = bytearray(ID_SIZE)
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.group = self.source = self.size = self.state = 0
        self._body = 0
        # The newest wake state.
        self.saved = bytearray(WAKE_STATE_SIZE_MAX)
        self.saved_size = 0
        self.duplicates = 0

    @property
    def programs(self) -> int:
        """Flushes that made something durable."""
        return self._log.programs + self.part_programs

    @property
    def erases(self) -> int:
        """Segments removed."""
        return self._log.erases

    @property
    def damaged(self) -> int:
        """Damaged places that `open` skipped."""
        return self._log.damaged

    def open(self) -> int:
        """Recover by one scan; the count of damaged places, or E_CAPACITY for too many files."""
        names = self._files.names()
        code = self._log.open(names)
        if code != OK:
            return code
        for name in names:
            if name.endswith(".BOD") and name[1:8].isdigit():
                self._set_body(int(name[1:8]), 0)
        self._index()
        self._sweep()
        if self._wake and self._log.look(self._wake):
            self.saved_size = min(self._log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX)
            self._log.read_into(self._wake, 4, self.saved, 0, self.saved_size)
        return self._log.damaged

    # --- messages in ---

    def put(
        self, group: int, source: int, id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int,
        body: "bytes | bytearray | memoryview", at: int, size: int, pending: bool,
    ) -> int:  # fmt: skip
        """Take a message in, at most INLINE_SIZE_MAX bytes of body; its handle or a code.

        One that is known already is counted and keeps its handle; a pending one that comes again
        as delivered is promoted.
        """
        assert size <= INLINE_SIZE_MAX
        handle = self._known(id, id_at, pending)
        if handle:
            return handle
        if pending and self._find_row(self._pending, 0) < 0:
            return self._refuse(E_CAPACITY)
        kind = KIND_PENDING if pending else KIND_MESSAGE
        return self._write(
            kind, group, source, size, 0, id, id_at, timestamp, ts_at, body, at, size
        )

    def put_part(
        self, part: int, group: int, source: int, id: "bytes | bytearray | memoryview",
        id_at: int, pending: bool,
    ) -> int:  # fmt: skip
        """Take a finished part in as a message with a body file; its handle or a code.

        E_CAPACITY leaves the part as it is; after E_STORAGE it may be gone.
        """
        handle = self._known(id, id_at, pending)
        if handle:
            self.part_drop(part)
            return handle
        size = self.part_size(part) - CONTENT_HEADER_SIZE
        if size < 0:
            return E_STORAGE
        full = pending and self._find_row(self._pending, 0) < 0
        if full or self._free_body() < 0:
            return self._refuse(E_CAPACITY)
        code = self._room(MESSAGE_PAYLOAD + 4, self._data_max)
        if code != OK:
            return code
        self.part_read_into(part, ID_SIZE, self._stamp, 0, TIMESTAMP_SIZE)
        number = self._body_newest + 1
        code = self._finish(part, body_name(number))
        if code != OK:
            return self._refuse(code)
        self._set_body(number, 0)
        kind = KIND_PENDING_FILE if pending else KIND_MESSAGE_FILE
        handle = self._write(
            kind, group, source, size, 0, id, id_at, self._stamp, 0, self._number(number), 0, 4
        )
        self._set_body(number, handle if handle > 0 else 0)
        if handle < 0:
            self._sweep()
        return handle

    def promote(self, handle: int) -> int:
        """Enter a pending message in the log; its new handle, or E_STORAGE if it is not pending.

        The new record names the pending one, which is dead from then on.
        """
        if self._find_row(self._pending, handle) < 0 or not self._look(handle):
            return E_STORAGE
        code = self._room(self._log.length - RECORD_EXTRA, self._data_max)
        if code != OK:
            return code
        # Making room may have moved the record.
        row = self._find_row(self._pending, handle)
        place = get_u32_le(self._pending, row + 4)
        entered = self._rewrite(place, KIND_MESSAGE - KIND_PENDING, handle)
        if entered < 0:
            return self._refuse(entered)
        self._set_pending(handle, 0)
        self._move_body(place, entered)
        return entered

    def delete(self, handle: int) -> int:
        """Keep the id and the place in the log, remove the body; overwrites what `load` set."""
        code = self.load(handle)
        if code != OK or self.state == STATE_DELETED:
            return code
        body = self._body
        tombstone = self._write(
            KIND_TOMBSTONE, self.group, self.source, 0, handle, self.id, 0, self.timestamp, 0,
            self._number(body), 0, 4,
        )  # fmt: skip
        if tombstone < 0:
            return tombstone
        self._apply(tombstone)
        if body:
            # Were the file gone first, a power cut could leave a message without its body.
            code = self.barrier()
            if code == OK:
                self._sweep()
        return code

    # --- messages out ---

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """Handle of a message by its id, in whatever state; 0 for never seen or forgotten."""
        if not self._filter.has(id, at, 0):
            return 0
        log = self._log
        for index in range(log.count - 1, -1, -1):
            number = log.number(index)
            found = 0
            handle = log.enter(index)
            while handle and handle // log.segment_size == number:
                if log.kind >= KIND_MESSAGE and self._has_id(handle, id, at):
                    found = handle  # the last record of an id in the log is the valid one
                handle = log.step(handle)
            if found:
                return self._stands_for(found)
        return 0

    def load(self, handle: int) -> int:
        """Set id, timestamp, group, source, size and state; E_STORAGE if there is none."""
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
        self.state = STATE_DELIVERED
        if kind == KIND_TOMBSTONE or self._is_deleted(handle, self.id, 0):
            self.state = STATE_DELETED
        elif self._body and self._find_row(self._bodies, self._body) < 0:
            self.state = STATE_DELETED  # the body was let go to make room
        elif is_pending(kind):
            self.state = STATE_PENDING
            if self._find_row(self._pending, handle) < 0:
                return E_STORAGE  # promoted: it has another handle now
        if self.state == STATE_DELETED:
            self.size = 0
        return OK

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read body bytes; the count, less only at the end, 0 when deleted, or E_STORAGE."""
        if not self._look(handle):
            return E_STORAGE
        log = self._log
        head = log.scratch
        size = min(size, get_u16_le(head, AT_SIZE) - offset)
        body = get_u32_le(head, AT_BODY) if has_file(log.kind) else 0
        place = log.at
        if size <= 0 or self._is_deleted(handle, head, AT_ID):
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
        """Handle of the message after `handle` in the log (0: the first); 0 at the end."""
        handle = self._log.step(handle)
        while handle and self._log.kind != KIND_MESSAGE and self._log.kind != KIND_MESSAGE_FILE:
            handle = self._log.step(handle)
        return handle

    def next_pending(self, handle: int) -> int:
        """Handle of the pending message after `handle` (0: the first); 0 at the end."""
        best = 0
        for row in range(0, len(self._pending), 8):
            other = get_u32_le(self._pending, row)
            if other > handle and (not best or other < best):
                best = other
        return best

    # --- members and the wake state ---

    def member(self, kind: int, key: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Number 1..254 of a group (kind 1) or a peer (kind 2), the same for life, or a code."""
        assert size <= ID_SIZE
        log = self._log
        free = -1
        number = 1
        for row in range(0, len(self._members), 8):
            place = get_u32_le(self._members, row)
            if not place:
                free = row
            elif self._members[row + 4] == kind:
                if log.look(place) and log.length == RECORD_EXTRA + 1 + size:
                    log.read_into(place, 5, log.scratch, 0, size)
                    if equal(log.scratch, 0, key, at, size):
                        return self._members[row + 5]
                number = max(number, self._members[row + 5] + 1)
        if free < 0 or number > _NUMBER_MAX:
            return self._refuse(E_CAPACITY)
        code = self._room(1 + size, self._data_max)
        if code != OK:
            return code
        place = log.begin(KIND_MEMBER, kind, 1 + size)
        self._small[0] = number
        log.add(self._small, 0, 1)
        log.add(key, at, size)
        code = log.end()
        if code != OK:
            return self._refuse(code)
        self._note_member(place, kind, number)
        return number

    def save(self, state: "bytes | bytearray | memoryview", size: int) -> int:
        """Write the owner's state, at most WAKE_STATE_SIZE_MAX bytes; the newest one counts."""
        assert size <= WAKE_STATE_SIZE_MAX
        log = self._log
        for _ in range(_TRIES):
            code = self._room(size, log.segments_max)
            if code != OK:
                return code
            place = log.begin(KIND_WAKE, 0, size)
            log.add(state, 0, size)
            code = log.end()
            if code != E_CAPACITY or self.reclaim() != OK:
                break
        if code != OK:
            return self._refuse(code)
        self._wake = place
        copy(self.saved, 0, state, 0, size)
        self.saved_size = size
        return OK

    # --- records of messages ---

    def _write(
        self, kind: int, group: int, source: int, size: int, ref: int,
        id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int,
        body: "bytes | bytearray | memoryview", at: int, stored: int,
    ) -> int:  # fmt: skip
        log = self._log
        for _ in range(_TRIES):
            code = self._room(MESSAGE_PAYLOAD + stored, self._data_max)
            if code != OK:
                return code
            handle = log.begin(kind, group, MESSAGE_PAYLOAD + stored)
            small = log.scratch
            small[0] = source
            small[1] = 0
            put_u16_le(small, 2, size)
            put_u32_le(small, 4, ref)
            log.add(small, 0, 8)
            log.add(timestamp, ts_at, TIMESTAMP_SIZE)
            log.add(id, id_at, ID_SIZE)
            log.add(body, at, stored)
            code = log.end()
            # The flash may be full before the log is.
            if code != E_CAPACITY or self.reclaim() != OK:
                break
        if code != OK:
            return self._refuse(code)
        self._filter.add(id, id_at, 0)
        if is_pending(kind):
            self._set_pending(handle, handle)
        return handle

    def _known(self, id: "bytes | bytearray | memoryview", at: int, pending: bool) -> int:
        """Handle of a message that is here already, promoted unless it is to be pending."""
        handle = self.find(id, at)
        if handle:
            self.duplicates += 1
            if not pending and self._find_row(self._pending, handle) >= 0:
                return self.promote(handle)
        return handle
