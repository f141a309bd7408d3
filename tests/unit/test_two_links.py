"""Two live links to one peer: one is dead, or they are of two profiles or two families."""

from itertools import product

import pytest

from drupelet.base.errors import OK
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.states import REQUEST
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    SHARED,
    Link,
    Node,
)
from helpers import EPOCH_MS, Draw, stamp
from ram_store import RamStore

CARRIERS = (CARRIER_SERIAL, CARRIER_MQTT)
FAMILIES_ID = b"\1" * 32
COUNT = 8
STEP_MS = 50
FRAMES_MAX = 80
RECORD_REQUEST = 3
PREFIX_SIZE = 8

Frame = tuple[str, int, bytes]


class End:
    """A node with two links to the other one, and one group, or one of each family."""

    def __init__(self, other: str, draw: Draw, profiles: tuple[int, int], mode: int) -> None:
        store = RamStore()
        self.node = Node(store, lambda: draw(256), peers_max=1, groups_max=2)
        self.groups = [self.node.join(READINGS_CLIENT_ID, b"g")]
        if PROFILE_MVDS_1 in profiles:
            self.groups.append(self.node.join_id(FAMILIES_ID, FAMILY_MVDS))
        self.peer = self.node.add_peer(other.encode() * 4)
        for group in self.groups:
            self.node.share(group, self.peer, SHARED)
        self.node.boot(0)
        self.links: list[Link] = []
        for profile, carrier in zip(profiles, CARRIERS, strict=True):
            link = self.node.link(self.peer, profile, carrier, EPOCH_MS, mode)
            assert isinstance(link, Link)
            self.links.append(link)

    def publish(self, group: int, text: bytes, now_ms: int) -> bytes:
        """A message of a group, by its place in `groups`; its id."""
        body = b"\0" + text
        node = self.node
        handle = node.publish(self.groups[group], body, len(body), stamp(now_ms), now_ms)
        assert handle > 0 and node.store.load(handle) == OK
        return bytes(node.store.id)


class Both:
    """The two ends, and what each frame that left was."""

    def __init__(self, seed: int, profiles: tuple[int, int], mode: int = INTERACTIVE) -> None:
        self.draw = Draw(seed)
        self.ends = {
            name: End(other, self.draw, profiles, mode) for name, other in ("AB", "BA")
        }  # fmt: skip
        self.dead: set[tuple[str, int]] = set()  # a sender and which of its links
        self.now_ms = 0
        self.sent: list[Frame] = []

    def poll(self, name: str, which: int) -> list[bytes]:
        """What one end says now over one of its links, which arrives unless that is dead."""
        other = self.ends["AB"[name == "A"]].links[which]
        frame = bytearray(1024)
        found = []
        for _ in range(FRAMES_MAX):
            size = self.ends[name].links[which].poll_into(frame, self.now_ms)
            if not size:
                break
            found.append(bytes(frame[:size]))
            if (name, which) not in self.dead:
                other.receive(bytearray(found[-1]), size, self.now_ms)
        self.sent += [(name, which, each) for each in found]
        return found

    def step(self) -> None:
        """Some time passes; then each end polls its links, in any order."""
        self.now_ms += STEP_MS
        for name in "AB":
            first = self.draw(2)
            for which in (first, 1 - first):
                self.poll(name, which)
        for end in self.ends.values():
            while end.node.next_event():
                end.node.done(end.node.event_handle)

    def epochs(self, count: int) -> int:
        """In which epoch all has come and is acknowledged; fails after so many."""
        for _ in range(count * EPOCH_MS // STEP_MS):
            self.step()
            nodes = [end.node for end in self.ends.values()]
            outstanding = [end.node.outstanding(end.peer) for end in self.ends.values()]
            if nodes[0].delivered == nodes[1].delivered and not any(outstanding):
                return self.now_ms // EPOCH_MS
        raise AssertionError([node.delivered for node in nodes], outstanding)


# --- one of them is dead ---


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dead", ["first one way", "first", "second one way", "second"])
@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1], ids=["bsp", "compact"])
def test_what_is_offered_over_a_sound_link_comes_though_another_is_dead(
    profile: int, dead: str, seed: int
) -> None:
    """Taking turns, offers would go over the one and messages over the other, for ever."""
    both = Both(seed, (PROFILE_BSP_1, profile))
    which = int("second" in dead)
    both.dead = {("A", which)} if "way" in dead else {("A", which), ("B", which)}
    for number in range(COUNT):
        both.ends["A"].publish(0, b"%d" % number, number)
    both.epochs(300)
    assert both.ends["B"].node.delivered == COUNT


# --- of two profiles ---


def requests(frame: bytes) -> list[bytes]:
    """The ids that a frame of bsp-1 asks for."""
    found = []
    at = 1
    while at < len(frame):
        size = int.from_bytes(frame[at + 2 : at + 4], "big")
        end = at + 4 + size
        if frame[at + 1] == RECORD_REQUEST:
            found += [frame[id_at : id_at + 32] for id_at in range(at + 4, end, 32)]
        at = end
    return found


def test_what_is_known_by_a_prefix_is_asked_for_where_it_was_offered() -> None:
    """A bsp-1 link that comes first cannot name it; then it is still there for the other."""
    both = Both(1, (PROFILE_BSP_1, PROFILE_COMPACT_1))
    ids = [both.ends["A"].publish(0, b"%d" % number, number) for number in range(COUNT)]
    both.dead = {("A", 0)}  # else what B acknowledges tells how that link goes
    offers = b"".join(both.poll("A", 1))
    assert all(id[:PREFIX_SIZE] in offers and id not in offers for id in ids)
    assert not both.poll("B", 0), "it has nothing to say there"
    asked = both.poll("B", 1)
    assert asked and asked[0][0] == 0x44
    outbox = both.ends["A"].node.core.outboxes[0]
    asked_for = [row for row in range(outbox.count) if outbox.state(row) & REQUEST]
    assert len(asked_for) == COUNT, "all of them were asked for"
    both.dead = set()
    both.epochs(20)
    assert both.ends["B"].node.delivered == COUNT


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dead", [[], [("A", 0)], [("A", 1)]], ids=str)
def test_nobody_is_asked_for_an_id_that_is_mostly_zeros(
    dead: list[tuple[str, int]], seed: int
) -> None:
    both = Both(seed, (PROFILE_BSP_1, PROFILE_COMPACT_1))
    both.dead = set(dead)
    ids = set()
    for number in range(3 * COUNT):
        ids.add(both.ends["A"].publish(0, b"A%d" % number, number))
        ids.add(both.ends["B"].publish(0, b"B%d" % number, number))
        for _ in range(number):
            both.step()
    both.epochs(400)
    for _, which, frame in both.sent:
        if which == 0:
            assert set(requests(frame)) <= ids


# --- of two families ---


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_each_family_is_acknowledged_over_a_link_of_its_own(mode: int, seed: int) -> None:
    """Over one of the other family it would be read as of no group, and come again and again."""
    profiles = (PROFILE_BSP_1, PROFILE_MVDS_1)
    both = Both(seed, profiles, mode)
    ids: tuple[set[bytes], set[bytes]] = (set(), set())
    for number, name, family in product(range(COUNT), "AB", (0, 1)):
        text = b"%s%d%d" % (name.encode(), number, family)
        ids[family].add(both.ends[name].publish(family, text, both.now_ms))
        both.step()
    both.epochs(100)
    assert both.ends["A"].node.delivered == both.ends["B"].node.delivered == 4 * COUNT
    for _, which, frame in both.sent if mode == BATCH else ():  # no offers: an id is an ACK
        assert not any(id in frame for id in ids[1 - which])
