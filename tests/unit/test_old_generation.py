"""Frames of an older `compact-1` generation that come late: who is named it greets."""

from itertools import pairwise

import pytest

from compact_view import Spoken
from drupelet.base.limits import HELLO_SENDS_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_COMPACT_1,
    SHARED,
    Link,
    Node,
)
from drupelet.wire.compact.codec import HELLO_SUM
from drupelet.wire.compact.hello import GREETING
from helpers import EPOCH_MS, ROUND_MS, Draw, Member, Network, frames, stamp
from ram_store import RamStore

ROUNDS_PER_EPOCH = EPOCH_MS // ROUND_MS
FRAME_SIZE = 255
KIND = 0x44
SEGMENT = 0x50
HELLO_ASKS = 0x84


def view(net: Network, name: str) -> Spoken:
    link = net.members[name].links["AB"[name == "A"]]
    assert isinstance(link, Link)
    return Spoken(link)


def begin_anew(net: Network, how: str) -> None:
    """A numbers from the start in a new generation; it does not know that B has the message."""
    a = net.members["A"]
    net.mode = BATCH
    if how == "cut":
        a.store.barrier()
        a.files.power_cut()
        a.start()
        a.boot(net.now_ms)
    else:
        a.node.remove_peer(a.numbers["B"])
        a.add("B")
        a.node.share(a.group, a.numbers["B"], SHARED)
    net.connect(a)


def started(body: int, how: str) -> tuple[Network, bytes]:
    """B has a message of A, which began anew and was greeted; a frame of before."""
    draw = Draw(body)
    members = [Member(name, draw) for name in "AB"]
    net = Network(draw, members, ["AB"], INTERACTIVE, FRAME_SIZE, profile=PROFILE_COMPACT_1)
    id = members[0].publish(bytes(body))
    assert id
    (late,) = frames(net, "A", "B")
    assert late[0] == KIND and id[:8] in late, "its offer"
    members[1].links["A"].receive(bytearray(late), len(late), net.now_ms)
    net.run(lambda: net.complete(1), 100)
    begin_anew(net, how)
    net.lines["A", "B"].never = bytes((SEGMENT,)) + id[:8]
    for _ in range(2 * ROUNDS_PER_EPOCH):
        net.round()
    net.lines["A", "B"].never = None
    assert not view(net, "A").has(GREETING) and not net.complete(1)
    return net, late


def sent_bytes(net: Network, epochs: int) -> int:
    before = sum(line.bytes for line in net.lines.values())
    for _ in range(epochs * ROUNDS_PER_EPOCH):
        net.round()
    return sum(line.bytes for line in net.lines.values()) - before


@pytest.mark.parametrize("how", ["cut", "added again"])
@pytest.mark.parametrize("body", [300, 2000])
def test_a_late_frame_of_before_keeps_no_long_message_from_its_ack(body: int, how: str) -> None:
    """Pieces name no generation: the ACK would name the old one, for ever."""
    net, _ = started(body, how)
    without = sent_bytes(net, 200)
    assert net.complete(1)
    net, late = started(body, how)
    net.members["B"].links["A"].receive(bytearray(late), len(late), net.now_ms)
    spent = sent_bytes(net, 200)
    assert net.complete(1)
    assert spent <= without + body + 300, "at most it went once more"
    assert sent_bytes(net, 200) == 0


class Told:
    """A node with a message for a peer, whose ACK names an old generation when it is told to."""

    def __init__(self) -> None:
        self.node = Node(RamStore(), lambda: 0, 2)
        group = self.node.join(READINGS_CLIENT_ID, b"g")
        peer = self.node.add_peer(b"PEER")
        self.node.share(group, peer, SHARED)
        self.node.boot(0)
        assert self.node.publish(group, b"\0", 1, stamp(0), 0) > 0
        link = self.node.link(peer, PROFILE_COMPACT_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
        assert isinstance(link, Link)
        self.link = link
        self.now_ms = 0
        self.generation = Spoken(link).generation
        assert self.hellos() == 1
        self.answer()

    def hear(self, frame: bytes) -> None:
        self.link.receive(bytearray(frame), len(frame), self.now_ms)

    def answer(self) -> None:
        self.hear(bytes((KIND, 0x81)) + self.generation.to_bytes(2, "big") + bytes(2))
        assert not Spoken(self.link).has(GREETING)

    def name_an_old_one(self) -> None:
        old = (self.generation - 1 & 0xFFFF).to_bytes(2, "big")
        self.hear(bytes((KIND, 0x04)) + old + b"\x01" + b"fold")

    def hellos(self) -> int:
        """How many HELLOs that ask leave now; one is the first record of its frame."""
        frame = bytearray(FRAME_SIZE)
        found = 0
        while self.link.poll_into(frame, self.now_ms):
            found += frame[1] & ~HELLO_SUM == HELLO_ASKS
        return found


def test_many_old_sets_cost_one_hello() -> None:
    told = Told()
    for _ in range(2):  # after the answer, it asks again
        told.now_ms += 10 * EPOCH_MS
        assert told.hellos() == 0
        told.now_ms += 10 * EPOCH_MS
        before = told.link.codec.ignored
        for _ in range(20):
            told.name_an_old_one()
            told.now_ms += 1
        assert told.link.codec.ignored == before + 20
        assert told.hellos() == 1
        told.answer()
    assert told.node.malformed == 0


def test_who_goes_on_in_an_old_one_is_asked_as_seldom_as_who_says_nothing() -> None:
    told = Told()
    asked = []
    for _ in range(200 * ROUNDS_PER_EPOCH):
        told.now_ms += ROUND_MS
        told.name_an_old_one()
        asked += [told.now_ms // EPOCH_MS] * told.hellos()
    gaps = [after - before for before, after in pairwise(asked)]
    assert 1 < len(asked) <= HELLO_SENDS_MAX + 200 // (1 << HELLO_SENDS_MAX)
    assert all(gap >= 2 << min(number, HELLO_SENDS_MAX - 1) for number, gap in enumerate(gaps))
