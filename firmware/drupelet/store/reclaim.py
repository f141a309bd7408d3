"""Giving room back: what may go from a store when its log or its body files are full.

A segment goes, the oldest first, if nobody needs a message in it: each is settled, which the owner
says for all groups or for one, or of a group that was left. What is current in it (members, the
wake state, pending messages, deletions that somebody may not know of) is written again first.
A group may not hold more segments than its quota; with quotas that add up to less than the log,
no group takes another one's room, however long its messages wait for a peer that never comes.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import GONE_BATCH, ID_PREFIX_SIZE, SCRATCH_SIZE
from drupelet.base.memory import get_u32_le, put_u16_le, put_u32_le
from drupelet.store.index import MEMBER_COUNTED, MEMBER_GROUP, Tables, is_pending
from drupelet.store.log import (
    AT_FLAGS,
    AT_ID,
    AT_REF,
    AT_SIZE,
    AT_SOURCE,
    FLAG_INVALID,
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_PENDING,
)
from drupelet.store.segments import RECORD_EXTRA

# To take a payload in: room may have to be made for it and the spare segments, each a turn.
_TRIES = const(8)
_COUNTED_SIZE_MAX = const(41)  # number, key, count u32, segment u32


class Room(Tables):
    """Tables that can be emptied of what is settled."""

    def barrier(self) -> int:
        """Make everything that was put before survive a power cut; free when there is nothing."""
        return self._log.flush()

    def unsettle(self) -> None:
        """Nothing is settled until the owner says so again: somebody needs what nobody did."""
        self.settled_handle = 0
        for row in range(len(self.settled)):
            self.settled[row] = 0
        for index in range(self._log.count):
            self._log.set_groups(index, 0xFF)

    def reclaim(self) -> int:
        """Remove the oldest segment that nobody needs; OK, or E_CAPACITY when there is none."""
        log = self._log
        marks = self.settled_handle >> 1
        for mark in self.settled:
            marks = (marks + (mark >> 1)) & 0x1FFFFFFF
        if log.count:
            marks ^= log.number(log.count - 1)
        code = E_CAPACITY
        tried = False
        index = 0
        victim = -1
        while index < log.count and (victim < 0 or 0 < self._gone.noted < GONE_BATCH):
            # Without new marks the last search, which found nothing, still holds.
            fresh = marks != self._marks or not log.groups(index)
            if fresh and not log.is_written(index) and not self._needed(index):
                tried = True
                if victim < 0:
                    # On a full flash what needs no writing goes first; a count is no reason to
                    # stay.
                    code = self._count_own(index)
                    if code != E_STORAGE:
                        code = self._rescue(index)
                    if code == OK:
                        victim = index
                if victim >= 0:
                    self._note_gone(index)
            index += 1
        if not tried:
            self._marks = marks
        if victim >= 0:
            code = self._gone.write_noted()
            if code == OK:
                code = self._remove(victim)
            else:
                self._noted.clear()
        return code

    def _note_gone(self, index: int) -> None:
        """Note the ids of a segment, once, for when it is not there any more."""
        log = self._log
        head = log.scratch
        number = log.number(index)
        if number in self._noted:
            return
        self._noted.append(number)
        handle = log.enter(index)
        there = True  # noted before a reboot: the first that is not ends them
        while handle and handle // log.segment_size == number:
            kind = log.kind
            if kind >= KIND_MESSAGE and not is_pending(kind) and not self._is_left(log.tag):
                log.read_into(handle, 0, head, 0, AT_ID + ID_PREFIX_SIZE)
                there = there and self._gone.find(head, AT_ID, self._left) != 0
                if not there:
                    self._gone.note(head, AT_ID, log.tag, head[AT_FLAGS] & FLAG_INVALID)
            handle = log.step(handle)

    def _remove(self, index: int) -> int:
        log = self._log
        number = log.number(index)
        first = number * log.segment_size
        code = log.remove(index)
        if code == OK:
            self._noted.remove(number)
            for row in range(0, len(self._bodies), 8):
                if 0 <= get_u32_le(self._bodies, row + 4) - first < log.segment_size:
                    put_u32_le(self._bodies, row + 4, 0)
            self._sweep()
            if self._filter.crowded():
                self._index()
        return code

    def _needed(self, index: int) -> int:
        """The groups (a bit each) of which somebody needs a message in a segment."""
        log = self._log
        number = log.number(index)
        noted = log.groups(index)
        needed = 0
        handle = log.enter(index) if noted else 0
        while needed != noted and handle and handle // log.segment_size == number:
            bit = 1 << (log.tag & 7)
            if log.kind >= KIND_MESSAGE and not needed & bit and self._is_needed(handle):
                needed |= bit
            handle = log.step(handle)
        log.set_groups(index, needed)
        return needed

    def _is_needed(self, place: int) -> bool:
        log = self._log
        if is_pending(log.kind) or self._is_left(log.tag):
            return False  # is written again, or goes with its group
        if self._find_place(self._kept, place) >= 0:
            return False  # is written again, too
        if not self._is_settled(place):
            return True
        # What is about a message stays as long as that message: or it would be back.
        ref = self._ref(place)
        return ref // log.segment_size != place // log.segment_size and log.look(ref)

    def _is_settled(self, place: int) -> bool:
        """True for the record that was looked at last if nobody waits for it any more."""
        return place < max(self.settled_handle, self.settled[self._log.tag & 7])

    def _free_body(self) -> int:
        """A free row; if need be, the body of the oldest settled message goes for it."""
        row = self._find_row(self._bodies, 0)
        if row >= 0:
            return row
        oldest = 0
        for other in range(0, len(self._bodies), 8):
            place = get_u32_le(self._bodies, other + 4)
            free = not oldest or place < oldest
            free = free and self._log.look(place) and self._is_settled(place)
            if free and self._find_place(self._pending, place) < 0:
                oldest = place
                row = other
        if row >= 0:
            put_u32_le(self._bodies, row + 4, 0)
            self._sweep()
        return row if row >= 0 and not get_u32_le(self._bodies, row) else -1

    def bodies(self, group: int) -> int:
        """How many body files a group's messages have, but for those that may go."""
        count = 0
        for row in range(4, len(self._bodies), 8):
            place = get_u32_le(self._bodies, row)
            if self._log.look(place) and self._log.tag == group and not self._is_settled(place):
                count += 1
        return count

    def _rescue(self, index: int) -> int:
        """Write again what is current in a segment; OK or a code."""
        log = self._log
        number = log.number(index)
        handle = log.enter(index)
        code = OK
        while code >= 0 and handle and handle // log.segment_size == number:
            table = self._pending if is_pending(log.kind) else self._kept
            if handle == self._wake:
                code = self._again(handle, 0)
                self._wake = max(code, handle)
            elif log.kind == KIND_MEMBER:
                row = self._find_row(self._members, handle)
                if row >= 0:
                    code = self._again(handle, 0)
                    put_u32_le(self._members, row, max(code, handle))
            elif log.kind >= KIND_PENDING:
                row = self._find_place(table, handle)
                if row >= 0:
                    code = self._again(handle, get_u32_le(table, row))
                    put_u32_le(table, row + 4, max(code, handle))
                    self._move_body(handle, max(code, handle))
            handle = log.step(handle)
        return self.barrier() if code >= 0 else code

    def _again(self, place: int, ref: int) -> int:
        log = self._log
        if not log.look(place) or not log.verify(place, log.length):
            log.damaged += 1  # it has rotted: lost already, so it keeps nothing from going
            return place
        size = log.length - RECORD_EXTRA
        if not log.fits(size):
            code = self._rotate(log.segments_max, size)
            if code != OK:
                return code
        return self._rewrite(place, 0, ref)

    def _rewrite(
        self, place: int, change: int, ref: int, flags: int = 0, missing: int = -1
    ) -> int:  # fmt: skip
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
                put_u32_le(scratch, AT_REF - 4, ref)
                scratch[AT_FLAGS - 4] |= flags
                if missing >= 0:
                    put_u16_le(scratch, AT_SIZE - 4, missing)
            log.add(scratch, 0, size)
            at += size
        code = log.end()
        if code == OK and log.kind >= KIND_MESSAGE:
            log.pin(copied)
        return copied if code == OK else code

    def _room(self, size: int, segments: int, group: int) -> int:
        """Have room for a payload, at the cost of what is settled; a refusal is counted.

        `group`: whose quota counts, 0 for none.
        """
        log = self._log
        code = OK
        if group and self.quotas[group & 7] and not self._in_quota(size, group):
            code = E_CAPACITY
        turn = 0
        while code == OK and (log.count > segments or not log.fits(size)):
            code = self._rotate(segments, size)
            if code == E_CAPACITY:
                code = self.reclaim()
            turn += 1
            if turn > _TRIES:
                code = E_CAPACITY
        return code if code == OK else self._refuse(code)

    def _rotate(self, segments: int, size: int) -> int:
        """Begin a segment, with the members: no damage to another one takes them all."""
        log = self._log
        code = log.rotate(segments)
        for row in range(0, len(self._members), 8):
            place = get_u32_le(self._members, row)
            if code == OK and place and log.look(place) and log.fits(log.length + size):
                place = self._rewrite(place, 0, 0)
                if place > 0:
                    put_u32_le(self._members, row, place)
        return code

    # --- how many messages of our own are gone ---

    def dropped(self, group: int) -> int:
        """How many messages of our own in a group went to make room."""
        log = self._log
        row = self._member_row(group)
        place = get_u32_le(self._members, row)
        if self._members[row + 5] != group or not log.look(place) or log.tag != MEMBER_COUNTED:
            return 0
        log.read_into(place, log.length - 12, log.scratch, 0, 8)
        total = get_u32_le(log.scratch, 0)
        last = get_u32_le(log.scratch, 4)
        for index in range(log.count):
            if log.number(index) == last:
                return total - self._own(group, index)  # the power went before it did
        return total

    def _own(self, group: int, index: int) -> int:
        log = self._log
        number = log.number(index)
        count = 0
        handle = log.enter(index)
        while handle and handle // log.segment_size == number:
            if KIND_MESSAGE <= log.kind <= KIND_MESSAGE_FILE and log.tag == group:
                log.read_into(handle, AT_SOURCE, log.scratch, 0, 1)
                count += not log.scratch[0]
            handle = log.step(handle)
        return count

    def _count_own(self, index: int) -> int:
        """Count the messages of our own in a segment as gone, once; OK or a code."""
        log = self._log
        scratch = log.scratch
        members = self._members
        code = OK
        for row in range(0, len(members), 8):
            group = members[row + 5]
            own = 0
            if code == OK and members[row + 4] == MEMBER_GROUP and not members[row + 6]:
                own = self._own(group, index)
            if own and not log.fits(_COUNTED_SIZE_MAX):
                code = self._rotate(log.segments_max, _COUNTED_SIZE_MAX)
            total = self.dropped(group) + own
            place = get_u32_le(members, row)
            if code != OK or not own or not log.look(place):
                continue
            size = log.length - RECORD_EXTRA
            if log.tag == MEMBER_COUNTED:
                size -= 8
            log.read_into(place, 4, scratch, 0, size)
            put_u32_le(scratch, size, total)
            put_u32_le(scratch, size + 4, log.number(index))
            place = log.begin(KIND_MEMBER, MEMBER_COUNTED, size + 8)
            log.add(scratch, 0, size + 8)
            code = log.end()
            if code == OK:
                put_u32_le(members, row, place)
        return code

    # --- quotas ---

    def _in_quota(self, size: int, group: int) -> bool:
        """True if a group may have the segment that a payload of it goes into."""
        log = self._log
        bit = 1 << (group & 7)
        if log.fits(size) and log.groups(log.count - 1) & bit:
            return True
        held = 0
        for index in range(log.count):
            if log.groups(index) & bit and self._needed(index) & bit:
                held += 1
        return held < self.quotas[group & 7]

    def _refuse(self, code: int) -> int:
        self.refused += 1
        return code
