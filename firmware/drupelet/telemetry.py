"""Moves finished black-box blocks into the telemetry group, one segment a message.

A segment is put together in a part file of the store, block by block, so that RAM holds two
blocks and no more. It leaves through the sync like any other message.
"""

from drupelet.errors import OK
from drupelet.limits import BLOCK_SIZE, BOX_HEADER_SIZE, PARTS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.blackbox import BlackBox
    from drupelet.node import Node

# The part file in which a segment is put together: behind those of messages.
_PART = PARTS_MAX + 1


class Recorder:
    """Takes blocks from a black box and publishes segments of `blocks_max` of them."""

    def __init__(self, node: "Node", box: "BlackBox", blocks_max: int) -> None:
        self._node = node
        self._box = box
        self._blocks_max = blocks_max
        self._blocks = 0
        self._head = bytearray(1 + BOX_HEADER_SIZE)  # no dependencies, then the header
        self.published = 0

    def step(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Store finished blocks; publish the segment when it is full. Once per epoch."""
        box = self._box
        if box.ready and self._blocks + 1 == self._blocks_max:
            box.flush_counters(now_ms)
        code = OK
        while box.ready and code == OK:
            code = self._store(group, now_ms, timestamp)
        return code

    def _store(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        box = self._box
        if not self._blocks:
            code = self._node.compose(_PART, group, timestamp)
            if code == OK:
                box.header_into(self._head, 1)
                code = self._node.store.part_append(_PART, self._head, 0, len(self._head))
            if code != OK:
                return code
        code = self._node.store.part_append(_PART, box.block, 0, BLOCK_SIZE)
        if code != OK:
            return code
        box.taken()
        self._blocks += 1
        return self._publish(group, now_ms) if self._blocks == self._blocks_max else OK

    def _publish(self, group: int, now_ms: int) -> int:
        handle = self._node.publish_part(_PART, group, now_ms)
        self._blocks = 0
        self._box.end_segment()
        if handle < 0:
            return handle
        self.published += 1
        return OK

    def flush(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Publish what there is, counters last: at a stop, or when somebody asks for it."""
        box = self._box
        code = self.step(group, now_ms, timestamp)
        box.flush_counters(now_ms)
        while code == OK:
            box.flush(now_ms)
            if not box.ready:
                break
            code = self._store(group, now_ms, timestamp)
        if code == OK and self._blocks:
            code = self._publish(group, now_ms)
        return code
