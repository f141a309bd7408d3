"""Reclaim room when the log or the table of body files is full.

The oldest segment that nobody needs is removed: each message in it is settled, as the engine says
for all groups or for one, or its group was left. Pending messages, and deletions that some sharer
may not know of, are written again first. A group may not hold more segments than its quota. If the
quotas add up to less than the log, no group takes the room of another, however long its messages
wait for a peer that never comes.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import GONE_BATCH
from drupelet.base.memory import get_u16_le, get_u32_le, put_u32_le
from drupelet.store.departed_ids import DepartedIds
from drupelet.store.index import Index, is_pending
from drupelet.store.log import (
    AT_FLAGS,
    AT_ID,
    AT_SOURCE,
    FLAG_INVALID,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    NOTED,
    RECORD_EXTRA,
    ROW_ABOUT,
    ROW_FLAGS,
    ROW_GROUPS,
    ROW_LAST,
    SEGMENT_ROW,
    Log,
)
from drupelet.store.meta import AT_COUNT, MEMBER_GROUP, Meta

# Attempts to fit a payload: the payload and each spare segment may need one.
_TRIES = const(8)


# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StoreParts


class Reclaim:
    """Removes segments of the message log that nobody needs, and keeps the ids of its messages."""

    def __init__(
        self, store: "StoreParts", log: Log, index: Index, meta: Meta, departed: DepartedIds
    ) -> None:
        self._store = store
        self._log = log
        self._index = index
        self._meta = meta
        self._departed = departed

    def make_room(self, size: int, segments: int, group: int) -> int:
        """Make room for a payload, using at most `segments`; return OK or a code.

        `group`: whose quota applies, 0 for none.
        """
        log = self._log
        if group and self._store.quotas[group & 7] and not self._in_quota(size, group):
            return E_CAPACITY
        for _ in range(_TRIES):
            if log.count <= segments and log.fits(size):
                return OK
            code = log.rotate(segments)
            if code == E_CAPACITY:
                code = self.reclaim()
            if code != OK:
                return code
        return E_CAPACITY

    def reclaim(self) -> int:
        """Remove the oldest segment that nobody needs; return OK, E_CAPACITY (none) or a code.

        E_STORAGE if the flash refused to read anything that is in the segment.
        """
        log = self._log
        unread = self._store.unread
        code = E_CAPACITY
        victim = -1
        for index in range(log.count):
            if self._may_go(index) and (victim < 0 or 0 < self._departed.noted < GONE_BATCH):
                if victim < 0:
                    code = self._move_current(index)
                    victim = index if code == OK else -1
                if victim >= 0:
                    self._note_ids(index)
        if victim < 0:
            return code
        code = self._departed.write_noted()
        if code == OK and self._store.unread == unread:
            return self._remove(victim)
        for index in range(log.count):
            log.rows[index * SEGMENT_ROW + ROW_FLAGS] &= ~NOTED
        return code or E_STORAGE

    def _note_ids(self, index: int) -> None:
        """Add the ids in a segment to the departed ids, once, before it is removed."""
        log = self._log
        head = log.head
        flags = index * SEGMENT_ROW + ROW_FLAGS
        is_noted = True  # the first ids may have been added before a reboot
        handle = 0 if log.rows[flags] & NOTED else log.step_in(index, 0)
        log.rows[flags] |= NOTED
        while handle:
            has_entered = log.kind >= KIND_MESSAGE and not is_pending(log.kind)
            if has_entered and not self._meta.is_left(log.tag):
                is_noted = is_noted and self._departed.find(head, AT_ID, self._meta.left) != 0
                if not is_noted:
                    self._departed.note(head, AT_ID, log.tag, head[AT_FLAGS] & FLAG_INVALID)
            handle = log.step_in(index, handle)

    def _remove(self, index: int) -> int:
        log = self._log
        code = log.remove(index)
        if code == OK:
            self._index.sweep()
            if self._index.filter.crowded():
                self._index.build()
        return code

    # --- who needs what ---

    def _may_go(self, index: int) -> bool:
        """Return True for a segment that nobody needs and that does not refer to an older one.

        A record about a message has to stay as long as the message: a deleted one would be back.
        """
        log = self._log
        about = log.rows[index * SEGMENT_ROW + ROW_ABOUT]
        for older in range(index):
            distance = min(log.numbers[index] - log.numbers[older], 8)
            if about & 1 << distance >> 1:
                return False
        return not log.is_held(index) and not self._needed(index)

    def _needed(self, index: int) -> int:
        """Return the groups (a bit each) of which somebody may need a message in a segment."""
        log = self._log
        row = index * SEGMENT_ROW
        last = log.numbers[index] * log.segment_size + get_u16_le(log.rows, row + ROW_LAST)
        needed = log.rows[row + ROW_GROUPS]
        for group in range(len(self._store.settled)):
            if last < max(self._store.settled_handle, self._store.settled[group]):
                needed &= ~(1 << group)
        return needed

    def is_settled(self, place: int) -> bool:
        """Return True if nobody needs the message of the present record, at a place, any more."""
        return place < max(self._store.settled_handle, self._store.settled[self._log.tag & 7])

    def _in_quota(self, size: int, group: int) -> bool:
        """Return True if the quota of a group allows the segment that a payload goes into."""
        log = self._log
        bit = 1 << (group & 7)
        if log.fits(size) and log.rows[(log.count - 1) * SEGMENT_ROW + ROW_GROUPS] & bit:
            return True
        held = 0
        for index in range(log.count):
            held += self._needed(index) & bit != 0
        return held < self._store.quotas[group & 7]

    # --- bodies ---

    def free_body(self) -> bool:
        """Free a row for a body file, if need be that of the oldest settled message."""
        log = self._log
        bodies = self._index.bodies
        if self._index.row(bodies, 0) < 0:
            oldest = 0
            victim = -1
            for row in range(0, len(bodies), 8):
                place = get_u32_le(bodies, row + 4)
                older = (not oldest or place < oldest) and log.look(place)
                if older and self.is_settled(place) and not is_pending(log.kind):
                    oldest = place
                    victim = row
            if victim >= 0:
                put_u32_le(bodies, victim + 4, 0)
                self._index.sweep()
        return self._index.row(bodies, 0) >= 0

    def bodies(self, group: int) -> int:
        """Return how many body files of a group are in use by messages that are not settled."""
        log = self._log
        bodies = self._index.bodies
        count = 0
        for row in range(4, len(bodies), 8):
            place = get_u32_le(bodies, row)
            count += log.look(place) and log.tag == group and not self.is_settled(place)
        return count

    # --- what outlives its segment ---

    def _move_current(self, index: int) -> int:
        """Write the pending and kept records of a segment again, and count our own messages.

        Returns OK once all that is durable, or a code.
        """
        log = self._log
        tables = self._index
        code = self._count_own(index)
        # E_CAPACITY of the counter must not block reclaim on a full flash.
        code = OK if code == E_CAPACITY else code
        place = 0
        while code == OK and (place := log.step_in(index, place)):
            row = tables.row(tables.places, place)
            if row >= 0:
                code = self._write_again(place, get_u32_le(tables.moving, row))
        return code or self._meta.log.flush() or log.flush()

    def _write_again(self, place: int, handle: int) -> int:
        log = self._log
        kind = log.kind
        code = OK if log.fits(log.length - RECORD_EXTRA) else log.rotate(log.segments_max)
        if code != OK:
            return code
        code = self._index.write_again(place, kind, handle, 0, -1)
        if code < 0 and log.fits(0):
            self._store.damaged += 1  # it was lost already, so it must not block reclaim
            return OK
        return min(code, OK)

    def dropped(self, group: int) -> int:
        """Return how many of our own messages in a group were removed."""
        meta = self._meta
        if not meta.look(MEMBER_GROUP, group):
            return 0
        gone = get_u32_le(meta.log.head, AT_COUNT)
        index = self._log.index_of(get_u32_le(meta.log.head, AT_COUNT + 4))
        # If the segment is still there, a power cut came between the count and its removal.
        return gone - (self._own(group, index) if gone and index >= 0 else 0)

    def _own(self, group: int, index: int) -> int:
        """Return how many of our own messages in a group are in a segment."""
        log = self._log
        count = 0
        place = 0
        while place := log.step_in(index, place):
            if KIND_MESSAGE <= log.kind <= KIND_MESSAGE_FILE and log.tag == group:
                count += not log.head[AT_SOURCE]
        return count

    def _count_own(self, index: int) -> int:
        """Add our own messages in a segment to the counts, once; return OK or a code."""
        meta = self._meta
        code = OK
        for row in range(0, len(meta.rows), 8):
            group = meta.rows[row + 5]
            is_group = meta.rows[row + 4] == MEMBER_GROUP and not meta.rows[row + 6]
            count = self._own(group, index) if is_group else 0
            if count:
                count += self.dropped(group)
                code = code or meta.set_count(group, count, self._log.numbers[index])
        return code
