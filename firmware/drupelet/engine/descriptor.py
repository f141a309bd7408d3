"""Keep a group's descriptor at its first join; boards unload this module afterwards."""

from drupelet.base.errors import OK
from drupelet.base.limits import ID_SIZE, PART_PUBLISH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StorePort

_KEY = b"describe"


def keep_descriptor(
    store: "StorePort", number: int, client_id: "bytes | bytearray",
    descriptor: "bytes | bytearray",
) -> int:  # fmt: skip
    """Write a group's (number) client id, 32 bytes, and descriptor to its file; OK or a code."""
    assert len(client_id) == ID_SIZE
    spool = store.spool
    spool.part_drop(PART_PUBLISH)
    code = min(spool.part_open(PART_PUBLISH, _KEY, 0, 0), OK)
    code = code or spool.part_append(PART_PUBLISH, client_id, 0, ID_SIZE)
    code = code or spool.part_append(PART_PUBLISH, descriptor, 0, len(descriptor))
    return code or store.descriptor_put(PART_PUBLISH, number)
