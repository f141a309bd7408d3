"""Contents that are too long for a record: in part files while incomplete, then in body files.

A part file has a head of 16 bytes (key 8 | total u16 | zero 2 | crc32 of these 12, little-endian)
and the content of a MESSAGE: group id 32 | timestamp 8 | body. When it is complete, it is renamed
to the body file of a message, or to a group's descriptor (client id 32 | descriptor). Contents are
flushed every PART_FLUSH_SIZE bytes only: after a power cut, a transfer continues where the file
ends, and the id, checked at its end, shows if the cut tore any of it. Blocks of the black box are
flushed one by one.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BLOCK_SIZE,
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    PART_BOX,
    PART_FLUSH_SIZE,
    PART_INCOMING,
    PARTS_MAX,
)
from drupelet.base.memory import copy, crc32_into, equal, put_u16_le

PART_HEAD_SIZE = const(16)
_DESCRIPTOR_AT = const(48)  # after the part's head and the client id

assert _DESCRIPTOR_AT == PART_HEAD_SIZE + ID_SIZE

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Spool:
    """Part files 0 to PARTS_MAX + 1: of incoming contents, our own one, and a black box."""

    def __init__(self, store: "StoreParts") -> None:
        self._store = store
        self._files = store.files
        self._fds = [-1] * (PARTS_MAX + 2)
        self._sizes = [0] * (PARTS_MAX + 2)
        self._bounds = [0] * (PARTS_MAX + 2)
        self._head = bytearray(PART_HEAD_SIZE)

    def part_open(self, part: int, key: "Buffer", at: int, total: int) -> int:
        """Open a part; return how many content bytes it has already, or a code.

        An existing part is continued where it ends, if its 8-byte key and total (0: it is being
        composed) are the same.
        """
        assert 0 <= total <= CONTENT_HEADER_SIZE + BODY_SIZE_MAX
        self._close(part)
        copy(self._head, 0, key, at, 8)
        put_u16_le(self._head, 8, total)
        crc32_into(self._head, 12, self._head, 0, 12, True)
        self._bounds[part] = total or CONTENT_HEADER_SIZE + BODY_SIZE_MAX
        files = self._files
        name = self._name(part)
        kept = self.part_left(part)
        is_same = kept >= 0 and self._has_head(name)
        code = OK if is_same else self.part_drop(part)
        if code == OK:
            code = self._fds[part] = files.open(name, True)
        if code < 0:
            return code
        if is_same:
            self._sizes[part] = kept
            return kept
        code = files.append(self._fds[part], self._head, 0, PART_HEAD_SIZE)
        if code != OK:
            self.part_drop(part)
        return code

    def part_append(self, part: int, buf: "Buffer", at: int, size: int) -> int:
        """Append content; OK or a code: then the part is lost, unless it was beyond the total."""
        if self._fds[part] < 0:
            return E_STORAGE
        end = self._sizes[part] + size
        if end > self._bounds[part]:
            return E_CAPACITY
        code = self._files.append(self._fds[part], buf, at, size)
        due = end // PART_FLUSH_SIZE != self._sizes[part] // PART_FLUSH_SIZE
        if code == OK and (due or (part == PART_BOX and size == BLOCK_SIZE)):
            code = self._flush(part)
        if code != OK:
            self.part_drop(part)
            return code
        self._sizes[part] = end
        return OK

    def part_size(self, part: int) -> int:
        """Return the content bytes of an open part; 0 if it is not open."""
        return self._sizes[part]

    def part_left(self, part: int) -> int:
        """Return the content bytes of a part that is not open; negative: there is none."""
        return self._files.size(self._name(part)) - PART_HEAD_SIZE

    def part_read_into(self, part: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read content bytes; return the count, less only at the end, or a code."""
        if self._fds[part] < 0:
            return 0
        return self._files.read_into(self._fds[part], PART_HEAD_SIZE + offset, buf, at, size)

    def flush(self) -> int:
        """Make durable what came into open parts, which only go on growing; OK or a code."""
        code = OK
        for part in range(PART_INCOMING, len(self._fds)):
            if self._fds[part] >= 0:
                code = self._flush(part) or code
        return code

    def part_drop(self, part: int) -> int:
        """Remove a part, open or not; OK if there is none, or a code."""
        self._close(part)
        size = self._files.size(self._name(part))
        if size < 0:
            return OK if size == -1 else size
        return self._files.remove(self._name(part))

    def finish(self, part: int, name: str) -> int:
        """Make a complete part durable and rename its file; return OK or a code."""
        if self._fds[part] < 0:
            return E_STORAGE
        code = OK if part == PART_BOX else self._flush(part)
        if code == OK:
            self._close(part)
            code = self._files.rename(self._name(part), name)
        return code

    def descriptor_size(self, number: int) -> int:
        """Return the size of a group's descriptor; -1: it has none."""
        return max(self._files.size(descriptor_name(number)) - _DESCRIPTOR_AT, -1)

    def descriptor_read_into(
        self, number: int, offset: int, buf: bytearray, at: int, size: int
    ) -> int:
        """Read descriptor bytes; return the count, less only at the end, or E_STORAGE."""
        fd = self._files.open(descriptor_name(number), False)
        if fd < 0:
            return E_STORAGE
        count = self._files.read_into(fd, _DESCRIPTOR_AT + offset, buf, at, size)
        self._files.close(fd)
        return count

    def _name(self, part: int) -> str:
        return "BOX%d.PRT" % self._store.box_slot if part == PART_BOX else "P%d.PRT" % part

    def _flush(self, part: int) -> int:
        self._store.programs += 1
        return self._files.flush(self._fds[part])

    def _close(self, part: int) -> None:
        if self._fds[part] >= 0:
            self._files.close(self._fds[part])
        self._fds[part] = -1
        self._sizes[part] = 0

    def _has_head(self, name: str) -> bool:
        """Return True if the head in a part file equals `_head`."""
        fd = self._files.open(name, False)
        if fd < 0:
            return False
        scratch = self._store.scratch
        size = self._files.read_into(fd, 0, scratch, 0, PART_HEAD_SIZE)
        self._files.close(fd)
        return size == PART_HEAD_SIZE and equal(scratch, 0, self._head, 0, PART_HEAD_SIZE)


def descriptor_name(number: int) -> str:
    """Return the name of the file of a group's descriptor."""
    return "G%d.DSC" % number
