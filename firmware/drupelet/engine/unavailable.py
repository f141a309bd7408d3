"""Parents that nobody has any more: a full log dropped them, and who depends on them came late.

Who is asked for one tells it with an ACK of it, twice in a row (docs/SPEC.md 4.2). Loaded when
that happens: after a host was replaced, mostly.
"""

from drupelet.base.compat import const
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE
from drupelet.base.memory import equal
from drupelet.engine.graph import ASK_AGAIN
from drupelet.engine.slots import OFFERED, REQUESTED, WANTED
from drupelet.store.reader import STATE_GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.graph import Graph
    from drupelet.engine.slots import OfferPool

# While another peer may have a parent, it is not given up before so many requests.
_SENDS = const(8)


def _may_come(offers: "OfferPool", entry: int) -> bool:
    """True while a parent may come from another peer, which is given some time for it."""
    for other in range(offers.count if offers.send_count(entry) < _SENDS else 0):
        waits = other != entry and OFFERED <= offers.kinds[other] <= WANTED
        at = other * ID_SIZE
        if waits and equal(offers.ids, at, offers.ids, entry * ID_SIZE, ID_PREFIX_SIZE):
            return True
    return False


def gone(core: "Core", entry: int) -> None:
    """What a peer offered, or a parent that is wanted from it, is not there any more, it says."""
    offers = core.offers
    at = entry * ID_SIZE
    wanted = offers.kinds[entry] >= REQUESTED  # of what came too early, too
    if wanted and _may_come(offers, entry):
        return
    offers.kinds[entry] = 0
    if wanted and core.store.find(offers.ids, at) <= 0 and core.store.note(offers.ids, at):
        core.graph.todo |= ASK_AGAIN
        core.promote(core.now_ms)


def ask_once(graph: "Graph", group: int, source: int) -> None:
    """Who sends what depends on a parent that others have no more may have that, too."""
    peer = graph.members.peer_slot(source)
    client = graph.finder(group, graph.reader)
    for row in range(client.dependencies(graph.reader) if peer >= 0 else 0):
        there = client.dependency_into(graph.reader, row, graph.ids)
        if there and graph.state(group) == STATE_GONE and graph.store.find(graph.ids, 0) <= 0:
            graph.offers.add(graph.ids, 0, peer, OFFERED, 0)
