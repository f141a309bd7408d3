"""SHA-256 of SDS: ids of our own messages, and the times and groups of SDS-R.

hash(a, b) of specs/sds.md is SHA-256 of the concatenated UTF-8 bytes; its first 8 bytes count,
big-endian, as the JavaScript peer reads it. Remainders are computed byte by byte, since a product
of 64 bits is no small int.
"""

import hashlib

from drupelet.base.hashes_mvds import MvdsMessageHash
from drupelet.base.memory import put_u32

_HEX = b"0123456789abcdef"


class SdsHash(MvdsMessageHash):
    """SHA-256 in pieces, without a label: `begin`, `update` ..., `digest_into`."""

    def begin(self) -> None:
        """Begin a hash; allocates a hash object, 192 B with its digest."""
        self._hash = hashlib.sha256()
        self._used = 0


def _rest(digest: bytearray, m: int) -> int:
    """Return the first 8 bytes, big-endian, modulo m; may allocate if m > 2^21."""
    assert m > 0
    rest = 0
    for at in range(8):
        rest = (rest << 8 | digest[at]) % m
    return rest


class Identity:
    """What a participant computes from ids: `t_req_ms`, `t_resp_ms`, `in_group`, `id_into`."""

    def __init__(self, participant: bytes) -> None:
        self._participant = participant
        self._hash = SdsHash()
        self._digest = bytearray(32)
        self._other = bytearray(32)
        self._length = bytearray(4)

    def _digest_of(
        self, out: bytearray, first: "bytes | bytearray | memoryview", at: int, size: int,
        second: "bytes | bytearray | memoryview", second_at: int, second_size: int,
    ) -> None:  # fmt: skip
        self._hash.begin()
        self._hash.update(first, at, size)
        self._hash.update(second, second_at, second_size)
        self._hash.digest_into(out, 0)

    def t_req_ms(
        self, id: "bytes | bytearray | memoryview", at: int, size: int, t_min: int, t_max: int
    ) -> int:
        """Return the ms from now to T_req of the missing message id[at:at+size]."""
        mine = self._participant
        self._digest_of(self._digest, mine, 0, len(mine), id, at, size)
        return _rest(self._digest, t_max - t_min) + t_min

    def t_resp_ms(
        self, sender: "bytes | bytearray | memoryview", sender_at: int, sender_size: int,
        id: "bytes | bytearray | memoryview", at: int, size: int, t_max: int,
    ) -> int:  # fmt: skip
        """Return the ms from now to T_resp for a message of a sender; 0 if we are the sender."""
        mine = self._participant
        digest = self._digest
        other = self._other
        self._digest_of(digest, mine, 0, len(mine), mine, 0, 0)
        self._digest_of(other, sender, sender_at, sender_size, mine, 0, 0)
        for index in range(8):
            digest[index] ^= other[index]
        distance = _rest(digest, t_max)
        self._digest_of(other, id, at, size, mine, 0, 0)
        rest = 0
        for index in range(8):
            rest = ((rest << 8) + distance * other[index]) % t_max
        return rest

    def in_group(
        self, sender: "bytes | bytearray | memoryview", sender_at: int, sender_size: int,
        id: "bytes | bytearray | memoryview", at: int, size: int, groups: int,
    ) -> bool:  # fmt: skip
        """Return True if we are in the response group of a sender's message."""
        if groups == 1:
            return True
        mine = self._participant
        self._digest_of(self._digest, mine, 0, len(mine), id, at, size)
        self._digest_of(self._other, sender, sender_at, sender_size, id, at, size)
        return _rest(self._digest, groups) == _rest(self._other, groups)

    def id_into(
        self, out: bytearray, at: int, channel: bytes, lamport: bytearray,
        content: "bytes | bytearray | memoryview", content_at: int, size: int,
    ) -> None:  # fmt: skip
        """Store the id of our own message at out[at], 64 hex digits (docs/SPEC.md 12.1).

        `lamport`: 8 bytes, little-endian.
        """
        made = self._hash
        made.begin()
        self._part(self._participant, 0, len(self._participant))
        self._part(channel, 0, len(channel))
        self._part(lamport, 0, 8)
        self._part(content, content_at, size)
        made.digest_into(self._digest, 0)
        for index in range(32):
            byte = self._digest[index]
            out[at + 2 * index] = _HEX[byte >> 4]
            out[at + 2 * index + 1] = _HEX[byte & 15]

    def _part(self, data: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        put_u32(self._length, 0, size)
        self._hash.update(self._length, 0, 4)
        self._hash.update(data, at, size)
