"""Participants that lie, on channels: bounded, counted, harmless."""

import random
import tracemalloc

import pytest

from drupelet.base._murmur_ints import cached_hash
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    CHANNEL_ASKED_MAX,
    CHANNEL_HISTORY_MAX,
    CHANNEL_IN_MAX,
    CHANNEL_REPAIRS_MAX,
    CHANNEL_WANTED_MAX,
)
from drupelet.channel.channel import EVENT_MESSAGE
from drupelet.channel.outbox import POSSIBLY, UNACKNOWLEDGED
from helpers_channel import START_MS, Talker, filter_of, wire


def goes_on(ann: Talker) -> None:
    """A channel that still does what it is for."""
    ben = Talker(b"ben", seed=9)
    before = set(ann.log)
    ben.now_ms = ann.now_ms
    assert ben.publish(b"good", b"good") > 0
    for said in ben.say():
        assert ann.hear(said.wire) == OK
    assert ann.delivered.count(b"good") == 1 and before <= set(ann.log)


def tables(ann: Talker) -> tuple[int, ...]:
    """Bytes of every table."""
    channel = ann.channel
    rows = (
        channel.log.rows,
        channel.outbox.rows,
        channel.log.incoming,
        channel.repair.wanted,
        channel.repair.responses,
    )
    return (*(len(one.table) for one in rows), len(channel.bloom.bits))


def test_a_filter_of_ones_makes_nothing_acknowledged() -> None:
    ann = Talker(send_sync=False)
    ann.publish(b"x", b"m")
    ann.say()
    for number in range(50):
        ann.hear(wire(b"r%d" % number, sender=b"eve%d" % number, bloom=b"\xff" * 128))
    assert ann.state == {b"m": UNACKNOWLEDGED} and ann.channel.filters == 50
    assert len([said for said in ann.later(300_000) if said.id == b"m"]) == 10
    goes_on(ann)


def test_a_forged_filter_only_makes_resends_rarer() -> None:
    ann = Talker(send_sync=False)
    ann.publish(b"x", b"m")
    ann.say()
    for number in range(50):
        ann.hear(wire(b"r%d" % number, bloom=filter_of(b"m")))
    assert ann.state == {b"m": POSSIBLY}
    assert len([said for said in ann.later(600_000) if said.id == b"m"]) == 5


def test_a_filter_of_a_megabyte_is_not_kept() -> None:
    ann = Talker()
    before = tables(ann)
    big = wire(b"big", bloom=bytes(1 << 20))
    assert ann.hear(big) == OK
    assert ann.channel.filters == 1 or not ann.state
    assert tables(ann) == before and ann.delivered == [b"big"]
    goes_on(ann)


def test_a_history_of_ten_thousand_is_refused_whole() -> None:
    ann = Talker()
    many = tuple(b"%d" % number for number in range(10_000))
    assert ann.hear(wire(b"bomb", causal=many)) == E_PEER
    assert ann.channel.malformed == 1 and ann.channel.repair.wanted.count == 0
    assert ann.hear(wire(b"most", causal=many[:CHANNEL_HISTORY_MAX])) != E_PEER
    assert ann.channel.repair.wanted.count == CHANNEL_WANTED_MAX
    assert sum(len(said.requests) for said in ann.later(600_000)) <= 24
    goes_on(ann)


def test_unknown_histories_ask_for_little() -> None:
    """A request storm: what is asked for is bounded by rows and by time."""
    ann = Talker()
    for number in range(2000):
        ann.hear(wire(b"s", content=None, causal=(b"u%d" % number, b"v%d" % number)))
        ann.wait(100)
    asked = sum(len(said.requests) for said in ann.later(3_600_000))
    assert asked <= CHANNEL_WANTED_MAX * 16
    assert ann.channel.repair.wanted.count <= CHANNEL_WANTED_MAX
    goes_on(ann)


def test_messages_that_wait_for_ever_make_room() -> None:
    ann = Talker(lost_ms=3_600_000)
    for number in range(500):
        ann.hear(wire(b"w%d" % number, causal=(b"never%d" % number,), lamport=START_MS + number))
    assert ann.channel.log.incoming.count == CHANNEL_IN_MAX
    goes_on(ann)
    ann.later(4_000_000)
    assert ann.channel.log.incoming.count == 0 and ann.channel.given_up == CHANNEL_IN_MAX


def test_messages_that_wait_for_each_other_end_some_day() -> None:
    ann = Talker(lost_ms=3_600_000)
    for number in range(8):
        other = b"c%d" % ((number + 1) % 8)
        ann.hear(wire(b"c%d" % number, causal=(other,), lamport=START_MS + number))
    ann.hear(wire(b"self", causal=(b"self",)))
    ann.later(4_000_000)
    ann.later(4_000_000)
    assert ann.channel.log.incoming.count == 0
    assert sorted(ann.log) == [*(b"c%d" % number for number in range(8)), b"self"]
    goes_on(ann)


@pytest.mark.parametrize("lamport", [1 << 53, 1 << 63, (1 << 64) - 1, START_MS + 86_500_000])
def test_a_far_future_value_does_not_move_the_clock(lamport: int) -> None:
    ann = Talker()
    for number in range(20):
        ann.hear(wire(b"far%d" % number, lamport=lamport))
    assert ann.channel.clock.far == 20
    ann.publish(b"x", b"mine")
    [said] = [said for said in ann.say() if said.id == b"mine"]
    assert said.lamport == START_MS + 1
    goes_on(ann)


def test_a_storm_of_repair_requests_is_answered_slowly() -> None:
    bob = Talker(b"bob")
    for number in range(60):
        bob.hear(wire(b"m%d" % number, lamport=START_MS + number))
    bob.publish(b"x", b"own")
    bob.say()
    bob.hear(wire(b"ack", causal=(b"own",)))
    answers = 0
    periods = 20
    for number in range(periods * 30):
        ids = tuple(b"m%d" % ((number * 8 + k) % 60) for k in range(7))
        bob.hear(wire(b"s", sender=b"eve%d" % number, content=None, repair=(*ids, b"own")))
        answers += sum(said.content is not None for said in bob.later(1000))
        assert bob.channel.repair.responses.count <= CHANNEL_ASKED_MAX
    assert 0 < answers <= (periods + 1) * CHANNEL_REPAIRS_MAX
    goes_on(bob)


def test_a_request_names_more_than_is_looked_at() -> None:
    bob = Talker(b"bob")
    for number in range(40):
        bob.hear(wire(b"m%d" % number))
    bob.hear(wire(b"s", content=None, repair=tuple(b"m%d" % number for number in range(40))))
    assert bob.channel.repair.responses.count == CHANNEL_ASKED_MAX


def test_a_spoofed_sender_changes_nothing_of_ours() -> None:
    ann = Talker()
    ann.publish(b"x", b"mine")
    ann.say()
    forged = wire(b"forged", sender=b"ann", causal=(b"mine",), bloom=filter_of(b"mine"))
    for _ in range(10):
        assert ann.hear(forged) == OK
    assert ann.channel.own == 10 and ann.log == [b"mine"]
    assert ann.state == {b"mine": UNACKNOWLEDGED}, "nobody acknowledges in our name"
    assert ann.hear(wire(b"mine", sender=b"eve", content=b"other")) == OK
    assert ann.log == [b"mine"] and ann.channel.duplicates == 1, "an id is taken once"
    goes_on(ann)


def test_ids_with_equal_keys_are_told_apart() -> None:
    """A key is eight bytes that anybody can compute: it is never the proof."""
    ann = Talker()
    bloom = ann.channel.bloom
    plain = bloom.key_into

    bloom.key_into = lambda out, at, *_: plain(out, at, b"same", 0, 4)  # type: ignore[method-assign]
    for id in (b"one", b"two", b"one", b"three"):
        ann.hear(wire(id))
    assert ann.delivered == [b"one", b"two", b"three"]


def test_random_and_damaged_frames() -> None:
    draw = random.Random(5)
    ann = Talker()
    good = [
        wire(b"m", causal=(b"a", b"b"), bloom=filter_of(b"m"), repair=(b"c",), author=b"bob"),
        wire(b"sync", content=None, causal=(b"a",), repair=(b"m",)),
        wire("ü".encode(), sender="日本".encode(), hint=b"hint", causal=("é".encode(),)),
    ]
    for number in range(6000):
        frame = bytearray(draw.choice(good))
        if number % 3 == 0:
            frame = bytearray(draw.randbytes(draw.randrange(80)))
        elif number % 3 == 1:
            del frame[draw.randrange(len(frame)) :]
        for _ in range(draw.randrange(4) if frame else 0):
            frame[draw.randrange(len(frame))] = draw.randrange(256)
        code = ann.channel.receive(frame, len(frame), ann.now_ms)
        assert code >= -2
        while ann.channel.next_event():
            pass
        ann.wait(50)
        if number % 50 == 0:
            ann.say()
    assert ann.channel.malformed > 1000
    ann.events.clear()
    ann.hear(wire(b"fine"))
    assert (EVENT_MESSAGE, b"fine") in ann.events


def test_memory_is_flat_over_many_messages() -> None:
    """Tables are made once; beside them there is only the bounded cache of hashes."""
    ann, ben = Talker(), Talker(b"ben", seed=3)
    held = []

    def talk(first: int, count: int) -> None:
        for number in range(first, first + count):
            one, other = (ann, ben) if number % 2 else (ben, ann)
            assert one.publish(b"%08d" % number, b"%016d" % number) > 0
            while size := one.channel.poll_into(one.frame, one.now_ms):
                frame = bytearray(one.frame[:size])
                other.channel.receive(frame, size, other.now_ms)
            for each in (ann, ben):
                each.now_ms = (each.now_ms + 500) & 0x3FFFFFFF
                while each.channel.next_event():
                    pass

    talk(0, 200)
    tracemalloc.start()
    for part in range(3):
        talk(200 + part * 200, 200)
        cached_hash.cache_clear()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[2] - held[0] < 2000, held
    assert ann.channel.delivered == ben.channel.delivered == 400
