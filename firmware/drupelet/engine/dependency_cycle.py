"""Parents that are not hashed can stand in a circle: such a message is refused (MVDS)."""

from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import equal
from drupelet.engine.body import BodyReader
from drupelet.engine.graph import HEADED
from drupelet.engine.slots import CLIMBED, MARKED, PENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.graph import Graph


def waits_for_itself(graph: "Graph", id: bytearray) -> bool:
    """True when the message that the graph looks at would wait, through others, for itself.

    What waits already is in no circle, so only the ancestors of the new one are read, each once.
    Parents mostly came first, so a pass goes from the last slot to the first.
    """
    slots = graph.slots
    group = graph.reader.group
    other = BodyReader(graph.store)
    found = _climb(graph, graph.reader, group, id)
    left = True
    while left and not found:
        left = False
        for slot in range(slots.count - 1, -1, -1):
            if slots.flags[slot] & (MARKED | CLIMBED) == MARKED and not found:
                slots.flags[slot] |= CLIMBED
                left = True
                if other.open_stored(group, slots.handles[slot]):
                    found = _climb(graph, other, group, id)
    for slot in range(slots.count):
        slots.flags[slot] &= ~(MARKED | CLIMBED) & 0xFF
    return found


def _climb(graph: "Graph", reader: BodyReader, group: int, id: bytearray) -> bool:
    """Mark the parents of a message that wait, too; True when `id` is one of its parents."""
    client = HEADED
    slots = graph.slots
    parent = graph.ids  # behind it is the parent that is missing
    for row in range(client.dependencies(reader)):
        if client.dependency_into(reader, row, parent):
            if equal(parent, 0, id, 0, ID_SIZE):
                return True
            slot = slots.find(parent, 0)
            if slot >= 0 and slots.flags[slot] & PENDING and slots.group(slot) == group:
                slots.flags[slot] |= MARKED
    return False
