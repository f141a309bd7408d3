# host only: BLAKE2b, which no board has
"""The id of a message of Briar 1.5.19: BLAKE2b-256, labels with a namespace, a root for the body.

    root = HASH(namespace "MESSAGE_BLOCK", 0x01, body)
    id   = HASH(namespace "MESSAGE_ID", 0x01, group id, timestamp, root)

HASH and namespace are those of `records`, which computes the same from a whole body.
"""

from hashlib import blake2b

from drupelet.base.compat import const
from drupelet.base.limits import BODY_SIZE_MAX, ID_SIZE
from drupelet.base.memory import copy
from drupelet.wire.bsp0.records import message_id_of_root, root_label

_TIMESTAMP_SIZE = const(8)


class Bsp0MessageHash:
    """A message's id in pieces: `start`, as many `update` as the body has, `digest_into`."""

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
        """Begin: 32 bytes at group_id[at], 8 at timestamp[ts_at], then `body_size` by `update`."""
        assert 0 <= body_size <= BODY_SIZE_MAX
        self._group = bytes(group_id[at : at + ID_SIZE])
        self._timestamp = bytes(timestamp[ts_at : ts_at + _TIMESTAMP_SIZE])
        self._root = blake2b(root_label(body_size), digest_size=ID_SIZE)

    def update(self, body: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Take in the next piece of the body, body[at:at+size]."""
        assert 0 <= at <= at + size <= len(body)
        self._root.update(memoryview(body)[at : at + size])

    def digest_into(self, out: "bytearray | memoryview", at: int) -> None:
        """Store the 32-byte id at out[at]; `start` comes before the next `update`."""
        made = message_id_of_root(self._group, self._timestamp, self._root.digest())
        copy(out, at, made, 0, ID_SIZE)
