"""A topic: many listeners, one send (mobile paper, enhancement 1)."""

import random

import pytest

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import FRAME_SIZE_MAX, FRAME_SIZE_MIN
from drupelet.link.topic import KIND_TOPIC
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1
from unit.topic_bus import EPOCH_MS, FRAMES_MAX, Bus, Member


def pairwise_bytes(count: int, seed: int, loss: float, messages: int) -> int:
    """The same work over a link between each two."""
    rng = random.Random(seed)
    members = [Member(number, count, rng) for number in range(count)]
    by_id = {member.id: member for member in members}
    total = now_ms = 0
    frame = bytearray(FRAME_SIZE_MAX)
    for number in range(messages):
        members[number % count].publish(b"%099d" % number, 0)
    for _ in range(4000):
        now_ms += EPOCH_MS // 4
        for sender in members:
            for id, link in zip(sender.others, sender.links, strict=True):
                back = by_id[id].links[by_id[id].others.index(sender.id)]
                for _ in range(FRAMES_MAX):
                    size = link.poll_into(frame, now_ms)
                    if not size:
                        break
                    total += size
                    if rng.random() >= loss:
                        back.receive(bytearray(frame), size, now_ms)
        if all(member.node.delivered == messages for member in members):
            return total
    raise AssertionError("not complete")


@pytest.mark.parametrize("seed", [1, 2])
def test_one_send_reaches_ten_listeners_for_a_third_of_the_bytes(seed: int) -> None:
    bus = Bus(11, seed, 0.2)
    for number in range(33):
        bus.members[number % 11].publish(b"%099d" % number, 0)
    bus.run(33)
    pairwise = pairwise_bytes(11, seed, 0.2, 33)
    print(f"\n33 messages to 10 listeners: {bus.bytes:,} B on a topic, {pairwise:,} B on links")
    assert bus.bytes * 3 <= pairwise


def test_listeners_that_are_away_get_one_frame_for_each_step() -> None:
    member = Member(0, 6, random.Random(1))
    for number in range(100):
        member.publish(b"%099d" % number, 0)
    frame = bytearray(FRAME_SIZE_MAX)
    for epoch in range(100):
        sent = 0
        while member.topic.poll_into(frame, epoch * EPOCH_MS):
            sent += 1
        assert sent <= 1


@pytest.mark.parametrize("frame_size", [FRAME_SIZE_MIN, 222])
def test_a_message_that_fits_no_frame_of_the_topic_keeps_no_other_back(frame_size: int) -> None:
    # What goes in front of records is longer in a topic's frame than in a link's.
    for body_size in range(frame_size - 60, frame_size - 30):
        first, second = (Member(number, 2, random.Random(number)) for number in range(2))
        first.publish(bytes(body_size), 0)
        first.publish(b"behind", 0)
        frame = bytearray(frame_size)
        heard = b""
        for turn in range(40):
            for sender, other in ((first, second), (second, first)):
                size = sender.topic.poll_into(frame, turn * EPOCH_MS)
                heard += frame[:size]
                if size:
                    assert other.topic.receive(frame, size, turn * EPOCH_MS) == OK
        assert b"behind" in heard, body_size


def test_everything_is_acknowledged_and_then_it_is_quiet() -> None:
    bus = Bus(4, 3, 0.3)
    for number in range(12):
        bus.members[number % 4].publish(b"%d" % number, 0)
    bus.run(12)
    bus.loss = 0.0
    for _ in range(600):
        bus.turn()
    for member in bus.members:
        for link in member.links:
            assert member.node.core.outboxes[link.peer].open_count == 0
    before = bus.frames
    for _ in range(100):
        bus.turn()
    assert bus.frames == before
    assert all(member.topic.wake_ms(bus.now_ms) > EPOCH_MS for member in bus.members)


def test_it_goes_on_when_the_one_whose_clock_it_went_by_leaves() -> None:
    bus = Bus(4, 5, 0.2)
    bus.members[1].publish(b"before", 0)
    bus.run(1)
    gone = bus.members.pop(0)
    for member in bus.members:
        member.topic.remove(gone.id)
        member.node.remove_peer(member.node.core.members.peer_number(0))
    for number in range(8):
        bus.members[number % 3].publish(b"after %d" % number, bus.now_ms)
    bus.run(9)


def queued(member: Member) -> list[int]:
    return [member.node.core.outboxes[link.peer].open_count for link in member.links]


def test_who_goes_before_it_acknowledged_is_waited_for_until_it_is_back() -> None:
    """That nothing of its own is outstanding says nothing of what it owes the others."""
    bus = Bus(3, 7, 0.0)
    first, second, third = bus.members
    first.byte = 3  # its acknowledgement waits the longest
    second.byte = third.byte = 0
    third.publish(b"one", 0)
    for _ in range(20):
        bus.turn()
        if first.node.delivered and not any(queued(first)):
            break
    bus.members.remove(first)
    for _ in range(200):
        bus.turn()
    assert (queued(first), queued(second), queued(third)) == ([0, 0], [1, 0], [1, 0])
    bus.members.append(first)
    for _ in range(300):
        bus.turn()
    assert not any(map(any, map(queued, bus.members)))


def test_an_acknowledgement_that_was_overheard_teaches_an_id() -> None:
    bus = Bus(3, 4, 0.0)
    first, second, third = bus.members
    deaf = third.topic.receive
    third.topic.receive = lambda *_: OK  # it misses the message
    first.publish(b"gone by", 0)
    for _ in range(3):
        bus.turn()
    third.topic.receive = deaf
    # The author is away from now on; what the second one acknowledges tells the third.
    bus.members = [second, third]
    for _ in range(80):
        bus.turn()
    assert third.node.delivered == 1


def test_strangers_and_nonsense_are_ignored() -> None:
    bus = Bus(3, 5, 0.0)
    topic = bus.members[0].topic
    stranger = bytearray(bytes((KIND_TOPIC, 9, 9, 9, 9, 0x40)) + b"\x01\x00\x00\x20" + bytes(32))
    assert topic.receive(stranger, len(stranger), 0) == OK
    assert topic.ignored == 1
    for frame in (b"", bytes((KIND_TOPIC,)), b"\x40" + bytes(40)):
        assert topic.receive(bytearray(frame), len(frame), 0) == E_PEER
    known = bytearray(bytes((KIND_TOPIC, 0, 0, 1, 1, 0x40)) + b"\x07nonsense")
    assert topic.receive(known, len(known), 0) == E_PEER


class Beside:
    """The first of three members has links of its own to the others, too."""

    def __init__(self) -> None:
        self.bus = Bus(3, 6, 0.0)
        self.first = first = self.bus.members[0]
        members = first.node.core.members
        self.own = []
        for link in first.links:
            number = members.peer_number(link.peer)
            self.own.append(
                first.node.link(number, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
            )
            first.topic.beside(self.own[-1])
        for member in self.bus.members:
            member.publish(member.id, 0)
        self.sent(40)
        assert all(member.node.delivered == 3 for member in self.bus.members)

    def sent(self, turns: int) -> int:
        """How many frames go over the own links meanwhile."""
        frame = bytearray(FRAME_SIZE_MAX)
        found = 0
        for _ in range(turns):
            self.bus.turn()
            found += sum(link.poll_into(frame, self.bus.now_ms) > 0 for link in self.own)
        return found


def test_a_listeners_own_link_is_spared_until_the_topic_fails() -> None:
    all_three = Beside()
    bus, first = all_three.bus, all_three.first
    first.publish(b"heard by all", 0)
    assert all_three.sent(40) == 0
    assert all(member.node.delivered == 4 for member in bus.members)
    # Nobody acknowledges any more: after some sends it goes over the own links, too.
    bus.members = [first]
    first.publish(b"heard by nobody", 0)
    assert all_three.sent(20) == 0 and all_three.sent(400) > 0
    # A topic whose carrier is down carries nothing; who listens no more is sent nothing.
    for id in first.others:
        first.topic.remove(id)
    first.topic.remove(b"????")
    before = bus.frames
    first.publish(b"to nobody", 0)
    assert all_three.sent(300) > 0
    assert bus.frames == before


def test_what_fits_no_frame_of_a_topic_goes_over_the_own_links() -> None:
    all_three = Beside()
    all_three.first.publish(bytes(2000), 0)
    assert all_three.sent(8) > 0
    all_three = Beside()
    all_three.first.topic.up = False
    all_three.bus.members.pop(0)  # nobody polls it then
    all_three.first.publish(b"its carrier is down", 0)
    assert all_three.sent(8) > 0
