"""What happens to whole devices and their keys: wiped, restored, given new keys, copied.

wipe(world, node)              the store is empty, and has another number; the keys stay
keep(node), restore(world, node)   a host's database and keys as they were (`drupelet restore`)
rotate(world, link)            the first end gives the other one a new root
clone(world, end)              somebody with a copy of this end's keys sends beside it
"""

from drupelet.seal.issue import rekey
from drupelet.seal.seal import CLASS_LIVE, Seal, SealContext
from drupelet_tools.sim.device import SimNode
from drupelet_tools.sim.ends import End, Link
from drupelet_tools.sim.sealing import SimCarrier, issue
from drupelet_tools.sim.world import World
from drupelet_transports.seal.sealed_carrier import Sealed

_GENS = 1 << 30
_ROOT_SIZE = 32


def wipe(world: World, node: SimNode) -> None:
    """Its store is emptied while it is off; it boots as one that has never heard of anything."""
    world.turn_off(node)
    node.files.wipe()
    if node.database is not None:
        node.database.wipe()
    node.emptied(1 + node.draw(_GENS))


def keep(node: SimNode) -> None:
    """Copy a host's database and its keys, as `drupelet backup` does."""
    if node.node is None or node.database is None:
        return
    node.save()
    if node.database.volatile():
        return
    records = [dict(end.keys.records) if end.keys is not None else {} for end in node.ends]
    node.kept = (node.database.copied(), records)


def restore(world: World, node: SimNode) -> None:
    """Set a host back to the copy; its store has another number from now on."""
    if node.kept is None or node.database is None:
        return
    world.turn_off(node)
    copy, records = node.kept
    node.database.put_back(copy)
    for end, old in zip(node.ends, records, strict=True):
        end.accepted.clear()  # it may accept again the frames that it took after the copy
        if end.keys is not None:
            end.keys.records = dict(old)
    node.emptied(1 + node.draw(_GENS))


def rotate(world: World, link: Link) -> None:
    """Give a sealed line new keys, which the issuer repeats until the peer uses them.

    Does nothing while the peer does not yet use the keys of the last rotation.
    """
    end = link.ends[0]
    seal = end.seal
    if end.keys is None or seal is None or end.transport is None or end.node.node is None:
        return
    if end.rotation is not None and seal.generation_in < end.rotation[1]:
        return
    root = bytes(end.node.draw(256) for _ in range(_ROOT_SIZE))
    generation = seal.generation + 1
    if generation != seal.generation_in + 1:
        return

    def begin() -> None:
        assert end.keys is not None
        rekey(end.keys, root, end.keys.kid, generation, 0)
        end.rotation = (root, generation)
        issue(end)
        world.rotations += 1

    world.run_in(end.node, begin)


def clone(world: World, end: End) -> None:
    """Boot a second device with this end's keys; it seals and sends the end's latest frames."""
    if end.keys is None or end.wire is None or not end.recent_frames:
        return
    draw = world.drawer(f"clone {end.node.name} {world.now_ms}")
    context = SealContext(world.aead, lambda: draw(256), end.node.store_gen.to_bytes(4, "big"))
    seal = Seal(context, end.keys.copied(), CLASS_LIVE)
    if seal.load() < 0:
        return
    twin = Sealed(SimCarrier(world, end), seal, end.node.clock_ms, bytearray(1024))
    world.clones += 1
    for frame in end.recent_frames:
        twin.send(bytearray(frame), min(len(frame), twin.frame_size_max))
