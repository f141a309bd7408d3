"""Parents that are not hashed can stand in a circle: such a message is refused (MVDS)."""

from drupelet.base.compat import const
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import equal, fill
from drupelet.engine.body import BodyReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import GraphPort

_MARKED = const(1)  # an ancestor of the new message
_CLIMBED = const(2)  # and its own parents are marked, too


def waits_for_itself(graph: "GraphPort", id: bytearray) -> bool:
    """True when the message that the graph looks at would wait, through others, for itself.

    What waits already is in no circle, so only the ancestors of the new one are read, each once.
    Parents mostly came first, so a pass goes from the last row to the first.
    """
    pending = graph.pending
    marks = pending.marks
    fill(marks, 0, len(marks), 0)
    group = graph.reader.group
    other = BodyReader(graph.store)
    found = _climb(graph, graph.reader, group, id)
    left = True
    while left and not found:
        left = False
        for row in range(pending.rows_max - 1, -1, -1):
            if marks[row] == _MARKED and not found:
                marks[row] = _CLIMBED
                left = True
                if other.open_stored(group, pending.handles[row]):
                    found = _climb(graph, other, group, id)
    return found


def _climb(graph: "GraphPort", reader: BodyReader, group: int, id: bytearray) -> bool:
    """Mark the parents of a message that wait, too; True when `id` is one of its parents."""
    client = graph.finder(group, reader)
    pending = graph.pending
    parent = graph.ids  # behind it is the parent that is missing
    for row in range(client.dependencies(reader)):
        if client.dependency_into(reader, row, parent):
            if equal(parent, 0, id, 0, ID_SIZE):
                return True
            waiting = pending.row_of(graph.store.find(parent, 0))
            if waiting >= 0 and pending.group(waiting) == group and not pending.marks[waiting]:
                pending.marks[waiting] = _MARKED
    return False
