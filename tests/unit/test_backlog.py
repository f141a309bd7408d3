"""Backlogs, views and reboots over live links: the log is the queue, rows are a window onto it."""

import sys

import pytest

from drupelet import host_api
from drupelet.base.errors import OK
from drupelet.base.limits import WAKE_STATE_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine import wake_state
from drupelet.engine.members import FAMILY_MVDS
from drupelet.engine.states import GOT_ACK, GOT_REQUEST, REQUEST
from drupelet.node import BATCH, INTERACTIVE, INVISIBLE, SHARED, VISIBLE, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.wire.profiles import PROFILE_MVDS_1
from helpers import Draw, Line, Member, Network, check_causal, stamp

ROUNDS_MAX = 4_000


def network(pools: dict[str, int], edges: list[str], mode: int = BATCH, **faults) -> Network:
    draw = Draw(len(pools))
    members = [Member(name, draw, pool=pool, offers=max(pool, 8)) for name, pool in pools.items()]
    return Network(draw, members, edges, mode, **faults)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_a_backlog_larger_than_the_rows(mode: int) -> None:
    net = network({"A": 8, "B": 8}, ["AB"], mode)
    a = net.members["A"]
    for number in range(150):
        assert a.publish(b"%d" % number)
    assert a.node.outstanding(a.numbers["B"]) == 8
    net.run(lambda: net.complete(150), ROUNDS_MAX)
    assert a.node.core.outboxes[0].cursor == a.node.core.graph.newest
    check_causal(net.members["B"])


def test_a_peer_that_never_comes_by_starves_no_other() -> None:
    net = network({"A": 8, "B": 8, "C": 8}, ["AB", "AC"])
    net.lines["A", "C"].loss = 1000
    a, b = net.members["A"], net.members["B"]
    for number in range(100):
        assert a.publish(b"%d" % number)
    net.run(lambda: len(b.log()) == 100, ROUNDS_MAX)
    assert a.node.outstanding(a.numbers["C"]) == 4, "its share of eight rows"
    net.lines["A", "C"].loss = 0
    net.run(lambda: net.complete(100), ROUNDS_MAX)


def test_what_was_acknowledged_behind_a_row_that_stays_open_goes_once() -> None:
    """The first message is lost all the time, and what is asked for again needs a row."""
    net = network({"A": 2, "B": 2}, ["AB"])
    a, b = net.members.values()
    net.frame_size = 200  # of one message
    line = net.lines["A", "B"]
    line.never = b"lost"
    assert b.publish(b"here")
    net.run(lambda: net.complete(1), ROUNDS_MAX)
    for number in range(30):
        body = b"\x00" + (b"%02d" % number if number else b"lost") * 25  # no parents
        assert a.node.publish(a.group, body, len(body), stamp(number), net.now_ms) > 0
    net.run(lambda: len(b.log()) == 30, ROUNDS_MAX)
    for number in range(30, 40):
        body = b"\x00%02d" % number * 25
        assert a.node.publish(a.group, body, len(body), stamp(number), net.now_ms) > 0
    for _ in range(4):
        record = b"\x40\x01\x03\x00\x20" + b.log()[4]  # B asks for what it held
        assert a.links["B"].receive(bytearray(record), len(record), net.now_ms) == OK
        net.round()
    line.never = None
    before = line.bytes
    net.run(lambda: net.complete(41), ROUNDS_MAX)
    assert line.bytes - before <= 12 * 123, (
        "ten that were never sent, the first, what is asked for"
    )


def test_what_is_forgotten_in_ram_is_not_forgotten() -> None:
    """Rows are used again a hundred times; nothing is given twice, nothing is lost."""
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


def test_what_was_queued_leaves_the_rows_when_sharing_ends() -> None:
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
        assert a.node.core.outboxes[0].open_count == 0
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
    assert a.node.core.graph.newest == a.store.find(a.log()[-1], 0)
    for _ in range(4):
        net.round()
    assert a.node.outstanding(a.numbers["B"]) == 5
    assert net.lines["A", "B"].bytes - sent < 6 * 200, "the ten before are not sent again"
    net.lines["A", "B"].loss = 0
    net.run(lambda: net.complete(15), ROUNDS_MAX)


@pytest.mark.parametrize("form", [2, wake_state.STATE_FORM])
def test_holes_in_what_a_peer_holds_survive_a_reboot(form: int) -> None:
    """Held out of order: the cursor goes back to the first hole, the rest is known as held. A
    wake state of form 2 has 14 bytes for a peer."""
    net = network({"A": 16, "B": 16}, ["AB"])
    a = net.members["A"]
    ids = [a.publish(b"%d" % number) for number in range(6)]
    core = a.node.core
    for number in (1, 2, 4):
        core.outboxes[0].step(core.outboxes[0].find(ids[number], 0), GOT_ACK)
    a.node.save(0)
    boot, consumed = a.node.core.boot, a.node.core.consumed
    saved = bytes(a.store.saved[: a.store.saved_size])
    if form == 2:
        saved = b"\2" + saved[1:22] + saved[30:]
        assert a.store.save(bytearray(saved), len(saved)) == OK
    reboot(a)
    assert (a.node.core.boot, a.node.core.consumed) == (boot + 1, consumed)
    outbox = a.node.core.outboxes[0]
    a.node.core.refill(0)
    rows = [outbox.find(id, 0) for id in ids]
    assert [number for number, row in enumerate(rows) if outbox.is_open(row)] == [0, 3, 5]
    assert a.node.outstanding(a.numbers["B"]) == 3


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
    a.node.core.is_dirty = True
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
    for outbox in core.outboxes:
        for row in range(outbox.count):
            if row % 3 == 1:
                outbox.step(row, GOT_ACK)
            elif row % 3 == 2:
                outbox.step(row, GOT_REQUEST)
    assert member.node.save(0) == 0
    size = wake_state.STATE_HEAD_SIZE + 4 * wake_state.STATE_PEER_SIZE
    assert size < member.store.saved_size <= WAKE_STATE_SIZE_MAX
    assert member.node.save(0) == 0 and not host_api.would_save(member.node)


def test_that_a_peer_lost_what_came_from_it_survives_a_reboot() -> None:
    net = network({"A": 2, "B": 8}, ["AB"])
    a, b = net.members["A"], net.members["B"]
    for number in range(8):
        assert b.publish(b"%d" % number)
    net.run(lambda: net.complete(8), ROUNDS_MAX)
    a.node.links[0].exchange.forget_holds()
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


def test_what_was_asked_for_gives_way_to_what_comes_before_it() -> None:
    """MVDS sends what was asked for until it is acknowledged, which a refused child never is; then
    its peer asks for the parent."""
    draw = Draw(3)
    members = [Member(name, draw, pool=2, family=FAMILY_MVDS) for name in "AB"]
    net = Network(draw, members, ["AB"], profile=PROFILE_MVDS_1)
    a = net.members["A"]
    ids = [bytes(a.publish(b"%d" % number)) for number in range(6)]
    net.run(lambda: net.complete(6), ROUNDS_MAX)
    net.lines["A", "B"].loss = 1000
    outbox, exchange = a.node.core.outboxes[0], a.links["B"].exchange
    for id in (ids[3], ids[2]):
        exchange.on_request(bytearray(id), 0)
        for _ in range(4):
            net.round()
    assert [outbox.find(id, 0) for id in ids[2:4]] == [0, 1]
    for number in (1, 0):
        exchange.on_request(bytearray(ids[number]), 0)
        row = outbox.find(ids[number], 0)
        assert row == 0 and outbox.state(row) & REQUEST and not outbox.sends(row)


@pytest.mark.parametrize("children", [1, 12])
@pytest.mark.parametrize("pools", [(2, 1), (2, 2), (8, 1), (3, 3), (8, 8)], ids=str)
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_who_lost_a_history_gets_it_behind_tables_full_of_what_depends_on_it(
    mode: int, pools: tuple[int, int], children: int
) -> None:
    """A peer that asks for what it held finds no row: those of its children give way."""
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


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("asked", [(1, 3), (3, 1)])
def test_what_went_because_it_was_asked_for_goes_once_in_a_payload(
    asked: tuple[int, int], is_lost: bool
) -> None:
    """Though the walk of the log comes to it again. What it has not come to yet waits for it."""
    net = network({"A": 2, "B": 2}, ["AB"])
    a = net.members["A"]
    ids = [a.publish(b"body %d" % number) for number in range(5)]
    net.run(lambda: net.complete(5), ROUNDS_MAX)
    if is_lost:
        a.node.core.restart(0, True)  # B lost its store
    link = a.links["B"]
    frame = bytearray(256)
    net.now_ms += 10 * net.epoch_ms
    for number in asked:
        link.exchange.on_request(bytearray(ids[number] or b""), 0)
    payload = b""
    for _ in range(8):
        payload += bytes(frame[: link.poll_into(frame, net.now_ms)])
    counts = [payload.count(b"body %d" % number) for number in range(5)]
    assert counts == ([1, 1, 0, 0, 0] if is_lost else [0, 1, 0, 1, 0])
    for number in range(2 if is_lost else 0):
        link.exchange.on_ack(bytearray(ids[number] or b""), 0)
    net.now_ms += 10 * net.epoch_ms
    payload = bytes(frame[: link.poll_into(frame, net.now_ms)])
    assert not is_lost or [payload.count(b"body %d" % n) for n in (2, 3)] == [1, 1]


def lines_run(rows: int, mode: int) -> int:
    """How many lines of the engine run until 100 messages are with a peer that has their room."""
    net = network({"A": rows, "B": rows}, ["AB"], mode)
    for number in range(100):
        assert net.members["A"].publish(b"%d" % number)
    count = 0

    def count_line(_frame: object, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return count_line

    def of_engine(frame, _event: str, _argument: object) -> object:
        return count_line if "/drupelet/engine/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(of_engine)
    try:
        net.run(lambda: net.complete(100), ROUNDS_MAX)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_rows_that_are_not_used_cost_nothing(mode: int) -> None:
    assert lines_run(4096, mode) < lines_run(128, mode) * 11 // 10


@pytest.mark.parametrize("added", range(2, 13))
def test_a_group_that_is_shared_from_a_boot_on_goes_whole(added: int) -> None:
    """Whatever number it has: of the groups that a peer shares, the wake state has one byte."""
    files = RamFiles(1 << 22)
    shared = [1]
    for boot in range(2):
        store = FlashStore(files)
        assert store.open() == OK
        node = Node(store, lambda: 0, 1, 12, 16)
        groups = [node.join(READINGS_CLIENT_ID, b"group %d" % number) for number in range(12)]
        assert groups == list(range(1, 13))
        peer = node.add_peer(b"PEER")
        for group in shared:
            node.share(group, peer, SHARED)
        node.boot(0)
        if not boot:
            assert node.publish(groups[added - 1], b"\0old", 4, stamp(1), 0) > 0
            assert not node.core.refill(0) and not node.outstanding(peer)
            node.core.is_dirty = True
            assert node.save(0) == OK
            files.power_cut()
            shared.append(added)
    node.core.refill(0)
    assert node.outstanding(peer) == 1
