"""A node hides a group from a peer for a while, or only accepts what the peer has of it.

What enters a log meanwhile is needed by nobody: a full log may drop it. What is there when the
group is shared again is owed to the peer, and so is all that comes after (docs/simulator.md 1).
"""

from typing import TYPE_CHECKING

from drupelet.engine.members import SHARED, VISIBLE

if TYPE_CHECKING:
    from drupelet_tools.sim.ends import End, Group
    from drupelet_tools.sim.world import World

# A board that sleeps, or has no power, is asked again after so long.
_AGAIN_MS = 5_000


def hide(world: "World", end: "End", group: "Group", visibility: int) -> None:
    """Have a group INVISIBLE to the peer of a link's end, or VISIBLE: accepted only."""
    if world.faults:
        end.visible.discard(group.id)
        end.accepts.discard(group.id)
        if visibility == VISIBLE:
            end.accepts.add(group.id)
        _tell(world, end, group, visibility)


def show(world: "World", end: "End", group: "Group") -> None:
    """Share it again, once the node is there."""
    node = world.nodes[end.node.name]
    if node.node is None:
        world.at(world.now_ms + _AGAIN_MS, lambda: show(world, end, group))
        return
    world.oracle.dropped(node.name, end.peer.name, group.id, node.holds)
    end.accepts.discard(group.id)
    end.visible.add(group.id)
    _tell(world, end, group, SHARED)


def _tell(world: "World", end: "End", group: "Group", visibility: int) -> None:
    node = end.node.node
    world.note("view", end.node.name)
    if node is None:
        return  # its configuration says so at the next boot
    number = group.numbers[end.node.name]
    world.run_in(end.node, lambda: node.share(number, end.number, visibility))
    world.oracle.heard(end.node.name, end.peer.name)  # it is as if nothing had been sent
    if end.node.node is not None:
        end.node.wake_by(world.now_ms)
