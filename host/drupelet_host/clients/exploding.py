"""Exploding messages: deleted at every member after a time, or once they were read.

    payload: kind u8, lifetime u32 in seconds, big-endian; then the content

kind 0 stays; bit 0: deleted after it was read; bit 1: deleted `lifetime` seconds after its
timestamp. (docs/SPEC.md 15.7; mobile paper, requirement 7.) Nobody names an exploding message as a
dependency, so a member that never gets one waits for nothing; where one is named all the same, its
edges stay and what depends on it stands.

A message that was read goes once every member that we share it with has it, or its time is over.
`Node.done` and `save` are how a device remembers it: call `done` for what the user has seen, not
before. After a start all that was done counts as read; what was not is given again.
The time comes in as an argument, in seconds since 1970; 0: not known, so nothing is too old.
"""

from typing import TYPE_CHECKING

from drupelet import host_api
from drupelet.base.errors import OK
from drupelet.base.limits import EXPLODING_MAX, ID_SIZE
from drupelet.engine.body import DELETE, INVALID, SHARE, DefaultClient

if TYPE_CHECKING:
    from drupelet.engine.body import BodyReader
    from drupelet.node import Node

STAYS = 0
AFTER_READING = 1
AFTER_TIME = 2
HEAD_SIZE = 5


def head_into(out: bytearray, at: int, kind: int, lifetime_s: int) -> int:
    """Write what precedes the content of a payload; the position behind it."""
    out[at] = kind
    for row in range(4):
        out[at + 1 + row] = lifetime_s >> 8 * (3 - row) & 0xFF
    return at + HEAD_SIZE


class ExplodingClient(DefaultClient):
    """The client of a group with exploding messages; `turn` now and then, with the time."""

    def __init__(self) -> None:
        DefaultClient.__init__(self)
        self.time_s = 0
        self.exploded = 0
        self._head = bytearray(HEAD_SIZE)
        self._rows: dict[int, list[int]] = {}  # handle: kind, when its time is over, read
        self._left_out = True  # some exploding message of the log is in no row
        self._looked = 0  # the last handle that `turn` has seen
        self._node: Node | None = None
        self._group = self._read_to = 0  # up to this handle all was read before we began

    def validate(self, reader: "BodyReader") -> int:
        """INVALID, SHARE, or DELETE for what came too late."""
        if not self._read(reader):
            return INVALID
        return DELETE if self._over(self._ends(reader)) else SHARE

    def _read(self, reader: "BodyReader") -> bool:
        at = 1 + self.dependencies(reader) * ID_SIZE
        done = reader.read_into(at, self._head, 0, HEAD_SIZE) == HEAD_SIZE
        return done and self._head[0] <= AFTER_READING + AFTER_TIME

    def _ends(self, reader: "BodyReader") -> int:
        """When the time of the message just read is over, in seconds since 1970; 0: never."""
        if not self._head[0] & AFTER_TIME:
            return 0
        lifetime_s = int.from_bytes(self._head[1:], "big")
        return int.from_bytes(reader.timestamp, "big") // 1000 + lifetime_s

    def _over(self, ends_s: int) -> bool:
        return 0 < ends_s <= self.time_s

    def lasts(self, node: "Node", group: int, handle: int) -> bool:
        """True when other messages may name it as a dependency."""
        return self._exploding(node, group, handle) is None

    def _exploding(self, node: "Node", group: int, handle: int) -> "BodyReader | None":
        """A message of the group that does not stay, open to be read, and its head; else None."""
        reader = node.open_body(group, handle)
        is_exploding = reader is not None and self._read(reader) and self._head[0] != STAYS
        return reader if is_exploding else None

    def was_read(self, handle: int) -> bool:
        """The user has seen a message; False: no row is free; say it again later."""
        node = self._node
        if node is None:
            return False
        if handle not in self._rows and len(self._rows) >= EXPLODING_MAX:
            self.turn(node, self._group, 0)
        return self._note(node, handle, 1)

    def turn(self, node: "Node", group: int, time_s: int) -> int:
        """Delete what is due; how much. Also right after `Node.boot`, before anything is shown."""
        if time_s:
            self.time_s = time_s
        if self._node is None:
            self._node, self._group, self._read_to = node, group, host_api.done_through(node)
        # What entered the log since; rows are bounded, so some may wait for one.
        if self._left_out and len(self._rows) < EXPLODING_MAX:
            self._looked = 0
            self._left_out = False
        while (handle := node.store.next(self._looked)) > 0:
            self._looked = handle
            self._left_out |= not self._note(node, handle, handle <= self._read_to)
        gone = 0
        for handle in list(self._rows):
            kind, ends_s, was_read = self._rows[handle]
            due = self._over(ends_s)
            if not due and kind & AFTER_READING and was_read:
                due = not host_api.lacking_peers(node, handle)
            if due and node.delete(handle) == OK:
                del self._rows[handle]
                gone += 1
        self.exploded += gone
        return gone

    def _note(self, node: "Node", handle: int, was_read: int) -> bool:
        """Give a message a row if something is to become of it; False: none is free."""
        if handle in self._rows:
            self._rows[handle][2] |= was_read
        elif reader := self._exploding(node, self._group, handle):
            ends_s = self._ends(reader)
            if self._over(ends_s):
                self.exploded += node.delete(handle) == OK
            elif self._head[0] & (AFTER_TIME | was_read * AFTER_READING):
                if len(self._rows) >= EXPLODING_MAX:
                    return False
                self._rows[handle] = [self._head[0], ends_s, was_read]
        return True
