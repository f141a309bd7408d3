"""Exploding messages: deleted at every member after a time, or once they were read.

A payload begins with how long the message stays (home/lifetime.py; docs/SPEC.md 15.7; mobile
paper, requirement 7). Nobody names an exploding message as a dependency, so a member that never
gets one waits for nothing; where one is named all the same, its edges stay and what depends on it
stands.

A message counts as read once the client has confirmed it (`Node.done`), and goes when every
member that we share it with has it, too. The time comes in as an argument, in seconds since 1970;
0: not known, so nothing is too old.
"""

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from drupelet import host_api
from drupelet.base.errors import OK
from drupelet.base.limits import ID_SIZE
from drupelet.engine.body import DELETE, INVALID, KEEP, SHARE, DefaultClient
from drupelet_host.home.lifetime import (
    AFTER_READING,
    AFTER_TIME,
    HEAD_SIZE,
    STAYS,
    Lifetime,
    lifetime_of,
)

if TYPE_CHECKING:
    from drupelet.engine.body import BodyReader
    from drupelet.node import Node

# Messages that are watched at once, for each of both reasons; about 150 B each.
ROWS_MAX = 1024
_NEVER_S = 1 << 62


class Explosions:
    """The messages of a group that do not stay; `turn` deletes those whose time has come.

    end_of: given an open message, its lifetime and when that is over, in seconds since 1970.
    The table has `rows_max` messages that explode soonest and as many that wait for being read;
    the log is looked through again for the others. after: no message up to this handle explodes.
    """

    def __init__(
        self, node: "Node", group: int, end_of: "Callable[[BodyReader], tuple[Lifetime, int]]",
        rows_max: int = ROWS_MAX, after: int = 0,
    ) -> None:  # fmt: skip
        self._node = node
        self._group = group
        self._end_of = end_of
        self._rows_max = rows_max
        self._after = self._looked = after
        self._timed: list[tuple[int, int]] = []  # a heap of (-end_s, handle): the last one first
        self._reading: set[int] = set()  # handles
        self._left_out_end_s = _NEVER_S  # the first end of those that had no row
        self._is_reading_left_out = False
        self.exploded = 0

    @property
    def watched(self) -> int:
        """Messages that have a row."""
        return len(self._timed) + len(self._reading)

    def turn(self, time_s: int) -> int:
        """Delete what is due; how much. Also right after `Node.boot`, before anything is shown."""
        total = 0
        while True:
            if self._left_out_end_s <= time_s or (
                self._is_reading_left_out and len(self._reading) < self._rows_max
            ):
                self._begin_again()
            while (handle := self._node.store.next(self._looked)) > 0:
                self._looked = handle
                self._note(handle)
            gone = self._delete_over(time_s) + self._delete_read()
            total += gone
            if not gone or self._left_out_end_s > time_s:
                self.exploded += total
                return total

    def _begin_again(self) -> None:
        self._looked = self._after
        self._timed.clear()
        self._reading.clear()
        self._left_out_end_s = _NEVER_S
        self._is_reading_left_out = False

    def _note(self, handle: int) -> None:
        """Give a message rows if something is to become of it."""
        reader = self._node.open_body(self._group, handle)
        if reader is None:
            return
        lifetime, end_s = self._end_of(reader)
        if lifetime.kind & AFTER_TIME:
            row = (-end_s, handle)
            if len(self._timed) < self._rows_max:
                heapq.heappush(self._timed, row)
            else:
                row = heapq.heappushpop(self._timed, row)
                self._left_out_end_s = min(self._left_out_end_s, -row[0])
        if lifetime.kind & AFTER_READING:
            if len(self._reading) < self._rows_max:
                self._reading.add(handle)
            else:
                self._is_reading_left_out = True

    def _delete_over(self, time_s: int) -> int:
        due = [row for row in self._timed if -row[0] <= time_s]
        if not time_s or not due:
            return 0
        kept = [row for row in due if not self._is_gone(row[1])]
        self._timed = [row for row in self._timed if -row[0] > time_s] + kept
        heapq.heapify(self._timed)
        return len(due) - len(kept)

    def _delete_read(self) -> int:
        read_to = host_api.done_through(self._node)
        due = {
            handle
            for handle in self._reading
            if handle <= read_to and not host_api.lacking_peers(self._node, handle)
        }
        gone = {handle for handle in due if self._is_gone(handle)}
        self._reading -= gone
        return len(gone)

    def _is_gone(self, handle: int) -> bool:
        """Delete a message; False: the store cannot, so try again later."""
        if self._node.delete(handle) == OK:
            return True
        return host_api.message(self._node.store, handle) is None  # it has made room for others


class ExplodingClient(DefaultClient):
    """The client of a group with exploding messages; `turn` now and then, with the time."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        DefaultClient.__init__(self)
        self.time_s = 0
        self._rows_max = rows_max
        self._head = bytearray(HEAD_SIZE)
        self._explosions: Explosions | None = None

    def validate(self, reader: "BodyReader") -> int:
        """INVALID, SHARE, KEEP what is ephemeral and another's, or DELETE what came too late."""
        lifetime = self._read(reader)
        if lifetime is None:
            return INVALID
        if 0 < _end_s(reader, lifetime) <= self.time_s:
            return DELETE
        return KEEP if lifetime.is_ephemeral and reader.source else SHARE

    def _read(self, reader: "BodyReader") -> Lifetime | None:
        at = 1 + self.dependencies(reader) * ID_SIZE
        is_read = reader.read_into(at, self._head, 0, HEAD_SIZE) == HEAD_SIZE
        return lifetime_of(self._head) if is_read else None

    def end_of(self, reader: "BodyReader") -> tuple[Lifetime, int]:
        """How long an open message stays, and when that is over, in seconds since 1970."""
        lifetime = self._read(reader) or Lifetime()
        return lifetime, _end_s(reader, lifetime)

    def lasts(self, node: "Node", group: int, handle: int) -> bool:
        """True when other messages may name it as a dependency."""
        reader = node.open_body(group, handle)
        return reader is None or self.end_of(reader)[0].kind == STAYS

    @property
    def watched(self) -> int:
        """See Explosions."""
        return self._explosions.watched if self._explosions is not None else 0

    @property
    def exploded(self) -> int:
        """Messages that were deleted since the start because their time had come."""
        return self._explosions.exploded if self._explosions is not None else 0

    def turn(self, node: "Node", group: int, time_s: int) -> int:
        """See Explosions."""
        self.time_s = time_s or self.time_s
        if self._explosions is None:
            self._explosions = Explosions(node, group, self.end_of, self._rows_max)
        return self._explosions.turn(self.time_s)


def _end_s(reader: "BodyReader", lifetime: Lifetime) -> int:
    return lifetime.end_s(int.from_bytes(reader.timestamp))
