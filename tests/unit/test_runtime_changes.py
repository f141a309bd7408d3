"""What is on its way when groups, peers and views change on a running node."""

import pytest

from drupelet.base.errors import OK
from drupelet.clients.default import Author
from drupelet.engine.states import REQUEST
from drupelet.link.link import CARRIER_MQTT, CARRIER_STICK, PROFILE_COMPACT_1, Link
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    GROUP_TELEMETRY,
    INTERACTIVE,
    INVISIBLE,
    PROFILE_BSP_1,
    SHARED,
    VISIBLE,
    Node,
)
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox
from drupelet.wire.sketch.recovery import Recovery
from helpers import EPOCH_MS, READINGS_CLIENT_ID, Draw, Member, Network, frames, stamp

FRAMES_MAX = 80


def is_asked(node: Node) -> bool:
    """Whether the first peer has asked for a message."""
    outbox = node.core.outboxes[0]
    return any(outbox.state(row) & REQUEST for row in range(outbox.count))


def make(
    messages_max: int = 16, files: RamFiles | None = None, box: BlackBox | None = None
) -> Node:
    store = FlashStore(files or RamFiles(1 << 22))
    store.open()
    draw = Draw(5)
    return Node(store, lambda: draw(256), 4, 4, messages_max, 32, box)


def put(node: Node, group: int, text: bytes, *parents: bytes) -> bytes:
    """Publish; the id."""
    body = bytes([len(parents)]) + b"".join(parents) + text
    handle = node.publish(group, body, len(body), stamp(0), 0)
    assert handle > 0
    node.done(handle)
    assert node.store.load(handle) == OK
    return bytes(node.store.id)


def swap(one: Link, other: Link, now_ms: int, lost: Link | None = None) -> int:
    """Both say what is due; how many frames. Those of `lost` do not arrive."""
    frame = bytearray(1024)
    count = 0
    for speaker, hearer in ((one, other), (other, one)):
        for _ in range(FRAMES_MAX):
            size = speaker.poll_into(frame, now_ms)
            if not size:
                break
            count += 1
            if speaker is not lost:
                hearer.receive(frame, size, now_ms)
    return count


def log(node: Node, group: int = 0) -> list[bytes]:
    found = []
    handle = node.store.next(0)
    while handle:
        assert node.store.load(handle) == OK
        if group in (0, node.store.group):
            found.append(bytes(node.store.id))
        handle = node.store.next(handle)
    return found


def kept(node: Node) -> int:
    count = 0
    handle = node.store.next_kept(0)
    while handle:
        count += 1
        handle = node.store.next_kept(handle)
    return count


class End:
    """A node that shares one group with one peer, over one link."""

    def __init__(
        self, peer: bytes, profile: int = PROFILE_BSP_1, messages_max: int = 64, name: bytes = b"g"
    ) -> None:
        self.node = make(messages_max)
        self.group = self.node.join(READINGS_CLIENT_ID, name)
        self.peer = self.node.add_peer(peer)
        self.node.share(self.group, self.peer, SHARED)
        self.node.boot(0)
        self.link = self.node.link(self.peer, profile, CARRIER_SERIAL, 1000, BATCH)


# --- left and joined again ---


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
@pytest.mark.parametrize(("chain", "by_own"), [(1, True), (1, False), (12, False), (20, False)])
def test_who_left_and_joined_again_gets_the_whole_chain(
    chain: int, by_own: bool, profile: int
) -> None:
    """Also what it wrote itself, and what is longer than its rows: its peer counts it as held."""
    draw = Draw(3)
    a, b = members = [Member(name, draw, pool=8, offers=64) for name in "AB"]
    net = Network(draw, members, [("A", "B")], profile=profile)
    for number in range(chain):
        (b if by_own else a).publish(b"%d" % number, net.now_ms)
        net.run(lambda count=number + 1: net.complete(count), 200)
    last = a.log()[-1]
    for number in range(16):  # roots; the rows of A move on
        body = b"\0filler %d" % number
        assert a.node.publish(a.group, body, len(body), stamp(number), net.now_ms) > 0
        net.run(lambda count=chain + number + 1: net.complete(count), 200)
    b.node.leave(b.group)
    b.group = b.node.join(READINGS_CLIENT_ID, b"test")
    b.node.share(b.group, b.numbers["A"], SHARED)
    b.author = Author(b.node, b.group)
    body = b"\1" + last + b"new"
    assert a.node.publish(a.group, body, len(body), stamp(999), net.now_ms) > 0
    net.run(lambda: len(b.log()) >= chain + 1 and not b.node.pending_count(), 3000)


# --- peers and views ---


@pytest.mark.parametrize("what", ["removed", "sees another group no more", "sees it no more"])
def test_a_parent_is_asked_for_elsewhere(what: str) -> None:
    """The child came from one who is gone; the other holds its parent, and thinks that we do."""
    a = make()
    groups = [a.join(READINGS_CLIENT_ID, name) for name in (b"g", b"other")]
    ends = {name: End(b"AAAA", name=b"g") for name in (b"PPPP", b"QQQQ")}
    links = {}
    numbers = {name: a.add_peer(name) for name in ends}
    for number in numbers.values():
        for group in groups:
            a.share(group, number, SHARED)
    a.boot(0)
    for name, end in ends.items():
        links[name] = a.link(numbers[name], PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
        parent = put(end.node, end.group, b"parent")
        end.link.exchange.on_ack(bytearray(parent), 0)
    gone, left = ends[b"PPPP"], ends[b"QQQQ"]
    put(gone.node, gone.group, b"child", parent)
    swap(gone.link, links[b"PPPP"], 2000, links[b"PPPP"])
    assert a.pending_count() == 1
    if what == "removed":
        a.remove_peer(numbers[b"PPPP"])
    else:
        a.share(groups["it" in what.split()], numbers[b"PPPP"], INVISIBLE)
        a.share(groups[0], numbers[b"PPPP"], INVISIBLE)
    put(left.node, left.group, b"child", parent)
    for epoch in range(100):
        swap(links[b"QQQQ"], left.link, 3000 + epoch * 500)
    assert len(log(a)) == 2 and a.pending_count() == 0


def test_who_is_added_again_does_not_take_our_numbers_for_those_before() -> None:
    """In another row of the table: an index of the generation before meant another group."""
    node = make()
    node.join(READINGS_CLIENT_ID, b"g")
    node.boot(0)
    peer = node.add_peer(b"BBBB")
    link = node.link(peer, PROFILE_COMPACT_1, CARRIER_MQTT, 1000, BATCH)
    link.codec.use(link.exchange)
    before = link.codec.generation()
    node.remove_peer(peer)
    other = node.add_peer(b"DDDD")
    node.link(other, PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH)
    link = node.link(node.add_peer(b"BBBB"), PROFILE_COMPACT_1, CARRIER_MQTT, 1000, BATCH)
    link.codec.use(link.exchange)
    assert link.codec.generation() != before


@pytest.mark.parametrize("view", [SHARED, VISIBLE])
def test_what_was_asked_for_and_is_shared_no_more_keeps_no_row(view: int) -> None:
    files = RamFiles(1 << 22)
    reader = make(64)
    groups = [reader.join(READINGS_CLIENT_ID, name) for name in (b"readings", b"boxes")]
    device = reader.add_peer(b"DEVI")
    reader.share(groups[0], device, SHARED)
    reader.share(groups[1], device, VISIBLE)
    reader.boot(0)
    heard = reader.link(device, PROFILE_BSP_1, CARRIER_SERIAL, 1000, INTERACTIVE)

    def start(boxes: int, now_ms: int) -> tuple[Node, list[int], Link]:
        node = make(8, files)
        own = [node.join(READINGS_CLIENT_ID, name) for name in (b"readings", b"boxes")]
        host = node.add_peer(b"HOST")
        node.share(own[0], host, SHARED)
        node.share(own[1], host, boxes)
        node.boot(0)
        link = node.link(host, PROFILE_BSP_1, CARRIER_SERIAL, 1000, INTERACTIVE, now_ms)
        return node, own, link

    node, own, link = start(SHARED, 0)
    for number in range(8):
        put(node, own[1], b"box %d" % number)
    now_ms = 0
    while not is_asked(node):
        now_ms += 500
        swap(link, heard, now_ms)
    assert node.save(now_ms) == OK and node.store.barrier() == OK
    node, own, link = start(view, now_ms)
    for number in range(20):
        put(node, own[0], b"reading %d" % number)
    for _ in range(400):
        now_ms += 500
        swap(link, heard, now_ms)
    assert len(log(reader, groups[0])) == 20


def test_a_group_that_is_shared_after_a_visit_goes_on_the_stick_at_the_next() -> None:
    node = make()
    early, late = (node.join(READINGS_CLIENT_ID, name) for name in (b"early", b"late"))
    peer = node.add_peer(b"PPPP")
    node.share(early, peer, SHARED)
    node.share(late, peer, VISIBLE)
    node.boot(0)
    link = node.link(peer, PROFILE_BSP_1, CARRIER_STICK, 0, BATCH)
    put(node, late, b"of the late group")
    put(node, early, b"1")
    frame = bytearray(1024)
    bundles = []
    for fresh in (True, False):
        link.visit(0, fresh)
        written = b""
        while size := link.poll_into(frame, 0):
            written += bytes(frame[:size])
        link.commit(0)
        bundles.append(b"of the late group" in written)
        node.share(late, peer, SHARED)
    assert bundles == [False, True]


def test_a_visit_ends_with_a_long_message_that_is_hidden_meanwhile() -> None:
    node = make(4)
    group = node.join(READINGS_CLIENT_ID, b"g")
    peer = node.add_peer(b"PPPP")
    node.share(group, peer, SHARED)
    node.boot(0)
    put(node, group, bytes(4000))
    link = node.link(peer, PROFILE_BSP_1, CARRIER_STICK, 0, BATCH)
    link.visit(0, True)
    frame = bytearray(512)
    assert link.poll_into(frame, 0) and link.poll_into(frame, 0)
    node.share(group, peer, INVISIBLE)
    assert link.poll_into(frame, 0) == 9 and frame[0] == 0x58, "the end of the bundle"
    assert link.poll_into(frame, 0) == 0


def test_a_link_made_meanwhile_puts_nothing_off() -> None:
    """Links to one peer go by the clock of the shorter epoch; what was due went by another."""
    end = End(b"PPPP")
    frame = bytearray(1024)
    now_ms = 0
    for _ in range(3000):
        now_ms += 1000
        end.link.turn(now_ms)
    put(end.node, end.group, b"reading")
    assert end.link.poll_into(frame, now_ms) and not end.link.poll_into(frame, now_ms)
    end.node.link(end.peer, PROFILE_BSP_1, CARRIER_MQTT, 500, BATCH, now_ms)
    assert end.link.wake_ms(now_ms) < 5000
    later = range(now_ms, now_ms + 5000, 500)
    assert any(end.link.poll_into(frame, at_ms) for at_ms in later)


def test_a_prefix_does_not_show_what_we_hold_of_a_hidden_group() -> None:
    said = []
    for held in (False, True):
        node = make()
        shown, secret = (node.join(READINGS_CLIENT_ID, name) for name in (b"shown", b"secret"))
        peer = node.add_peer(b"PPPP")
        node.share(shown, peer, SHARED)
        node.boot(0)
        other = make()
        other.boot(0)
        id = put(other, other.join(READINGS_CLIENT_ID, b"secret"), b"message")
        if held:
            assert put(node, secret, b"message") == id
        link = node.link(peer, PROFILE_COMPACT_1, CARRIER_SERIAL, 1000, BATCH)
        # A BASE, and the OFFER of one prefix.
        frame = bytearray(b"\x44\xa0\x00\x07\x01\x42" + id[:8])
        assert link.receive(frame, len(frame), 0) == OK
        out = bytearray(1024)
        answer = b""
        for now_ms in range(0, 4000, 500):
            answer += bytes(out[: link.poll_into(out, now_ms)])
        assert id[4:8] in answer and id not in answer  # asked for by number and fold
        said.append(len(answer))
    assert said[0] == said[1]


# --- what waits for somebody ---


@pytest.mark.parametrize("what", ["hidden", "removed"])
def test_deletions_do_not_wait_for_who_is_gone(what: str) -> None:
    node = make(8)
    group = node.join(READINGS_CLIENT_ID, b"g")
    peer = node.add_peer(b"PPPP")
    node.share(group, peer, SHARED)
    node.boot(0)
    for number in range(32):
        put(node, group, b"%d" % number)
        assert node.delete(node.core.graph.newest) == OK
    assert kept(node) == 32
    if what == "hidden":
        node.share(group, peer, INVISIBLE)
    else:
        node.remove_peer(peer)
    assert kept(node) == 0


def test_peers_whose_numbers_are_sixteen_apart_do_not_keep_deletions_for_each_other() -> None:
    node = make()
    group = node.join(READINGS_CLIENT_ID, b"g")
    first = node.add_peer(b"P000")
    for number in range(2, 17):
        node.remove_peer(node.add_peer(b"P%03d" % number))
    last = node.add_peer(b"P017")
    assert (first, last) == (1, 17)
    for peer in (first, last):
        node.share(group, peer, SHARED)
    node.boot(0)
    ids = []
    for number in range(20):
        ids.append(put(node, group, b"%d" % number))
        assert node.delete(node.core.graph.newest) == OK
    links = [node.link(p, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH) for p in (first, last)]
    for id in ids:
        for link in links:
            link.exchange.on_ack(bytearray(id), 0)
    assert kept(node) == 0


@pytest.mark.parametrize("what", ["removed", "hidden"])
def test_boxes_go_on_without_a_host_that_is_gone(what: str) -> None:
    box = BlackBox(b"DEVI", 1, 1)
    node = make(32, box=box)
    group = node.join(READINGS_CLIENT_ID, b"boxes", GROUP_TELEMETRY)
    here, gone = node.add_peer(b"HERE"), node.add_peer(b"GONE")
    node.share(group, here, SHARED)
    node.share(group, gone, SHARED)
    node.boot(0)
    reader = make(32)
    read = reader.join(READINGS_CLIENT_ID, b"boxes", GROUP_TELEMETRY)
    device = reader.add_peer(b"DEVI")
    reader.share(read, device, VISIBLE)
    reader.boot(0)
    links = (
        node.link(here, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH),
        reader.link(device, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH),
    )
    now_ms = 0
    for epochs in (100, 200):
        for _ in range(epochs):
            now_ms += 1000
            for _ in range(10):
                box.log(now_ms, 99, 1, 2, 3, 4)
            node.telemetry(group, now_ms, stamp(now_ms))
            swap(*links, now_ms)
            for each in (node, reader):
                while each.next_event():
                    each.done(each.event_handle)
                assert each.save(now_ms) == OK
        if epochs == 100:
            before = len(log(reader))
            if what == "removed":
                node.remove_peer(gone)
            else:
                node.share(group, gone, INVISIBLE)
    assert len(log(reader)) > before + 20


def test_a_restored_host_goes_on_with_a_board_that_knows_no_sketches() -> None:
    host, board = (End(peer, PROFILE_COMPACT_1) for peer in (b"BBBB", b"HHHH"))
    now_ms = 0
    for number in range(5):
        put(host.node, host.group, b"host %d" % number)
        put(board.node, board.group, b"board %d" % number)
    for _ in range(10):
        now_ms += 500
        swap(host.link, board.link, now_ms)
    Recovery(host.link, lambda: b"salt").begin()
    put(host.node, host.group, b"new")
    frames = 0
    for _ in range(400):
        now_ms += 500
        frames += swap(host.link, board.link, now_ms)
    assert len(log(board.node)) == 11 and frames < 60


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_what_is_shared_again_does_not_make_room(profile: int, mode: int) -> None:
    """Its segments may have been found to be needed by nobody while sharing paused."""
    draw = Draw(3)
    a = Member("A", draw, pool=8, offers=8, segment_size=1024, segments_max=8)
    members = [a, Member("B", draw, pool=32), Member("C", draw, pool=32)]
    net = Network(draw, members, ["AB", "AC", "CB"], mode, profile=profile)
    lines = net.lines["A", "B"], net.lines["B", "A"]

    def readings(count: int) -> int:
        taken = 0
        for _ in range(count):
            now_ms = net.now_ms
            body = b"\0%060d" % now_ms
            taken += a.node.publish(a.group, body, len(body), stamp(now_ms), now_ms) > 0
            a.node.save(now_ms)
            for _round in range(6):
                net.round()
        return taken

    a.node.share(a.group, a.numbers["B"], VISIBLE)
    while a.store.erases < 2:
        readings(1)
    for line in lines:
        line.loss = 1000
    a.node.share(a.group, a.numbers["B"], SHARED)
    readings(30)  # B has them from C
    for line in lines:
        line.loss = 0
    for _ in range(600):
        net.round()
    assert a.node.outstanding(a.numbers["B"]) == 0
    assert readings(40) >= 39


def test_what_a_hidden_peer_was_asked_for_it_is_asked_again_when_it_is_shown() -> None:
    """Nobody else has the parent, and none is asked for what it does not see."""
    here, there = End(b"BBBB"), End(b"HHHH")
    parent = bytes(range(32))
    body = bytearray(b"\1" + parent + b"child")
    ids = here.node.core.members.group_ids
    exchange = there.link.exchange
    exchange.on_message(ids, 0, bytearray(8), 0, body, 0, len(body))
    assert there.node.pending_count() == 1

    def is_asked_for() -> bool:
        id = bytearray(32)
        exchange.rewind()
        return exchange.take_request(id, 0) and id == parent

    assert is_asked_for() and not is_asked_for(), "once, and again when the back-off is over"
    there.node.share(there.group, there.peer, INVISIBLE)
    there.link.turn(100_000)
    assert not is_asked_for()
    there.node.share(there.group, there.peer, VISIBLE)
    assert is_asked_for()


@pytest.mark.parametrize("visibility", [INVISIBLE, VISIBLE])
def test_what_a_hidden_peer_sent_is_not_acknowledged_after_a_reboot(visibility: int) -> None:
    """The saved state is older than the configuration, or the group was hidden without a save."""
    draw = Draw(7)
    a, b = Member("A", draw), Member("B", draw)
    net = Network(draw, [a, b], [("A", "B")])
    id = a.publish(b"reading")
    assert id is not None
    net.now_ms += 2 * EPOCH_MS
    for frame in frames(net, "A", "B"):
        b.links["A"].receive(bytearray(frame), len(frame), net.now_ms)
    assert b.log() == [id]
    b.node.save(net.now_ms)
    b.add = lambda name: b.numbers.__setitem__(name, b.node.add_peer(name.encode() + b"___"))
    b.start()
    b.node.share(b.group, b.numbers["A"], visibility)
    b.boot(net.now_ms)
    net.connect(b)
    said = b""
    for _ in range(20):
        net.now_ms += EPOCH_MS
        said += b"".join(frames(net, "B", "A"))
    assert (id in said) == (visibility == VISIBLE)


@pytest.mark.parametrize("what", ["left", "hidden"])
def test_what_is_owed_of_a_group_that_is_gone_leaves_its_rows_to_others(what: str) -> None:
    """Else a copy of another group's message would never be answered, and come for ever."""
    end = End(b"HHHH", messages_max=4)
    node = end.node
    other = node.join(READINGS_CLIENT_ID, b"other")
    node.share(other, end.peer, SHARED)
    ids = node.core.members.group_ids

    def receive(group: int, text: bytes, now_ms: int) -> None:
        row = node.core.members.group_row(group)
        content = ids[32 * row : 32 * row + 32] + bytes(8) + b"\0" + text
        record = bytearray(b"\x40\x01\x01" + len(content).to_bytes(2, "big") + content)
        assert end.link.receive(record, len(record), now_ms) == OK

    frame = bytearray(1024)
    receive(end.group, b"first", 5000)
    assert end.link.poll_into(frame, 5000) == 1 + 4 + 32
    for number in range(4):
        receive(other, b"%d" % number, 6000)
    assert node.core.inboxes[0].owed_end == 4
    if what == "left":
        node.leave(other)
    else:
        node.share(other, end.peer, INVISIBLE)
    receive(end.group, b"first", 9000)
    assert node.duplicates == 1
    assert end.link.poll_into(frame, 9000) == 1 + 4 + 32
