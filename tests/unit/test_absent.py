"""Parents that nobody has any more (SPEC 4.2): nothing is lost by it, and silence follows."""

import random

import pytest

from drupelet.base.errors import OK
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.core import Core
from drupelet.engine.inbox import OFFERED, OWED_TWICE, REQUESTED
from drupelet.engine.members import GROUP_UNORDERED, INVISIBLE, SHARED
from drupelet.engine.states import HOLD
from drupelet.link.link import INTERACTIVE
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.wire.profiles import (
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
)
from drupelet.wire.registry import family_of
from helpers import EPOCH_MS, ROUND_MS, Draw, Member, Network, kinds_of, stamp
from unit.numbered_messages import SMALL
from unit.topic_bus import Bus

EPOCH_ROUNDS = EPOCH_MS // ROUND_MS


def is_asking(member: Member) -> bool:
    """Whether something that a message waits for was asked for."""
    pending = member.node.core.pending
    return any(pending.sends(row) for row in range(pending.rows_max))


def let_go(core: Core, id: bytes) -> None:
    """As what makes room: the id stays, and nothing else."""
    for outbox in core.outboxes:
        row = outbox.find(id, 0)
        if row >= 0:
            outbox.drop(row)
    assert core.store.entomb(core.store.find(id, 0), b"", 0) == OK


def ack_frame(profile: int, id: bytes) -> bytearray:
    """A frame that acknowledges one message, once."""
    if profile == PROFILE_MVDS_1:
        return bytearray(b"\x41\x0a\x20" + id)
    return bytearray(b"\x40\x01\x00\x00\x20" + id)


def after(member: Member, parent: bytes, text: bytes, now_ms: int) -> None:
    """A message of the member that depends on one it need not have."""
    body = b"\1" + parent + text
    assert member.node.publish(member.group, body, len(body), stamp(now_ms), now_ms) > 0


def newcomer(profile: int) -> tuple[Network, Member, Member, bytes, bytes]:
    """b has two messages, the second after the first; c has none. Both, and both ids."""
    draw = Draw(5)
    b, c = (Member(name, draw, family=family_of(profile)) for name in "bc")
    net = Network(draw, [b, c], [("b", "c")], profile=profile)
    first, second = b.publish(b"first"), b.publish(b"second")
    assert first is not None and second is not None
    return net, b, c, first, second


@pytest.mark.parametrize(
    "profile", [PROFILE_BSP_1, PROFILE_MVDS_1, PROFILE_MVDS_5001, PROFILE_COMPACT_1]
)
def test_every_profile_with_parents_tells_what_is_gone(profile: int) -> None:
    net, b, c, first, second = newcomer(profile)
    let_go(b.node.core, first)
    net.run(lambda: c.log() == [second], 60)
    assert c.store.noted(first, 0)


def test_what_a_peer_held_and_lost_after_it_had_gone_here_is_answered_and_keeps_no_row() -> None:
    net, b, c, first, second = newcomer(PROFILE_BSP_1)
    net.run(lambda: c.log() == [first, second], 60)
    net.run(lambda: not b.node.outstanding(b.numbers["c"]), 60)
    core = b.node.core
    outbox = core.outboxes[b.links["c"].peer]
    assert outbox.find(first, 0) >= 0, "a row says that c holds it"
    assert core.store.entomb(core.store.find(first, 0), b"", 0) == OK
    b.links["c"].exchange.on_request(bytearray(first), 0)
    assert outbox.find(first, 0) < 0 and outbox.open_count == 0
    inbox = core.inboxes[b.links["c"].peer]
    assert kinds_of(inbox).count(OWED_TWICE) == 1


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
def test_many_parents_that_are_gone_are_told_in_one_answer(profile: int) -> None:
    """Whatever records their acknowledgements stand in: none is asked for again."""
    draw = Draw(5)
    b, c = (Member(name, draw, family=family_of(profile)) for name in "bc")
    net = Network(draw, [b, c], [("b", "c")], profile=profile)
    for number in range(8):
        body = b"\0%d" % number
        assert b.node.publish(b.group, body, len(body), stamp(number), 0) > 0
    parents = b.log()
    body = b"\x08" + b"".join(parents) + b"child"
    assert b.node.publish(b.group, body, len(body), stamp(9), 0) > 0
    child = b.log()[-1]
    for id in parents:
        let_go(b.node.core, id)
    net.run(lambda: is_asking(c), 40)
    net.run(lambda: c.log() == [child], EPOCH_ROUNDS)
    assert all(c.store.noted(id, 0) for id in parents)


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_MVDS_1])
def test_an_acknowledgement_from_before_a_store_was_lost_says_nothing_of_what_is_gone(
    profile: int,
) -> None:
    """c published `first` itself, lost its store, and asks for it; b's ACK was on its way."""
    net, b, c, first, second = newcomer(profile)
    outbox = b.links["c"].exchange.outbox
    b.node.core.refill(outbox.peer)
    outbox.set_state(outbox.find(first, 0), HOLD)
    net.run(lambda: is_asking(c), 20)  # it has asked
    for _ in range(3):
        frame = ack_frame(profile, first)
        assert c.links["b"].receive(frame, len(frame), net.now_ms) == OK
    assert not c.store.noted(first, 0) and c.log() == []
    net.run(lambda: c.log() == [first, second], 60)


def told() -> tuple[Draw, Member, Member, Member, bytes, int]:
    """b let `first` go, which d has; c was told so. Who, the id, and when."""
    draw = Draw(5)
    b, d, c = (Member(name, draw) for name in "bdc")
    old = Network(draw, [b, d], [("b", "d")])
    first, second = b.publish(b"first"), b.publish(b"second")
    assert first is not None and second is not None
    old.run(lambda: second in d.log(), 80)
    let_go(b.node.core, first)
    new = Network(draw, [b, c], [("b", "c")])
    new.now_ms = old.now_ms
    new.run(lambda: second in c.log(), 200)
    assert c.store.noted(first, 0)
    return draw, b, c, d, first, new.now_ms


def frames_of(network: Network, rounds: int) -> int:
    """How many frames leave in so many rounds."""
    before = sum(line.sent for line in network.lines.values())
    for _ in range(rounds):
        network.round()
    return sum(line.sent for line in network.lines.values()) - before


def test_who_sends_a_child_is_asked_for_the_parent_once() -> None:
    """It thinks that we have that: we lost our store, and another peer was faster."""
    draw = Draw(5)
    b, c, d = Member("b", draw, **SMALL), Member("c", draw), Member("d", draw)
    net = Network(draw, [b, c, d], [("b", "c"), ("b", "d"), ("c", "d")])
    zero, first = b.publish(b"zero"), b.publish(b"first")
    assert zero is not None and first is not None
    net.run(lambda: first in c.log() and first in d.log(), 80)
    for number in range(200):
        if first not in b.log():
            break
        assert b.publish(b"%03d" % number + bytes(50), net.now_ms)
        if number % 5 == 0:
            net.run(lambda: not any(b.node.outstanding(b.numbers[x]) for x in "cd"), 80)
            b.node.save(net.now_ms)
    net.run(lambda: not any(m.node.outstanding(x) for m in (b, c, d) for x in m.numbers.values()),
            400)  # fmt: skip
    for line in (net.lines["b", "d"], net.lines["d", "b"]):
        line.send = lambda _frame, _size: None
    c.files = RamFiles(1 << 22)
    c.start()
    c.boot(net.now_ms)
    net.connect(c)
    after(b, first, b"of b", net.now_ms)
    after(d, first, b"of d", net.now_ms)
    net.run(lambda: {zero, first} <= set(c.log()), 200)
    for _ in range(80):
        net.round()
    assert frames_of(net, 400) <= 4


def test_who_left_and_joined_again_gets_what_was_noted() -> None:
    draw, _, c, d, first, now_ms = told()
    net = Network(draw, [d, c], [("d", "c")])
    net.now_ms = now_ms
    net.run(lambda: set(c.log()) == set(d.log()), 400)
    net.run(lambda: not c.node.outstanding(c.numbers["d"]), 400)
    c.node.leave(c.group)
    c.group = c.node.join(READINGS_CLIENT_ID, b"test")
    c.node.share(c.group, c.numbers["d"], SHARED)
    after(d, d.log()[-1], b"after", net.now_ms)
    net.run(lambda: first in c.log(), 400)


def test_who_does_not_see_the_group_is_not_told() -> None:
    draw, _, c, _, first, now_ms = told()
    other = Member("x", draw)
    net = Network(draw, [other, c], [("x", "c")])
    net.now_ms = now_ms
    c.node.share(c.group, c.numbers["x"], INVISIBLE)
    for _ in range(40):
        net.round()
    sent: list[bytes] = []
    net.lines["c", "x"].send = lambda frame, size: sent.append(bytes(frame[:size]))
    c.links["x"].exchange.on_request(bytearray(first), 0)
    for _ in range(40):
        net.round()
    assert not any(first in frame for frame in sent)


class TwoGroups(Member):
    """A member with a second group; at b a message of that may depend on one of the first."""

    def add(self, name: str) -> None:
        super().add(name)  # type: ignore[no-untyped-call]
        flags = GROUP_UNORDERED if self.name == "b" else 0
        self.second = self.node.join(READINGS_CLIENT_ID, b"two", flags)
        self.node.share(self.second, self.numbers[name], SHARED)


def test_a_parent_in_another_group_is_not_noted_and_costs_nothing() -> None:
    draw = Draw(5)
    a, b = TwoGroups("a", draw), TwoGroups("b", draw)
    net = Network(draw, [a, b], [("a", "b")])
    first = b.publish(b"first")
    assert first is not None
    net.run(lambda: first in a.log(), 40)
    for member in (a, b):
        let_go(member.node.core, first)
    body = b"\1" + first + b"child"
    assert b.node.publish(b.second, body, len(body), stamp(0), net.now_ms) > 0
    for _ in range(200):
        net.round()
    programs = a.store.programs
    assert frames_of(net, 400) <= 4 and a.store.programs == programs
    assert not a.store.noted(first, 0) and a.node.pending_count() == 1


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
def test_what_another_peer_may_send_is_waited_for_and_not_for_ever(profile: int) -> None:
    draw, b, c, d, first, now_ms = told()
    late = Member("e", draw)
    net = Network(draw, [b, d, late], [("b", "e"), ("d", "e")], INTERACTIVE, profile=profile)
    net.now_ms = now_ms
    late.links["d"].exchange.on_offer(bytearray(first[:8] + bytes(24)), 0)  # and then d is gone
    late.links["d"].poll_into = lambda _frame, _now_ms: 0
    exchange = late.links["b"].exchange
    inbox = exchange.inbox
    inbox.ask(first, 0, 0)
    entry = inbox.find(first, 0)
    inbox.note_asked(entry, 0)
    exchange.on_gone(bytearray(first), 0)
    assert inbox.kind(entry) == REQUESTED and not late.store.noted(first, 0)
    assert OFFERED in kinds_of(late.links["d"].exchange.inbox), "the offer stays"
    net.lines["d", "e"].send = net.lines["e", "d"].send = lambda _frame, _size: None
    net.run(lambda: late.log() == [id for id in b.log() if id != first], 800)
    assert late.store.noted(first, 0) and c.log()


# --- topics: an ACK says there that its sender holds a message, and everybody hears it ---


def flash() -> FlashStore:
    store = FlashStore(RamFiles(1 << 22))
    assert store.open() == OK
    return store


@pytest.mark.parametrize("count", [2, 4])
def test_what_is_gone_is_met_with_silence_on_a_topic(count: int) -> None:
    bus = Bus(count, 3, 0.0, flash)
    author, *late = bus.members
    bus.members = [author]
    author.publish(b"first", 0)
    store = author.node.core.store
    store.load(store.next(0))
    first = bytes(store.id)
    body = b"\1" + first + b"child"
    assert author.node.publish(author.group, body, len(body), (1).to_bytes(8), 0) > 0
    let_go(author.node.core, first)
    bus.members = [author, *late]
    for _ in range(240):
        bus.turn()
    before = bus.frames
    for _ in range(400):
        bus.turn()
    assert bus.frames - before <= 3 * count


@pytest.mark.parametrize("seed", range(6))
def test_an_acknowledgement_to_others_says_of_nothing_that_it_is_gone(seed: int) -> None:
    bus = Bus(3, seed, 0.4, flash)
    rng = random.Random(seed)
    parents: dict[bytes, bytes | None] = {}
    for number in range(12):
        member = bus.members[number % 3]
        store = member.node.core.store
        handle, newest = store.next(0), None
        while handle:
            store.load(handle)
            newest, handle = bytes(store.id), store.next(handle)
        body = (b"\1" + newest if newest else b"\0") + b"%d" % number
        store.load(member.node.publish(member.group, body, len(body), number.to_bytes(8),
                                       bus.now_ms))  # fmt: skip
        parents[bytes(store.id)] = newest
        for _ in range(rng.randrange(8, 16)):
            bus.turn()
    for _ in range(2000):
        bus.turn()
        if all(member.node.delivered == 12 for member in bus.members):
            break
    for member in bus.members:
        assert not any(member.node.core.store.noted(id, 0) for id in parents)
