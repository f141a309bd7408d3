"""The client interface on the node: parse, dependencies, validate, share, keep, delete."""

import itertools

import pytest

from drupelet.base.errors import E_PEER, CapacityError
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.body import DELETE, INVALID, KEEP, SHARE, DefaultClient
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_BSP_1,
    SHARED,
    Node,
)
from drupelet.store.states import STATE_DELETED, STATE_INVALID, STATE_PRIVATE
from ram_store import RamStore

EPOCH_MS = 1000


class Judge(DefaultClient):
    """Says what the payload's first letter says; bodies that begin with 0xEE cannot be parsed."""

    def __init__(self):
        super().__init__()
        self.verdicts = {}  # first letter -> verdict; any other is shared
        self.seen = []

    def dependencies(self, reader):
        first = bytearray(1)
        reader.read_into(0, first, 0, 1)
        return E_PEER if first[0] == 0xEE else super().dependencies(reader)

    def validate(self, reader):
        body = bytearray(reader.size)
        assert reader.read_into(0, body, 0, len(body)) == len(body)
        payload = bytes(body[1 + 32 * body[0] :])
        self.seen.append(payload)
        return self.verdicts.get(payload[0], SHARE)


class World:
    """Members in a row, each with a judge for a client; frames cross at once, none is lost."""

    def __init__(self, names="ab", pool=64, mode=BATCH):
        self.mode = mode
        self.now_ms = 0
        self.nodes, self.judges, self.links, self.peers = {}, {}, {}, {}
        for name in names:
            node = Node(
                RamStore(), lambda: 0, peers_max=4, groups_max=3, messages_max=pool,
                offers_max=64,
            )  # fmt: skip
            self.judges[name] = Judge()
            self.nodes[name] = node
            self.group = node.join(READINGS_CLIENT_ID, b"", client=self.judges[name])
        for here, there in itertools.pairwise(names):
            self.join(here, there)
            self.join(there, here)
        for node in self.nodes.values():
            node.boot(0)

    def join(self, here, there):
        node = self.nodes[here]
        peer = node.add_peer(there.encode() * 4)
        self.peers[here, there] = peer
        node.share(self.group, peer, SHARED)
        self.links[here, there] = node.link(
            peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, self.mode
        )

    def put(self, name, payload, *parents):
        """Publish; the id."""
        body = bytes((len(parents),)) + b"".join(parents) + payload
        node = self.nodes[name]
        handle = node.publish(self.group, body, len(body), bytes(8), self.now_ms)
        assert handle > 0, handle
        node.store.load(handle)
        return bytes(node.store.id)

    def run(self, epochs=20, lost=()):
        frame = bytearray(1024)
        for _ in range(epochs * 2):
            self.now_ms += EPOCH_MS // 2
            for (here, there), link in self.links.items():
                for _ in range(64):
                    size = link.poll_into(frame, self.now_ms)
                    if not size:
                        break
                    if (here, there) not in lost:
                        self.links[there, here].receive(frame, size, self.now_ms)

    def events(self, name):
        """The payloads that the client is given."""
        node = self.nodes[name]
        got = []
        while node.next_event():
            node.store.load(node.event_handle)
            body = bytearray(node.store.size)
            node.store.read_into(node.event_handle, 0, body, 0, len(body))
            got.append(bytes(body[1 + 32 * body[0] :]))
            node.done(node.event_handle)
        return got

    def state(self, name, id):
        store = self.nodes[name].store
        handle = store.find(id, 0)
        return store.state if handle and store.load(handle) == 0 else 0

    def handle(self, name, id):
        return self.nodes[name].store.find(id, 0)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_an_invalid_message_is_buried_with_all_that_depends_on_it(mode) -> None:
    world = World("abc", mode=mode)
    first = world.put("a", b"fine")
    bad = world.put("a", b"nonsense", first)
    child = world.put("a", b"child", bad)
    grandchild = world.put("a", b"grandchild", child, first)
    other = world.put("a", b"other component")
    world.judges["b"].verdicts = {ord("n"): INVALID}
    world.run()
    assert world.events("b") == [b"fine", b"other component"]
    for id in (bad, child, grandchild):
        assert world.state("b", id) == STATE_INVALID
    # It is acknowledged, and goes no further.
    assert world.nodes["a"].outstanding(world.peers["a", "b"]) == 0
    assert world.events("c") == [b"fine", b"other component"]
    assert world.state("c", bad) == world.state("c", child) == 0
    assert world.state("c", other)
    assert world.nodes["b"].pending_count() == 0


def test_children_that_wait_are_buried_when_their_parent_turns_out_invalid() -> None:
    world = World("ab")
    bad = world.put("a", b"x1")
    ids = [world.put("a", b"x2", bad)]
    for index in range(20):
        ids.append(world.put("a", b"x%d" % (index + 3), ids[-1]))
    node = world.nodes["b"]
    link = world.links["b", "a"]
    store = world.nodes["a"].store
    for id in [*reversed(ids), bad]:
        handle = store.find(id, 0)
        store.load(handle)
        content = bytes(world.nodes["a"].core.members.group_ids[:32]) + bytes(8)
        content += store.rows[handle]["body"]
        frame = bytearray(b"\x40\x01\x01" + len(content).to_bytes(2, "big") + content)
        if id == bad:
            assert node.pending_count() == 21
            world.judges["b"].verdicts = {ord("x"): INVALID}
        link.receive(frame, len(frame), 0)
    assert node.pending_count() == 0
    assert world.judges["b"].seen == [b"x1"], "only what is delivered is validated"
    assert all(world.state("b", id) == STATE_INVALID for id in [bad, *ids])
    assert world.events("b") == []
    # Another copy changes nothing, and is acknowledged again.
    link.receive(frame, len(frame), 0)
    assert world.events("b") == [] and node.duplicates == 1


def test_a_body_that_cannot_be_parsed_is_buried() -> None:
    world = World("ab")
    node = world.nodes["a"]
    # The author's own client would refuse it, so it comes from a client of another kind.
    node.core.graph.use_client(0, DefaultClient(0x01))
    body = b"\xee" + b"not for b"
    handle = node.publish(world.group, body, len(body), bytes(8), 0)
    node.store.load(handle)
    id = bytes(node.store.id)
    world.run()
    assert world.state("b", id) == STATE_INVALID
    assert node.outstanding(world.peers["a", "b"]) == 0


def test_what_we_publish_ourselves_must_be_valid() -> None:
    world = World("ab")
    world.judges["a"].verdicts = {ord("i"): INVALID}
    assert world.nodes["a"].publish(world.group, b"\x00ill", 4, bytes(8), 0) < 0
    assert world.nodes["a"].store.rows == {}


def test_a_kept_message_is_shared_with_all_it_depends_on() -> None:
    world = World("abc")
    root = world.put("a", b"open")
    world.judges["b"].verdicts = {ord("k"): KEEP}
    one = world.put("a", b"k1", root)
    two = world.put("a", b"k2", one)
    side = world.put("a", b"k3")
    last = world.put("a", b"k4", two, side)
    apart = world.put("a", b"k5", root)
    world.run()
    assert world.events("b") == [b"open", b"k1", b"k2", b"k3", b"k4", b"k5"]
    assert world.events("c") == [b"open"]
    assert world.state("b", last) == STATE_PRIVATE
    assert world.nodes["b"].share_message(world.handle("b", last)) == 0
    world.run()
    assert world.events("c") == [b"k1", b"k2", b"k3", b"k4"]
    assert world.state("b", apart) == STATE_PRIVATE
    assert world.nodes["b"].share_message(world.handle("b", apart)) == 0
    world.run()
    assert world.events("c") == [b"k5"]
    assert world.events("b") == []


def test_a_shared_message_shares_what_it_depends_on() -> None:
    world = World("abc")
    one = world.put("a", b"k1")
    two = world.put("a", b"k2", one)
    world.judges["b"].verdicts = {ord("k"): KEEP}
    world.put("a", b"share me", two)
    world.run()
    assert world.events("c") == [b"k1", b"k2", b"share me"]


@pytest.mark.parametrize("length", [200, 10_000])
def test_a_long_chain_is_shared_without_a_stack(length) -> None:
    world = World("ab", pool=512)
    world.judges["a"].verdicts = {ord("k"): KEEP}
    ids = [world.put("a", b"k0")]
    for index in range(1, length):
        ids.append(world.put("a", b"k%d" % index, ids[-1]))
    node = world.nodes["a"]
    assert node.share_message(world.handle("a", ids[-1])) == 0
    assert all(row["state"] != STATE_PRIVATE for row in node.store.rows.values())


def test_a_verdict_to_delete_keeps_the_place_only() -> None:
    world = World("ab")
    gone = world.put("a", b"x away")
    child = world.put("a", b"child", gone)
    world.judges["b"].verdicts = {ord("x"): DELETE}
    world.run()
    assert world.events("b") == [b"child"]
    assert world.state("b", gone) == STATE_DELETED
    assert world.state("b", child)
    assert world.nodes["a"].outstanding(world.peers["a", "b"]) == 0


def test_deleting_keeps_the_place_and_disturbs_nobody() -> None:
    world = World("abc")
    first = world.put("a", b"first")
    second = world.put("a", b"second", first)
    world.run(lost={("b", "c"), ("c", "b")})
    assert world.nodes["b"].delete(world.handle("b", first)) == 0
    assert world.state("b", first) == STATE_DELETED
    store = world.nodes["b"].store
    edges = bytearray(40)
    store.load(world.handle("b", first))
    assert store.read_into(world.handle("b", first), 0, edges, 0, 40) == 1
    # What depends on it still enters; its peer is not asked for it again.
    third = world.put("a", b"third", first, second)
    world.run()
    assert world.events("b") == [b"second", b"third"]
    assert world.nodes["a"].outstanding(world.peers["a", "b"]) == 0
    # It is not shared any more: c waits for it in vain, and keeps asking.
    assert world.state("c", first) == 0
    assert world.events("c") == []
    assert world.state("b", third)


def test_a_peer_that_is_removed_leaves_its_row_to_another() -> None:
    world = World("ab")
    world.put("a", b"one")
    node = world.nodes["a"]
    old = world.links.pop(("a", "b"))
    node.remove_peer(world.peers["a", "b"])
    frame = bytearray(1024)
    assert old.poll_into(frame, 60_000) == 0
    assert old.receive(bytearray(b"\x40\x01"), 2, 60_000) == E_PEER
    assert node.wake_ms(60_000) == 1 << 28
    before = world.peers["a", "b"]
    world.join("a", "b")
    assert world.peers["a", "b"] != before
    world.put("a", b"two")
    world.run()
    assert world.events("b") == [b"one", b"two"]


def test_peers_come_and_go_many_times_without_growth() -> None:
    world = World("ab")
    node = world.nodes["a"]
    for index in range(50):
        peer = node.add_peer(index.to_bytes(4, "big"))
        node.share(world.group, peer, SHARED)
        node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
        world.put("a", b"%d" % index)
        node.remove_peer(peer)
    assert node.core.members.peers == 2
    world.run(40)
    assert len(world.events("b")) == 50


def test_a_group_that_is_left_is_refused_until_it_is_joined_again() -> None:
    world = World("ab")
    world.put("a", b"before")
    world.run()
    node = world.nodes["b"]
    node.leave(world.group)
    assert node.store.rows == {}
    world.put("a", b"while away")
    world.run(4)
    assert node.core.unknown > 0 and world.events("b") == []
    again = node.join(READINGS_CLIENT_ID, b"")
    node.share(again, world.peers["b", "a"], SHARED)
    # What a knows to be held by b it does not offer again: b asks for what it misses by id.
    world.put("a", b"after")
    world.run(200)
    assert sorted(world.events("b")) == [b"after", b"while away"]


def test_descriptors_of_any_size_are_kept() -> None:
    world = World("ab")
    node = world.nodes["a"]
    descriptor = bytes(range(256)) * 128
    group = node.join(READINGS_CLIENT_ID, descriptor)
    assert node.store.spool.descriptor_size(group) == 32768
    with pytest.raises(CapacityError):
        node.join(READINGS_CLIENT_ID, descriptor + b"x")
    assert node.join(READINGS_CLIENT_ID, descriptor) == group
    out = bytearray(300)
    assert node.store.spool.descriptor_read_into(group, 32500, out, 0, 300) == 268
    assert out[:268] == descriptor[32500:]
