# host only: BLAKE2b, which no board has
"""Message ids of Briar 1.5.19: BLAKE2b-256 with namespace labels and a root hash of the body.

    root = HASH(namespace "MESSAGE_BLOCK", 0x01, body)
    id   = HASH(namespace "MESSAGE_ID", 0x01, group id, timestamp, root)

HASH and namespace are defined in `records`, which computes the same id from a whole body.
"""

from hashlib import blake2b

from drupelet.base.compat import const
from drupelet.base.limits import BODY_SIZE_MAX, ID_SIZE
from drupelet.base.memory import copy
from drupelet.wire.bsp0.records import message_id_of_root, root_label

_TIMESTAMP_SIZE = const(8)


class Bsp0MessageHash:
    """Computes a message id from pieces: `start`, `update` for each piece, then `digest_into`."""

    def __init__(self) -> None:
        self._group = b""
        self._timestamp = b""
        self._root = blake2b(digest_size=ID_SIZE)

    def start(
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
    ) -> None:
        """Begin an id: 32 bytes at group_id[at], 8 at timestamp[ts_at], then `body_size` bytes."""
        assert 0 <= body_size <= BODY_SIZE_MAX
        self._group = bytes(group_id[at : at + ID_SIZE])
        self._timestamp = bytes(timestamp[ts_at : ts_at + _TIMESTAMP_SIZE])
        self._root = blake2b(root_label(body_size), digest_size=ID_SIZE)

    def update(self, body: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Hash the next piece of the body, body[at:at+size]."""
        assert 0 <= at <= at + size <= len(body)
        self._root.update(memoryview(body)[at : at + size])

    def digest_into(self, out: "bytearray | memoryview", at: int) -> None:
        """Store the 32-byte id at out[at]; call `start` before the next `update`."""
        message_id = message_id_of_root(self._group, self._timestamp, self._root.digest())
        copy(out, at, message_id, 0, ID_SIZE)
