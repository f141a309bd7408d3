"""What is on its way to one peer: a cursor over the log, and a row for each message before it.

The log on flash is the queue; the rows are a window onto it, in its order. Every message up to the
cursor is held by the peer, has a row, is not for this peer, or was passed over as too long for its
frames (`oversize`); everything after the cursor waits on flash, and a row there says that the peer
holds the message already. So two rows suffice, and full rows lose nothing. A row that the peer
holds stays until its room is needed: late answers find it.
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
# A row, beside its handle; it begins with the tag.
_GROUP = const(4)
_STATE = const(5)
_SENDS = const(6)
_EPOCH = const(7)
_NUMBER = const(9)
ROW_SIZE = const(11)
# `want`: there is no room now, or the message is not for this peer.
NO_ROOM = const(-1)
NOT_SHARED = const(-2)
_first_byte = bytearray(1)  # of the body that is looked at


class Outbox:
    """One peer's cursor and rows. A row is a message: handle, tag (how its id begins), group row,
    state, send count, epoch of the last send, and with `compact-1` our number for it."""

    # What few peers need takes RAM from when it is set.
    lost_until = 0  # up to this handle the peer may lack even what came from it
    reserved_rows = 0  # left free for a long message that was passed over
    # Of bundles for this peer: the number of the last one, the handle up to which those on the
    # stick hold the log, and the number up to which answers acknowledge nothing any more.
    bundle_number = bundled_until = void_until = 0
    next_number = 1  # of `compact-1`

    def __init__(self, peer: int, store: "StorePort", members: "Members") -> None:
        self.peer = peer
        self._store = store
        self._members = members
        self.cursor = 0  # the handle up to which the log was looked at
        self.changes = 0  # counts rows that are new or have moved: the peer's links compare
        self.is_dirty = False  # what the wake state says of this peer has changed
        self.count = self.open_count = 0
        self.handles: "list[int]" = []
        self.rows = bytearray(0)

    @property
    def rows_max(self) -> int:
        """How many rows there are; 0 before the boot."""
        return len(self.handles)

    def resize(self, rows_max: int) -> None:
        """Allocate the rows; open ones are kept as far as there is room, in the log's order."""
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
                # The cursor comes to the others again.
                self.cursor = min(self.cursor, self.handles[rows_max - 1])
                break
            to = self._put(self.count, handles[row], rows, row * ROW_SIZE, 0)
            copy(self.rows, to * ROW_SIZE, rows, row * ROW_SIZE, ROW_SIZE)

    # --- rows ---

    def find(self, id: "bytes | bytearray | memoryview", at: int, size: int = ID_SIZE) -> int:
        """The row of the message whose id begins with `size` bytes (4 to 32), or -1."""
        row = find(self.rows, ROW_SIZE, self.count, id, at, TAG_SIZE)
        # Few others have the same tag.
        while 0 <= row < self.count:
            if equal(self.rows, row * ROW_SIZE, id, at, TAG_SIZE) and self._store.is_id(
                self.handles[row], id, at, size
            ):
                return row
            row += 1
        return -1

    def row_of(self, handle: int) -> int:
        """The row of a message by its handle, or -1."""
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
        """The group's row of the message in a row."""
        return self.rows[row * ROW_SIZE + _GROUP]

    def state(self, row: int) -> int:
        """The state byte of a row: see `states`."""
        return self.rows[row * ROW_SIZE + _STATE]

    def sends(self, row: int) -> int:
        """How often the message in a row was sent or offered; 0: it may go at once."""
        return self.rows[row * ROW_SIZE + _SENDS]

    def epoch(self, row: int) -> int:
        """The epoch in which the message in a row was sent or offered last."""
        return get_u16(self.rows, row * ROW_SIZE + _EPOCH)

    def number(self, row: int) -> int:
        """Our number for the message in a row with `compact-1`; 0: none."""
        return get_u16(self.rows, row * ROW_SIZE + _NUMBER)

    def set_number(self, row: int, number: int) -> None:
        """Note our number for the message in a row; 0: none."""
        put_u16(self.rows, row * ROW_SIZE + _NUMBER, number)

    def is_open(self, row: int) -> bool:
        """True until the peer is known to hold the message."""
        return not self.rows[row * ROW_SIZE + _STATE] & HOLD

    def step(self, row: int, event: int) -> None:
        """Change a row's state by an event of the protocol."""
        state = step(self.state(row), event)
        assert state != NO  # else it was sent or offered to a holder
        self.set_state(row, state)

    def set_state(self, row: int, state: int) -> None:
        """Store a state byte and keep the count of open rows."""
        before = self.state(row)
        self.rows[row * ROW_SIZE + _STATE] = state
        if (before ^ state) & HOLD:
            self.open_count += -1 if state & HOLD else 1
            self.is_dirty = True
            if before & HOLD:
                self.make_due(row)  # as if it had never been sent

    def mark(self, row: int, bits: int) -> None:
        """Set bits of a row's state, HOLD apart."""
        self.rows[row * ROW_SIZE + _STATE] |= bits

    def unmark(self, row: int, bits: int) -> None:
        """Clear bits of a row's state, HOLD apart."""
        self.rows[row * ROW_SIZE + _STATE] &= ~bits & 0xFF

    def note_sent(self, row: int, sends: int, epoch: int) -> None:
        """Note a send: how many there were, and the epoch of the last one."""
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
        self._end(self.count + 1)
        return row

    def _move(self, row: int, to: int) -> int:
        """Move a row; the row after its new place."""
        self.handles[to] = self.handles[row]
        copy(self.rows, to * ROW_SIZE, self.rows, row * ROW_SIZE, ROW_SIZE)
        return to + 1

    def _squeeze(self) -> None:
        """Drop the older half of the rows that the peer holds."""
        drop = (self.count - self.open_count + 1) >> 1
        to = 0
        for row in range(self.count):
            if drop and not self.is_open(row):
                drop -= 1
            else:
                to = self._move(row, to)
        self._end(to)

    def _end(self, count: int) -> None:
        self.count = count
        self.changes = (self.changes + 1) & 0xFFFF

    def room_left(self) -> int:
        """How many more messages may get a row."""
        return self.rows_max - self.open_count

    def drop(self, row: int) -> None:
        """Take a message out of the rows."""
        self.set_state(row, self.state(row) | HOLD)
        for later in range(row + 1, self.count):
            self._move(later, later - 1)
        self._end(self.count - 1)

    # --- the log ---

    def look(self, handle: int) -> int:
        """Load a message of the log that is delivered; the group's row if the peer shares it, or
        -1."""
        store = self._store
        if store.load(handle) != OK or store.state != STATE_DELIVERED:
            return -1
        group = self._members.group_row(store.group)
        shared = group >= 0 and self._members.visibility(group, self.peer) == SHARED
        return group if shared else -1

    def is_source(self, source: int, handle: int) -> bool:
        """True if a message came from the peer (`source`: number), which has not lost it since."""
        return source == self._members.peer_number(self.peer) and handle > self.lost_until

    def enter(self, before: int, handle: int, id: bytearray, group: int, source: int) -> None:
        """A shared message entered the log after the handle `before`: if the cursor was there, it
        moves on with it."""
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
        """Move the cursor on while there is room; True when a row was filled."""
        store = self._store
        filled = False
        while self.cursor != newest and self.room_left() > self.reserved_rows:
            handle = store.next(self.cursor) or newest
            if handle < 0:
                break  # the flash does not say what is next: it is asked again
            group = self.look(handle)
            row = self.row_of(handle)
            if row >= 0:
                self.unmark(row, WANTED)
            elif group >= 0 and not self.is_source(store.source, handle):
                self._insert(handle, store.id, group)
                filled = True
            self.cursor = handle
        return filled

    def want(self, handle: int) -> int:
        """The row of a message that the peer asks for; NO_ROOM now, or NOT_SHARED with the peer.

        What comes after the cursor is sent in its turn: everything before it can be delivered.
        """
        group = self.look(handle)
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
        """Go back to a message that was private and that the cursor has passed; the store has
        loaded it."""
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
        """That the peer took our bundles says no more that it holds what they went without."""
        if self.bundle_number != self.void_until or self.bundled_until:
            self.bundled_until = 0
            self.void_until = self.bundle_number

    def _free_row(self, handle: int) -> bool:
        """Have room for a message that the cursor has passed.

        False: it is newer than all rows, and these go first.

        The newest row gives way to an older message, which alone may be what the peer can take,
        and the cursor comes to it again.
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
        """Put the cursor right before a row. What is between two rows the peer holds, and it is
        not sent again."""
        handle = self.handles[row - 1]
        while 0 < handle < self.handles[row]:
            self.cursor = handle
            handle = self._store.next(handle)

    def _insert(self, handle: int, id: "bytes | bytearray", group: int) -> int:
        """Give a message a row in its place in the log's order; there is room."""
        if self.count == self.rows_max:
            self._squeeze()
        row = self.count
        while row and self.handles[row - 1] > handle:
            self._move(row - 1, row)
            row -= 1
        self._put(row, handle, id, 0, group)
        self._mark_ephemeral(row, handle, group)
        return row

    def note_held(self, handle: int, group: int, event: int) -> int:
        """The peer holds a message (group: row) that the store has loaded, as `event` says; its
        row, or -1.

        What it is not shown, or what the cursor has not come to, takes a free row, if there is
        one: else it would be sent when the group is shared again.
        """
        row = self.row_of(handle)
        if row < 0 and self.room_left() and self._store.state == STATE_DELIVERED:
            shared = self._members.visibility(group, self.peer) == SHARED
            if handle > self.cursor or not shared:
                row = self._insert(handle, self._store.id, group)
        if row >= 0:
            self.step(row, event)
        return row

    def low(self) -> int:
        """The handle from which on the peer may lack something."""
        for row in range(self.count):
            if not self.state(row) & (HOLD | WANTED):
                # A held row that the cursor has not come to again may have been asked for.
                return min(self.handles[row], self.cursor + 1)
        return self.cursor + 1

    def restart(self, lost_until: int) -> None:
        """Walk the whole log again for a peer that sees more than it did, or lacks what it held.

        lost_until: in the latter case, the handle up to which it may lack even what came from it;
        else 0, and the rows that it holds stay.
        """
        held = 0
        for row in range(0 if lost_until else self.count):
            if not self.is_open(row):
                held = self._move(row, held)
        self._end(held)
        self.cursor = self.open_count = 0
        if lost_until > self.lost_until:
            self.lost_until = lost_until
        self._void_bundles()
        self.is_dirty = True

    def forget(self) -> None:
        """The peer was removed: its tables are free for another one."""
        self.restart(0)
        self.count = 0
        self.lost_until = self.bundle_number = self.void_until = self.reserved_rows = 0
        self.next_number = 1
