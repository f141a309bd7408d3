"""Ack amnesty: a peer that lost its store is shown everything again, as if it held nothing.

Loaded when that happens: the seal has seen another `store_gen` of the peer (docs/SPEC.md 11).
"""

from drupelet.states import BUNDLED, HOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import LinkPort


def forget_holds(link: "LinkPort") -> None:
    """Forget what the link's peer acknowledged and what a stick took along; save the node next."""
    core = link.core
    window = core.window
    base = link.peer * core.slots.count
    for slot in range(core.slots.count):
        state = core.slots.states[base + slot]
        window.set_state(slot, link.peer, state & ~(HOLD | BUNDLED))
    window.lost[link.peer] = window.newest
    window.bundled[link.peer] = 0
    window.show_all(link.peer)
    window.dirty = True
    link.attention = True
