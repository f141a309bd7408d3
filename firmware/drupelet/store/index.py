"""The tables of a store in RAM: where the records of messages are, pending ones, body files.

`build` makes them again from the records. A row is 8 bytes and begins with its key; key 0 is a
free row.

    moving    handle u32 | place u32       records that move while their handle stays: first
              `pending` messages, then `kept` deletions, which some sharer may still offer
    bodies    file number u32 | place u32
    recent    first 4 bytes of the id | place u32       the last ids that were searched or
              stored: they are likely to be needed soon, and a search reads the whole log

`sweep` removes a body file if its message is gone (place 0), or was in a segment that was removed.
The handle of a delivered message is the place of its record, also after a later record about it: a
TOMBSTONE, or OPENED.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import KEPT_MAX
from drupelet.base.memory import (
    copy,
    equal,
    fill,
    find,
    get_u16_le,
    get_u32_le,
    put_u16_le,
    put_u32_le,
)
from drupelet.store.departed_ids import IdFilter
from drupelet.store.log import (
    AT_BODY,
    AT_ID,
    AT_REF,
    AT_SIZE,
    AT_SOURCE,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_OPENED,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    ROW_ABOUT,
    ROW_GROUPS,
    ROW_LAST,
    SEGMENT_ROW,
    Log,
    body_name,
)
from drupelet.store.meta import MEMBER_GROUP, MEMBER_PEER, Meta

_ROW = const(8)
_TWIST = const(0x5A)  # gives the filter key of an id that later records are about

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Index:
    """The tables that lead into the message log, and the search in it."""

    def __init__(
        self, store: "StoreParts", log: Log, meta: Meta, pending_max: int, body_files_max: int,
        filter_size: int, recent_max: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._log = log
        self._meta = meta
        self.filter = IdFilter(filter_size)
        end = _ROW * (pending_max + KEPT_MAX)
        self.moving = memoryview(bytearray(end + 4))
        self.pending = self.moving[: _ROW * pending_max]
        self.kept = self.moving[_ROW * pending_max : end]
        self.places = self.moving[4:]  # the same rows, with `place` as key
        self._moving_count = 0  # rows in use; while it is 0, each handle is a place
        self.bodies = bytearray(_ROW * body_files_max)
        self.recent = bytearray(_ROW * recent_max)
        self.body_newest = 0
        self._recent_row = 0
        self._key = bytearray(4)
        self._first = bytearray(8)  # source to ref of a record that is written again

    # --- tables ---

    def build(self) -> None:
        """Make the tables from the records: at boot, and after a group was left."""
        log = self._log
        numbers = self._meta.numbers
        self.filter.clear()
        fill(self.moving, 0, len(self.moving), 0)
        self._moving_count = 0
        for row in range(0, SEGMENT_ROW * log.count, SEGMENT_ROW):
            fill(log.rows, row + ROW_GROUPS, SEGMENT_ROW - ROW_GROUPS, 0)
        for row in range(4, len(self.bodies), 8):
            put_u32_le(self.bodies, row, 0)
        handle = 0
        while handle := log.step(handle):
            self.apply(handle)
            if log.kind >= KIND_MESSAGE:
                # A number in use, even if its MEMBER record is lost: nobody else may get it.
                numbers[MEMBER_GROUP] = max(numbers[MEMBER_GROUP], log.tag)
                numbers[MEMBER_PEER] = max(numbers[MEMBER_PEER], log.head[AT_SOURCE])

    def apply(self, place: int) -> None:
        """Update the tables by the present record of the log, at a place."""
        log = self._log
        kind = log.kind
        head = log.head
        if kind < KIND_MESSAGE or kind > KIND_OPENED:
            return
        if self._meta.is_left(log.tag):
            return
        self.filter.add(head, AT_ID, 0)
        self.note_recent(head, AT_ID, place)
        ref = get_u32_le(head, AT_REF)
        if is_pending(kind):
            self.set_row(self.pending, ref or place, place)
        elif ref:
            row = self.row(self.places, ref)
            self.set_row(self.pending, get_u32_le(self.moving, row) if row >= 0 else ref, 0)
        body = get_u32_le(head, AT_BODY) if has_file(kind) else 0
        if kind >= KIND_TOMBSTONE:
            self.filter.add(head, AT_ID, _TWIST)
        is_kept = kind == KIND_TOMBSTONE and get_u16_le(head, AT_SIZE) > 0
        if kind == KIND_TOMBSTONE:
            self.set_row(self.kept, ref or place, place if is_kept else 0)
            body = get_u32_le(head, AT_BODY)
        if not is_pending(kind) and not is_kept:
            self._pin(place, ref)
        self.body_newest = max(self.body_newest, body)
        row = self.row(self.bodies, body) if body else -1
        if row >= 0:
            put_u32_le(self.bodies, row + 4, 0 if kind == KIND_TOMBSTONE else place)

    def _pin(self, place: int, ref: int) -> None:
        """Add a record that does not move to what its segment's row says."""
        log = self._log
        number = place // log.segment_size
        row = log.index_of(number) * SEGMENT_ROW
        log.rows[row + ROW_GROUPS] |= 1 << (log.tag & 7)
        put_u16_le(log.rows, row + ROW_LAST, place % log.segment_size)
        distance = min(number - ref // log.segment_size, 8) if ref else 0
        log.rows[row + ROW_ABOUT] |= 1 << distance >> 1

    def row(self, table: "bytearray | memoryview", key: int) -> int:
        """Return the offset of the row with this key (0: of a free row), or -1.

        With `places` as table, the key is a place, and the result is an offset in `moving`.
        """
        put_u32_le(self._key, 0, key)
        index = find(table, _ROW, len(table) // _ROW, self._key, 0, 4)
        return index * _ROW if index >= 0 else -1

    def set_row(self, table: "bytearray | memoryview", key: int, place: int) -> None:
        """Set the place of a moving record or of a body's message; 0 removes it."""
        row = self.row(table, key)
        if row < 0 and (place or table is self.bodies):
            row = self.row(table, 0)
            # The table was larger when this record was written.
            self._store.damaged += row < 0 and table is not self.bodies
        if row >= 0:
            if table is not self.bodies:
                self._moving_count += (place > 0) - (get_u32_le(table, row) > 0)
            put_u32_le(table, row, key if place or table is self.bodies else 0)
            put_u32_le(table, row + 4, place)

    def next_key(self, table: "bytearray | memoryview", key: int) -> int:
        """Return the lowest key of a table above `key`; 0: there is none."""
        lowest = 0
        for row in range(0, len(table), 8):
            other = get_u32_le(table, row)
            if other > key and (not lowest or other < lowest):
                lowest = other
        return lowest

    def sweep(self) -> None:
        """Remove body files whose message is gone.

        The log is flushed first: a message must not be left without its body after a power cut.
        """
        log = self._log
        for row in range(0, len(self.bodies), 8):
            number = get_u32_le(self.bodies, row)
            place = get_u32_le(self.bodies, row + 4)
            is_unused = number and log.index_of(place // log.segment_size) < 0
            if is_unused and log.flush() == OK:
                log.release(-number)
                if log.files.remove(body_name(number)) == OK:
                    fill(self.bodies, row, _ROW, 0)

    # --- records ---

    def find(self, id: "Buffer", at: int, size: int) -> int:
        """Return the place of the last record of an id, which is the valid one; 0: none."""
        log = self._log
        if not self.filter.has(id, at, 0):
            return 0
        unread = self._store.unread
        row = find(self.recent, _ROW, len(self.recent) // _ROW, id, at, 4)
        place = get_u32_le(self.recent, row * _ROW + 4) if row >= 0 else 0
        if place and log.look(place) and self._has_id(id, at, size):
            return place
        for index in range(log.count - 1, -1, -1):
            last = place = 0
            while place := log.step_in(index, place):
                if self._has_id(id, at, size):
                    last = place
            if last and self._store.unread == unread:
                self.note_recent(id, at, last)
                return last
        return 0

    def note_recent(self, id: "Buffer", at: int, place: int) -> None:
        """Remember the place of the last record of an id."""
        row = find(self.recent, _ROW, len(self.recent) // _ROW, id, at, 4)
        if row < 0:
            row = self._recent_row
            self._recent_row = (row + 1) % (len(self.recent) // _ROW)
            copy(self.recent, row * _ROW, id, at, 4)
        put_u32_le(self.recent, row * _ROW + 4, place)

    def _has_id(self, id: "Buffer", at: int, size: int) -> bool:
        """Return True if the present record belongs to a message with this id."""
        log = self._log
        is_message = log.kind >= KIND_MESSAGE and not self._meta.is_left(log.tag)
        return is_message and equal(log.head, AT_ID, id, at, size)

    def look(self, handle: int) -> bool:
        """Read the head of the record of a handle; False if there is none.

        For a kept deletion, that is its tombstone.
        """
        log = self._log
        row = self.row(self.moving, handle) if self._moving_count else -1
        place = get_u32_le(self.moving, row + 4) if row >= 0 else handle
        is_message = handle > 0 and log.look(place) and log.kind >= KIND_MESSAGE
        return is_message and not self._meta.is_left(log.tag)

    def handle_of(self, place: int) -> int:
        """Return the handle of the message that the record at a place belongs to."""
        log = self._log
        log.look(place)
        ref = get_u32_le(log.head, AT_REF)
        if is_pending(log.kind):
            return ref or place
        return ref if log.kind >= KIND_TOMBSTONE and self.look(ref) else place

    def tombstone(self, handle: int, id: "Buffer", at: int) -> int:
        """Return the place of the tombstone of the present record's message, or 0."""
        log = self._log
        return log.at if log.kind == KIND_TOMBSTONE else self.later(KIND_TOMBSTONE, handle, id, at)

    def later(self, kind: int, handle: int, id: "Buffer", at: int) -> int:
        """Return the place of a later record of `kind` about a message, or 0.

        For most messages, the filter answers this without reading flash.
        """
        log = self._log
        if self.filter.has(id, at, _TWIST):
            place = handle
            while place := log.step(place):
                if log.kind == kind and get_u32_le(log.head, AT_REF) == handle:
                    return place
        return 0

    def write_again(self, place: int, kind: int, ref: int, flags: int, missing: int) -> int:
        """Write a record again as `kind`; return its place or a code.

        `flags` are added; `missing` >= 0 replaces the size field.
        """
        log = self._log
        first = self._first
        if not log.look(place):
            return E_STORAGE
        copy(first, 0, log.head, AT_SOURCE, 4)
        first[1] |= flags
        if missing >= 0:
            put_u16_le(first, 2, missing)
        put_u32_le(first, 4, ref)
        written = log.append_copy(place, kind, first, 8)
        if written > 0:
            self.apply(written)
        return written


def is_pending(kind: int) -> bool:
    """Return True for the kinds of records of pending messages."""
    return KIND_PENDING <= kind <= KIND_PENDING_FILE


def has_file(kind: int) -> bool:
    """Return True for the kinds of records whose body is in a file."""
    return KIND_MESSAGE_FILE <= kind < KIND_TOMBSTONE and kind & 1 == 1
