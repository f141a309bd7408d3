# host only: Briar's group ids need BLAKE2b
"""Groups of the family of Briar 1.5.19, and a minimal client for them.

Briar's clients keep dependencies inside formats of their own; an owner who knows such a format
passes a client that reads it.
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
    """Takes any body that is not empty as a message without dependencies, and shares it."""

    def dependencies(self, reader: "BodyReader") -> int:
        """Return 0, or E_PEER for an empty body, which Briar does not accept."""
        return 0 if reader.size else E_PEER

    def dependency_into(self, reader: "BodyReader", row: int, out: bytearray) -> bool:  # noqa: ARG002
        """Return False: there are no dependencies."""
        return False

    def validate(self, reader: "BodyReader") -> int:  # noqa: ARG002 - a client's shape
        """Return SHARE."""
        return SHARE


def join(
    node: "Node", client_id: str, major_version: int, descriptor: bytes, flags: int = 0,
    client: "ClientPort | None" = None,
) -> int:  # fmt: skip
    """Join a group of the Briar client `client_id`; return the group's number.

    `client_id`: 1 to 100 bytes of UTF-8. `major_version`: 0 to 2^31 - 1. `descriptor`: up to 16
    KiB, not kept here. `client`: None for `PlainClient`. Raises CapacityError, as `Node.join_id`.
    """
    id = group_id(client_id, major_version, descriptor)
    return node.join_id(id, FAMILY_BSP_0, flags, client or PlainClient())
