"""What a store knows in RAM about its log: ids, pending messages, members, body files.

Every table is made again from the records by `index`. A row is 8 bytes and begins with its key;
0 is a free row.

    pending   handle u32 | place of the record u32     a handle outlives the moves of its record
    kept      the same, of deleted messages that somebody may still offer
    bodies    file number u32 | place of the record u32
    members   place of the record u32 | kind u8 | number u8 | left u8 | unused

A body whose message is gone has place 0; one whose message is being written has the last place.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    ID_SIZE,
    KEPT_MAX,
    MEMBERS_MAX,
    OWN_SHARE,
    SEGMENTS_SPARE,
    TIMESTAMP_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.base.memory import equal, fill, find, get_u16_le, get_u32_le, put_u32_le
from drupelet.store.departed_ids import GoneLog, IdFilter
from drupelet.store.log import (
    AT_BODY,
    AT_ID,
    AT_REF,
    AT_SIZE,
    AT_SOURCE,
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_OPENED,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    KIND_WAKE,
    MESSAGE_HEAD_SIZE,
    RecordLog,
)
from drupelet.store.parts import Parts
from drupelet.store.segments import RECORD_EXTRA, body_name

_ROW = const(8)
_GROUPS = const(8)  # groups are told apart by their number modulo this
_TWIST = const(0x5A)  # makes the filter's key of an id that has a later record about it
MEMBER_GROUP = const(1)
MEMBER_COUNTED = const(3)  # a group, with how many messages of our own are gone
PLACE_LAST = const((1 << 30) - 1)  # no record is there

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.files import Files


class Tables(Parts):
    """The log of a store, the tables that lead into it, and what the layers above keep in RAM."""

    def __init__(
        self, files: "Files", log: RecordLog, pending_max: int, body_files_max: int,
        filter_size: int,
    ) -> None:  # fmt: skip
        Parts.__init__(self, files)
        self._log = log
        self._filter = IdFilter(filter_size)
        self._noted: "list[int]" = []  # segments whose ids are in it, since the boot
        self._gone = GoneLog(log, filter_size)
        self._pending = bytearray(_ROW * pending_max)
        self._kept = bytearray(_ROW * KEPT_MAX)
        self._bodies = bytearray(_ROW * body_files_max)
        self._members = bytearray(_ROW * MEMBERS_MAX)
        self._left = bytearray(32)  # a bit for each number of a group that was left
        self._numbers = bytearray(3)  # the largest of each kind of member that any record carries
        self._body_newest = 0
        self._wake = 0
        self._small = bytearray(4)
        self._key = bytearray(4)
        # The owner's: every message before it may go; and by group number modulo 8.
        self.settled_handle = 0
        self.settled = [0] * _GROUPS
        # The owner's: how many segments a group may hold, by its number modulo 8; 0 for no bound.
        self.quotas = bytearray(_GROUPS)
        self.refused = 0
        self._marks = -1  # for what marks no segment could go
        self._data_max = log.segments_max - SEGMENTS_SPARE
        # Of these, our own messages and those that wait for a parent leave some to what enters
        # from peers; two segments at least: a peer needs all of one to give one of its own back.
        kept = min(self._data_max // OWN_SHARE, OWN_SHARE)
        self._own_max = self._data_max - kept - (kept > 0)
        # The newest wake state.
        self.saved = bytearray(WAKE_STATE_SIZE_MAX)
        self.saved_size = 0
        # What `load` sets.
        self.id = bytearray(ID_SIZE)
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.group = self.source = self.size = self.state = 0
        self.edges_size = 0  # of a deleted message
        self.missing = 0  # who is not known to have it: bits of peers, as `delete` was told
        self.private = False  # it is not shared; also of one that was deleted since
        self._body = 0
        self._tombstone = 0  # of the message that was loaded last

    # --- records ---

    def _look(self, handle: int) -> bool:
        """Read the head of the record that a handle stands for into the log's scratch."""
        log = self._log
        table = self._pending
        row = self._find_row(table, handle)
        there = row < 0 and log.look(handle)
        if row < 0 and not there:
            table = self._kept
            row = self._find_row(table, handle)
        if row >= 0:
            there = log.look(get_u32_le(table, row + 4))
        if handle <= 0 or not there or log.kind < KIND_MESSAGE or self._is_left(log.tag):
            return False
        return log.read_into(log.at, 0, log.scratch, 0, MESSAGE_HEAD_SIZE) == MESSAGE_HEAD_SIZE

    def _has_id(
        self, handle: int, id: "bytes | bytearray | memoryview", at: int, size: int
    ) -> bool:
        self._log.read_into(handle, AT_ID, self._log.scratch, 0, size)
        return equal(self._log.scratch, 0, id, at, size)

    def _ref(self, handle: int) -> int:
        self._log.read_into(handle, AT_REF, self._log.scratch, 0, 4)
        return get_u32_le(self._log.scratch, 0)

    def _stands_for(self, place: int) -> int:
        """Handle of the message that a record belongs to."""
        self._log.look(place)
        kind = self._log.kind
        ref = self._ref(place)
        if is_pending(kind):
            return ref or place
        if kind >= KIND_TOMBSTONE and self._look(ref):
            return ref
        return place

    def _later(self, kind: int, handle: int, id: "bytes | bytearray", at: int) -> int:
        """The place of a later record of `kind` about a message, or 0.

        The filter keeps this off the flash for most.
        """
        if not self._filter.has(id, at, _TWIST):
            return 0
        place = self._log.step(handle)
        while place:
            if self._log.kind == kind and self._ref(place) == handle:
                return place
            place = self._log.step(place)
        return 0

    # --- tables ---

    def _untwin(self) -> None:
        """Pass over records that were refused though they are there, and written again later.

        From the newest on: one may be there more than twice.
        """
        log = self._log
        id = bytearray(ID_SIZE)
        for index in range(log.count - 1, -1, -1):
            last = 0
            handle = log.enter(index) if log.has_failed(index) else 0
            while handle:
                here = KIND_MESSAGE <= log.kind < KIND_TOMBSTONE
                if handle // log.segment_size == log.number(index):
                    last = handle if here else 0
                    log.read_into(handle, AT_ID, id, 0, ID_SIZE)
                elif last and here and self._has_id(handle, id, 0, ID_SIZE):
                    log.set_end(index, last % log.segment_size)
                    break
                handle = log.step(handle)

    def _index(self) -> None:
        """Make the tables from the records."""
        self._filter.clear()
        fill(self._pending, 0, len(self._pending), 0)
        fill(self._kept, 0, len(self._kept), 0)
        handle = self._log.step(0)
        while handle:
            self._apply(handle)
            if self._log.kind >= KIND_MESSAGE:
                # A member whose record is lost: nobody else gets its number.
                self._numbers[1] = max(self._numbers[1], self._log.tag)
                self._numbers[2] = max(self._numbers[2], self._log.scratch[AT_SOURCE])
            handle = self._log.step(handle)

    def _apply(self, handle: int) -> None:
        log = self._log
        if handle != log.at:
            log.look(handle)
        kind = log.kind
        head = log.scratch
        log.read_into(handle, 0, head, 0, min(log.length, MESSAGE_HEAD_SIZE))
        if kind == KIND_WAKE:
            self._wake = handle
        elif kind == KIND_MEMBER:
            self._note_member(handle, log.tag, head[4], log.length == RECORD_EXTRA + 1)
        if kind < KIND_MESSAGE or kind > KIND_OPENED or self._is_left(log.tag):
            return
        log.pin(handle)
        self._filter.add(head, AT_ID, 0)
        ref = get_u32_le(head, AT_REF)
        if is_pending(kind):
            self._set_row(self._pending, ref or handle, handle)
        elif ref:
            row = self._find_row(self._pending, ref)
            if row < 0:
                row = self._find_place(self._pending, ref)
            if row >= 0:
                fill(self._pending, row, _ROW, 0)
        if kind >= KIND_TOMBSTONE:
            self._filter.add(head, AT_ID, _TWIST)
        if kind == KIND_TOMBSTONE:
            kept = handle if get_u16_le(head, AT_SIZE) else 0
            if kept or self._find_row(self._kept, ref or handle) >= 0:
                self._set_row(self._kept, ref or handle, kept)
            row = self._find_row(self._bodies, get_u32_le(head, AT_BODY))
            if row >= 0:
                put_u32_le(self._bodies, row + 4, 0)
        elif has_file(kind):
            number = get_u32_le(head, AT_BODY)
            self._body_newest = max(self._body_newest, number)
            row = self._find_row(self._bodies, number)
            if row >= 0:
                put_u32_le(self._bodies, row + 4, handle)

    def _find_row(self, table: bytearray, value: int) -> int:
        """Offset of the row that begins with this value (0: of a free row); -1 for none."""
        put_u32_le(self._key, 0, value)
        index = find(table, _ROW, len(table) // _ROW, self._key, 0, 4)
        return index * _ROW if index >= 0 else -1

    def _find_place(self, table: bytearray, place: int) -> int:
        """Offset of the row whose record is at `place`; -1 for none."""
        for row in range(0, len(table), 8):
            if get_u32_le(table, row + 4) == place:
                return row
        return -1

    def _set_row(self, table: bytearray, handle: int, place: int) -> None:
        """Note where the record of a message is that moves; place 0: it does so no more."""
        row = self._find_row(table, handle)
        if row < 0:
            row = self._find_row(table, 0)
        if row < 0:
            self._log.damaged += 1  # the table was larger when this was written
            return
        put_u32_le(table, row, handle if place else 0)
        put_u32_le(table, row + 4, place)

    def _note_member(self, place: int, kind: int, number: int, left: bool) -> None:
        table = self._members
        if kind == MEMBER_COUNTED:
            kind = MEMBER_GROUP
        row = 0
        while row < len(table) and get_u32_le(table, row):
            if table[row + 4] == kind and table[row + 5] == number:
                break
            row += _ROW
        if row < len(table):
            put_u32_le(table, row, place)
            table[row + 4] = kind
            table[row + 5] = number
            table[row + 6] = left
        if kind == MEMBER_GROUP:
            bit = 1 << (number & 7)
            self._left[number >> 3] = self._left[number >> 3] & ~bit | (bit if left else 0)
        if left:
            self._let_go(self._pending)
            self._let_go(self._kept)
            self._let_go(self._bodies)

    def _member_row(self, group: int) -> int:
        """Offset of a group's row; that of some other member if it has none."""
        table = self._members
        row = len(table) - _ROW
        while row and not (table[row + 5] == group and table[row + 4] == MEMBER_GROUP):
            row -= _ROW
        return row

    def _is_left(self, group: int) -> int:
        """Not 0 for the number of a group that was left."""
        return self._left[group >> 3] & 1 << (group & 7)

    def _let_go(self, table: bytearray) -> None:
        """Let go the rows of messages whose group was left; their body files are not swept yet.

        At once, in log order: what came later into the table had their room.
        """
        for row in range(0, len(table), 8):
            place = get_u32_le(table, row + 4)
            if place and self._log.look(place) and self._is_left(self._log.tag):
                put_u32_le(table, row + 4, 0)
                if table is not self._bodies:
                    put_u32_le(table, row, 0)

    # --- body files ---

    def _set_body(self, number: int, place: int) -> None:
        row = self._find_row(self._bodies, number)
        if row < 0:
            row = self._find_row(self._bodies, 0)
        if row >= 0:
            put_u32_le(self._bodies, row, number)
            put_u32_le(self._bodies, row + 4, place)
        self._body_newest = max(self._body_newest, number)

    def _move_body(self, place: int, to: int) -> None:
        row = self._find_place(self._bodies, place)
        if row >= 0:
            put_u32_le(self._bodies, row + 4, to)

    def _sweep(self) -> None:
        """Remove the body files that no message in the log refers to, if they go.

        Were a file gone before the log is durable, a message could be left without its body.
        """
        for row in range(0, len(self._bodies), 8):
            number = get_u32_le(self._bodies, row)
            unused = number and not get_u32_le(self._bodies, row + 4)
            if unused and self._log.flush() == OK:
                self._log.release(-number)
                if self._files.remove(body_name(number)) == OK:
                    fill(self._bodies, row, _ROW, 0)

    def _number(self, number: int) -> bytearray:
        put_u32_le(self._small, 0, number)
        return self._small


def is_pending(kind: int) -> bool:
    """True for the kinds of record that hold a pending message."""
    return KIND_PENDING <= kind <= KIND_PENDING_FILE


def has_file(kind: int) -> bool:
    """True for the kinds of record whose body is in a file: the odd ones of the four."""
    return KIND_MESSAGE_FILE <= kind < KIND_TOMBSTONE and kind & 1 == 1
