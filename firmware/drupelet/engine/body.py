"""A stored body, wherever it is, and the default client, which reads it (BSP v1 5).

A group's client is a port: it finds the dependencies in a body, and decides at delivery, when all
of them are in the log, what becomes of the message. It must not call the node meanwhile.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import CONTENT_HEADER_SIZE, DEPENDENCIES_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.memory import copy
from drupelet.store.states import STATE_DELETED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StorePort

# Results of a client's `validate`.
INVALID = const(0)  # delete the message and all that depends on it
SHARE = const(1)  # deliver it, and send it to the peers that share the group
KEEP = const(2)  # deliver it, and share it only when `Node.share_message` is called
DELETE = const(3)  # the message is valid, but delete it

_IN_BUFFER = const(-1)
_IN_STORE = const(-2)
_EDGES = const(-3)  # what is left of a deleted message in the store


class BodyReader:
    """Reads a stored body in a buffer, a part file or the store; one reader serves all of them."""

    def __init__(self, store: "StorePort") -> None:
        self._store = store
        self._where = _IN_STORE  # or _IN_BUFFER, _EDGES, or a part file
        self._buf: "bytes | bytearray" = b""
        self._at = 0  # offset of the body in the buffer, or its handle in the store
        self.size = 0
        self.group = 0  # row
        self.source = 0  # peer number; 0: ourselves
        self.has_failed = False  # the flash could not be read: no verdict on the message
        self.timestamp = bytearray(TIMESTAMP_SIZE)

    def open_buffer(
        self, group: int, source: int, stamp: "bytes | bytearray", stamp_at: int,
        body: "bytes | bytearray", at: int, size: int,
    ) -> None:  # fmt: skip
        """Open a body in memory."""
        self._where = _IN_BUFFER
        self._buf = body
        self._at = at
        self._set(group, source, size, stamp, stamp_at)

    def open_part(self, group: int, source: int, part: int) -> None:
        """Open a body in a part file."""
        store = self._store
        self._where = part
        size = store.spool.part_size(part) - CONTENT_HEADER_SIZE
        self._set(group, source, size, self.timestamp, 0)
        store.spool.part_read_into(part, ID_SIZE, self.timestamp, 0, TIMESTAMP_SIZE)

    def open_stored(self, group: int, handle: int) -> bool:
        """Open a message of the store, of a deleted one its edges; False if it does not load."""
        store = self._store
        if store.load(handle) != OK:
            return False
        self._where = _IN_STORE
        self._at = handle
        self._set(group, store.source, store.size, store.timestamp, 0)
        if store.state == STATE_DELETED:
            self._where = _EDGES
            self.size = store.edges_size
        return True

    @property
    def bare(self) -> bool:
        """True for a deleted message, of which only the edges are left."""
        return self._where == _EDGES

    def _set(
        self, group: int, source: int, size: int, stamp: "bytes | bytearray", at: int
    ) -> None:
        self.group = group
        self.source = source
        self.size = size
        self.has_failed = False
        copy(self.timestamp, 0, stamp, at, TIMESTAMP_SIZE)

    def read_into(self, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Copy body bytes; return the count, which is less only at the end, or a negative code."""
        if offset + size > self.size:
            size = self.size - offset
        if size <= 0:
            return 0
        if self._where == _IN_BUFFER:
            copy(buf, at, self._buf, self._at + offset, size)
            return size
        if self._where < 0:
            count = self._store.read_into(self._at, offset, buf, at, size)
        else:
            offset += CONTENT_HEADER_SIZE
            count = self._store.spool.part_read_into(self._where, offset, buf, at, size)
        if count != size:
            self.has_failed = True
        return count


class DefaultClient:
    """Bodies as in docs/SPEC.md 4: a count byte, that many ids, payload. Shares every message.

    `mask`: the bits of the first byte that are the count.
    """

    def __init__(self, mask: int = 0xFF) -> None:
        self._mask = mask
        self._byte = bytearray(1)

    def dependencies(self, reader: BodyReader) -> int:
        """Return how many ids the body names, or E_PEER if it is malformed."""
        if not reader.size:
            return 0
        if reader.read_into(0, self._byte, 0, 1) != 1:
            return E_PEER
        count = self._byte[0] & self._mask
        return E_PEER if count > DEPENDENCIES_MAX or 1 + count * ID_SIZE > reader.size else count

    def dependency_into(self, reader: BodyReader, row: int, out: bytearray) -> bool:
        """Copy the id of a dependency to out[0:32]; False if the read fails."""
        return reader.read_into(1 + row * ID_SIZE, out, 0, ID_SIZE) == ID_SIZE

    def validate(self, reader: BodyReader) -> int:  # noqa: ARG002 - a client's shape
        """Return SHARE."""
        return SHARE
