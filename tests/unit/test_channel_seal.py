"""Sender keys of channels: who may read, what is refused, what survives."""

import random

import pytest

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.limits import SEAL_STEPS_MAX
from drupelet.channel.sender_keys import OVERHEAD
from helpers_channel import Talker
from unit.sealed_member import Keys, Member


def pair() -> tuple[Member, Member]:
    ann, ben = Member(1), Member(2)
    assert ben.seal.admit(ann.record(), 0) == OK
    assert ann.seal.admit(ben.record(), 0) == OK
    return ann, ben


@pytest.mark.parametrize("fallback", [False, True])
def test_members_read_and_others_do_not(fallback: bool) -> None:
    ann, ben, eve = Member(1), Member(2, fallback=fallback), Member(3)
    ben.seal.admit(ann.record(), 0)
    for number in range(300):
        text = b"message %d" % number
        frame = ann.say(text)
        assert text not in frame
        assert ben.hear(frame) == text
        assert eve.hear(frame) == E_PEER
    assert ben.seal.forged == 0 and eve.seal.unknown == 300
    assert ann.keys.saves == 3, "one for the chain, one for each epoch"


def test_each_frame_once_in_any_order() -> None:
    ann, ben = pair()
    frames = [ann.say(b"%d" % number) for number in range(200)]
    random.Random(4).shuffle(frames)
    heard = {ben.hear(frame) for frame in frames}
    assert heard == {b"%d" % number for number in range(200)}
    assert all(ben.hear(frame) == E_PEER for frame in frames) and ben.seal.replayed == 200


def test_damaged_frames_are_dropped_and_change_nothing() -> None:
    ann, ben = pair()
    good = ann.say(b"first")
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        assert ben.hear(bytes(bad), 20_000 * at) == E_PEER
    for size in range(OVERHEAD + 1):
        assert ben.hear(good[:size]) == E_PEER
    assert ben.hear(good) == b"first"
    assert ben.hear(ann.say(b"second")) == b"second"


def test_a_forged_later_epoch_does_not_shut_out_the_present_one() -> None:
    ann, ben = pair()
    assert ben.hear(ann.say(b"one")) == b"one"
    forged = bytearray(ann.say(b"two"))
    forged[7] += 1
    assert ben.hear(bytes(forged)) == E_PEER
    assert ben.hear(ann.say(b"three")) == b"three"


def test_old_epochs_are_closed() -> None:
    ann, ben = pair()
    old = ann.say(b"old")
    again = Member(9, ann.keys)
    assert ben.hear(again.say(b"new")) == b"new"
    assert ben.hear(old) == E_PEER and ben.seal.closed == 1


def test_an_epoch_is_not_used_again_after_a_restart() -> None:
    ann, ben = pair()
    for number in range(20):
        frame = ann.say(b"boot %d" % number)
        assert ben.hear(frame, number * 20_000) == b"boot %d" % number
        ann = Member(100 + number, ann.keys)
    twin = Member(5, ann.keys)
    first, second = ann.say(b"x"), twin.say(b"x")
    assert first[5:9] != second[5:9] or first[9:17] != second[9:17]


def test_nothing_leaves_that_could_not_be_made_durable() -> None:
    ann, _ = pair()
    ann.keys.fails = True
    assert ann.seal.seal_into(bytearray(100), b"x", 1) == E_STORAGE
    ann.keys.fails = False
    assert ann.say(b"x")
    assert ann.seal.seal_into(bytearray(20), b"x", 1) == E_CAPACITY


def test_an_epoch_that_could_not_be_made_durable_leaves_the_one_before_readable() -> None:
    ann, ben = pair()
    frames = [ann.say(b"%d" % number) for number in range(256)]
    later = ann.say(b"later")
    assert ben.hear(frames[0]) == b"0"
    ben.keys.fails = True
    assert ben.hear(later) == E_STORAGE
    assert ben.hear(frames[1]) == b"1"
    ben.keys.fails = False
    assert ben.hear(later) == b"later" and ben.hear(frames[2]) == E_PEER


def test_two_devices_with_one_chain_are_noticed() -> None:
    ann, ben = pair()
    copy = Keys()
    copy.records = dict(ann.keys.records)
    clone = Member(77, copy)
    assert ben.hear(ann.say(b"x")) == b"x"
    assert ben.hear(clone.say(b"y")) == E_PEER and ben.seal.clones == 1


def test_a_member_that_slept_reads_on() -> None:
    ann, ben = pair()
    for number in range(SEAL_STEPS_MAX - 1):
        ann = ann.switched_on_again()
        frame = ann.say(b"%d" % number)
    assert ben.hear(frame) == b"%d" % (SEAL_STEPS_MAX - 2)
    for _ in range(SEAL_STEPS_MAX + 1):
        ann = ann.switched_on_again()
        frame = ann.say(b"later")
    assert ben.hear(frame, 60_000) == E_PEER, "too far: its record is needed anew"
    assert ben.seal.admit(ann.record(), 0) == OK
    assert ben.hear(ann.say(b"again")) == b"again"


def test_steps_are_not_free() -> None:
    ann, ben = pair()
    frame = bytearray(ann.say(b"x"))
    frame[6] = 2
    saves = ben.keys.saves
    for now_ms in range(0, 9000, 100):
        assert ben.hear(bytes(frame), now_ms) == E_PEER
    assert ben.keys.saves == saves and ben.seal.forged == 90


def test_a_member_that_slept_is_heard_whenever_it_comes_back() -> None:
    ann, ben = pair()
    now_ms = 0
    for days in (0, 1, 5, 11, 40):  # a clock of 2^30 ms has twelve days
        now_ms = (now_ms + days * 86_400_000) & 0x3FFFFFFF
        for _ in range(4):
            ann = ann.switched_on_again()
            frame = ann.say(b"%d" % days)
        assert ben.hear(frame, now_ms) == b"%d" % days


def test_records_are_bounded_checked_and_never_older() -> None:
    ann = Member(1)
    others = [Member(10 + number) for number in range(4)]
    codes = [ann.seal.admit(other.record(), 0) for other in others]
    assert codes == [OK, OK, OK, E_CAPACITY]
    old = others[0].record()
    others[0].say(b"x")
    assert ann.seal.admit(others[0].record(), 0) == OK
    assert ann.seal.admit(old, 0) == E_PEER
    bad = bytearray(others[1].record())
    bad[20] ^= 1
    assert ann.seal.admit(bad, 0) == E_PEER
    assert ann.seal.admit(ann.record(), 0) == E_PEER, "our own"


def test_who_leaves_reads_nothing_of_new_chains() -> None:
    ann, ben = pair()
    carl = Member(3)
    carl.seal.admit(ann.record(), 0)
    assert carl.hear(ann.say(b"all")) == b"all"
    assert ann.seal.create() == OK
    ben.seal.admit(ann.record(), 0)
    frame = ann.say(b"not carl")
    assert ben.hear(frame) == b"not carl" and carl.hear(frame) == E_PEER
    owner = ben.record()[12:16]
    assert ann.seal.remove(owner, 0) == OK and ann.seal.remove(owner, 0) == E_PEER
    assert ann.hear(ben.say(b"x")) == E_PEER


def test_keys_survive_a_restart() -> None:
    ann, ben = pair()
    assert ben.hear(ann.say(b"x")) == b"x"
    again = Member(50, ben.keys)
    assert again.hear(ann.say(b"y")) == b"y"
    assert ann.hear(again.say(b"z")) == b"z"


def test_a_channel_through_sender_keys() -> None:
    ann, ben = pair()
    here, there = Talker(b"ann"), Talker(b"ben", seed=2)
    here.publish(b"hello", b"m")
    [said] = here.say()
    out = bytearray(1100)
    size = ann.seal.seal_into(out, said.wire, len(said.wire))
    opened = ben.seal.open(out, size, 0)
    assert there.hear(out[ben.seal.at : ben.seal.at + opened]) == OK
    assert there.log == [b"m"]
