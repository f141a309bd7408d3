"""Messages longer than a frame, toward MVDS peers that may know no segments."""

import pytest

from drupelet import host_api
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.oversize import OVERHEAD_MAX, is_oversize, passed_over_of
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    CARRIER_STICK,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from drupelet_host.member.undeliverable import Undeliverable
from helpers import (
    EPOCH_MS,
    ROUND_MS,
    Draw,
    Line,
    Member,
    Network,
    check_causal,
    frames,
    give,
    stamp,
)
from naive import mvds
from unit.stick_visits import Stick, same_logs, settle

HOST_FRAME_SIZE = 1 << 16
GROUP = READINGS_CLIENT_ID  # MVDS does not say how one is made
KIND_PAYLOAD = 0x41
SEGMENT, STATE = 0x50, 0x51
EPOCH_ROUNDS = EPOCH_MS // ROUND_MS
modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


def network(
    names: str, edges: list[str], mode: int = BATCH, pool: int = 64, **line: int
) -> Network:
    draw = Draw(5)
    members = [
        Member(name, draw, pool=pool, family=FAMILY_MVDS, body_files_max=64) for name in names
    ]
    return Network(draw, members, edges, mode, **{"profile": PROFILE_MVDS_1, **line})


def passed_over(member: Member, peer: str) -> int:
    """How many messages of the log wait for the peer to read segments."""
    core = member.node.core
    at = member.links[peer].peer
    handle = passed_over_of(core).begin(at)
    count = 0
    while 0 < handle <= core.outboxes[at].cursor:
        count += is_oversize(core, at, handle, FRAME_SIZE_MAX)
        handle = member.store.next(handle)
    return count


@modes
@pytest.mark.parametrize("pool", [1, 4, 64])
@pytest.mark.parametrize("loss", [0, 300])
def test_two_of_ours_with_long_messages_only_find_each_other_out(
    mode: int, pool: int, loss: int
) -> None:
    net = network("AB", ["AB"], mode, pool, loss=loss)
    for number in range(6):
        for member in net.members.values():
            assert member.publish(b"%s%d" % (member.name.encode(), number) * (700 * number + 500))
    net.run(lambda: net.complete(12) and not any_passed_over(net), 400 * EPOCH_ROUNDS)
    for member in net.members.values():
        table = passed_over_of(member.node.core)
        assert (
            sum(table.reads_segments(peer) for peer in range(member.node.core.members.peers)) == 1
        )


def any_passed_over(net: Network) -> bool:
    return any(passed_over(net.members[here], there) for here, there in net.lines)


# --- toward a peer that knows the texts alone ---


class Pair:
    """Our node A, and a node N that knows the text alone, over a bad line.

    N sends a payload in one frame, as long as it is, and counts frames of a kind unknown to it.
    """

    def __init__(self, mode: int, frame_size: int, pool: int = 64) -> None:
        draw = Draw(9)
        self.mode = mode
        self.frame_size = frame_size
        self.now_ms = 0
        self.ours = Member("A", draw, pool, family=FAMILY_MVDS, body_files_max=64)
        self.ours.peers.append("N")
        self.ours.add("N")
        self.foreign = mvds.Node(mvds.SILENT, needs_metadata=True)  # as the live ones are
        self.foreign.share(GROUP, "A")
        self.unknown = 0
        self.sizes: list[int] = []  # of our frames
        self._paid_epoch = -1
        self.lines = [Line(draw, loss=250, repeat=150, reorder=200) for _ in range(2)]
        self.connect()

    def connect(self) -> None:
        self.ours.boot(self.now_ms)
        self.ours.links["N"] = self.ours.node.link(
            self.ours.numbers["N"],
            PROFILE_MVDS_1,
            CARRIER_SERIAL,
            EPOCH_MS,
            self.mode,
            self.now_ms,
        )

    def publish_there(self, body: bytes) -> None:
        moment = 1_800_000_000 + len(self.foreign.messages)
        self.foreign.publish(mvds.Message(GROUP, moment, body), self.mode == INTERACTIVE)

    def round(self, count: int = 1) -> None:
        there, back = self.lines
        for _ in range(count):
            self.now_ms += ROUND_MS
            frame = bytearray(self.frame_size)
            while size := self.ours.links["N"].poll_into(frame, self.now_ms):
                self.sizes.append(size)
                there.send(frame, size)
            self.foreign.epoch = self.now_ms // EPOCH_MS
            if self.foreign.epoch != self._paid_epoch:
                self._paid_epoch = self.foreign.epoch
                payload = b"".join(self.foreign.payload("A").entries())
                if payload:
                    back.send(bytes([KIND_PAYLOAD]) + payload, 1 + len(payload))
            for got in there.take():
                if got[0] == KIND_PAYLOAD:
                    self.foreign.receive("A", got[1:], self.mode == INTERACTIVE)
                else:
                    self.unknown += 1
            for got in back.take():
                self.ours.links["N"].receive(bytearray(got), len(got), self.now_ms)
            self.ours.consume()

    def is_idle(self) -> bool:
        return not self.ours.node.outstanding(self.ours.numbers["N"])

    def bodies_there(self) -> list[bytes]:
        return [message.body for message in self.foreign.messages.values()]


@modes
def test_on_a_host_long_bodies_go_as_they_are_both_ways(mode: int) -> None:
    pair = Pair(mode, HOST_FRAME_SIZE)
    for size in (6_000, 20, 953, 32_000, 200, 980, 2_000, 32_600, 5):
        assert pair.ours.publish(b"A" * size, pair.now_ms)
        pair.publish_there(b"N" * size)
        pair.round()
    for _ in range(2_000):
        pair.round()
        counts = (len(pair.ours.log()), len(pair.bodies_there()))
        if counts == (18, 18) and pair.is_idle() and pair.foreign.is_idle("A"):
            break
    assert set(pair.ours.log()) == pair.foreign.messages.keys() and pair.is_idle()
    assert len(pair.bodies_there()) == 18 and pair.foreign.is_idle("A")
    assert not pair.unknown, "nothing but what the text has"
    assert not passed_over(pair.ours, "N") and not pair.ours.node.malformed
    check_causal(pair.ours)


@modes
def test_frames_stay_short_but_for_a_message_that_is_longer(mode: int) -> None:
    """A peer that we do not know yet may be one of our boards: small ones reach it."""
    pair = Pair(mode, HOST_FRAME_SIZE)
    for number, size in enumerate((100, 2_000, 100, 900, 100, 3_000, 20)):
        assert pair.ours.publish(b"%d" % number * size)
    pair.round(100 * EPOCH_ROUNDS)
    assert len(pair.bodies_there()) == 7 and pair.is_idle()
    long = {size for size in pair.sizes if size > 1_024}
    assert len(long) == 2 and max(long) < 3_000 + 100, "none has another message beside it"


@modes
@pytest.mark.parametrize("pool", [1, 4, 64])
def test_what_fits_no_frame_holds_no_row(mode: int, pool: int) -> None:
    pair = Pair(mode, 1024, pool)
    for number in range(40):
        assert pair.ours.publish(b"%02d" % number * (600 if number % 2 else 10), pair.now_ms)
        if number % 8 == 0:
            pair.round()
    for _ in range(1_000):
        pair.round()
        if len(pair.bodies_there()) == 20 == passed_over(pair.ours, "N") and pair.is_idle():
            break
    assert len(pair.bodies_there()) == 20 and pair.is_idle()
    assert all(len(body) < 100 for body in pair.bodies_there())
    assert passed_over(pair.ours, "N") == 20
    # To ask costs few bytes: 14 in 64 epochs, in the end.
    pair.round(64 * EPOCH_ROUNDS)
    before = len(pair.sizes)
    pair.round(256 * EPOCH_ROUNDS)
    assert pair.sizes[before:] == [14] * len(pair.sizes[before:]) and pair.unknown
    assert 3 <= len(pair.sizes) - before <= 6
    assert passed_over(pair.ours, "N") == 20


@modes
def test_a_peer_is_not_taken_to_hold_what_was_passed_over(mode: int) -> None:
    """Else its deletion would be forgotten while a copy can still come from the peer."""
    pair = Pair(mode, 1024, 4)
    for number in range(6):
        assert pair.ours.publish(b"%02d" % number * (600 if number % 2 else 10), pair.now_ms)
    for _ in range(1_000):
        pair.round()
        if len(pair.bodies_there()) == 3 and pair.is_idle():
            break
    lacking = [
        (message.size > FRAME_SIZE_MAX, host_api.lacking_peers(pair.ours.node, message.handle))
        for message in host_api.messages(pair.ours.store)
    ]
    assert lacking == [(False, []), (True, [pair.ours.numbers["N"]])] * 3


@modes
def test_a_peer_that_asks_for_what_fits_no_frame_takes_no_row_either(mode: int) -> None:
    pair = Pair(mode, 1024, pool=1)
    id = pair.ours.publish(b"x" * 5_000)
    pair.foreign.state["A"][id] = mvds.Record("REQUEST", 0)
    pair.round(40)
    assert pair.ours.publish(b"small", pair.now_ms)
    pair.round(200)
    assert pair.bodies_there() == [b"small"] and passed_over(pair.ours, "N") == 1


# --- when it can be delivered after all ---


def reboot(net: Network, name: str, frame_size: int = 1024) -> None:
    member = net.members[name]
    member.node.save(net.now_ms)
    member.files.power_cut(1 << 20)  # nothing is lost, but no file stays open
    member.start()
    member.boot(net.now_ms)
    net.connect(member)
    net.frame_size = frame_size


@modes
@pytest.mark.parametrize("reboots", [0, 3])
def test_a_peer_that_reads_segments_later_gets_all_that_was_passed_over(
    mode: int, reboots: int
) -> None:
    net = network("AB", ["AB"], mode)
    a = net.members["A"]
    line = net.lines["A", "B"]
    line.take = lambda: [frame for frame in Line.take(line) if frame[0] != SEGMENT]
    for number in range(30):
        assert a.publish(b"%02d" % number * (600 if number % 3 else 4), net.now_ms)
        net.round()
    # A child of one that was passed over waits for it, and is acknowledged.
    net.run(lambda: not a.node.outstanding(a.numbers["B"]), 60 * EPOCH_ROUNDS)
    waiting = passed_over(a, "B")
    assert waiting > 10
    for _ in range(reboots):
        reboot(net, "A")
        for _ in range(8 * EPOCH_ROUNDS):
            net.round()
    assert passed_over(a, "B") == waiting
    del line.take  # from now on the peer reads segments
    outbox = a.links["B"].exchange.outbox
    before = outbox.cursor
    sent = net.lines["A", "B"].bytes
    net.run(lambda: net.complete(30) and not any_passed_over(net), 400 * EPOCH_ROUNDS)
    assert outbox.cursor == before, "nothing else is sent again"
    assert net.lines["A", "B"].bytes - sent < 1.2 * sum(
        len(a.body(handle)) + 60 for handle in handles(a)
    )


@modes
@pytest.mark.parametrize("pool", [1, 2, 4])
@pytest.mark.parametrize("longs", [2, 9])
def test_what_was_passed_over_has_room_beside_what_waits_for_it(
    mode: int, pool: int, longs: int
) -> None:
    """The peer refuses the small ones until it has the long ones, which are before them."""
    net = network("AB", ["AB"], mode, pool)
    a = net.members["A"]
    line = net.lines["A", "B"]
    line.take = lambda: [frame for frame in Line.take(line) if frame[0] != SEGMENT]
    for number in range(longs + 9):
        assert a.publish(b"%02d" % number * (600 if number < longs else 4), net.now_ms)
    for _ in range(20 * EPOCH_ROUNDS):
        net.round()
    assert passed_over(a, "B") == longs
    assert not net.members["B"].log()
    del line.take  # from now on the peer reads segments
    net.run(lambda: net.complete(longs + 9) and not any_passed_over(net), 200 * EPOCH_ROUNDS)
    check_causal(net.members["B"])


def test_an_ack_of_the_first_one_without_a_row_lets_the_next_be_asked_for() -> None:
    """Who has the first from another answers the question for it with an ACK, not a state."""
    net = network("AB", ["AB"], BATCH, 1)
    a, b = net.members.values()
    for number in range(2):
        body = b"\x00" + b"%02d" % number * 600
        for member in (a, b) if number == 0 else (a,):
            assert member.node.publish(member.group, body, len(body), stamp(number), 0) > 0
    back = net.lines["B", "A"]
    back.take = lambda: [frame for frame in Line.take(back) if frame[0] != SEGMENT]
    net.run(lambda: len(b.log()) == 2 and not passed_over(a, "B"), 200 * EPOCH_ROUNDS)


def test_who_is_away_is_not_given_up_as_one_that_knows_no_segments() -> None:
    """The log keeps what is too long for it until it was there and did not answer six times."""
    net = network("AB", ["AB"])
    a = net.members["A"]
    assert a.publish(b"abc" * 500)
    passed_over = passed_over_of(a.node.core)
    link = a.links["B"]
    asked = 0
    for epoch in range(600):
        net.now_ms += EPOCH_MS
        if epoch >= 300:
            link.hear(net.now_ms)  # some other frame of its
        asked += len(frames(net, "A", "B"))
        if not passed_over.needed_from(link.peer):
            break
        assert epoch < 300 or asked < 16
        assert passed_over.needed_from(link.peer) == a.store.next(0)
    assert 10 < asked and 300 + 4 * 64 < epoch < 600


def test_what_the_peer_has_from_others_costs_one_question_each() -> None:
    """An ACK answers a question: the next one goes then, not after a further step of back-off."""
    net = network("AB", ["AB"], BATCH, 1)
    a, b = net.members.values()
    for number in range(8):
        body = b"\x00" + b"%02d" % number * 600
        for member in (a, b) if number < 7 else (a,):
            assert member.node.publish(member.group, body, len(body), stamp(number), 0) > 0
    back = net.lines["B", "A"]
    back.take = lambda: [frame for frame in Line.take(back) if frame[0] not in (SEGMENT, STATE)]
    net.run(lambda: passed_over(a, "B") == 1, 30 * EPOCH_ROUNDS)
    del back.take
    net.run(lambda: len(b.log()) == 8 and not passed_over(a, "B"), 10 * EPOCH_ROUNDS)


def test_what_is_on_its_way_after_all_is_counted_once() -> None:
    net = network("AB", ["AB"])
    a = net.members["A"]
    for number in range(3):
        assert a.publish(b"%02d" % number * 600)
    undeliverable = Undeliverable(a.node)
    owed = []
    while not net.complete(3):
        net.round()
        owed.append(undeliverable.count(a.numbers["B"]) + a.node.outstanding(a.numbers["B"]))
    assert owed == sorted(owed, reverse=True) and set(owed) == {3, 2, 1, 0}


def handles(member: Member) -> list[int]:
    handles = []
    handle = member.store.next(0)
    while handle:
        handles.append(handle)
        handle = member.store.next(handle)
    return handles


@pytest.mark.parametrize("with_reboot", [False, True])
def test_a_link_with_longer_frames_takes_what_was_passed_over(with_reboot: bool) -> None:
    pair = Pair(BATCH, 1024)
    for number in range(12):
        assert pair.ours.publish(b"%02d" % number * 600, pair.now_ms)
        pair.round()
    assert passed_over(pair.ours, "N") == 12
    if with_reboot:
        pair.ours.node.save(pair.now_ms)
        pair.ours.start()
        pair.connect()
        assert passed_over(pair.ours, "N") == 12
    pair.frame_size = HOST_FRAME_SIZE
    pair.round(100 * EPOCH_ROUNDS)
    assert len(pair.bodies_there()) == 12 and not passed_over(pair.ours, "N")


@pytest.mark.parametrize("pool", [1, 4, 64])
def test_a_stick_takes_what_a_line_passed_over(pool: int) -> None:
    """What is acknowledged with its whole bundle is what is queued, also what was passed over."""
    net = network("AB", ["AB"], BATCH, pool)
    a, b = members = (net.members["A"], net.members["B"])
    line = net.lines["A", "B"]
    line.take = lambda: [frame for frame in Line.take(line) if frame[0] != SEGMENT]
    for number in range(12):
        body = b"\x00" + b"%02d" % number * (600 if number % 2 else 4)  # no parents
        a.node.publish(a.group, body, len(body), stamp(number), 0)
    net.run(lambda: passed_over(a, "B") == 6, 60 * EPOCH_ROUNDS)
    net.run(lambda: not a.node.outstanding(a.numbers["B"]), 60 * EPOCH_ROUNDS)
    for here, there in (("A", "B"), ("B", "A")):
        member = net.members[here]
        member.links[there] = member.node.link(
            member.numbers[there], PROFILE_MVDS_1, CARRIER_STICK, 0, BATCH
        )
    stick = Stick()
    settle(members, stick, 20)
    same_logs(members, 12)
    assert not passed_over(a, "B") and not b.node.duplicates


# --- bytes ---


@pytest.mark.parametrize("profile", [PROFILE_MVDS_1, PROFILE_MVDS_NESTED, PROFILE_MVDS_5001])
@pytest.mark.parametrize("size", range(915, 960, 4))
def test_what_is_about_as_long_as_a_frame_arrives_or_waits(profile: int, size: int) -> None:
    """No size is neither short nor long: an answer of the other end settles it."""
    net = network("AB", ["AB"], profile=profile)
    a = net.members["A"]
    assert a.publish(b"x" * size)
    assert a.publish(b"y" * size)
    net.run(lambda: net.complete(2) and not any_passed_over(net), 60 * EPOCH_ROUNDS)
    assert 0 < OVERHEAD_MAX < 1024 - 915


def test_the_question_is_the_last_byte_and_the_answer_a_state() -> None:
    net = network("AB", ["AB"])
    assert net.members["A"].publish(b"abc" * 500)
    content = 40 + 1 + 1500
    asked = frames(net, "A", "B")
    key = net.members["A"].log()[0][:8]
    assert asked == [
        bytes([SEGMENT])
        + key
        + content.to_bytes(2, "big")
        + (content - 1).to_bytes(2, "big")
        + b"c"
    ]
    assert not give(net, "A", "B", asked)[0]
    net.now_ms += EPOCH_MS
    assert frames(net, "B", "A") == [bytes([STATE]) + key + bytes(2)]
