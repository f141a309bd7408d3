"""How messages of our own come about: from a buffer, or piece by piece in a part file."""

from drupelet.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.graph import ENTERED
from drupelet.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    PART_PUBLISH,
    TIMESTAMP_SIZE,
)
from drupelet.members import FAMILY_BSP
from drupelet.memory import copy

# The key of a part file whose content has no id yet.
COMPOSED_KEY = b"composed"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core


class Publisher:
    """Puts content (group id, timestamp, body) into the log; groups are given by number."""

    def __init__(self, core: "Core") -> None:
        self._core = core

    def put(
        self, group: int, body: "bytes | bytearray", size: int, timestamp: "bytes | bytearray",
        now_ms: int,
    ) -> int:  # fmt: skip
        """Publish `body[:size]`; the handle, or a negative code (also for what is there)."""
        assert 0 <= size <= BODY_SIZE_MAX
        core = self._core
        slot = self._slot(group, timestamp)
        if size > INLINE_SIZE_MAX:
            code = self.begin(PART_PUBLISH, group, timestamp)
            if code == OK:
                code = self.append(PART_PUBLISH, body, 0, size)
            return self.end(PART_PUBLISH, group, now_ms) if code == OK else code
        if core.identify(slot, timestamp, 0, body, 0, size) != OK or core.store.find(core.id, 0):
            return E_CAPACITY
        outcome = core.graph.take_body(slot, 0, core.id, timestamp, 0, body, 0, size)
        return self._entered(outcome, slot, now_ms)

    def begin(self, part: int, group: int, timestamp: "bytes | bytearray") -> int:
        """Begin a content in a part file: group id and timestamp; the body is appended to it."""
        core = self._core
        slot = self._slot(group, timestamp)
        store = core.store
        store.part_drop(part)
        code = store.part_open(part, COMPOSED_KEY, 0, 0)
        if code < 0:
            return code
        copy(core.scratch, 0, core.members.group_ids, slot * ID_SIZE, ID_SIZE)
        copy(core.scratch, ID_SIZE, timestamp, 0, TIMESTAMP_SIZE)
        return store.part_append(part, core.scratch, 0, CONTENT_HEADER_SIZE)

    def append(self, part: int, body: "bytes | bytearray", at: int, size: int) -> int:
        """Add `size` bytes to the body that `begin` began; E_CAPACITY when it gets too long."""
        store = self._core.store
        if size > CONTENT_HEADER_SIZE + BODY_SIZE_MAX - store.part_size(part):
            return E_CAPACITY
        return store.part_append(part, body, at, size)

    def end(self, part: int, group: int, now_ms: int) -> int:
        """Put the content of a part file into the log; the handle, or a negative code."""
        core = self._core
        slot = self._slot(group)
        if core.identify_part(part) != slot:
            return E_STORAGE
        if core.store.find(core.id, 0):
            return E_CAPACITY
        return self._entered(core.graph.take_part(slot, 0, core.id, part), slot, now_ms)

    def _slot(self, group: int, timestamp: "bytes | bytearray" = b"\0") -> int:
        members = self._core.members
        slot = members.group_slot(group)
        assert slot >= 0, "published into a group that was not joined"
        signed = timestamp[0] >= 0x80 and members.families[slot] == FAMILY_BSP
        assert not signed, "a timestamp is below 2^63: every peer would refuse it"
        return slot

    def _entered(self, outcome: int, slot: int, now_ms: int) -> int:
        if outcome != ENTERED:
            return E_CAPACITY
        handle = self._core.graph.handle
        self._core.entered(now_ms, slot, 0)
        return handle
