"""Filters tell what a peer lacks; errors of a filter only delay."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import SHARED
from drupelet.link.link import BATCH, CARRIER_MQTT
from drupelet.node import Node
from drupelet.wire.profiles import PROFILE_COMPACT_1
from drupelet_tools.sim.filter_frame import (
    ANSWER,
    TIME_END,
    Available,
    Filter,
    Subset,
    put_into,
    read,
    sum_of,
)
from drupelet_tools.sim.filter_sync import FilterSync
from ram_store import RamStore

ids = st.binary(min_size=32, max_size=32)
numbers = st.integers(min_value=0, max_value=TIME_END)


@given(st.lists(ids, max_size=80), st.binary(min_size=4, max_size=4), numbers, numbers)
def test_what_is_written_is_read(known: list[bytes], salt: bytes, one: int, two: int) -> None:
    start, end = min(one, two), max(one, two)
    subset = Subset(start, end + 1, 7, 3) if end < TIME_END else Subset(0, TIME_END)
    bloom = Filter.over(known, salt, 100)
    frame = bytearray(1024)
    what = Available(b"8 bytes!", ANSWER, subset, len(known), sum_of(known), bloom)
    size = put_into(frame, what)
    got = read(frame, size)
    assert got is not None
    assert (got.group, got.count, got.sum) == (b"8 bytes!", len(known), sum_of(known))
    assert (got.subset.start, got.subset.end) == (subset.start, subset.end)
    assert (got.subset.modulo, got.subset.offset) == (subset.modulo, subset.offset)
    assert all(got.filter.maybe(id) for id in known)


def test_fuzz_is_read_or_refused() -> None:
    rng = random.Random(1)
    frame = bytearray(1024)
    known = [rng.randbytes(32) for _ in range(30)]
    bloom = Filter.over(known, b"salt", 64)
    size = put_into(frame, Available(b"8 bytes!", 0, Subset(5, 99, 3, 1), 30, bytes(8), bloom))
    for turn in range(100_000):
        buf = bytearray(frame[:size])
        if turn % 2:
            buf = bytearray(rng.randbytes(rng.randrange(60)))
            buf[:1] = b"\x54"
        else:
            for _ in range(1 + rng.randrange(4)):
                buf[rng.randrange(len(buf))] = rng.randrange(256)
            del buf[rng.randrange(len(buf)) :]
        got = read(buf, len(buf))
        if got is not None:
            assert got.subset.start < got.subset.end <= TIME_END
            assert 0 < got.filter.hashes <= 16


@pytest.mark.parametrize("count", [10, 300])
def test_one_in_a_hundred_is_wrong(count: int) -> None:
    rng = random.Random(2)
    bloom = Filter.over([rng.randbytes(32) for _ in range(count)], b"abcd", 1000)
    wrong = sum(bloom.maybe(rng.randbytes(32)) for _ in range(4000))
    assert wrong < 4000 * 0.03


class Member:
    """A host with links to others; nothing goes over them unasked."""

    def __init__(self, number: int, count: int, rng: random.Random, pool: int) -> None:
        self.node = Node(
            RamStore(), lambda: rng.randrange(256), peers_max=count, groups_max=1,
            messages_max=pool, offers_max=pool,
        )  # fmt: skip
        self.group = self.node.join(READINGS_CLIENT_ID, b"bloom")
        self.links, self.blooms = {}, {}
        for other in range(count):
            if other == number:
                continue
            peer = self.node.add_peer(bytes((0, 0, 1, other)))
            self.node.share(self.group, peer, SHARED)
            link = self.node.link(peer, PROFILE_COMPACT_1, CARRIER_MQTT, 1000, BATCH)
            link.exchange.is_quiet = True
            self.links[other] = link
            self.blooms[other] = FilterSync(self.node, self.group, link, rng.randrange)
        self.node.boot(0)

    def publish(self, payload: bytes, stamp: int) -> None:
        body = b"\0" + payload
        assert self.node.publish(self.group, body, len(body), stamp.to_bytes(8), 0) > 0


def meet(members: list[Member], a: int, b: int, rng: random.Random, now_ms: int, loss: float,
         size_max: int = 1024) -> int:  # fmt: skip
    """Two members have a contact of a few epochs; the bytes that both sent."""
    total = 0
    frame = bytearray(1024)
    members[a].blooms[b].meet()
    for turn in range(8):
        for here, there in ((a, b), (b, a)):
            one, other = members[here], members[there]
            size = one.blooms[there].poll_into(frame, size_max)
            total += size
            if size and rng.random() >= loss:
                assert other.blooms[here].receive(frame, size) == OK
            for _ in range(64):
                size = one.links[there].poll_into(frame, now_ms + turn * 1000)
                if not size:
                    break
                total += size
                if rng.random() >= loss:
                    other.links[here].receive(bytearray(frame), size, now_ms + turn * 1000)
    return total


def run(count: int, messages: int, seed: int, loss: float, size_max: int = 1024,
        same_time: bool = False) -> tuple[int, int]:  # fmt: skip
    """Random pairs meet until everybody has everything; contacts and bytes."""
    rng = random.Random(seed)
    rows = (messages + 8) * (count - 1)  # a part of them is for each peer
    members = [Member(number, count, rng, rows) for number in range(count)]
    for number in range(messages):
        members[number % count].publish(b"%099d" % number, 1000 if same_time else number)
    total = 0
    for contact in range(400 * count):
        a, b = rng.sample(range(count), 2)
        total += meet(members, a, b, rng, contact * 9000 % (1 << 29), loss, size_max)
        if all(member.node.delivered == messages for member in members):
            return contact, total
    raise AssertionError([member.node.delivered for member in members])


def test_random_pairs_converge_under_loss() -> None:
    contacts, total = run(20, 40, 3, 0.2)
    print(f"\n20 members, 40 messages, 20 % loss: {contacts} contacts, {total:,} B")
    assert total < 40 * 19 * 100 * 3


@pytest.mark.parametrize("same_time", [False, True])
def test_a_group_larger_than_a_filter_is_told_in_parts(same_time: bool) -> None:
    """Filters of some 40 messages for a group of 150; also when all have one timestamp."""
    run(2, 150, 4, 0.0, 100, same_time)


def test_equal_sums_acknowledge_and_maybe_does_not() -> None:
    rng = random.Random(5)
    members = [Member(number, 2, rng, 16) for number in range(2)]
    for number in range(6):
        members[0].publish(b"%d" % number, number)
    node, peer = members[0].node, 1
    frame = bytearray(1024)
    members[1].blooms[0].meet()
    size = members[1].blooms[0].poll_into(frame, 1024)
    assert members[0].blooms[1].receive(frame, size) == OK
    assert node.outstanding(peer) == 6  # an empty peer is no acknowledgement
    for contact in range(6):
        meet(members, 1, 0, rng, contact * 9000, 0.0)
    assert node.outstanding(peer) == 0
    assert members[1].node.delivered == 6


def test_a_filter_waits_until_what_it_tells_of_is_durable() -> None:
    """Equal sums are an acknowledgement."""
    member = Member(0, 2, random.Random(7), 8)
    member.publish(b"reading", 1)
    barrier = member.node.store.barrier
    member.node.store.barrier = lambda: E_STORAGE  # type: ignore[method-assign]
    bloom = member.blooms[1]
    bloom.meet()
    frame = bytearray(1024)
    assert bloom.poll_into(frame, 1024) == 0
    member.node.store.barrier = barrier  # type: ignore[method-assign]
    bloom.meet()
    assert bloom.poll_into(frame, 1024) > 0


def test_another_group_and_nonsense_are_refused() -> None:
    rng = random.Random(6)
    bloom = Member(0, 2, rng, 8).blooms[1]
    frame = bytearray(100)
    empty = Filter(bytearray(), 7, bytes(4))
    stranger = Available(b"stranger", 0, Subset(0, TIME_END), 0, bytes(8), empty)
    size = put_into(frame, stranger)
    assert bloom.receive(frame, size) == E_PEER
    assert bloom.receive(frame, 3) == E_PEER
