"""The small worlds that are explored to their end: who talks to whom, what may go wrong."""

from dataclasses import dataclass, replace

from drupelet.link.link import BATCH, INTERACTIVE
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1

PROFILES = {"bsp": PROFILE_BSP_1, "mvds": PROFILE_MVDS_1, "compact": PROFILE_COMPACT_1}
MODES = {"batch": BATCH, "interactive": INTERACTIVE}


@dataclass(frozen=True)
class Letter:
    """A message of a world: its author (node), the letters that it depends on, its group."""

    author: int
    parents: tuple[int, ...] = ()
    group: int = 0


@dataclass(frozen=True)
class World:
    """Nodes, links, messages, and the bounds of what may happen."""

    name: str
    profile: int
    mode: int
    letters: tuple[Letter, ...]
    edges: tuple[tuple[int, int], ...] = ((0, 1),)
    groups: tuple[tuple[int, ...], ...] = ((0, 1),)  # members
    # Messages that may wait for a parent. Outboxes have rows for as many, but two at least, and
    # inboxes the fewest offers that there may be.
    pool: int = 2
    pool_of_1: int = 0  # another one of node 1
    deletes: tuple[tuple[int, int], ...] = ()  # who may delete which letter
    invalid: tuple[tuple[int, int], ...] = ()  # whose client refuses which letter
    hides: tuple[tuple[int, int], ...] = ()  # who may hide all groups from whom, and show them
    # Bounds.
    ticks: int = 6  # how often nodes let time pass until their next wake, all together
    in_flight: int = 1  # frames under way per direction; they overtake each other
    faults: int = 1  # frames lost, frames repeated and power cuts, all together
    switches: bool = False  # links may change their mode
    changes: int = 0  # changes of a mode, or of who sees what, all together

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return 1 + max(max(edge) for edge in self.edges)

    def peers(self, node: int) -> list[int]:
        """Whom a node has a link to."""
        return [a + b - node for a, b in self.edges if node in (a, b)]

    def shared(self, node: int, peer: int) -> list[int]:
        """The groups that two nodes share."""
        return [
            at for at, members in enumerate(self.groups) if node in members and peer in members
        ]

    def bounds(self) -> str:
        """The bounds in words."""
        return (
            f"{self.in_flight} frames per direction, {self.ticks} wakes, {self.faults} faults, "
            f"{self.changes} changes"
        )


ONE = (Letter(0),)
CHAIN = (Letter(0), Letter(0, (0,)))
# More than there are rows, and for a receiver more than may wait.
LONG = (*CHAIN, Letter(0, (1,)))
BOTH = (Letter(0), Letter(1))
LINE = ((0, 1), (1, 2))
STAR = ((0, 1), (0, 2))
RING = ((0, 1), (0, 2), (1, 2))
ALL = ((0, 1, 2),)


def standard() -> list[World]:
    """The worlds of `drupelet sim exhaust`."""
    worlds = []
    for short, profile in PROFILES.items():
        for mode_name, mode in MODES.items():
            plain = World(f"{short}-{mode_name}", profile, mode, ONE)
            # Greetings make many more states: fewer wakes then.
            greets = profile == PROFILE_COMPACT_1
            for world in _pairs(plain, greets) + _three(plain, greets):
                worlds.append(replace(world, name=f"{plain.name}-{world.name}"))
    return worlds


def _pairs(plain: World, greets: bool) -> list[World]:
    two = replace(plain, ticks=2 if greets else 4, letters=CHAIN)
    twice = replace(two, faults=1 if greets else 2)
    long = replace(two, letters=LONG, ticks=1 if greets else 3, faults=1)
    return [
        replace(
            two, name="one", letters=ONE, deletes=((0, 0),), in_flight=1 if greets else 2,
            faults=1 if greets else 3,
        ),
        replace(twice, name="chain"),
        replace(long, name="long", pool_of_1=1),
        replace(long, name="long-to-few", pool=4, pool_of_1=1),
        replace(two, name="both", letters=BOTH),
        replace(two, name="deleted", deletes=((1, 0), (0, 1))),
        replace(twice, name="invalid", invalid=((1, 0),)),
        replace(two, name="switch", switches=True, changes=1),
        replace(two, name="hidden", hides=((0, 1),), changes=2, ticks=2 if greets else 3),
    ]  # fmt: skip


def _three(plain: World, greets: bool) -> list[World]:
    three = replace(plain, groups=ALL, ticks=1 if greets else 3, faults=0 if greets else 1)
    secret = (Letter(0), Letter(0, (), 1))
    few = 1 if greets else 2
    return [
        replace(three, name="line", edges=LINE),
        replace(three, name="line-chain", edges=LINE, letters=CHAIN, pool=1, ticks=few),
        replace(three, name="star", edges=STAR),
        replace(three, name="ring", edges=RING, ticks=1, faults=0 if greets else 1),
        replace(
            three, name="secret", edges=LINE, letters=secret, groups=((0, 1, 2), (0, 1)), ticks=few
        ),
    ]
