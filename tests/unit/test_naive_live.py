"""Our node against naive ones that know the texts alone: bad lines, both modes, same sets."""

import pytest

from drupelet.node import (
    BATCH,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from drupelet.wire.profiles import PROFILE_BSP_0
from helpers import Draw
from helpers_naive import FAULTS, FIELDS, Naive, NaiveMvds, Ours, World
from naive import mvds
from repeats import few

# One mode for all, or every node another than the one before it.
MODES = {"batch": (BATCH,), "interactive": (INTERACTIVE,), "mixed": (BATCH, INTERACTIVE)}
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@modes
@pytest.mark.parametrize("seed", few(3, range(6)))
def test_bsp_with_a_naive_device(seed: int, mode: tuple) -> None:
    draw = Draw(seed)
    world = World(draw, [Ours("A", draw), Naive("N", draw)], ["AN"], mode, **FAULTS)
    world.publish(40)
    world.agree(4_000)


@modes
@pytest.mark.parametrize("seed", range(2))
def test_bsp_between_two_naive_devices(seed: int, mode: tuple) -> None:
    draw = Draw(seed + 20)
    nodes = [Naive("M", draw), Ours("A", draw), Naive("N", draw)]
    world = World(draw, nodes, ["MA", "AN"], mode, **FAULTS)
    world.publish(25)
    world.agree(4_000)


@modes
def test_bsp_with_a_naive_device_and_four_slots(mode: tuple) -> None:
    draw = Draw(40)
    nodes = [Ours("A", draw, pool=4, offers=4), Naive("N", draw)]
    world = World(draw, nodes, ["AN"], mode, **FAULTS)
    world.publish(15)
    world.agree(8_000)


def test_bsp_between_naive_devices_alone() -> None:
    """What the others lean on: the naive ones agree with each other."""
    for mode in MODES.values():
        draw = Draw(50)
        world = World(draw, [Naive(n, draw) for n in "LMN"], ["LM", "MN", "NL"], mode, **FAULTS)
        world.publish(10)
        world.agree(4_000)


answers = pytest.mark.parametrize("answer", [mvds.LITERAL, mvds.ACKNOWLEDGING, mvds.SILENT])


@modes
@answers
@pytest.mark.parametrize("seed", range(3))
def test_mvds_with_a_naive_node(seed: int, answer: str, mode: tuple) -> None:
    draw = Draw(seed + 60)
    nodes = [Ours("A", draw, PROFILE_MVDS_1), NaiveMvds("N", draw, answer=answer)]
    world = World(draw, nodes, ["AN"], mode, **FAULTS)
    world.publish(40)
    world.agree(4_000)


@modes
@answers
def test_mvds_between_two_naive_nodes(answer: str, mode: tuple) -> None:
    draw = Draw(70)
    nodes = [
        NaiveMvds("M", draw, answer=answer),
        Ours("A", draw, PROFILE_MVDS_1),
        NaiveMvds("N", draw),
    ]
    world = World(draw, nodes, ["MA", "AN"], mode, **FAULTS)
    world.publish(25)
    world.agree(6_000)


@modes
@answers
def test_mvds_through_a_naive_node(answer: str, mode: tuple) -> None:
    draw = Draw(80)
    ends = [Ours(name, draw, PROFILE_MVDS_1) for name in "AB"]
    nodes = [ends[0], NaiveMvds("N", draw, answer=answer), ends[1]]
    world = World(draw, nodes, ["AN", "NB"], mode, **FAULTS)
    world.publish(25)
    world.agree(6_000)


@modes
def test_mvds_with_a_naive_node_and_four_slots(mode: tuple) -> None:
    draw = Draw(90)
    nodes = [Ours("A", draw, PROFILE_MVDS_1, pool=4, offers=4), NaiveMvds("N", draw)]
    world = World(draw, nodes, ["AN"], mode, **FAULTS)
    world.publish(15)
    world.agree(10_000)


# --- peers as they are: reboots, parents that are repeated, bodies of 6 KB ---

PROFILES = {
    "mvds-1": PROFILE_MVDS_1,
    "mvds-nested": PROFILE_MVDS_NESTED,
    "mvds-5001": PROFILE_MVDS_5001,
    "bsp-1": PROFILE_BSP_1,
    "bsp-0": PROFILE_BSP_0,
}
profiles = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
LARGE = {"frame_size": 8192, "sizes": (0, 40, 200, 882, 2_000, 6_000)}


def peer_of(name: str, draw: Draw, profile: int) -> Naive | NaiveMvds:
    """A peer that repeats parents, and in MVDS is silent to an OFFER of what it holds.

    In BSP it may not be silent: an OFFER of what is held is acknowledged (4.1).
    """
    if profile in FIELDS:
        return NaiveMvds(name, draw, profile, mvds.SILENT, repeats=True)
    return Naive(name, draw, profile, repeats=True)


@modes
@profiles
def test_with_a_silent_peer_that_repeats_parents_and_reboots(profile: int, mode: tuple) -> None:
    draw = Draw(profile + 100)
    nodes = [Ours("A", draw, profile), peer_of("N", draw, profile)]
    world = World(draw, nodes, ["AN"], mode, **LARGE, **FAULTS)
    world.publish(36, restart_every=3)
    world.agree(4_000)


@modes
@profiles
def test_between_two_silent_peers_with_few_slots(profile: int, mode: tuple) -> None:
    draw = Draw(profile + 110)
    peers = [peer_of(name, draw, profile) for name in "MN"]
    nodes = [peers[0], Ours("A", draw, profile, pool=8, offers=8), peers[1]]
    world = World(draw, nodes, ["MA", "AN"], mode, **LARGE, **FAULTS)
    world.publish(16, restart_every=4)
    world.agree(8_000)


@modes
@profiles
def test_two_of_ours_with_a_silent_peer_between_them(profile: int, mode: tuple) -> None:
    draw = Draw(profile + 120)
    ends = [Ours(name, draw, profile) for name in "AB"]
    nodes = [ends[0], peer_of("N", draw, profile), ends[1]]
    world = World(draw, nodes, ["AN", "NB"], mode, **LARGE, **FAULTS)
    world.publish(16, restart_every=4)
    world.agree(6_000)
