"""Give up parents that no longer exist: full logs dropped them before their children came here.

A peer that is asked for such a parent answers with two ACKs in a row (docs/SPEC.md 4.2). Imported
at the first such answer, mostly after a host was replaced.
"""

from drupelet.base.compat import const
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE
from drupelet.base.memory import equal
from drupelet.engine.inbox import ENTRY_SIZE, OFFERED, REQUESTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core

# While another peer may have a parent, it is not given up before this many requests.
_ASKS_MAX = const(8)


def give_up(core: "Core", peer: int, id: bytearray, at: int) -> None:
    """A peer (row) says that a message is gone: give it up, unless another may have it."""
    store = core.store
    if store.find(id, at):
        return
    inbox = core.inboxes[peer]
    entry = inbox.find(id, at)
    if entry >= 0 and inbox.kind(entry) > REQUESTED:
        return
    sends = _waiting_sends(core, id, at)
    if entry >= 0 and inbox.kind(entry) == REQUESTED:
        sends = max(sends, inbox.sends(entry))
    if sends > 0 and sends < _ASKS_MAX and _may_come(core, peer, id, at):
        return
    if entry >= 0:
        inbox.set_kind(entry, 0)
    if sends > 0 and store.note(id, at):
        core.graph.may_promote = True
        core.promote(core.now_ms)


def _waiting_sends(core: "Core", id: bytearray, at: int) -> int:
    """Return how often a parent of pending messages was requested; 0: none depends on it."""
    pending = core.pending
    sends = 0
    for row in range(pending.rows_max):
        parent = core.graph.next_absent(row, 0) if pending.handles[row] else -1
        while parent >= 0:
            if equal(core.graph.ids, 0, id, at, ID_SIZE):
                sends = max(sends, pending.sends(row))
            parent = core.graph.next_absent(row, parent + 1)
    return sends


def _may_come(core: "Core", peer: int, id: bytearray, at: int) -> bool:
    """Return True while another peer offers the message or was asked for it."""
    for other in range(len(core.inboxes)):
        inbox = core.inboxes[other]
        for entry in range(inbox.offers_max + 1 if other != peer else 0):
            is_requested = OFFERED <= inbox.kind(entry) <= REQUESTED
            if is_requested and equal(inbox.entries, entry * ENTRY_SIZE, id, at, ID_PREFIX_SIZE):
                return True
    return False
