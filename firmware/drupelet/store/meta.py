"""What a store keeps beside its messages, in a small log of its own: members and the wake state.

    MEMBER   tag kind | number u8, messages of our own that are gone u32, the segment of the
             message log that went, or goes, last u32, key; without a key the member was dismissed
    WAKE     the wake state; the newest one counts

A segment begins with a copy of all that is current, in which WAKE is the last, and takes what
changes from there on. When it is full the next one is begun so; the one before it stays, for a
segment may be damaged. So what is current is never far behind, and the message log has none of it.

A number, 1..254, is one byte on flash and lasts while any message carries it. A group that was
left keeps its row, so that its messages are passed over until they are gone; so does a removed
peer's. The table is made again from the records; a row is 8 bytes, all 0 for a free one:

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
_NUMBER_MAX = const(254)  # members are one byte on flash; 0 is ourselves, 255 nobody
AT_COUNT = const(5)  # in the record, behind the number; the segment follows
_AT_KEY = const(13)
_MEMBER_HEAD = const(9)  # of the payload: number, count, segment

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Meta:
    """Members by number, how many of our messages are gone in each group, and the wake state."""

    def __init__(self, store: "StoreParts", segment_size: int) -> None:
        self._store = store
        # One more while the next one is begun, and one that the flash did not remove.
        self.log = Log(store, ".MET", segment_size, META_SEGMENTS + 2, _AT_KEY + ID_SIZE)
        self.rows = bytearray(_ROW * MEMBERS_MAX)
        self.left = bytearray(32)  # a bit for each number of a group that was left
        self.numbers = bytearray(3)  # the largest of each kind of member that any record carries
        self.wake = 0  # place of the newest wake state
        self._key = bytearray(ID_SIZE)

    def apply_from(self, index: int) -> None:
        """Note what all records say, from those of a segment on."""
        log = self.log
        place = log.numbers[index] * log.segment_size
        while place := log.step(place):
            self._apply(place)

    def _apply(self, place: int) -> None:
        """Note what the record changes that was looked at last."""
        log = self.log
        if log.kind == KIND_WAKE:
            self.wake = place
        if log.kind != KIND_MEMBER:
            return
        number = log.head[4]
        kind = log.tag
        dismissed = log.length == RECORD_EXTRA + _MEMBER_HEAD
        row = self.row(kind, number)
        if row < 0:
            row = self.row(0, 0)
        if row >= 0:
            put_u32_le(self.rows, row, place)
            self.rows[row + 4] = kind
            self.rows[row + 5] = number
            self.rows[row + 6] = dismissed
        self.numbers[kind] = max(self.numbers[kind], number)
        if kind == MEMBER_GROUP:
            bit = 1 << (number & 7)
            self.left[number >> 3] = self.left[number >> 3] & ~bit | (bit if dismissed else 0)

    # --- members ---

    def row(self, kind: int, number: int) -> int:
        """Offset of a member's row; (0, 0): of a free one; -1 for none."""
        rows = self.rows
        for row in range(0, len(rows), 8):
            if rows[row + 5] == number and rows[row + 4] == kind:
                return row
        return -1

    def is_member(self, kind: int, number: int) -> bool:
        """True for one that was not dismissed."""
        row = self.row(kind, number)
        return row >= 0 and not self.rows[row + 6]

    def is_left(self, group: int) -> int:
        """Not 0 for the number of a group that was left."""
        return self.left[group >> 3] & 1 << (group & 7)

    def find(self, kind: int, key: "Buffer", at: int, size: int) -> int:
        """The number of a member, or 0."""
        log = self.log
        for row in range(0, len(self.rows), 8):
            place = get_u32_le(self.rows, row)
            known = place and self.rows[row + 4] == kind and log.look(place)
            known = known and log.length == RECORD_EXTRA + _MEMBER_HEAD + size
            if known and equal(log.head, _AT_KEY, key, at, size):
                return self.rows[row + 5]
        return 0

    def new_number(self, kind: int) -> int:
        """A number that nobody ever had; 0 when there is none, or no row for it."""
        number = self.numbers[kind] + 1
        return number if number <= _NUMBER_MAX and self.row(0, 0) >= 0 else 0

    def look(self, kind: int, number: int) -> bool:
        """Look at the record of a member; False when there is none."""
        row = self.row(kind, number)
        return row >= 0 and self.log.look(get_u32_le(self.rows, row))

    def set_count(self, group: int, gone: int, segment: int) -> int:
        """Note how many messages of our own are gone, and the segment; OK or a code."""
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
        """Write a member's key, with `size` 0 that it is one no more; OK or a code.

        `kind` 0: the wake state.
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
        """Have room for a payload, if need be in a segment that is begun; OK or a code."""
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
        """Copy all that is current, the wake state last; OK or a code.

        What has rotted since the boot is left out: nothing else would be written any more.
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
