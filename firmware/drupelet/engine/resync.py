"""Ack amnesty: a peer that lost its store is shown everything again, as if it held nothing.

Loaded when that happens: the seal has seen another `store_gen` of the peer (docs/SPEC.md 11).
"""

from drupelet.engine.states import BUNDLED, HOLD, QUEUED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import LinkPort


def forget_holds(link: "LinkPort") -> None:
    """Forget what the link's peer acknowledged and what a stick took along; save the node next."""
    core = link.core
    window = core.window
    base = link.peer * core.slots.count
    for slot in range(core.slots.count):
        state = core.slots.states[base + slot]
        # Not queued any more: the oldest of the log come first, and may need the room.
        window.set_state(slot, link.peer, state & ~(HOLD | BUNDLED | QUEUED))
    window.lose(link.peer)
    window.show_all(link.peer)
    window.dirty = True
    link.attention = True
