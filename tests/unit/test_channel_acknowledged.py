"""How messages of ours leave the outgoing buffer of a channel, with peers of other makes too."""

import pytest

from drupelet.base.limits import CHANNEL_RESENDS_MAX
from drupelet.channel.channel import EVENT_ACKNOWLEDGED
from drupelet.wire.sds.bloom import Bloom
from helpers_channel import START_MS, Talker, publish_one, wire
from naive import sds

PERIOD_MS = 30_000


def test_a_peer_that_names_a_message_early_acknowledges_that_one_alone() -> None:
    """It counts as available what still waits there: the first message of ours never came."""
    ann = Talker()
    for id in (b"m1", b"m2", b"m3"):
        publish_one(ann, b"x", id)
    early = sds.Participant("jay", "0")
    frames = {said.id: said.wire for said in ann.later(PERIOD_MS)}
    early.receive(frames[b"m3"], 0)
    [sync] = early.frames(sds.SYNC_S, START_MS + 60_000)
    ann.hear(sync)
    assert sorted(ann.state) == [b"m1", b"m2"]
    assert [id for event, id in ann.events if event == EVENT_ACKNOWLEDGED] == [b"m3"]
    for said in ann.later(PERIOD_MS):
        early.receive(said.wire, 60)
    assert [message.id for message in early.log] == ["m1", "m2", "m3"]


def test_all_that_came_again_is_named_within_a_period() -> None:
    """Each of them is sent again in each period until a frame names it."""
    ann, ben = Talker(), Talker(b"ben", seed=2)
    for number in range(9):
        ben.hear(publish_one(ann, b"x", b"m%d" % number).wire)
    ben.say()
    for said in ann.later(PERIOD_MS):
        ben.hear(said.wire)
    assert ben.channel.log.again == 9
    syncs = ben.later(PERIOD_MS)
    assert set(syncs[0].causal) == {b"m%d" % number for number in range(9)}, "all in one"
    for said in syncs:
        ann.hear(said.wire)
    assert ann.state == {} and ben.channel.log.again == 0


def test_what_another_names_is_not_named_again() -> None:
    ann, ben, cleo = Talker(), Talker(b"ben", seed=2), Talker(b"cleo", seed=3)
    first = publish_one(ann, b"x", b"m").wire
    for one in (ben, cleo):
        one.hear(first)
        one.hear(first)
        assert one.channel.log.again == 1
    cleo.hear(publish_one(ann, b"y", b"next").wire)
    assert cleo.channel.log.again == 1, "who wrote it tells nobody that it came"
    [said] = ben.later(PERIOD_MS)
    assert b"m" in said.causal
    cleo.hear(said.wire)
    assert cleo.channel.log.again == 0 and cleo.later(PERIOD_MS) == []


def test_what_others_never_name_is_theirs_to_ask_for_after_eight_resends() -> None:
    """A peer names the newest of its log only; ours leave the buffer, and stay in the log."""
    ann = Talker(send_sync=False)
    publish_one(ann, b"x", b"m")
    ann.later(20 * PERIOD_MS)
    assert ann.channel.outbox.resent == 20 and list(ann.state) == [b"m"], "nobody was heard"
    for number in range(CHANNEL_RESENDS_MAX + 2):
        ann.hear(wire(b"t%d" % number))
        ann.later(PERIOD_MS)
    assert ann.state == {} and ann.channel.outbox.unnamed == 1 and b"m" in ann.log
    resent = ann.channel.outbox.resent
    assert resent == 20 + CHANNEL_RESENDS_MAX
    ann.hear(wire(b"sync", content=None, repair=(b"m",)))
    assert [said.id for said in ann.say()] == [b"m"] and ann.channel.outbox.resent == resent


def test_what_a_kept_message_names_is_acknowledged_after_a_restart() -> None:
    ann = Talker()
    publish_one(ann, b"x", b"first")
    publish_one(ann, b"x", b"second")
    ann.hear(wire(b"reply", causal=(b"second",), lamport=START_MS + 5000))
    again = Talker(keeper=ann.channel.keeper)
    again.channel.restore(0)
    assert list(again.state) == [b"first"] and again.events == []


def test_a_filter_is_left_out_or_as_long_as_the_javascript_peer_reads_it() -> None:
    """It loses a message with a filter that is shorter than its own."""
    ann = Talker()
    ann.publish(b"x", b"m")
    ann.hear(wire(b"theirs", causal=(b"lost",), lamport=START_MS + 1))
    frames = [said.wire for said in ann.later(700_000)]
    assert any(sds.decode(frame, "sds").content for frame in frames)
    assert any(sds.decode(frame, "sds").repair for frame in frames)
    small = Talker(send_bloom=True)
    with pytest.raises(sds.MalformedError):
        sds.decode(publish_one(small, b"x").wire, "sds")
    size = len(Bloom(10_000, 15, 10).bits)
    assert size == sds.FILTER_SIZE
    assert sds.decode(bytes(wire(b"m", bloom=bytes(size))), "sds").id == "m"
