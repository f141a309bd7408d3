"""Sentences of MVDS 0.5.1 and 0.6.0, seen from a peer: what each payload carries, and when.

docs/conformance.md names each of these tests beside its sentence. All run with the three profiles
of the family: the texts' own field numbers, the mobile paper's, and the published ones.
"""

from itertools import pairwise

import pytest

from devices import EPOCH_MS, Device, Mvds
from drupelet.base.limits import (
    BACKOFF_EPOCHS_MAX,
    BACKOFF_FALL_EPOCHS,
    HEARD_EPOCHS_MAX,
)
from drupelet.node import (
    BATCH,
    INTERACTIVE,
    INVISIBLE,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
    SHARED,
)

PROFILES = {
    "mvds-1": PROFILE_MVDS_1, "mvds-nested": PROFILE_MVDS_NESTED, "mvds-5001": PROFILE_MVDS_5001
}  # fmt: skip
every_profile = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
both_modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
THEIRS = [bytes([n]) * 32 for n in range(1, 30)]
# Longer than any back-off: what is not sent within it is not kept.
EPOCHS = 4 * BACKOFF_EPOCHS_MAX


def device_of(profile: int, mode: int, peers: str = "B", **node: int) -> Device:
    return Device(peers, mode, wire=Mvds(profile), **node)


def epochs_of(device: Device, count: int, name: str = "B") -> list[int]:
    """The epochs, of so many, in which something is sent."""
    return [epoch for epoch in range(count) if device.next(name)]


def check_back_off(at: list[int], heard: bool = False) -> None:
    """Doubling up to the bound, then back to a lower wait, and up again; for ever.

    `heard`: the peer was heard at the begin, and for HEARD_EPOCHS_MAX epochs the wait stays short.
    """
    waits = [later - earlier for earlier, later in pairwise(at)]
    if heard:
        short = HEARD_EPOCHS_MAX // 2
        assert waits[:short] == [2] * short
        waits = waits[short - 1 :]
    climb = [BACKOFF_FALL_EPOCHS]
    while climb[-1] < BACKOFF_EPOCHS_MAX:
        climb.append(2 * climb[-1])
    assert waits[:6] == [2, 4, 8, 16, 32, 64]
    assert len(waits) > 6 + 3 * len(climb)
    for place, wait in enumerate(waits[6:]):
        assert wait == climb[place % len(climb)]


# --- Payloads ---


@every_profile
def test_each_list_of_a_payload_is_taken_in_and_may_be_empty(profile: int) -> None:
    device = device_of(profile, INTERACTIVE)
    own = [device.publish(b"%d" % number) for number in range(3)]
    device.hear(acks=own[:1])
    device.hear(offers=THEIRS[:1])
    device.hear(requests=own[1:2])
    device.hear(messages=[(7, b"theirs"), (8, b"more"), (9, b"")])
    sent = device.next()
    ids = [device.id_of(b"theirs"), device.id_of(b"more", 8), device.id_of(b"", 9)]
    assert (sent.acks, sent.requests) == (ids, THEIRS[:1])
    assert (sent.offers, sent.bodies) == (own[2:], [b"1"])


@every_profile
@pytest.mark.parametrize("timestamp", [0, 1, -1, 1_700_000_000, (1 << 62) + 5, -(1 << 63)])
@pytest.mark.parametrize("body", [b"", b"body", bytes(n * 7 & 255 for n in range(300))], ids=len)
def test_the_id_hashes_group_timestamp_and_body(profile: int, timestamp: int, body: bytes) -> None:
    device = device_of(profile, BATCH, "BC")
    device.hear("B", messages=[(timestamp, body)])
    id = device.id_of(body, timestamp)
    assert device.log() == [id]
    device.tick()
    assert device.sent("B").acks == [id]
    sent = device.sent("C")
    assert (sent.messages, sent.groups) == ([(timestamp, body)], [device.group_id])


@every_profile
def test_groups_are_contexts_of_their_own(profile: int) -> None:
    device = device_of(profile, BATCH, "BC", groups_max=2)
    other = device.join(b"other")
    device.node.share(device.group, device.peers["C"], INVISIBLE)
    device.node.share(other, device.peers["C"], SHARED)
    device.publish(b"first")
    device.publish(b"second", group=other)
    device.hear("C", messages=[(7, b"into the first")])
    assert len(device.log()) == 2
    device.tick()
    assert (device.sent("B").bodies, device.sent("C").bodies) == ([b"first"], [b"second"])


# --- State ---


@every_profile
@both_modes
def test_no_state_is_kept_for_an_ack(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    device.hear(messages=[(7, b"theirs")])
    id = device.id_of(b"theirs")
    assert device.next().acks == [id]
    assert epochs_of(device, EPOCHS) == [], "an ACK is not retransmitted"
    for number in range(4):
        own = device.publish(b"%d" % number)
        device.hear(offers=THEIRS[number : number + 1])
        sent = device.next()
        assert sent.requests and not sent.acks, "nor does it go with what comes after it"
        device.hear(acks=[own])


@every_profile
@both_modes
def test_every_message_received_is_acknowledged_again(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    id = device.id_of(b"theirs")
    for _ in range(5):
        device.hear(messages=[(7, b"theirs")])
        assert device.next().acks == [id]
    assert device.log() == [id] and len(device.events()) == 1


@every_profile
def test_each_record_has_a_send_count_and_epoch_of_its_own_for_each_peer(profile: int) -> None:
    device = device_of(profile, BATCH, "BC")
    first = device.publish(b"first")
    heard: dict[str, list[tuple[int, bytes]]] = {"B": [], "C": []}
    for epoch in range(40):
        if epoch == 3:
            device.hear("B", acks=[first])
        if epoch == 5:
            device.publish(b"second")
        device.tick()
        for name, found in heard.items():
            found += [(epoch, body) for body in device.sent(name).bodies]
    assert [e for e, body in heard["C"] if body == b"first"] == [0, 2, 6, 14, 30]
    # C is away and has no frame of its own for it, but each has a count: 5 sends and 3.
    assert [e for e, body in heard["C"] if body == b"second"] == [6, 14, 30]
    to_b = [e for e, body in heard["B"] if body == b"second"]
    assert to_b == [*range(5, 3 + HEARD_EPOCHS_MAX + 1, 2), 23, 31], "B was heard, C was not"
    assert [e for e, body in heard["B"] if body == b"first"] == [0, 2]
    outboxes = device.node.core.outboxes
    sent = [outbox.sends(row) for outbox in outboxes for row in range(outbox.count)]
    sent = [count for count in sent if count]
    assert sorted(sent) == [2, 3, 5, len(to_b)], "first to B, second to C, first to C, second to B"


# --- Flow ---


@every_profile
@both_modes
def test_at_most_one_payload_for_a_peer_in_an_epoch(profile: int, mode: int) -> None:
    device = device_of(profile, mode, "BC")
    for number in range(40):
        own = device.publish(b"%d" % number)
        device.hear("B", messages=[(number, b"theirs")], offers=THEIRS[:3], requests=[own])
        sent = 0
        for quarter in range(4):
            sent += bool(device.sent("B"))
            # What is due a moment later waits for the next epoch.
            device.publish(b"%d %d" % (number, quarter))
            device.hear("B", messages=[(number, b"%d" % quarter)], requests=[own])
            device.now_ms += EPOCH_MS // 4
        assert sent == 1


@every_profile
@both_modes
def test_two_links_to_one_peer_send_one_payload(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    device.peers["again"] = device.peers["B"]
    device.connect("again", mode)
    turns = set()
    for number in range(40):
        device.tick()
        names = ["B", "again"] if number % 2 else ["again", "B"]
        own = device.publish(b"%d" % number)
        device.hear(names[0], messages=[(number, b"theirs")], offers=THEIRS[:1])
        first = device.sent(names[0])
        device.publish(b"more %d" % number)
        device.hear(names[1], messages=[(number, b"more")], requests=[own])
        second = device.sent(names[1])
        assert bool(first) != bool(second)
        turns.add((names[0], bool(first)))
    assert len(turns) == 4, "each of them had its turn, first or last"
    device.tick()
    assert device.sent("again") or device.sent("B"), "what was kept back goes in the next epoch"


@every_profile
def test_a_payload_holds_all_that_is_due_to_its_peer(profile: int) -> None:
    device = device_of(profile, INTERACTIVE, "BC")
    own = [device.publish(b"%d" % number) for number in range(4)]
    device.hear("B", messages=[(7, b"theirs")], offers=THEIRS[:2], requests=own[:2])
    device.tick()
    sent = device.sent("B")
    assert sent.frames == 1 and sent.acks == [device.id_of(b"theirs")]
    assert sorted(sent.requests) == THEIRS[:2] and sent.offers == own[2:]
    assert sent.bodies == [b"0", b"1"]
    other = device.sent("C")
    assert not other.acks and not other.requests and other.offers == [*own, sent.acks[0]]


@every_profile
@both_modes
def test_nothing_due_is_no_payload(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    assert epochs_of(device, 10) == []
    id = device.publish(b"own")
    device.next()
    device.hear(acks=[id])
    assert epochs_of(device, EPOCHS) == []


@every_profile
def test_one_node_may_send_in_both_modes(profile: int) -> None:
    device = device_of(profile, BATCH, "BC", peers_max=3)
    device.peers["D"] = device.node.add_peer(b"DDDD")
    device.node.share(device.group, device.peers["D"], SHARED)
    device.connect("D", INTERACTIVE)
    own = device.publish(b"own")
    device.tick()
    assert device.sent("B").bodies == device.sent("C").bodies == [b"own"]
    assert device.sent("D").offers == [own]


def steps(profile: int, mode: int) -> list[str]:
    """Which records travel, payload by payload, for one message from A to B without loss."""
    here, there = device_of(profile, mode), device_of(profile, mode)
    here.publish(b"body")
    found = []
    for _ in range(10):
        for device, other in ((here, there), (there, here)):
            sent = device.next()
            if sent:
                names = ("acks", "offers", "requests", "messages")
                lists = {name: getattr(sent, name) for name in names if getattr(sent, name)}
                assert all(len(entries) == 1 for entries in lists.values())
                found.append(f"{'A' if device is here else 'B'} {' '.join(lists)}")
                other.hear(**lists)
    assert there.events() == [b"\x00body"] and here.events() == [b"\x00body"]
    return found


@every_profile
def test_figure_1_interactive_without_retransmissions(profile: int) -> None:
    assert steps(profile, INTERACTIVE) == ["A offers", "B requests", "A messages", "B acks"]


@every_profile
def test_figure_2_batch_without_retransmissions(profile: int) -> None:
    assert steps(profile, BATCH) == ["A messages", "B acks"]


@every_profile
def test_interactive_a_message_is_offered_first_and_the_offer_kept(profile: int) -> None:
    device = device_of(profile, INTERACTIVE)
    own = device.publish(b"own")
    first = device.next()
    assert first.offers == [own] and not first.messages
    assert not device.next()
    assert device.next().offers == [own], "it is in the state"


@every_profile
@pytest.mark.parametrize("says", [{}, {"acks": THEIRS[:1]}], ids=["silent", "heard"])
def test_an_offer_that_stays_unanswered_twice_becomes_the_message(
    profile: int, says: dict[str, list[bytes]]
) -> None:
    """The text obliges nobody to answer an OFFER of what it holds; every MESSAGE is answered."""
    device = device_of(profile, INTERACTIVE)
    own = device.publish(b"own")
    records = []
    while len(records) < 4:
        sent = device.next()
        if sent:
            records.append("offer" if sent.offers == [own] else sent.bodies)
        elif says:
            device.hear(**says)
    assert records == ["offer", "offer", [b"own"], [b"own"]]
    device.hear(acks=[own])
    assert epochs_of(device, EPOCHS) == []


@every_profile
def test_an_offer_that_is_requested_the_second_time_is_sent_at_once(profile: int) -> None:
    device = device_of(profile, INTERACTIVE)
    own = device.publish(b"own")
    device.next()
    device.tick()
    assert device.next().offers == [own]
    device.hear(requests=[own])
    assert device.next().bodies == [b"own"]


@every_profile
def test_an_offer_is_requested_and_the_request_kept(profile: int) -> None:
    device = device_of(profile, INTERACTIVE)
    device.hear(offers=THEIRS[:1])
    assert device.next().requests == THEIRS[:1]
    at = []
    for epoch in range(1, 500):
        sent = device.next()
        assert not sent.acks and not sent.offers and not sent.messages
        if sent.requests:
            assert sent.requests == THEIRS[:1]
            at.append(epoch)
    check_back_off([0, *at])


@every_profile
def test_a_request_for_an_offer_puts_the_message_in_its_place(profile: int) -> None:
    device = device_of(profile, INTERACTIVE)
    own = device.publish(b"own")
    assert device.next().offers == [own]
    device.hear(requests=[own])
    at = []
    for epoch in range(600):
        sent = device.next()
        assert not sent.offers, "the OFFER is not in the state any more"
        if sent.messages:
            assert sent.bodies == [b"own"]
            at.append(epoch)
    assert at[0] == 0, "in the next payload"
    check_back_off(at, heard=True)


@every_profile
@both_modes
def test_a_message_ends_its_request_and_is_acknowledged(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    id = device.id_of(b"theirs")
    device.hear(offers=[id])
    assert device.next().requests == [id]
    device.hear(messages=[(7, b"theirs")])
    sent = device.next()
    assert (sent.acks, sent.requests) == ([id], [])
    assert epochs_of(device, EPOCHS) == []


@every_profile
@both_modes
def test_an_offer_of_what_is_held_is_acknowledged(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    own = device.publish(b"own")
    device.hear(offers=[own])
    sent = device.next()
    assert (sent.acks, sent.requests) == ([own], [])


@every_profile
@both_modes
@pytest.mark.parametrize("when", ["offered or sent", "requested", "not yet sent"])
def test_an_ack_ends_offer_and_message(profile: int, mode: int, when: str) -> None:
    device = device_of(profile, mode)
    own = device.publish(b"own")
    if when != "not yet sent":
        assert device.next()
    if when == "requested":
        device.hear(requests=[own])
        assert device.next().bodies == [b"own"]
    device.hear(acks=[own])
    assert epochs_of(device, EPOCHS) == []


@every_profile
def test_batch_a_message_is_sent_at_once_and_kept(profile: int) -> None:
    device = device_of(profile, BATCH)
    own = device.publish(b"own")
    at = []
    for epoch in range(EPOCHS):
        sent = device.next()
        assert not sent.offers and sent.bodies in ([], [b"own"])
        at += [epoch] if sent.bodies else []
    assert at[:4] == [0, 2, 6, 14] and at[-1] > EPOCHS // 2, "it is in the state until the ACK"
    device.hear(acks=[own])
    assert epochs_of(device, EPOCHS) == []


def exchange(profile: int, mode: int, held: bool) -> tuple[int, int]:
    """One message of 200 bytes from A to B: epochs until B has it, records' bytes in all."""
    here, there = device_of(profile, mode), device_of(profile, mode)
    body = bytes(200)
    id = here.publish(body)
    if held:
        there.publish(body)
        there.hear(acks=[id])
    epochs = count = 0
    for _ in range(10):
        for device, other in ((here, there), (there, here)):
            sent = device.next()
            if sent:
                count += len(device.wire.write(sent, device.group_id))
                lists = {n: getattr(sent, n) for n in ("acks", "offers", "requests", "messages")}
                other.hear(**lists)
        epochs += id not in there.log()
    return epochs, count


@every_profile
def test_batch_costs_bytes_and_interactive_time(profile: int) -> None:
    assert exchange(profile, INTERACTIVE, False)[0] > exchange(profile, BATCH, False)[0]
    assert exchange(profile, BATCH, True)[1] > exchange(profile, INTERACTIVE, True)[1] + 150


# --- Retransmission ---


@every_profile
@both_modes
def test_back_off_doubles_to_a_bound_and_falls_back(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    device.publish(b"own")
    check_back_off(epochs_of(device, 1000))


@every_profile
def test_all_messages_that_have_reached_their_send_epoch_are_in_one_payload(profile: int) -> None:
    device = device_of(profile, BATCH)
    bodies = [b"%d" % number for number in range(9)]
    for body in bodies:
        device.publish(body)
    for epoch in range(31):
        sent = device.next()
        assert sent.bodies == (bodies if epoch in (0, 2, 6, 14, 30) else [])
        assert sent.frames <= 1, "they fit one frame"


@every_profile
@both_modes
def test_what_has_reached_its_send_epoch_goes_even_when_epochs_were_missed(
    profile: int, mode: int
) -> None:
    device = device_of(profile, mode)
    device.publish(b"own")
    assert device.next()
    device.tick(20)
    assert device.sent(), "due since the second epoch"
    assert epochs_of(device, 5) == [3], "its send count is two"


@every_profile
@both_modes
def test_any_contact_makes_waits_short_again(profile: int, mode: int) -> None:
    device = device_of(profile, mode)
    device.publish(b"own")
    epochs_of(device, 100)
    device.hear(acks=THEIRS[:1])
    assert device.next()
    check_back_off([-1, *epochs_of(device, 600)], heard=True)
