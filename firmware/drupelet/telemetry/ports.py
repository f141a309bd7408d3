# host only: shapes for the type checker, never loaded on a board
"""What the recorder needs from others: a ring of files, and a publisher."""

from typing import Protocol

from drupelet.base.ports import Buffer


class SpoolPort(Protocol):
    """The part files of a store."""

    def part_open(self, part: int, key: Buffer, at: int, total: int) -> int: ...
    def part_append(self, part: int, buf: Buffer, at: int, size: int) -> int: ...
    def part_left(self, part: int) -> int: ...
    def part_drop(self, part: int) -> int: ...


class RingPort(Protocol):
    """The black box's files in a store: part PART_BOX is the file `box_slot` of `box_slots`."""

    box_slots: int
    box_slot: int

    @property
    def spool(self) -> SpoolPort: ...
    def bodies(self, group: int) -> int: ...
    def barrier(self) -> int: ...


class PublisherPort(Protocol):
    """Begins a message of our own in a part, and puts it into the log; see `Node`."""

    def publish_begin(self, group: int, timestamp: bytes | bytearray, part: int = 0) -> int: ...
    def publish_end(self, group: int, now_ms: int, part: int = 0) -> int: ...
