"""What a boot makes of the files of a store: its salt, its segments, then all tables (docs/SPEC.md
5.5). One forward scan of each log; no record is written. And numbers of members, once all have
been given.

Boards let this go after the boot: code is heap.
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
    """OK, E_CAPACITY for too many files, or E_STORAGE when the flash does not say what it has.

    `salt`: of a log that is begun with this.
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
                store.files.remove(name)  # a power cut left it
    index.build()
    _resume(log)
    index.sweep()
    return OK


def _begin(store: "StoreParts", new_salt: int) -> "list[str]":
    """Take the salt from the name of its file, or begin a log with a new one; the files."""
    files = store.files
    names = files.names()
    begins = True
    for name in names:
        begins = begins and not name.endswith(".LOG")
    salt = 0
    for name in names:
        if begins and new_salt and name[-4:] in (".IDS", ".SLT", ".MET"):
            files.remove(name)  # of a log that is gone
        elif name.endswith(".SLT"):
            salt = int(name[:-4], 16)
    if begins and not salt and new_salt:
        salt = new_salt
        files.close(files.open("%08X.SLT" % salt, True))
    put_u32_le(store.salt, 0, salt)
    return files.names()


def _recover_meta(store: "StoreParts", meta: Meta) -> None:
    log = meta.log
    meta.apply_from(0)
    last = log.count - 1
    if last >= META_SEGMENTS and meta.wake // log.segment_size != log.numbers[last]:
        # A cut ended the copy, so what is current is in the segments before it.
        log.abandon()
        meta.apply_from(0)
    _resume(log)
    if log.look(meta.wake):
        store.saved_size = min(log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX)
        log.read_into(meta.wake, 4, store.saved, 0, store.saved_size)


def _find_segments(log: Log, names: "list[str]") -> int:
    """OK, E_CAPACITY for more than segments_max, or E_STORAGE. Then `step` through all of them,
    which checks every record, and `_resume`.
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
    """Check a HEAD, the newest first: it says how long the segment before it is.

    False when the flash does not say how long this one is: what is there is not to go.
    """
    number = log.numbers[index]
    scratch = log.scratch
    flags = index * SEGMENT_ROW + ROW_FLAGS
    size = log.files.size(log.name(number))
    end = log.end_of(index)  # as the next HEAD says; 0: it does not
    if 0 < end < size:
        log.rows[flags] |= CUT
    log.set_end(index, max(0, min(size, end or log.segment_size)))
    if size <= 0:
        return size == 0
    handle = number * log.segment_size
    is_whole = log.verify(handle, HEAD_SIZE)
    version = log.tag & 0x3F
    log.read_into(handle, 4, scratch, 0, 8)
    is_whole = is_whole and equal(scratch, 0, MAGIC, 0, 4) and scratch[4] == number & 0xFF
    if not is_whole or not 0 < version <= VERSION:
        log.note_damage(index)
        if is_whole or not log.was_flushed(index, HEAD_SIZE):
            log.set_end(index, 0)
        return True
    log.is_old = log.is_old or version < VERSION
    length = get_u16_le(scratch, 6) if version == VERSION else 0
    closes = length or log.tag & FLUSHED  # version 3: it was flushed to its end
    if closes and index and log.numbers[index - 1] == number - 1:
        log.rows[flags - SEGMENT_ROW] |= CLOSED
        log.set_end(index - 1, length)
    if index == log.count - 1:
        log.is_torn = version != VERSION  # nothing new goes behind what is older
    return True


def _resume(log: Log) -> None:
    """Once all is scanned: go on in the last segment, or close it if it is not whole."""
    log.is_scanned = True
    index = log.count - 1
    if index >= 0:
        log.is_torn = log.is_torn or log.rows[index * SEGMENT_ROW + ROW_FLAGS] != 0
        log.release(log.numbers[index])
        log.fd = log.files.open(log.name(log.numbers[index]), True)
        log.dirty = log.fd >= 0  # it may never have been flushed


def free_number(kind: int, log: Log, meta: Meta, departed: DepartedIds) -> int:
    """The number of a member that was dismissed, and that no record carries; 0 for none.

    Needed once all numbers, or rows, have been given.
    """
    for row in range(0, len(meta.rows), 8):
        number = meta.rows[row + 5]
        is_dismissed = meta.rows[row + 4] == kind and meta.rows[row + 6]
        if is_dismissed and not _is_carried(kind, number, log, departed):
            return number
    return 0


def _is_carried(kind: int, number: int, log: Log, departed: DepartedIds) -> bool:
    """True if a message that is here, or one that went, carries the number of a member."""
    place = 0
    while place := log.step(place):
        carried = log.tag if kind == MEMBER_GROUP else log.head[AT_SOURCE]
        if log.kind >= KIND_MESSAGE and carried == number:
            return True
    while kind == MEMBER_GROUP and (place := departed.log.step(place)):
        for row in range(departed.read(place)):
            if departed.log.scratch[row * DEPARTED_ROW + ID_PREFIX_SIZE] == number:
                return True
    return False
