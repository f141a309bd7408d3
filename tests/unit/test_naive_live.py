"""Our node against naive ones that know the texts alone: bad lines, both modes, same sets."""

from typing import Literal

import pytest

from drupelet.clients import READINGS_CLIENT_ID
from drupelet.members import HEAD_PARENTS
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
)
from helpers import EPOCH_MS, FRAMES_PER_ROUND_MAX, ROUND_MS, Draw, Line, Member, check_causal
from naive import bsp, mvds

# One mode for all, or every node another than the one before it.
MODES = {"batch": (BATCH,), "interactive": (INTERACTIVE,), "mixed": (BATCH, INTERACTIVE)}
FAULTS = {"loss": 300, "repeat": 150, "reorder": 200}
FRAME_SIZE = 1024
KIND_RECORDS = 0x40
KIND_PAYLOAD = 0x41
GROUP = bsp.group_id(READINGS_CLIENT_ID, b"test")
GROUP_MVDS = READINGS_CLIENT_ID  # MVDS does not say how one is made
BODY_MAX = 952
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


class Ours:
    """The real node over its flash log; MVDS stores what it knows of parents before a body."""

    def __init__(self, name: str, draw: Draw, family: int = FAMILY_BSP, **sizes: int) -> None:
        self.name = name
        self.member = Member(name, draw, family=family, **sizes)
        self._is_mvds = family == FAMILY_MVDS
        self.published = 0

    def connect(self, peers: str, mode: int) -> None:
        member = self.member
        member.peers.extend(peers)
        for peer in peers:
            member.add(peer)
        member.boot(0)
        profile = PROFILE_MVDS_1 if self._is_mvds else PROFILE_BSP_1
        for peer in peers:
            member.links[peer] = member.node.link(
                member.numbers[peer], profile, CARRIER_SERIAL, EPOCH_MS, mode
            )

    def publish(self, body: bytes, now_ms: int) -> None:
        assert self.member.publish(body, now_ms)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        frame = bytearray(FRAME_SIZE)
        found = []
        for _ in range(FRAMES_PER_ROUND_MAX):
            size = self.member.links[peer].poll_into(frame, now_ms)
            if not size:
                break
            found.append(bytes(frame[:size]))
        return found

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:
        assert self.member.links[peer].receive(bytearray(frame), len(frame), now_ms) == 0

    def turn(self) -> None:
        self.member.consume()

    def messages(self) -> dict[bytes, tuple[int, bytes]]:
        """The log; a message that is there twice fails."""
        store = self.member.store
        found: dict[bytes, tuple[int, bytes]] = {}
        handle = store.next(0)
        while handle:
            body = self.member.body(handle)
            store.load(handle)
            assert bytes(store.id) not in found, "twice in our log"
            order: Literal["little", "big"] = "little" if self._is_mvds else "big"
            head = 1 + 32 * (body[0] & HEAD_PARENTS) if self._is_mvds else 0
            moment = int.from_bytes(store.timestamp, order, signed=True)
            found[bytes(store.id)] = (moment, body[head:])
            handle = store.next(handle)
        return found

    def is_idle(self) -> bool:
        return not any(map(self.member.node.outstanding, self.member.numbers.values()))

    def check(self) -> None:
        node = self.member.node
        assert node.malformed == 0 and node.pending_count() == 0
        assert not self.member.again
        check_causal(self.member)


class Naive:
    """A device of the naive BSP; each of its messages depends on what it knew."""

    def __init__(self, name: str, draw: Draw) -> None:
        self.name = name
        self.device = bsp.Device()
        self._draw = draw
        self._peers = ""
        self._interactive = False
        self._own = self._seen = b""
        self.published = 0

    def connect(self, peers: str, mode: int) -> None:
        self._peers = peers
        self._interactive = mode == INTERACTIVE
        for peer in peers:
            self.device.share(GROUP, peer)

    def publish(self, body: bytes, now_ms: int) -> None:
        foreign = self.device.log[-1:] if self.device.log[-1:] != [self._own] else []
        parents = [parent for parent in (self._own, *foreign) if parent]
        body = bytes([len(parents)]) + b"".join(parents) + body
        message = bsp.Message(GROUP, 1_800_000_000_000 + now_ms, body)
        self._own = self.device.publish(message)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        """One opportunity: its records in frames, each behind the kind byte."""
        ids_max = (FRAME_SIZE - 5) // 32
        epoch, interactive = now_ms // EPOCH_MS, self._interactive
        records = self.device.records(peer, epoch, interactive, ids_max)
        frames: list[bytes] = []
        for record in records:
            if frames and len(frames[-1]) + len(record) <= FRAME_SIZE:
                frames[-1] += record
            else:
                frames.append(bytes([KIND_RECORDS]) + record)
        return frames

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:  # noqa: ARG002
        assert frame[0] == KIND_RECORDS and len(frame) > 1
        self.device.receive(peer, frame[1:])

    def turn(self) -> None:
        """Nothing waits here."""

    def messages(self) -> dict[bytes, tuple[int, bytes]]:
        messages = self.device.messages
        assert len(set(self.device.log)) == len(self.device.log)
        return {id: (messages[id].timestamp, messages[id].body) for id in self.device.log}

    def is_idle(self) -> bool:
        return all(map(self.device.is_idle, self._peers))

    def check(self) -> None:
        assert self.device.malformed == 0 and not self.device.invalid
        assert self.device.messages.keys() == set(self.device.log)


class NaiveMvds:
    """A node of the naive MVDS: a payload per peer and epoch; what is new goes on."""

    def __init__(self, name: str, draw: Draw, literal: bool = False) -> None:
        self.name = name
        self.node = mvds.Node(literal)
        self._draw = draw
        self._peers = ""
        self._interactive = False
        self._paid: dict[str, int] = {}
        self.published = 0

    def connect(self, peers: str, mode: int) -> None:
        self._peers = peers
        self._interactive = mode == INTERACTIVE
        for peer in peers:
            self.node.share(GROUP_MVDS, peer)

    def publish(self, body: bytes, now_ms: int) -> None:
        moment = (0, -1, now_ms, 1_800_000_000 + now_ms)[self._draw(4)]
        self.node.publish(mvds.Message(GROUP_MVDS, moment, body), self._interactive)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        """One payload per epoch, cut into frames."""
        self.node.epoch = now_ms // EPOCH_MS
        if self._paid.get(peer) == self.node.epoch:
            return []
        self._paid[peer] = self.node.epoch
        pieces = self.node.payload(peer).pieces(FRAME_SIZE - 1)
        return [bytes([KIND_PAYLOAD]) + piece for piece in pieces]

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:  # noqa: ARG002
        assert frame[0] == KIND_PAYLOAD and len(frame) > 1, "never an empty payload"
        self.node.receive(peer, frame[1:], self._interactive)

    def turn(self) -> None:
        """Nothing waits here."""

    def messages(self) -> dict[bytes, tuple[int, bytes]]:
        return {id: (m.timestamp, m.body) for id, m in self.node.messages.items()}

    def is_idle(self) -> bool:
        return all(map(self.node.is_idle, self._peers))

    def check(self) -> None:
        assert self.node.malformed == 0


class World:
    """Nodes, bad lines along the edges, and time."""

    def __init__(
        self, draw: Draw, nodes: list, edges: list[str], modes: tuple, **faults: int
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.draw = draw
        self.now_ms = 0
        both = [(a, b) for a, b in edges] + [(b, a) for a, b in edges]
        self.lines = {pair: Line(draw, **faults) for pair in sorted(both)}
        for place, node in enumerate(nodes):
            peers = "".join(there for here, there in self.lines if here == node.name)
            node.connect(peers, modes[place % len(modes)])

    def round(self) -> None:
        self.now_ms += ROUND_MS
        for (here, there), line in self.lines.items():
            for frame in self.nodes[here].frames(there, self.now_ms):
                line.send(frame, len(frame))
        for (here, there), line in self.lines.items():
            for frame in line.take():
                self.nodes[there].receive(here, frame, self.now_ms)
        for node in self.nodes.values():
            node.turn()

    def publish(self, count: int) -> None:
        """Everybody writes `count` messages of all sizes, and the lines run meanwhile."""
        for number in range(count):
            for name, node in self.nodes.items():
                size = (0, 1, 40, 200, BODY_MAX - 70)[self.draw(5)]
                node.publish(b"%s%d " % (name.encode(), number) + b"." * size, self.now_ms)
            for _ in range(self.draw(6)):
                self.round()

    def agree(self, rounds_max: int) -> None:
        """Run until all know that all have all; then they have the same."""
        count = sum(node.published for node in self.nodes.values())
        for _ in range(rounds_max):
            nodes = self.nodes.values()
            idle = all(node.is_idle() for node in nodes)
            if idle and all(len(node.messages()) == count for node in nodes):
                break
            self.round()
        else:
            raise AssertionError("somebody still waits for something")
        logs = [node.messages() for node in self.nodes.values()]
        assert len(logs[0]) == count
        assert all(log == logs[0] for log in logs)
        for node in self.nodes.values():
            node.check()


@modes
@pytest.mark.parametrize("seed", range(6))
def test_bsp_with_a_naive_device(seed: int, mode: tuple) -> None:
    draw = Draw(seed)
    world = World(draw, [Ours("A", draw), Naive("N", draw)], ["AN"], mode, **FAULTS)
    world.publish(40)
    world.agree(2_000)


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


literal = pytest.mark.parametrize("literal", [True, False], ids=["as-written", "acks-offers"])


@modes
@literal
@pytest.mark.parametrize("seed", range(3))
def test_mvds_with_a_naive_node(seed: int, literal: bool, mode: tuple) -> None:
    draw = Draw(seed + 60)
    nodes = [Ours("A", draw, FAMILY_MVDS), NaiveMvds("N", draw, literal)]
    world = World(draw, nodes, ["AN"], mode, **FAULTS)
    world.publish(40)
    world.agree(4_000)


@modes
@literal
def test_mvds_between_two_naive_nodes(literal: bool, mode: tuple) -> None:
    draw = Draw(70)
    nodes = [NaiveMvds("M", draw, literal), Ours("A", draw, FAMILY_MVDS), NaiveMvds("N", draw)]
    world = World(draw, nodes, ["MA", "AN"], mode, **FAULTS)
    world.publish(25)
    world.agree(6_000)


@modes
@literal
def test_mvds_through_a_naive_node(literal: bool, mode: tuple) -> None:
    draw = Draw(80)
    ends = [Ours(name, draw, FAMILY_MVDS) for name in "AB"]
    nodes = [ends[0], NaiveMvds("N", draw, literal), ends[1]]
    world = World(draw, nodes, ["AN", "NB"], mode, **FAULTS)
    world.publish(25)
    world.agree(6_000)


@modes
def test_mvds_with_a_naive_node_and_four_slots(mode: tuple) -> None:
    draw = Draw(90)
    nodes = [Ours("A", draw, FAMILY_MVDS, pool=4, offers=4), NaiveMvds("N", draw)]
    world = World(draw, nodes, ["AN"], mode, **FAULTS)
    world.publish(15)
    world.agree(10_000)
