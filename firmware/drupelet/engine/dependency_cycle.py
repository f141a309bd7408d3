"""Refuse messages whose parents form a cycle, which MVDS ids do not prevent: they omit parents."""

from drupelet.base.compat import const
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import equal, fill
from drupelet.engine.body import BodyReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import GraphPort

_MARKED = const(1)  # an ancestor of the new message, pending
_CLIMBED = const(2)  # its own parents are marked as well


def waits_for_itself(graph: "GraphPort", id: bytearray) -> bool:
    """Return True if the message that the graph has open would wait, through others, for itself.

    Pending messages form no cycle, so only the ancestors of the new message are read, each once.
    Parents mostly arrived first, so each pass goes from the last row to the first.
    """
    pending = graph.pending
    marks = pending.marks
    fill(marks, 0, len(marks), 0)
    group = graph.reader.group
    ancestor = BodyReader(graph.store)
    is_cycle = _climb(graph, graph.reader, group, id)
    has_marked = True
    while has_marked and not is_cycle:
        has_marked = False
        for row in range(pending.rows_max - 1, -1, -1):
            if marks[row] == _MARKED and not is_cycle:
                marks[row] = _CLIMBED
                has_marked = True
                if ancestor.open_stored(group, pending.handles[row]):
                    is_cycle = _climb(graph, ancestor, group, id)
    return is_cycle


def _climb(graph: "GraphPort", reader: BodyReader, group: int, id: bytearray) -> bool:
    """Mark the pending parents of a message; return True if `id` is one of its parents."""
    client = graph.finder(group, reader)
    pending = graph.pending
    parent = graph.ids  # the half after it holds a missing parent: keep that
    for row in range(client.dependencies(reader)):
        if client.dependency_into(reader, row, parent):
            if equal(parent, 0, id, 0, ID_SIZE):
                return True
            waiting = pending.row_of(graph.store.find(parent, 0))
            if waiting >= 0 and pending.group(waiting) == group and not pending.marks[waiting]:
                pending.marks[waiting] = _MARKED
    return False
