"""SDS Repair, sentence by sentence: T_req, T_resp, response groups, both buffers, sync."""

from itertools import pairwise

import pytest

from drupelet.base.hashes_sds import Identity
from drupelet.base.limits import CHANNEL_ASKED_MAX, CHANNEL_REPAIRS_MAX, CHANNEL_WANTED_MAX
from helpers_channel import START_MS, Said, Talker, filter_of, wire

T_MIN_MS = 30_000
T_MAX_MS = 300_000


def t_req_ms(name: bytes, id: bytes) -> int:
    return Identity(name).t_req_ms(id, 0, len(id), T_MIN_MS, T_MAX_MS)


def t_resp_ms(name: bytes, sender: bytes, id: bytes) -> int:
    return Identity(name).t_resp_ms(sender, 0, len(sender), id, 0, len(id), T_MAX_MS)


def missing(*ids: bytes) -> Talker:
    """A participant that misses messages, each for one that waits."""
    ann = Talker()
    for id in ids:
        ann.hear(wire(b"after-" + id, causal=(id,), author=b"bob"))
    return ann


def wanted(talker: Talker) -> int:
    return talker.channel.repair.wanted.count


def unanswered(talker: Talker) -> int:
    asked = talker.channel.repair.responses
    return sum(not asked.state(row) for row in range(asked.count))


def test_a_missing_dependency_is_asked_for_at_its_t_req() -> None:
    ann = missing(b"lost")
    due_ms = t_req_ms(b"ann", b"lost")
    assert T_MIN_MS <= due_ms < T_MAX_MS
    assert not any(said.requests for said in ann.later(due_ms - 1))
    ann.publish(b"x")
    assert ann.say()[0].requests == []
    ann.wait(1)
    ann.publish(b"y")
    [said] = [said for said in ann.say() if said.content == b"y"]
    assert said.entries[13] == [(b"lost", None, b"bob")]


def test_it_is_asked_for_again_until_it_comes() -> None:
    ann = missing(b"lost")
    asked = [said.lamport or 0 for said in ann.later(3_600_000) if said.requests]
    assert len(asked) > 5
    assert all(after - before >= T_MAX_MS for before, after in pairwise(asked))
    ann.hear(wire(b"lost"))
    assert ann.log == [b"after-lost", b"lost"] and wanted(ann) == 0
    assert not [said for said in ann.later(3_600_000) if said.requests]


def test_three_entries_at_most_lowest_t_req_first() -> None:
    ids = [b"m%d" % number for number in range(5)]
    ann = missing(*ids)
    ann.wait(T_MAX_MS)
    ann.publish(b"x")
    said = next(said for said in ann.say() if said.content)
    assert said.requests == sorted(ids, key=lambda id: t_req_ms(b"ann", id))[:3]


def test_a_sync_message_asks_although_others_were_heard() -> None:
    ann = missing(b"lost")
    asked = 0
    for number in range(20):
        ann.hear(wire(b"m%d" % number))
        for said in ann.later(50_000):
            assert said.content is None and said.requests == [b"lost"]
            asked += 1
    assert asked >= 2


def test_what_came_is_not_asked_for() -> None:
    ann = missing(b"lost", b"other")
    assert wanted(ann) == 2
    ann.hear(wire(b"lost"))
    assert wanted(ann) == 1


def test_what_another_asks_for_is_not_asked_for_at_once() -> None:
    ann = missing(b"lost")
    ann.hear(wire(b"sync", content=None, repair=(b"lost", b"unknown")))
    assert wanted(ann) == 0
    later = [said for said in ann.later(1_200_000) if said.requests]
    assert later, "but if nobody answers, the sweep asks again"


def test_sync_messages_tell_what_is_missing() -> None:
    ann = Talker()
    ann.hear(wire(b"sync", content=None, causal=(b"lost",), author=b"bob"))
    assert wanted(ann) == 1 and ann.channel.log.incoming.count == 0


def holder(name: bytes = b"bob", **settings: int) -> Talker:
    """A participant that has a message of bob."""
    talker = Talker(name, **settings)
    if name == b"bob":
        talker.publish(b"x", b"m")
        talker.say()
    else:
        talker.hear(wire(b"m", sender=b"bob", bloom=filter_of(), causal=()))
    talker.hear(wire(b"reply", causal=(b"m",)))
    return talker


def test_the_sender_answers_at_once() -> None:
    bob = holder()
    bob.hear(wire(b"sync", content=None, repair=(b"m",), author=b"bob"))
    [said] = [said for said in bob.say() if said.id == b"m"]
    assert said.sender == b"bob" and said.content == b"x"
    assert bob.channel.repaired == 1


def test_others_answer_at_their_t_resp() -> None:
    for name in (b"ann", b"ben", b"cleo"):
        one = holder(name)
        one.hear(wire(b"sync", content=None, repair=(b"m",)))
        due_ms = t_resp_ms(name, b"bob", b"m")
        assert 0 < due_ms < T_MAX_MS
        assert not [said for said in one.later(due_ms - 1) if said.content]
        [said] = [said for said in one.later(1) if said.content]
        assert (said.id, said.sender, said.content) == (b"m", b"bob", b"x")


def test_nobody_answers_what_another_answered() -> None:
    ann = holder(b"ann")
    ann.hear(wire(b"sync", content=None, repair=(b"m",)))
    assert unanswered(ann) == 1
    ann.hear(wire(b"m", sender=b"bob"))
    assert unanswered(ann) == 0
    assert not [said for said in ann.later(T_MAX_MS) if said.content]
    assert ann.delivered.count(b"m") == 1


def test_only_the_response_group_answers() -> None:
    groups = 4
    answering = 0
    for number in range(40):
        name = b"p%d" % number
        one = holder(name, response_groups=groups)
        one.hear(wire(b"sync", content=None, repair=(b"m",)))
        assert (unanswered(one) == 1) == Identity(name).in_group(b"bob", 0, 3, b"m", 0, 1, groups)
        answering += unanswered(one)
    assert 4 <= answering <= 18
    bob = Talker(b"bob", response_groups=groups)
    bob.publish(b"x", b"m")
    bob.say()
    bob.hear(wire(b"sync", content=None, repair=(b"m",)))
    assert unanswered(bob) == 1, "always in the group of one's own messages"


def test_what_is_unknown_or_waits_is_not_answered() -> None:
    ann = Talker()
    ann.hear(wire(b"child", causal=(b"lost",)))
    ann.hear(wire(b"sync", content=None, repair=(b"child", b"lost", b"never")))
    assert unanswered(ann) == 0


def test_an_answer_is_not_repeated_within_t_max() -> None:
    bob = holder()
    sent = 0
    for number in range(60):
        bob.hear(wire(b"s%d" % number, content=None, repair=(b"m",)))
        sent += sum(said.id == b"m" for said in bob.later(10_000))
    assert sent == 2


def test_after_weeks_it_is_sent_again() -> None:
    bob = holder()
    bob.hear(wire(b"s", content=None, repair=(b"m",)))
    assert sum(said.id == b"m" for said in bob.say()) == 1
    for _ in range(100):
        bob.wait(6 * 3_600_000)
        bob.say()
    bob.hear(wire(b"s", content=None, repair=(b"m",)))
    assert sum(said.id == b"m" for said in bob.say()) == 1


@pytest.mark.parametrize("days", [1, 4, 7, 10, 13])
def test_an_outage_of_any_length_puts_nothing_off(days: int) -> None:
    """Nobody polls while the carrier is down; what was due before is due behind it."""
    ann = Talker(lost_ms=0)
    ann.publish(b"x", b"m")
    ann.say()
    ann.hear(wire(b"after", causal=(b"lost",), author=b"bob"))
    ann.hear(wire(b"sync", content=None, repair=(b"m",), author=b"ann"))
    for _ in range(days * 2):
        ann.wait(43_200_000)
        ann.channel.turn(ann.now_ms)
    said = ann.say()
    assert any(one.id == b"m" for one in said) and any(one.requests for one in said)


def test_three_answers_in_a_period() -> None:
    bob = Talker(b"bob")
    for number in range(10):
        bob.publish(b"x", b"m%d" % number)
    bob.say()
    bob.hear(wire(b"r", causal=tuple(b"m%d" % number for number in range(10))))
    bob.hear(wire(b"s", content=None, repair=tuple(b"m%d" % number for number in range(8))))
    first = [said.id for said in bob.say() if said.content]
    assert len(first) == CHANNEL_REPAIRS_MAX
    rest = [said.id for said in bob.later(90_000) if said.content]
    assert len(first + rest) == len({*first, *rest}) == 8


def test_both_buffers_are_bounded() -> None:
    ann = missing(*[b"m%d" % number for number in range(16)])
    assert wanted(ann) == CHANNEL_WANTED_MAX and ann.channel.repair.refused == 10
    ben = Talker(b"ben")
    for number in range(30):
        ben.hear(wire(b"m%d" % number, sender=b"bob"))
    for number in range(30):
        ben.hear(wire(b"s", content=None, repair=(b"m%d" % number,)))
    assert ben.channel.repair.responses.count == CHANNEL_ASKED_MAX
    assert ben.channel.repair.refused == 30 - CHANNEL_ASKED_MAX


def test_a_long_name_is_left_out_of_a_request() -> None:
    ann = Talker()
    ann.hear(wire(b"child", causal=(b"lost",), author=b"k" * 66))
    ann.wait(T_MAX_MS)
    ann.publish(b"x")
    said = next(said for said in ann.say() if said.content)
    assert said.entries[13] == [(b"lost", None, None)]
    bob = Talker(b"k" * 66)
    bob.publish(b"x", b"lost")
    bob.say()
    bob.hear(said.wire)
    assert b"lost" in [one.id for one in bob.say()]


def test_without_repair_nothing_is_asked_or_answered() -> None:
    ann = Talker(repair=False)
    ann.hear(wire(b"child", causal=(b"lost",)))
    ann.hear(wire(b"m", sender=b"bob"))
    ann.hear(wire(b"sync", content=None, repair=(b"m",)))
    said = ann.later(1_200_000)
    assert said and not any(one.requests or one.content for one in said)
    ann.publish(b"x")
    [one] = [one for one in ann.say() if one.content]
    assert all(sender is None for _, _, sender in one.entries[11])


def test_two_participants_repair_a_gap() -> None:
    ann, ben = Talker(), Talker(b"ben", seed=2)
    lost = []
    for number in range(6):
        ann.publish(b"x", b"m%d" % number)
        said = ann.say()
        if number in (0, 5):
            ben.hear(said[0].wire)
        else:
            lost.append(said[0].id)
    assert ben.delivered == [b"m0"]
    for _ in range(60):
        for said in ann.later(30_000):
            if said.id not in lost or ben.channel.frames:
                ben.hear(said.wire)
        for said in ben.later(30_000):
            ann.hear(said.wire)
    assert ben.delivered == [b"m%d" % number for number in range(6)] == ben.log == ann.log
    assert ann.state == {}


def test_a_repaired_copy_is_what_was_sent_but_for_filter_and_request() -> None:
    bob = Talker(b"bob", send_bloom=True)
    bob.hear(wire(b"before", lamport=START_MS - 5))
    bob.publish(b"x", b"m")
    [first] = bob.say()
    assert first.bloom == filter_of(b"before")
    bob.hear(wire(b"after", causal=(b"lost",)))
    bob.wait(T_MAX_MS)
    bob.hear(wire(b"s", content=None, causal=(b"m",), repair=(b"m",)))
    said = bob.say()
    assert any(one.requests for one in said), "something is to be asked for in another frame"
    [copy] = [one for one in said if one.content]
    assert copy.bloom is None and not copy.requests
    assert (copy.id, copy.sender, copy.lamport, copy.entries, copy.content) == (
        first.id, first.sender, first.lamport, first.entries, first.content,
    )  # fmt: skip
    assert isinstance(copy, Said)
