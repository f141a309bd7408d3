"""The meta log: a store's members and its wake state, in a small log of their own.

    MEMBER   tag kind | number u8, how many of our messages were removed u32, the segment of the
             message log that was removed last, or is being removed, u32, key; no key: dismissed
    WAKE     the wake state; the newest one counts

A segment begins with a copy of everything current, WAKE last, and takes the changes from there on.
When it is full, the next one is begun in the same way. The segment before it is kept, since one
may be damaged. So the current records are always in the newest segments.

A number, 1 to 254, is one byte on flash and stays in use as long as any message has it. So the row
of a group that was left stays, and its messages are skipped until they are gone; likewise that of
a removed peer. The table is made again from the records; a row is 8 bytes, all 0 when free:

    place of the record u32 | kind u8 | number u8 | dismissed u8 | unused
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import ID_SIZE, MEMBERS_MAX, META_SEGMENTS
from drupelet.base.memory import copy, equal, get_u32_le, put_u32_le
from drupelet.store.log import KIND_MEMBER, KIND_WAKE, RECORD_EXTRA, Log

MEMBER_GROUP = const(1)
MEMBER_PEER = const(2)
_ROW = const(8)
_NUMBER_MAX = const(254)  # 0 is ourselves, 255 nobody
AT_COUNT = const(5)  # in the record, after the number; the segment follows
_AT_KEY = const(13)
_MEMBER_HEAD = const(9)  # bytes of the payload before the key: number, count, segment

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Meta:
    """Members by number, the count of our removed messages by group, and the wake state."""

    def __init__(self, store: "StoreParts", segment_size: int) -> None:
        self._store = store
        # One more while the next one is begun, and one more that the flash failed to remove.
        self.log = Log(store, ".MET", segment_size, META_SEGMENTS + 2, _AT_KEY + ID_SIZE)
        self.rows = bytearray(_ROW * MEMBERS_MAX)
        self.left = bytearray(32)  # one bit for each number of a group that was left
        self.numbers = bytearray(3)  # by kind of member: the largest number in any record
        self.wake = 0  # place of the newest wake state
        self._key = bytearray(ID_SIZE)

    def apply_from(self, index: int) -> None:
        """Update the tables by all records from a segment on."""
        log = self.log
        place = log.numbers[index] * log.segment_size
        while place := log.step(place):
            self._apply(place)

    def _apply(self, place: int) -> None:
        """Update the tables by the present record of the log."""
        log = self.log
        if log.kind == KIND_WAKE:
            self.wake = place
        if log.kind != KIND_MEMBER:
            return
        number = log.head[4]
        kind = log.tag
        is_dismissed = log.length == RECORD_EXTRA + _MEMBER_HEAD
        row = self.row(kind, number)
        if row < 0:
            row = self.row(0, 0)
        if row >= 0:
            put_u32_le(self.rows, row, place)
            self.rows[row + 4] = kind
            self.rows[row + 5] = number
            self.rows[row + 6] = is_dismissed
        self.numbers[kind] = max(self.numbers[kind], number)
        if kind == MEMBER_GROUP:
            bit = 1 << (number & 7)
            self.left[number >> 3] = self.left[number >> 3] & ~bit | (bit if is_dismissed else 0)

    # --- members ---

    def row(self, kind: int, number: int) -> int:
        """Return the offset of a member's row, of a free one for (0, 0), or -1."""
        rows = self.rows
        for row in range(0, len(rows), 8):
            if rows[row + 5] == number and rows[row + 4] == kind:
                return row
        return -1

    def is_member(self, kind: int, number: int) -> bool:
        """Return True for a member that was not dismissed."""
        row = self.row(kind, number)
        return row >= 0 and not self.rows[row + 6]

    def is_left(self, group: int) -> int:
        """Return non-zero for the number of a group that was left."""
        return self.left[group >> 3] & 1 << (group & 7)

    def find(self, kind: int, key: "Buffer", at: int, size: int) -> int:
        """Return the number of a member by its key, or 0."""
        log = self.log
        for row in range(0, len(self.rows), 8):
            place = get_u32_le(self.rows, row)
            is_match = place and self.rows[row + 4] == kind and log.look(place)
            is_match = is_match and log.length == RECORD_EXTRA + _MEMBER_HEAD + size
            if is_match and equal(log.head, _AT_KEY, key, at, size):
                return self.rows[row + 5]
        return 0

    def new_number(self, kind: int) -> int:
        """Return a number that was never in use; 0 if there is none, or no free row."""
        number = self.numbers[kind] + 1
        return number if number <= _NUMBER_MAX and self.row(0, 0) >= 0 else 0

    def look(self, kind: int, number: int) -> bool:
        """Read the record of a member; False if there is none."""
        row = self.row(kind, number)
        return row >= 0 and self.log.look(get_u32_le(self.rows, row))

    def set_count(self, group: int, gone: int, segment: int) -> int:
        """Set the count of our removed messages of a group, and the segment; OK or a code."""
        log = self.log
        if not self.look(MEMBER_GROUP, group):
            return OK
        size = log.length - RECORD_EXTRA - _MEMBER_HEAD
        copy(self._key, 0, log.head, _AT_KEY, size)
        return self.put(MEMBER_GROUP, group, self._key, 0, size, gone, segment)

    # --- writing ---

    def put(
        self, kind: int, number: int, buf: "Buffer", at: int, size: int, gone: int = 0,
        segment: int = 0,
    ) -> int:  # fmt: skip
        """Write a member's key, with `size` 0 its dismissal; OK or a code.

        `kind` 0 writes the wake state.
        """
        log = self.log
        head_size = _MEMBER_HEAD if kind else 0
        code = self._make_room(head_size + size)
        if code != OK:
            return code
        head = log.scratch
        head[0] = number
        put_u32_le(head, 1, gone)
        put_u32_le(head, 5, segment)
        record = KIND_MEMBER if kind else KIND_WAKE
        place = log.append(record, kind, head, head_size, buf, at, size)
        if place > 0:
            self._apply(place)
        return min(place, OK)

    def _make_room(self, size: int) -> int:
        """Make room for a payload, beginning a new segment if need be; return OK or a code."""
        log = self.log
        code = OK
        if not log.fits(size):
            before = log.count
            code = log.rotate(log.segments_max) or self._copy_current()
            if code == OK and log.count > META_SEGMENTS:
                code = log.flush()
            if code == OK:
                self.apply_from(before)
                while log.count > META_SEGMENTS and log.remove(0) == OK:
                    pass
            elif log.count > before:
                log.abandon()
        return E_CAPACITY if code == OK and not log.fits(size) else code

    def _copy_current(self) -> int:
        """Copy all current records, the wake state last; return OK or a code.

        Skips records that are damaged by now: otherwise nothing could be written any more.
        """
        log = self.log
        for row in range(0, len(self.rows), 8):
            place = get_u32_le(self.rows, row)
            if place and log.append_copy(place, KIND_MEMBER, b"", 0) < 0:
                if not log.fits(0):
                    return log.failed
                self._store.damaged += 1
        if not self.wake or log.append_copy(self.wake, KIND_WAKE, b"", 0) < 0:
            if not log.fits(0):
                return log.failed
            return min(log.append(KIND_WAKE, 0, b"", 0, b"", 0, 0), OK)
        return OK
