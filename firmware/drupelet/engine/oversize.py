"""Messages longer than a frame toward peers of MVDS, which know no segments (docs/SPEC.md 3.4).

Such a message gives up its row, so that the small ones behind it pass. `PassedOver` has the first
one for each peer, and whether the peer has shown that it reads segments. Until it has, it is
asked: a SEGMENT with the last byte of that message leaves at the steps of a back-off. Our own node
answers it with a SEGMENT STATE, any other drops an unknown kind. Then, or over a link with frames
that are long enough, what was passed over goes after all: one message at a time in the order of
the log, which takes no more than one row.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    FRAME_SIZE_MAX,
    ID_PREFIX_SIZE,
    OVERSIZE_ASKS_MAX,
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
    from drupelet.engine.pace import Pace

# The most that a MESSAGE adds to a stored body: frame kind, tags of 3 bytes, lengths, group,
# timestamp, and 2 bytes for each of 8 parents. The least is CONTENT_HEADER_SIZE.
OVERHEAD_MAX = const(84)
_READS_SEGMENTS = const(-1)


class PassedOver:
    """By peer (row): which message was passed over first, and whether the peer reads segments.

    `firsts`: its handle; 0: none was; below 0: ~ of it, for the peer holds it by now, and what is
    behind it has not been looked at.
    """

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.firsts = [0] * core.members.peers_max
        # How often the peer was asked whether it reads segments, _READS_SEGMENTS: it does; and in
        # which epoch last.
        self._asks = [0] * core.members.peers_max
        self._asked_epochs = [0] * core.members.peers_max
        # How many of the questions the peer did not answer although it was heard since.
        self._ignored = bytearray(core.members.peers_max)

    def add(self, peer: int, handle: int) -> None:
        """A message cannot go to a peer; the first one counts."""
        first = self.firsts[peer]
        if not first or handle <= (~first if first < 0 else first):
            self.firsts[peer] = handle

    def move(self, peer: int, handle: int) -> None:
        """What waits for a peer begins at a handle; 0: nothing waits."""
        if handle != self.firsts[peer]:
            self.firsts[peer] = handle
            self._core.is_dirty = True

    def begin(self, peer: int) -> int:
        """The handle from which on messages may wait for a peer; 0: none does. If the first one is
        held, the next one of the log."""
        first = self.firsts[peer]
        return self._core.store.next(~first) if first < 0 else first

    def note_held(self, peer: int, handle: int, is_ack: bool) -> None:
        """A peer holds a message: the first that was passed over, maybe, which needs no row to be
        known. If the peer acknowledged it, that answers the question, and the next one goes now.
        """
        if self.firsts[peer] == handle:
            self.firsts[peer] = ~handle
            if is_ack and self._asks[peer] > 0:
                self._asks[peer] = self._ignored[peer] = 0
            self._core.outboxes[peer].changes += 1
            self._core.is_dirty = True

    def reads_segments(self, peer: int) -> bool:
        """Whether a peer has shown that it reads segments."""
        return self._asks[peer] == _READS_SEGMENTS

    def note_reads_segments(self, peer: int) -> None:
        """A peer reads segments: what is too long for a frame may go to it in pieces."""
        if not self.reads_segments(peer):
            self._asks[peer] = _READS_SEGMENTS
            self._ignored[peer] = 0
            self._core.outboxes[peer].changes += 1

    def needed_from(self, peer: int) -> int:
        """The handle from which on the log keeps what was passed over; 0: nothing of it, or for a
        peer that was there so often and never showed that it reads segments."""
        first = self.firsts[peer] if self._ignored[peer] < OVERSIZE_ASKS_MAX else 0
        return ~first if first < 0 else first

    def lacks(self, peer: int, handle: int) -> bool:
        """Whether a peer may lack a message, behind which the cursor is, since it was passed over.
        Overwrites what the store has loaded."""
        first = self.firsts[peer]
        is_behind = handle > ~first if first < 0 else 0 < first <= handle
        return is_behind and is_oversize(self._core, peer, handle, FRAME_SIZE_MAX)

    def forget(self, peer: int) -> None:
        """The peer was removed."""
        self.firsts[peer] = self._asks[peer] = self._ignored[peer] = 0

    def ask_wait(self, peer: int, epoch: int, every: int) -> int:
        """Epochs until a peer is to be asked whether it reads segments; 0 or less: now."""
        asks = self._asks[peer]
        if asks <= 0:
            return 0
        waited = epochs_since(epoch, self._asked_epochs[peer])
        return interval_epochs(asks, False, False) * every - waited

    def note_asked(self, peer: int, epoch: int, pace: "Pace") -> None:
        """A peer is asked, maybe again; one that is away could not answer."""
        if self._asks[peer] and pace.is_heard_since(self._asked_epochs[peer]):
            self._ignored[peer] = min(self._ignored[peer] + 1, OVERSIZE_ASKS_MAX)
        self._asks[peer] = counted(self._asks[peer])
        self._asked_epochs[peer] = epoch


def passed_over_of(core: "Core") -> PassedOver:
    """The table of a node, which has one from its first group of MVDS on."""
    assert core.passed_over is not None
    return core.passed_over  # type: ignore[return-value] # no other class is one


def reads_segments(exchange: "Exchange") -> bool:
    """Whether the peer of a link with MVDS has shown that it reads segments."""
    return passed_over_of(exchange.core).reads_segments(exchange.peer)


def prepare(exchange: "Exchange", frame_size: int) -> bool:
    """Before a payload: take out of the rows what cannot go in `frame_size` bytes, and take up
    what was passed over and now can; whether anything waits for that."""
    core = exchange.core
    peer = exchange.peer
    outbox = exchange.outbox
    if core.passed_over is None:
        return False  # there is no group of MVDS
    passed_over = passed_over_of(core)
    if exchange.visits:
        passed_over.note_reads_segments(peer)  # bundles are read by our own nodes only
    reads = passed_over.reads_segments(peer)
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
    return passed_over.firsts[peer] > 0


def pass_over(exchange: "Exchange", row: int) -> None:
    """The message in `row` cannot go to the peer: its row is for others."""
    outbox = exchange.outbox
    passed_over_of(exchange.core).add(exchange.peer, outbox.handles[row])
    outbox.drop(row)


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
    passed_over = passed_over_of(core)
    handle = passed_over.begin(peer)
    while 0 < handle <= exchange.outbox.cursor and not is_oversize(core, peer, handle, frame_size):
        handle = core.store.next(handle)
    if handle > exchange.outbox.cursor:
        handle = 0
    if handle >= 0:  # else the flash does not say
        passed_over.move(peer, handle)
    return max(handle, 0)


def _take_up(exchange: "Exchange", handle: int, reads: bool, frame_size: int) -> None:
    """Have the message that waits sent as if the peer had asked for it, if it can go."""
    outbox = exchange.outbox
    fits = handle and (reads or exchange.core.store.size + OVERHEAD_MAX <= frame_size)
    row = outbox.want(handle) if fits else -1
    if row >= 0 and outbox.is_open(row):
        outbox.mark(row, REQUEST)


def wait_epochs(exchange: "Exchange") -> int:
    """Epochs until there may be something to do for what was passed over, at least 1; 0: never."""
    core = exchange.core
    if core.passed_over is None or not core.passed_over.firsts[exchange.peer]:
        return 0
    passed_over = passed_over_of(core)
    return max(passed_over.ask_wait(exchange.peer, exchange.epoch, exchange.pace.every), 1)


def ask_into(exchange: "Exchange", frame: bytearray) -> int:
    """Write a SEGMENT of the last byte of the first message that waits; its size, 0: not due."""
    core = exchange.core
    peer = exchange.peer
    passed_over = passed_over_of(core)
    is_due = passed_over.ask_wait(peer, exchange.epoch, exchange.pace.every) <= 0
    if passed_over.reads_segments(peer) or not is_due:
        return 0
    handle = passed_over.firsts[peer]
    if core.store.load(handle) != OK:
        return 0
    size = core.store.size
    if core.store.read_into(handle, size - 1, frame, SEGMENT_HEADER_SIZE, 1) != 1:
        return 0
    frame[0] = KIND_SEGMENT
    copy(frame, 1, core.store.id, 0, ID_PREFIX_SIZE)
    put_u16(frame, 9, CONTENT_HEADER_SIZE + size)
    put_u16(frame, 11, CONTENT_HEADER_SIZE + size - 1)
    passed_over.note_asked(peer, exchange.epoch, exchange.pace)
    exchange.needs_barrier = True  # the peer may have the rest, and take the message in
    return SEGMENT_HEADER_SIZE + 1
