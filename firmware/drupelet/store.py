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
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    KIND_WAKE,
    RECORD_EXTRA,
    IdFilter,
    RecordLog,
    body_name,
)
from drupelet.limits import (
    BODY_FILES_MAX,
    CONTENT_HEADER_SIZE,
    FILTER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    MEMBERS_MAX,
    PENDING_MAX,
    SCRATCH_SIZE,
    SEGMENT_SIZE,
    SEGMENTS_MAX,
    SEGMENTS_SPARE,
    TIMESTAMP_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.memory import copy, equal, fill, get_u16_le, get_u32_le, put_u16_le, put_u32_le
from drupelet.parts import PART_HEAD_SIZE, Parts

STATE_DELIVERED = const(1)
STATE_PENDING = const(2)
STATE_DELETED = const(3)

MEMBER_GROUP = const(1)
MEMBER_PEER = const(2)
_NUMBER_MAX = const(254)  # members are one byte on flash; 0 is ourselves, 255 nobody

# Where the fields of a message record are (docs/spec-store.md).
_AT_SOURCE = const(4)
_AT_SIZE = const(6)
_AT_REF = const(8)
_AT_TIMESTAMP = const(12)
_AT_ID = const(20)
_AT_BODY = const(52)
_HEAD_SIZE = const(56)  # up to the body file's number
_HEAD_PAYLOAD = const(48)  # of which this much belongs to every payload
_ROW = const(8)
_TWIST = const(0x5A)  # makes the filter's key of a deleted id
_TRIES = const(4)

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.files import Files


class FlashStore(Parts):
    """A store over a Files port. Full tables refuse and count; codes are those of `errors`."""

    def __init__(
        self, files: "Files", segment_size: int = SEGMENT_SIZE, segments_max: int = SEGMENTS_MAX,
        pending_max: int = PENDING_MAX, body_files_max: int = BODY_FILES_MAX,
        filter_size: int = FILTER_SIZE,
    ) -> None:  # fmt: skip
        assert segments_max > SEGMENTS_SPARE + 1, "data needs two segments beside the spare ones"
        Parts.__init__(self, files)
        self._log = RecordLog(files, segment_size, segments_max)
        self._data_max = segments_max - SEGMENTS_SPARE
        self._filter = IdFilter(filter_size)
        self._pending = bytearray(_ROW * pending_max)  # handle, place of the record
        self._bodies = bytearray(_ROW * body_files_max)  # file number, place of the record
        self._members = bytearray(_ROW * MEMBERS_MAX)  # place of the record, kind, number
        self._body_newest = 0
        self._wake = 0
        self._small = bytearray(8)
        # What `load` sets.
        self.id = bytearray(ID_SIZE)
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.group = self.source = self.size = self.state = 0
        self._body = 0
        # The newest wake state.
        self.saved = bytearray(WAKE_STATE_SIZE_MAX)
        self.saved_size = 0
        self.settled_handle = 0  # the owner's: every message before it may go
        self.refused = self.duplicates = 0

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
        if pending and self._find_row(self._pending, 0, 0) < 0:
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
        if pending and self._find_row(self._pending, 0, 0) < 0 or self._free_body() < 0:
            return self._refuse(E_CAPACITY)
        code = self._room(_HEAD_PAYLOAD + 4, self._data_max)
        if code != OK:
            return code
        small = self._small
        self.part_read_into(part, ID_SIZE, small, 0, TIMESTAMP_SIZE)
        copy(self.timestamp, 0, small, 0, TIMESTAMP_SIZE)
        number = self._body_newest + 1
        code = self._finish(part, body_name(number))
        if code != OK:
            return self._refuse(code)
        self._set_body(number, 0)
        kind = KIND_PENDING_FILE if pending else KIND_MESSAGE_FILE
        handle = self._write(
            kind, group, source, size, 0, id, id_at, self.timestamp, 0, self._number(number), 0, 4
        )
        self._set_body(number, handle if handle > 0 else 0)
        if handle < 0:
            self._sweep()
        return handle

    def promote(self, handle: int) -> int:
        """Enter a pending message in the log; its new handle, or E_STORAGE if it is not pending.

        The new record names the pending one, which is dead from then on.
        """
        if self._find_row(self._pending, 0, handle) < 0 or not self._look(handle):
            return E_STORAGE
        code = self._room(self._log.length - RECORD_EXTRA, self._data_max)
        if code != OK:
            return code
        # Making room may have moved the record.
        row = self._find_row(self._pending, 0, handle)
        place = get_u32_le(self._pending, row + 4)
        entered = self._copy(place, KIND_MESSAGE - KIND_PENDING, handle)
        if entered < 0:
            return self._refuse(entered)
        fill(self._pending, row, _ROW, 0)
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

    def barrier(self) -> int:
        """Make everything that was put before survive a power cut; free when there is nothing."""
        return self._log.flush()

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
        copy(self.timestamp, 0, head, _AT_TIMESTAMP, TIMESTAMP_SIZE)
        copy(self.id, 0, head, _AT_ID, ID_SIZE)
        self.group = log.tag
        self.source = head[_AT_SOURCE]
        self.size = get_u16_le(head, _AT_SIZE)
        self._body = get_u32_le(head, _AT_BODY) if _has_file(kind) else 0
        self.state = STATE_DELIVERED
        if kind == KIND_TOMBSTONE or self._is_deleted(handle, self.id, 0):
            self.state = STATE_DELETED
        elif self._body and self._find_row(self._bodies, 0, self._body) < 0:
            self.state = STATE_DELETED  # the body was let go to make room
        elif kind == KIND_PENDING or kind == KIND_PENDING_FILE:
            self.state = STATE_PENDING
            if self._find_row(self._pending, 0, handle) < 0:
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
        size = min(size, get_u16_le(head, _AT_SIZE) - offset)
        body = get_u32_le(head, _AT_BODY) if _has_file(log.kind) else 0
        place = log.at
        if size <= 0 or self._is_deleted(handle, head, _AT_ID):
            return 0
        if not body:
            return log.read_into(place, _AT_BODY + offset, buf, at, size)
        if self._find_row(self._bodies, 0, body) < 0:
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

    def member(
        self, kind: int, key: "bytes | bytearray | memoryview", at: int, size: int
    ) -> int:
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
        code = self._room(1 + size, log.segments_max)
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
        code = self._room(size, self._log.segments_max)
        if code != OK:
            return code
        place = self._log.begin(KIND_WAKE, 0, size)
        self._log.add(state, 0, size)
        code = self._log.end()
        if code != OK:
            return self._refuse(code)
        self._wake = place
        copy(self.saved, 0, state, 0, size)
        self.saved_size = size
        return OK

    # --- room ---

    def reclaim(self) -> int:
        """Remove one segment that nobody needs; OK, or E_CAPACITY when there is none."""
        log = self._log
        index = log.idle(self._wake)
        if index < 0:
            if not log.count or log.is_written(0) or self._is_unsettled():
                return E_CAPACITY
            code = self._rescue()
            if code != OK:
                return code
            index = 0
        code = log.remove(index)
        if code == OK:
            self._sweep()
            if self._filter.crowded():
                self._index()
        return code

    def _is_unsettled(self) -> bool:
        """True when the oldest segment holds a message that somebody still needs."""
        log = self._log
        number = log.number(0)
        handle = log.enter(0)
        while handle and handle // log.segment_size == number:
            if handle >= self.settled_handle:
                if log.kind >= KIND_MESSAGE and not _is_pending(log.kind):
                    return True
            handle = log.step(handle)
        return False

    def _rescue(self) -> int:
        """Write again what is current in the oldest segment."""
        log = self._log
        number = log.number(0)
        handle = log.enter(0)
        code = OK
        while code == OK and handle and handle // log.segment_size == number:
            if handle == self._wake:
                code = self._wake = self._again(handle, 0)
            elif log.kind == KIND_MEMBER:
                row = self._find_row(self._members, 0, handle)
                if row >= 0:
                    code = self._again(handle, 0)
                    put_u32_le(self._members, row, max(code, handle))
            elif _is_pending(log.kind):
                row = self._find_row(self._pending, 4, handle)
                if row >= 0:
                    code = self._again(handle, get_u32_le(self._pending, row))
                    put_u32_le(self._pending, row + 4, max(code, handle))
                    self._move_body(handle, max(code, handle))
            code = min(code, OK)
            handle = log.step(handle)
        return self.barrier() if code == OK else code

    def _again(self, place: int, ref: int) -> int:
        self._log.look(place)
        code = self._log.room(self._log.length - RECORD_EXTRA, self._log.segments_max)
        return self._copy(place, 0, ref) if code == OK else code

    def _copy(self, place: int, change: int, ref: int) -> int:
        """Write a record again under a changed kind; `ref` replaces its reference unless 0."""
        log = self._log
        # A record that has rotted must not get a fresh CRC.
        if not log.look(place) or not log.verify(place, log.length):
            return E_STORAGE
        end = log.length - 4
        scratch = log.scratch
        copied = log.begin(log.kind + change, log.tag, end - 4)
        at = 4
        while at < end:
            size = min(SCRATCH_SIZE, end - at)
            if log.read_into(place, at, scratch, 0, size) != size:
                log.failed = E_STORAGE
            if at == 4 and ref:
                put_u32_le(scratch, _AT_REF - 4, ref)
            log.add(scratch, 0, size)
            at += size
        code = log.end()
        return copied if code == OK else code

    def _room(self, size: int, segments: int) -> int:
        """Have room for a payload, at the cost of settled segments; a refusal is counted."""
        code = self._log.room(size, segments)
        for _ in range(_TRIES):
            if code != E_CAPACITY or self.reclaim() != OK:
                break
            code = self._log.room(size, segments)
        return code if code == OK else self._refuse(code)

    def _refuse(self, code: int) -> int:
        self.refused += 1
        return code

    # --- records of messages ---

    def _write(
        self, kind: int, group: int, source: int, size: int, ref: int,
        id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int,
        body: "bytes | bytearray | memoryview", at: int, stored: int,
    ) -> int:  # fmt: skip
        log = self._log
        code = self._room(_HEAD_PAYLOAD + stored, self._data_max)
        if code != OK:
            return code
        handle = log.begin(kind, group, _HEAD_PAYLOAD + stored)
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
        if code != OK:
            return self._refuse(code)
        self._filter.add(id, id_at, 0)
        if _is_pending(kind):
            self._set_pending(handle, handle)
        return handle

    def _number(self, number: int) -> bytearray:
        put_u32_le(self._small, 0, number)
        return self._small

    def _known(
        self, id: "bytes | bytearray | memoryview", at: int, pending: bool
    ) -> int:
        """Handle of a message that is here already, promoted unless it is to be pending."""
        handle = self.find(id, at)
        if handle:
            self.duplicates += 1
            if not pending and self._find_row(self._pending, 0, handle) >= 0:
                return self.promote(handle)
        return handle

    def _look(self, handle: int) -> bool:
        """Read the head of the record that a handle stands for into the log's scratch."""
        log = self._log
        row = self._find_row(self._pending, 0, handle)
        place = handle if row < 0 else get_u32_le(self._pending, row + 4)
        if handle <= 0 or not log.look(place) or log.kind < KIND_MESSAGE:
            return False
        return log.read_into(place, 0, log.scratch, 0, _HEAD_SIZE) == _HEAD_SIZE

    def _has_id(self, handle: int, id: "bytes | bytearray | memoryview", at: int) -> bool:
        self._log.read_into(handle, _AT_ID, self._log.scratch, 0, ID_SIZE)
        return equal(self._log.scratch, 0, id, at, ID_SIZE)

    def _ref(self, handle: int) -> int:
        self._log.read_into(handle, _AT_REF, self._log.scratch, 0, 4)
        return get_u32_le(self._log.scratch, 0)

    def _stands_for(self, place: int) -> int:
        """Handle of the message that a record belongs to."""
        self._log.look(place)
        kind = self._log.kind
        ref = self._ref(place)
        if _is_pending(kind):
            return ref or place
        if kind == KIND_TOMBSTONE and self._look(ref):
            return ref
        return place

    def _is_deleted(self, handle: int, id: "bytes | bytearray", at: int) -> bool:
        """True when a later record says so; the filter keeps this off the flash."""
        if not self._filter.has(id, at, _TWIST):
            return False
        handle_after = self._log.step(handle)
        while handle_after:
            if self._log.kind == KIND_TOMBSTONE and self._ref(handle_after) == handle:
                return True
            handle_after = self._log.step(handle_after)
        return False

    # --- what is known in RAM ---

    def _index(self) -> None:
        """Make the tables from the records."""
        self._filter.clear()
        fill(self._pending, 0, len(self._pending), 0)
        handle = self._log.step(0)
        while handle:
            self._apply(handle)
            handle = self._log.step(handle)

    def _apply(self, handle: int) -> None:
        log = self._log
        log.look(handle)
        kind = log.kind
        head = log.scratch
        log.read_into(handle, 0, head, 0, min(log.length, _HEAD_SIZE))
        if kind == KIND_WAKE:
            self._wake = handle
        elif kind == KIND_MEMBER:
            self._note_member(handle, log.tag, head[4])
        if kind < KIND_MESSAGE or kind > KIND_TOMBSTONE:
            return
        self._filter.add(head, _AT_ID, 0)
        ref = get_u32_le(head, _AT_REF)
        if _is_pending(kind):
            self._set_pending(ref or handle, handle)
        else:
            row = self._find_row(self._pending, 0, ref)
            if ref and row >= 0:
                fill(self._pending, row, _ROW, 0)
        if kind == KIND_TOMBSTONE:
            self._filter.add(head, _AT_ID, _TWIST)
            row = self._find_row(self._bodies, 0, get_u32_le(head, _AT_BODY))
            if row >= 0:
                put_u32_le(self._bodies, row + 4, 0)
        elif _has_file(kind):
            row = self._find_row(self._bodies, 0, get_u32_le(head, _AT_BODY))
            if row >= 0:
                put_u32_le(self._bodies, row + 4, handle)

    def _find_row(self, table: bytearray, column: int, value: int) -> int:
        """Offset of the row with this value in a column; -1 for none."""
        for row in range(column, len(table), 8):
            if get_u32_le(table, row) == value:
                return row - column
        return -1

    def _set_pending(self, handle: int, place: int) -> None:
        row = self._find_row(self._pending, 0, handle)
        if row < 0:
            row = self._find_row(self._pending, 0, 0)
        if row < 0:
            self._log.damaged += 1  # the table was larger when this was written
            return
        put_u32_le(self._pending, row, handle)
        put_u32_le(self._pending, row + 4, place)

    def _note_member(self, place: int, kind: int, number: int) -> None:
        table = self._members
        row = 0
        while row < len(table) and get_u32_le(table, row):
            if table[row + 4] == kind and table[row + 5] == number:
                break
            row += _ROW
        if row < len(table):
            put_u32_le(table, row, place)
            table[row + 4] = kind
            table[row + 5] = number

    # --- body files ---

    def _set_body(self, number: int, place: int) -> None:
        row = self._find_row(self._bodies, 0, number)
        if row < 0:
            row = self._find_row(self._bodies, 0, 0)
        if row >= 0:
            put_u32_le(self._bodies, row, number)
            put_u32_le(self._bodies, row + 4, place)
        self._body_newest = max(self._body_newest, number)

    def _move_body(self, place: int, to: int) -> None:
        row = self._find_row(self._bodies, 4, place)
        if row >= 0:
            put_u32_le(self._bodies, row + 4, to)

    def _free_body(self) -> int:
        """A free row; if need be, the body of the oldest settled message goes for it."""
        row = self._find_row(self._bodies, 0, 0)
        if row >= 0:
            return row
        oldest = self.settled_handle
        for other in range(0, len(self._bodies), 8):
            place = get_u32_le(self._bodies, other + 4)
            if place < oldest and self._find_row(self._pending, 4, place) < 0:
                oldest = place
                row = other
        if row >= 0:
            put_u32_le(self._bodies, row + 4, 0)
            self._sweep()
        return row if row >= 0 and not get_u32_le(self._bodies, row) else -1

    def _sweep(self) -> None:
        """Remove the body files that no message in the log refers to."""
        first = self._log.number(0) * self._log.segment_size if self._log.count else 1
        for row in range(0, len(self._bodies), 8):
            number = get_u32_le(self._bodies, row)
            if number and get_u32_le(self._bodies, row + 4) < first:
                self._log.release(-number)
                if self._files.remove(body_name(number)) == OK:
                    fill(self._bodies, row, _ROW, 0)


def _is_pending(kind: int) -> bool:
    return kind == KIND_PENDING or kind == KIND_PENDING_FILE


def _has_file(kind: int) -> bool:
    return kind == KIND_MESSAGE_FILE or kind == KIND_PENDING_FILE
