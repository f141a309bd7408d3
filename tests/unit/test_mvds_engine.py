"""The three MVDS profiles with the real engine: two and three members, loss, both modes."""

import hashlib

import pytest

from drupelet import host_api
from drupelet.base.errors import CapacityError
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import FAMILY_BSP_0, HEAD_EPHEMERAL
from drupelet.node import (
    BATCH,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
    Node,
)
from helpers import Draw, Member, Network, check_causal

PROFILES = (PROFILE_MVDS_1, PROFILE_MVDS_NESTED, PROFILE_MVDS_5001)


def members(draw, count, pool=64):
    return [Member(name, draw, pool=pool, family=FAMILY_MVDS) for name in "abc"[:count]]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_members_completes_under_loss(profile, mode, seed) -> None:
    draw = Draw(seed)
    made = members(draw, 3)
    network = Network(
        draw, made, [("a", "b"), ("b", "c")], mode=mode, profile=profile, loss=300, repeat=100,
        reorder=100,
    )  # fmt: skip
    for index in range(30):
        assert made[index % 3].publish(bytes((index,)) * (index * 9), network.now_ms)
        if index % 5 == 0:
            network.round()
    network.run(lambda: network.complete(30), 4000)
    if profile != PROFILE_MVDS_NESTED:  # which has no metadata, so no order
        for member in made:
            check_causal(member)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("pool", [1, 2, 4])
def test_tiny_pools_complete(mode, pool) -> None:
    draw = Draw(pool)
    made = members(draw, 2, pool)
    network = Network(draw, made, [("a", "b")], mode=mode, profile=PROFILE_MVDS_1, loss=300)
    for index in range(40):
        assert made[index % 2].publish(bytes((index,)), network.now_ms)
    network.run(lambda: network.complete(40), 20000)
    for member in made:
        check_causal(member)


@pytest.mark.parametrize("profile", PROFILES)
def test_long_bodies_travel_in_pieces(profile) -> None:
    draw = Draw(5)
    made = members(draw, 2)
    network = Network(draw, made, [("a", "b")], profile=profile, loss=200)
    for size in (900, 940, 979, 5000, 30000):
        assert made[0].publish(bytes((size % 251,)) * size, network.now_ms)
    network.run(lambda: network.complete(5), 4000)


def test_a_group_of_one_family_does_not_exist_on_a_link_of_another() -> None:
    draw = Draw(1)
    made = members(draw, 2)
    network = Network(draw, made, [("a", "b")], profile=PROFILE_BSP_1)
    made[0].publish(b"unheard", 0)
    for _ in range(50):
        network.round()
    assert made[1].log() == []
    assert network.lines["a", "b"].sent == 0


@pytest.mark.parametrize(
    ("first", "other"), [(FAMILY_BSP, FAMILY_MVDS), (FAMILY_MVDS, FAMILY_BSP_0)]
)
def test_a_group_is_of_one_family_for_life(first, other) -> None:
    """A message of one, read as the other's, would have another id."""
    member = Member("a", Draw(1), family=first)
    group = bytes(member.node.core.members.group_ids[:32])
    with pytest.raises(CapacityError, match="family"):
        member.node.join_id(group, other)
    assert member.node.core.members.family(0) == first
    member.store.barrier()
    # After a reboot, before it is joined again, too.
    store = member.make_store()
    store.open()
    with pytest.raises(CapacityError, match="family"):
        Node(store, lambda: 0, 4, 2, 8, 8).join_id(group, other)
    member.start()
    member.node.leave(member.group)
    assert member.node.join_id(group, other) > 0, "it begins anew"


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_an_ephemeral_message_is_sent_once_and_goes_no_further(mode) -> None:
    draw = Draw(7)
    made = members(draw, 3)
    network = Network(draw, made, [("a", "b"), ("b", "c")], mode=mode, profile=PROFILE_MVDS_1)
    body = bytes((HEAD_EPHEMERAL,)) + b"typing"
    assert made[0].node.publish(made[0].group, body, len(body), bytes(8), 0) > 0
    for _ in range(60):
        network.round()
    assert len(made[1].log()) == 1
    assert made[2].log() == []
    assert made[0].node.outstanding(made[0].numbers["b"]) == 0
    assert network.lines["a", "b"].sent == 1
    assert network.lines["b", "a"].sent == 0, "nobody waits for an acknowledgement"


@pytest.mark.parametrize("size", [6, 2000], ids=["whole", "in pieces"])
def test_whether_a_copy_is_acknowledged_the_copy_says(size) -> None:
    """Metadata is not hashed: one peer's copy may be ephemeral, another's of the same id not."""
    draw = Draw(7)
    made = members(draw, 3)
    network = Network(draw, made, [("a", "b"), ("b", "c")], profile=PROFILE_MVDS_1)
    a, b, c = made
    host_api.note_reads_segments(a.links["b"])
    once, kept = (bytes((head,)) + b"t" * size for head in (HEAD_EPHEMERAL, 0))
    assert a.node.publish(a.group, once, len(once), bytes(8), 0) > 0
    frames = []
    frame = bytearray(network.frame_size)
    while not b.log():
        network.now_ms += network.epoch_ms
        while got := a.links["b"].poll_into(frame, network.now_ms):
            frames.append(bytes(frame[:got]))
            b.links["a"].receive(frame, got, network.now_ms)
    for _ in range(3):
        for copy in frames:
            b.links["a"].receive(bytearray(copy), len(copy), network.now_ms)
        for _ in range(8):
            network.round()
    assert b.node.duplicates == 3 and network.lines["b", "a"].sent == 0
    # Who sends it as any other waits for its acknowledgement.
    assert c.node.publish(c.group, kept, len(kept), bytes(8), network.now_ms) > 0
    for _ in range(40):
        network.round()
    assert len(b.log()) == 1 and b.node.duplicates > 3
    assert c.node.outstanding(c.numbers["b"]) == 0
    assert network.lines["b", "a"].sent == 0


def test_parents_that_make_a_circle_are_refused() -> None:
    draw = Draw(9)
    made = members(draw, 2)
    network = Network(draw, made, [("a", "b")], profile=PROFILE_MVDS_1)
    link = made[1].links["a"]

    def identify(payload):
        made_id = hashlib.sha256(b"MESSAGE_ID" + READINGS_CLIENT_ID + bytes(8) + payload)
        return made_id.digest()

    def receive(payload, *parents):
        """A message as MVDS_1 has it: fields 1, 3 and 4, the timestamp 0 left out."""
        meta = b"".join(b"\x0a\x20" + parent for parent in parents)
        inside = b"\x0a\x20" + READINGS_CLIENT_ID + b"\x1a" + bytes((len(payload),)) + payload
        inside += b"\x22" + varint(len(meta)) + meta
        frame = bytearray(b"\x41\x22" + varint(len(inside)) + inside)
        return link.receive(frame, len(frame), network.now_ms)

    one, two, three = identify(b"one"), identify(b"two"), identify(b"three")
    node = made[1].node
    receive(b"one", two)
    receive(b"two", three)
    assert node.pending_count() == 2
    receive(b"three", one)  # one waits for two, two for three
    receive(b"self", identify(b"self"))
    assert node.pending_count() == 2 and node.malformed == 2
    # An honest copy of it sets the others free: the first copies' parents stand.
    receive(b"three")
    assert made[1].log() == [three, two, one]


def varint(number):
    return bytes((number,)) if number < 128 else bytes((number & 127 | 128, number >> 7))
