"""Bundles that are taken whole, end at what fits, and are packed between hosts."""

import copy

import pytest

from drupelet import host_api
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_MVDS,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
    SHARED,
)
from drupelet.store.files import RamFiles
from drupelet.wire.packed import Packed
from helpers import Member, stamp
from unit.stick_visits import (
    Bundle,
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


def messages_in(bundle: Bundle | None) -> int:
    """Messages of 100 bytes in a bundle, by what its frames have room for."""
    return sum(map(len, bundle.frames)) // 144 if bundle else 0


def reboot(member: Member) -> None:
    """The power goes after the last save."""
    member.store.barrier()
    member.files.power_cut()
    member.start()
    member.boot()
    connect(member)


@pytest.mark.parametrize(("pool", "reboots"), [(64, False), (64, True), (4, False), (4, True)])
def test_a_bundle_read_whole_is_acknowledged_whole(pool: int, reboots: bool) -> None:
    """After one round trip nothing is owed; the second visit writes what is new."""
    a, b = members = pair(pool, pool, segments_max=512)
    stick = Stick()
    for number in range(1000):
        assert a.publish(b"%04d" % number + bytes(90))
    first = visit(a, stick)
    for member in members if reboots else ():
        reboot(member)
    answer = visit(b, stick)
    for member in members if reboots else ():
        reboot(member)
    assert messages_in(first) >= 1000 and answer
    assert sum(map(len, answer.frames)) == 9 + 9, "however many messages it acknowledges"
    read(a, stick)
    same_logs(members, 1000)
    a.publish(b"new" + bytes(90))
    second = write(a, stick)
    assert second and messages_in(second) <= 2 and len(second.frames) == 2
    settle(members, stick)
    same_logs(members, 1001)
    assert a.node.duplicates == b.node.duplicates == 0


def test_bundles_that_go_on_from_each_other_are_acknowledged_together() -> None:
    a, b = members = pair()
    stick = Stick()
    for visits in range(3):
        for number in range(100):
            a.publish(b"%d %d" % (visits, number))
        visit(a, stick)
    visit(b, stick)
    read(a, stick)
    same_logs(members, 300)
    assert write(a, stick) is None
    assert b.node.duplicates == 0


@pytest.mark.parametrize("lost", [0, 1])
def test_a_bundle_that_went_missing_is_not_acknowledged_with_the_next(lost: int) -> None:
    """Somebody deleted one file of two: what it held comes again, whatever was read behind it."""
    a, b = members = pair()
    stick = Stick()
    for number in range(100):
        a.publish(b"%d" % number)
    visit(a, stick)
    link = a.node.links[0]
    held = b"not in the first"
    a.publish(held)
    visit(a, stick)
    assert link.bundle_out == 2
    del stick.of("B", "A")[lost]
    visit(b, stick)
    read(a, stick)
    assert not host_api.is_current(a.node, a.numbers["B"])
    write(a, stick)
    settle(members, stick)
    same_logs(members, 101)


def test_what_a_full_log_refused_is_not_acknowledged_with_its_bundle() -> None:
    a, b = members = pair()
    stick = Stick()
    for number in range(50):
        a.node.publish(a.group, b"\x00%02d" % number, 3, stamp(number), 0)
    put = b.store.put
    calls = 0

    def full(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        return -2 if calls == 20 else put(*arguments)

    b.store.put = full
    visit(a, stick)
    read(b, stick)
    assert len(b.log()) == 49 and b.node.refused == 1
    b.store.put = put
    answer = write(b, stick)
    assert answer and sum(map(len, answer.frames)) > 49 * 32, "each for itself"
    read(a, stick)
    assert a.node.outstanding(a.numbers["B"]) == 1
    again = write(a, stick)
    assert again and sum(map(len, again.frames)) < 100, "only what was refused"
    settle(members, stick)
    same_logs(members, 50)


def test_a_message_that_found_no_part_file_is_not_acknowledged_with_its_bundle() -> None:
    """It fits a frame, but no record of the store."""
    a, b = members = pair()
    stick = Stick()
    for size in (20, 960, 20):
        body = bytes(size)
        assert a.node.publish(a.group, body, size, stamp(size), 0) > 0 or size == 20
    part_open = b.store.spool.part_open
    b.store.spool.part_open = lambda *_: -2  # type: ignore[method-assign]
    visit(a, stick)
    read(b, stick)
    assert len(b.log()) == 1 and b.node.refused == 1
    b.store.spool.part_open = part_open  # type: ignore[method-assign]
    visit(b, stick)
    read(a, stick)
    assert a.node.outstanding(a.numbers["B"]) == 1
    settle(members, stick)
    same_logs(members, 2)


@pytest.mark.parametrize("reboots", [False, True])
def test_what_is_shown_late_is_not_acknowledged_by_an_older_bundle(reboots: bool) -> None:
    """The answer speaks of a log that the peer saw less of."""
    a, b = members = pair()
    stick = Stick()
    others = {member: member.node.join(bytes(32), b"other") for member in members}
    handle = a.node.publish(others[a], b"\x00shown late", 11, stamp(1), 0)
    assert handle > 0
    a.publish(b"before")
    a.publish(b"after")
    visit(a, stick)
    visit(b, stick)
    for member, peer in ((a, "B"), (b, "A")):
        member.node.share(others[member], member.numbers[peer], 2)
        member.node.save(0)
    if reboots:
        a.store.barrier()
        a.files.power_cut()
        a.start()
        a.node.join(bytes(32), b"other")
        a.node.share(others[a], a.numbers["B"], 2)
        a.boot()
        connect(a)
    read(a, stick)
    write(a, stick)
    settle(members, stick)
    assert len(b.log()) == 3
    same_logs(members, 3)


@pytest.mark.parametrize("other_store", [False, True])
def test_an_answer_to_another_store_of_ours_acknowledges_nothing(other_store: bool) -> None:
    """A begins anew; what it wrote since has the bundle's number, on another stick."""
    a, b = pair(salt=0x87654321)
    stick, other = Stick(), Stick()
    a.publish(b"one")
    a.publish(b"two")
    visit(a, stick)
    visit(b, stick)
    a.files = RamFiles(1 << 22)
    a.store_options["salt"] = 0x12345678 if other_store else 0x87654321
    reboot(a)
    for number in range(3):
        a.publish(b"another %d" % number)
    assert write(a, other)
    (answer,) = stick.of("A", "B")
    assert link_of(a).bundle_out == answer.seen
    for frame in answer.frames:
        assert link_of(a).receive(bytearray(frame), len(frame), 0) == 0
    assert (a.node.outstanding(a.numbers["B"]) == 3) == other_store


def test_an_answer_to_what_was_forgotten_acknowledges_nothing() -> None:
    """A is set back to a copy of itself: its handles name other messages by now."""
    a, b = pair()
    stick, other = Stick(), Stick()
    a.publish(b"kept")
    visit(a, stick)
    older = copy.deepcopy(a.files)
    for number in range(5):
        a.publish(b"forgotten %d" % number)
    visit(a, stick)
    visit(b, stick)
    assert len(b.log()) == 6
    answer = stick.of("A", "B").pop()
    other.of("A", "B").append(answer)
    a.files = older
    reboot(a)
    for number in range(5):
        a.publish(b"another 1 %d" % number)
    bundle = visit(a, stick)
    assert bundle and bundle.number == 3, "above what lies there"
    read(a, other)
    assert a.node.outstanding(a.numbers["B"]) >= 5
    settle((a, b), stick)
    assert set(a.log()) <= set(b.log())


def test_bundles_on_two_sticks_in_turn_are_all_acknowledged() -> None:
    a, b = members = pair()
    sticks = (Stick(), Stick())
    for turn in range(6):
        for number in range(30):
            a.publish(b"%d %d" % (turn, number))
        visit(a, sticks[turn & 1])
        if turn:
            visit(b, sticks[turn + 1 & 1])
    settle(members, sticks[0])
    settle(members, sticks[1])
    same_logs(members, 180)


def test_a_peer_that_lost_its_store_is_not_believed_what_it_held() -> None:

    a, b = members = pair()
    stick = Stick()
    for number in range(20):
        a.publish(b"%d" % number)
    visit(a, stick)
    visit(b, stick)
    old = stick.of("A", "B").pop()
    link_of(a).exchange.forget_holds()
    stick.of("A", "B").append(old)
    read(a, stick)
    assert a.node.core.outboxes[0].cursor == 0 or a.node.outstanding(a.numbers["B"]) > 0
    write(a, stick)
    settle(members, stick)
    same_logs(members, 20)


@pytest.mark.parametrize("pool", [8, 300])
def test_a_bundle_ends_at_what_fits_and_the_next_one_goes_on(pool: int) -> None:
    a, b = members = pair(pool, 8)
    stick = Stick()
    for number in range(200):
        a.publish(b"%04d" % number + bytes(90))
    first = write(a, stick, room=8000)
    assert first and 6000 < sum(map(len, first.frames)) < 9100
    read(b, stick)
    came = len(b.log())
    assert came and b.log() == a.log()[:came], "the oldest first"
    write(b, stick)
    for _ in range(20):
        read(a, stick)
        write(a, stick, room=8000)
        read(b, stick)
        write(b, stick)
    read(a, stick)
    same_logs(members, 200)
    assert b.node.duplicates == 0


def test_a_bundle_that_goes_on_after_one_that_was_full() -> None:
    """The peer comes by only when all of it lies on the stick."""
    a, b = members = pair(16, 16)
    stick = Stick()
    for number in range(100):
        body = b"\x00" + b"%04d" % number + bytes(2000 if number % 7 == 3 else 90)
        assert a.node.publish(a.group, body, len(body), stamp(number), 0) > 0
    for _ in range(20):
        write(a, stick, room=6000)
    assert write(a, stick) is None, "all of it is there"
    visit(b, stick)
    read(a, stick)
    same_logs(members, 100)
    assert b.node.duplicates == 0


def packing(members: tuple[Member, Member]) -> None:
    """Both are known to read packed messages."""
    for member in members:
        link_of(member).use_packing(Packed(True))


@pytest.mark.parametrize("pool", [64, 4])
def test_messages_are_packed_for_whom_reads_them_so(pool: int) -> None:
    a, b = members = pair(pool, pool, body_files_max=64)
    packing(members)
    stick = Stick()
    others = {member: member.node.join(bytes(32), b"other") for member in members}
    for member, peer in ((a, "B"), (b, "A")):
        member.node.share(others[member], member.numbers[peer], 2)
    for number in range(60):
        size = (100, 100, 952, 3000)[number % 4]
        group = others[a] if number % 10 == 9 else a.group
        body = b"\x00" + bytes([number]) * (size - 1)
        assert a.node.publish(group, body, size, stamp(number * 7919), 0) > 0
    first = visit(a, stick)
    assert first and first.frames[0][0] == 0x47
    answer = visit(b, stick)
    assert sorted(b.log()) == sorted(a.log()) and answer and len(answer.frames) == 2
    read(a, stick)
    same_logs(members, 60)
    assert b.node.malformed == b.node.core.unknown == 0


def test_packed_messages_cost_little() -> None:
    a, b = members = pair()
    packing(members)
    stick = Stick()
    for number in range(100):
        body = b"\x00" + b"%03d" % number + bytes(96)
        assert a.node.publish(a.group, body, 100, stamp(number * 900_000), 0) > 0
    first = visit(a, stick)
    assert first and sum(map(len, first.frames)) < 100 * 105
    visit(b, stick)
    read(a, stick)
    same_logs(members, 100)


def test_to_whom_nothing_is_known_go_records_and_who_packs_reads_them() -> None:
    a, b = members = pair()
    for member, packs in ((a, False), (b, True)):
        link_of(member).use_packing(Packed(packs))
    stick = Stick()
    a.publish(b"1")
    b.publish(b"2")
    first, second = visit(a, stick), visit(b, stick)
    assert first and first.frames[0][0] == 0x40
    assert second and second.frames[1][0] == 0x47, "behind TAKEN"
    settle(members, stick)
    same_logs(members, 2)


def test_packed_messages_of_a_strange_group_are_not_taken_for_ours() -> None:
    a, b = members = pair()
    packing(members)
    stick = Stick()
    other = a.node.join(bytes(32), b"other")
    a.node.share(other, a.numbers["B"], 2)
    a.node.publish(other, b"\x00strange", 8, stamp(1), 0)
    a.publish(b"ours")
    visit(a, stick)
    answer = visit(b, stick)
    assert len(b.log()) == 1 and b.node.core.unknown == 1
    assert answer and answer.frames[0][0] == 0x40, "one ACK, not for all of it"
    read(a, stick)
    assert a.node.outstanding(a.numbers["B"]) == 1


def test_no_bytes_of_a_packed_frame_do_harm() -> None:
    a, b = members = pair()
    packing(members)
    stick = Stick()
    for number in range(3):
        a.publish(b"%d" % number)
    bundle = visit(a, stick)
    assert bundle
    whole = bundle.frames[0]
    link = link_of(b)
    for cut in range(1, len(whole)):
        link.begin_import()
        code = link.receive(bytearray(whole[:cut]), cut, 0)
        assert code in (0, -1)
    for at in range(33, len(whole)):
        for value in (0, 0x7F, 0x80, 0xFF):
            frame = bytearray(whole)
            frame[at] = value
            link.begin_import()
            link.receive(frame, len(frame), 0)
    link.begin_import()
    assert link.receive(bytearray(b"\x46" + whole[33:]), len(whole) - 32, 0) == 0
    assert b.node.core.unknown >= 3, "no group was named in this bundle"


def test_the_wake_state_of_an_older_program_is_read() -> None:
    """Form 2 had peer rows of 14 bytes; nothing that was written before acknowledges anything."""
    a, b = members = pair()
    stick = Stick()
    a.publish(b"1")
    visit(a, stick)
    visit(b, stick)
    for member in members:
        store = member.store
        older = bytes((2,)) + bytes(store.saved[1:22]) + bytes(store.saved[30 : store.saved_size])
        store.saved[: len(older)] = older
        assert store.save(store.saved, len(older)) == 0
        reboot(member)
    assert (link_of(a).bundle_out, link_of(b).bundle_in, link_of(b).bundle_out) == (1, 1, 1)
    assert not any(member.again for member in members), "consumed is kept"
    a.node.core.refill(0)
    read(a, stick)
    assert a.node.outstanding(a.numbers["B"]) == 1
    settle(members, stick)
    same_logs(members, 1)


@pytest.mark.parametrize("by", ["request", "another peer"])
def test_what_gave_up_its_row_before_it_was_in_a_bundle_goes_into_the_next(by: str) -> None:
    """The first bundle ended before it, since the stick was full."""
    a, b = members = pair(4, 4)
    stick = Stick()
    line = a.node.link(a.numbers["B"], PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    first = a.publish(b"first")
    settle(members, stick)
    for number in range(6):
        body = b"\x00%d" % number + bytes(600)
        assert a.node.publish(a.group, body, len(body), stamp(number), 0) > 0
    outbox = a.node.core.outboxes[0]
    bundle = write(a, stick, room=1400)
    assert bundle and len(bundle.frames) == 3 and outbox.count == 4, "two messages and a MARK"
    passed = outbox.cursor
    assert outbox.bundled_until == passed == outbox.handles[3]
    if by == "request":
        for kind in (3, 0):  # REQUEST, then ACK
            record = bytearray(b"\x40\x01" + bytes([kind, 0, 32]) + (first or b""))
            assert line.receive(record, len(record), 2000) == 0
    else:
        a.node.add_peer(b"C___")
    assert outbox.cursor < passed
    a.node.core.refill(0)
    write(a, stick)
    settle(members, stick)
    assert len(b.log()) == 7


def test_a_bundle_acknowledges_nothing_of_a_family_that_it_does_not_carry() -> None:
    """Rows are full, so the cursor stands before the other family's message when TAKEN comes."""
    a, b = members = pair(pool=4)
    for member in members:
        other = member.node.join_id(bytes(range(32)), FAMILY_MVDS)
        member.node.share(other, member.numbers[peer_of(member)], SHARED)
    for number in range(8):
        a.publish(b"%d" % number)
    body = b"\0by another link"
    assert a.node.publish(other, body, len(body), bytes(8), 0) > 0
    a.publish(b"behind")
    stick = Stick()
    visit(a, stick)
    visit(b, stick)
    read(a, stick)
    assert b.node.delivered == 9 and not host_api.is_current(a.node, a.numbers["B"])
    links = [
        member.node.link(
            member.numbers[peer_of(member)], PROFILE_MVDS_1, CARRIER_SERIAL, 1000, BATCH
        )
        for member in members
    ]
    frame = bytearray(1024)
    for now_ms in range(0, 60_000, 500):
        for link, heard in ((links[0], links[1]), (links[1], links[0])):
            while size := link.poll_into(frame, now_ms):
                assert heard.receive(frame, size, now_ms) == 0
    assert b.node.delivered == 10
    settle(members, stick)
    assert host_api.is_current(a.node, a.numbers["B"]) and b.node.delivered == 10


@pytest.mark.parametrize("pool", [4, 64])
def test_what_is_on_no_stick_is_counted_once(pool: int) -> None:
    a, _ = pair(pool=pool)
    for number in range(8):
        a.publish(b"%d" % number)
    assert host_api.waiting_count(link_of(a), 100) == 8
    visit(a, Stick())
    assert host_api.waiting_count(link_of(a), 100) == 0
    for number in range(3):
        a.publish(b"later %d" % number)
    assert host_api.waiting_count(link_of(a), 100) == 3
