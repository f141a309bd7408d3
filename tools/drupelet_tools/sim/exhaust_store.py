"""A store for exhaustive worlds: a few messages, and what of them a power cut takes.

Only what the engine calls of `StorePort` for short messages. What was written since the last
barrier is kept as a list of states: a power cut goes back to any of them, as a flash log whose
last records may or may not have reached the chip.
"""

import bisect

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.ports import Buffer
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

IN_LOG = (STATE_DELIVERED, STATE_PRIVATE, STATE_DELETED)
# Room for a wake state of three peers and two messages.
SAVED_SIZE = 256

# id, group, source, state, private, timestamp, body, edges
Row = tuple[bytes, int, int, int, bool, bytes, bytes, bytes]
# What is in the store at one moment: rows by handle, the newest handle, the wake state.
Content = tuple[tuple[tuple[int, Row], ...], int, bytes]


class LedgerStore:
    """Messages by handle; `content` is all of it, `before` what a power cut may go back to."""

    def __init__(self) -> None:
        self.spool = self  # parts are never filled here
        self.id = bytearray(32)
        self.timestamp = bytearray(8)
        self.group = self.source = self.size = self.state = self.edges_size = 0
        self.private = False
        self.saved = bytearray(SAVED_SIZE)
        self.saved_size = self.settled_handle = self.missing = 0
        self.settled = [0] * 8
        self.members: dict[tuple[int, bytes], int] = {}
        self.rows: dict[int, Row] = {}
        self.newest = 0
        self.wake = b""
        self.before: tuple[Content, ...] = ()

    # --- what a power cut takes ---

    @property
    def content(self) -> Content:
        """All of it, as it is now."""
        return tuple(self.rows.items()), self.newest, self.wake

    def set_content(self, content: Content, before: tuple[Content, ...] = ()) -> None:
        """Be what an earlier store was."""
        rows, self.newest, self.wake = content
        self.rows = dict(rows)
        self.before = before

    def durable(self) -> Content:
        """What no power cut takes."""
        return self.before[0] if self.before else self.content

    def _writes(self) -> None:
        """The content is about to change, and is not durable until the next barrier."""
        content = self.content
        if not self.before or self.before[-1] != content:
            self.before = (*self.before, content)

    def open(self) -> int:
        """Read the wake state back."""
        self.saved[: len(self.wake)] = self.wake
        self.saved_size = len(self.wake)
        return OK

    def barrier(self) -> int:
        """All that was written survives from here on."""
        self.before = ()
        return OK

    def save(self, state: Buffer, size: int) -> int:
        """Write a wake state; what was written before it is durable with it."""
        self.wake = bytes(state[:size])
        return self.barrier()

    # --- members: numbered for life, before anything else happens ---

    def member(self, kind: int, key: Buffer, at: int, size: int) -> int:
        """The number of a group or peer."""
        return self.members.setdefault((kind, bytes(key[at : at + size])), len(self.members) + 1)

    def descriptor_size(self, number: int) -> int:  # noqa: ARG002 - the port's shape
        """No group here has one, nor a family that is kept."""
        return -1

    def descriptor_put(self, part: int, number: int) -> int:  # noqa: ARG002 - the port's shape
        """It is let go."""
        return OK

    def flush(self) -> int:
        """There is none."""
        return OK

    def part_drop(self, part: int) -> int:  # noqa: ARG002 - the port's shape
        """There are no parts but what would be a descriptor."""
        return OK

    def part_open(self, part: int, key: Buffer, at: int, total: int) -> int:  # noqa: ARG002
        """A descriptor is begun."""
        return 0

    def part_append(self, part: int, buf: Buffer, at: int, size: int) -> int:  # noqa: ARG002
        """It goes on."""
        return OK

    # --- messages ---

    def put(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        body: Buffer, at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Keep a message that is not there yet; its handle."""
        key = bytes(id[id_at : id_at + 32])
        self._writes()
        self.newest += 1
        stamp = bytes(timestamp[ts_at : ts_at + 8])
        content = bytes(body[at : at + size])
        self.rows[self.newest] = (key, group, source, state, False, stamp, content, b"")
        return self.newest

    def bury(
        self, group: int, source: int, id: Buffer, id_at: int, timestamp: Buffer, ts_at: int,
        handle: int,
    ) -> int:  # fmt: skip
        """Keep the id of a message that is not valid."""
        self._writes()
        self.rows.pop(handle, None)
        self.newest += 1
        stamp = bytes(timestamp[ts_at : ts_at + 8])
        key = bytes(id[id_at : id_at + 32])
        self.rows[self.newest] = (key, group, source, STATE_INVALID, False, stamp, b"", b"")
        return self.newest

    def promote(self, handle: int, state: int) -> int:
        """Move a pending message to the end of the log; its new handle."""
        row = self.rows.get(handle)
        if row is None or row[3] != STATE_PENDING:
            return E_STORAGE
        self._writes()
        del self.rows[handle]
        self.newest += 1
        self.rows[self.newest] = (*row[:3], state, *row[4:])
        return self.newest

    def open_up(self, handle: int) -> int:
        """A private message is shared from here on."""
        row = self.rows[handle]
        self._writes()
        state = STATE_DELIVERED if row[3] == STATE_PRIVATE else row[3]
        self.rows[handle] = (*row[:3], state, False, *row[5:])
        return OK

    def unsettle(self) -> None:
        """Nothing goes for room here."""

    def keep(self, handle: int, missing: int) -> int:  # noqa: ARG002 - the port's shape
        """Nothing goes for room here."""
        return OK

    def is_id(self, handle: int, id: Buffer, at: int, size: int) -> bool:
        """True when the id of a message begins with these bytes."""
        return handle in self.rows and self.rows[handle][0][:size] == id[at : at + size]

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """Copy the id of a message; False when it is not there."""
        if handle in self.rows:
            buf[at : at + 32] = self.rows[handle][0]
        return handle in self.rows

    def next_kept(self, handle: int) -> int:  # noqa: ARG002 - the port's shape
        """Nothing goes for room here."""
        return 0

    def dropped(self, group: int) -> int:  # noqa: ARG002 - the port's shape
        """Nothing goes for room here."""
        return 0

    def entomb(self, handle: int, edges: Buffer, size: int, missing: int = 0) -> int:  # noqa: ARG002
        """Keep the id, the place in the log and the edges."""
        row = self.rows[handle]
        if row[3] in (STATE_DELETED, STATE_INVALID):
            return OK
        self._writes()
        private = row[3] == STATE_PRIVATE
        self.rows[handle] = (*row[:3], STATE_DELETED, private, row[5], b"", bytes(edges[:size]))
        return OK

    def find(self, id: Buffer, at: int, size: int = 32) -> int:
        """The handle of an id, or of one that begins so; 0: there is none."""
        wanted = bytes(id[at : at + size])
        for handle, row in self.rows.items():
            if row[0][:size] == wanted and row[3] != STATE_GONE:
                return handle
        return 0

    def note(self, id: Buffer, at: int) -> bool:
        """Remember that nobody has a message any more."""
        self._writes()
        self.newest += 1
        key = bytes(id[at : at + 32])
        self.rows[self.newest] = (key, 0, 0, STATE_GONE, False, b"", b"", b"")
        return True

    def noted(self, id: Buffer, at: int) -> bool:
        """True for a message of which `note` said that nobody has it any more."""
        key = bytes(id[at : at + 32])
        return any(row[0] == key and row[3] == STATE_GONE for row in self.rows.values())

    def load(self, handle: int) -> int:
        """Set the fields to those of a message; OK or E_STORAGE."""
        row = self.rows.get(handle)
        if row is None:
            return E_STORAGE
        id, self.group, self.source, self.state, private, stamp, body, edges = row
        self.id[:] = id
        self.timestamp[:] = stamp
        self.private = private or self.state == STATE_PRIVATE
        self.size, self.edges_size = len(body), len(edges)
        return OK

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Copy bytes of a body, or of a deleted message's edges; the count."""
        row = self.rows.get(handle)
        if row is None:
            return E_STORAGE
        piece = (row[7] or row[6])[offset : offset + size]
        buf[at : at + len(piece)] = piece
        return len(piece)

    def next(self, handle: int) -> int:
        """The next message of the log; 0: there is none."""
        log = [at for at, row in self.rows.items() if row[3] in IN_LOG]
        place = bisect.bisect_right(log, handle)
        return log[place] if place < len(log) else 0

    def next_pending(self, handle: int) -> int:
        """The next message that waits for a parent; 0: there is none."""
        waiting = (at for at, row in self.rows.items() if row[3] == STATE_PENDING and at > handle)
        return next(waiting, 0)
