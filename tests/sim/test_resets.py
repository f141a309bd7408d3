"""Stores that are wiped, set back or full: seeds that once failed, and what a wiped node says."""

import pytest

from drupelet.link.link import BATCH, CARRIER_SERIAL, CARRIER_STICK
from drupelet.wire.profiles import PROFILE_BSP_1
from drupelet_tools.sim.carriers import SimStick
from drupelet_tools.sim.device import Spec
from drupelet_tools.sim.seeds import run_seed
from drupelet_tools.sim.visits import visit
from drupelet_tools.sim.world import World


@pytest.mark.parametrize(
    "seed", [68, 1_000_009, 1_000_040, 1_000_045, 1_000_051, 1_000_072, 1_000_325, 1_000_394]
)
def test_seeds_that_once_failed_hold(seed: int) -> None:
    result = run_seed(seed, "resets")
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


def wipe(world: World, name: str) -> None:
    """Empty a store whose node says nothing from then on."""
    node = world.nodes[name]
    world.turn_off(node)
    node.files.wipe()
    node.emptied(77)


def test_a_wiped_node_that_has_nothing_to_say_is_shown_everything_again() -> None:
    world = World(5)
    for name in "ab":
        world.add_node(name, Spec())
    group = world.add_group(b"group", ["a", "b"])
    link = world.add_link("a", "b", CARRIER_SERIAL, PROFILE_BSP_1, BATCH, sealed=True)
    world.start()
    for number in range(20):
        world.node_at(1_000 + number, "ab"[number % 2], lambda node: node.publish(group, 20))
    world.run_until(60_000)
    assert not world.oracle.owed()
    link.up(False)
    wipe(world, "b")
    world.at(200_000, lambda: link.up(True))
    world.run_until(200_000)
    assert world.oracle.owed() == 20
    world.settle(100)
    world.check_end()
    assert len(world.nodes["b"].log()) == 20


@pytest.mark.parametrize("pool", [1, 16])
def test_a_wiped_node_that_has_nothing_to_say_says_so_on_a_stick(pool: int) -> None:
    world = World(6)
    for name in "ab":
        world.add_node(name, Spec(pool=pool))
    group = world.add_group(b"group", ["a", "b"])
    world.add_link("a", "b", CARRIER_STICK, PROFILE_BSP_1, BATCH, 0, sealed=True)
    world.start()
    stick = SimStick()

    def rounds(count: int) -> None:
        for _ in range(count):
            for name in "ab":
                world.node_at(world.now_ms + 1_000, name, lambda node: visit(node, stick))
                world.run_until(world.now_ms + 1_000)

    for number in range(20):
        world.node_at(1_000 + number, "ab"[number % 2], lambda node: node.publish(group, 20))
    world.run_until(2_000)
    rounds(3)
    assert not world.oracle.owed()
    wipe(world, "b")
    world.run_until(world.now_ms + 10_000)
    assert world.oracle.owed() == 20
    rounds(4)
    assert not world.oracle.owed() and len(world.nodes["b"].log()) == 20
    world.check_end()


@pytest.mark.parametrize("segments", [6, 9, 12, 16, 20])
@pytest.mark.parametrize("seed", [7, 8, 9])
def test_two_full_logs_come_to_the_same(segments: int, seed: int) -> None:
    """A share of each log is kept for what enters from the other member.

    With 9, 12 and 20 segments, messages that waited for their parents once took all of that share.
    """
    world = World(seed, save_ms=10_000)
    for name in "ab":
        world.add_node(name, Spec(segments=segments, pending=32, filter_size=8192))
    group = world.add_group(b"group", ["a", "b"])
    link = world.add_link("a", "b", CARRIER_SERIAL, PROFILE_BSP_1, BATCH)
    link.up(False)
    world.start()
    for number in range(400):
        world.node_at(1_000 + number, "ab"[number % 2], lambda node: node.publish(group, 100))
    world.run_until(10_000)
    full = [node.refused for node in world.nodes.values()]
    assert min(full) > 20, "both are full, and neither has any of the other"
    link.up(True)
    world.settle(200)
    assert world.oracle.deliveries == 400 - sum(full)
