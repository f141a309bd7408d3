"""Groups of people: two with several devices each; invite, join and leave as a table."""

import itertools
import random

import pytest

from drupelet.clients.default import Author
from drupelet_host.clients import chat
from drupelet_host.clients.chat import (
    INVITE,
    INVITED,
    JOIN,
    LEAVE,
    LEFT,
    MEMBER,
    OUTSIDE,
    TEXT,
    ChatClient,
    apply,
    payload_of,
    private_chat,
)
from helpers_clients import World

ANN, BEN, CID, DOT = (name.encode() * 2 for name in ("anna", "benn", "cidi", "dott"))


class Chat:
    """One client per node, for people in order."""

    def __init__(self, names: str, make, edges=None) -> None:
        self.world = World(names, edges)
        self.clients = {name: make() for name in names}
        nodes = self.world.nodes
        self.groups = {name: self.clients[name].join(nodes[name]) for name in names}
        self.world.start(self.groups)
        self.authors = {name: Author(nodes[name], self.groups[name]) for name in names}
        self.count = 0

    def do(self, name: str, done: int, person: bytes, rest: bytes = b"") -> int:
        author, payload = self.authors[name], payload_of(done, person, rest)
        size = author.compose(payload, len(payload))
        self.count += 1
        stamp = self.count.to_bytes(8)
        node = self.world.nodes[name]
        handle = node.publish(self.groups[name], author.body, size, stamp, self.world.now_ms)
        if handle > 0:
            author.published(handle)
        return int(handle)

    def run(self) -> None:
        self.world.run()
        for name in self.world.nodes:
            for handle in self.world.events(name):
                self.authors[name].saw(handle)

    def members(self) -> set[tuple[bytes, ...]]:
        return {tuple(client.members()) for client in self.clients.values()}

    def texts(self, name: str) -> list[tuple[bytes, str]]:
        return self.clients[name].texts(self.world.nodes[name], self.groups[name])


def test_two_people_with_several_devices_each() -> None:
    # ann has a and b, ben has c and d; b and d never meet.
    made = Chat("abcd", lambda: private_chat(ANN, BEN), [("a", "b"), ("a", "c"), ("c", "d")])
    made.do("a", TEXT, ANN, b"hello")
    made.run()
    made.do("d", TEXT, BEN, b"hi from my other phone")
    made.run()
    made.do("b", TEXT, ANN, b"seen on mine, too")
    made.run()
    said = [(ANN, "hello"), (BEN, "hi from my other phone"), (ANN, "seen on mine, too")]
    assert all(made.texts(name) == said for name in "abcd")
    # The order of the two names makes no difference; a third person is not in it.
    node = made.world.nodes["a"]
    assert private_chat(BEN, ANN).join(node) == made.groups["a"]
    assert made.do("a", TEXT, CID, b"let me in") < 0
    assert made.do("a", INVITE, CID, DOT) < 0


def test_invite_join_and_leave() -> None:
    made = Chat("abc", lambda: ChatClient((ANN,)))
    assert made.do("b", TEXT, BEN, b"not yet") < 0 and made.do("b", JOIN, BEN) < 0
    made.do("a", INVITE, ANN, BEN)
    made.run()
    assert made.clients["c"].state(BEN) == INVITED
    assert made.do("b", TEXT, BEN, b"still not") < 0
    made.do("b", JOIN, BEN)
    made.run()
    assert made.members() == {(ANN, BEN)}
    made.do("b", TEXT, BEN, b"here I am")
    made.do("b", INVITE, BEN, CID)
    made.run()
    made.do("c", JOIN, CID)
    made.run()
    made.do("b", LEAVE, BEN)
    made.run()
    assert made.members() == {(ANN, CID)} and made.clients["a"].state(BEN) == LEFT
    assert made.do("b", TEXT, BEN, b"once more") < 0
    made.do("c", INVITE, CID, BEN)
    made.run()
    made.do("b", JOIN, BEN)
    made.run()
    assert made.members() == {(ANN, BEN, CID)}


def test_what_is_not_allowed_is_refused_by_every_member() -> None:
    made = Chat("ab", lambda: ChatClient((ANN,)))
    node = made.world.nodes["b"]
    # A member whose client looks away.
    node.core.graph.use_client(node.core.members.group_row(made.groups["b"]), None)
    made.do("b", TEXT, BEN, b"sneaked in")
    made.do("b", TEXT, ANN, b"in a row, so this falls with it")
    made.run()
    assert made.texts("a") == [] and made.clients["a"].refused >= 1


def test_what_happens_at_the_same_time_ends_the_same_everywhere() -> None:
    made = Chat("abc", lambda: ChatClient((ANN, BEN)))
    made.do("a", INVITE, ANN, CID)
    made.do("b", INVITE, BEN, CID)  # neither has seen the other's
    made.run()
    assert {client.state(CID) for client in made.clients.values()} == {INVITED}
    made.do("c", JOIN, CID)
    made.do("a", INVITE, ANN, DOT)
    made.do("b", LEAVE, BEN)
    assert made.do("b", TEXT, BEN, b"after leaving") < 0
    made.run()
    assert made.members() == {(ANN, CID)}
    assert {client.state(DOT) for client in made.clients.values()} == {INVITED}


def test_a_restart_computes_the_same() -> None:
    made = Chat("ab", lambda: ChatClient((ANN,)))
    made.do("a", INVITE, ANN, BEN)
    made.run()
    made.do("b", JOIN, BEN)
    made.run()
    again = ChatClient((ANN,))
    group = again.join(made.world.nodes["a"])
    again.recover(made.world.nodes["a"], group)
    assert again.members() == made.clients["a"].members() == [ANN, BEN]
    # A text that was deleted keeps its place: what comes after it is judged as before.
    handle = made.do("b", TEXT, BEN, b"forget this")
    made.do("b", INVITE, BEN, CID)
    made.world.nodes["b"].delete(handle)
    third = ChatClient((ANN,))
    third.recover(made.world.nodes["b"], third.join(made.world.nodes["b"]))
    assert third.members() == [ANN, BEN] and third.state(CID) == INVITED
    different = {id(roster) for roster in third.rosters.values()}
    assert len(different) < len(third.rosters) == 4


def test_who_is_in_is_known_when_the_messages_that_say_so_are_gone() -> None:
    made = Chat("ab", lambda: ChatClient((ANN,)))
    made.do("a", INVITE, ANN, BEN)
    made.run()
    made.do("b", JOIN, BEN)
    made.run()
    last = made.do("b", TEXT, BEN, b"the only one left in the log")
    node, known = made.world.nodes["b"], made.clients["b"].roster
    assert known == {ANN: MEMBER, BEN: MEMBER}
    for knows, members in ((None, [ANN]), (known, [ANN, BEN])):
        client = ChatClient((ANN,), known=knows)
        client.recover(node, client.join(node), [last])
        assert client.members() == members and client.refused == 0
    # A body comes after all that is there.
    body = client.compose(node, payload_of(TEXT, BEN, b"next"), BEN)
    assert body[0] == 1 and chat.apply(known, body[33:]) == known


def test_a_message_names_ends_that_know_that_its_author_is_in() -> None:
    made = Chat("a", lambda: ChatClient((ANN, CID)))
    client, node = made.clients["a"], made.world.nodes["a"]
    handle = made.do("a", INVITE, ANN, BEN)
    invited = next(iter(client.heads))
    # Many at once, none of which has seen that ben is invited.
    for row in range(12):
        body = b"\0" + payload_of(TEXT, CID, b"%d" % row)
        stamp = (100 + row).to_bytes(8)
        assert node.publish(made.groups["a"], body, len(body), stamp, made.world.now_ms) > handle
    body = client.compose(node, payload_of(JOIN, BEN), BEN)
    assert body[0] == 8 and invited in chat.dependencies_of(body)
    assert client.take(bytes(8), body) and client.state(BEN) == MEMBER


def test_the_table_has_every_step_and_no_other() -> None:
    names = {OUTSIDE: "outside", INVITED: "invited", MEMBER: "member", LEFT: "left"}
    reached = {OUTSIDE}
    for _ in range(len(names)):
        reached |= {to for (_, start), to in chat.TRANSITIONS.items() if start in reached}
    assert reached == set(names)
    for done, state in itertools.product((INVITE, JOIN, LEAVE), names):
        doer, rest = (ANN, BEN) if done == INVITE else (BEN, b"")
        after = apply({ANN: MEMBER, BEN: state}, payload_of(done, doer, rest))
        wanted = chat.TRANSITIONS.get((done, state))
        assert (after is None) == (wanted is None)
        assert after is None or (after[BEN] > state and after[BEN] % 4 == wanted)


def test_any_order_of_delivery_gives_the_same_roster() -> None:
    rng = random.Random(5)
    people = [ANN, BEN, CID, DOT]
    lengths = []
    for _ in range(30):
        first = ChatClient((ANN,))
        first.group_id = bytes(32)
        log: list[tuple[bytes, bytes, bytes]] = []  # id, timestamp, body
        for number in range(40):
            heads = rng.sample([entry[0] for entry in log], min(len(log), rng.randrange(1, 3)))
            done = rng.choice((INVITE, INVITE, JOIN, JOIN, LEAVE, TEXT))
            rest = rng.choice(people) if done == INVITE else b"x" if done == TEXT else b""
            body = bytes((len(heads),)) + b"".join(heads)
            body += payload_of(done, rng.choice(people), rest)
            stamp = number.to_bytes(8)
            known = set(first.rosters)
            if first.take(stamp, body):
                (id,) = set(first.rosters) - known
                log.append((id, stamp, body))
        lengths.append(len(log))
        second = ChatClient((ANN,))
        second.group_id = bytes(32)
        left, held = list(log), set()
        while left:
            ready = [
                entry
                for entry in left
                if all(entry[2][at : at + 32] in held for at in range(1, 1 + 32 * entry[2][0], 32))
            ]
            entry = rng.choice(ready)
            assert second.take(entry[1], entry[2])
            held.add(entry[0])
            left.remove(entry)
        assert second.members() == first.members()
    assert max(lengths) > 8


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x09" + ANN, b"\x02" + ANN + b"x",
                                     b"\x01" + ANN + b"short"])  # fmt: skip
def test_malformed_payloads_are_invalid(payload: bytes) -> None:
    assert apply({ANN: MEMBER}, payload) is None
