"""Peers that lie, flood, fall silent or come back as somebody else: docs/attacks.md."""

import random
import sys
from collections.abc import Iterator

import pytest

from devices import (
    ACK,
    MESSAGE,
    OFFER,
    REQUEST,
    Bsp,
    Device,
    Mvds,
    Payload,
    field_of,
    record,
)
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet.engine.members import INVISIBLE, SHARED
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    Link,
    Node,
)
from helpers import Draw, Member, Network, check_causal, kinds_of
from ram_store import RamStore

CHAIN = 10_000
DEEP = 300
MODULUS_MS = 1 << 30
WIRES = pytest.mark.parametrize("wire", [Bsp, Mvds], ids=["bsp-1", "mvds-1"])


@WIRES
def test_sharing_that_ends_between_offer_and_request(wire: type) -> None:
    device = Device("B", INTERACTIVE, wire=wire())
    id = device.publish(b"\0offered, then withdrawn")
    assert device.next().offers == [id]
    device.node.share(device.group, device.peers["B"], INVISIBLE)
    device.hear(requests=[id])
    for _ in range(20):
        assert not device.next()
    device.node.share(device.group, device.peers["B"], SHARED)
    assert id in device.next().offers
    device.hear(requests=[id])
    assert device.next().bodies[0].endswith(b"withdrawn")


@WIRES
def test_a_group_that_is_hidden_and_shown_again_loses_nothing(wire: type) -> None:
    device = Device("BC", BATCH, wire=wire())
    first = device.publish(b"\0first")
    assert len(device.next("B").bodies) == 1
    device.hear("B", acks=[first])
    device.node.share(device.group, device.peers["B"], INVISIBLE)
    second = device.publish(b"\0second", 8)
    assert not any(device.next("B") for _ in range(9))
    device.node.share(device.group, device.peers["B"], SHARED)
    bodies = [body for _ in range(9) for body in device.next("B").bodies]
    assert any(body.endswith(b"second") for body in bodies)
    assert not any(body.endswith(b"first") for body in bodies), "B holds it"
    assert device.log() == [first, second]


@WIRES
def test_who_acknowledges_what_was_never_sent_harms_itself_only(wire: type) -> None:
    device = Device("BC", INTERACTIVE, wire=wire())
    ids = [device.publish(b"\0for all %d" % n, n) for n in range(4)]
    device.hear("B", acks=[*ids, bytes(32), b"\xff" * 32, b"?" * 32])
    assert not any(device.next("B") for _ in range(20))
    assert sorted(device.next("C").offers) == sorted(ids)
    device.hear("C", requests=ids)
    assert len(device.next("C").bodies) == 4
    # It thinks better of it.
    device.hear("B", requests=ids)
    assert len(device.next("B").bodies) == 4


@WIRES
def test_offers_that_are_never_served_keep_nobody_out(wire: type) -> None:
    device = Device("BC", INTERACTIVE, wire=wire(), offers_max=8)
    rng = random.Random(4)
    for _ in range(200):
        device.hear("B", offers=[rng.randbytes(32) for _ in range(20)])
    inbox = device.node.core.inboxes[0]
    assert 0 < sum(1 for kind in kinds_of(inbox) if kind) <= inbox.offers_max == 4
    real = device.id_of(b"\0real")
    device.hear("C", offers=[real])
    assert real in device.next("C").requests
    device.hear("C", messages=[(7, b"\0real")])
    assert device.log() == [real]


@pytest.mark.parametrize("kind", [ACK, OFFER, REQUEST])
def test_ids_of_zeros_and_of_ones_are_ids_like_any_other(kind: int) -> None:
    device = Device("BC", INTERACTIVE, messages_max=4, offers_max=4)
    mine = device.publish(b"\0mine")
    for id in (bytes(32), b"\xff" * 32, bytes(31) + b"\1", mine[:31] + bytes([mine[31] ^ 1])):
        assert device.hear_raw(b"\x40" + record(kind, id * 3)) == OK
    for _ in range(30):
        found = device.next("B")
        assert not found.acks and not found.messages
        assert set(found.offers) <= {mine}
    assert device.log() == [mine] and device.node.malformed == 0


@pytest.mark.parametrize(
    "frame",
    [
        b"\x40",
        b"\x40\x01",
        b"\x40" + record(ACK, b""),
        b"\x40" + record(ACK, bytes(33)),
        b"\x40\x01\x01\xff\xff\0\0\0",  # 65,535 bytes said, three there
        b"\x40" + record(MESSAGE, bytes(39)),
        b"\x40\x02" + record(ACK, bytes(32))[1:],  # version 2
    ],
)
def test_what_no_correct_peer_sends_is_counted_and_forgotten(frame: bytes) -> None:
    device = Device("B")
    mine = device.publish(b"\0mine")
    for _ in range(50):
        assert device.hear_raw(frame) == E_PEER
    assert device.node.malformed == 50
    assert device.log() == [mine] and len(device.next().bodies) == 1


@pytest.mark.parametrize("timestamp", [0, 1, (1 << 31) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1])
def test_timestamps_from_end_to_end(timestamp: int) -> None:
    device = Device("BC")
    id = device.id_of(b"\0when", timestamp)
    device.hear("B", messages=[(timestamp, b"\0when")])
    assert device.log() == [id]
    ((moment, body),) = device.next("C").messages
    assert (moment, body) == (timestamp, b"\0when")


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_all_counters_wrap_in_the_middle_of_an_exchange(mode: int) -> None:
    """ms at 2^30, epochs at 2^16, send counts at 255: nothing is lost, nothing comes twice."""
    draw = Draw(31)
    here, there = Member("A", draw, pool=8), Member("B", draw, pool=8)
    net = Network(draw, [here, there], ["AB"], mode, loss=300, repeat=100)
    net.now_ms = MODULUS_MS - 4000
    for member in net.members.values():
        for link in member.links.values():
            clocks = link.core.clocks
            clocks.set_start(link.peer, MODULUS_MS - 5000)
            clocks.epochs[link.peer] = 0xFFFA
            link.count_anew()
        for outbox in member.node.core.outboxes:
            for row in range(outbox.rows_max):
                outbox.note_sent(row, 254, outbox.epoch(row))
    for number in range(20):
        assert here.publish(b"%d" % number, net.now_ms)
        for _ in range(6):
            net.round()
    net.run(lambda: net.complete(20), 3000)
    assert net.now_ms < MODULUS_MS // 2 and here.links["B"].exchange.epoch < 0x8000
    check_causal(there)


def test_yesterdays_queue_changes_nothing() -> None:
    """Every frame of a finished exchange comes again, many times, in any order, both ways."""
    ends = [Device("B"), Device("B")]
    frames: list[tuple[int, bytes]] = []
    buffer = bytearray(1024)

    def turn() -> None:
        for at, end in enumerate(ends):
            end.tick()
            while size := end.links["B"].poll_into(buffer, end.now_ms):
                frames.append((1 - at, bytes(buffer[:size])))
                ends[1 - at].hear_raw(bytes(buffer[:size]))

    for number in range(12):
        ends[number % 2].publish(b"\0%d" % number, number)
        turn()
    for _ in range(20):
        turn()
    logs = [end.log() for end in ends]
    assert sorted(logs[0]) == sorted(logs[1]) and len(logs[0]) == 12
    given = [len(end.events()) for end in ends]
    assert given == [12, 12]
    rng = random.Random(9)
    old = frames * 5
    rng.shuffle(old)
    for at, frame in old:
        ends[at].hear_raw(frame)
        if not rng.randrange(3):
            turn()
    assert [end.log() for end in ends] == logs
    assert [end.events() for end in ends] == [[], []]
    for _ in range(40):
        turn()
    frames.clear()
    for _ in range(200):
        turn()
    assert not frames, "it is quiet again"


@pytest.fixture
def low_stack() -> Iterator[None]:
    """A board's stack is small: recursion over a chain would show."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(120)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def host_node(
    pool: int, family: int = FAMILY_BSP, store: RamStore | None = None, peers_max: int = 1
) -> tuple[Node, RamStore, int, Link]:
    store = store or RamStore()
    node = Node(store, lambda: 0, peers_max, 1, pool, pool)
    group = node.join_id(b"g" * 32, family)
    peer = node.add_peer(b"peer")
    node.share(group, peer, SHARED)
    node.boot(0)
    profile = PROFILE_MVDS_1 if family == FAMILY_MVDS else PROFILE_BSP_1
    return node, store, group, node.link(peer, profile, CARRIER_SERIAL, 1000, BATCH)


def chain(count: int) -> list[bytes]:
    """Frames of messages, each of which depends on the one before."""
    frames = []
    parent = b""
    wire = Bsp()
    for number in range(count):
        body = bytes([1 if parent else 0]) + parent + b"%d" % number
        frames.append(b"\x40" + wire.write(Payload(messages=[(number, body)]), b"g" * 32))
        parent = wire.id_of(b"g" * 32, number, body)
    return frames


def test_a_chain_of_ten_thousand_on_a_host() -> None:
    node, store, _, link = host_node(64)
    for number, frame in enumerate(chain(CHAIN)):
        buffer = bytearray(frame)
        assert link.receive(buffer, len(frame), number) == OK
    assert node.delivered == CHAIN == len(store.order) and node.pending_count() == 0


def test_a_flood_of_orphans_from_one_peer_leaves_room_for_another() -> None:
    """Nobody ever sends their parents. What is refused is not acknowledged, so nothing is lost."""
    node, _, group, flooded = host_node(4 * PENDING_PER_PEER_MAX, peers_max=2)
    other = node.add_peer(b"also")
    node.share(group, other, SHARED)
    link = node.link(other, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    wire, rng = Bsp(), random.Random(1)

    def hear(link: Link, number: int, body: bytes) -> None:
        frame = bytearray(b"\x40" + wire.write(Payload(messages=[(number, body)]), b"g" * 32))
        link.receive(frame, len(frame), 0)

    for number in range(PENDING_PER_PEER_MAX + 100):
        hear(flooded, number, bytes([2]) + rng.randbytes(64))
    assert node.pending_count() == PENDING_PER_PEER_MAX and node.refused == 100
    hear(link, 2, b"\1" + wire.id_of(b"g" * 32, 1, b"\0root") + b"child")
    assert node.pending_count(other) == 1 and node.delivered == 0
    hear(link, 1, b"\0root")
    assert node.delivered == 2 and node.pending_count(other) == 0


@pytest.mark.usefixtures("low_stack")
def test_a_chain_that_comes_last_message_first_is_no_recursion() -> None:
    node, store, _, link = host_node(DEEP + 1)
    frames = chain(DEEP)
    for frame in reversed(frames[1:]):
        assert link.receive(bytearray(frame), len(frame), 0) == OK
    assert node.pending_count() == DEEP - 1 and not store.order
    assert link.receive(bytearray(frames[0]), len(frames[0]), 0) == OK
    assert node.delivered == DEEP and node.pending_count() == 0


@pytest.mark.usefixtures("low_stack")
def test_a_deep_chain_costs_a_board_no_more_than_its_tables() -> None:
    """What does not fit is refused; sent again often enough, all of it enters."""
    node, store, _, link = host_node(8)
    frames = chain(40)
    rounds = 0
    while len(store.order) < 40:
        rounds += 1
        assert rounds <= 40
        for frame in reversed(frames):
            link.receive(bytearray(frame), len(frame), rounds * 1000)
            assert node.pending_count() <= 8
    assert node.pending_count() == 0


class CountingStore(RamStore):
    """Counts how often a message is looked up, which on flash or in a database is what costs."""

    loads = 0

    def load(self, handle: int) -> int:
        self.loads += 1
        return super().load(handle)


def mvds_chain(count: int, width: int) -> list[bytes]:
    """Frames of MVDS messages, each of which names up to `width` of those before as parents."""
    wire = Mvds()
    ids: list[bytes] = []
    frames = []
    for number in range(count):
        body = b"%d" % number
        meta = b"".join(field_of(1, id) for id in ids[-width:])
        inside = field_of(1, b"g" * 32) + field_of(2, number) + field_of(3, body)
        frames.append(bytes([wire.kind]) + field_of(4, inside + field_of(4, meta)))
        ids.append(wire.id_of(b"g" * 32, number, body))
    return frames


@pytest.mark.usefixtures("low_stack")
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("order", ["forth", "back", "mixed"])
def test_looking_for_a_circle_reads_each_ancestor_once(order: str, width: int) -> None:
    """MVDS parents are not hashed: a message that has to wait is looked at for a circle."""
    store = CountingStore()
    node, _, _, link = host_node(DEEP + 1, FAMILY_MVDS, store)
    root, *frames = mvds_chain(DEEP, width)
    if order == "back":
        frames.reverse()
    elif order == "mixed":
        random.Random(5).shuffle(frames)
    for waiting, frame in enumerate(frames):
        store.loads = 0
        assert link.receive(bytearray(frame), len(frame), 0) == OK
        bound = 8 + (0 if order == "back" else waiting)
        assert store.loads <= bound, f"{store.loads} for one that waits with {waiting} others"
    assert node.pending_count() == DEEP - 1 and not node.malformed
    assert link.receive(bytearray(root), len(root), 0) == OK
    assert node.delivered == DEEP and node.pending_count() == 0
