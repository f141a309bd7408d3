"""What a store knows in RAM about its messages: their ids, pending ones, body files.

`build` makes the tables again from the records, but for `recent`. A row is 8 bytes and begins
with its key; 0 is a free row.

    moving    handle u32 | place of the record u32     a handle outlives the moves of its record:
              first `pending` messages, then `kept` deletions that somebody may still offer
    bodies    file number u32 | place of the record u32
    recent    how the id begins, 4 bytes | place of the last record, of the last 16 ids that the
              log was asked for or took in: answers about them come soon, and a scan is long

`sweep` removes a body whose message is gone (place 0), or was in a segment that went. The handle
of a delivered message is where its record is, and stays so when a later record speaks of it: a
tombstone, or that it is shared from there on.
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
_RECENT = const(16)
_TWIST = const(0x5A)  # makes the filter's key of an id that has a later record about it

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Index:
    """The tables that lead into the message log, and the search in it."""

    def __init__(
        self, store: "StoreParts", log: Log, meta: Meta, pending_max: int, body_files_max: int,
        filter_size: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._log = log
        self._meta = meta
        self.filter = IdFilter(filter_size)
        end = _ROW * (pending_max + KEPT_MAX)
        self.moving = memoryview(bytearray(end + 4))
        self.pending = self.moving[: _ROW * pending_max]
        self.kept = self.moving[_ROW * pending_max : end]
        self.places = self.moving[4:]  # in which a row begins with the place
        self.bodies = bytearray(_ROW * body_files_max)
        self.recent = bytearray(_ROW * _RECENT)
        self.body_newest = 0
        self._recent_row = 0
        self._key = bytearray(4)
        self._first = bytearray(8)  # of a record that is written again: source to ref

    # --- tables ---

    def build(self) -> None:
        """Make the tables from the records: at boot, and when a group was left."""
        log = self._log
        numbers = self._meta.numbers
        self.filter.clear()
        fill(self.moving, 0, len(self.moving), 0)
        for row in range(0, SEGMENT_ROW * log.count, SEGMENT_ROW):
            fill(log.rows, row + ROW_GROUPS, SEGMENT_ROW - ROW_GROUPS, 0)
        for row in range(4, len(self.bodies), 8):
            put_u32_le(self.bodies, row, 0)
        handle = 0
        while handle := log.step(handle):
            self.apply(handle)
            if log.kind >= KIND_MESSAGE:
                # A member whose record is lost: nobody else gets its number.
                numbers[MEMBER_GROUP] = max(numbers[MEMBER_GROUP], log.tag)
                numbers[MEMBER_PEER] = max(numbers[MEMBER_PEER], log.head[AT_SOURCE])

    def apply(self, place: int) -> None:
        """Note what the record changes that was looked at last."""
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
        """Note in the row of its segment what a record, which does not move, is about."""
        log = self._log
        number = place // log.segment_size
        row = log.index_of(number) * SEGMENT_ROW
        log.rows[row + ROW_GROUPS] |= 1 << (log.tag & 7)
        put_u16_le(log.rows, row + ROW_LAST, place % log.segment_size)
        distance = min(number - ref // log.segment_size, 8) if ref else 0
        log.rows[row + ROW_ABOUT] |= 1 << distance >> 1

    def row(self, table: "bytearray | memoryview", key: int) -> int:
        """Offset of the row that begins with this key (0: of a free row); -1 for none.

        In `places` the key is where a record is, and the row one of `moving`.
        """
        put_u32_le(self._key, 0, key)
        index = find(table, _ROW, len(table) // _ROW, self._key, 0, 4)
        return index * _ROW if index >= 0 else -1

    def set_row(self, table: "bytearray | memoryview", key: int, place: int) -> None:
        """Note the place of a record that moves, or of a body's; 0: of a message no more."""
        row = self.row(table, key)
        if row < 0 and (place or table is self.bodies):
            row = self.row(table, 0)
            # It was larger when this was written.
            self._store.damaged += row < 0 and table is not self.bodies
        if row >= 0:
            put_u32_le(table, row, key if place or table is self.bodies else 0)
            put_u32_le(table, row + 4, place)

    def next_key(self, table: "bytearray | memoryview", key: int) -> int:
        """The lowest key of a table above `key`; 0 for none."""
        best = 0
        for row in range(0, len(table), 8):
            other = get_u32_le(table, row)
            if other > key and (not best or other < best):
                best = other
        return best

    def sweep(self) -> None:
        """Remove the body files that no message in the log refers to, if they go.

        Were a file gone before the log is durable, a message could be left without its body.
        """
        log = self._log
        for row in range(0, len(self.bodies), 8):
            number = get_u32_le(self.bodies, row)
            place = get_u32_le(self.bodies, row + 4)
            unused = number and log.index_of(place // log.segment_size) < 0
            if unused and log.flush() == OK:
                log.release(-number)
                if log.files.remove(body_name(number)) == OK:
                    fill(self.bodies, row, _ROW, 0)

    # --- records ---

    def find(self, id: "Buffer", at: int, size: int) -> int:
        """The place of the last record of an id, which is the valid one; 0 for none."""
        log = self._log
        if not self.filter.has(id, at, 0):
            return 0
        unread = self._store.unread
        row = find(self.recent, _ROW, _RECENT, id, at, 4)
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
        """Note where the last record of an id is."""
        row = find(self.recent, _ROW, _RECENT, id, at, 4)
        if row < 0:
            row = self._recent_row
            self._recent_row = (row + 1) % _RECENT
            copy(self.recent, row * _ROW, id, at, 4)
        put_u32_le(self.recent, row * _ROW + 4, place)

    def _has_id(self, id: "Buffer", at: int, size: int) -> bool:
        """True if the record that was looked at is a message's with this id."""
        log = self._log
        is_message = log.kind >= KIND_MESSAGE and not self._meta.is_left(log.tag)
        return is_message and equal(log.head, AT_ID, id, at, size)

    def look(self, handle: int) -> bool:
        """Look at the record that a handle stands for; False when there is none.

        Of a kept deletion that is its tombstone.
        """
        log = self._log
        row = self.row(self.moving, handle)
        place = get_u32_le(self.moving, row + 4) if row >= 0 else handle
        is_message = handle > 0 and log.look(place) and log.kind >= KIND_MESSAGE
        return is_message and not self._meta.is_left(log.tag)

    def handle_of(self, place: int) -> int:
        """Handle of the message that a record belongs to."""
        log = self._log
        log.look(place)
        ref = get_u32_le(log.head, AT_REF)
        if is_pending(log.kind):
            return ref or place
        return ref if log.kind >= KIND_TOMBSTONE and self.look(ref) else place

    def tombstone(self, handle: int, id: "Buffer", at: int) -> int:
        """The place of the tombstone of the message that was looked at, or 0."""
        log = self._log
        return log.at if log.kind == KIND_TOMBSTONE else self.later(KIND_TOMBSTONE, handle, id, at)

    def later(self, kind: int, handle: int, id: "Buffer", at: int) -> int:
        """The place of a later record of `kind` about a message, or 0.

        The filter keeps this off the flash for most.
        """
        log = self._log
        if self.filter.has(id, at, _TWIST):
            place = handle
            while place := log.step(place):
                if log.kind == kind and get_u32_le(log.head, AT_REF) == handle:
                    return place
        return 0

    def write_again(self, place: int, kind: int, ref: int, flags: int, missing: int) -> int:
        """Write a record again as one of `kind`; its place or a code.

        `flags` are added, `missing` >= 0 replaces the size.
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
    """True for the kinds of record that hold a pending message."""
    return KIND_PENDING <= kind <= KIND_PENDING_FILE


def has_file(kind: int) -> bool:
    """True for the kinds of record whose body is in a file: the odd ones of the four."""
    return KIND_MESSAGE_FILE <= kind < KIND_TOMBSTONE and kind & 1 == 1
