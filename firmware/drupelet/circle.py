"""Parents that are not hashed can stand in a circle: such a message is refused (MVDS)."""

from drupelet.graph import HEADED
from drupelet.limits import ID_SIZE
from drupelet.memory import equal
from drupelet.reader import BodyReader
from drupelet.slots import MARKED, PENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.graph import Graph


def waits_for_itself(graph: "Graph", id: bytearray) -> bool:
    """True when the message that the graph looks at would wait, through others, for itself."""
    slots = graph.slots
    group = graph.reader.group
    out = bytearray(ID_SIZE)
    other = BodyReader(graph.store)
    changed = True
    while changed:
        changed = False
        for slot in range(slots.count):
            flags = slots.flags[slot]
            if flags & PENDING and not flags & MARKED and slots.groups[slot] == group:
                other.open_stored(group, slots.handles[slot])
                if _waits_for(graph, other, id, out):
                    slots.flags[slot] |= MARKED
                    changed = True
    found = _waits_for(graph, graph.reader, id, out)
    for slot in range(slots.count):
        slots.flags[slot] &= ~MARKED & 0xFF
    return found


def _waits_for(graph: "Graph", reader: BodyReader, id: bytearray, out: bytearray) -> bool:
    """True when a message names `id`, or one that is marked, as a parent."""
    client = HEADED
    for row in range(client.dependencies(reader)):
        if client.dependency_into(reader, row, out):
            slot = graph.slots.find(out, 0)
            marked = slot >= 0 and graph.slots.flags[slot] & MARKED != 0
            if marked or equal(out, 0, id, 0, ID_SIZE):
                return True
    return False
