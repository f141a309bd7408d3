"""A whole member in little code, for boards of 16 KB: one group, `bsp-1`, everything in RAM.

`MicroLink` (link.py) talks to any node: it has the same ids and records, both modes, epochs and
back-off. There is no log on flash, no segments (a body fits a frame), and no pending table: a
message whose direct dependencies are not all here is refused without an ACK, and they are
requested by id.

Rows and bodies are in log order, without gaps. A message that the client has taken and every peer
holds is removed when room is needed. The first bytes of its id are kept for a while: another copy
is acknowledged and not taken in again, and it counts as a dependency that is met. A message is
acknowledged only once the client has taken it.

    row     id 32 | timestamp 8 | size u16 | new u8 | a cell for each peer
    cell    state u8 (link.py) | send count u8 | send epoch u8
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY
from drupelet.base.hashes import GroupHash, MessageHash
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.memory import copy, fill, find, get_u16, put_u16
from drupelet.engine.clock import Clocks

HOLD = const(1)  # a peer is known to hold the message
TIMESTAMP_AT = const(32)
_SIZE_AT = const(40)
NEW_AT = const(42)
CELLS_AT = const(43)
CELL_SIZE = const(3)
_PREFIX_SIZE = const(5)
_OWN_QUARTERS = const(3)  # our own messages leave a quarter of rows and bytes to those of others
_QUARTERS = const(4)
FRAME_SIZE = const(251)  # with its CRC, the longest that COBS codes in one block
BODY_SIZE = const(206)  # the longest body whose record fits such a frame


class Micro:
    """One member of one group; a `MicroLink` connects it. Only the constructors allocate."""

    def __init__(
        self, client_id: bytes, descriptor: bytes, peers_max: int = 4, offers_max: int = 16,
        messages_max: int = 32, bodies_size: int = 2048, gone_max: int = 40, epoch_ms: int = 1000,
        now_ms: int = 0,
    ) -> None:  # fmt: skip
        assert 0 < peers_max <= offers_max and 1 < messages_max <= 255 and gone_max
        self.offers_each = offers_max // peers_max
        self.group_ids = bytearray(ID_SIZE)
        digest = GroupHash()
        digest.start(client_id, 0, len(descriptor))
        digest.update(descriptor, 0, len(descriptor))
        digest.digest_into(self.group_ids, 0)
        self.id = bytearray(ID_SIZE)  # of the message that came or was published last
        # Of the message that a link selected, and its size.
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.size = 0
        # The codec reads `link.core.store.size` and similar: this one object is all of them.
        self.store = self.members = self
        self.clocks = Clocks(1)  # one clock for all links
        self.clocks.begin(0, epoch_ms, now_ms, 0)
        self.peers = self.rows = self.changes = 0
        self.row = 0  # the row that a link selected
        self.delivered = self.duplicates = self.malformed = self.refused = 0
        self.stride = CELLS_AT + CELL_SIZE * peers_max
        self.table = bytearray(self.stride * messages_max)
        self.bodies = bytearray(bodies_size)
        self._used = 0  # bytes of `bodies` in use
        self._rows_max = messages_max
        self._gone = bytearray(_PREFIX_SIZE * gone_max)
        self._gone_at = 0
        # Ids of our last message and of the newest one of others.
        self._parents = bytearray(2 * ID_SIZE)
        self._own = self._parent_count = 0
        self._hash = MessageHash()

    def find(self, id: bytearray, at: int) -> int:
        """Return the row of a message id, or -1."""
        return find(self.table, self.stride, self.rows, id, at, ID_SIZE)

    def gone(self, id: bytearray, at: int) -> bool:
        """Return True for a message that was here and was removed."""
        count = len(self._gone) // _PREFIX_SIZE
        return find(self._gone, _PREFIX_SIZE, count, id, at, _PREFIX_SIZE) >= 0

    def note(self, id: bytearray, at: int) -> None:
        """A message is our own or was taken: a board with flash overrides this to keep its id."""

    def body_size(self, row: int) -> int:
        """Return the size of the body of a row."""
        return get_u16(self.table, row * self.stride + _SIZE_AT)

    def body_at(self, row: int) -> int:
        """Return the offset in `bodies` of the body of a row."""
        at = 0
        for earlier in range(row):
            at += self.body_size(earlier)
        return at

    def identify(self, stamp: bytearray, ts_at: int, body: bytearray, at: int, size: int) -> None:
        """Compute the id of a message into `id`."""
        self._hash.start(self.group_ids, 0, stamp, ts_at, size)
        self._hash.update(body, at, size)
        self._hash.digest_into(self.id, 0)

    def publish(self, payload: "bytes | bytearray", size: int, stamp: bytearray) -> int:
        """Publish a message that depends on all that we know; return its row or E_CAPACITY.

        `payload`: `size` bytes; `stamp`: the timestamp, 8 bytes.
        """
        head = 1 + self._parent_count * ID_SIZE
        size += head
        if (at := self._room(size, _OWN_QUARTERS)) < 0:
            return E_CAPACITY
        self.bodies[at] = self._parent_count
        copy(self.bodies, at + 1, self._parents, 0, head - 1)
        copy(self.bodies, at + head, payload, 0, size - head)
        self.identify(stamp, 0, self.bodies, at, size)
        copy(self._parents, 0, self.id, 0, ID_SIZE)
        self._own = self._parent_count = 1
        self.note(self.id, 0)
        return self._append(stamp, 0, size, 0)

    def take(self, stamp: bytearray, stamp_at: int, body: bytearray, at: int, size: int) -> int:
        """Store the peer's message `id`, whose dependencies are here; return its row, or -1."""
        if (start := self._room(size, _QUARTERS)) < 0:
            return -1
        copy(self.bodies, start, body, at, size)
        self.delivered += 1
        return self._append(stamp, stamp_at, size, 1)

    def _append(self, stamp: bytearray, stamp_at: int, size: int, new: int) -> int:
        """Append a row for the message `id`, whose body is after the last one in `bodies`."""
        at = self.rows * self.stride
        fill(self.table, at, self.stride, 0)
        copy(self.table, at, self.id, 0, ID_SIZE)
        copy(self.table, at + TIMESTAMP_AT, stamp, stamp_at, TIMESTAMP_SIZE)
        put_u16(self.table, at + _SIZE_AT, size)
        self.table[at + NEW_AT] = new
        self._used += size
        self.rows += 1
        self.changes = (self.changes + 1) & 0xFFFF
        return self.rows - 1

    def _room(self, size: int, quarters: int) -> int:
        """Return where in `bodies` a body of `size` bytes fits, within so many quarters.

        Removes settled messages, the oldest ones first; -1, and counted, if that is not enough.
        """
        rows = self._rows_max * quarters // _QUARTERS
        space = len(self.bodies) - len(self.bodies) // _QUARTERS * (_QUARTERS - quarters)
        row = 0
        while self.rows >= rows or self._used + size > space or size > BODY_SIZE:
            while row < self.rows and not self._may_go(row):
                row += 1
            if row == self.rows or size > BODY_SIZE:
                self.refused += 1
                return -1
            self._free(row)
        return self._used

    def _may_go(self, row: int) -> bool:
        """Return True if the client has taken it, and every peer holds it and knows that we do."""
        at = row * self.stride
        for peer in range(self.peers):
            if self.table[at + CELLS_AT + peer * CELL_SIZE] != HOLD:
                return False
        return not self.table[at + NEW_AT]

    def _free(self, row: int) -> None:
        at = row * self.stride
        copy(self._gone, self._gone_at, self.table, at, _PREFIX_SIZE)
        self._gone_at = (self._gone_at + _PREFIX_SIZE) % len(self._gone)
        size = self.body_size(row)
        start = self.body_at(row)
        self._used -= size
        copy(self.bodies, start, self.bodies, start + size, self._used - start)
        self.rows -= 1
        copy(self.table, at, self.table, at + self.stride, self.rows * self.stride - at)

    def next_event(self) -> int:
        """Return the oldest row that the client has not taken, or -1."""
        for row in range(self.rows):
            if self.table[row * self.stride + NEW_AT]:
                return row
        return -1

    def done(self, row: int) -> None:
        """Record that the client has taken a row: acknowledge it, and depend on it from now on."""
        at = row * self.stride
        self.note(self.table, at)
        self.table[at + NEW_AT] = 0
        self.changes = (self.changes + 1) & 0xFFFF
        copy(self._parents, self._own * ID_SIZE, self.table, at, ID_SIZE)
        self._parent_count = self._own + 1

    def outstanding(self) -> int:
        """Return how many rows some peer may lack, or the client has not taken."""
        count = 0
        for row in range(self.rows):
            if not self._may_go(row):
                count += 1
        return count
