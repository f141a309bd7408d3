"""Messages that are longer than a frame, for MVDS peers, which may know no segments (SPEC.md 3.4).

Such a message is passed over: it loses its row, so that shorter messages behind it can go.
`PassedOver` keeps the first of them for each peer, and whether the peer has shown that it reads
segments. Until it has, it is asked at the steps of a back-off, by a SEGMENT with the last byte of
that message. Our own node answers with a SEGMENT STATE, any other drops a record of unknown kind.
After an answer, or over a link with longer frames, messages that were passed over are sent after
all, one at a time and in log order, so that they take one row only.
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

# The most that a MESSAGE adds to a stored body: frame kind, tags of 3 bytes, lengths, group id,
# timestamp, and 2 bytes for each of 8 parents. The least is CONTENT_HEADER_SIZE.
OVERHEAD_MAX = const(84)
_READS_SEGMENTS = const(-1)


class PassedOver:
    """For each peer (row): the first message that was passed over, and if it reads segments.

    `firsts` holds its handle; 0: none was passed over; negative, ~handle: the peer holds it by
    now, and the log after it has not been searched for the next one.
    """

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.firsts = [0] * core.members.peers_max
        # How often the peer was asked if it reads segments (_READS_SEGMENTS: it does), and the
        # epoch in which it was asked last.
        self._asks = [0] * core.members.peers_max
        self._asked_epochs = [0] * core.members.peers_max
        # How many questions a peer did not answer, although it was heard after them.
        self._ignored = bytearray(core.members.peers_max)

    def add(self, peer: int, handle: int) -> None:
        """Record that a message is passed over for a peer; the first one is kept."""
        first = self.firsts[peer]
        if not first or handle <= (~first if first < 0 else first):
            self.firsts[peer] = handle

    def move(self, peer: int, handle: int) -> None:
        """Set the first message that waits for a peer, by its handle; 0: none waits."""
        if handle != self.firsts[peer]:
            self.firsts[peer] = handle
            self._core.is_dirty = True

    def begin(self, peer: int) -> int:
        """Return the handle from which on messages may wait for a peer; 0: none does."""
        first = self.firsts[peer]
        return self._core.store.next(~first) if first < 0 else first

    def note_held(self, peer: int, handle: int, is_ack: bool) -> None:
        """Record that a peer holds a message, which may be the first that was passed over.

        An ACK resets the back-off: the next message is asked about at once.
        """
        if self.firsts[peer] == handle:
            self.firsts[peer] = ~handle
            if is_ack and self._asks[peer] > 0:
                self._asks[peer] = self._ignored[peer] = 0
            self._core.outboxes[peer].changes += 1
            self._core.is_dirty = True

    def reads_segments(self, peer: int) -> bool:
        """Return True if a peer has shown that it reads segments."""
        return self._asks[peer] == _READS_SEGMENTS

    def note_reads_segments(self, peer: int) -> None:
        """Record that a peer reads segments: long messages may go to it in pieces."""
        if not self.reads_segments(peer):
            self._asks[peer] = _READS_SEGMENTS
            self._ignored[peer] = 0
            self._core.outboxes[peer].changes += 1

    def needed_from(self, peer: int) -> int:
        """Return the handle from which on the log must keep messages that were passed over.

        0: none, or the peer ignored OVERSIZE_ASKS_MAX questions.
        """
        first = self.firsts[peer] if self._ignored[peer] < OVERSIZE_ASKS_MAX else 0
        return ~first if first < 0 else first

    def lacks(self, peer: int, handle: int) -> bool:
        """Return True if a peer may lack a message before its cursor, since it was passed over.
        Overwrites what the store has loaded."""
        first = self.firsts[peer]
        is_behind = handle > ~first if first < 0 else 0 < first <= handle
        return is_behind and is_oversize(self._core, peer, handle, FRAME_SIZE_MAX)

    def forget(self, peer: int) -> None:
        """Clear the rows of a peer that was removed."""
        self.firsts[peer] = self._asks[peer] = self._ignored[peer] = 0

    def ask_wait(self, peer: int, epoch: int, every: int) -> int:
        """Return the epochs until a peer is to be asked if it reads segments; <= 0: now."""
        asks = self._asks[peer]
        if asks <= 0:
            return 0
        waited = epochs_since(epoch, self._asked_epochs[peer])
        return interval_epochs(asks, False, False) * every - waited

    def note_asked(self, peer: int, epoch: int, pace: "Pace") -> None:
        """Record that a peer is asked; if it was heard since the last time, it ignored that."""
        if self._asks[peer] and pace.is_heard_since(self._asked_epochs[peer]):
            self._ignored[peer] = min(self._ignored[peer] + 1, OVERSIZE_ASKS_MAX)
        self._asks[peer] = counted(self._asks[peer])
        self._asked_epochs[peer] = epoch


def passed_over_of(core: "Core") -> PassedOver:
    """Return the table of a node, which its first MVDS group creates."""
    assert core.passed_over is not None
    return core.passed_over  # type: ignore[return-value] # no other class is one


def reads_segments(exchange: "Exchange") -> bool:
    """Return True if the peer of an MVDS link has shown that it reads segments."""
    return passed_over_of(exchange.core).reads_segments(exchange.peer)


def prepare(exchange: "Exchange", frame_size: int) -> bool:
    """Prepare a payload: pass over what does not fit `frame_size` bytes, and take up the first
    message that was passed over and can go now; return True if any still waits."""
    core = exchange.core
    peer = exchange.peer
    outbox = exchange.outbox
    if core.passed_over is None:
        return False  # there is no MVDS group
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
    """Pass over the message in a row: it cannot go to the peer, so other messages get the row."""
    outbox = exchange.outbox
    passed_over_of(exchange.core).add(exchange.peer, outbox.handles[row])
    outbox.drop(row)


def is_oversize(core: "Core", peer: int, handle: int, frame_size: int) -> bool:
    """Return True if the peer (row) may lack a message because it is too long for a frame."""
    outbox = core.outboxes[peer]
    store = core.store
    if outbox.load_shared(handle) < 0 or outbox.is_source(store.source, handle):
        return False
    fits = store.size + OVERHEAD_MAX <= min(frame_size, FRAME_SIZE_MAX)
    if fits or handle > outbox.cursor:
        return False  # the cursor comes to it again
    row = outbox.row_of(handle)
    return row < 0 or outbox.is_open(row)


def _first_waiting(exchange: "Exchange", frame_size: int) -> int:
    """Advance to the first message that was passed over and still waits; 0: there is none."""
    core = exchange.core
    peer = exchange.peer
    passed_over = passed_over_of(core)
    handle = passed_over.begin(peer)
    while 0 < handle <= exchange.outbox.cursor and not is_oversize(core, peer, handle, frame_size):
        handle = core.store.next(handle)
    if handle > exchange.outbox.cursor:
        handle = 0
    if handle >= 0:  # else the flash refused a read
        passed_over.move(peer, handle)
    return max(handle, 0)


def _take_up(exchange: "Exchange", handle: int, reads: bool, frame_size: int) -> None:
    """Send the message that waits as if the peer had requested it, if it can go now."""
    outbox = exchange.outbox
    fits = handle and (reads or exchange.core.store.size + OVERHEAD_MAX <= frame_size)
    row = outbox.want(handle) if fits else -1
    if row >= 0 and outbox.is_open(row):
        outbox.mark(row, REQUEST)


def wait_epochs(exchange: "Exchange") -> int:
    """Return the epochs until a message that was passed over may need work, >= 1; 0: never."""
    core = exchange.core
    if core.passed_over is None or not core.passed_over.firsts[exchange.peer]:
        return 0
    passed_over = passed_over_of(core)
    return max(passed_over.ask_wait(exchange.peer, exchange.epoch, exchange.pace.every), 1)


def ask_into(exchange: "Exchange", frame: bytearray) -> int:
    """Write a SEGMENT with the last byte of the first message that waits; 0 if it is not due."""
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
    return SEGMENT_HEADER_SIZE + 1
