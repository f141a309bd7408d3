"""Cursors, quotas and sharing: the log is the queue, the slots only a window onto it."""

import pytest

from drupelet.base.errors import OK
from drupelet.base.limits import WAKE_STATE_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import FAMILY_MVDS
from drupelet.engine.resync import forget_holds
from drupelet.engine.states import HOLD, QUEUED
from drupelet.node import BATCH, INTERACTIVE, INVISIBLE, SHARED, VISIBLE
from drupelet.store.files import RamFiles
from drupelet.wire.registry import PROFILE_MVDS_1
from helpers import Draw, Line, Member, Network, check_causal

ROUNDS_MAX = 4_000


def network(pools: dict[str, int], edges: list[str], mode: int = BATCH, **faults) -> Network:
    draw = Draw(len(pools))
    members = [Member(name, draw, pool=pool, offers=max(pool, 8)) for name, pool in pools.items()]
    return Network(draw, members, edges, mode, **faults)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_a_backlog_larger_than_the_pool(mode: int) -> None:
    net = network({"A": 8, "B": 8}, ["AB"], mode)
    a = net.members["A"]
    for number in range(150):
        assert a.publish(b"%d" % number)
    window = a.node.core.window
    assert a.node.outstanding(a.numbers["B"]) == 8
    net.run(lambda: net.complete(150), ROUNDS_MAX)
    assert window.cursors[0] == window.newest
    check_causal(net.members["B"])


def test_a_peer_that_never_comes_by_starves_no_other() -> None:
    net = network({"A": 8, "B": 8, "C": 8}, ["AB", "AC"])
    net.lines["A", "C"].loss = 1000
    a, b = net.members["A"], net.members["B"]
    for number in range(100):
        assert a.publish(b"%d" % number)
    net.run(lambda: len(b.log()) == 100, ROUNDS_MAX)
    assert a.node.outstanding(a.numbers["C"]) == 4, "its share of eight slots"
    net.lines["A", "C"].loss = 0
    net.run(lambda: net.complete(100), ROUNDS_MAX)


def test_what_is_forgotten_in_ram_is_not_forgotten() -> None:
    """Slots are reused a hundred times; nothing is given twice, nothing is lost."""
    net = network({"A": 2, "B": 2, "C": 2}, ["AB", "BC"], loss=200, repeat=300)
    for number in range(60):
        for member in net.members.values():
            assert member.publish(b"%s%d" % (member.name.encode(), number))
    net.run(lambda: net.complete(180), 4 * ROUNDS_MAX)
    for member in net.members.values():
        assert member.node.delivered == 180


def test_a_peer_that_is_added_later_gets_the_whole_log() -> None:
    net = network({"A": 8, "B": 8, "C": 8}, ["AB"])
    a, c = net.members["A"], net.members["C"]
    for number in range(50):
        a.publish(b"%d" % number)
    net.run(lambda: net.members["B"].node.delivered == 50, ROUNDS_MAX)
    net.members["B"].publish(b"from B")
    net.run(lambda: len(a.log()) == 51, ROUNDS_MAX)
    for here, there in ((a, "C"), (c, "A")):
        here.peers.append(there)
        here.add(there)
        net.lines[here.name, there] = Line(net.draw)
        net.connect(here)
    net.run(lambda: net.complete(51), ROUNDS_MAX)


def test_sharing_begins_and_ends_while_it_runs() -> None:
    net = network({"A": 8, "B": 8}, ["AB"])
    a, b = net.members["A"], net.members["B"]
    a.publish(b"seen")
    net.run(lambda: net.complete(1), ROUNDS_MAX)
    a.node.share(a.group, a.numbers["B"], VISIBLE)
    for number in range(30):
        assert a.publish(b"hidden %d" % number)
    for _ in range(40):
        net.round()
    assert len(b.log()) == 1 and a.node.outstanding(a.numbers["B"]) == 0
    theirs = b.publish(b"accepted all the same")
    net.run(lambda: theirs in a.log() and b.node.outstanding(b.numbers["A"]) == 0, ROUNDS_MAX)
    a.node.share(a.group, a.numbers["B"], SHARED)
    net.run(lambda: net.complete(32), ROUNDS_MAX)


def test_what_was_queued_leaves_the_slots_when_sharing_ends() -> None:
    net = network({"A": 4, "B": 4}, ["AB"])
    a, b = net.members["A"], net.members["B"]
    net.lines["A", "B"].loss = 1000
    for number in range(20):
        a.publish(b"%d" % number)
    for _ in range(8):
        net.round()
    assert a.node.outstanding(a.numbers["B"]) == 4
    for visibility in (VISIBLE, INVISIBLE):
        a.node.share(a.group, a.numbers["B"], visibility)
        assert a.node.outstanding(a.numbers["B"]) == 0
        assert not any(state & QUEUED for state in a.node.core.slots.states)
    link = a.links["B"]
    for _ in range(40):
        net.round()
    assert link.wake_ms(net.now_ms) > 1 << 27, "nothing is left to wake for"
    a.node.share(a.group, a.numbers["B"], SHARED)
    assert link.wake_ms(net.now_ms) <= net.epoch_ms
    net.lines["A", "B"].loss = 0
    net.run(lambda: net.complete(20), ROUNDS_MAX)
    assert len(b.log()) == 20


def reboot(member: Member, **changes: int) -> None:
    member.store.barrier()
    member.files.power_cut()
    for name, value in changes.items():
        setattr(member, name, value)
    member.start()
    member.boot()


def test_who_holds_what_survives_a_reboot() -> None:
    net = network({"A": 16, "B": 16}, ["AB"])
    a = net.members["A"]
    for number in range(10):
        a.publish(b"%d" % number)
    net.run(lambda: net.complete(10), ROUNDS_MAX)
    net.lines["A", "B"].loss = 1000
    for number in range(5):
        a.publish(b"later %d" % number)
    a.node.save(0)
    reboot(a)
    net.connect(a)
    sent = net.lines["A", "B"].bytes
    assert a.node.core.window.newest == a.store.find(a.log()[-1], 0)
    for _ in range(4):
        net.round()
    assert a.node.outstanding(a.numbers["B"]) == 5
    assert net.lines["A", "B"].bytes - sent < 6 * 200, "the ten before are not sent again"
    net.lines["A", "B"].loss = 0
    net.run(lambda: net.complete(15), ROUNDS_MAX)


def test_holes_in_what_a_peer_holds_survive_a_reboot() -> None:
    """Held out of order: the cursor goes back to the first hole, the rest is known as held."""
    net = network({"A": 16, "B": 16}, ["AB"])
    a = net.members["A"]
    ids = [a.publish(b"%d" % number) for number in range(6)]
    core = a.node.core
    for number in (1, 2, 4):
        slot = core.slots.find(ids[number], 0)
        core.window.set_state(slot, 0, core.slots.states[slot] | HOLD)
    a.node.save(0)
    reboot(a)
    core = a.node.core
    assert core.window.cursors[0] == 0
    core.window.refill(0)
    queued = [
        i for i in range(6) if core.slots.states[core.slots.find(ids[i], 0)] & HOLD == 0
    ]  # fmt: skip
    assert queued == [0, 3, 5] and a.node.outstanding(a.numbers["B"]) == 3


def test_a_group_that_is_shared_since_the_reboot_is_shown_whole() -> None:
    net = network({"A": 16, "B": 16}, ["AB"])
    a = net.members["A"]
    a.publish(b"1")
    a.node.share(a.group, a.numbers["B"], VISIBLE)
    for _ in range(6):
        net.round()
    a.publish(b"2")
    a.node.save(0)
    reboot(a)  # `start` shares it again
    net.connect(a)
    net.run(lambda: net.complete(2), ROUNDS_MAX)


def test_a_peer_that_shares_nothing_keeps_no_flash() -> None:
    net = network({"A": 8, "B": 8, "C": 8}, ["AB", "AC"])
    a = net.members["A"]
    a.node.share(a.group, a.numbers["C"], VISIBLE)
    for number in range(50):
        a.publish(b"%d" % number)
        net.round()
    net.run(lambda: len(net.members["B"].log()) == 50, ROUNDS_MAX)
    for _ in range(8):
        net.round()
    a.node.core.window.dirty = True
    a.node.save(0)
    assert a.store.settled_handle > a.store.find(a.log()[-1], 0)


def test_the_saved_state_fits_whatever_the_number_of_peers() -> None:
    draw = Draw(1)
    member = Member("A", draw, pool=64)
    for number in range(4):
        member.peers.append(f"{number}")
        member.add(f"{number}")
    member.boot()
    for number in range(64):
        member.publish(b"%d" % number)
    core = member.node.core
    for slot in range(64):
        core.window.set_state(slot, slot % 4, core.slots.states[slot] | HOLD)
    assert member.node.save(0) == 0
    assert 8 + 4 * 14 < member.store.saved_size <= WAKE_STATE_SIZE_MAX
    assert member.node.save(0) == 0 and not core.window.dirty


def test_that_a_peer_lost_what_came_from_it_survives_a_reboot() -> None:
    net = network({"A": 2, "B": 8}, ["AB"])
    a, b = net.members["A"], net.members["B"]
    for number in range(8):
        assert b.publish(b"%d" % number)
    net.run(lambda: net.complete(8), ROUNDS_MAX)
    forget_holds(a.node.links[0])
    for _ in range(2):
        assert a.node.save(0) == OK
        reboot(a)
    net.connect(a)
    wanted = b.log()
    b.files = RamFiles(1 << 20)
    b.start()
    b.boot()
    net.connect(b)
    net.run(lambda: b.log() == wanted and not a.node.outstanding(1), ROUNDS_MAX)
    assert a.node.save(0) == OK
    assert not a.store.saved[9] & 0x80, "it has all of it again"


def test_what_was_asked_for_and_sent_gives_way_to_what_is_asked_for_next() -> None:
    """MVDS sends what was asked for until it is acknowledged, which a refused child never is."""
    draw = Draw(3)
    members = [Member(name, draw, pool=1, family=FAMILY_MVDS) for name in "AB"]
    net = Network(draw, members, ["AB"], profile=PROFILE_MVDS_1)
    a = net.members["A"]
    first, second, _ = (bytes(a.publish(body)) for body in (b"first", b"second", b"last"))
    net.run(lambda: net.complete(3), ROUNDS_MAX)
    net.lines["A", "B"].loss = 1000
    core, link = a.node.core, a.links["B"]
    for id in (first, second):
        link.on_request(bytearray(id), 0)
        assert core.slots.find(first, 0) == 0, "not before it was sent"
    for _ in range(4):
        net.round()
    assert core.slots.find(second, 0) == 0


@pytest.mark.parametrize("children", [1, 12])
@pytest.mark.parametrize("pools", [(1, 1), (2, 1), (8, 1), (3, 3), (8, 8)], ids=str)
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_who_lost_a_history_gets_it_behind_tables_full_of_what_depends_on_it(
    mode: int, pools: tuple[int, int], children: int
) -> None:
    """A peer that asks for what it held finds no slot: those of its children give way."""
    draw = Draw(5)
    a, b = (Member(name, draw, pool=pool) for name, pool in zip("AB", pools, strict=True))
    net = Network(draw, [a, b], ["AB"], mode)
    for number in range(9):
        a.publish(b"%d" % number)
    net.run(lambda: net.complete(9), ROUNDS_MAX)
    net.run(lambda: not a.node.outstanding(a.numbers["B"]), ROUNDS_MAX)
    b.node.leave(b.group)
    b.group = b.node.join(READINGS_CLIENT_ID, b"test")
    b.node.share(b.group, b.numbers["A"], SHARED)
    for number in range(children):
        a.publish(b"child %d" % number)
    net.run(lambda: b.log() == a.log(), 4_000)
    assert len(b.log()) == 9 + children
    check_causal(b)


@pytest.mark.parametrize("asked", [(1, 3), (3, 1)])
def test_what_went_because_it_was_asked_for_goes_once_in_a_payload(asked: tuple[int, int]) -> None:
    """Though it gives up its slot when it has gone, and the walk of the log comes to it again."""
    net = network({"A": 2, "B": 2}, ["AB"])
    a = net.members["A"]
    ids = [a.publish(b"body %d" % number) for number in range(5)]
    net.run(lambda: net.complete(5), ROUNDS_MAX)
    a.node.core.window.show_all(0)  # B lost its store
    link = a.links["B"]
    frame = bytearray(256)
    net.now_ms += 10 * net.epoch_ms
    for number in asked:
        link.on_request(bytearray(ids[number] or b""), 0)
    payload = b""
    for _ in range(8):
        payload += bytes(frame[: link.poll_into(frame, net.now_ms)])
    assert [payload.count(b"body %d" % number) for number in asked] == [1, 1]
