"""Keep the id family of a group, which never changes: another family would mean other message ids.

Imported for a group that is not of the bsp family. A group with a descriptor is of that family;
other groups have a record of their family in the descriptor's place (docs/SPEC.md 5.7).
"""

from drupelet.base.errors import OK, CapacityError, check
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import equal
from drupelet.engine.descriptor import keep_descriptor
from drupelet.engine.members import FAMILIES, FAMILY_BSP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.store.ports import StorePort

# In place of a client id, which is 32 random bytes and therefore never this text.
_NO_CLIENT = b"a group of another family: numb"
assert len(_NO_CLIENT) == ID_SIZE - 1


def keep_family(core: "Core", number: int, family: int) -> None:
    """Record the family of a group. Raises CapacityError if it is of another family."""
    store = core.store
    row = core.members.group_row(number)
    if store.spool.descriptor_size(number) >= 0:
        noted = _noted(store, number)
    elif row >= 0:
        noted = core.members.family(row)
    else:
        noted = family  # a new group, or one of a version that recorded no family
        check(_note(core, number, family), "no room for the family of a group")
    if noted != family:
        raise CapacityError("a group is of one id family for life, and this one is of another")


def _noted(store: "StorePort", number: int) -> int:
    client = bytearray(ID_SIZE)
    store.spool.descriptor_read_into(number, -ID_SIZE, client, 0, ID_SIZE)  # before the descriptor
    family = client[ID_SIZE - 1]
    is_other = equal(client, 0, _NO_CLIENT, 0, ID_SIZE - 1) and family < FAMILIES
    return family if is_other else FAMILY_BSP


def _note(core: "Core", number: int, family: int) -> int:
    if family == FAMILY_BSP:
        return OK  # the descriptor shows it
    return keep_descriptor(core.store, number, _NO_CLIENT + bytes((family,)), b"")
