"""A node's own interface: membership and its bounds, publishing, events, the default client."""

import pytest

from drupelet.base.errors import E_CAPACITY, CapacityError
from drupelet.base.limits import BODY_SIZE_MAX, INLINE_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.node import EVENT_MESSAGE, EVENT_NONE
from helpers import Draw, Member, stamp


def lone() -> Member:
    member = Member("A", Draw(1))
    member.boot()
    return member


def test_what_does_not_fit_is_refused_in_words() -> None:
    node = lone().node
    with pytest.raises(CapacityError, match="32 bytes"):
        node.join(bytes(31), b"")
    with pytest.raises(CapacityError, match="32768"):
        node.join(READINGS_CLIENT_ID, bytes(32769))
    node.join(READINGS_CLIENT_ID, bytes(32768))
    with pytest.raises(CapacityError, match="groups_max"):
        node.join(READINGS_CLIENT_ID, b"a third one")
    for number in range(4):
        node.add_peer(bytes([number]) * 4)
    with pytest.raises(CapacityError, match="peers_max"):
        node.add_peer(b"five")


def test_members_keep_their_numbers() -> None:
    node = lone().node
    assert node.join(READINGS_CLIENT_ID, b"test") == node.join(READINGS_CLIENT_ID, b"test")
    assert node.add_peer(b"peer") == node.add_peer(b"peer") != node.add_peer(b"reep")
    assert node.core.members.peers == 2
    assert [inbox.offers_max for inbox in node.core.inboxes] == [32, 32], "half of the entries"


@pytest.mark.parametrize("size", [0, 1, INLINE_SIZE_MAX, INLINE_SIZE_MAX + 1, BODY_SIZE_MAX])
def test_bodies_of_every_size(size: int) -> None:
    member = lone()
    body = bytes(1) + bytes(i & 255 for i in range(size))
    handle = member.node.publish(member.group, body, size, stamp(5), 0)
    assert handle > 0 and member.body(handle) == body[:size]
    assert bytes(member.store.timestamp) == stamp(5) and member.store.source == 0


def test_a_body_in_pieces_is_the_same_message() -> None:
    whole, pieces = lone(), lone()
    body = bytes(1) + bytes(i * 3 & 255 for i in range(4999))
    assert whole.node.publish(whole.group, body, 5000, stamp(1), 0) > 0
    node = pieces.node
    assert node.publish_begin(pieces.group, stamp(1)) == 0
    for at in range(0, 5000, 700):
        assert node.publish_append(body[at : at + 700], 0, len(body[at : at + 700])) == 0
    assert node.publish_end(pieces.group, 0) > 0
    assert pieces.log() == whole.log()
    assert node.publish_begin(pieces.group, stamp(2)) == 0
    assert node.publish_append(bytes(BODY_SIZE_MAX), 0, BODY_SIZE_MAX) == 0
    assert node.publish_append(b"x", 0, 1) == E_CAPACITY


def test_a_full_flash_refuses_and_counts() -> None:
    member = Member("A", Draw(1), segments_max=5)
    member.peers.append("B")
    member.add("B")
    member.boot()
    refused = 0
    for number in range(200):
        body = b"\x00" + bytes(500) + bytes([number])
        refused += member.node.publish(member.group, body, len(body), stamp(0), 0) == E_CAPACITY
    assert refused > 150 and member.node.refused == refused
    assert len(member.log()) == 200 - refused == member.node.delivered


def test_events_come_in_log_order_and_once() -> None:
    member = lone()
    assert member.node.next_event() == EVENT_NONE
    handles = []
    for number in range(5):
        member.publish(b"%d" % number)
        handles.append(member.store.find(member.log()[-1], 0))
    for handle in handles:
        assert member.node.next_event() == EVENT_MESSAGE
        assert member.node.event_handle == handle and not member.node.event_again
        member.node.done(handle)
    assert member.node.next_event() == EVENT_NONE
    member.node.done(handles[0])
    assert member.node.core.consumed == handles[-1], "the cursor never goes back"


def test_boots_are_numbered() -> None:
    member = Member("A", Draw(1))
    numbers = []
    for _ in range(3):
        numbers.append(member.node.boot(0))
        member.store.barrier()
        member.files.power_cut()
        member.start()
    assert numbers == [1, 2, 3]


def receive(member: Member, count: int) -> None:
    """Messages of B arrive."""
    group = bytes(member.node.core.members.group_ids[:32])
    member.peers.append("B")
    member.add("B")
    link = member.node.link(member.numbers["B"], 0, 0, 1000, 0)
    for number in range(count):
        content = group + stamp(number) + b"\x00theirs"
        frame = bytearray(b"\x40\x01\x01" + len(content).to_bytes(2, "big") + content)
        link.receive(frame, len(frame), 0)


def test_an_author_follows_itself_and_what_it_saw() -> None:
    member = lone()
    first = member.publish(b"1")
    second = member.publish(b"2")
    assert member.dependencies()[second] == [first]
    receive(member, 2)
    member.consume()
    theirs = member.log()[-1]
    third = member.publish(b"3")
    assert member.dependencies()[third] == [second, theirs]
    fourth = member.publish(b"4")
    assert member.dependencies()[fourth] == [third], "what was seen is named once"
    again = Author(member.node, member.group)
    again.recover()
    assert again.head() == 33 and bytes(again.body[1:33]) == fourth


def test_an_author_names_what_it_saw_though_the_event_of_its_own_came_after() -> None:
    member = lone()
    member.publish(b"1")
    receive(member, 1)
    second = member.publish(b"2")  # theirs is in the log, and not seen yet
    author = member.author
    assert (author.own, author.logged) == (2, 0)
    theirs = member.log()[1]
    member.consume()
    assert (author.own, author.logged) == (2, 3)
    third = member.publish(b"3")
    assert member.dependencies()[third] == [second, theirs]
    for handle in range(1, author.seen + 1):
        author.saw(handle)
    assert (author.own, author.logged) == (3, 3), "once each"


def test_an_author_refuses_what_does_not_fit_its_body() -> None:
    member = lone()
    author = member.author
    assert author.compose(bytes(951), 951) == 952
    assert author.compose(bytes(952), 952) == -1
    member.publish(b"1")
    assert author.compose(bytes(951 - 32), 951 - 32) == 952
    assert author.compose(bytes(951), 951) == -1
