"""Publish our own messages, from a buffer or piece by piece through a part file."""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    PART_PUBLISH,
    TIMESTAMP_SIZE,
)
from drupelet.base.memory import copy
from drupelet.engine.graph import ENTERED
from drupelet.engine.members import FAMILY_BSP

# Key of the part file of a message that is being composed: it has no id yet.
COMPOSED_KEY = b"composed"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core


class Publisher:
    """Puts content (group id, timestamp, body) into the log; groups are given by number."""

    core: "Core"

    def publish(
        self, group: int, body: "bytes | bytearray", size: int, timestamp: "bytes | bytearray",
        now_ms: int,
    ) -> int:  # fmt: skip
        """Put a message of our own into the log; return its handle or a negative code.

        `body`: `size` bytes (0 to 32,768) in the client's format. `timestamp`: ms since the Unix
        epoch, 8 bytes, big-endian. E_CAPACITY: there is no room, the flash did not take it, the
        same bytes were published before, or the client finds them malformed or a dependency
        missing. E_STORAGE: the flash failed while a long body was kept. The message is durable
        after the next barrier, and before it leaves in a frame.
        """
        assert 0 <= size <= BODY_SIZE_MAX
        core = self.core
        slot = self._slot(group, timestamp)
        if size > INLINE_SIZE_MAX:
            code = self.publish_begin(group, timestamp)
            if code == OK:
                code = self.publish_append(body, 0, size)
            return self.publish_end(group, now_ms) if code == OK else code
        if core.identify(slot, timestamp, 0, body, 0, size) != OK or core.store.find(core.id, 0):
            return E_CAPACITY
        outcome = core.graph.take_body(slot, 0, core.id, timestamp, 0, body, 0, size)
        return self._entered(outcome, slot, now_ms)

    def publish_begin(
        self, group: int, timestamp: "bytes | bytearray", part: int = PART_PUBLISH
    ) -> int:
        """Begin a message that is handed in piece by piece; return OK or a negative code."""
        core = self.core
        slot = self._slot(group, timestamp)
        store = core.store
        store.spool.part_drop(part)
        code = store.spool.part_open(part, COMPOSED_KEY, 0, 0)
        if code < 0:
            return code
        copy(core.graph.ids, 0, core.members.group_ids, slot * ID_SIZE, ID_SIZE)
        copy(core.graph.ids, ID_SIZE, timestamp, 0, TIMESTAMP_SIZE)
        return store.spool.part_append(part, core.graph.ids, 0, CONTENT_HEADER_SIZE)

    def publish_append(self, body: "bytes | bytearray", at: int, size: int) -> int:
        """Append `size` bytes to the body; E_CAPACITY if it becomes too long."""
        store = self.core.store
        if size > CONTENT_HEADER_SIZE + BODY_SIZE_MAX - store.spool.part_size(PART_PUBLISH):
            return E_CAPACITY
        return store.spool.part_append(PART_PUBLISH, body, at, size)

    def publish_end(self, group: int, now_ms: int, part: int = PART_PUBLISH) -> int:
        """Put the message into the log; return its handle or a negative code."""
        core = self.core
        slot = self._slot(group)
        if core.identify_part(part) != slot:
            return E_STORAGE
        if core.store.find(core.id, 0):
            return E_CAPACITY
        return self._entered(core.graph.take_part(slot, 0, core.id, part), slot, now_ms)

    def _slot(self, group: int, timestamp: "bytes | bytearray" = b"\0") -> int:
        members = self.core.members
        slot = members.group_row(group)
        assert slot >= 0, "published into a group that was not joined"
        signed = timestamp[0] >= 0x80 and members.family(slot) == FAMILY_BSP
        assert not signed, "a timestamp is below 2^63: every peer would refuse it"
        return slot

    def _entered(self, outcome: int, slot: int, now_ms: int) -> int:
        if outcome != ENTERED:
            self.core.refused += 1
            return E_CAPACITY
        handle = self.core.graph.handle
        self.core.after_entry(now_ms, slot, 0)
        return handle
