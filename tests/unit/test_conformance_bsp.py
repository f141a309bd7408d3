"""Sentences of BSP v1, seen from a peer: what a device sends, and what it does with what it gets.

docs/conformance.md names each of these tests beside its sentence. Sections are those of the text.
"""

from itertools import pairwise

import pytest

from devices import CLIENT, EPOCH_MS, Device, hash_of
from drupelet.base.errors import CapacityError
from drupelet.base.limits import BACKOFF_EPOCHS_MAX
from drupelet.node import BATCH, FAMILY_MVDS, INTERACTIVE, INVISIBLE, SHARED, VISIBLE

both_modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
THEIRS = [bytes([n]) * 32 for n in range(1, 30)]


def child(*parents: bytes, text: bytes = b"child") -> bytes:
    return bytes([len(parents)]) + b"".join(parents) + text


def pass_on(here: Device, there: Device) -> tuple[int, int]:
    """Give what `here` sends to B in this moment to `there`; frames and bytes."""
    buffer = bytearray(1024)
    frames = count = 0
    while size := here.links["B"].poll_into(buffer, here.now_ms):
        there.hear_raw(bytes(buffer[:size]))
        frames, count = frames + 1, count + size
        assert frames < 100
    return frames, count


# --- 1 Introduction ---


def test_a_changed_message_is_another_message() -> None:
    device = Device()
    messages = [(7, b"\x00one"), (7, b"\x00onf"), (8, b"\x00one")]
    device.hear(messages=messages)
    device.hear(messages=messages)
    assert device.log() == [device.id_of(body, stamp) for stamp, body in messages]


@both_modes
def test_what_is_shared_goes_to_every_peer_that_shares_the_group(mode: int) -> None:
    device = Device("BCD", mode)
    device.node.share(device.group, device.peers["D"], VISIBLE)
    own = device.publish(b"\x00own")
    device.hear("B", messages=[(7, b"\x00theirs")])
    theirs = device.id_of(b"\x00theirs")
    device.tick()
    wanted = {"B": [own], "C": [own, theirs], "D": []}
    for name, ids in wanted.items():
        sent = device.sent(name)
        given = sent.offers if mode == INTERACTIVE else [device.id_of(b) for b in sent.bodies]
        assert given == ids


@both_modes
def test_two_members_need_not_share_a_group(mode: int) -> None:
    device = Device("BC", mode)
    device.node.share(device.group, device.peers["C"], INVISIBLE)
    device.hear("B", messages=[(7, b"\x00from B")])
    device.hear("C", messages=[(7, b"\x00from C")])
    device.hear("C", offers=[device.id_of(b"\x00from B")])
    assert device.log() == [device.id_of(b"\x00from B")]
    device.tick()
    sent = device.sent("C")
    assert not sent.messages and not sent.offers and not sent.acks


@both_modes
def test_a_link_carries_the_groups_of_its_own_family_only(mode: int) -> None:
    device = Device("B", mode)
    other = device.node.join_id(bytes(range(32)), FAMILY_MVDS)
    device.node.share(other, device.peers["B"], SHARED)
    device.publish(b"\x00of another family", group=other)
    for _ in range(20):
        assert not device.next()
    assert device.node.outstanding(device.peers["B"]) == 1
    device.publish(b"\x00of this one")
    sent = device.next()
    assert len(sent.offers) + len(sent.bodies) == 1 and b"\x00of another family" not in sent.bodies


@both_modes
def test_whom_a_group_is_shared_with_changes_while_it_runs(mode: int) -> None:
    device = Device("B", mode, VISIBLE)
    id = device.publish(b"\x00one")
    assert not device.next()
    device.node.share(device.group, device.peers["B"], SHARED)
    sent = device.next()
    assert sent.offers == [id] or sent.bodies == [b"\x00one"]
    device.node.share(device.group, device.peers["B"], VISIBLE)
    device.publish(b"\x00two")  # what comes after the change is not for the peer, either
    for _ in range(20):
        assert not device.next()


# --- 2 Data formats ---


@pytest.mark.parametrize("descriptor", [b"", b"\x00\xff\xfe", bytes(1 << 15)])
def test_a_descriptor_is_hashed_and_not_interpreted(descriptor: bytes) -> None:
    device = Device()
    number = device.node.join(CLIENT, descriptor)
    device.node.share(number, device.peers["B"], SHARED)
    device.publish(b"\x00in it", group=number)
    assert device.next().groups == [hash_of(b"GROUP_ID", CLIENT, descriptor)]


def test_a_descriptor_above_32_kib_is_refused() -> None:
    with pytest.raises(CapacityError):
        Device().node.join(CLIENT, bytes((1 << 15) + 1))


def test_clients_with_one_descriptor_have_groups_of_their_own() -> None:
    device = Device()
    other = bytes(31) + b"\x01"
    number = device.node.join(other, device.descriptor)
    assert number != device.group
    device.node.share(number, device.peers["B"], SHARED)
    device.publish(b"\x00mine")
    device.publish(b"\x00mine", group=number)
    assert device.next().groups == [
        device.group_id, hash_of(b"GROUP_ID", other, device.descriptor)
    ]  # fmt: skip
    assert len(set(device.log())) == 2


@pytest.mark.parametrize("timestamp", [0, 1, 1_700_000_000_000, (1 << 63) - 1])
def test_a_message_is_a_body_and_a_timestamp(timestamp: int) -> None:
    device = Device("BC")
    assert device.publish(b"\x00own", timestamp) == device.id_of(b"\x00own", timestamp)
    device.hear("B", messages=[(timestamp, b"\x00theirs")])
    device.tick()
    assert device.sent("C").messages == [(timestamp, b"\x00own"), (timestamp, b"\x00theirs")]


# --- 3 Wire protocol ---


def test_several_records_of_every_type_in_one_frame() -> None:
    device = Device("B", INTERACTIVE)
    own = [device.publish(b"\x00%d" % number) for number in range(3)]
    assert device.next().offers == own
    device.hear(acks=own[:1], offers=THEIRS[:2], requests=own[1:], messages=[(7, b"\x00t")])
    sent = device.next()
    assert (sent.acks, sorted(sent.requests)) == ([device.id_of(b"\x00t")], THEIRS[:2])
    assert (sent.offers, sent.bodies, sent.frames) == ([], [b"\x001", b"\x002"], 1)


@both_modes
def test_an_ack_says_that_the_peer_holds_the_message(mode: int) -> None:
    device = Device("BC", mode)
    device.hear("B", acks=[device.publish(b"\x00%d" % number) for number in range(3)])
    for _ in range(2 * BACKOFF_EPOCHS_MAX):
        device.tick()
        assert not device.sent("B"), "neither offered nor sent"
    assert device.sent("C"), "another peer's hold flag is its own"


@both_modes
@pytest.mark.parametrize("how", ["acks", "offers", "messages"])
def test_what_a_peer_is_known_to_hold_is_not_offered_or_sent(mode: int, how: str) -> None:
    device = Device("B", mode)
    own = device.publish(b"\x00own")
    device.hear(**{how: [(7, b"\x00own")] if how == "messages" else [own]})
    for _ in range(BACKOFF_EPOCHS_MAX):
        sent = device.next()
        assert not sent.offers and not sent.messages


@both_modes
def test_a_request_asks_for_the_listed_messages(mode: int) -> None:
    device = Device("B", mode)
    own = [device.publish(b"\x00%d" % number) for number in range(4)]
    device.hear(acks=own)
    assert not device.next()
    device.hear(requests=[own[2], own[0]])
    assert sorted(device.next().bodies) == [b"\x000", b"\x002"]
    assert not device.next(), "the request flag fell when they were sent"


# --- 4.1 Synchronisation state ---


def test_flags_are_kept_for_each_peer_and_message() -> None:
    device = Device("BC", INTERACTIVE)
    own = [device.publish(b"\x00%d" % number) for number in range(3)]
    device.tick()
    assert device.sent("B").offers == device.sent("C").offers == own
    device.hear("B", requests=own[:1])
    device.hear("C", acks=own[:2])
    device.tick()
    assert device.sent("B").bodies == [b"\x000"]
    assert not device.sent("C")
    device.tick()
    assert device.sent("B").offers == own[1:]
    assert device.sent("C").offers == own[2:]


def test_the_oldest_of_the_offered_ids_is_replaced() -> None:
    device = Device("BC", INTERACTIVE, offers_max=8)
    for id in THEIRS[:6]:
        device.hear("B", offers=[id])
        device.hear("C", offers=[THEIRS[9]])
        device.tick()
        # Time passes, and nothing leaves: the poll of C's link only is what makes it pass.
        assert device.sent("C").requests in ([THEIRS[9]], [])
    assert sorted(device.sent("B").requests) == THEIRS[2:6], "four of eight places are B's"


@pytest.mark.parametrize("length", [4, 5, 8])
def test_the_list_of_offers_is_as_long_as_the_owner_says(length: int) -> None:
    device = Device("B", INTERACTIVE, offers_max=length)
    device.hear(offers=THEIRS[:12])
    assert sorted(device.next().requests) == THEIRS[:length]


def test_what_is_offered_is_asked_for_once_and_then_off_the_list() -> None:
    device = Device("B", INTERACTIVE, offers_max=4)
    for _ in range(3):
        for start in range(0, 20, 4):
            device.hear(offers=THEIRS[start : start + 4])
            assert sorted(device.next().requests) == THEIRS[start : start + 4]
            own = device.publish(b"\x00%d" % len(device.log()))
            sent = device.next()
            assert (sent.offers, sent.requests) == ([own], []), "nor when there is more to say"
            device.hear(acks=[own])
    for _ in range(2 * BACKOFF_EPOCHS_MAX):
        assert not device.next().requests, "nor later: whoever holds it offers it again"


# --- 4.2 Modes ---


@both_modes
def test_what_was_received_is_acknowledged_once(mode: int) -> None:
    device = Device("B", mode)
    device.hear(messages=[(7, b"\x00one"), (7, b"\x00two")])
    ids = [device.id_of(b"\x00one"), device.id_of(b"\x00two")]
    assert device.next().acks == ids
    assert not device.next()
    device.hear(messages=[(7, b"\x00two")])
    assert device.next().acks == ids[1:], "received again, acknowledged again"


@both_modes
def test_what_is_offered_is_acknowledged_or_asked_for(mode: int) -> None:
    device = Device("BC", mode)
    device.hear("C", messages=[(7, b"\x00one")])
    held = device.id_of(b"\x00one")
    device.hear("B", offers=[THEIRS[0], held, THEIRS[1]])
    device.tick()
    sent = device.sent("B")
    assert (sent.acks, sorted(sent.requests)) == ([held], THEIRS[:2])
    assert not sent.offers and not sent.messages
    device.tick()
    assert not device.sent("B")


@both_modes
def test_what_is_offered_and_held_without_a_row_is_acknowledged(mode: int) -> None:
    device = Device("BC", mode, messages_max=2)
    bodies = [b"\x00%d" % number for number in range(5)]
    for body in bodies:
        device.hear("C", messages=[(7, body)])
    ids = [device.id_of(body) for body in bodies]
    assert device.log() == ids
    outbox = device.node.core.outboxes[0]
    assert outbox.peer == 0 and sum(outbox.find(id, 0) < 0 for id in ids) >= 3
    for id in reversed(ids):  # rows come to the last ones at the end
        device.hear("B", offers=[id])
        device.tick()
        sent = device.sent("B")
        assert (sent.acks, sent.requests) == ([id], [])


def test_interactive_offers_and_sends_only_what_is_requested() -> None:
    device = Device("B", INTERACTIVE)
    own = [device.publish(b"\x00%d" % number) for number in range(2)]
    sent = device.next()
    assert sent.offers == own and not sent.messages
    device.hear(requests=own[:1])
    sent = device.next()
    assert sent.bodies == [b"\x000"] and not sent.offers
    for _ in range(BACKOFF_EPOCHS_MAX):
        assert not device.next().messages, "what was not asked for is not sent"


def test_batch_sends_and_offers_nothing() -> None:
    device = Device("B", BATCH)
    own = [device.publish(b"\x00%d" % number) for number in range(2)]
    sent = device.next()
    assert sent.bodies == [b"\x000", b"\x001"] and not sent.offers
    device.hear(acks=own[:1])
    for _ in range(BACKOFF_EPOCHS_MAX):
        sent = device.next()
        assert not sent.offers and b"\x000" not in sent.bodies


@both_modes
def test_only_what_is_requested_comes_before_its_send_time(mode: int) -> None:
    device = Device("B", mode)
    own = [device.publish(b"\x00%d" % number) for number in range(2)]
    first = device.next()
    assert first.offers == own or first.bodies == [b"\x000", b"\x001"]
    device.hear(requests=own[1:])
    assert device.next().bodies == [b"\x001"]


def test_peers_need_not_choose_the_same_mode() -> None:
    here, there = Device("B", BATCH), Device("B", INTERACTIVE)
    here.publish(b"\x00from batch")
    there.publish(b"\x00from interactive")
    for _ in range(8):
        for device, other in ((here, there), (there, here)):
            device.tick()
            pass_on(device, other)
    assert set(here.log()) == set(there.log()) and len(here.log()) == 2
    assert here.events() == [b"\x00from batch", b"\x00from interactive"]


def exchange(mode: int, held: bool) -> tuple[int, int]:
    """One message of 200 bytes from A to B: one-way trips until B has it, bytes until A knows."""
    here, there = Device("B", mode), Device("B", mode)
    body = b"\x00" + bytes(199)
    id = here.publish(body)
    if held:
        there.publish(body)
        there.hear(acks=[id])  # it need not offer it itself
    trips = count = 0
    for trip in range(8):
        device, other = ((here, there), (there, here))[trip % 2]
        device.tick()
        frames, size = pass_on(device, other)
        count += size
        if frames and id not in there.log():
            trips += 1
    return trips + 1, count


def test_interactive_needs_two_round_trips_and_batch_one() -> None:
    assert exchange(BATCH, False)[0] == 1, "message, then its acknowledgement"
    assert exchange(INTERACTIVE, False)[0] == 3, "offer, request, message, then the same"


def test_interactive_costs_less_where_the_peer_has_the_message() -> None:
    assert exchange(INTERACTIVE, True)[1] < exchange(BATCH, True)[1] - 150


# --- 4.3 Retransmission ---


def check_last_send(device: Device, count: int) -> None:
    """The one message went so often, in the present epoch for the last time."""
    outbox = device.node.core.outboxes[0]
    assert outbox.sends(0) == count
    assert outbox.epoch(0) == device.links["B"].exchange.epoch


@both_modes
def test_each_offer_or_send_doubles_the_wait(mode: int) -> None:
    device = Device("B", mode)
    device.publish(b"\x00own")
    at = []
    for epoch in range(400):
        sent = device.next()
        if sent:
            assert len(sent.offers) + len(sent.messages) == 1
            at.append(epoch)
            check_last_send(device, len(at))
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert waits[:6] == [2, 4, 8, 16, 32, 64]
    assert set(waits[6:]) == {BACKOFF_EPOCHS_MAX}, "a peer that comes after months is not missed"


@both_modes
def test_waits_are_short_again_once_the_peer_is_heard(mode: int) -> None:
    device = Device("B", mode)
    device.publish(b"\x00own")
    for _ in range(100):
        device.next()
    device.hear(acks=[THEIRS[0]])
    assert device.next()
    device.hear(acks=[THEIRS[0]])
    assert not device.next() and device.next()


def test_peers_need_not_use_the_same_epochs() -> None:
    slow, quick = Device(), Device()
    slow.publish(b"\x00slow")
    quick.publish(b"\x00quick")
    for quarter in range(40):
        quick.tick()
        pass_on(quick, slow)
        slow.now_ms += EPOCH_MS // 4
        if quarter % 4 == 3:
            pass_on(slow, quick)
    assert len(slow.log()) == 2 and set(slow.log()) == set(quick.log())


# --- 5 The message graph ---


def test_the_graph_may_have_several_components() -> None:
    device = Device()
    left = [device.id_of(b"\x00left")]
    right = [device.id_of(b"\x00right")]
    bodies = [b"\x00left", b"\x00right"]
    for number in range(3):
        for chain in (left, right):
            body = child(chain[-1], text=b"%d" % number)
            chain.append(device.id_of(body))
            bodies.append(body)
    for body in reversed(bodies[1:]):
        device.hear(messages=[(7, body)])
    assert device.log() == right, "a component waits for no other"
    device.hear(messages=[(7, bodies[0])])
    assert device.log() == right + left


def test_dependencies_are_part_of_what_is_hashed() -> None:
    device = Device()
    first, second = (device.id_of(b"\x00%d" % number) for number in range(2))
    bodies = [child(first), child(second), child(first, second), child(second, first)]
    bodies = [b"\x000", b"\x001", *bodies]
    device.hear(messages=[(7, body) for body in bodies])
    assert device.log() == [device.id_of(body) for body in bodies]
    assert len(set(device.log())) == 6, "other edges are another message"


def test_a_message_is_delivered_after_all_it_depends_on() -> None:
    device = Device()
    bodies = [b"\x00a", b"\x00b"]
    a, b = (device.id_of(body) for body in bodies)
    bodies.append(child(a, b))
    bodies.append(child(b, device.id_of(bodies[2]), text=b"last"))
    for body in bodies[:0:-1]:
        device.hear(messages=[(7, body)])
    assert device.events() == [b"\x00b"], "one of two is not all"
    device.hear(messages=[(7, b"\x00a")])
    assert device.events() == [b"\x00a", *bodies[2:]]
