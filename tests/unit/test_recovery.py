"""A store that was restored from a backup, over `compact-1`: a sketch, then what is missing."""

import copy
import random
import statistics

import pytest

from drupelet.base.errors import E_STORAGE
from drupelet.node import BATCH, INTERACTIVE, PROFILE_COMPACT_1, Link
from drupelet.wire.compact.codec import Compact1
from drupelet.wire.sketch.recovery import Recovery
from helpers import Draw, Member, Network

POOL = 2048
BODY_SIZE = 100
ROUNDS_MAX = 600


class Pair:
    """Two members that hold the same, until one of them is put back to an older store."""

    def __init__(self, mode: int, held: int, missing: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self.members = [Member(name, Draw(seed), pool=POOL) for name in "AB"]
        self.net = Network(Draw(seed), self.members, ["AB"], mode, profile=PROFILE_COMPACT_1)
        self.a, self.b = self.members
        for count in (held - missing, missing):
            backup = copy.deepcopy(self.b.files), len(self.b.log())
            for _ in range(count):
                self.publish(self.a)
            self.net.run(lambda: self.net.complete(len(self.a.log())), ROUNDS_MAX)
        self.run(8)
        self.b.files = backup[0]
        self.b.start()
        self.b.boot(self.net.now_ms)
        self.net.connect(self.b)
        assert len(self.b.log()) == backup[1] == held - missing
        self.codec(self.a).use(self.link(self.a).exchange)
        self.codec(self.a).heard_store(seed + 1)  # that of the store before
        self.recoveries = [
            Recovery(self.link(member), lambda: self._draw.randbytes(4)) for member in self.members
        ]

    def publish(self, member: Member) -> None:
        body = b"\x00" + self._draw.randbytes(BODY_SIZE - 1)
        stamp = self._draw.randrange(1 << 41).to_bytes(8, "big")
        assert member.node.publish(member.group, body, BODY_SIZE, stamp, self.net.now_ms) > 0

    def link(self, member: Member) -> Link:
        (link,) = member.links.values()
        assert isinstance(link, Link)
        return link

    def codec(self, member: Member) -> Compact1:
        codec = self.link(member).codec
        assert isinstance(codec, Compact1)
        return codec

    def run(self, rounds: int) -> int:
        """So many rounds; the bytes that were sent."""
        before = sum(line.bytes for line in self.net.lines.values())
        for _ in range(rounds):
            self.net.round()
        return sum(line.bytes for line in self.net.lines.values()) - before

    def recover(self) -> int:
        """Begin a recovery at B and see it through; the bytes that it took."""
        before = sum(line.bytes for line in self.net.lines.values())
        self.recoveries[1].begin()
        everything = set(self.a.log()) | set(self.b.log())
        self.net.run(lambda: self.net.complete(len(everything)), ROUNDS_MAX)
        self.run(12)
        assert set(self.b.log()) == set(self.a.log()) == everything
        return sum(line.bytes for line in self.net.lines.values()) - before


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_what_was_lost_comes_back_for_a_few_bytes(mode: int) -> None:
    overheads = []
    for seed in range(2):
        pair = Pair(mode, 400, 10, seed)
        overheads.append(pair.recover() - 10 * BODY_SIZE)
        assert pair.b.node.duplicates == 0 == pair.a.node.duplicates
    # Sketch, headers of 10 messages, group, acknowledgements and contact; the budget of
    # docs/DESIGN.md 20 is for the sketch alone.
    assert statistics.median(overheads) <= 420


@pytest.mark.parametrize("loss", [0, 300])
@pytest.mark.parametrize(("held", "missing"), [(40, 40), (100, 1), (200, 100)])
def test_both_sides_have_what_the_other_lacks(held: int, missing: int, loss: int) -> None:
    pair = Pair(INTERACTIVE, held, missing, held)
    for line in pair.net.lines.values():
        line.loss = loss
    for member in pair.members:
        for _ in range(5):
            pair.publish(member)
    pair.recover()


def test_a_sketch_waits_until_what_it_tells_of_is_durable() -> None:
    """Both ends acknowledge what it shows that both hold."""
    pair = Pair(INTERACTIVE, 40, 10, 3)
    sketches = []
    recovery = pair.recoveries[0]
    take = recovery.take
    recovery.take = lambda *all: sketches.append(1) or take(*all)  # type: ignore
    store = pair.b.store
    barrier = store.barrier
    store.barrier = lambda: E_STORAGE
    pair.recoveries[1].begin()
    pair.run(20)
    assert not sketches
    store.barrier = barrier
    pair.run(20)
    assert sketches


def test_without_a_sketch_everything_is_shown_again() -> None:
    pair = Pair(INTERACTIVE, 60, 20, 1)
    pair.codec(pair.a).sketches = pair.codec(pair.b).sketches = None
    pair.net.run(lambda: pair.net.complete(60), ROUNDS_MAX)
    assert set(pair.b.log()) == set(pair.a.log())


def test_a_peer_that_never_sketches_gets_the_list_after_a_while() -> None:
    pair = Pair(INTERACTIVE, 60, 20, 2)
    pair.codec(pair.b).sketches = None
    pair.codec(pair.a).use(pair.link(pair.a).exchange)
    pair.codec(pair.a).heard_store(5)
    pair.codec(pair.a).greet(pair.link(pair.a).exchange)
    pair.link(pair.a).exchange.attention = True
    pair.net.run(lambda: pair.net.complete(60), ROUNDS_MAX)
    assert set(pair.b.log()) == set(pair.a.log())
