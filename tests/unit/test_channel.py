"""A channel, sentence by sentence of specs/sds.md: Message to Ephemeral Messages."""

import hashlib

import pytest

from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.base.limits import CHANNEL_OUT_MAX
from drupelet.channel.channel import (
    EPHEMERAL,
    EVENT_ACKNOWLEDGED,
    EVENT_GAP,
    EVENT_MESSAGE,
    open_channel,
)
from drupelet.channel.outbox import POSSIBLY, UNACKNOWLEDGED
from drupelet.channel.settings import response_groups
from helpers_channel import CHANNEL, START_MS, Said, Talker, filter_of, publish_one, wire

PERIOD_MS = 30_000


# --- send message ---


def test_a_message_says_who_where_when_and_what() -> None:
    ann = Talker()
    ann.wait(5000)
    said = publish_one(ann, b"hello")
    assert (said.sender, said.channel, said.content) == (b"ann", b"0", b"hello")
    assert said.lamport == START_MS + 5000
    assert said.causal == [] and said.requests == [] and said.bloom is None


@pytest.mark.parametrize("channel", [b"0", b"roof", "Dächer 日本語".encode(), b"c" * 32])
def test_the_name_of_a_channel_is_in_each_frame_as_it_is(channel: bytes) -> None:
    ann, ben = Talker(channel=channel), Talker(b"ben", channel=channel)
    sync = ann.later(300_000)[0]
    said = publish_one(ann, b"hello")
    size = ann.channel.ephemeral_into(ann.frame, b"now", 0, 3)
    frames = [sync.wire, said.wire, bytes(ann.frame[:size])]
    assert [Said(frame).channel for frame in frames] == [channel] * 3
    assert [ben.hear(frame) for frame in frames] == [OK, OK, EPHEMERAL]
    assert ben.delivered == [said.id] and ben.channel.foreign == 0


def test_ids_of_our_messages_are_hashes_and_differ() -> None:
    ann = Talker()
    first, second = publish_one(ann, b"same"), publish_one(ann, b"same")
    assert first.id != second.id
    parts = (b"ann", CHANNEL, (first.lamport or 0).to_bytes(8, "little"), b"same")
    joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    assert first.id == hashlib.sha256(joined).hexdigest().encode()


def test_the_lamport_value_is_the_time_or_one_more() -> None:
    ann = Talker()
    values = [publish_one(ann, b"x").lamport for _ in range(3)]
    assert values == [START_MS + 1, START_MS + 2, START_MS + 3]
    ann.wait(1000)
    assert publish_one(ann, b"x").lamport == START_MS + 1000


def test_a_clock_that_goes_on_for_weeks() -> None:
    ann = Talker()
    before = 0
    for day in range(1, 40):
        ann.wait(86_400_000)
        ann.say()
        assert ann.publish(b"x", b"d%d" % day) > 0
        said = next(said for said in ann.say() if said.id == b"d%d" % day)
        lamport = said.lamport or 0
        assert 0 <= lamport - START_MS - day * 86_400_000 <= 2 and lamport > before
        before = lamport
        ann.hear(wire(b"a%d" % day, causal=(said.id,), lamport=lamport))


def test_the_history_is_the_last_two_of_the_log_in_order() -> None:
    ann = Talker()
    ids = [publish_one(ann, b"x", b"m%d" % number).id for number in range(4)]
    ann.hear(wire(b"theirs", lamport=START_MS + 1000))
    said = publish_one(ann, b"x")
    assert ids[-1] == b"m3" and said.causal == [b"m3", b"theirs"]
    assert said.lamport == START_MS + 1001


def test_the_filter_has_what_was_received_when_it_is_sent() -> None:
    ann = Talker(send_bloom=True)
    ann.publish(b"mine", b"mine")
    ann.hear(wire(b"one"))
    [said] = ann.say()
    assert said.bloom == filter_of(b"one")
    ann.hear(wire(b"two"))
    ann.wait(PERIOD_MS)
    [again] = ann.say()
    assert again.id == b"mine" and again.bloom == filter_of(b"one", b"two")
    assert again.causal == said.causal and again.lamport == said.lamport


@pytest.mark.parametrize("size", [180, 220, 260, 300])
def test_a_small_frame_leaves_its_filter_out_for_a_request(size: int) -> None:
    ann = Talker(send_bloom=True)
    ann.hear(wire(b"after", causal=(b"lost",)))
    ann.wait(400_000)
    assert ann.publish(b"x", b"mine") > 0
    frame = bytearray(size)
    said = Said(bytes(frame[: ann.channel.poll_into(frame, ann.now_ms)]))
    assert said.content == b"x" and said.requests == [b"lost"]
    assert (said.bloom is None) == (size < 300)


def test_hints_are_sent_and_noted() -> None:
    class Hints:
        def __init__(self) -> None:
            self.noted: list[tuple[bytes, bytes]] = []

        def note(self, entry) -> None:
            buf = entry.buf
            self.noted.append(
                (
                    bytes(buf[entry.entry_at : entry.entry_at + entry.entry_size]),
                    bytes(buf[entry.hint_at : entry.hint_at + entry.hint_size]),
                )
            )

        def hint_into(self, handle: int, out: bytearray) -> int:
            out[0] = handle
            return 1

    ann, ben = Talker(), Talker(b"ben")
    ann.channel.settings.hints = Hints()
    ben.channel.settings.hints = Hints()
    handle = ann.publish(b"x", b"first")
    ann.say()
    said = publish_one(ann, b"y", b"second")
    assert said.entries[11] == [(b"first", bytes([handle]), b"ann")]
    ben.hear(said.wire)
    assert ben.channel.settings.hints.noted == [(b"first", bytes([handle]))]


def test_what_is_sent_is_kept_until_somebody_has_it() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m")
    assert ann.state == {b"m": UNACKNOWLEDGED}
    for number in range(CHANNEL_OUT_MAX - 1):
        assert ann.publish(b"x", b"n%d" % number) > 0
    assert ann.publish(b"x") == E_CAPACITY
    ann.hear(wire(b"theirs", causal=(b"m",)))
    assert ann.publish(b"x") > 0


def test_a_message_too_long_for_a_frame_is_refused() -> None:
    ann = Talker()
    assert ann.publish(bytes(2000)) == E_CAPACITY
    assert ann.publish(bytes(700)) > 0
    [said] = ann.say()
    assert said.content == bytes(700) and len(said.wire) <= 1024


# --- receive message ---


def test_own_messages_are_ignored() -> None:
    ann = Talker()
    assert ann.hear(wire(b"forged", sender=b"ann")) == OK
    assert ann.log == [] and ann.channel.own == 1
    said = publish_one(ann, b"x", b"m")
    ann.hear(said.wire)
    assert ann.state == {b"m": UNACKNOWLEDGED} and ann.log == [b"m"]


def test_own_messages_come_back_after_a_loss() -> None:
    ann, ben = Talker(), Talker(b"ben")
    for number in range(3):
        ben.hear(publish_one(ann, b"x", b"m%d" % number).wire)
    ann = Talker()
    ann.channel.log.recovering = True
    ann.hear(publish_one(ben, b"y", b"theirs").wire)
    for said in ann.later(1_200_000):
        ben.hear(said.wire)
    for _ in range(12):
        for said in ben.later(120_000):
            ann.hear(said.wire)
        for said in ann.later(120_000):
            ben.hear(said.wire)
    assert ann.log == ben.log == [b"m0", b"m1", b"m2", b"theirs"]
    assert sorted(ann.delivered) == [b"m0", b"m1", b"m2", b"theirs"]


def test_a_message_is_delivered_once() -> None:
    ann = Talker()
    for _ in range(5):
        assert ann.hear(wire(b"one")) == OK
    assert ann.delivered == [b"one"] == ann.log
    assert ann.channel.duplicates == 4


def test_a_message_that_was_forgotten_is_not_delivered_again() -> None:
    ann = Talker(kept=8, ids_max=4)
    frames = [wire(b"m%d" % number, lamport=START_MS + number) for number in range(40)]
    for frame in frames:
        ann.hear(frame)
    for frame in frames:
        ann.hear(frame)
    assert len(ann.delivered) == len(set(ann.delivered)) == 40
    assert ann.channel.too_old == 32


def test_a_far_future_message_does_not_shut_out_the_others() -> None:
    ann = Talker(kept=8, ids_max=4)
    ann.hear(wire(b"far", lamport=(1 << 64) - 1))
    for number in range(40):
        ann.hear(wire(b"m%d" % number, lamport=START_MS + number))
    ann.hear(wire(b"far", lamport=(1 << 64) - 1))
    assert len(ann.delivered) == len(set(ann.delivered)) == 41


def test_dependencies_come_first() -> None:
    ann = Talker()
    ann.hear(wire(b"c", causal=(b"b",), lamport=START_MS + 3))
    ann.hear(wire(b"b", causal=(b"a",), lamport=START_MS + 2))
    assert ann.delivered == [] and ann.log == [] and ann.channel.log.incoming.count == 2
    ann.hear(wire(b"a", lamport=START_MS + 1))
    assert ann.delivered == [b"a", b"b", b"c"] == ann.log
    assert ann.channel.log.incoming.count == 0


@pytest.mark.parametrize("order", [(b"a", b"b"), (b"b", b"a")])
def test_one_of_two_dependencies_is_not_enough(order: tuple[bytes, bytes]) -> None:
    ann = Talker()
    ann.hear(wire(b"c", causal=(b"a", b"b"), lamport=START_MS + 3))
    for id in order:
        assert b"c" not in ann.delivered and ann.channel.log.incoming.count == 1
        ann.hear(wire(id))
    assert ann.delivered == [*order, b"c"] and ann.channel.log.incoming.count == 0


def test_a_waiting_message_is_no_met_dependency() -> None:
    ann = Talker()
    ann.hear(wire(b"b", causal=(b"a",)))
    ann.hear(wire(b"c", causal=(b"b",)))
    assert ann.log == [] and ann.channel.log.incoming.count == 2


@pytest.mark.parametrize("channel", [b"1", b"00", b"01", b"10", b""])
def test_other_channels_are_not_heard(channel: bytes) -> None:
    ann = Talker()
    assert ann.hear(wire(b"m", channel=channel)) == OK
    assert ann.log == [] and ann.channel.foreign == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"\x0a", wire(b""), wire(b"m", sender=b""), wire(b"m" * 67),
        wire(b"m", sender=b"s" * 67), wire(b"m", content=None, lamport=None),
        wire(b"m", content=b"", lamport=None),
    ],
)  # fmt: skip
def test_what_no_participant_sends_is_counted(frame: bytes) -> None:
    ann = Talker()
    assert ann.hear(frame) == E_PEER
    assert ann.channel.malformed == 1 and ann.log == []


# --- the log ---


def test_the_lamport_value_follows_what_is_delivered() -> None:
    ann = Talker()
    ann.hear(wire(b"m", lamport=START_MS + 60_000))
    assert publish_one(ann, b"x").lamport == START_MS + 60_001


def test_a_waiting_message_does_not_move_the_clock() -> None:
    ann = Talker()
    ann.hear(wire(b"m", lamport=START_MS + 60_000, causal=(b"unknown",)))
    assert publish_one(ann, b"x").lamport == START_MS + 1


def test_far_ahead_is_not_adopted_where_the_clock_is_trusted() -> None:
    ann = Talker()
    for number, lamport in enumerate((START_MS + 86_400_001, 1 << 53, 1 << 63, (1 << 64) - 1)):
        ann.hear(wire(b"m%d" % number, lamport=lamport))
    assert ann.channel.clock.far == 4 and len(ann.delivered) == 4
    assert publish_one(ann, b"x").lamport == START_MS + 1
    ann.hear(wire(b"near", lamport=START_MS + 86_399_000))
    assert publish_one(ann, b"x").lamport == START_MS + 86_399_001


def test_without_a_trusted_clock_no_message_moves_it_by_more_than_a_day() -> None:
    ann = Talker(trusted=False)
    ann.hear(wire(b"first", lamport=START_MS))
    assert publish_one(ann, b"x").lamport == START_MS + 1
    ann.hear(wire(b"far", lamport=(1 << 64) - 1))
    assert publish_one(ann, b"x").lamport == START_MS + 86_400_002
    assert ann.channel.clock.far == 1


def test_the_lamport_value_does_not_wrap() -> None:
    ann = Talker(trusted=False)
    ann.hear(wire(b"first", lamport=(1 << 64) - 2))
    assert publish_one(ann, b"x").lamport == (1 << 64) - 1
    assert publish_one(ann, b"x").lamport == (1 << 64) - 1


def test_equal_values_are_ordered_by_id() -> None:
    ids = [b"b", b"\xc3\xbc", b"a", b"aa", b"Z", b"\xf0\x9f\x98\x80", b"B1"]
    for first in range(len(ids)):
        ann = Talker()
        for id in ids[first:] + ids[:first]:
            ann.hear(wire(id))
        assert ann.log == sorted(ids)


def test_late_messages_are_put_where_they_belong() -> None:
    ann = Talker()
    for number in (5, 1, 4, 2, 3):
        ann.hear(wire(b"m%d" % number, lamport=START_MS + number))
    assert ann.log == [b"m1", b"m2", b"m3", b"m4", b"m5"]
    assert ann.delivered == [b"m5", b"m1", b"m4", b"m2", b"m3"]


def test_only_the_newest_ids_are_in_ram() -> None:
    ann = Talker(ids_max=10)
    for number in range(30):
        ann.hear(wire(b"m%02d" % number, lamport=START_MS + number))
    assert ann.log == [b"m%02d" % number for number in range(20, 30)]
    assert ann.channel.log.left == 20
    ann.hear(wire(b"child", causal=(b"m03",), lamport=START_MS + 50))
    assert ann.delivered[-1] == b"child", "the store still has its parent"
    ann.hear(wire(b"late", lamport=START_MS - 5))
    assert ann.delivered[-1] == b"late" and len(ann.log) == 10


def test_what_nothing_depends_on_stays_in_ram_longest() -> None:
    ann = Talker(ids_max=20)
    ann.hear(wire(b"leaf", lamport=START_MS))
    for number in range(100):
        causal = (b"m%03d" % (number - 1),) if number else ()
        ann.hear(wire(b"m%03d" % number, causal=causal, lamport=START_MS + 1 + number))
    assert ann.log == [b"leaf", *(b"m%03d" % number for number in range(81, 100))]
    ann.hear(wire(b"late", lamport=START_MS + 5))
    assert ann.log[:2] == [b"leaf", b"late"] and len(ann.log) == 20
    assert ann.log == sorted(ann.log, key=lambda id: (id != b"leaf", id != b"late", id))


# --- review ACK status ---


def test_a_causal_history_acknowledges() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m1")
    publish_one(ann, b"x", b"m2")
    publish_one(ann, b"x", b"m3")
    ann.hear(wire(b"reply", causal=(b"m3",)))
    assert ann.state == dict.fromkeys((b"m1", b"m2"), UNACKNOWLEDGED), "m3 may wait there"
    acknowledged = [id for event, id in ann.events if event == EVENT_ACKNOWLEDGED]
    assert acknowledged == [b"m3"]
    assert ann.log == [b"reply", b"m1", b"m2", b"m3"]
    ann.hear(wire(b"sync", content=None, causal=(b"m1", b"m2")))
    assert ann.state == {}


def test_a_filter_only_makes_possible() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m1")
    publish_one(ann, b"x", b"m2")
    for number in range(20):
        ann.hear(wire(b"r%d" % number, bloom=filter_of(b"m1")))
    assert ann.state == {b"m1": POSSIBLY, b"m2": UNACKNOWLEDGED}


def test_a_filter_never_drops_a_message() -> None:
    ann = Talker()
    ann.hear(wire(b"hint", bloom=filter_of(b"new")))
    ann.channel.bloom.bits[:] = b"\xff" * 128
    assert ann.hear(wire(b"new")) == OK
    assert ann.delivered == [b"hint", b"new"]


@pytest.mark.parametrize("bloom", [b"", b"\xff" * 128, bytes(127), bytes(129), b"\xff" * 18752])
def test_filters_of_other_sizes_and_full_ones_say_nothing(bloom: bytes) -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m")
    assert ann.hear(wire(b"theirs", bloom=bloom)) == OK
    assert ann.state == {b"m": UNACKNOWLEDGED} and ann.delivered == [b"theirs"]
    assert ann.channel.filters == 1


@pytest.mark.parametrize(("ones", "state"), [(600, POSSIBLY), (601, UNACKNOWLEDGED)])
def test_a_filter_says_something_up_to_six_tenths(ones: int, state: int) -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m")
    bits = int.from_bytes(filter_of(b"m"), "big")
    for place in range(1000):
        if bits.bit_count() < ones:
            bits |= 1 << place
    assert ann.channel.bloom.m == 1000
    ann.hear(wire(b"theirs", bloom=bits.to_bytes(128, "big")))
    assert ann.state == {b"m": state}


def test_the_filter_begins_anew_with_the_newest() -> None:
    ann = Talker()
    for number in range(100):
        ann.hear(wire(b"m%d" % number, lamport=START_MS + number))
    assert ann.channel.bloom.count == 100
    ann.hear(wire(b"m100", lamport=START_MS + 100))
    assert ann.channel.bloom.count == 76
    kept = [b"m%d" % number for number in range(25, 101)]
    assert bytes(ann.channel.bloom.bits) == filter_of(*kept)


# --- sweeps ---


def test_unacknowledged_messages_go_out_again_after_each_period() -> None:
    ann = Talker(send_sync=False)
    publish_one(ann, b"x", b"m")
    said = ann.later(10 * PERIOD_MS)
    assert [one.id for one in said] == [b"m"] * 10
    assert all(one.content == b"x" for one in said)
    assert ann.channel.outbox.resent == 10


def test_possibly_acknowledged_ones_after_four() -> None:
    ann = Talker(send_sync=False)
    publish_one(ann, b"x", b"m1")
    publish_one(ann, b"x", b"m2")
    ann.hear(wire(b"theirs", bloom=filter_of(b"m1")))
    said = [one.id for one in ann.later(12 * PERIOD_MS)]
    assert said.count(b"m2") == 12 and said.count(b"m1") == 3
    assert said[:4] == [b"m2"] * 4, "unacknowledged ones first"


def test_what_does_not_come_is_lost_one_day_and_its_dependents_have_a_gap() -> None:
    ann = Talker(lost_ms=3_600_000)
    ann.hear(wire(b"b", causal=(b"a", b"z"), lamport=START_MS + 2))
    ann.hear(wire(b"c", causal=(b"b",), lamport=START_MS + 3))
    ann.later(3_500_000)
    assert ann.log == []
    ann.later(200_000)
    assert ann.log == [b"b", b"c"] and ann.channel.given_up == 2
    assert ann.events[:2] == [(EVENT_GAP, b"b"), (EVENT_MESSAGE, b"c")]
    ann.hear(wire(b"d", causal=(b"a",), lamport=START_MS + 4))
    assert ann.delivered[-1] == b"d", "what is lost is not waited for again"
    ann.hear(wire(b"a", lamport=START_MS + 1))
    assert ann.log == [b"a", b"b", b"c", b"d"], "late is better than never"


def test_a_full_incoming_buffer_keeps_what_is_nearest() -> None:
    ann = Talker(incoming_max=4)
    for number in range(9, 0, -1):
        ann.hear(wire(b"m%d" % number, causal=(b"m%d" % (number - 1),), lamport=START_MS + number))
    assert ann.channel.log.incoming.count == 4
    assert ann.hear(wire(b"m9", causal=(b"m8",), lamport=START_MS + 9)) == E_CAPACITY
    ann.hear(wire(b"m0"))
    assert ann.log == [b"m0", b"m1", b"m2", b"m3", b"m4"]


def test_events_that_nobody_takes_hold_content_back() -> None:
    ann = Talker()
    codes = []
    for number in range(20):
        frame = wire(b"m%02d" % number)
        codes.append(ann.channel.receive(frame, len(frame), 0))
    assert codes == [OK] * 16 + [E_CAPACITY] * 4
    ann.drain()
    for number in range(16, 20):
        assert ann.hear(wire(b"m%02d" % number)) == OK
    assert ann.delivered == [b"m%02d" % number for number in range(20)]


# --- sync messages ---


def test_sync_messages_keep_state_without_content() -> None:
    ann = Talker(send_bloom=True)
    ann.hear(wire(b"one"))
    said = ann.later(1_000_000)
    assert 6 <= len(said) <= 10
    for one in said:
        assert one.content is None and one.causal == [b"one"] and one.bloom == filter_of(b"one")
        assert one.id == b"sync"
    lamports = [one.lamport or 0 for one in said]
    assert lamports == sorted(set(lamports)) and lamports[0] > START_MS + 60_000
    assert ann.state == {} and ann.log == [b"one"]
    assert publish_one(ann, b"x").causal == [b"one"]


def test_a_sync_message_comes_one_to_two_periods_after_the_last_frame() -> None:
    ann = Talker(sync_ms=60_000)
    waits = []
    for _ in range(200):
        before_ms = ann.now_ms
        while not ann.say():
            ann.wait(ann.channel.wake_ms(ann.now_ms))
        waits.append(ann.now_ms - before_ms)
    assert 60_000 <= min(waits) < 66_000 and 114_000 < max(waits) <= 120_000


def test_sync_messages_come_at_random_times() -> None:
    first = [one.lamport for one in Talker(seed=1).later(500_000)]
    assert first == [one.lamport for one in Talker(seed=1).later(500_000)]
    assert first != [one.lamport for one in Talker(seed=2).later(500_000)]


def test_a_sync_message_is_not_sent_where_others_were_heard() -> None:
    ann = Talker()
    for number in range(40):
        ann.hear(wire(b"m%d" % number))
        assert not [one for one in ann.later(50_000) if one.content is None]


@pytest.mark.parametrize("content", [None, b""], ids=["no content", "empty content"])
def test_sync_messages_are_read_and_not_kept(content: bytes | None) -> None:
    ann = Talker()
    publish_one(ann, b"x", b"m1")
    publish_one(ann, b"x", b"m2")
    sync = wire(b"sync", content=content, causal=(b"m1",), bloom=filter_of(b"m2"))
    for _ in range(3):
        assert ann.hear(sync) == OK
    assert ann.state == {b"m2": POSSIBLY}
    assert ann.log == [b"m1", b"m2"] and ann.delivered == []
    assert bytes(ann.channel.bloom.bits) == filter_of()
    assert ann.channel.duplicates == 0


def test_a_small_frame_has_as_much_as_fits() -> None:
    ann = Talker()
    for number in range(2):
        ann.hear(wire(b"%064d" % number))
    frame = bytearray(120)
    for _ in range(2):
        ann.wait(600_000)
        size = ann.channel.poll_into(frame, ann.now_ms)
    said = Said(bytes(frame[:size]))
    assert said.causal == [b"%064d" % 0] and said.bloom is None and said.content is None


@pytest.mark.parametrize("size", [240, 300, 400, 520])
def test_what_nothing_depends_on_is_named_in_small_frames_too(size: int) -> None:
    ann = Talker()
    ids = {b"%064d" % number for number in range(12)}
    for id in sorted(ids):
        ann.hear(wire(id))
    frame = bytearray(size)
    named = set()
    for _ in range(80):
        ann.wait(150_000)
        if got := ann.channel.poll_into(frame, ann.now_ms):
            named |= set(Said(bytes(frame[:got])).causal)
    assert named == ids


def test_what_came_again_is_named_once() -> None:
    ann = Talker()
    for number in range(9):
        ann.hear(wire(b"m%d" % number, causal=(b"m%d" % (number - 1),) if number else ()))
    ann.hear(wire(b"m3", causal=(b"m2",), bloom=filter_of()))
    [first, second, *_] = ann.later(300_000)
    assert first.causal == [b"m3", b"m7", b"m8"] and second.causal == [b"m7", b"m8"]


def test_what_nothing_depends_on_is_named_in_turn() -> None:
    ann = Talker()
    for number in range(12):
        ann.hear(wire(b"m%02d" % number))
    named = {id for one in ann.later(400_000) for id in one.causal}
    assert named == {b"m%02d" % number for number in range(12)}
    lengths = [len(publish_one(ann, b"x", b"mine%d" % number).causal) for number in range(5)]
    assert lengths == [6, 6, 4, 2, 2], "and joined by what is published"


# --- ephemeral messages ---


def test_ephemeral_messages_are_handed_over_and_not_kept() -> None:
    ann, ben = Talker(send_bloom=True), Talker(b"ben")
    ann.hear(wire(b"one"))
    size = ann.channel.ephemeral_into(ann.frame, b"now", 0, 3)
    said = Said(bytes(ann.frame[:size]))
    assert (said.lamport, said.bloom, said.causal) == (None, None, [])
    assert ann.state == {} and ann.log == [b"one"]
    frame = bytearray(said.wire)
    assert ben.channel.receive(frame, len(frame), 0) == EPHEMERAL
    at = ben.channel.decoder.content_at
    assert frame[at : at + ben.channel.decoder.content_size] == b"now"
    assert ben.log == [] and ben.events == [] and ben.channel.bloom.count == 0
    assert ann.hear(said.wire) == OK, "our own"


# --- as a whole ---


def test_open_channel() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"mine")
    made = open_channel(CHANNEL, b"ann", ann.channel.keeper, lambda: 0)
    assert made.log.rows.count == 1 and made.outbox.rows.count == 1 and made.bloom.capacity == 100


def test_response_groups() -> None:
    assert [response_groups(count) for count in (1, 127, 128, 255, 256)] == [1, 1, 2, 2, 3]
