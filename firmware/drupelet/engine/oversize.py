"""Messages longer than a frame toward peers of MVDS, which know no segments (docs/SPEC.md 3.4).

Such a message gives up its slot, so that the small ones behind it pass. `Window.oversize` has the
first one that was passed over for each peer, and whether the peer has shown that it reads
segments. Until it has, it is asked: a SEGMENT with the last byte of that message leaves at the
steps of a back-off. Our own node answers it with a SEGMENT STATE, any other drops an unknown kind.
Then, or over a link with frames that are long enough, what was passed over goes after all: one
message at a time in the order of the log, which holds no more than one slot.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    FRAME_SIZE_MAX,
    ID_PREFIX_SIZE,
    ID_SIZE,
    SEGMENT_HEADER_SIZE,
)
from drupelet.base.memory import copy, put_u16
from drupelet.base.time_ms import epochs_since
from drupelet.engine.backoff import counted, interval_epochs
from drupelet.engine.long_bodies import KIND_SEGMENT
from drupelet.engine.members import SHARED
from drupelet.engine.states import HOLD, QUEUED, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.ports import LinkPort

# The most that a MESSAGE adds to a stored body: frame kind, tags of 3 bytes, lengths, group,
# timestamp, and 2 bytes for each of 8 parents. The least is CONTENT_HEADER_SIZE.
OVERHEAD_MAX = const(84)
# In a peer's row: how often it was asked stands above the epoch in which it was asked last.
_SENDS_SHIFT = const(16)


def reads_segments(link: "LinkPort") -> bool:
    """Whether the link's peer has shown that it reads segments."""
    rows = link.core.window.oversize
    return rows[len(rows) // 2 + link.peer] < 0


def prepare(link: "LinkPort", frame_size: int) -> bool:
    """Before a payload: take out of the slots what cannot go in `frame_size` bytes, and take up
    what was passed over and now can; whether anything waits for that."""
    core = link.core
    window = core.window
    if not window.oversize:
        return False  # there is no group of MVDS
    if link.visits:
        window.shows_segments(link.peer)  # bundles are read by our own nodes only
    reads = reads_segments(link)
    waiting = _first_waiting(link, frame_size)
    _take_up(link, waiting, reads, frame_size)
    size_max = (min(frame_size, FRAME_SIZE_MAX) if reads else frame_size) - CONTENT_HEADER_SIZE
    if window.queued(link.peer) and (waiting or not reads) and size_max < BODY_SIZE_MAX:
        slots = core.slots
        for slot in range(slots.count):
            cell = link.peer * slots.count + slot
            is_new = slots.states[cell] & (QUEUED | HOLD | REQUEST) == QUEUED
            is_new = is_new and not slots.send_counts[cell]
            is_new = is_new and core.store.load(slots.handles[slot]) == OK
            if is_new and core.store.size > size_max and link.sight(slot) == SHARED:
                pass_over(link, slot)
    return window.oversize[link.peer] > 0


def pass_over(link: "LinkPort", slot: int) -> None:
    """The message in `slot` cannot go to the peer: its slot is for others."""
    window = link.core.window
    handle = window.slots.handles[slot]
    first = window.oversize[link.peer]
    if not first or handle <= (~first if first < 0 else first):
        window.oversize[link.peer] = handle
    window.dirty = True
    state = window.slots.states[link.peer * window.slots.count + slot]
    window.set_state(slot, link.peer, state & ~(QUEUED | REQUEST))
    window.changed(link.peer)  # there may be room for what is behind it


def is_oversize(core: "Core", peer: int, handle: int, frame_size: int) -> bool:
    """Whether the peer (row) may lack this message since it is too long for a frame."""
    window = core.window
    group = window.look(handle)
    if group < 0 or window.members.visibility(group, peer) != SHARED or window.gave(peer, handle):
        return False
    fits = core.store.size + OVERHEAD_MAX <= min(frame_size, FRAME_SIZE_MAX)
    if fits or handle > window.cursors[peer]:
        return False  # behind the cursor it is not passed over any more
    slot = core.slots.find(core.store.id, 0)
    return slot < 0 or not core.slots.states[peer * core.slots.count + slot] & HOLD


def _first_waiting(link: "LinkPort", frame_size: int) -> int:
    """Move on to the first message that was passed over and still waits; 0: none does."""
    core = link.core
    window = core.window
    handle = before = window.oversize[link.peer]
    while handle and (handle < 0 or not is_oversize(core, link.peer, handle, frame_size)):
        handle = core.store.next(~handle if handle < 0 else handle)
        if handle > window.cursors[link.peer]:
            handle = 0
    if handle != before:
        window.oversize[link.peer] = handle
        window.dirty = True
    return handle


def acknowledged(link: "LinkPort", id: bytearray, at: int) -> None:
    """The peer holds a message: the first that waits, maybe, which needs no slot to be known."""
    window = link.core.window
    first = window.oversize[link.peer] if window.oversize else 0
    if first > 0 and link.core.store.is_id(first, id, at, ID_SIZE):
        window.oversize[link.peer] = ~first
        window.changed(link.peer)


def _take_up(link: "LinkPort", handle: int, reads: bool, frame_size: int) -> None:
    """Have the message that waits sent as if the peer had asked for it, if it can go."""
    core = link.core
    fits = handle and (reads or core.store.size + OVERHEAD_MAX <= frame_size)
    fits = fits and core.window.share_left(link.peer) > 0
    slot = core.window.fetch(handle, link.peer) if fits else -1
    if slot >= 0:
        state = core.slots.states[link.peer * core.slots.count + slot]
        if not state & HOLD:
            core.window.set_state(slot, link.peer, state | QUEUED | REQUEST)


def wait_epochs(link: "LinkPort") -> int:
    """Epochs until there may be something to do for what was passed over, at least 1; 0: never."""
    rows = link.core.window.oversize
    return max(_ask_wait(link), 1) if rows and rows[link.peer] else 0


def _ask_wait(link: "LinkPort") -> int:
    """Epochs until the peer is to be asked whether it reads segments; 0 or less: now."""
    rows = link.core.window.oversize
    asked = rows[len(rows) // 2 + link.peer]
    count = asked >> _SENDS_SHIFT
    wait = interval_epochs(count, False, False) * link.every if count > 0 else 0
    return wait - epochs_since(link.epoch, asked & 0xFFFF) if wait else 0


def ask_into(link: "LinkPort", frame: bytearray) -> int:
    """Write a SEGMENT of the last byte of the first message that waits; its size, 0: not due."""
    core = link.core
    rows = core.window.oversize
    handle = rows[link.peer]
    if reads_segments(link) or _ask_wait(link) > 0 or core.store.load(handle) != OK:
        return 0
    size = core.store.size
    if core.store.read_into(handle, size - 1, frame, SEGMENT_HEADER_SIZE, 1) != 1:
        return 0
    frame[0] = KIND_SEGMENT
    copy(frame, 1, core.store.id, 0, ID_PREFIX_SIZE)
    put_u16(frame, 9, CONTENT_HEADER_SIZE + size)
    put_u16(frame, 11, CONTENT_HEADER_SIZE + size - 1)
    row = len(rows) // 2 + link.peer
    rows[row] = counted(rows[row] >> _SENDS_SHIFT) << _SENDS_SHIFT | link.epoch
    core.firm = True  # the peer may have the rest, and take the message in
    return SEGMENT_HEADER_SIZE + 1
