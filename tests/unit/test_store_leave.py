"""What a board's store forgets on purpose, and what making room leaves of a message."""

import zlib
from contextlib import suppress

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, CapacityError
from drupelet.node import EVENT_MESSAGE, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELETED, STATE_DELIVERED, STATE_PENDING, STATE_PRIVATE
from unit.cut_files import CutFiles, PowerCut
from unit.numbered_messages import (
    SETTLED,
    body_of,
    bury,
    log_of,
    message_id,
    put,
    put_long,
    reboot,
)

GROUP, PEER = 1, 2
SMALL = {"segment_size": 1024, "segments_max": 6}


def pending_of(store: FlashStore) -> list[int]:
    handles, handle = [], store.next_pending(0)
    while handle:
        handles.append(handle)
        handle = store.next_pending(handle)
    return handles


def read(store: FlashStore, handle: int) -> bytes:
    assert store.load(handle) == OK
    buf = bytearray(2000)
    count = store.read_into(handle, 0, buf, 0, 2000)
    assert count >= 0, "the body file is not there"
    return bytes(buf[:count])


def join(store: FlashStore, *keys: int) -> list[int]:
    return [store.member(GROUP, message_id(1000 + key), 0, 32) for key in keys]


def names_of(files: RamFiles, ending: str) -> list[str]:
    return sorted(name for name in files.names() if name.endswith(ending))


# --- a group that was left ---


def test_the_room_of_a_left_group_in_the_pending_table_is_free_at_boot_too() -> None:
    files = RamFiles()
    store = reboot(files, pending_max=4)
    left, other = join(store, 0, 1)
    for number in range(3):
        assert put(store, number, state=STATE_PENDING, group=left) > 0
    assert put_long(store, 3, STATE_PENDING, left) > 0
    store.barrier()
    assert store.dismiss(GROUP, left) == OK
    assert names_of(files, ".BOD") == []
    waiting = [put(store, 10 + n, state=STATE_PENDING, group=other) for n in range(4)]
    assert min(waiting) > 0
    store.barrier()
    for _ in range(2):
        store = reboot(files, pending_max=4)
        assert pending_of(store) == waiting
        assert store.damaged == 0


def test_making_the_filter_anew_brings_nothing_of_a_left_group_back() -> None:
    files = RamFiles()
    options = {**SMALL, "filter_size": 32, "pending_max": 4}
    store = reboot(files, **options)
    left, other = join(store, 0, 1)
    for number in range(3):
        put(store, number, state=STATE_PENDING, group=left)
    put_long(store, 50, STATE_DELIVERED, other)
    store.barrier()
    assert store.dismiss(GROUP, left) == OK
    rejoined = join(store, 0)[0]
    kept = [put(store, n, state=STATE_PENDING, group=rejoined) for n in range(3)]
    kept.append(put_long(store, 51, STATE_PENDING, rejoined))
    store.settled_handle = SETTLED
    for number in range(100, 300):
        assert put(store, number, group=other) > 0
        assert pending_of(store) == kept
        assert store.find(message_id(0), 0) == kept[0]
        if number % 40 == 0:
            store.barrier()
            store = reboot(files, **options)
            store.settled_handle = SETTLED
    assert [store.load(handle) for handle in kept] == [OK] * 4
    assert read(store, kept[3]) == body_of(51, 1000)
    assert join(store, 0) == [rejoined] and store.spool.descriptor_size(left) == -1


def test_messages_of_a_left_group_hold_no_room() -> None:
    store = reboot(RamFiles(), **SMALL)
    left, other = join(store, 0, 1)
    number = 0
    while len(store.files.names()) < 4:
        assert put(store, number, group=left) > 0
        number += 1
    assert store.dismiss(GROUP, left) == OK
    handles = [put(store, 2000 + n, group=other) for n in range(60)]
    kept = [handle for handle in handles if handle > 0]
    assert store.erases >= 2 and len(kept) > 20
    assert handles[-1] == E_CAPACITY, "the other group's messages are unsettled"
    assert log_of(store) == kept


def test_a_number_is_free_once_its_messages_are_gone() -> None:
    files = RamFiles()
    options = {**SMALL, "filter_size": 32}
    store = reboot(files, **options)
    left, other = join(store, 0, 1)
    put(store, 1, group=left)
    assert store.dismiss(GROUP, left) == OK
    peers = 0
    while store.member(PEER, peers.to_bytes(4), 0, 4) > 0:
        peers += 1
    assert join(store, 2) == [E_CAPACITY], "a message carries the only number that was given up"
    store.settled_handle = SETTLED
    number = 100
    while store.erases == 0:
        assert put(store, number, group=other) > 0
        number += 1
    assert join(store, 2) == [left]
    kept = [put(store, 5, state=STATE_PENDING, group=left), put_long(store, 6, 2, left)]
    assert min(kept) > 0
    store.barrier()
    # The record that ended the number may still be there, before what has it now.
    for more in range(200):
        if more % 50 == 0:
            store = reboot(files, **options)
            store.settled_handle = SETTLED
        assert put(store, 1000 + more, group=other) > 0
        assert pending_of(store) == kept
        store.barrier()
    assert join(store, 2) == [left]
    assert store.find(message_id(5), 0) == kept[0]
    assert read(store, kept[1]) == body_of(6, 1000)


def test_forgetting_leaves_the_wake_states_their_room() -> None:
    store = reboot(RamFiles(), **SMALL)
    peers = [store.member(PEER, bytes([9, 9, 9, i]), 0, 4) for i in range(8)]
    number = 0
    while put(store, number, 10) > 0:
        number += 1
    assert put(store, number, 0) == E_CAPACITY
    assert [store.dismiss(PEER, peer) for peer in peers] == [OK] * 8
    for n in range(60):
        assert store.save(bytes(400), 400) == OK and store.barrier() == OK
        assert store.dismiss(PEER, peers[n % 8]) == OK
    assert store.find(message_id(0), 0), "nothing unsettled went for it"


def fill_up(store: FlashStore) -> None:
    """Leave no room for the shortest record."""
    number = 0
    while put(store, 90_000 + number, 0) > 0:
        number += 1
    assert number < 20


def full_node() -> tuple[Node, FlashStore, int, int, list[int]]:
    """A log full of what a peer that never comes is to get; all is taken in by the client."""
    files = RamFiles()
    store = reboot(files, segment_size=1024, segments_max=8)
    store.own_max = store.data_max  # nothing comes in here
    node = Node(store, lambda: 0)
    group = node.join(bytes(32), b"readings")
    other = node.join(bytes(32), b"others")
    peer = node.add_peer(b"peer")
    node.share(group, peer, SHARED)
    node.boot(0)
    handles = []
    while True:
        body = b"\0" + len(handles).to_bytes(4)
        handle = node.publish(group, body, len(body), bytes(8), 0)
        if handle < 0:
            break
        handles.append(handle)
    fill_up(store)
    node.done(handles[-1])
    node.save(0)
    assert len(handles) > 30
    assert store.find(message_id(0), 0) == 0
    return node, store, other, peer, handles


def test_a_peer_that_never_comes_can_be_removed_from_a_full_log() -> None:
    node, store, other, peer, handles = full_node()
    node.remove_peer(peer)
    assert store.member(PEER, b"peer", 0, 4) != peer
    assert store.load(handles[-1]) == OK
    assert node.publish(other, b"\0new", 4, bytes(8), 0) > 0


def test_a_group_that_nobody_fetches_can_be_left_with_a_full_log() -> None:
    node, store, other, _, handles = full_node()
    node.leave(1)
    assert store.load(handles[-1]) == E_STORAGE and log_of(store) == []
    assert node.publish(other, b"\0new", 4, bytes(8), 0) > 0


def test_a_full_log_that_the_client_has_not_read_can_be_left() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    store.own_max = store.data_max
    node = Node(store, lambda: 0)
    group, other = node.join(bytes(32), b"readings"), node.join(bytes(32), b"others")
    node.boot(0)
    count = 0
    while node.publish(group, b"\0%4d" % count, 5, bytes(8), 0) > 0:
        count += 1
    fill_up(store)
    node.leave(group)
    assert log_of(store) == [] and node.next_event() == 0
    assert node.publish(other, b"\0new", 4, bytes(8), 0) > 0
    assert node.next_event() == EVENT_MESSAGE


def test_a_group_that_the_store_does_not_let_go_is_still_there() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    node = Node(store, lambda: 0)
    group = node.join(bytes(32), b"readings")
    peer = node.add_peer(b"peer")
    node.share(group, peer, SHARED)
    node.boot(0)
    handle = node.publish(group, b"\0one", 4, bytes(8), 0)
    store.barrier()
    files.capacity = files.used
    with pytest.raises(CapacityError):
        node.leave(group)
    with pytest.raises(CapacityError):
        node.remove_peer(peer)
    assert node.outstanding(peer) == 1 and log_of(store) == [handle]
    files.capacity += 4000
    assert node.publish(group, b"\0two", 4, bytes(8), 0) > handle
    node.leave(group)
    node.remove_peer(peer)
    assert log_of(store) == []


def test_the_newest_message_is_one_of_the_log_after_a_group_is_left() -> None:
    """A snapshot of a deep sleep names it, and is refused where it is not there."""
    store = reboot(RamFiles())
    node = Node(store, lambda: 0)
    groups = [node.join(bytes(32), text) for text in (b"stays", b"left")]
    peer = node.add_peer(b"peer")
    for group in groups:
        node.share(group, peer, SHARED)
    node.boot(0)
    stays, _ = (node.publish(group, b"\0one", 4, bytes(8), 0) for group in groups)
    node.leave(groups[1])
    graph = node.core.graph
    assert graph.newest == stays == node.core.outboxes[0].cursor and store.load(stays) == OK
    node.leave(groups[0])
    assert graph.newest == 0 == store.next(0)


# --- descriptors ---


def test_a_descriptor_stands_for_a_durable_member_only() -> None:
    files = RamFiles()
    store = reboot(files)
    (group,) = join(store, 0)
    store.spool.part_open(0, b"describe", 0, 0)
    store.spool.part_append(0, bytes(32) + b"text", 0, 36)
    assert store.descriptor_put(0, group) == OK
    store = reboot(files)  # no barrier
    other = join(store, 5)[0]
    assert store.spool.descriptor_size(other) == -1 and other != group
    assert store.spool.descriptor_size(group) == 4 and join(store, 0) == [group]
    assert store.dismiss(GROUP, group) == OK
    assert names_of(files, ".DSC") == []
    assert join(store, 0)[0] not in (group, other)


@pytest.mark.parametrize("cut_at", range(8))
def test_a_descriptor_goes_after_its_group(cut_at: int) -> None:
    """Nothing unflushed survives any of the cuts."""
    files = CutFiles()
    store = FlashStore(files)
    store.open()
    (group,) = join(store, 0)
    store.spool.part_open(0, b"describe", 0, 0)
    store.spool.part_append(0, bytes(32) + b"text", 0, 36)
    assert store.descriptor_put(0, group) == OK
    files.power_on(cut_at=cut_at)
    store = FlashStore(files)
    store.open()
    with suppress(PowerCut):
        assert store.dismiss(GROUP, group) == OK
        store.barrier()
    assert files.off or cut_at > 4
    files.power_on()
    store = FlashStore(files)
    store.open()
    if join(store, 0) == [group]:
        assert store.spool.descriptor_size(group) == 4
    else:
        assert names_of(files, ".DSC") == []


def test_boot_removes_the_descriptors_of_what_is_no_group() -> None:
    files = RamFiles()
    store = reboot(files)
    group, left = join(store, 0, 1)
    peer = [store.member(PEER, bytes([n] * 4), 0, 4) for n in range(3)][2]
    for number in (group, left, peer, 200):
        store.spool.part_open(0, b"describe", 0, 0)
        store.spool.part_append(0, bytes(32) + b"text", 0, 36)
        assert store.descriptor_put(0, number) == OK
    strange = ["GX.DSC", "NOTES.DSC", "G1.TXT"]
    for name in strange:
        files.close(files.open(name, True))
    keep, files.remove = files.remove, lambda _name: E_STORAGE  # type: ignore[method-assign]
    assert store.dismiss(GROUP, left) == OK, "what is left goes at the next boot"
    files.remove = keep  # type: ignore[method-assign]
    assert len(names_of(files, ".DSC")) == 6
    store = reboot(files)
    assert names_of(files, ".DSC") == [f"G{group}.DSC", "GX.DSC", "NOTES.DSC"]
    assert set(strange) <= set(files.names())
    assert store.spool.descriptor_size(group) == 4


# --- what making room leaves ---


def test_a_message_whose_record_went_before_its_opening_is_deleted() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    handle = put(store, 1, state=STATE_PRIVATE)
    for number in range(100, 120):
        put(store, number)
    assert store.open_up(handle) == OK
    store.settled_handle = SETTLED
    number = 200
    while store.load(handle) == OK:
        assert put(store, number) > 0
        number += 1
    store.barrier()
    for _ in range(2):
        left = store.find(message_id(1), 0)
        assert left > handle and store.load(left) == OK
        assert (store.state, store.size, store.edges_size) == (STATE_DELETED, 0, 0)
        assert not store.private and left not in log_of(store)
        assert store.read_into(left, 0, bytearray(4), 0, 4) == 0
        assert store.entomb(left, b"", 0) == OK and store.open_up(left) == OK
        assert put(store, 1) == left, "it is not taken in again"
        store = reboot(files, **SMALL)


def test_a_deleted_private_message_stays_private_without_its_record() -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    handle = put(store, 1, state=STATE_PRIVATE)
    for number in range(100, 120):
        put(store, number)
    edges = b"\1" + message_id(7)
    assert store.entomb(handle, edges, 33) == OK
    store.settled_handle = SETTLED
    number = 200
    while store.load(handle) == OK:
        assert put(store, number) > 0
        number += 1
    left = store.find(message_id(1), 0)
    assert store.load(left) == OK and store.state == STATE_DELETED and store.private
    assert read(store, left) == edges
    assert store.open_up(left) == OK
    assert store.load(left) == OK and not store.private


@pytest.mark.parametrize("moved", [False, True])
def test_burying_a_pending_message_wherever_its_record_is(moved: bool) -> None:
    files = RamFiles()
    store = reboot(files, **SMALL)
    store.settled_handle = SETTLED
    waiting = put_long(store, 1, STATE_PENDING)
    number = 200
    while moved and store.erases < 3:
        assert put(store, number) > 0
        number += 1
    handle = bury(store, 1, waiting)
    assert handle > waiting if moved else handle == waiting
    assert names_of(files, ".BOD") == []
    store.barrier()
    for _ in range(2):
        assert store.find(message_id(1), 0) == handle and store.load(handle) == OK
        assert store.size == 0 and pending_of(store) == []
        store = reboot(files, **SMALL)


def test_a_body_survives_that_its_record_meets_the_end_of_the_disk() -> None:
    reclaimed = 0
    for room in range(1000, 1300, 8):
        files = RamFiles()
        store = reboot(files, segment_size=1024, segments_max=40)
        for number in range(20):
            put(store, number)
        store.settled_handle = SETTLED
        files.capacity = files.used + room
        content = bytes(40) + body_of(500, 1000)
        opened = store.spool.part_open(0, message_id(500), 0, len(content)) == 0
        if not opened or store.spool.part_append(0, content, 0, len(content)) != OK:
            continue
        handle = store.put_part(0, 1, 2, message_id(500), 0, STATE_DELIVERED)
        if handle > 0:
            assert read(store, handle) == body_of(500, 1000), room
            reclaimed += store.erases
        else:
            assert names_of(files, ".BOD") == []
    assert reclaimed, "the record met the end of the disk, and room was made"


def test_the_number_of_a_body_file_is_not_given_again() -> None:
    files = RamFiles()
    store = reboot(files, body_files_max=2)
    put_long(store, 1, STATE_PENDING)
    let_go = put_long(store, 2, STATE_DELIVERED)
    store.settled_handle = SETTLED
    waiting = put_long(store, 3, STATE_PENDING)
    assert store.load(let_go) == OK and store.state == STATE_DELETED
    assert bury(store, 3, waiting) == waiting
    assert names_of(files, ".BOD") == ["B0000001.BOD"]
    store = reboot(files, body_files_max=2)
    last = put_long(store, 4, STATE_DELIVERED)
    for _ in range(2):
        assert store.load(let_go) == OK and store.state == STATE_DELETED
        assert read(store, last) == body_of(4, 1000)
        store.barrier()
        store = reboot(files, body_files_max=2)


# --- versions of the log ---


def with_version(files: RamFiles, version: int) -> None:
    data = files.content("S0000001.LOG")
    data[3] = version
    data[12:16] = zlib.crc32(data[:12]).to_bytes(4, "little")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_log_is_read_and_nothing_new_is_put_behind_it(version: int) -> None:
    files = RamFiles()
    store = reboot(files)
    old = put(store, 1)
    store.barrier()
    with_version(files, version)
    store = reboot(files)
    assert log_of(store) == [old] and store.damaged == 0
    new = put(store, 2, state=STATE_PRIVATE)
    assert new // 4096 == 2
    store.barrier()
    store = reboot(files)
    assert log_of(store) == [old, new] and put(store, 3) // 4096 == 2


@pytest.mark.parametrize("version", [0, 5])
def test_a_log_of_a_later_version_is_not_read(version: int) -> None:
    files = RamFiles()
    put(reboot(files), 1)
    files.hold("S0000001.LOG", files.content("S0000001.LOG"))
    with_version(files, version)
    files.power_cut()
    store = FlashStore(files)
    assert store.open() == 1 and log_of(store) == []
