"""Pending messages get their slots back: after a reboot, and where there was no room for one.

Boards let this go after the boot: code is heap.
"""

from drupelet.base.errors import OK
from drupelet.engine.slots import PENDING, USED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.graph import Graph


def readmit(graph: "Graph") -> bool:
    """Give pending messages of the store slots; True when all have one."""
    store = graph.store
    done = True
    handle = store.next_pending(0)
    while handle:
        if store.load(handle) == OK:
            group = graph.members.group_slot(store.group)
            if group >= 0 and graph.slots.find(store.id, 0) < 0:
                done = _admit_again(graph, group, handle) and done
        handle = store.next_pending(handle)
    return done


def _admit_again(graph: "Graph", group: int, handle: int) -> bool:
    store = graph.store
    graph.reader.open_stored(group, handle)
    waits = graph.missing(group) != 0
    store.load(handle)
    slot = graph.admit(store.id, 0, handle, group, store.source, waits)
    if slot < 0:
        return False  # the table is smaller than before the reboot
    graph.slots.flags[slot] = USED | PENDING
    graph.offers.drop_id(store.id, 0)  # a child may have asked for it
    graph.ask_again(slot)
    return True
