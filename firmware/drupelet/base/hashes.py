"""The hashes that ids are made of.

`Blake2s` is one interface over hashlib (CPython) or our own BLAKE2s (boards): `start`, `update`,
`digest_into`, 32 bytes, reusable without allocating.

BSP v1 section 1.3 hashes several arguments as one: HASH(x1, ..., xn) is the hash of every
argument behind its own length, 4 bytes big-endian.
"""

from drupelet.base.compat import ON_BOARD, const
from drupelet.base.limits import BODY_SIZE_MAX, DESCRIPTOR_SIZE_MAX
from drupelet.base.memory import put_u32

if ON_BOARD:
    from drupelet.base._blake2s import Blake2s
else:
    from drupelet.base._blake2s_hashlib import Blake2s  # type: ignore[assignment]

__all__ = ("Blake2s", "GroupHash", "MessageHash", "group_id_into")

_ID_SIZE = const(32)  # folds here; drupelet.base.limits.ID_SIZE elsewhere

_GROUP_LABEL = b"\x00\x00\x00\x08GROUP_ID\x00\x00\x00\x20"
_MESSAGE_LABEL = b"\x00\x00\x00\x0aMESSAGE_ID\x00\x00\x00\x20"
_TIMESTAMP_LENGTH = b"\x00\x00\x00\x08"
_length = bytearray(4)  # of what is hashed now


def group_id_into(
    out: "bytearray | memoryview",
    client_id: "bytes | bytearray | memoryview",
    descriptor: "bytes | bytearray | memoryview",
    size: int,
) -> None:
    """Store the group's id at out[0:32]: HASH("GROUP_ID", client_id, descriptor), BSP v1 2.2.

    `client_id` has 32 bytes, `descriptor` the first `size` of its buffer. Groups are made while
    a node is set up: this allocates a hash of its own.
    """
    assert len(client_id) == _ID_SIZE
    assert 0 <= size <= DESCRIPTOR_SIZE_MAX
    digest = GroupHash()
    digest.start(client_id, 0, size)
    digest.update(descriptor, 0, size)
    digest.digest_into(out, 0)


class GroupHash(Blake2s):
    """A group's id in pieces: HASH("GROUP_ID", client_id, descriptor), BSP v1 2.2.

    `start`, as many `update` as the descriptor has pieces, `digest_into`.
    """

    def start(  # type: ignore[override]
        self, client_id: "bytes | bytearray | memoryview", at: int, size: int
    ) -> None:
        """Begin: 32 bytes at client_id[at], then a descriptor of `size` bytes by `update`."""
        put_u32(_length, 0, size)
        Blake2s.start(self)
        self.update(_GROUP_LABEL, 0, len(_GROUP_LABEL))
        self.update(client_id, at, _ID_SIZE)
        self.update(_length, 0, 4)


class MessageHash(Blake2s):
    """A message's id in pieces: HASH("MESSAGE_ID", group_id, timestamp, body), BSP v1 2.3.

    `start`, as many `update` as the body has pieces, `digest_into`; then `start` again.
    """

    def start(  # type: ignore[override]
        self,
        group_id: "bytes | bytearray | memoryview",
        at: int,
        timestamp: "bytes | bytearray | memoryview",
        ts_at: int,
        body_size: int,
    ) -> None:
        """Begin: 32 bytes at group_id[at], 8 at timestamp[ts_at], then `body_size` by `update`."""
        assert 0 <= body_size <= BODY_SIZE_MAX
        put_u32(_length, 0, body_size)
        Blake2s.start(self)
        self.update(_MESSAGE_LABEL, 0, len(_MESSAGE_LABEL))
        self.update(group_id, at, _ID_SIZE)
        self.update(_TIMESTAMP_LENGTH, 0, 4)
        self.update(timestamp, ts_at, 8)
        self.update(_length, 0, 4)
