"""Messages longer than a frame toward peers of MVDS, which know no segments (docs/SPEC.md 3.4).

Such a message gives up its row, so that the small ones behind it pass. `Core.oversize` has the
first one that was passed over for each peer, and whether the peer has shown that it reads
segments. Until it has, it is asked: a SEGMENT with the last byte of that message leaves at the
steps of a back-off. Our own node answers it with a SEGMENT STATE, any other drops an unknown kind.
Then, or over a link with frames that are long enough, what was passed over goes after all: one
message at a time in the order of the log, which takes no more than one row.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    FRAME_SIZE_MAX,
    ID_PREFIX_SIZE,
    SEGMENT_HEADER_SIZE,
)
from drupelet.base.memory import copy, put_u16
from drupelet.base.time_ms import epochs_since
from drupelet.engine.backoff import counted, interval_epochs
from drupelet.engine.long_bodies import KIND_SEGMENT
from drupelet.engine.members import SHARED
from drupelet.engine.states import HOLD, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange

# The most that a MESSAGE adds to a stored body: frame kind, tags of 3 bytes, lengths, group,
# timestamp, and 2 bytes for each of 8 parents. The least is CONTENT_HEADER_SIZE.
OVERHEAD_MAX = const(84)
# In a peer's row: how often it was asked stands above the epoch in which it was asked last.
_SENDS_SHIFT = const(16)


def reads_segments(core: "Core", peer: int) -> bool:
    """Whether a peer (row) has shown that it reads segments."""
    rows = core.oversize
    return core.oversize[len(rows) // 2 + peer] < 0


def prepare(exchange: "Exchange", frame_size: int) -> bool:
    """Before a payload: take out of the rows what cannot go in `frame_size` bytes, and take up
    what was passed over and now can; whether anything waits for that."""
    core = exchange.core
    peer = exchange.peer
    outbox = exchange.outbox
    if not core.oversize:
        return False  # there is no group of MVDS
    if exchange.visits:
        core.note_reads_segments(peer)  # bundles are read by our own nodes only
    reads = reads_segments(core, peer)
    waiting = _first_waiting(exchange, frame_size)
    outbox.reserved_rows = 1 if waiting and reads else 0
    _take_up(exchange, waiting, reads, frame_size)
    size_max = (min(frame_size, FRAME_SIZE_MAX) if reads else frame_size) - CONTENT_HEADER_SIZE
    if outbox.open_count and (waiting or not reads) and size_max < BODY_SIZE_MAX:
        for row in range(outbox.count - 1, -1, -1):
            is_new = not outbox.state(row) & (HOLD | REQUEST) and not outbox.sends(row)
            is_new = is_new and core.store.load(outbox.handles[row]) == OK
            is_new = is_new and core.store.size > size_max
            if is_new and exchange.sees(outbox.group(row)) == SHARED:
                pass_over(exchange, row)
    return core.oversize[peer] > 0


def pass_over(exchange: "Exchange", row: int) -> None:
    """The message in `row` cannot go to the peer: its row is for others."""
    core = exchange.core
    handle = exchange.outbox.handles[row]
    first = core.oversize[exchange.peer]
    if not first or handle <= (~first if first < 0 else first):
        core.oversize[exchange.peer] = handle
    exchange.outbox.drop(row)


def is_oversize(core: "Core", peer: int, handle: int, frame_size: int) -> bool:
    """Whether the peer (row) may lack this message since it is too long for a frame."""
    outbox = core.outboxes[peer]
    store = core.store
    if outbox.look(handle) < 0 or outbox.is_source(store.source, handle):
        return False
    fits = store.size + OVERHEAD_MAX <= min(frame_size, FRAME_SIZE_MAX)
    if fits or handle > outbox.cursor:
        return False  # after the cursor: the walk comes to it again
    row = outbox.row_of(handle)
    return row < 0 or outbox.is_open(row)


def _first_waiting(exchange: "Exchange", frame_size: int) -> int:
    """Move on to the first message that was passed over and still waits; 0: none does."""
    core = exchange.core
    peer = exchange.peer
    handle = before = core.oversize[peer]
    while handle and (handle < 0 or not is_oversize(core, peer, handle, frame_size)):
        handle = core.store.next(~handle if handle < 0 else handle)
        if handle > exchange.outbox.cursor:
            handle = 0
    if handle != before:
        core.oversize[peer] = handle
        core.is_dirty = True
    return handle


def _take_up(exchange: "Exchange", handle: int, reads: bool, frame_size: int) -> None:
    """Have the message that waits sent as if the peer had asked for it, if it can go."""
    outbox = exchange.outbox
    fits = handle and (reads or exchange.core.store.size + OVERHEAD_MAX <= frame_size)
    row = outbox.want(handle) if fits else -1
    if row >= 0 and outbox.is_open(row):
        outbox.mark(row, REQUEST)


def wait_epochs(exchange: "Exchange") -> int:
    """Epochs until there may be something to do for what was passed over, at least 1; 0: never."""
    rows = exchange.core.oversize
    return max(_ask_wait(exchange), 1) if rows and rows[exchange.peer] else 0


def _ask_wait(exchange: "Exchange") -> int:
    """Epochs until the peer is to be asked whether it reads segments; 0 or less: now."""
    rows = exchange.core.oversize
    asked = rows[len(rows) // 2 + exchange.peer]
    count = asked >> _SENDS_SHIFT
    wait = interval_epochs(count, False, False) * exchange.pace.every if count > 0 else 0
    return wait - epochs_since(exchange.epoch, asked & 0xFFFF) if wait else 0


def ask_into(exchange: "Exchange", frame: bytearray) -> int:
    """Write a SEGMENT of the last byte of the first message that waits; its size, 0: not due."""
    core = exchange.core
    peer = exchange.peer
    rows = core.oversize
    handle = rows[peer]
    if reads_segments(core, peer) or _ask_wait(exchange) > 0 or core.store.load(handle) != OK:
        return 0
    size = core.store.size
    if core.store.read_into(handle, size - 1, frame, SEGMENT_HEADER_SIZE, 1) != 1:
        return 0
    frame[0] = KIND_SEGMENT
    copy(frame, 1, core.store.id, 0, ID_PREFIX_SIZE)
    put_u16(frame, 9, CONTENT_HEADER_SIZE + size)
    put_u16(frame, 11, CONTENT_HEADER_SIZE + size - 1)
    row = len(rows) // 2 + peer
    rows[row] = counted(rows[row] >> _SENDS_SHIFT) << _SENDS_SHIFT | exchange.epoch
    exchange.needs_barrier = True  # the peer may have the rest, and take the message in
    return SEGMENT_HEADER_SIZE + 1
