"""Read in a group's descriptor in pieces, at a join; boards unload this module afterwards."""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.hashes import GroupHash
from drupelet.base.limits import DESCRIPTOR_SIZE_MAX, ID_SIZE, PART_PUBLISH, SCRATCH_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core

_KEY = b"describe"


def describe_begin(core: "Core", client_id: "bytes | bytearray") -> int:
    """Begin a group's descriptor; return OK or a code."""
    assert len(client_id) == ID_SIZE
    core.store.spool.part_drop(PART_PUBLISH)
    code = core.store.spool.part_open(PART_PUBLISH, _KEY, 0, 0)
    return code if code < 0 else core.store.spool.part_append(PART_PUBLISH, client_id, 0, ID_SIZE)


def describe_append(core: "Core", piece: "bytes | bytearray", at: int, size: int) -> int:
    """Append `size` bytes to the descriptor; E_CAPACITY if it exceeds DESCRIPTOR_SIZE_MAX."""
    if core.store.spool.part_size(PART_PUBLISH) + size > ID_SIZE + DESCRIPTOR_SIZE_MAX:
        return E_CAPACITY
    return core.store.spool.part_append(PART_PUBLISH, piece, at, size)


def describe_end(core: "Core", id: bytearray) -> int:
    """Compute the group id from the descriptor; return OK or a code."""
    store = core.store
    size = store.spool.part_size(PART_PUBLISH)
    scratch = core.graph.ids
    if store.spool.part_read_into(PART_PUBLISH, 0, scratch, 0, ID_SIZE) != ID_SIZE:
        return E_STORAGE
    hashing = GroupHash()
    hashing.start(scratch, 0, size - ID_SIZE)
    at = ID_SIZE
    while at < size:
        count = store.spool.part_read_into(PART_PUBLISH, at, scratch, 0, SCRATCH_SIZE)
        if count <= 0:
            return E_STORAGE
        hashing.update(scratch, 0, count)
        at += count
    hashing.digest_into(id, 0)
    return OK
