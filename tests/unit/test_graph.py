"""Dependencies: what enters the log when, through pools of any size and bad lines."""

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import DEPENDENCIES_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.inbox import OFFERED, REQUESTED
from drupelet.node import BATCH, INTERACTIVE, PROFILE_BSP_1, SHARED
from drupelet.store.states import STATE_INVALID
from helpers import Draw, Member, Network, check_causal, stamp
from naive import bsp

CHAIN = 200
modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


@modes
@pytest.mark.parametrize(
    ("pool", "rounds_max"), [(1, 60_000), (2, 40_000), (4, 20_000), (64, 2_000)]
)
def test_a_chain_completes_at_30_percent_loss(mode: int, pool: int, rounds_max: int) -> None:
    draw = Draw(pool)
    sender = Member("S", draw, pool=64)
    receiver = Member("R", draw, pool=pool, offers=pool)
    network = Network(draw, [sender, receiver], ["SR"], mode, loss=300, repeat=50, reorder=100)
    for number in range(CHAIN):
        assert sender.publish(b"%d" % number)
    network.run(lambda: network.complete(CHAIN), rounds_max)
    assert receiver.log() == sender.log()
    check_causal(receiver)
    assert receiver.node.pending_count() == 0


@modes
@pytest.mark.parametrize("pool", [1, 2, 4])
def test_small_pools_on_both_sides_and_a_flipping_line(mode: int, pool: int) -> None:
    draw = Draw(pool + 10)
    members = [Member(name, draw, pool=pool, offers=pool) for name in "AB"]
    network = Network(
        draw, members, ["AB"], mode, loss=200, repeat=100, reorder=200, flip=100
    )  # fmt: skip
    for number in range(30):
        for member in members:
            assert member.publish(b"%s%d" % (member.name.encode(), number))
        network.round()
    network.run(lambda: network.complete(60), 60_000)
    for member in members:
        check_causal(member)


@modes
def test_four_members_in_a_row_and_a_ring(mode: int) -> None:
    for edges in (["AB", "BC", "CD"], ["AB", "BC", "CD", "DA"]):
        draw = Draw(5)
        members = [Member(name, draw, pool=16, offers=16) for name in "ABCD"]
        network = Network(draw, members, edges, mode, loss=200, repeat=100, reorder=100)
        for number in range(40):
            for member in members:
                assert member.publish(b"%s%d" % (member.name.encode(), number))
            network.round()
        network.run(lambda n=network: n.complete(160), 8_000)
        for member in members:
            check_causal(member)
            assert member.node.malformed == 0


def id_of(body: bytes, timestamp: int) -> bytes:
    """The id of a message of the group of all members here."""
    return bsp.Message(bsp.group_id(READINGS_CLIENT_ID, b"test"), timestamp, body).id


class Pair:
    """A receiver that is fed by hand: the sender's frames, made from its log."""

    def __init__(self, pool: int = 8, offers: int = 8) -> None:
        draw = Draw(3)
        self.sender = Member("S", draw)
        self.receiver = Member("R", draw, pool=pool, offers=offers)
        self.receiver.peers.append("S")
        self.receiver.add("S")
        self.sender.boot()
        self.receiver.boot()
        self.link = self.receiver.node.link(self.receiver.numbers["S"], PROFILE_BSP_1, 0, 1000, 0)
        self.now_ms = 0

    def fill_pending(self) -> list[bytes]:
        """Fill the rows of messages that wait, each for a parent that was asked for; these."""
        rows = self.receiver.node.core.pending.rows_max
        parents = [bytes([number + 100]) * 32 for number in range(rows)]
        for parent in parents:
            self.message(b"\x01" + parent + b"waits")
        assert self.receiver.node.pending_count() == rows and self.asked()["requests"] == parents
        return parents

    def give_two_that_wait(self) -> tuple[bytes, bytes, bytes]:
        """Publish three messages, each behind the one before, and give all but the first."""
        first, second, third = (self.sender.publish(b"%d" % number) for number in range(3))
        assert first and second and third
        self.give(third)
        self.give(second)
        return first, second, third

    def message(self, body: bytes, timestamp: int = 1) -> None:
        group = bytes(self.receiver.node.core.members.group_ids[:32])
        content = group + timestamp.to_bytes(8, "big") + body
        frame = bytearray(b"\x40\x01\x01" + len(content).to_bytes(2, "big") + content)
        self.code = self.link.receive(frame, len(frame), self.now_ms)

    def give(self, id: bytes) -> None:
        store = self.sender.store
        handle = store.find(id, 0)
        body = self.sender.body(handle)
        store.load(handle)
        self.message(body, int.from_bytes(store.timestamp, "big"))

    def asked(self) -> dict[str, list[bytes]]:
        """What the receiver sends in its next payload, by record type."""
        self.now_ms += 1000
        out: dict[str, list[bytes]] = {"acks": [], "requests": [], "offers": []}
        frame = bytearray(1024)
        size = self.link.poll_into(frame, self.now_ms)
        while size:
            at = 1
            while at < size:
                kind, length = frame[at + 1], frame[at + 2] << 8 | frame[at + 3]
                at += 4
                name = {0: "acks", 2: "offers", 3: "requests"}[kind]
                out[name] += [bytes(frame[i : i + 32]) for i in range(at, at + length, 32)]
                at += length
            size = self.link.poll_into(frame, self.now_ms)
        return out


def test_a_missing_parent_is_requested_by_id_until_it_comes() -> None:
    pair = Pair()
    first, second, third = (pair.sender.publish(b"%d" % n) for n in range(3))
    assert first and second and third
    pair.give(third)
    assert pair.receiver.log() == [] and pair.receiver.node.pending_count() == 1
    sent = pair.asked()
    assert sent["acks"] == [third] and sent["requests"] == [second]
    assert not pair.asked()["requests"]
    pair.now_ms += 1000
    assert pair.asked()["requests"] == [second], "asked for again"
    pair.give(second)
    assert pair.asked()["requests"] == [first] and pair.receiver.node.pending_count() == 2
    pair.give(first)
    assert pair.receiver.log() == [first, second, third]
    assert pair.receiver.node.pending_count() == 0
    assert pair.asked() == {"acks": [first], "requests": [], "offers": []}
    assert pair.receiver.node.delivered == 3


def test_no_room_to_wait_asks_for_the_parent_first() -> None:
    pair = Pair(pool=1)
    first, second = pair.sender.publish(b"1"), pair.sender.publish(b"2")
    assert first and second
    pair.fill_pending()
    pair.give(second)
    assert pair.receiver.node.refused == 1 and pair.receiver.node.pending_count() == 1
    assert pair.asked() == {"acks": [], "requests": [first], "offers": []}
    inbox = pair.link.exchange.inbox
    offered = [bytes([entry + 1]) * 32 for entry in range(inbox.offers_max)]
    for id in offered:
        assert inbox.add(id, 0, OFFERED, 9) >= 0, "it takes no room from offers"
    requests = pair.asked()["requests"]
    assert requests[: len(offered)] == offered and first not in requests, "not at once again"
    pair.give(second)  # it comes again
    pair.now_ms += 1000
    assert pair.receiver.node.refused == 2 and first in pair.asked()["requests"]
    pair.give(first)
    pair.give(second)
    assert pair.receiver.log() == [first, second]


def test_a_parent_of_what_came_too_early_may_be_gone() -> None:
    """Who is asked for it says so with an ACK of it, twice: the child need not wait for it."""
    pair = Pair(pool=1)
    first, second = (pair.sender.publish(b"%d" % number) for number in range(2))
    assert first and second
    pair.fill_pending()
    pair.give(second)
    assert pair.asked()["requests"] == [first] and not pair.receiver.log()
    frame = bytearray(b"\x40\x01\x00\x00\x40" + first + first)
    pair.link.receive(frame, len(frame), pair.now_ms)
    pair.give(second)
    assert pair.receiver.log() == [second]


def test_what_comes_too_early_asks_for_what_its_pending_parents_wait_for() -> None:
    """Nothing else can enter: what is in between waits already."""
    pair = Pair(pool=2)
    ids = [pair.sender.publish(b"%d" % number) for number in range(4)]
    root, second, third, fourth = (id for id in ids if id)
    pair.give(third)
    pair.give(second)
    assert pair.receiver.node.pending_count() == 2
    pair.give(fourth)
    assert pair.receiver.node.refused == 1
    inbox = pair.link.exchange.inbox
    entry = inbox.find(root, 0)
    assert inbox.kind(entry) == REQUESTED and entry == inbox.offers_max
    assert pair.asked()["requests"] == [root], "once, though a message waits for it, too"
    pair.give(root)
    assert pair.receiver.log() == [root, second, third]


def test_a_body_that_the_flash_does_not_give_is_not_taken_for_a_malformed_one() -> None:
    """It waits, and enters when it can be read."""
    pair = Pair()
    first, second, third = pair.give_two_that_wait()
    store = pair.receiver.store
    read_into = store.read_into
    store.read_into = lambda *_: -3  # type: ignore[method-assign]
    pair.give(first)
    assert pair.receiver.log() == [first] and pair.receiver.node.pending_count() == 2
    store.read_into = read_into  # type: ignore[method-assign]
    pair.asked()
    assert pair.receiver.log() == [first, second, third]


def test_what_comes_in_between_two_frames_of_a_payload_is_acknowledged_with_the_second() -> None:
    pair = Pair()
    first, second = (pair.sender.publish(b"%d" % number) for number in range(2))
    assert first and second
    pair.give(first)
    pair.now_ms += 1000
    frame = bytearray(1024)
    assert pair.link.poll_into(frame, pair.now_ms) == 5 + 32 and frame[5:37] == first
    pair.give(second)
    assert pair.link.poll_into(frame, pair.now_ms) == 5 + 32 and frame[5:37] == second


def test_a_flood_of_children_without_parents_leaves_room_for_a_whole_one() -> None:
    pair = Pair(pool=4, offers=4)
    for number in range(50):
        pair.message(b"\x01" + bytes([number + 1]) * 32 + b"orphan")
    assert pair.receiver.node.pending_count() == 4
    # What the four wait for, and one parent of what had no room.
    assert len(pair.asked()["requests"]) == 5
    pair.message(b"\x00whole")
    assert len(pair.receiver.log()) == 1


@pytest.mark.parametrize("entering", [0, 1])
def test_a_parent_that_came_when_there_was_no_room_is_asked_for_again(entering: int) -> None:
    """Though another child enters first: all that wait are looked at, not up to the first."""
    whole = Pair()

    def id_of(body: bytes) -> bytes:
        whole.message(body)
        return whole.receiver.log()[-1]

    root, here = id_of(b"\x00root"), id_of(b"\x00here")
    between = id_of(b"\x01" + root + b"between")
    pair = Pair(pool=2)
    children = [b"\x01" + between + b"waits"]
    children.insert(entering, b"\x01" + here + b"enters")
    for body in children:
        pair.message(body)
    assert sorted(pair.asked()["requests"]) == sorted([here, between])
    pair.message(b"\x01" + root + b"between")
    assert pair.receiver.node.refused == 1 and pair.receiver.node.pending_count() == 2
    assert pair.asked()["requests"] == [root], "it came, and lacks this"
    pair.message(b"\x00here")
    assert len(pair.receiver.log()) == 2 and pair.receiver.node.pending_count() == 1
    requests = [pair.asked()["requests"] for _ in range(8)]
    assert 1 <= sum(between in ids for ids in requests) <= 3, "again, and by the back-off"


@pytest.mark.parametrize(
    "body",
    [b"\x09" + bytes(288), b"\xff" * 900, b"\x01" + bytes(31), b"\x04" + bytes(127), b"\x02x"],
)
def test_invalid_bodies_are_buried_and_acknowledged(body: bytes) -> None:
    pair = Pair()
    pair.message(body)
    node = pair.receiver.node
    assert (node.malformed, node.pending_count()) == (0, 0)
    assert pair.receiver.log() == [] and pair.receiver.store.next_pending(0) == 0
    asked = pair.asked()
    assert len(asked["acks"]) == 1 and asked["requests"] == asked["offers"] == []
    store = pair.receiver.store
    assert store.load(store.find(asked["acks"][0], 0)) == OK and store.state == STATE_INVALID
    pair.message(body)
    assert node.duplicates == 1


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00" + bytes(951)])
def test_bodies_without_dependencies(body: bytes) -> None:
    pair = Pair()
    pair.message(body)
    assert len(pair.receiver.log()) == 1
    assert pair.receiver.body(pair.receiver.store.next(0)) == body


def test_four_parents_and_the_same_one_twice() -> None:
    pair = Pair()
    parents = []
    for number in range(4):
        pair.message(b"\x00%d" % number)
        parents.append(pair.receiver.log()[-1])
    pair.message(b"\x04" + b"".join(parents) + b"child")
    pair.message(b"\x02" + parents[0] * 2 + b"twice")
    assert len(pair.receiver.log()) == 6


@pytest.mark.parametrize("size", [5, 1500], ids=["short", "in a part file"])
@pytest.mark.parametrize("place", range(DEPENDENCIES_MAX))
def test_each_of_eight_parents_is_waited_for(place: int, size: int) -> None:
    pair = Pair(pool=16, offers=16)
    roots = [(number + 1, b"\x00%d" % number) for number in range(DEPENDENCIES_MAX)]
    ids = [id_of(body, moment) for moment, body in roots]
    for moment, body in roots:
        if moment != place + 1:
            pair.message(body, moment)
    child = bytes([len(ids)]) + b"".join(ids) + bytes(size)
    pair.message(child)
    log = pair.receiver.log()
    assert len(log) == DEPENDENCIES_MAX - 1 and pair.receiver.node.pending_count() == 1
    assert pair.asked()["requests"] == [ids[place]]
    pair.message(roots[place][1], place + 1)
    assert pair.receiver.log() == [*log, ids[place], id_of(child, 1)]


@pytest.mark.parametrize("size", [5, 1500], ids=["short", "in a part file"])
def test_a_ninth_parent_makes_a_message_invalid(size: int) -> None:
    """Its id covers them all, so none may be left out."""
    pair = Pair(pool=16, offers=16)
    for number in range(DEPENDENCIES_MAX + 1):
        pair.message(b"\x00%d" % number, number + 1)
    ids = pair.receiver.log()
    child = bytes([len(ids)]) + b"".join(ids) + bytes(size)
    pair.message(child)
    assert pair.receiver.log() == ids and id_of(child, 1) in pair.asked()["acks"]


@pytest.mark.parametrize("has_row", [True, False])
def test_a_parent_in_another_group_is_no_parent(has_row: bool) -> None:
    pair = Pair()
    node = pair.receiver.node
    other = node.join(READINGS_CLIENT_ID, b"other")
    if has_row:
        node.share(other, pair.receiver.numbers["S"], SHARED)
    handle = node.publish(other, b"\x00", 1, stamp(0), 0)
    pair.receiver.store.load(handle)
    foreign = bytes(pair.receiver.store.id)
    node.core.refill(pair.link.peer)
    assert (pair.link.exchange.outbox.find(foreign, 0) >= 0) == has_row
    pair.message(b"\x01" + foreign + b"child")
    assert node.pending_count() == 1


def test_children_of_a_deleted_message_are_delivered() -> None:
    pair = Pair()
    first, second = pair.sender.publish(b"1"), pair.sender.publish(b"2")
    assert first and second
    pair.give(first)
    store = pair.receiver.store
    assert store.entomb(store.find(first, 0), b"", 0) == 0
    pair.give(second)
    assert pair.receiver.node.delivered == 2


def test_pending_survives_a_reboot_and_its_parent_is_asked_for_again() -> None:
    pair = Pair()
    first, second, third = pair.give_two_that_wait()
    assert pair.asked()["acks"] == [third, second]
    for pool in (8, 2, 1):
        receiver = pair.receiver
        receiver.files.power_cut()
        receiver.pool = pool
        receiver.start()
        receiver.boot()
        pair.link = receiver.node.link(receiver.numbers["S"], PROFILE_BSP_1, 0, 1000, 0)
        pair.now_ms = 0
        assert receiver.node.pending_count() == min(2, pool)
        if pool == 8:
            assert pair.asked()["requests"] == [first]
    pair.give(first)
    assert pair.asked()["acks"] == [first]
    pair.asked()
    pair.asked()
    assert pair.receiver.log() == [first, second, third], "also with a smaller table than before"


def test_what_we_publish_never_waits() -> None:
    """After a parent that waits itself, or that nobody has, it is refused, and not kept."""
    pair = Pair()
    first, second = pair.sender.publish(b"1"), pair.sender.publish(b"2")
    assert first and second
    pair.give(second)
    receiver = pair.receiver
    node = receiver.node
    for parent in (second, bytes(32)):
        body = b"\1" + parent + b"ours"
        assert node.publish(receiver.group, body, len(body), stamp(0), 0) < 0
    assert node.pending_count() == 1 and node.delivered == 0
    pair.give(first)
    assert node.delivered == 2
    body = b"\1" + second + b"ours"
    assert node.publish(receiver.group, body, len(body), stamp(0), 0) > 0
    assert len(receiver.log()) == 3


def test_a_parent_that_came_before_the_cut_is_found_at_boot() -> None:
    pair = Pair()
    first, second = pair.sender.publish(b"1"), pair.sender.publish(b"2")
    assert first and second
    pair.give(second)
    graph = pair.receiver.node.core.graph
    graph.promote = lambda: False  # the power goes between the parent and its child
    pair.give(first)
    pair.receiver.store.barrier()
    pair.receiver.files.power_cut()
    pair.receiver.start()
    pair.receiver.boot()
    assert pair.receiver.log() == [first, second]
    given = pair.receiver.consume()
    assert len(given) == 2 and pair.receiver.again == given, "the cut may have taken its delivery"


def test_whose_source_is_gone_somebody_else_is_asked() -> None:
    pair = Pair()
    first, second = pair.sender.publish(b"1"), pair.sender.publish(b"2")
    assert first and second
    pair.give(second)
    pair.receiver.store.barrier()
    receiver = pair.receiver
    receiver.peers = ["T"]
    receiver.start()
    receiver.boot()
    pair.link = receiver.node.link(receiver.numbers["T"], PROFILE_BSP_1, 0, 1000, 0)
    pair.now_ms = 0
    assert pair.asked()["requests"] == [first]


def test_what_was_published_before_is_refused() -> None:
    member = Member("A", Draw(1))
    member.boot()
    node = member.node
    body = b"\x00" + bytes(2000)
    for size in (5, 2001):
        assert node.publish(member.group, body, size, stamp(0), 0) > 0
        assert node.publish(member.group, body, size, stamp(0), 0) < 0
        assert node.publish(member.group, body, size, stamp(1), 0) > 0
    assert len(set(member.log())) == 4 and node.delivered == 4


def test_pending_rows_are_passed_over_while_nothing_waits() -> None:
    member = Member("A", Draw(1), pool=8)
    member.boot()
    graph = member.node.core.graph
    assert not graph.promote()
    member.node.core.pending.rows = bytearray(0)  # the pass reads it of every row
    graph.may_promote = True
    assert not graph.promote() and not graph.may_promote
    member.node.core.pending.count = 1
    graph.may_promote = True
    with pytest.raises(IndexError):
        graph.promote()
