"""Convert a log of version 3 or older, once, at the first boot with this version.

In these versions, members and the wake state are between the messages, and a HEAD says only that
an append to the segment before it failed: the last record there may have been written again.
Handles must stay valid, so the segments are kept, except for such a record, which is cut off. The
wake state is written last: a meta log without one is incomplete, and the next boot migrates again.

    MEMBER of version 3   tag 1, 2 or 3 | number u8, key; tag 3, a group: after the key the number
                          of our messages that were removed u32, the last removed segment u32
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import ID_SIZE, SCRATCH_SIZE, WAKE_STATE_SIZE_MAX
from drupelet.base.memory import fill, get_u32_le
from drupelet.store.log import (
    AT_ID,
    DAMAGED,
    HEAD_SIZE,
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_TOMBSTONE,
    KIND_WAKE,
    RECORD_EXTRA,
    ROW_FLAGS,
    SEGMENT_ROW,
    Log,
)
from drupelet.store.meta import MEMBER_GROUP, Meta

_GIVEN_UP = const(0x40)  # in the tag of a HEAD: an append to the segment before it failed
_COUNTED = const(3)  # the tag of a group's MEMBER with a count
_TEMPORARY = "PART.TMP"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.files import Files
    from drupelet.store.ports import StoreParts


def migrate(store: "StoreParts", log: Log, meta: Meta) -> int:
    """Cut repeated records off, then write the meta log; OK, or a code: the next boot retries."""
    damaged = store.damaged  # the scan that follows counts it again
    code = OK
    for index in range(log.count - 1, 0, -1):
        code = code or _close(log, index)
    code = code or _copy_members(store, log, meta)
    store.damaged = damaged
    return code


def _close(log: Log, index: int) -> int:
    """Cut the last record off the segment before this one if it was written again here."""
    place = log.numbers[index] * log.segment_size
    scratch = log.scratch
    is_adjacent = log.numbers[index - 1] == log.numbers[index] - 1
    if not is_adjacent or log.rows[index * SEGMENT_ROW + ROW_FLAGS] & DAMAGED:
        return OK
    if log.read_into(place, 0, scratch, 0, HEAD_SIZE) != HEAD_SIZE or not scratch[3] & _GIVEN_UP:
        return OK
    last = 0
    id = bytearray(ID_SIZE)
    handle = log.numbers[index - 1] * log.segment_size
    while handle := log.step(handle):
        is_message = KIND_MESSAGE <= log.kind < KIND_TOMBSTONE
        if handle < place:
            last = handle if is_message else 0
            log.read_into(handle, AT_ID, id, 0, ID_SIZE)
        elif last and is_message:
            log.read_into(handle, AT_ID, scratch, 0, ID_SIZE)
            if scratch[:ID_SIZE] == id:
                return _cut(log, index - 1, last % log.segment_size)
    return OK


def _cut(log: Log, index: int, size: int) -> int:
    name = log.name(log.numbers[index])
    log.release(log.numbers[index])
    code = _cut_file(log.files, name, size, log.scratch)
    if code == OK:
        log.set_end(index, size)
    return code


def _cut_file(files: "Files", name: str, size: int, scratch: bytearray) -> int:
    """Cut a closed file to `size` bytes, by copying these to a new one; return OK or a code."""
    files.remove(_TEMPORARY)
    source = files.open(name, False)
    target = files.open(_TEMPORARY, True)
    code = OK if source >= 0 and target >= 0 else E_STORAGE
    at = 0
    while code == OK and at < size:
        count = min(SCRATCH_SIZE, size - at)
        if files.read_into(source, at, scratch, 0, count) != count:
            code = E_STORAGE
        code = code or files.append(target, scratch, 0, count)
        at += count
    code = code or files.flush(target)
    if source >= 0:
        files.close(source)
    if target >= 0:
        files.close(target)
    return code or files.rename(_TEMPORARY, name)


def _copy_members(store: "StoreParts", log: Log, meta: Meta) -> int:
    """Write the newest record of each member, then of the wake state, to a new meta log."""
    for _ in range(meta.log.count):
        meta.log.abandon()  # left incomplete by a power cut
    fill(meta.rows, 0, len(meta.rows), 0)
    newest: "dict[tuple[int, int], int]" = {}
    wake = 0
    handle = 0
    while handle := log.step(handle):
        if log.kind == KIND_MEMBER:
            log.read_into(handle, 4, log.scratch, 0, 1)
            kind = MEMBER_GROUP if log.tag == _COUNTED else log.tag
            newest[kind, log.scratch[0]] = handle
        elif log.kind == KIND_WAKE:
            wake = handle
    code = E_STORAGE if meta.log.count else meta.log.rotate(meta.log.segments_max)
    for kind, number in newest:
        code = code or _copy_member(log, meta, newest[kind, number], kind, number)
    size = min(log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX) if log.look(wake) else 0
    store.saved_size = size
    log.read_into(wake, 4, store.saved, 0, size)
    return code or meta.put(0, 0, store.saved, 0, size) or meta.log.flush()


def _copy_member(log: Log, meta: Meta, place: int, kind: int, number: int) -> int:
    log.look(place)
    payload = bytearray(log.length - RECORD_EXTRA)
    size = len(payload) - 9 if log.tag == _COUNTED else len(payload) - 1
    log.read_into(place, 4, payload, 0, len(payload))
    code = meta.put(kind, number, payload, 1, size)
    if code == OK and log.tag == _COUNTED:
        at = 1 + size
        code = meta.set_count(number, get_u32_le(payload, at), get_u32_le(payload, at + 4))
    return code
