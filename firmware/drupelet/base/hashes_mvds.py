"""The id of an MVDS message: SHA-256 of label, group id, timestamp and body, concatenated.

MVDS 0.5.1 and 0.6.0, section "Payloads", as all implementations read it: no lengths of the parts,
an 8-byte little-endian timestamp, no metadata.
"""

import hashlib

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.memory import copy

_BLOCK_SIZE = const(64)
_ID_SIZE = const(32)
_LABEL = b"MESSAGE_ID"


class MvdsMessageHash:
    """Computes message ids in pieces: `start`, `update` for each piece of the body, `digest_into`.

    MicroPython's SHA-256 takes whole buffers only and cannot be restarted. So bytes are passed
    through stored views of one block, and each message costs a hash object and its digest (192 B).
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._block = bytearray(_BLOCK_SIZE)
        self._used = 0
        view = memoryview(self._block)
        # The first 64, 8 and 1 bytes of the block, made here since slicing allocates.
        self._views = [view, view[:8], view[:1]]

    def start(
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
    ) -> None:
        """Begin with 32 bytes at group_id[at], as `hashes.MessageHash.start`.

        The size of the body is not hashed.
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
        """Begin with `size` bytes at group_id[at] and 8 bytes at timestamp[ts_at]."""
        self._hash = hashlib.sha256()
        self._used = 0
        self.update(_LABEL, 0, len(_LABEL))
        self.update(group_id, at, size)
        self.update(timestamp, ts_at, 8)

    def update(self, body: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Hash the next piece of the body, body[at:at+size]."""
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
        """Store the 32-byte id at out[at]; call `start` before the next `update`."""
        used = self._used
        for view in self._views:
            size = len(view)
            while used >= size:
                self._hash.update(view)
                used -= size
                copy(self._block, 0, self._block, size, used)
        digest = self._hash.digest()
        copy(out, at, digest, 0, len(digest))
