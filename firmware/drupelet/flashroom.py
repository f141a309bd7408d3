"""Giving room back: what may go from a store when its log or its body files are full.

The oldest segment goes if every message in it is below `settled_handle`; members, the wake state
and pending messages in it are written again first. A segment that holds nothing but old wake
states goes at any time.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.flashlog import AT_FLAGS, AT_REF, KIND_MEMBER, KIND_MESSAGE, RECORD_EXTRA, RecordLog
from drupelet.flashtables import Tables, is_pending
from drupelet.limits import SCRATCH_SIZE
from drupelet.memory import get_u32_le, put_u32_le

_TRIES = const(4)

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.files import Files


class Room(Tables):
    """Tables that can be emptied of what is settled."""

    def __init__(
        self, files: "Files", log: RecordLog, pending_max: int, body_files_max: int,
        filter_size: int,
    ) -> None:  # fmt: skip
        Tables.__init__(self, files, log, pending_max, body_files_max, filter_size)
        self.settled_handle = 0  # the owner's: every message before it may go
        self.refused = 0

    def barrier(self) -> int:
        """Make everything that was put before survive a power cut; free when there is nothing."""
        return self._log.flush()

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

    def _free_body(self) -> int:
        """A free row; if need be, the body of the oldest settled message goes for it."""
        row = self._find_row(self._bodies, 0)
        if row >= 0:
            return row
        oldest = self.settled_handle
        for other in range(0, len(self._bodies), 8):
            place = get_u32_le(self._bodies, other + 4)
            if place < oldest and self._find_place(self._pending, place) < 0:
                oldest = place
                row = other
        if row >= 0:
            put_u32_le(self._bodies, row + 4, 0)
            self._sweep()
        return row if row >= 0 and not get_u32_le(self._bodies, row) else -1

    def _is_unsettled(self) -> bool:
        """True when the oldest segment holds a message that somebody still needs."""
        log = self._log
        number = log.number(0)
        handle = log.enter(0)
        while handle and handle // log.segment_size == number:
            wanted = log.kind >= KIND_MESSAGE and not is_pending(log.kind)
            if wanted and handle >= self.settled_handle and not self._is_left(log.tag):
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
                code = self._again(handle, 0)
                self._wake = max(code, handle)
            elif log.kind == KIND_MEMBER:
                row = self._find_row(self._members, handle)
                if row >= 0:
                    code = self._again(handle, 0)
                    put_u32_le(self._members, row, max(code, handle))
            elif is_pending(log.kind):
                row = self._find_place(self._pending, handle)
                if row >= 0:
                    code = self._again(handle, get_u32_le(self._pending, row))
                    put_u32_le(self._pending, row + 4, max(code, handle))
                    self._move_body(handle, max(code, handle))
            code = min(code, OK)
            handle = log.step(handle)
        return self.barrier() if code == OK else code

    def _again(self, place: int, ref: int) -> int:
        log = self._log
        if not log.look(place) or not log.verify(place, log.length):
            log.damaged += 1  # it has rotted: lost already, so it keeps nothing from going
            return place
        code = log.room(log.length - RECORD_EXTRA, log.segments_max)
        return self._rewrite(place, 0, ref) if code == OK else code

    def _rewrite(self, place: int, change: int, ref: int, flags: int = 0) -> int:
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
