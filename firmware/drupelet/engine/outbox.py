"""The messages on their way to one peer: a cursor over the log, and rows for those before it.

The log on flash is the queue, and the rows are a window onto it, in log order. Every message up to
the cursor is held by the peer, has a row, is not for this peer, or was passed over as too long for
its frames (`oversize`). Everything after the cursor waits on flash; a row there says that the peer
holds the message already. So two rows are enough, and full rows lose nothing. A row that the peer
holds stays until its room is needed, so that late answers find it.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import ID_SIZE, OUTBOX_ROWS_MIN
from drupelet.base.memory import copy, equal, fill, find, get_u16, put_u16
from drupelet.engine.members import FAMILY_MVDS, HEAD_EPHEMERAL, SHARED
from drupelet.engine.states import BUNDLED, EPHEMERAL, HOLD, NO, WANTED, step
from drupelet.store.states import STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.members import Members
    from drupelet.store.ports import StorePort

TAG_SIZE = const(4)
# Offsets in a row, which begins with the tag; handles are in a list of their own.
_GROUP = const(4)
_STATE = const(5)
_SENDS = const(6)
_EPOCH = const(7)
_NUMBER = const(9)
ROW_SIZE = const(11)
# Results of `want`: there is no room now, or the message is not for this peer.
NO_ROOM = const(-1)
NOT_SHARED = const(-2)
_first_byte = bytearray(1)  # of the body that `_mark_ephemeral` looks at


class Outbox:
    """One peer's cursor and rows. A row is a message: handle, tag (how its id begins), group row,
    state, send count, epoch of the last send, and with `compact-1` our number for it."""

    # Defaults of the class: few peers need these, and an attribute takes RAM only once it is set.
    lost_until = 0  # up to this handle the peer may lack even what came from it
    reserved_rows = 0  # rows kept free for a long message that was passed over
    # Bundles for this peer: the number of the last one; the handle up to which the bundles on the
    # stick cover the log; the number up to which a TAKEN acknowledges nothing any more.
    bundle_number = bundled_until = void_until = 0
    next_number = 1  # the next number that `compact-1` gives to a message

    def __init__(self, peer: int, store: "StorePort", members: "Members") -> None:
        self.peer = peer
        self._store = store
        self._members = members
        self.cursor = 0  # the handle up to which the log has been looked at
        self.changes = 0  # rises when rows are added or moved; the peer's links compare it
        self.is_dirty = False  # the wake state of this peer has changed
        self.count = self.open_count = 0
        self.handles: "list[int]" = []
        self.rows = bytearray(0)

    @property
    def rows_max(self) -> int:
        """The number of rows."""
        return len(self.handles)

    def resize(self, rows_max: int) -> None:
        """Allocate the rows; keep the oldest open ones, as many as fit."""
        assert rows_max >= OUTBOX_ROWS_MIN
        handles = self.handles
        rows = self.rows
        count = self.count
        self.count = self.open_count = 0
        self.handles = [0] * rows_max
        self.rows = bytearray(ROW_SIZE * rows_max)
        for row in range(count):
            if rows[row * ROW_SIZE + _STATE] & HOLD:
                continue
            if self.count == rows_max:
                # The cursor comes to the other messages again.
                self.cursor = min(self.cursor, self.handles[rows_max - 1])
                self._void_bundles()
                break
            to = self._put(self.count, handles[row], rows, row * ROW_SIZE, 0)
            copy(self.rows, to * ROW_SIZE, rows, row * ROW_SIZE, ROW_SIZE)

    # --- rows ---

    def find(self, id: "bytes | bytearray | memoryview", at: int, size: int = ID_SIZE) -> int:
        """Return the row of the message whose id begins with `size` bytes (4 to 32), or -1."""
        row = find(self.rows, ROW_SIZE, self.count, id, at, TAG_SIZE)
        # A tag is 4 bytes, so rarely another message has the same one.
        while 0 <= row < self.count:
            if equal(self.rows, row * ROW_SIZE, id, at, TAG_SIZE) and self._store.is_id(
                self.handles[row], id, at, size
            ):
                return row
            row += 1
        return -1

    def row_of(self, handle: int) -> int:
        """Return the row of the message at a handle, or -1."""
        handles = self.handles
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            if handles[middle] < handle:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and handles[low] == handle else -1

    def group(self, row: int) -> int:
        """Return the group (row) of the message in a row."""
        return self.rows[row * ROW_SIZE + _GROUP]

    def state(self, row: int) -> int:
        """Return the state byte of a row, as defined in `states`."""
        return self.rows[row * ROW_SIZE + _STATE]

    def sends(self, row: int) -> int:
        """Return how often the message was sent or offered; 0: it may go at once."""
        return self.rows[row * ROW_SIZE + _SENDS]

    def epoch(self, row: int) -> int:
        """Return the epoch in which the message was sent or offered last."""
        return get_u16(self.rows, row * ROW_SIZE + _EPOCH)

    def number(self, row: int) -> int:
        """Return our number for the message in `compact-1`; 0: none."""
        return get_u16(self.rows, row * ROW_SIZE + _NUMBER)

    def set_number(self, row: int, number: int) -> None:
        """Set our number for the message in `compact-1`; 0: none."""
        put_u16(self.rows, row * ROW_SIZE + _NUMBER, number)

    def is_open(self, row: int) -> bool:
        """Return True until the peer is known to hold the message."""
        return not self.rows[row * ROW_SIZE + _STATE] & HOLD

    def next_open(self, row: int) -> int:
        """Return the first row, from `row` on, of a message that the peer is not known to hold;
        `count` if there is none."""
        rows = self.rows
        count = self.count
        while row < count and rows[row * ROW_SIZE + _STATE] & HOLD:
            row += 1
        return row

    def step(self, row: int, event: int) -> None:
        """Change a row's state by an event of `states`."""
        state = step(self.state(row), event)
        assert state != NO  # a message that the peer holds is neither sent nor offered
        self.set_state(row, state)

    def set_state(self, row: int, state: int) -> None:
        """Set a row's state byte, and keep the count of open rows."""
        before = self.state(row)
        self.rows[row * ROW_SIZE + _STATE] = state
        if (before ^ state) & HOLD:
            self.open_count += -1 if state & HOLD else 1
            self.is_dirty = True
            if before & HOLD:
                self.make_due(row)

    def mark(self, row: int, bits: int) -> None:
        """Set bits of a row's state; not HOLD."""
        self.rows[row * ROW_SIZE + _STATE] |= bits

    def unmark(self, row: int, bits: int) -> None:
        """Clear bits of a row's state; not HOLD."""
        self.rows[row * ROW_SIZE + _STATE] &= ~bits & 0xFF

    def note_sent(self, row: int, sends: int, epoch: int) -> None:
        """Record a send: how many there have been, and the epoch of the last one."""
        self.rows[row * ROW_SIZE + _SENDS] = sends
        put_u16(self.rows, row * ROW_SIZE + _EPOCH, epoch)

    def make_due(self, row: int) -> None:
        """Let the message in a row go at once, as if it had never been sent."""
        self.rows[row * ROW_SIZE + _SENDS] = 0

    def _put(
        self, row: int, handle: int, id: "bytes | bytearray | memoryview", at: int, group: int
    ) -> int:
        begin = row * ROW_SIZE
        fill(self.rows, begin, ROW_SIZE, 0)
        self.handles[row] = handle
        copy(self.rows, begin, id, at, TAG_SIZE)
        self.rows[begin + _GROUP] = group
        self.rows[begin + _STATE] = BUNDLED if handle <= self.bundled_until else 0
        self.open_count += 1
        self._set_count(self.count + 1)
        return row

    def _move(self, row: int, to: int, count: int) -> int:
        """Move `count` rows from `row` to an earlier place, or one row anywhere; return the row
        after them."""
        for offset in range(count):
            self.handles[to + offset] = self.handles[row + offset]
        copy(self.rows, to * ROW_SIZE, self.rows, row * ROW_SIZE, count * ROW_SIZE)
        return to + count

    def _evict_held(self) -> None:
        """Evict the older half of the rows that the peer holds."""
        excess = (self.count - self.open_count + 1) >> 1
        row = to = kept_from = 0
        while excess:
            if not self.is_open(row):
                excess -= 1
                to = self._move(kept_from, to, row - kept_from)
                kept_from = row + 1
            row += 1
        self._set_count(self._move(kept_from, to, self.count - kept_from))

    def _set_count(self, count: int) -> None:
        self.count = count
        self.changes = (self.changes + 1) & 0xFFFF

    def room_left(self) -> int:
        """Return how many more messages may get a row."""
        return self.rows_max - self.open_count

    def drop(self, row: int) -> None:
        """Remove a row."""
        self.set_state(row, self.state(row) | HOLD)
        self._set_count(self._move(row + 1, row, self.count - row - 1))

    # --- the log ---

    def load_shared(self, handle: int) -> int:
        """Load a delivered message of the log; return its group (row), or -1 if there is none or
        the group is not shared with the peer."""
        return self.shared_group() if self._store.load(handle) == OK else -1

    def shared_group(self) -> int:
        """Return what `load_shared` returns of the message that the store has loaded."""
        group = self._members.group_row(self._store.group)
        is_there = group >= 0 and self._store.state == STATE_DELIVERED
        shared = is_there and self._members.visibility(group, self.peer) == SHARED
        return group if shared else -1

    def is_source(self, source: int, handle: int) -> bool:
        """Return True if the peer (`source`: number) sent us the message and still has it."""
        return source == self._members.peer_number(self.peer) and handle > self.lost_until

    def enter(self, before: int, handle: int, id: bytearray, group: int, source: int) -> None:
        """Give a row to a shared message that entered the log right after the handle `before`.

        Only if the cursor is there and a row is free; else `refill` comes to the message later.
        """
        if self.cursor != before or self.room_left() <= self.reserved_rows:
            return
        shared = self._members.visibility(group, self.peer) == SHARED
        if shared and not self.is_source(source, handle):
            self._insert(handle, id, group)
        self.cursor = handle

    def _mark_ephemeral(self, row: int, handle: int, group: int) -> None:
        if self._members.family(group) == FAMILY_MVDS:
            read = self._store.read_into(handle, 0, _first_byte, 0, 1) == 1
            if read and _first_byte[0] & HEAD_EPHEMERAL:
                self.mark(row, EPHEMERAL)

    def refill(self, newest: int) -> bool:
        """Advance the cursor while rows are free; return True if a row was filled."""
        store = self._store
        filled = False
        while self.cursor != newest and self.room_left() > self.reserved_rows:
            handle = store.next(self.cursor)
            if handle < 0 or (handle and store.load(handle) != OK):
                break  # the flash refused a read: tried again at the next refill
            group = self.shared_group() if handle else -1
            handle = handle or newest
            row = self.row_of(handle)
            if row >= 0:
                self.unmark(row, WANTED)
            elif group >= 0 and not self.is_source(store.source, handle):
                self._insert(handle, store.id, group)
                filled = True
            self.cursor = handle
        return filled

    def want(self, handle: int) -> int:
        """Return the row of a message that the peer requests, NO_ROOM, or NOT_SHARED.

        A message after the cursor is not pulled forward: the peer can take in what comes first.
        """
        group = self.load_shared(handle)
        if group < 0:
            return NOT_SHARED
        row = self.row_of(handle)
        if row >= 0 or handle > self.cursor:
            return row
        if not self._free_row(handle):
            return NO_ROOM
        row = self._insert(handle, self._store.id, group)
        self.mark(row, WANTED)
        return row

    def show(self, handle: int, group: int) -> None:
        """Send a message that was private when the cursor passed it; the store has loaded it."""
        if handle > self.cursor or self._members.visibility(group, self.peer) != SHARED:
            return
        if self.is_source(self._store.source, handle) or self.row_of(handle) >= 0:
            return
        self._void_bundles()
        if self._free_row(handle):
            self._insert(handle, self._store.id, group)
        else:
            self.restart(0)

    def _void_bundles(self) -> None:
        """From now on, a TAKEN of an earlier bundle acknowledges nothing: it would also stand for
        messages before `bundled_until` that are in no bundle."""
        if self.bundle_number != self.void_until or self.bundled_until:
            self.bundled_until = 0
            self.void_until = self.bundle_number

    def _free_row(self, handle: int) -> bool:
        """Make room for a message that the cursor has passed; False if it is newer than all rows.

        Evicts the newest row, since the older message may be the only one that the peer can take
        in now. The cursor goes back, so that the evicted message gets a row again.
        """
        if self.open_count == self.rows_max:
            last = self.count - 1
            if handle > self.handles[last]:
                return False
            if self.handles[last] <= self.cursor and not self.state(last) & WANTED:
                self._go_back(last)
            self.open_count -= 1
            self.count = last
        return True

    def _go_back(self, row: int) -> None:
        """Put the cursor right before a row. The peer holds what is between this row and the one
        before it, so that is not sent again."""
        if not self.state(row) & BUNDLED:
            self._void_bundles()  # a new row before `bundled_until` counts as bundled
        handle = self.handles[row - 1]
        while 0 < handle < self.handles[row]:
            self.cursor = handle
            handle = self._store.next(handle)

    def _insert(self, handle: int, id: "bytes | bytearray", group: int) -> int:
        """Insert a row for a message, in log order; the caller has made room."""
        if self.count == self.rows_max:
            self._evict_held()
        row = self.count
        while row and self.handles[row - 1] > handle:
            self._move(row - 1, row, 1)
            row -= 1
        self._put(row, handle, id, 0, group)
        self._mark_ephemeral(row, handle, group)
        return row

    def note_held(self, handle: int, group: int, event: int) -> int:
        """Record that the peer holds a message (group: row) that the store has loaded; return its
        row, or -1.

        `event`: how we know. A message after the cursor, or of a group that is not shared, takes a
        free row if there is one: otherwise it would be sent once the group is shared again.
        """
        row = self.row_of(handle)
        if row < 0 and self.room_left() and self._store.state == STATE_DELIVERED:
            shared = self._members.visibility(group, self.peer) == SHARED
            if handle > self.cursor or not shared:
                row = self._insert(handle, self._store.id, group)
        if row >= 0:
            self.step(row, event)
        return row

    def low(self, group: int = -1) -> int:
        """Return the handle from which on the peer may lack a message, of a group (row) if it is
        given."""
        row = -1
        while (row := self.next_open(row + 1)) < self.count:
            if not self.state(row) & WANTED and (group < 0 or self.group(row) == group):
                # The row may be after the cursor: the peer held the message, then requested it.
                return min(self.handles[row], self.cursor + 1)
        return self.cursor + 1

    def restart(self, lost_until: int) -> None:
        """Walk through the whole log again, for a peer that sees more now, or lost what it held.

        `lost_until`: if the peer lost its store, the handle up to which it may lack even what it
        sent to us; else 0, and the rows that it holds stay.
        """
        held = 0
        for row in range(0 if lost_until else self.count):
            if not self.is_open(row):
                held = self._move(row, held, 1)
        self._set_count(held)
        self.cursor = self.open_count = 0
        if lost_until > self.lost_until:
            self.lost_until = lost_until
        self._void_bundles()
        self.is_dirty = True

    def forget_peer(self) -> None:
        """Clear the tables of a peer that was removed, for another one."""
        self.restart(0)
        self.count = 0
        self.lost_until = self.bundle_number = self.void_until = self.reserved_rows = 0
        self.next_number = 1
