"""What a peer may not see, and what it may not make us do."""

import pytest

from drupelet.base.limits import FRAMES_PER_EPOCH_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID
from drupelet.node import BATCH, INTERACTIVE, INVISIBLE, SHARED, VISIBLE
from helpers import EPOCH_MS, Draw, Member, Network, stamp

modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


def record(kind: int, payload: bytes) -> bytes:
    return bytes([1, kind]) + len(payload).to_bytes(2, "big") + payload


class Watched:
    """A member A with two groups; B shares only the first. Every frame to B is looked at."""

    def __init__(self, mode: int) -> None:
        self.net = Network(Draw(mode + 1), [Member("A", Draw(1)), Member("B", Draw(2))], ["AB"],
                           mode)  # fmt: skip
        self.a, self.b = self.net.members["A"], self.net.members["B"]
        self.peer = self.a.numbers["B"]
        self.secret = self.a.node.join(TELEMETRY_CLIENT_ID, b"secret")
        self.out: list[bytes] = []
        send = self.net.lines["A", "B"].send

        def watch(frame: bytearray, size: int) -> None:
            self.out.append(bytes(frame[:size]))
            send(frame, size)

        self.net.lines["A", "B"].send = watch

    def publish(self, payload: bytes) -> bytes:
        body = b"\x00" + payload
        assert self.a.node.publish(self.secret, body, len(body), stamp(1), 0) > 0
        return self.a.log()[-1]

    def ask(self, kind: int, ids: bytes) -> None:
        frame = bytearray(b"\x40" + record(kind, ids))
        assert self.a.links["B"].receive(frame, len(frame), self.net.now_ms) == 0

    def rounds(self, count: int) -> bytes:
        self.out.clear()
        for _ in range(count):
            self.net.round()
        return b"".join(self.out)


@modes
@pytest.mark.parametrize("visibility", [INVISIBLE, VISIBLE])
def test_nothing_of_a_group_goes_to_a_peer_that_does_not_share_it(
    mode: int, visibility: int
) -> None:
    w = Watched(mode)
    w.a.node.share(w.secret, w.peer, visibility)
    ids = [w.publish(b"secret %d" % number + bytes(200 * number)) for number in range(8)]
    w.a.publish(b"public")
    w.net.run(lambda: len(w.b.log()) == 1, 100)
    for id in ids:
        w.ask(3, id)
    sent = w.rounds(100)
    assert b"secret" not in sent and not any(id[:8] in sent for id in ids)


@modes
def test_a_request_for_an_unknown_id_is_as_silent_as_one_for_an_unshared(mode: int) -> None:
    w = Watched(mode)
    hidden = w.publish(b"hidden")
    w.rounds(20)
    w.ask(3, bytes(range(32)))
    unknown = w.rounds(20)
    w.ask(3, hidden)
    assert w.rounds(20) == unknown == b""


@modes
def test_an_offer_of_an_unshared_id_is_answered_like_one_of_an_unknown(mode: int) -> None:
    w = Watched(mode)
    hidden = w.publish(b"hidden")
    for id in (bytes(range(1, 33)), hidden):
        w.rounds(20)
        w.ask(2, id)
        assert w.rounds(20) == b"\x40" + record(3, id)
    w.ask(0, hidden)
    w.ask(2, bytes(31) + b"\1")
    assert w.rounds(20) == b"\x40" + record(3, bytes(31) + b"\1")


@modes
def test_a_prefix_in_a_segment_finds_nothing_out(mode: int) -> None:
    w = Watched(mode)
    hidden = w.publish(b"hidden")
    frame = bytearray(b"\x50" + hidden[:8] + (100).to_bytes(2, "big") + bytes(2) + bytes(60))
    w.rounds(20)
    w.a.links["B"].receive(frame, len(frame), w.net.now_ms)
    frame[12] = 50
    w.a.links["B"].receive(frame, 30, w.net.now_ms)
    state = bytearray(b"\x51" + hidden[:8] + bytes(2))
    w.a.links["B"].receive(state, len(state), w.net.now_ms)
    assert w.rounds(20) == b""


@modes
def test_messages_into_a_group_that_is_not_shared_are_dropped(mode: int) -> None:
    w = Watched(mode)
    group = bytes(w.a.node.core.members.group_ids[32:64])
    for id in (group, bytes(32)):
        frame = bytearray(b"\x40" + record(1, id + bytes(8) + b"\x00into it"))
        assert w.a.links["B"].receive(frame, len(frame), 0) == 0
    assert w.a.log() == [] and w.a.node.core.unknown == 2
    assert w.rounds(12) == b""
    w.a.node.share(w.secret, w.peer, VISIBLE)
    frame = bytearray(b"\x40" + record(1, group + bytes(8) + b"\x00into it"))
    w.a.links["B"].receive(frame, len(frame), w.net.now_ms)
    assert len(w.a.log()) == 1
    assert w.a.log()[0] in w.rounds(12), "accepted, so acknowledged"


def test_what_was_acknowledged_but_not_sent_stays_when_a_group_gets_invisible() -> None:
    w = Watched(BATCH)
    w.a.node.share(w.secret, w.peer, SHARED)
    group = bytes(w.a.node.core.members.group_ids[32:64])
    frame = bytearray(b"\x40" + record(1, group + bytes(8) + b"\x00into it"))
    w.a.links["B"].receive(frame, len(frame), 0)
    w.publish(b"secret")
    w.a.node.share(w.secret, w.peer, INVISIBLE)
    assert w.rounds(20) == b""


def test_groups_of_two_clients_do_not_mix() -> None:
    members = [Member(name, Draw(1)) for name in "ABC"]
    net = Network(Draw(1), members, ["AB", "AC"])
    a, b, c = members
    other = {}
    for member in (a, c):
        other[member] = member.node.join(READINGS_CLIENT_ID, b"other")
        peer = member.numbers["C" if member is a else "A"]
        member.node.share(member.group, peer, INVISIBLE)
        member.node.share(other[member], peer, SHARED)
    for number in range(20):
        a.publish(b"%d" % number)
        body = b"\x00%d" % number
        assert c.node.publish(other[c], body, len(body), stamp(number), 0) > 0
    net.run(lambda: len(a.log()) == 40, 100)
    for _ in range(40):
        net.round()
    assert len(b.log()) == len(c.log()) == 20 and not set(b.log()) & set(c.log())


@modes
def test_a_flood_of_requests_is_bounded_per_epoch(mode: int) -> None:
    w = Watched(mode)
    for number in range(30):
        w.a.publish(bytes(700) + bytes([number]))
    w.net.run(lambda: w.net.complete(30), 400)
    ids = w.a.log()
    w.net.lines["A", "B"].loss = 1000
    frame = bytearray(1024)
    for _ in range(10):
        w.net.now_ms += EPOCH_MS
        sent: list[bytes] = []
        for _ in range(40):
            w.ask(3, b"".join(ids))
            size = w.a.links["B"].poll_into(frame, w.net.now_ms)
            if size:
                sent.append(bytes(frame[:size]))
        assert 0 < len(sent) <= FRAMES_PER_EPOCH_MAX
        bodies = b"".join(sent)
        for number in range(30):
            assert bodies.count(bytes(700) + bytes([number])) <= 1, "once in a payload"
    w.net.lines["A", "B"].loss = 0
    w.net.run(lambda: w.net.complete(30), 400)


def test_a_flood_of_offers_keeps_to_its_quota() -> None:
    """A peer has half of the entries, and none of the other one's."""
    members = [Member(name, Draw(1), pool=8, offers=16) for name in "ABC"]
    net = Network(Draw(1), members, ["AB", "AC"])
    a, _, c = members
    for epoch in range(50):
        junk = b"".join(bytes([epoch + 1, i]) * 16 for i in range(30))
        frame = bytearray(b"\x40" + record(2, junk))
        a.links["B"].receive(frame, len(frame), net.now_ms)
        c.publish(b"%d" % epoch)
        net.round()
    flooded, other = (a.links[name].exchange.inbox for name in "BC")
    assert flooded.offers_max == other.offers_max == 8
    for i in range(30):
        assert other.find(bytes([50, i]) * 16, 0) < 0
    net.run(lambda: len(a.log()) == 50, 400)
