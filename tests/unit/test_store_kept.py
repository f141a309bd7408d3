"""A deletion is remembered until every peer that sees the group is known to have the message."""

from drupelet.base.errors import OK
from drupelet.node import BATCH, CARRIER_SERIAL, INVISIBLE, PROFILE_BSP_1, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore

CLIENT = bytes(32)


def made(names: str) -> tuple[Node, FlashStore, int, dict[str, int]]:
    store = FlashStore(RamFiles())
    assert store.open() == 0
    node = Node(store, lambda: 0)
    group = node.join(CLIENT, b"kept")
    peers = {name: node.add_peer(name.encode() * 4) for name in names}
    for peer in peers.values():
        node.share(group, peer, SHARED)
    node.boot(0)
    return node, store, group, peers


def offer(id: bytes) -> bytearray:
    return bytearray(b"\x40\x01\x02\x00\x20" + id)


def test_a_deletion_waits_for_all_who_may_offer_it() -> None:
    node, store, group, peers = made("ABC")
    links = {
        name: node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
        for name, peer in peers.items()
    }
    handle = node.publish(group, b"\0gone", 5, bytes(8), 0)
    assert store.load(handle) == OK
    id = bytes(store.id)
    assert node.delete(handle) == OK
    assert store.next_kept(0) == handle and store.load(handle) == OK
    assert store.missing == sum(1 << peer for peer in peers.values())
    frame = offer(id)
    assert links["A"].receive(frame, len(frame), 1000) >= 0
    assert store.load(handle) == OK and not store.missing >> peers["A"] & 1
    assert store.next_kept(0) == handle
    node.remove_peer(peers["C"])
    assert store.load(handle) == OK and store.missing == 1 << peers["B"]
    assert links["B"].receive(frame, len(frame), 1000) >= 0
    assert store.next_kept(0) == 0 and store.find(id, 0) == handle


def test_nobody_is_waited_for_who_does_not_see_the_group() -> None:
    node, store, group, peers = made("AB")
    node.share(group, peers["B"], INVISIBLE)
    link = node.link(peers["A"], PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    handle = node.publish(group, b"\0gone", 5, bytes(8), 0)
    assert store.load(handle) == OK
    frame = offer(bytes(store.id))
    frame[2] = 0  # an ACK of it
    assert link.receive(frame, len(frame), 1000) >= 0
    assert node.delete(handle) == OK and store.next_kept(0) == 0
    alone, its_store, its_group, _ = made("")
    handle = alone.publish(its_group, b"\0gone", 5, bytes(8), 0)
    assert alone.delete(handle) == OK and its_store.next_kept(0) == 0


def test_an_acknowledgement_of_what_was_deleted_meanwhile_counts() -> None:
    node, store, group, peers = made("A")
    link = node.link(peers["A"], PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    handle = node.publish(group, b"\0gone", 5, bytes(8), 0)
    assert store.load(handle) == OK
    frame = offer(bytes(store.id))
    frame[2] = 0
    assert node.delete(handle) == OK and store.next_kept(0) == handle
    assert link.receive(frame, len(frame), 1000) >= 0
    assert store.next_kept(0) == 0
