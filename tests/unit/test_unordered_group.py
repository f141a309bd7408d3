"""The switch per group: wait for what a message depends on, or take it as it comes."""

import hashlib

import pytest

from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import GROUP_UNORDERED, HEAD_EPHEMERAL
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_MVDS,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    SHARED,
    Node,
)
from ram_store import RamStore

PARENT = bytearray(b"\x00first")
STAMP = bytearray(8)


def node_with(flags: int):
    node = Node(RamStore(), lambda: 0, peers_max=2, groups_max=1, messages_max=8, offers_max=8)
    group = node.join(READINGS_CLIENT_ID, b"", flags)
    peer = node.add_peer(b"peer")
    node.share(group, peer, SHARED)
    node.boot(0)
    return node, node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)


def take(node, link, body: bytearray) -> bytes:
    """A message of the peer's comes in; its id."""
    link.exchange.on_message(node.core.members.group_ids, 0, STAMP, 0, body, 0, len(body))
    return bytes(node.core.id[:32])


def parent_id() -> bytes:
    return take(*node_with(0), PARENT)


@pytest.mark.parametrize(("flags", "delivered"), [(0, 0), (GROUP_UNORDERED, 1)])
def test_a_message_without_its_parent(flags: int, delivered: int) -> None:
    node, link = node_with(flags)
    child = take(node, link, bytearray(b"\x01" + parent_id() + b"second"))
    assert node.delivered == delivered
    assert node.pending_count() == 1 - delivered
    take(node, link, PARENT)
    assert node.delivered == 2
    assert node.pending_count() == 0
    order = []
    while node.next_event():
        node.store.load(node.event_handle)
        order.append(bytes(node.store.id))
        node.done(node.event_handle)
    first, second = (child, parent_id()) if delivered else (parent_id(), child)
    assert order == [first, second]
    take(node, link, bytearray(b"\x01" + parent_id() + b"second"))
    assert node.delivered == 2  # twice is once


def test_a_circle_of_kept_messages_is_shared_in_the_end() -> None:
    """Ids of the MVDS family do not cover dependencies, so two messages may name each other."""
    node = Node(RamStore(), lambda: 0, peers_max=2, groups_max=1, messages_max=8, offers_max=8)
    group = node.join_id(bytes(range(32)), FAMILY_MVDS, GROUP_UNORDERED)
    peer = node.add_peer(b"peer")
    node.share(group, peer, SHARED)
    node.boot(0)
    link = node.link(peer, PROFILE_MVDS_1, CARRIER_SERIAL, 1000, BATCH)
    ids = [
        hashlib.sha256(b"MESSAGE_ID" + bytes(range(32)) + STAMP + text).digest()
        for text in (b"one", b"two", b"three")
    ]
    # Ephemeral ones go no further, until what depends on them is shared.
    once = bytes([HEAD_EPHEMERAL | 1])
    assert take(node, link, bytearray(once + ids[1] + b"one")) == ids[0]
    assert take(node, link, bytearray(once + ids[0] + b"two")) == ids[1]
    take(node, link, bytearray(b"\x01" + ids[1] + b"three"))
    assert node.delivered == 3
    for id in ids:
        assert node.store.load(node.store.find(id, 0)) == 0 and not node.store.private
