"""Parents that nobody sends any more: a full log dropped them.

Who asks for one gets an ACK of it instead. What depends on it then enters the log without; if it
comes from another peer, it enters after (docs/SPEC.md 4.2). Loaded when that happens: after a
host was replaced, mostly.
"""

from drupelet.errors import OK
from drupelet.flashread import STATE_DELETED, STATE_GONE, STATE_PENDING
from drupelet.graph import ASK_AGAIN, LACKS
from drupelet.limits import ID_SIZE
from drupelet.members import SHARED
from drupelet.memory import copy, equal
from drupelet.slots import ABSENT, OWED, WANTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core
    from drupelet.graph import Graph
    from drupelet.ports import ClientPort
    from drupelet.slots import OfferPool
    from drupelet.sync import Exchange


def _entry(
    offers: "OfferPool", kind: int, id: "bytes | bytearray | memoryview", at: int, peer: int = -1
) -> int:  # fmt: skip
    for entry in range(offers.count):
        fits = offers.kinds[entry] == kind and (peer < 0 or offers.peer_of(entry) == peer)
        if fits and equal(offers.ids, entry * ID_SIZE, id, at, ID_SIZE):
            return entry
    return -1


def missing(graph: "Graph", group: int, client: "ClientPort", count: int) -> int:
    """For how many of its `count` dependencies the reader's message has to wait all the same."""
    waits = 0
    for row in range(count):
        there = client.dependency_into(graph.reader, row, graph.ids)
        pending = there and graph.state(group) == STATE_PENDING
        if pending and _entry(graph.offers, ABSENT, graph.ids, 0) < 0:
            waits += 1
            copy(graph.ids, ID_SIZE, graph.ids, 0, ID_SIZE)
    return waits


def acked(core: "Core", peer: int, id: "bytes | bytearray | memoryview", at: int) -> None:
    """A peer acknowledges a parent that is wanted: from it, or from somebody else."""
    entry = _entry(core.offers, WANTED, id, at, peer)
    if entry >= 0:
        core.offers.kinds[entry] = ABSENT
        core.graph.todo |= LACKS | ASK_AGAIN
        core.promote(core.now_ms)


def requested(
    link: "Exchange", handle: int, id: "bytes | bytearray | memoryview", at: int
) -> None:  # fmt: skip
    """The peer asks for what our log has dropped: it is told, if it may know of it.

    What a client deleted keeps its edges, and is met with silence: that was the client's will.
    """
    core = link.core
    store = core.store
    there = store.load(handle) == OK and store.state in (STATE_GONE, STATE_DELETED)
    group = core.members.group_slot(store.group) if there and not store.edges_size else -1
    if group >= 0 and link.sees(group) == SHARED:
        core.offers.add(id, at, link.peer, OWED, link.epoch)
        link.attention = True
