"""Runs on a board and on CPython: micro members and whole nodes over bad lines.

The seeds draw the same everywhere, so every interpreter has to print the same lines.
"""

import sys

for folder in sys.argv[1].split(":"):
    sys.path.insert(0, folder)

from drupelet.clients.default import READINGS_CLIENT_ID  # noqa: E402
from drupelet.micro.link import MicroLink  # noqa: E402
from drupelet.micro.member import Micro  # noqa: E402
from drupelet.node import BATCH, CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1  # noqa: E402
from helpers import Draw, Line, Member, check_causal, stamp  # noqa: E402

EPOCH_MS = 1000
ROUND_MS = 250
FRAME_SIZE = 251
FRAMES_MAX = 40


class Whole:
    """A full node."""

    def __init__(self, name, draw, mode):
        self.name = name
        self.mode = mode
        self.member = Member(name, draw, 32, 32)
        self.links = self.member.links

    def connect(self, peers):
        member = self.member
        for peer in peers:
            member.peers.append(peer)
            member.add(peer)
        member.boot(0)
        for peer in peers:
            self.links[peer] = member.node.link(
                member.numbers[peer], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, self.mode
            )

    def publish(self, payload, now_ms):
        return self.member.publish(payload, now_ms)

    def turn(self):
        self.member.consume()

    def log(self):
        return self.member.log()

    def idle(self):
        return not any(map(self.member.node.outstanding, self.member.numbers.values()))

    def check(self):
        check_causal(self.member)


class Small:
    """A micro member; what its client took is the log."""

    def __init__(self, name, draw, mode, **sizes):  # noqa: ARG002
        self.name = name
        self.mode = mode
        self.node = Micro(READINGS_CLIENT_ID, b"test", **sizes)
        self.links = {}
        self.taken = []
        self.bodies = {}

    def connect(self, peers):
        for peer in peers:
            self.links[peer] = MicroLink(self.node, self.mode)

    def publish(self, payload, now_ms):
        row = self.node.publish(payload, len(payload), bytearray(stamp(now_ms)))
        if row >= 0:
            self.keep(row)
        return row >= 0

    def keep(self, row):
        node = self.node
        id = bytes(node.table[row * node.stride : row * node.stride + 32])
        start = node.body_at(row)
        self.taken.append(id)
        self.bodies[id] = bytes(node.bodies[start : start + node.body_size(row)])

    def turn(self):
        row = self.node.next_event()
        while row >= 0:
            self.keep(row)
            self.node.done(row)
            row = self.node.next_event()

    def log(self):
        return self.taken

    def idle(self):
        return not self.node.outstanding()

    def check(self):
        assert not self.node.malformed
        seen = set()
        for id in self.taken:
            body = self.bodies[id]
            for parent in range(body[0]):
                assert body[1 + 32 * parent : 33 + 32 * parent] in seen, "before its dependency"
            seen.add(id)


def run(name, seed, members, edges, count, size, **faults):
    draw = Draw(seed)
    members = [kind(each, draw, mode, **sizes) for kind, each, mode, sizes in members]
    by_name = {member.name: member for member in members}
    lines = {}
    for a, b in edges:
        lines[a, b] = Line(draw, **faults)
        lines[b, a] = Line(draw, **faults)
    for member in members:
        member.connect([b for a, b in sorted(lines) if a == member.name])
    frame = bytearray(FRAME_SIZE)
    left = {member.name: count for member in members}
    refusals = 0
    for turn in range(6000):
        now_ms = turn * ROUND_MS
        if turn % 3 == 0:
            for member in members:
                if left[member.name]:
                    payload = b"%s%d" % (member.name.encode(), count - left[member.name])
                    if member.publish(payload + bytes(draw(size)), now_ms):
                        left[member.name] -= 1
                    else:
                        refusals += 1
        for here, there in sorted(lines):
            link = by_name[here].links[there]
            for _ in range(FRAMES_MAX):
                got = link.poll_into(frame, now_ms)
                if not got:
                    break
                lines[here, there].send(frame, got)
        for here, there in sorted(lines):
            for got in lines[here, there].take():
                frame[: len(got)] = got
                by_name[there].links[here].receive(frame, len(got), now_ms)
        done = not any(left.values())
        for member in members:
            member.turn()
            done = done and member.idle() and len(member.log()) == count * len(members)
        if done:
            break
    else:
        raise AssertionError(
            (name, seed, left, [(len(m.log()), m.idle()) for m in members], refusals)
        )
    for member in members:
        log = member.log()
        assert len(log) == len(set(log)) and set(log) == set(members[0].log())
        member.check()
    sent = [lines[line].bytes for line in sorted(lines)]
    print(name, seed, turn, refusals, sent)


TWO = {"peers_max": 2, "messages_max": 8, "offers_max": 8, "bodies_size": 1024}
ONE = {"peers_max": 1, "messages_max": 4, "offers_max": 4, "bodies_size": 512, "gone_max": 32}
LOSSY = {"loss": 300, "repeat": 100, "reorder": 100, "flip": 30}

for seed in range(int(sys.argv[2])):
    for word, mode, other in (
        ("batch", BATCH, BATCH),
        ("interactive", INTERACTIVE, INTERACTIVE),
        ("mixed", BATCH, INTERACTIVE),
    ):
        run(word, seed, [(Small, "M", mode, {}), (Whole, "W", other, {})], ["MW"], 25, 60, **LOSSY)
        run(
            word + "-one",
            seed,
            [(Small, "M", mode, ONE), (Whole, "W", other, {})],
            ["MW"],
            12,
            60,
            **LOSSY,
        )
        run(
            word + "-row", seed,
            [(Whole, "A", other, {}), (Small, "M", mode, TWO), (Whole, "B", other, {})],
            ["AM", "MB"], 10, 60, **LOSSY,
        )  # fmt: skip
        run(
            word + "-pair",
            seed,
            [(Small, "M", mode, TWO), (Small, "N", other, ONE)],
            ["MN"],
            20,
            60,
            **LOSSY,
        )
