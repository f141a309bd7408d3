"""The hashes of BSP ids.

`Blake2s` has one interface over hashlib (CPython) and our own BLAKE2s (boards): `start`, `update`,
`digest_into`; 32 bytes; it can be used again without allocating.

BSP v1 section 1.3 hashes several arguments as one: HASH(x1, ..., xn) is the hash of all arguments,
each preceded by its length, 4 bytes big-endian.
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.limits import BODY_SIZE_MAX, DESCRIPTOR_SIZE_MAX
from drupelet.base.memory import copy, put_u32

if ON_BOARD:
    from drupelet.base._blake2s import Blake2s
else:
    from drupelet.base._blake2s_hashlib import Blake2s  # type: ignore[assignment]

__all__ = ("Blake2s", "GroupHash", "MessageHash", "group_id_into")

_ID_SIZE = const(32)  # as `limits.ID_SIZE`; here, so that it folds in this module

_GROUP_LABEL = b"\x00\x00\x00\x08GROUP_ID\x00\x00\x00\x20"
_MESSAGE_LABEL = b"\x00\x00\x00\x0aMESSAGE_ID\x00\x00\x00\x20"
# What is hashed between label and body: group id [32], length of the timestamp u32, timestamp [8],
# length of the body u32. Scratch of all hashes, filled and hashed in one call.
_TIMESTAMP_AT = const(36)
_LENGTH_AT = const(44)
_HEAD_SIZE = const(48)
_head = bytearray(_HEAD_SIZE)
_head[_TIMESTAMP_AT - 1] = 8


def group_id_into(
    out: "bytearray | memoryview",
    client_id: "bytes | bytearray | memoryview",
    descriptor: "bytes | bytearray | memoryview",
    size: int,
) -> None:
    """Store a group's id at out[0:32]: HASH("GROUP_ID", client_id, descriptor), BSP v1 2.2.

    `client_id`: 32 bytes. `descriptor`: the first `size` bytes of the buffer. Allocates a hash, as
    groups are made only while a node is set up.
    """
    assert len(client_id) == _ID_SIZE
    assert 0 <= size <= DESCRIPTOR_SIZE_MAX
    digest = GroupHash()
    digest.start(client_id, 0, size)
    digest.update(descriptor, 0, size)
    digest.digest_into(out, 0)


class GroupHash(Blake2s):
    """Computes a group's id in pieces: HASH("GROUP_ID", client_id, descriptor), BSP v1 2.2.

    Call `start`, `update` for each piece of the descriptor, then `digest_into`.
    """

    def start(  # type: ignore[override]
        self, client_id: "bytes | bytearray | memoryview", at: int, size: int
    ) -> None:
        """Begin with 32 bytes at client_id[at]; `size` bytes of descriptor follow by `update`."""
        put_u32(_head, _LENGTH_AT, size)
        Blake2s.start(self)
        self.update(_GROUP_LABEL, 0, len(_GROUP_LABEL))
        self.update(client_id, at, _ID_SIZE)
        self.update(_head, _LENGTH_AT, 4)


class MessageHash(Blake2s):
    """Computes message ids in pieces: HASH("MESSAGE_ID", group_id, timestamp, body), BSP v1 2.3.

    Call `start`, `update` for each piece of the body, then `digest_into`; and again.
    """

    def start(  # type: ignore[override]
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
    ) -> None:
        """Begin with 32 bytes at group_id[at] and 8 at timestamp[ts_at]; the body follows."""
        assert 0 <= body_size <= BODY_SIZE_MAX
        copy(_head, 0, group_id, at, _ID_SIZE)
        copy(_head, _TIMESTAMP_AT, timestamp, ts_at, 8)
        put_u32(_head, _LENGTH_AT, body_size)
        Blake2s.start(self)
        self.update(_MESSAGE_LABEL, 0, len(_MESSAGE_LABEL))
        self.update(_head, 0, _HEAD_SIZE)
