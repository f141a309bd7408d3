"""What months of use meet: counters that go round, and outages that are longer than they count."""

import pytest

from drupelet.base.limits import SEAL_STEPS_MAX
from drupelet.channel.key_distribution import KeyDistribution
from drupelet.link.link import PROFILE_COMPACT_1
from drupelet.link.topic import Topic
from drupelet.node import BATCH, CARRIER_MQTT, CARRIER_SERIAL, PROFILE_BSP_1
from helpers import Draw, Member, Network
from helpers_channel import START_MS, Talker, wire
from unit.sealed_member import Member as Participant

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# --- counters ---


@pytest.mark.parametrize("count", [255, 256, 257, 512])
def test_any_number_of_messages_wakes_a_quiet_link(count: int) -> None:
    """A stick brings them in one turn; the link that they go on to was at rest."""
    draw = Draw(1)
    net = Network(draw, [Member(name, draw, pool=600) for name in "AB"], ["AB"])
    a, b = net.members.values()
    for _ in range(20):
        net.round()
    for number in range(count):
        a.publish(b"%d" % number, net.now_ms)
    net.run(lambda: len(b.log()) == count, 400)


def test_a_frame_of_the_smallest_messages_does_not_run_out_of_numbers() -> None:
    """3 bytes each: 340 of them in a frame."""
    draw = Draw(1)
    members = [Member(name, draw, pool=600, offers=600) for name in "AB"]
    net = Network(draw, members, ["AB"], profile=PROFILE_COMPACT_1, frame_size=1024)
    a, b = net.members.values()
    a.publish(b"")
    net.run(lambda: net.complete(1), 50)
    a.links["B"].exchange.outbox.next_number = 32_500
    for number in range(500):
        stamp = (1_800_000_000_000 + number).to_bytes(8, "big")
        assert a.node.publish(a.group, b"\0", 1, stamp, net.now_ms) > 0
    net.run(lambda: len(b.log()) == 501, 400)
    assert b.node.malformed == 0


# --- outages ---


@pytest.mark.parametrize("hours", [5, 10, 17, 19])
def test_what_was_on_its_way_when_the_line_went_down_goes_again(hours: int) -> None:
    """An epoch number of 16 bits tells 9 hours of seconds ahead from 9 hours past."""
    draw = Draw(2)
    net = Network(draw, [Member(name, draw) for name in "AB"], ["AB"])
    a, b = net.members.values()
    a.publish(b"1")
    net.run(lambda: net.complete(1), 50)
    a.publish(b"2")
    line = net.lines["A", "B"]
    line.loss = 1000
    for _ in range(100):
        net.round()
    for _ in range(hours * 36):  # nobody polls; time passes
        net.now_ms = (net.now_ms + 100_000) & 0x3FFFFFFF
        for member in (a, b):
            for link in member.links.values():
                link.turn(net.now_ms)
    line.loss = 0
    net.run(lambda: net.complete(2), 300)


@pytest.mark.parametrize("hours", [5, 10, 17])
def test_a_topic_acknowledges_after_an_outage(hours: int) -> None:
    members = [Member(name, Draw(seed)) for seed, name in enumerate("ab", 1)]
    topics = []
    for member, other in zip(members, "ba", strict=True):
        member.add(other)
        member.boot()
        ids = [name.encode() + b"___" for name in (other, member.name)]
        number = member.numbers[other]
        link = member.node.link(number, PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH, 0)
        topics.append(Topic(member.node, member.group, [link], *ids, lambda: 3))
        own = member.node.link(number, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH, 0)
        topics[-1].beside(own)
    a, b = members
    frame = bytearray(1024)
    now_ms = 0

    def speak() -> None:
        nonlocal now_ms
        now_ms += 1000
        for topic, other in (topics, topics[::-1]):
            while size := topic.poll_into(frame, now_ms):
                other.receive(frame, size, now_ms)

    for _ in range(10):
        speak()
    a.publish(b"reading", now_ms)
    now_ms += 1000
    topics[1].receive(frame, topics[0].poll_into(frame, now_ms), now_ms)
    topics[1].poll_into(frame, now_ms)  # it waits for company
    for _ in range(hours):
        now_ms += HOUR_MS
        for link in (*a.node.links, *b.node.links):
            if link.peer >= 0:
                link.turn(now_ms)
    for _ in range(100):
        speak()
    assert a.node.outstanding(a.numbers["b"]) == 0


@pytest.mark.parametrize("days", [1, 7, 13])
def test_a_channels_clock_goes_on_while_its_carrier_is_down(days: int) -> None:
    ann = Talker()
    for _ in range(days * 24):
        ann.wait(HOUR_MS)
        ann.channel.turn(ann.now_ms)
    lamport = START_MS + days * DAY_MS
    ann.hear(wire(b"new", lamport=lamport))
    assert ann.channel.clock.far == 0 and ann.delivered == [b"new"]


# --- absences ---


def test_a_listener_that_was_away_for_more_than_a_chain_is_told_again() -> None:
    """1,025 epochs are a month of one frame in ten seconds; a restart has it ask where we are."""
    parties = []
    for seed, (own, other) in enumerate(((b"aaaa", b"bbbb"), (b"bbbb", b"aaaa")), 1):
        made = Participant(seed, id=int.from_bytes(own))
        parties.append((made, KeyDistribution(made.seal, own, b"topi", other)))
    (ann, giver), (ben, taker) = parties
    frame = bytearray(200)

    def hand_over(now_ms: int) -> None:
        for one, other in ((giver, taker), (taker, giver)):
            one.on_heard(0)
            if one.is_due(0, now_ms):
                answer = other.receive(frame, one.record_into(frame, 0), 0)
                if answer:
                    one.receive(frame, answer, 0)

    for number in range(4):
        hand_over(number * 10_000)
    assert ben.hear(ann.say(b"x")) == b"x"
    for _ in range(SEAL_STEPS_MAX + 1):
        ann = ann.switched_on_again()
        lost = ann.say(b"lost")
    giver.keys = ann.seal
    assert isinstance(ben.hear(lost, 60_000), int), "too far ahead"
    taker = KeyDistribution(ben.seal, b"bbbb", b"topi", b"aaaa")  # switched off and on again
    for number in range(8):
        hand_over(100_000 + number * 10_000)
    assert ben.hear(ann.say(b"y"), 300_000) == b"y"
