"""Sentences of BSP v1 about clients, invalid, private and deleted messages, and membership.

docs/conformance.md names each of these tests beside its sentence.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devices import Device
from drupelet.base.errors import OK
from drupelet.node import BATCH, INTERACTIVE, SHARED
from drupelet_host.member.mode_policy import AUTO
from drupelet_host.store.sqlite_store import SqliteStore
from unit.verdict_client import OTHER_CLIENT, Devices, body_of

modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


@pytest.fixture(autouse=True, params=["flash", "sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Run each test over a board's store and over a host's."""
    opened: list[SqliteStore] = []

    class SqliteHome:
        def __init__(self) -> None:
            self._path = tmp_path / f"{len(opened)}.db"

        def open(self) -> SqliteStore:
            opened.append(SqliteStore(self._path))
            assert opened[-1].open() == OK
            return opened[-1]

        def cut(self, store: SqliteStore) -> None:
            assert store.barrier() == OK
            store.close()

    if request.param == "sqlite":
        monkeypatch.setattr(Device, "home", SqliteHome)
    yield
    for store in opened:
        store.close()


# --- clients ---


def test_each_group_has_its_client() -> None:
    device = Devices()
    plain = device.node.join(OTHER_CLIENT, b"plain")
    device.node.share(plain, device.peers["B"], SHARED)
    (first,) = device.give(body_of("S", text=b"\xff\xfe"))
    assert device.log() == [first], "the default client could not read it"
    device.publish(b"\x00S in the other group", group=plain)
    assert len(device.log()) == 2 and device.client.parsed == [body_of("S", text=b"\xff\xfe")]


def test_the_client_parses_a_message_when_it_comes_for_the_first_time() -> None:
    device = Devices("BC")
    missing = device.id_of(body_of("S", text=b"parent"))
    body = body_of("S", missing, text=b"child")
    for name in "BCB":
        device.give(body, name=name)
    assert set(device.client.parsed) == {body} and not device.client.validated
    times = len(device.client.parsed)
    device.give(body)
    assert len(device.client.parsed) == times, "a copy is not looked at"
    assert device.next("B").requests == [missing], "its position follows from what was parsed"


def test_the_client_validates_with_the_dependencies_at_hand() -> None:
    device = Devices()
    parents = [body_of("S", text=b"%d" % number) for number in range(2)]
    child = body_of("S", *(device.id_of(body) for body in parents), text=b"child")
    device.give(child, parents[1])
    assert device.client.validated == parents[1:]
    device.give(parents[0])
    assert device.client.validated == [parents[1], parents[0], child]
    assert device.events() == [parents[1], parents[0], child]


@modes
def test_the_client_decides_what_is_shared_kept_or_deleted(mode: int) -> None:
    device = Devices("BC", mode)
    bodies = [body_of(verdict, text=b"text") for verdict in "SKDI"]
    shared, kept, deleted, invalid = device.give(*bodies)
    assert set(device.log()) >= {shared, kept} and invalid not in device.log()
    assert sorted(device.next("B").acks) == sorted([shared, kept, deleted, invalid])
    assert device.given_to("C") == bodies[:1]
    device.hear("C", requests=[kept, deleted, invalid], acks=[shared])
    assert not device.given_to("C"), "silence, as for what is not here"
    device.hear("C", offers=[kept, deleted, invalid])
    sent = device.next("C")
    assert sorted(sent.acks) == sorted([kept, deleted, invalid]) and not sent.requests
    assert bodies[2] not in device.events() and bodies[3] not in device.events()


# --- invalid ---


@pytest.mark.parametrize(
    "body", [b"", b"S", b"?\x00", b"S\x02" + bytes(63), b"S\x09" + bytes(300)]
)
def test_what_cannot_be_parsed_is_invalid_and_deleted(body: bytes) -> None:
    device = Devices("BC")
    (id,) = device.give(body)
    assert device.log() == [] and not device.events()
    handle = device.store.find(id, 0)
    assert handle > 0 and device.store.load(handle) == OK and device.store.size == 0
    assert device.next("B").acks == [id], "else it would be sent again for ever"
    device.give(body)
    assert device.next("B").acks == [id] and not device.given_to("C")


def test_what_the_client_finds_invalid_is_deleted() -> None:
    device = Devices("BC")
    (id,) = device.give(body_of("I", text=b"no"))
    assert device.client.validated == [body_of("I", text=b"no")]
    assert device.log() == [] and not device.events() and not device.given_to("C")
    handle = device.handle(id)
    assert device.store.load(handle) == OK and device.store.size == 0, "its body is gone"
    device.hear("B", offers=[id])
    sent = device.next("B")
    assert sent.acks == [id] and not sent.requests


def tree(device: Device, root: bytes) -> list[bytes]:
    """Bodies that depend on a root, directly and not."""
    bodies = [root]
    for number in range(6):
        parents = [device.id_of(body) for body in bodies[-2:]]
        bodies.append(body_of("S", *parents, text=b"%d" % number))
    return bodies


@pytest.mark.parametrize("order", [1, -1], ids=["root first", "root last"])
@pytest.mark.parametrize("root", [b"?\x00root", b"I\x00root"], ids=["unreadable", "invalid"])
def test_what_depends_on_an_invalid_message_is_invalid(root: bytes, order: int) -> None:
    device = Devices("BC")
    bodies = tree(device, root)
    ids = device.give(*bodies[::order])
    assert device.log() == [] and device.node.pending_count() == 0
    assert not set(bodies[1:]) & set(device.client.validated), "unseen"
    other = device.give(body_of("S", text=b"apart"))
    assert device.log() == other, "what does not depend on it is not touched"
    assert sorted(device.next("B").acks) == sorted(ids + other)
    assert device.given_to("C") == [body_of("S", text=b"apart")]
    for id in ids:
        assert device.store.load(device.handle(id)) == OK and device.store.size == 0


@pytest.mark.parametrize(
    "head", [b"?\x00", b"I\x00", b"S\x09"], ids=["unreadable", "invalid", "nine"]
)
def test_a_long_message_is_found_invalid_like_a_short_one(head: bytes) -> None:
    device = Devices("BC")
    root = head + bytes(32766)
    child = body_of("S", device.id_of(root), text=bytes(3000))
    whole = body_of("S", text=bytes(5000))
    ids = [device.give_long(body) for body in (child, root, whole)]
    assert sorted(device.next("B").acks) == sorted(ids)
    assert device.log() == ids[2:] and device.events() == [whole]
    for id in ids[:2]:
        assert device.store.load(device.handle(id)) == OK and device.store.size == 0
    assert device.give_long(root) in device.next("B").acks


@pytest.mark.parametrize("body", [b"?\x00", b"I\x00", b"S\x09" + bytes(300)])
def test_nothing_invalid_of_our_own_is_published(body: bytes) -> None:
    device = Devices()
    assert device.node.publish(device.group, body, len(body), bytes(8), 0) < 0
    assert device.log() == [] and not device.next()
    assert device.store.find(device.id_of(body, 0), 0) == 0, "nor is its id kept"


@modes
def test_a_chain_behind_an_invalid_message_is_invalid_through_a_small_pool(mode: int) -> None:
    device = Devices("B", mode, messages_max=4, offers_max=8)
    bodies = [b"I\x00root"]
    for number in range(12):
        bodies.append(body_of("S", device.id_of(bodies[-1]), text=b"%d" % number))
    ids = [device.id_of(body) for body in bodies]
    known: set[bytes] = set()
    for _ in range(20):
        for id, body in list(zip(ids, bodies, strict=True))[::-1]:
            if id not in known:
                device.give(body)
                known.update(device.next().acks)
    assert known == set(ids), "each is acknowledged in the end"
    assert device.log() == [] and device.node.pending_count() == 0
    assert device.client.validated == bodies[:1]


# --- shared and private ---


@modes
def test_sharing_a_message_shares_all_that_it_depends_on(mode: int) -> None:
    device = Devices("BC", mode)
    bodies = [body_of("K", text=b"root")]
    for number in range(5):
        bodies.append(body_of("K", device.id_of(bodies[-1]), text=b"%d" % number))
    apart = body_of("K", text=b"apart")
    ids = device.give(*bodies, apart)
    assert not device.given_to("C")
    assert device.node.share_message(device.handle(ids[3])) == OK
    assert sorted(device.given_to("C", 6)) == sorted(bodies[:4])
    assert device.log().count(ids[3]) == 1 and len(device.log()) == 7, "nothing enters twice"


@modes
def test_what_a_shared_message_depends_on_is_shared_with_it(mode: int) -> None:
    device = Devices("BC", mode)
    bodies = [body_of("K", text=b"root")]
    bodies.append(body_of("K", device.id_of(bodies[0]), text=b"middle"))
    bodies.append(body_of("S", device.id_of(bodies[1]), text=b"top"))
    device.give(*bodies[:2])
    assert not device.given_to("C")
    device.give(bodies[2])
    assert sorted(device.given_to("C", 6)) == sorted(bodies)


@modes
@pytest.mark.parametrize("pool", [1, 2, 4])
def test_sharing_does_not_depend_on_the_size_of_the_pool(mode: int, pool: int) -> None:
    device = Devices("BC", mode, messages_max=pool)
    bodies = [body_of("K", text=b"root")]
    for number in range(20):
        bodies.append(body_of("K", device.id_of(bodies[-1]), text=b"%d" % number))
    ids = device.give(*bodies)
    assert device.node.share_message(device.handle(ids[-1])) == OK
    got: list[bytes] = []
    for _ in range(200):
        sent = device.next("C")
        got += [body for body in sent.bodies if body not in got]
        device.hear("C", requests=sent.offers, acks=[device.id_of(b) for b in sent.bodies])
    assert sorted(got) == sorted(bodies)


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_sharing_reaches_through_deleted_messages(deleted: int) -> None:
    device = Devices("BC")
    bodies = [body_of("K", text=b"root")]
    for number in range(deleted + 1):
        bodies.append(body_of("K", device.id_of(bodies[-1]), text=b"%d" % number))
    ids = device.give(*bodies)
    for id in ids[1:-1]:
        assert device.node.delete(device.handle(id)) == OK
    assert device.node.share_message(device.handle(ids[-1])) == OK
    assert sorted(device.given_to("C", 6)) == sorted([bodies[0], bodies[-1]])


# --- deleted ---


def test_a_deleted_message_keeps_its_place() -> None:
    device = Devices("BC", INTERACTIVE)
    root = body_of("S", text=b"root")
    middle = body_of("S", device.id_of(root), text=b"middle")
    ids = device.give(root, middle)
    device.events()
    handle = device.handle(ids[1])
    assert device.node.delete(handle) == OK
    assert device.store.load(device.handle(ids[1])) == OK
    assert device.store.size < len(middle), "its copy is gone"
    edges = bytearray(33)
    assert device.store.read_into(device.handle(ids[1]), 0, edges, 0, 33) == 33
    assert edges == b"\x01" + ids[0], "its place in the graph is known"
    assert device.given_to("C") == [root]
    device.hear("C", requests=[ids[1]], acks=[ids[0]])
    assert not device.given_to("C")
    device.hear("C", offers=[ids[1]])
    sent = device.next("C")
    assert (sent.acks, sent.requests) == ([ids[1]], []), "it was held"
    device.give(middle)
    assert not device.events(), "it does not come again"


def test_deleting_touches_neither_dependencies_nor_dependents() -> None:
    device = Devices("BC")
    bodies = [body_of("S", text=b"root")]
    for number in range(4):
        bodies.append(body_of("S", device.id_of(bodies[-1]), text=b"%d" % number))
    ids = device.give(*bodies[:4])
    assert device.node.delete(device.handle(ids[1])) == OK
    assert device.node.delete(device.handle(ids[3])) == OK
    device.give(bodies[4])
    assert ids[0] in device.log() and ids[2] in device.log()
    assert device.id_of(bodies[4]) in device.log(), "a deleted message meets a dependency"
    assert device.given_to("C") == [bodies[0], bodies[2], bodies[4]]


# --- members and modes, changing ---


def test_a_place_in_the_graph_survives_a_power_cut() -> None:
    device = Devices("BC")
    root = body_of("S", text=b"root")
    middle = body_of("S", device.id_of(root), text=b"middle")
    ids = device.give(root, middle, b"I\x00")
    assert device.node.delete(device.handle(ids[1])) == OK
    device.events()
    device.again()
    last, worse = body_of("S", ids[1], text=b"last"), body_of("S", ids[2], text=b"worse")
    device.give(middle, last, worse, b"I\x00")
    assert device.events() == [last]
    assert device.given_to("C") == [root, last]


@modes
def test_peers_come_and_go_while_it_runs(mode: int) -> None:
    device = Device("BC", mode, peers_max=2)
    own = device.publish(b"\x00own")
    device.hear("B", messages=[(7, b"\x00from B")])
    from_b = device.id_of(b"\x00from B")
    device.node.remove_peer(device.peers["B"])
    for _ in range(6):
        assert not device.next("B"), "nothing goes to it"
    device.hear("B", messages=[(7, b"\x00from a stranger")])
    assert device.log() == [own, from_b], "nothing is taken from it any more"
    device.peers["D"] = device.node.add_peer(b"DDDD")
    device.node.share(device.group, device.peers["D"], SHARED)
    device.connect("D", mode)
    device.tick()
    for name in "CD":
        sent = device.sent(name)
        assert sent.offers == [own, from_b] or sent.bodies == [b"\x00own", b"\x00from B"]
    device.hear("B", messages=[(7, b"\x00from the link of who left, whose place D has")])
    device.hear("D", messages=[(7, b"\x00theirs")])
    assert device.log() == [own, from_b, device.id_of(b"\x00theirs")]
    device.node.remove_peer(device.peers["C"])
    device.peers["B"] = device.node.add_peer(b"BBBB")
    device.node.share(device.group, device.peers["B"], SHARED)
    device.connect("B", mode)
    sent = device.next("B")
    assert len(sent.offers) == 3 or len(sent.bodies) == 3, "it is given all, like a new one"


def test_a_group_is_left_and_joined_again() -> None:
    device = Device("B", BATCH, groups_max=2)
    own = device.publish(b"\x00own")
    device.hear(messages=[(7, b"\x00theirs")])
    theirs = device.id_of(b"\x00theirs")
    device.node.leave(device.group)
    assert device.store.find(own, 0) == device.store.find(theirs, 0) == 0, "messages are dropped"
    assert not device.events()
    device.hear(messages=[(8, b"\x00late"), (7, b"\x00own")], requests=[own], offers=[own])
    sent = device.next()
    assert not sent.messages and not sent.acks and not sent.offers and not device.events()
    device.group = device.join(device.descriptor)
    device.node.share(device.group, device.peers["B"], SHARED)
    assert not device.next()
    device.hear(messages=[(7, b"\x00own"), (8, b"\x00late")])
    assert device.events() == [b"\x00own", b"\x00late"]
    assert device.next().acks == [own, device.id_of(b"\x00late", 8)]


def test_a_link_changes_its_mode_at_any_time() -> None:
    device = Device("B", INTERACTIVE)
    first = device.publish(b"\x00first")
    assert device.next().offers == [first]
    device.links["B"].hear(device.now_ms)
    device.links["B"].set_mode(BATCH)
    second = device.publish(b"\x00second")
    sent = device.next()
    assert not sent.offers and b"\x00second" in sent.bodies
    device.links["B"].set_mode(INTERACTIVE)
    third = device.publish(b"\x00third")
    sent = device.next()
    assert third in sent.offers and not sent.messages
    device.hear(requests=[third], acks=[first, second])
    assert device.next().bodies == [b"\x00third"]


def test_a_mode_may_follow_what_a_link_measured() -> None:
    device = Device("B", AUTO)
    body = b"\x00" + bytes(100)
    modes = []
    for number in range(400):
        id = device.publish(body + b"%d" % number)
        sent = device.next()
        held = number < 150  # the peer has each message from somebody else; then from nobody
        modes.append(INTERACTIVE if sent.offers else BATCH)
        if held:
            device.hear(acks=[id], messages=[(7, body + b"%d" % number)])
        elif sent.offers:
            device.hear(requests=sent.offers)
            device.hear(acks=[device.id_of(done) for done in device.next().bodies])
        else:
            device.hear(acks=[device.id_of(done) for done in sent.bodies])
    assert modes[0] == BATCH and set(modes[100:150]) == {INTERACTIVE}
    assert set(modes[350:]) == {BATCH}, "another choice, once another is cheaper"
