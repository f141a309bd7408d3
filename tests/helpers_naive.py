"""Our node and naive ones that know the texts alone, the lines between them, and time."""

from typing import Literal

from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import HEAD_PARENTS
from drupelet.node import (
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from drupelet.wire.profiles import PROFILE_BSP_0
from drupelet.wire.registry import family_of
from helpers import EPOCH_MS, FRAMES_PER_ROUND_MAX, ROUND_MS, Draw, Line, Member, check_causal
from helpers_bsp0 import CLIENT, Friend
from naive import bsp, mvds

FAULTS = {"loss": 300, "repeat": 150, "reorder": 200}
FRAME_SIZE = 1024
BODY_MAX = 952
FIELDS = {
    PROFILE_MVDS_1: mvds.NEWEST,
    PROFILE_MVDS_NESTED: mvds.PAPER,
    PROFILE_MVDS_5001: mvds.PUBLISHED,
}
DIALECTS = {PROFILE_BSP_1: bsp.TEXT, PROFILE_BSP_0: bsp.BRIAR}
GROUPS = {
    PROFILE_BSP_1: bsp.group_id(READINGS_CLIENT_ID, b"test"),
    PROFILE_BSP_0: bsp.briar_group_id(CLIENT, 1, b"test"),
    # MVDS does not say how one is made.
    **dict.fromkeys(FIELDS, READINGS_CLIENT_ID),
}
# What bodies have beside a name and a number; the parents of BSP are in front of them.
SIZES = (0, 1, 40, 200, BODY_MAX - 70)
# A parent is named so often by the newest Go node, and by ours at most eight times.
REPEATS = 40
REPEATS_BSP = 8


class Ours:
    """The real node over its flash log; MVDS stores what it knows of parents before a body."""

    def __init__(self, name: str, draw: Draw, profile: int = PROFILE_BSP_1, **sizes: int) -> None:
        self.name = name
        self.member = (
            Friend(name, draw, **sizes)
            if profile == PROFILE_BSP_0
            else Member(name, draw, family=family_of(profile), **sizes)
        )
        self._profile = profile
        self._is_mvds = profile in FIELDS
        self._mode = 0
        self.published = self.restarts = 0
        self.frame_size = FRAME_SIZE

    def connect(self, peers: str, mode: int) -> None:
        self._mode = mode
        self.member.peers.extend(peers)
        for peer in peers:
            self.member.add(peer)
        self._boot(0)

    def _boot(self, now_ms: int) -> None:
        member = self.member
        member.boot(now_ms)
        for peer in member.peers:
            member.links[peer] = member.node.link(
                member.numbers[peer], self._profile, CARRIER_SERIAL, EPOCH_MS, self._mode, now_ms
            )

    def restart(self, now_ms: int) -> None:
        """A power cut once its own messages are durable; each second time what peers hold, too."""
        member = self.member
        self.restarts += 1
        assert member.store.barrier() == 0
        if self.restarts % 2:
            assert member.node.save(now_ms) == 0
        member.files.power_cut()
        member.start()
        self._boot(now_ms)

    def publish(self, body: bytes, now_ms: int) -> None:
        assert self.member.publish(body, now_ms)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        frame = bytearray(self.frame_size)
        frames = []
        for _ in range(FRAMES_PER_ROUND_MAX):
            size = self.member.links[peer].poll_into(frame, now_ms)
            if not size:
                break
            frames.append(bytes(frame[:size]))
        return frames

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:
        assert self.member.links[peer].receive(bytearray(frame), len(frame), now_ms) == 0

    def turn(self) -> None:
        self.member.consume()

    def messages(self) -> dict[bytes, tuple[int, bytes]]:
        """The log; a message that is there twice fails."""
        store = self.member.store
        log: dict[bytes, tuple[int, bytes]] = {}
        handle = store.next(0)
        while handle:
            body = self.member.body(handle)
            store.load(handle)
            assert bytes(store.id) not in log, "twice in our log"
            order: Literal["little", "big"] = "little" if self._is_mvds else "big"
            head = 1 + 32 * (body[0] & HEAD_PARENTS) if self._is_mvds else 0
            moment = int.from_bytes(store.timestamp, order, signed=True)
            log[bytes(store.id)] = (moment, body[head:])
            handle = store.next(handle)
        return log

    def is_idle(self) -> bool:
        return not any(map(self.member.node.outstanding, self.member.numbers.values()))

    def check(self) -> None:
        node = self.member.node
        assert node.malformed == 0 and node.pending_count() == 0
        assert self.restarts or not self.member.again
        if self._profile != PROFILE_BSP_0:  # whose bodies name no dependencies
            check_causal(self.member)


class Naive:
    """A device of the naive BSP; each of its messages depends on what it knew.

    `repeats`: it names one parent as often as a message may have parents. Briar's messages name
    theirs in formats of their own: here they have none.
    """

    def __init__(
        self, name: str, draw: Draw, profile: int = PROFILE_BSP_1, repeats: bool = False
    ) -> None:
        self.name = name
        self._dialect = DIALECTS[profile]
        self._group = GROUPS[profile]
        self._kind = bytes([0x40 | profile])
        self._bare = profile == PROFILE_BSP_0
        self._repeats = repeats
        parse = (lambda _: []) if self._bare else bsp.dependencies_of
        self.device = bsp.Device(parse, dialect=self._dialect)
        self._draw = draw
        self._peers = ""
        self._interactive = False
        self._own = b""
        self.published = 0
        self.frame_size = FRAME_SIZE

    def connect(self, peers: str, mode: int) -> None:
        self._peers = peers
        self._interactive = mode == INTERACTIVE
        for peer in peers:
            self.device.share(self._group, peer)

    def restart(self, now_ms: int) -> None:  # noqa: ARG002
        self.device.restart()

    def publish(self, body: bytes, now_ms: int) -> None:
        foreign = self.device.log[-1:] if self.device.log[-1:] != [self._own] else []
        parents = [parent for parent in (self._own, *foreign) if parent]
        if self._repeats:
            parents = parents[-1:] * REPEATS_BSP
        if not self._bare:
            body = bytes([len(parents)]) + b"".join(parents) + body
        message = bsp.Message(self._group, 1_800_000_000_000 + now_ms, body, self._dialect)
        self._own = self.device.publish(message)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        """One opportunity: its records in frames, each behind the kind byte."""
        ids_max = (FRAME_SIZE - 10) // 32
        epoch, interactive = now_ms // EPOCH_MS, self._interactive
        records = self.device.records(peer, epoch, interactive, ids_max)
        frames: list[bytes] = []
        for record in records:
            if frames and len(frames[-1]) + len(record) <= self.frame_size:
                frames[-1] += record
            else:
                opening = b"" if frames else self._dialect.opening
                frames.append(self._kind + opening + record)
                assert len(frames[-1]) <= self.frame_size
        return frames

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:  # noqa: ARG002
        assert frame[:1] == self._kind and len(frame) > 1
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
    """A node of the naive MVDS: a payload per peer and epoch; what is new goes on.

    `repeats`: it names every message that has no child as a parent, the newest one many times,
    and ends where metadata is missing (in `mvds-1`).
    """

    def __init__(
        self, name: str, draw: Draw, profile: int = PROFILE_MVDS_1,
        answer: str = mvds.ACKNOWLEDGING, repeats: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        needs_metadata = repeats and profile == PROFILE_MVDS_1
        self.node = mvds.Node(answer, FIELDS[profile], needs_metadata)
        self._group = GROUPS[profile]
        self._kind = bytes([0x40 | profile])
        self._repeats = repeats
        self._draw = draw
        self._peers = ""
        self._interactive = False
        self._paid: dict[str, int] = {}
        self.published = 0
        self.frame_size = FRAME_SIZE

    def connect(self, peers: str, mode: int) -> None:
        self._peers = peers
        self._interactive = mode == INTERACTIVE
        for peer in peers:
            self.node.share(self._group, peer)

    def restart(self, now_ms: int) -> None:  # noqa: ARG002
        self.node.restart()
        self._paid.clear()

    def publish(self, body: bytes, now_ms: int) -> None:
        moment = (0, -1, now_ms, 1_800_000_000 + now_ms)[self._draw(4)]
        parents = None
        if self._repeats:
            childless = self.node.childless(self._group)
            parents = (*childless[-1:] * REPEATS, *childless)
        message = mvds.Message(self._group, moment, body, parents)
        self.node.publish(message, self._interactive)
        self.published += 1

    def frames(self, peer: str, now_ms: int) -> list[bytes]:
        """One payload per epoch, cut into frames."""
        self.node.epoch = now_ms // EPOCH_MS
        if self._paid.get(peer) == self.node.epoch:
            return []
        self._paid[peer] = self.node.epoch
        pieces = self.node.payload(peer).pieces(self.frame_size - 1, self.node.fields)
        return [self._kind + piece for piece in pieces]

    def receive(self, peer: str, frame: bytes, now_ms: int) -> None:  # noqa: ARG002
        assert frame[:1] == self._kind and len(frame) > 1, "never an empty payload"
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
        self, draw: Draw, nodes: list, edges: list[str], modes: tuple,
        frame_size: int = FRAME_SIZE, sizes: tuple[int, ...] = SIZES, **faults: int,
    ) -> None:  # fmt: skip
        self._sizes = sizes
        self.nodes = {node.name: node for node in nodes}
        self.draw = draw
        self.now_ms = 0
        both = [(a, b) for a, b in edges] + [(b, a) for a, b in edges]
        self.lines = {pair: Line(draw, **faults) for pair in sorted(both)}
        for place, node in enumerate(nodes):
            peers = "".join(there for here, there in self.lines if here == node.name)
            node.frame_size = frame_size
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

    def publish(self, count: int, restart_every: int = 0) -> None:
        """Everybody writes `count` messages of all sizes, and the lines run meanwhile.

        `restart_every`: after so many of them one node ends and begins again, each in its turn.
        """
        for number in range(count):
            if restart_every and number % restart_every == restart_every - 1:
                nodes = list(self.nodes.values())
                nodes[number // restart_every % len(nodes)].restart(self.now_ms)
            for name, node in self.nodes.items():
                size = self._sizes[self.draw(len(self._sizes))]
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
