"""Recover a store at boot: read its salt, find its segments, build all tables (docs/SPEC.md 5.5).

One forward scan of each log; nothing is written. Also finds a member number to use again once all
numbers have been given. Boards unload this module after the boot, since code takes heap.
"""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import ID_PREFIX_SIZE, META_SEGMENTS, WAKE_STATE_SIZE_MAX
from drupelet.base.memory import equal, get_u16_le, put_u32_le
from drupelet.store.departed_ids import DEPARTED_ROW, DepartedIds
from drupelet.store.index import Index
from drupelet.store.log import (
    AT_SOURCE,
    CLOSED,
    CUT,
    FLUSHED,
    HEAD_SIZE,
    KIND_MESSAGE,
    MAGIC,
    RECORD_EXTRA,
    ROW_FLAGS,
    SEGMENT_ROW,
    VERSION,
    Log,
)
from drupelet.store.meta import MEMBER_GROUP, Meta

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StoreParts


def recover(
    store: "StoreParts", log: Log, index: Index, meta: Meta, departed: DepartedIds, salt: int
) -> int:
    """Recover all logs; OK, E_CAPACITY: too many files, E_STORAGE: the flash could not be read.

    `salt`: for a log that is created now.
    """
    names = _begin(store, salt)
    code = _find_segments(departed.log, names) or _find_segments(meta.log, names)
    code = code or _find_segments(log, names)
    if code == OK:
        departed.fill_filter()
        _resume(departed.log)
        _recover_meta(store, meta)
        if log.is_old and not meta.wake:
            from drupelet.store.migration import migrate

            code = migrate(store, log, meta)
    if code != OK:
        return code
    for name in names:
        if name.endswith(".BOD") and name[1:8].isdigit():
            number = int(name[1:8])
            index.set_row(index.bodies, number, 0)
            index.body_newest = max(index.body_newest, number)
        if name.endswith(".DSC") and name[1:-4].isdigit():
            number = int(name[1:-4])
            if not meta.is_member(MEMBER_GROUP, number):
                store.files.remove(name)  # left over by a power cut
    index.build()
    _resume(log)
    index.sweep()
    return OK


def _begin(store: "StoreParts", new_salt: int) -> "list[str]":
    """Read the salt from its file's name, or begin a log with a new one; return the files."""
    files = store.files
    names = files.names()
    is_new = True
    for name in names:
        is_new = is_new and not name.endswith(".LOG")
    salt = 0
    for name in names:
        if is_new and new_salt and name[-4:] in (".IDS", ".SLT", ".MET"):
            files.remove(name)  # of a log that was removed
        elif name.endswith(".SLT"):
            salt = int(name[:-4], 16)
    if is_new and not salt and new_salt:
        salt = new_salt
        files.close(files.open("%08X.SLT" % salt, True))
    put_u32_le(store.salt, 0, salt)
    return files.names()


def _recover_meta(store: "StoreParts", meta: Meta) -> None:
    log = meta.log
    meta.apply_from(0)
    last = log.count - 1
    if last >= META_SEGMENTS and meta.wake // log.segment_size != log.numbers[last]:
        # The copy is incomplete, so the current records are in the segments before it.
        log.abandon()
        meta.apply_from(0)
    _resume(log)
    if log.look(meta.wake):
        store.saved_size = min(log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX)
        log.read_into(meta.wake, 4, store.saved, 0, store.saved_size)


def _find_segments(log: Log, names: "list[str]") -> int:
    """Find the segments of a log; OK, E_CAPACITY: more than `segments_max`, or E_STORAGE.

    The caller then steps through all records, which checks them, and calls `_resume`.
    """
    numbers = []
    for name in names:
        if name.endswith(log.ending) and name[1:8].isdigit():
            numbers.append(int(name[1:8]))
    numbers.sort()
    if len(numbers) > log.segments_max:
        return E_CAPACITY
    for number in numbers:
        log.add_row(number)
    for index in range(log.count - 1, -1, -1):
        if not _read_head(log, index):
            return E_STORAGE
    return OK


def _read_head(log: Log, index: int) -> bool:
    """Check the HEAD of a segment, newest first: it says how long the segment before it is.

    False if the flash cannot say how long this segment is: it must not be taken for empty.
    """
    number = log.numbers[index]
    scratch = log.scratch
    flags = index * SEGMENT_ROW + ROW_FLAGS
    size = log.files.size(log.name(number))
    end = log.end_of(index)  # from the next HEAD; 0: unknown
    if 0 < end < size:
        log.rows[flags] |= CUT
    log.set_end(index, max(0, min(size, end or log.segment_size)))
    if size <= 0:
        return size == 0
    place = number * log.segment_size
    is_whole = log.verify(place, HEAD_SIZE)
    version = log.tag & 0x3F
    log.read_into(place, 4, scratch, 0, 8)
    is_whole = is_whole and equal(scratch, 0, MAGIC, 0, 4) and scratch[4] == number & 0xFF
    if not is_whole or not 0 < version <= VERSION:
        log.note_damage(index)
        if is_whole or not log.was_flushed(index, HEAD_SIZE):
            log.set_end(index, 0)
        return True
    log.is_old = log.is_old or version < VERSION
    length = get_u16_le(scratch, 6) if version == VERSION else 0
    closes = length or log.tag & FLUSHED  # version 3: the segment before it was flushed
    if closes and index and log.numbers[index - 1] == number - 1:
        log.rows[flags - SEGMENT_ROW] |= CLOSED
        log.set_end(index - 1, length)
    if index == log.count - 1:
        log.is_torn = version != VERSION  # append nothing to a segment of an earlier version
    return True


def _resume(log: Log) -> None:
    """After the scan: continue the last segment, or close it if it is damaged."""
    log.is_scanned = True
    index = log.count - 1
    if index >= 0:
        log.is_torn = log.is_torn or log.rows[index * SEGMENT_ROW + ROW_FLAGS] != 0
        log.release(log.numbers[index])
        log.fd = log.files.open(log.name(log.numbers[index]), True)
        log.dirty = log.fd >= 0  # it may have never been flushed


def free_number(kind: int, log: Log, meta: Meta, departed: DepartedIds) -> int:
    """Return the number of a dismissed member that no record has any more; 0: there is none.

    Needed once all numbers, or all rows, are in use.
    """
    for row in range(0, len(meta.rows), 8):
        number = meta.rows[row + 5]
        is_dismissed = meta.rows[row + 4] == kind and meta.rows[row + 6]
        if is_dismissed and not _is_carried(kind, number, log, departed):
            return number
    return 0


def _is_carried(kind: int, number: int, log: Log, departed: DepartedIds) -> bool:
    """Return True if a stored message or a departed id has the number of a member."""
    place = 0
    while place := log.step(place):
        number_in_record = log.tag if kind == MEMBER_GROUP else log.head[AT_SOURCE]
        if log.kind >= KIND_MESSAGE and number_in_record == number:
            return True
    while kind == MEMBER_GROUP and (place := departed.log.step(place)):
        for row in range(departed.read(place)):
            if departed.log.scratch[row * DEPARTED_ROW + ID_PREFIX_SIZE] == number:
                return True
    return False
