"""What the peers of the MVDS family send, and what they can read: parents and metadata.

The newest Go node names every childless message of a group as a parent, and the same one many
times over; it ends where a message without metadata comes in. Its bytes are written by hand here.
"""

import pytest

from devices import EPOCH_MS, Device, Mvds, Payload, field_of
from drupelet.base.limits import DEPENDENCIES_MAX
from drupelet.engine.members import HEAD_EPHEMERAL, HEAD_PARENTS
from drupelet.node import (
    BATCH,
    INTERACTIVE,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from helpers import Draw, Member, Network

with_parents = pytest.mark.parametrize(
    "profile", [PROFILE_MVDS_1, PROFILE_MVDS_5001], ids=["mvds-1", "mvds-5001"]
)


class Peer:
    """Whoever sends to a device B and sees what goes to C; frames of a host's length."""

    def __init__(self, profile: int, mode: int = BATCH) -> None:
        self.wire = Mvds(profile)
        self.device = Device("BC", mode, wire=self.wire)
        self.times = 0

    def say(self, body: bytes, parents: list[bytes], ephemeral: bool = False) -> bytes:
        """Send a message with metadata; its id."""
        self.times += 1
        inside = b"".join(field_of(1, parent) for parent in parents)
        inside += field_of(2, 1) if ephemeral else b""
        values = (self.device.group_id, self.times, body, inside)
        numbers = (*self.wire.inner, self.wire.metadata)
        message = b"".join(map(field_of, numbers, values))
        self.hear(field_of(self.wire.outer[3], message))
        return self.device.id_of(body, self.times)

    def hear(self, payload: bytes) -> None:
        """Have the device take in a payload of any length."""
        frame = bytearray([self.wire.kind]) + payload
        assert self.device.links["B"].receive(frame, len(frame), self.device.now_ms) == 0

    def stored_parents(self, id: bytes) -> list[bytes]:
        """The parents of a message as the device keeps them."""
        store = self.device.store
        assert store.load(store.find(id, 0)) == 0
        body = bytearray(store.size)
        store.read_into(store.find(id, 0), 0, body, 0, len(body))
        return [bytes(body[1 + 32 * at : 33 + 32 * at]) for at in range(body[0] & HEAD_PARENTS)]


def parents_of(metadata: bytes) -> list[bytes]:
    """The parents in the metadata that a device sent."""
    return [metadata[at + 2 : at + 34] for at in range(0, len(metadata), 34)]


@with_parents
@pytest.mark.parametrize("times", [9, 22, 40])
def test_a_parent_that_is_named_many_times_is_one(profile: int, times: int) -> None:
    peer = Peer(profile)
    device = peer.device
    first = peer.say(b"first", [])
    second = device.id_of(b"second", 99)
    third = peer.say(b"third", [first] * times + [second] * times)
    assert device.log() == [first] and device.node.pending_count() == 1
    sent = device.next()
    assert sorted(sent.acks) == sorted([first, third]), "it is kept, so it is acknowledged"
    assert sent.requests == [second]
    peer.times = 98
    assert peer.say(b"second", []) == second
    assert device.log() == [first, second, third] and device.node.refused == 0
    assert peer.stored_parents(third) == [first, second]
    relayed = device.sent("C")
    metadata = dict(zip(relayed.bodies, relayed.metadata, strict=True))
    assert parents_of(metadata[b"third"] or b"") == [first, second]


@with_parents
@pytest.mark.parametrize("count", [DEPENDENCIES_MAX, DEPENDENCIES_MAX + 1, 29, 200])
def test_of_more_parents_the_first_ones_are_kept(profile: int, count: int) -> None:
    """Metadata is not hashed: the message is the same with fewer, and the others come anyhow."""
    peer = Peer(profile)
    device = peer.device
    parents = [peer.say(b"%d" % number, []) for number in range(count)]
    named = [parent for parent in parents for _ in range(3)]
    child = peer.say(b"child", named)
    assert device.log() == [*parents, child] and device.node.refused == 0
    assert peer.stored_parents(child) == parents[:DEPENDENCIES_MAX]


@with_parents
@pytest.mark.parametrize("place", range(DEPENDENCIES_MAX))
def test_a_message_waits_for_each_of_the_parents_that_are_kept(profile: int, place: int) -> None:
    peer = Peer(profile)
    device = peer.device
    ids = [device.id_of(b"%d" % number, number + 1) for number in range(DEPENDENCIES_MAX + 1)]
    peer.times = 100
    child = peer.say(b"child", ids)
    late = ids[place]
    for number in range(DEPENDENCIES_MAX):
        if ids[number] != late:
            peer.times = number
            peer.say(b"%d" % number, [])
    assert child not in device.log() and device.node.pending_count() == 1
    peer.times = place
    assert peer.say(b"%d" % place, []) == late
    assert device.log()[-2:] == [late, child], "the ninth was not kept"


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize("fields", ["none", "empty", "a parent", "ephemeral"])
def test_every_message_to_mvds_1_has_metadata(mode: int, fields: str) -> None:
    """The newest Go node ends where a message without it comes in and it has a third peer."""
    peer = Peer(PROFILE_MVDS_1, mode)
    device = peer.device
    parent = device.publish(b"own", 5)
    if fields == "none":
        payload = Payload(messages=[(1, b"theirs")])
        peer.hear(peer.wire.write(payload, device.group_id))
    else:
        peer.say(b"theirs", [parent] * (fields == "a parent"), fields == "ephemeral")
    ids = [parent] if fields == "ephemeral" else [parent, device.id_of(b"theirs", 1)]
    device.hear("C", requests=ids)
    device.tick()
    sent = device.sent("C")
    assert sent.bodies == [b"own", b"theirs"][: len(ids)]
    expected = [b"", field_of(1, parent) if fields == "a parent" else b""]
    assert sent.metadata == expected[: len(ids)]


def test_metadata_goes_only_to_who_needs_or_reads_it() -> None:
    for profile in (PROFILE_MVDS_NESTED, PROFILE_MVDS_5001):
        device = Device("B", wire=Mvds(profile))
        parent = device.publish(b"one", 1)
        body = b"\x01" + parent + b"two"
        assert device.node.publish(device.group, body, len(body), bytes(8), 0) > 0
        body = bytes((HEAD_EPHEMERAL,)) + b"three"
        assert device.node.publish(device.group, body, len(body), bytes(8), 0) > 0
        sent = device.next()
        assert sent.bodies == [b"one", b"two", b"three"]
        known = [None, field_of(1, parent), field_of(2, 1)]
        assert sent.metadata == ([None] * 3 if profile == PROFILE_MVDS_NESTED else known)


def test_a_body_stored_with_the_flag_of_older_versions_reads_as_before() -> None:
    device = Device("B", wire=Mvds(PROFILE_MVDS_1))
    body = b"\x40old"
    assert device.node.publish(device.group, body, len(body), bytes(8), 0) > 0
    sent = device.next()
    assert (sent.bodies, sent.metadata) == ([b"old"], [b""])


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "cut"])
@pytest.mark.parametrize(
    "profile", [PROFILE_MVDS_1, PROFILE_MVDS_NESTED, PROFILE_MVDS_5001],
    ids=["mvds-1", "mvds-nested", "mvds-5001"],
)  # fmt: skip
def test_after_a_boot_what_a_silent_peer_holds_frees_its_slot(profile: int, saved: bool) -> None:
    """It held four messages, and its ACKs were lost: the window must not stand still for ever."""
    device = Device("B", INTERACTIVE, wire=Mvds(profile), messages_max=4)
    bodies = [b"%d" % number for number in range(12)]
    ids = [device.publish(body) for body in bodies]
    held = []
    for _ in range(4):
        sent = device.next()
        held += sent.bodies  # its ACK is lost
        device.hear(requests=sent.offers)
    assert sorted(set(held)) == sorted(bodies[: len(set(held))]) and 0 < len(set(held)) < 12
    device.again(saved)
    have = {device.id_of(body) for body in held}
    for _ in range(200):
        sent = device.next()
        acks = [device.id_of(body) for body in sent.bodies]
        have.update(acks)
        device.hear(acks=acks, requests=[id for id in sent.offers if id not in have])
    assert have == set(ids) and not device.node.outstanding(device.peers["B"])


def test_between_two_of_us_only_ids_pass_for_what_both_hold() -> None:
    """Our own node acknowledges an OFFER, so a boot costs an id each way for each message."""
    draw = Draw(3)
    ends = [Member(name, draw, family=1) for name in "ab"]
    net = Network(draw, ends, ["ab"], mode=INTERACTIVE, profile=PROFILE_MVDS_1)
    for number in range(20):
        ends[0].publish(bytes(200) + b"%d" % number, net.now_ms)
    net.run(lambda: len(ends[1].log()) == 20, 200)
    for line in net.lines.values():
        line.take()  # the last ACKs are lost
        line.bytes = 0
    member = ends[0]
    member.files.power_cut()
    member.start()
    member.boot(net.now_ms)
    net.connect(member)
    net.run(lambda: net.complete(20), 40 * EPOCH_MS // 250)
    assert sum(line.bytes for line in net.lines.values()) < 20 * (34 + 34) + 100
