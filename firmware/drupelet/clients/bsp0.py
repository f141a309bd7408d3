# host only: Briar's group ids need BLAKE2b
"""Groups of the family of Briar 1.5.19, and the least that a client of one does.

Briar's clients keep what a message depends on inside their own formats; whoever knows a format
brings a client that reads it.
"""

from drupelet.base.errors import E_PEER
from drupelet.engine.body import SHARE
from drupelet.engine.members import FAMILY_BSP_0
from drupelet.wire.bsp0.records import group_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.body import BodyReader
    from drupelet.engine.ports import ClientPort
    from drupelet.node import Node


class PlainClient:
    """Any body but an empty one is a message that depends on nothing and is shared."""

    def dependencies(self, reader: "BodyReader") -> int:
        """No ids; E_PEER for an empty body, which Briar does not take."""
        return 0 if reader.size else E_PEER

    def dependency_into(self, reader: "BodyReader", row: int, out: bytearray) -> bool:  # noqa: ARG002
        """There is none."""
        return False

    def validate(self, reader: "BodyReader") -> int:  # noqa: ARG002 - a client's shape
        """Always SHARE."""
        return SHARE


def join(
    node: "Node", client_id: str, major_version: int, descriptor: bytes, flags: int = 0,
    client: "ClientPort | None" = None,
) -> int:  # fmt: skip
    """Become a member of a group of Briar's client `client_id`; returns its number.

    client_id: 1 to 100 bytes of UTF-8; major_version: 0..2^31 - 1; descriptor: up to 16 KiB, kept
    by its owner; client: None for `PlainClient`. Raises CapacityError, as `Node.join_id` does.
    """
    id = group_id(client_id, major_version, descriptor)
    return node.join_id(id, FAMILY_BSP_0, flags, client or PlainClient())
