"""Moves finished black-box blocks into the telemetry group, one segment a message.

A segment is put together in a part file of the store, block by block, so that RAM holds two
blocks and no more. It leaves through the sync like any other message.
"""

from drupelet._compat import const
from drupelet.errors import OK
from drupelet.limits import BLOCK_SIZE, BOX_HEADER_SIZE, CONTENT_HEADER_SIZE, PART_BOX
from drupelet.publish import COMPOSED_KEY
from drupelet.schedule import elapsed_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.blackbox import BlackBox
    from drupelet.ports import StorePort
    from drupelet.publish import Publisher

# Time between two writings of the counters: a killed device loses no more of its sums.
_COUNTERS_MS = const(8000)
_NO_DEPENDENCIES = b"\x00"
# What precedes the blocks in a segment's content.
_HEAD_SIZE = CONTENT_HEADER_SIZE + 1 + BOX_HEADER_SIZE


class Recorder:
    """Takes blocks from a black box and publishes its segments."""

    def __init__(self, store: "StorePort", publisher: "Publisher", box: "BlackBox") -> None:
        self._flash = store
        self._publisher = publisher
        self._box = box
        self._open = False
        self._recovered = False
        self._counted_ms = 0
        self.published = 0

    def step(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Store finished blocks; publish the segment when it is whole.

        Free when there is nothing to do, so as often as events come: two blocks hold 82.
        """
        due = elapsed_ms(now_ms, self._counted_ms) >= _COUNTERS_MS
        if due and self._box.flush_counters(now_ms):
            self._counted_ms = now_ms
        return self._drain(group, now_ms, timestamp)

    def _drain(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        code = OK
        if not self._recovered:
            self._recovered = True
            self._recover(group, now_ms)
        while self._box.ready and code == OK:
            code = self._store(group, now_ms, timestamp)
        return code

    def _recover(self, group: int, now_ms: int) -> None:
        """Publish the blocks that a killed run left behind; after a power cut there are none."""
        size = self._flash.part_open(PART_BOX, COMPOSED_KEY, 0, 0) - _HEAD_SIZE
        if size > 0 and size % BLOCK_SIZE == 0:
            self._publish(group, now_ms)
        self._flash.part_drop(PART_BOX)

    def _store(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        box = self._box
        store = self._flash
        code = OK
        if not box.starts and not self._open:
            box.take()  # its segment could not be stored: the rest of it has no header
            return OK
        if box.starts:
            code = self._publisher.begin(PART_BOX, group, timestamp)
            if code == OK:
                code = store.part_append(PART_BOX, _NO_DEPENDENCIES, 0, 1)
            if code == OK:
                code = store.part_append(PART_BOX, box.header, 0, BOX_HEADER_SIZE)
            self._open = code == OK
        if code == OK:
            code = store.part_append(PART_BOX, box.block, 0, BLOCK_SIZE)
        if code != OK:
            self._open = False
            store.part_drop(PART_BOX)
            return code
        ends = box.ends
        box.take()
        return self._publish(group, now_ms) if ends else OK

    def _publish(self, group: int, now_ms: int) -> int:
        self._open = False
        handle = self._publisher.end(PART_BOX, group, now_ms)
        if handle < 0:
            return handle
        self.published += 1
        return OK

    def flush(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Publish what there is, counters last: at a stop, or when somebody asks for it."""
        box = self._box
        code = self._drain(group, now_ms, timestamp)
        while code == OK and not box.flush_counters(now_ms):
            code = self._drain(group, now_ms, timestamp)
        while code == OK and not box.finish():
            code = self._drain(group, now_ms, timestamp)
        if code == OK:
            code = self._drain(group, now_ms, timestamp)
        return self._publish(group, now_ms) if code == OK and self._open else code
