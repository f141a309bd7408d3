"""On one connection of `bsp-0`, a reliable stream, nothing goes twice, however slow the peer."""

from collections import Counter
from typing import Any

import pytest

from drupelet.node import BATCH, CARRIER_SERIAL, INTERACTIVE
from drupelet.wire.bsp0 import records as bsp0
from drupelet.wire.bsp0.session import Session
from drupelet.wire.profiles import PROFILE_BSP_0
from helpers import EPOCH_MS, ROUND_MS, Draw
from helpers_bsp0 import Friend, friends

modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


class Stream:
    """A connection whose ends read so many bytes per round; what was written waits meanwhile."""

    def __init__(self, members: list[Friend], links: list[Any], nonce: int) -> None:
        self.members = members
        nonces = (bytes((nonce,)) * 16, b"")
        self.sessions = [Session(link, [], nonces[at]) for at, link in enumerate(links)]
        self.written = [bytearray(), bytearray()]
        self.read = [0, 0]

    def round(self, now_ms: int, rates: tuple[int, int]) -> None:
        """`rates`: bytes that each end writes at most, and the other one reads, per round."""
        for at, session in enumerate(self.sessions):
            while piece := session.poll(now_ms):
                self.written[at] += piece
        for at, other in enumerate(reversed(self.sessions)):
            until = min(self.read[at] + rates[at], len(self.written[at]))
            if until > self.read[at]:
                assert not other.feed(bytes(self.written[at][self.read[at] : until]), now_ms)
                self.read[at] = until
        for member in self.members:
            member.consume()

    def sent(self, at: int) -> Counter[tuple[int, bytes]]:
        """How often an end wrote each id of an OFFER, REQUEST, MESSAGE."""
        reader = bsp0.Reader()
        reader.push(self.written[at])
        counts: Counter[tuple[int, bytes]] = Counter()
        while reader.next():
            text = reader.payload
            if reader.kind == bsp0.MESSAGE:
                counts[bsp0.MESSAGE, bsp0.message_id(text[:32], text[32:40], text[40:])] += 1
            elif reader.kind in (bsp0.OFFER, bsp0.REQUEST):
                counts.update((reader.kind, text[k : k + 32]) for k in range(0, len(text), 32))
        return counts

    def cut(self) -> None:
        for session in self.sessions:
            session.end()


def two(mode: int, pool: int) -> tuple[list[Friend], list[Any]]:
    members = friends(Draw(3), 2, pool=pool)
    links = []
    for member, other in zip(members, "ba", strict=True):
        member.peers.append(other)
        member.add(other)
        member.boot()
        peer = member.numbers[other]
        links.append(member.node.link(peer, PROFILE_BSP_0, CARRIER_SERIAL, EPOCH_MS, mode))
    return members, links


def have_all(members: list[Friend], count: int) -> bool:
    owed = [m.node.outstanding(m.numbers[m.peers[0]]) for m in members]
    return not any(owed) and [len(m.log()) for m in members] == [count, count]


@modes
@pytest.mark.parametrize("pool", [4, 16, 256])
@pytest.mark.parametrize("rates", [(60, 20_000), (60, 60), (20_000, 20)])
def test_nothing_goes_twice_to_a_slow_peer(mode: int, pool: int, rates: tuple[int, int]) -> None:
    members, links = two(mode, pool)
    for number in range(100):
        assert members[number % 2].publish(b"%d" % number * 40, 0)
    stream = Stream(members, links, 5)
    now_ms = 0
    while not have_all(members, 100):
        now_ms += ROUND_MS
        stream.round(now_ms, rates)
        assert now_ms < 2_000 * EPOCH_MS
    for at in range(2):
        sent = stream.sent(at)
        assert max(sent.values()) == 1, "sent twice on one connection"
        assert sum(count for (kind, _), count in sent.items() if kind == bsp0.MESSAGE) == 50


@modes
def test_another_connection_sends_what_the_last_one_lost_at_once(mode: int) -> None:
    members, links = two(mode, 64)
    for number in range(30):
        assert members[0].publish(b"%d" % number * 40, 0)
    now_ms = 0
    for nonce in range(1, 4):
        stream = Stream(members, links, nonce)
        for _ in range(40 * EPOCH_MS // ROUND_MS):
            now_ms += ROUND_MS
            stream.round(now_ms, (0, 0))  # nothing arrives
        sent = stream.sent(0)
        assert len(sent) == 30 and set(sent.values()) == {1}, "in the first round, each once"
        stream.cut()
    stream = Stream(members, links, 9)
    for _ in range(40):
        now_ms += ROUND_MS
        stream.round(now_ms, (4_000, 4_000))
    assert have_all(members, 30)


def test_what_the_peer_asks_for_again_goes_again() -> None:
    members, links = two(BATCH, 64)
    id = members[0].publish(b"x")
    session = Session(links[0], [])
    now_ms = 0

    def messages() -> int:
        nonlocal now_ms
        written = b""
        for _ in range(8):
            now_ms += EPOCH_MS
            while piece := session.poll(now_ms):
                written += piece
        reader = bsp0.Reader()
        reader.push(written)
        count = 0
        while reader.next():
            count += reader.kind == bsp0.MESSAGE
        return count

    assert messages() == 1 and messages() == 0
    assert id is not None
    session.feed(bsp0.record(bsp0.VERSIONS, b"\0") + bsp0.record(bsp0.REQUEST, id), now_ms)
    assert messages() == 1 and messages() == 0


def table_sizes(session: Session) -> dict[str, int]:
    """Lengths of everything that a session and its link keep."""
    exchange = session.link.exchange
    owners = (session, session.link, exchange, exchange.outbox, exchange.inbox, exchange.pace)
    return {
        f"{type(owner).__name__}.{name}": len(table)
        for owner in owners
        for name, table in vars(owner).items()
        if isinstance(table, bytearray | list | dict | set)
    }


def test_what_a_session_remembers_is_bounded_by_the_tables() -> None:
    members, links = two(BATCH, 8)
    stream = Stream(members, links, 5)
    sizes = table_sizes(stream.sessions[0])
    now_ms = 0
    for number in range(600):
        assert members[0].publish(b"%d" % number, now_ms)
        now_ms += ROUND_MS
        stream.round(now_ms, (1_000, 1_000))
    assert len(members[1].log()) > 590
    assert table_sizes(stream.sessions[0]) == sizes
