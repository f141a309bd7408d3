"""Keeps the black box's blocks in a ring of files, and moves them into the telemetry group.

A segment is written block by block into a file of the store, so that RAM holds two blocks and no
more; each block is one flash program, and stays when the power goes. Whole segments wait in the
ring, the oldest is overwritten. They leave through the sync like any other message: the file
becomes the message's body, for a few segments at a time, so that readings keep their room.
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

# Time between two writings of the counters: a killed device loses no more of its sums.
_COUNTERS_MS = const(8000)
_NO_DEPENDENCIES = b"\x00"
# What precedes the blocks in a segment's content.
_HEAD_SIZE = CONTENT_HEADER_SIZE + 1 + BOX_HEADER_SIZE


class Recorder:
    """Stores the blocks of a black box and publishes its segments; key: of the parts begun."""

    def __init__(
        self, store: "RingPort", publisher: "PublisherPort", box: "BlackBox", key: bytes
    ) -> None:
        self._flash = store
        self._publisher = publisher
        self._box = box
        self._key = key
        self._open = False
        self._first = 0  # where in the ring the oldest segment is
        self._waiting = -1  # whole segments in it; -1: nobody has looked
        self._counted_ms = 0

    def step(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Store finished blocks; publish the segment when it is whole.

        Free when there is nothing to do, so as often as events come: two blocks hold 82.
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
                box.take()  # not open: its segment could not be stored, the rest has no header
            if ends and self._open:
                self._publish(group, now_ms)
        return code

    # --- the ring ---

    def _begin(self, group: int, timestamp: "bytes | bytearray") -> int:
        """Begin a segment in the ring's next file."""
        store = self._flash
        # A gap behind the newest tells the oldest; a ring of one has neither.
        if self._waiting >= max(store.box_slots - 2, 1):
            self._drop()
        store.box_slot = (self._first + self._waiting) % store.box_slots
        code = self._publisher.publish_begin(group, timestamp, PART_BOX)
        if code == OK:
            # If this fails, so does the next one.
            store.spool.part_append(PART_BOX, _NO_DEPENDENCIES, 0, 1)
            code = store.spool.part_append(PART_BOX, self._box.header, 0, BOX_HEADER_SIZE)
        self._open = code == OK
        return code

    def _left(self, slot: int) -> int:
        """Bytes in a file of the ring, which is the part from here on."""
        store = self._flash
        store.box_slot = slot % store.box_slots
        return store.spool.part_left(PART_BOX)

    def _look(self) -> None:
        """Find the segments that the last run left in the ring, whole or not."""
        self._waiting = 0
        for slot in range(self._flash.box_slots):
            if self._left(slot) > 0:
                self._waiting += 1
                if self._left(slot - 1) <= 0:
                    self._first = slot
        size = _HEAD_SIZE + self._box.block[2] * BLOCK_SIZE
        if not self._box.starts and self._left(self._first + self._waiting - 1) == size:
            # After a deep sleep the newest one goes on, for this is the next block of it.
            self._open = self._flash.spool.part_open(PART_BOX, self._key, 0, 0) == size
            self._waiting -= 1

    def _publish(self, group: int, now_ms: int) -> None:
        """End a segment; put the oldest ones into the log, as far as they may take its room."""
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
                store.barrier()  # its file has another name already
                self._drop()

    def _drop(self) -> None:
        """The ring's oldest segment goes."""
        store = self._flash
        store.box_slot = self._first
        store.spool.part_drop(PART_BOX)
        self._first = (self._first + 1) % store.box_slots
        self._waiting -= 1

    def flush(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Publish what there is, counters last: at a stop, or when somebody asks for it."""
        box = self._box
        code = OK
        # Counters and the last block may each have to wait for a block that is stored first.
        while code == OK and not (box.flush_counters(now_ms) and box.finish() and not box.ready):
            code = self._drain(group, now_ms, timestamp)
        if self._open:
            self._publish(group, now_ms)
        return code
