"""The id of an MVDS message: SHA-256 over label, group id, timestamp and body, end to end.

MVDS 0.5.1 and 0.6.0, section "Payloads", read as all its implementations do: nothing tells the
parts' lengths, the timestamp is 8 bytes little-endian, and metadata is not hashed.
"""

import hashlib

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.memory import copy

_BLOCK_SIZE = const(64)
_ID_SIZE = const(32)
_LABEL = b"MESSAGE_ID"


class MvdsMessageHash:
    """A message's id in pieces: `start`, as many `update` as the body has, `digest_into`.

    MicroPython's SHA-256 takes whole buffers only and cannot begin anew: bytes go to it through
    stored views of one block, and each message costs one hash object and its digest (192 B).
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._block = bytearray(_BLOCK_SIZE)
        self._used = 0
        view = memoryview(self._block)
        # 64, 8 and 1 bytes from the block's beginning: slices made later would allocate.
        self._views = [view, view[:8], view[:1]]

    def start(
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
    ) -> None:
        """Begin as `hashes.MessageHash.start` does: 32 bytes at group_id[at].

        How long the body is does not enter the hash.
        """
        assert body_size >= 0
        self.start_sized(group_id, at, _ID_SIZE, timestamp, ts_at)

    def start_sized(
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        size: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
    ) -> None:
        """Begin: `size` bytes at group_id[at] (any length), 8 at timestamp[ts_at]."""
        self._hash = hashlib.sha256()
        self._used = 0
        self.update(_LABEL, 0, len(_LABEL))
        self.update(group_id, at, size)
        self.update(timestamp, ts_at, 8)

    def update(self, body: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Take in the next piece of the body, body[at:at+size]."""
        if not ON_BOARD:
            assert 0 <= at <= at + size <= len(body)
            self._hash.update(memoryview(body)[at : at + size])
            return
        while size:
            step = min(size, _BLOCK_SIZE - self._used)
            copy(self._block, self._used, body, at, step)
            self._used += step
            at += step
            size -= step
            if self._used == _BLOCK_SIZE:
                self._hash.update(self._views[0])
                self._used = 0

    def digest_into(self, out: "bytearray | memoryview", at: int) -> None:
        """Store the 32-byte id at out[at]; `start` comes before the next `update`."""
        used = self._used
        for view in self._views:
            size = len(view)
            while used >= size:
                self._hash.update(view)
                used -= size
                copy(self._block, 0, self._block, size, used)
        digest = self._hash.digest()
        copy(out, at, digest, 0, len(digest))
