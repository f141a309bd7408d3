"""Stick visits: whole logs at once, acknowledgements that ride back, sticks that fail."""

import pytest

from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1
from helpers import stamp
from unit.stick_visits import (
    Stick,
    connect,
    link_of,
    pair,
    peer_of,
    read,
    same_logs,
    settle,
    visit,
    write,
)


@pytest.mark.parametrize(("pool", "count"), [(64, 40), (8, 100), (4, 300), (64, 300)])
def test_the_whole_log_goes_in_one_visit(pool: int, count: int) -> None:
    a, b = members = pair(pool, pool)
    for number in range(count):
        assert a.publish(b"%d" % number)
    stick = Stick()
    visit(a, stick)
    read(b, stick)
    assert b.log() == a.log(), "all of it, in one way"
    write(b, stick)
    settle(members, stick, 3 * count // pool + 20)
    same_logs(members, count)


def test_acknowledgements_ride_back_and_nothing_is_written_twice() -> None:
    a, b = members = pair()
    stick = Stick()
    for number in range(10):
        a.publish(b"a%d" % number)
        b.publish(b"b%d" % number)
    first = visit(a, stick)
    second = visit(b, stick)
    assert first and second
    third = visit(a, stick)
    assert third and sum(map(len, third.frames)) == 9 + 9, "one acknowledgement, and the end"
    assert visit(b, stick) is None and visit(a, stick) is None
    same_logs(members, 20)
    assert a.node.duplicates == b.node.duplicates == 0
    a.publish(b"one more")
    fourth = visit(a, stick)
    assert fourth and sum(map(len, fourth.frames)) < 200


def test_an_aborted_visit_forgets_nothing() -> None:
    a, b = members = pair()
    stick = Stick()
    for number in range(30):
        a.publish(b"%d" % number)
        b.publish(b"b%d" % number)
    visit(b, stick)
    read(a, stick)
    for cut_after in (0, 1, 2, 3):
        assert write(a, stick, cut_after) is None
        assert link_of(a).bundle_out == 0
    assert write(a, stick)
    settle(members, stick)
    same_logs(members, 60)
    assert a.node.duplicates == b.node.duplicates == 0


def test_a_lost_stick() -> None:
    a, b = members = pair(8, 8)
    lost = Stick()
    for number in range(50):
        a.publish(b"%d" % number)
    visit(a, lost)
    stick = Stick()
    visit(a, stick)
    read(b, stick)
    assert len(b.log()) == 50, "our last bundle was not on this stick: everything again"
    write(b, stick)
    settle(members, stick, 40)
    same_logs(members, 50)


def test_an_old_stick_comes_back() -> None:
    a, b = members = pair()
    old = Stick()
    for number in range(10):
        a.publish(b"%d" % number)
    visit(a, old)
    stick = Stick()
    a.publish(b"later")
    visit(a, stick)
    visit(b, stick)
    visit(a, stick)
    assert read(b, old) == 0, "a number that was read is not read again"
    settle(members, stick)
    settle(members, old)
    same_logs(members, 11)


def test_a_truncated_bundle_gives_its_prefix_and_the_rest_comes_again() -> None:
    a, b = members = pair()
    stick = Stick()
    for number in range(40):
        a.publish(b"%d" % number + bytes(100))
    bundle = visit(a, stick)
    assert bundle and len(bundle.frames) > 5
    bundle.frames = bundle.frames[:3]
    bundle.whole = False
    read(b, stick)
    got = len(b.log())
    assert 0 < got < 40
    assert write(b, stick)
    settle(members, stick)
    same_logs(members, 40)


def test_what_was_refused_comes_again() -> None:
    a, b = members = pair(64, 64)
    stick = Stick()
    for number in range(5):
        a.publish(b"%d" % number)
    refuse = b.store.put
    calls = 0

    def put(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        return -2 if calls == 3 else refuse(*arguments)

    b.store.put = put
    visit(a, stick)
    read(b, stick)
    assert b.node.refused == 1 and len(b.log()) == 2 and b.node.pending_count() == 2
    write(b, stick)
    settle(members, stick)
    same_logs(members, 5)


def test_long_messages_in_and_beyond_the_rows() -> None:
    a, b = members = pair(4, 16, body_files_max=64)
    stick = Stick()
    for number in range(20):
        size = (10, 953, 32768)[number % 3]
        body = b"\x00" + bytes(size - 1)
        assert a.node.publish(a.group, body, size, stamp(number), 0) > 0
    visit(a, stick)
    read(b, stick)
    assert sorted(b.log()) == sorted(a.log())
    write(b, stick)
    settle(members, stick, 40)
    same_logs(members, 20)


def test_bundle_numbers_survive_a_reboot() -> None:
    a, b = members = pair()
    stick = Stick()
    a.publish(b"1")
    visit(a, stick)
    visit(b, stick)
    for member in members:
        member.store.barrier()
        member.files.power_cut()
        member.start()
        member.boot()
        connect(member)
    assert (link_of(a).bundle_out, link_of(b).bundle_in, link_of(b).bundle_out) == (1, 1, 1)
    a.publish(b"2")
    bundle = visit(a, stick)
    assert bundle and bundle.number == 2 and bundle.seen == 1
    settle(members, stick)
    same_logs(members, 2)


def test_a_stick_and_a_live_link_side_by_side() -> None:
    a, b = members = pair(8, 8)
    stick = Stick()
    live = {
        here: here.node.link(here.numbers[peer_of(here)], PROFILE_BSP_1, 0, 1000, 0)
        for here in members
    }
    for number in range(60):
        a.publish(b"%d" % number)
    visit(a, stick)
    frame = bytearray(1024)
    for now_ms in range(0, 400_000, 500):
        for here, there in ((a, b), (b, a)):
            size = live[here].poll_into(frame, now_ms)
            while size:
                live[there].receive(frame, size, now_ms)
                size = live[here].poll_into(frame, now_ms)
        if now_ms == 1000:
            visit(b, stick)
            visit(a, stick)
    settle(members, stick)
    same_logs(members, 60)


def test_a_store_that_fails_lets_no_frame_out_and_nothing_is_forgotten() -> None:
    a, b = members = pair()
    stick = Stick()
    a.publish(b"1")
    visit(a, stick)
    read(b, stick)
    barrier = b.store.barrier
    b.store.barrier = lambda: -3
    assert write(b, stick) is None and link_of(b).bundle_out == 0
    b.store.barrier = barrier
    assert write(b, stick)
    settle(members, stick)
    same_logs(members, 1)


def test_what_a_failed_bundle_owes_goes_over_an_idle_line() -> None:
    a, b = pair(pool=2, offers=2)
    line = b.node.link(b.numbers["A"], PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    frame = bytearray(1024)
    for number in range(4):
        assert a.publish(b"%d" % number)
    stick = Stick()
    visit(a, stick)
    visit(b, stick)
    while line.poll_into(frame, 5000):
        pass
    again = Stick()
    visit(a, again)
    assert not line.poll_into(frame, 10_000), "it is idle"
    assert read(b, again), "the same as on the stick that is not back yet"
    assert write(b, again, cut_after=1) is None
    assert line.wake_ms(10_000) <= 1000
    assert line.poll_into(frame, 12_000) > 32, "acknowledgements"
