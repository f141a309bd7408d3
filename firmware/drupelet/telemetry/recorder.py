"""Stores the black box's blocks in a ring of files, and publishes them in the telemetry group.

A segment is written block by block into a file of the store, so RAM holds only two blocks; each
block is one flash program and survives a power cut. Whole segments wait in the ring; a full ring
drops the oldest. They are synchronized like any other message: the file becomes the message's
body. Only a few segments are in the log at a time, so that readings have room.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BLOCK_SIZE,
    BOX_HEADER_SIZE,
    BOX_MESSAGES_MAX,
    CONTENT_HEADER_SIZE,
    PART_BOX,
)
from drupelet.base.time_ms import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.telemetry.black_box import BlackBox
    from drupelet.telemetry.ports import PublisherPort, RingPort

# How often the counters are logged: a device that dies loses at most so much of its totals.
_COUNTERS_MS = const(8000)
_NO_DEPENDENCIES = b"\x00"
# The size of what precedes the blocks in a segment's message.
_HEAD_SIZE = CONTENT_HEADER_SIZE + 1 + BOX_HEADER_SIZE


class Recorder:
    """Stores the blocks of a black box and publishes its segments; `key` is that of its parts."""

    def __init__(
        self, store: "RingPort", publisher: "PublisherPort", box: "BlackBox", key: bytes
    ) -> None:
        self._flash = store
        self._publisher = publisher
        self._box = box
        self._key = key
        self._open = False
        self._first = 0  # slot of the oldest segment
        self._waiting = -1  # whole segments in the ring; -1: not known yet
        self._counted_ms = 0

    def step(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Store finished blocks, and publish the segment if it is complete; OK or a code.

        It costs nothing if nothing is due. Call it often: two blocks hold 82 events.
        """
        due = elapsed_ms(now_ms, self._counted_ms) >= _COUNTERS_MS
        if due and self._box.flush_counters(now_ms):
            self._counted_ms = now_ms
        return self._drain(group, now_ms, timestamp)

    def _drain(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        box = self._box
        code = OK
        if box.ready and self._waiting < 0:
            self._look()
            if not self._open:
                self._publish(group, now_ms)
        while box.ready and code == OK:
            if box.starts:
                code = self._begin(group, timestamp)
            if code == OK and self._open:
                code = self._flash.spool.part_append(PART_BOX, box.block, 0, BLOCK_SIZE)
            self._open = self._open and code == OK
            ends = box.ends
            if code == OK:
                # If the segment could not be begun, drop its blocks: they have no header.
                box.take()
            if ends and self._open:
                self._publish(group, now_ms)
        return code

    # --- the ring ---

    def _begin(self, group: int, timestamp: "bytes | bytearray") -> int:
        """Begin a segment in the ring's next file; OK or a code."""
        store = self._flash
        # Leave an empty slot after the newest segment, so that `_look` finds the oldest one.
        if self._waiting >= max(store.box_slots - 2, 1):
            self._drop()
        store.box_slot = (self._first + self._waiting) % store.box_slots
        code = self._publisher.publish_begin(group, timestamp, PART_BOX)
        if code == OK:
            # If this append fails, so does the next one.
            store.spool.part_append(PART_BOX, _NO_DEPENDENCIES, 0, 1)
            code = store.spool.part_append(PART_BOX, self._box.header, 0, BOX_HEADER_SIZE)
        self._open = code == OK
        return code

    def _left(self, slot: int) -> int:
        """Select a slot of the ring; return the size of its file."""
        store = self._flash
        store.box_slot = slot % store.box_slots
        return store.spool.part_left(PART_BOX)

    def _look(self) -> None:
        """Find the segments that the previous boot left in the ring, complete or not."""
        self._waiting = 0
        for slot in range(self._flash.box_slots):
            if self._left(slot) > 0:
                self._waiting += 1
                if self._left(slot - 1) <= 0:
                    self._first = slot
        size = _HEAD_SIZE + self._box.block[2] * BLOCK_SIZE
        if not self._box.starts and self._left(self._first + self._waiting - 1) == size:
            # After a deep sleep the newest segment continues: `block` is its next block.
            self._open = self._flash.spool.part_open(PART_BOX, self._key, 0, 0) == size
            self._waiting -= 1

    def _publish(self, group: int, now_ms: int) -> None:
        """End a segment; publish the oldest ones while the log may hold more of them."""
        store = self._flash
        self._waiting += self._open
        self._open = False
        code = OK
        while self._waiting > 0 and code != E_CAPACITY and store.bodies(group) < BOX_MESSAGES_MAX:
            store.box_slot = self._first
            code = E_STORAGE
            if store.spool.part_open(PART_BOX, self._key, 0, 0) >= _HEAD_SIZE + BLOCK_SIZE:
                code = self._publisher.publish_end(group, now_ms, PART_BOX)
            if code != E_CAPACITY:
                store.barrier()  # make the renaming of its file durable
                self._drop()

    def _drop(self) -> None:
        """Drop the oldest segment of the ring."""
        store = self._flash
        store.box_slot = self._first
        store.spool.part_drop(PART_BOX)
        self._first = (self._first + 1) % store.box_slots
        self._waiting -= 1

    def flush(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Publish all events and counters so far, at a stop or on request; OK or a code."""
        box = self._box
        code = OK
        # Counters and the last block may each have to wait until another block is stored.
        while code == OK and not (box.flush_counters(now_ms) and box.finish() and not box.ready):
            code = self._drain(group, now_ms, timestamp)
        if self._open:
            self._publish(group, now_ms)
        return code
