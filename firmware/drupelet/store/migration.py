"""Take over a log of version 3 or older at the first boot with this program; never loaded again.

There members and the wake state stand between the messages, and a HEAD says only that an append to
the segment before it had failed: the last record of that may be there a second time. Handles must
stay, so segments stay as they are, but for a HEAD that gets a length. The wake state is written
last: without one the meta log is not complete, and the next boot does all this again.

    MEMBER of version 3   tag 1, 2 or 3 | number u8, key; tag 3, a group: behind the key how many
                          of our messages are gone u32, segment that went last u32
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import ID_SIZE, SCRATCH_SIZE, WAKE_STATE_SIZE_MAX
from drupelet.base.memory import crc32_into, fill, get_u32_le, put_u16_le
from drupelet.store.log import (
    AT_ID,
    CUT,
    DAMAGED,
    HEAD_SIZE,
    KIND_MEMBER,
    KIND_MESSAGE,
    KIND_TOMBSTONE,
    KIND_WAKE,
    RECORD_EXTRA,
    ROW_FLAGS,
    SEGMENT_ROW,
    VERSION,
    Log,
)
from drupelet.store.meta import MEMBER_GROUP, Meta

_GIVEN_UP = const(0x40)  # in the tag of a HEAD: an append to the segment before it had failed
_COUNTED = const(3)  # the tag of a group's MEMBER with a count
_TEMPORARY = "HEAD.TMP"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import Owner


def migrate(store: "Owner", log: Log, meta: Meta) -> int:
    """Close what had failed, then make the meta log; OK, or a code: the next boot tries again."""
    damaged = store.damaged  # the scan that follows counts it
    log.files.remove(_TEMPORARY)
    code = OK
    for index in range(log.count - 1, 0, -1):
        if code == OK:
            code = _close(log, index)
    code = code or _copy_members(log, meta)
    store.damaged = damaged
    return code


def _close(log: Log, index: int) -> int:
    """End the segment before this one where its last record begins, if that came again."""
    place = log.number(index) * log.segment_size
    scratch = log.scratch
    adjacent = log.number(index - 1) == log.number(index) - 1
    if not adjacent or log.rows[index * SEGMENT_ROW + ROW_FLAGS] & DAMAGED:
        return OK
    if log.read_into(place, 0, scratch, 0, HEAD_SIZE) != HEAD_SIZE or not scratch[3] & _GIVEN_UP:
        return OK
    last = 0
    id = bytearray(ID_SIZE)
    handle = log.enter(index - 1)
    while handle:
        entered = KIND_MESSAGE <= log.kind < KIND_TOMBSTONE
        if handle < place:
            last = handle if entered else 0
            log.read_into(handle, AT_ID, id, 0, ID_SIZE)
        elif last and entered:
            log.read_into(handle, AT_ID, scratch, 0, ID_SIZE)
            if scratch[:ID_SIZE] == id:
                return _set_length(log, index, last % log.segment_size)
        handle = log.step(handle)
    return OK


def _set_length(log: Log, index: int, length: int) -> int:
    """Write a segment again with a HEAD that says how long the one before it is."""
    files = log.files
    number = log.number(index)
    log.release(number)
    head = bytearray(HEAD_SIZE)
    source = files.open(log.name(number), False)
    target = files.open(_TEMPORARY, True)
    good = source >= 0 and target >= 0 and files.read_into(source, 0, head, 0, 8) == 8
    head[3] = VERSION
    put_u16_le(head, 8, number & 0xFFFF)
    put_u16_le(head, 10, length)
    crc32_into(head, 12, head, 0, 12, True)
    code = files.append(target, head, 0, HEAD_SIZE) if good else E_STORAGE
    at = HEAD_SIZE
    size = 1
    while code == OK and size > 0:
        size = files.read_into(source, at, log.scratch, 0, SCRATCH_SIZE)
        code = files.append(target, log.scratch, 0, size) if size > 0 else min(size, OK)
        at += size
    code = code or files.flush(target)
    for fd in (source, target):
        if fd >= 0:
            files.close(fd)
    code = code or files.rename(_TEMPORARY, log.name(number))
    if code == OK:
        log.set_end(index - 1, length)
        log.rows[(index - 1) * SEGMENT_ROW + ROW_FLAGS] |= CUT
    return code


def _copy_members(log: Log, meta: Meta) -> int:
    """Write the newest record of each member, and then of the wake state, into a new meta log."""
    for _ in range(meta.log.count):
        meta.log.abandon()  # a power cut ended it
    fill(meta.rows, 0, len(meta.rows), 0)
    newest: "dict[tuple[int, int], int]" = {}
    wake = 0
    handle = log.step(0)
    while handle:
        if log.kind == KIND_MEMBER:
            log.read_into(handle, 4, log.scratch, 0, 1)
            kind = MEMBER_GROUP if log.tag == _COUNTED else log.tag
            newest[kind, log.scratch[0]] = handle
        elif log.kind == KIND_WAKE:
            wake = handle
        handle = log.step(handle)
    code = E_STORAGE if meta.log.count else meta.log.rotate(meta.log.segments_max)
    for kind, number in newest:
        code = code or _copy_member(log, meta, newest[kind, number], kind, number)
    size = min(log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX) if log.look(wake) else 0
    log.read_into(wake, 4, meta.state, 0, size)
    return code or meta.save(meta.state, size) or meta.log.flush()


def _copy_member(log: Log, meta: Meta, place: int, kind: int, number: int) -> int:
    log.look(place)
    payload = bytearray(log.length - RECORD_EXTRA)
    size = len(payload) - 9 if log.tag == _COUNTED else len(payload) - 1
    log.read_into(place, 4, payload, 0, len(payload))
    code = meta.put_member(kind, number, payload, 1, size)
    if code == OK and log.tag == _COUNTED:
        at = 1 + size
        code = meta.set_count(number, get_u32_le(payload, at), get_u32_le(payload, at + 4))
    return code
