"""`wake_ms`: who sleeps exactly as long as it says sends exactly what a busy loop sends."""

import pytest

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.engine.states import GOT_ACK
from drupelet.node import BATCH, CARRIER_MQTT, CARRIER_STICK, INTERACTIVE, PROFILE_BSP_1
from helpers import Draw, Member
from repeats import few

END_MS = 400_000
STEP_MS = 10


class Line:
    """Two members, one or two carriers, 130 ms between them."""

    def __init__(self, seed: int, mode: int, epochs_ms: tuple[int, int], loss: int) -> None:
        self.draw = Draw(seed)
        self.loss = loss
        self.members = [Member(name, Draw(seed + i), pool=4) for i, name in enumerate("AB")]
        self.links = []
        for member, name in zip(self.members, "BA", strict=True):
            member.peers.append(name)
            member.add(name)
            member.boot()
            carriers = (0, CARRIER_MQTT) if epochs_ms[1] else (0,)
            self.links.append(
                [
                    member.node.link(member.numbers[name], PROFILE_BSP_1, carrier, epoch_ms, mode)
                    for carrier, epoch_ms in zip(carriers, epochs_ms, strict=False)
                ]
            )
        self.flying: list[tuple[int, int, int, bytes]] = []
        self.sent: list[tuple[int, int, bytes]] = []
        self.polls = 0
        self.idle_polls = 0

    def turn(self, now_ms: int, side: int) -> None:
        """Serve one member's carriers until they have nothing."""
        frame = bytearray(1024)
        for number, link in enumerate(self.links[side]):
            count = len(self.sent)
            size = link.poll_into(frame, now_ms)
            self.polls += 1
            while size:
                self.sent.append((now_ms, side, bytes(frame[:size])))
                if self.draw(1000) >= self.loss:
                    self.flying.append((now_ms + 130, 1 - side, number, bytes(frame[:size])))
                size = link.poll_into(frame, now_ms)
            self.idle_polls += len(self.sent) == count
        self.members[side].consume()

    def arrive(self, now_ms: int) -> set[int]:
        due = [item for item in self.flying if item[0] <= now_ms]
        self.flying = [item for item in self.flying if item[0] > now_ms]
        for _, side, number, frame in due:
            self.links[side][number].receive(bytearray(frame), len(frame), now_ms)
        return {side for _, side, _, _ in due}


def run(line: Line, busy: bool) -> None:
    """Publish at set times, and serve each side at every step or when it is due."""
    due = [0, 0]
    for now_ms in range(0, END_MS, STEP_MS):
        for side in line.arrive(now_ms):
            due[side] = now_ms
        if now_ms % 7_300 == 0 and now_ms < 150_000:
            side = now_ms // 7_300 % 2
            for number in range(1 + now_ms // 7_300 % 3):
                line.members[side].publish(b"%d %d" % (now_ms, number), now_ms)
            due[side] = now_ms
        for side in (0, 1):
            if busy or due[side] <= now_ms:
                line.turn(now_ms, side)
                wait_ms = line.members[side].node.wake_ms(now_ms)
                assert 0 < wait_ms <= WAIT_MS_MAX, "nothing is due right after a poll"
                due[side] = now_ms + wait_ms


@pytest.mark.parametrize(
    ("mode", "loss"), few(2, [(BATCH, 300), (INTERACTIVE, 0), (BATCH, 0), (INTERACTIVE, 300)])
)
@pytest.mark.parametrize("epochs_ms", [(1000, 0), (1000, 3000), (2500, 500)], ids=str)
def test_sleeping_misses_nothing(mode: int, epochs_ms: tuple[int, int], loss: int) -> None:
    lines = [Line(5, mode, epochs_ms, loss) for _ in range(2)]
    for line, busy in zip(lines, (True, False), strict=True):
        run(line, busy)
        assert len(line.members[0].log()) == len(line.members[1].log()) == 42
    awake, asleep = lines
    # Steps of 10 ms: an epoch that begins between two is met at the next one.
    times = [[(now_ms // 10, *rest) for now_ms, *rest in line.sent] for line in lines]
    assert times[0] == times[1]
    assert asleep.polls < awake.polls / 20
    # Two links take turns, and the one that was last lets the other look first.
    assert asleep.idle_polls < 6 * len(asleep.sent) + 60, "it hardly ever wakes in vain"


def test_nothing_outstanding_sleeps_for_days() -> None:
    line = Line(1, BATCH, (1000, 0), 0)
    run(line, False)
    for member in line.members:
        assert member.node.wake_ms(END_MS) == WAIT_MS_MAX
        member.publish(b"new", END_MS)
        assert member.node.wake_ms(END_MS) == 0


def test_a_silent_peer_costs_ever_fewer_wakes() -> None:
    line = Line(1, BATCH, (1000, 0), 1000)
    line.members[0].publish(b"1")
    now_ms = 0
    wakes = []
    for _ in range(12):
        line.turn(now_ms, 0)
        wakes.append(line.members[0].node.wake_ms(now_ms))
        now_ms += wakes[-1]
    assert [round(wake / 1000) for wake in wakes[1:]] == [4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64]
    assert len(line.sent) == 12


def test_the_wrap_of_the_clock_is_nothing() -> None:
    member = Member("A", Draw(1), pool=4)
    member.peers.append("B")
    member.add("B")
    member.boot()
    now_ms = (1 << 30) - 2500
    link = member.node.link(member.numbers["B"], PROFILE_BSP_1, 0, 1000, BATCH, now_ms)
    member.publish(b"1")
    frame = bytearray(1024)
    sent = 0
    for _ in range(8):
        while link.poll_into(frame, now_ms):
            sent += 1
        wait_ms = member.node.wake_ms(now_ms)
        assert 0 < wait_ms <= 64_000
        now_ms = (now_ms + wait_ms) & 0x3FFFFFFF
    assert sent == 8 and now_ms < 1 << 29


def test_a_stick_never_wakes_anybody() -> None:
    member = Member("A", Draw(1), pool=4)
    member.peers.append("B")
    member.add("B")
    member.boot()
    member.node.link(member.numbers["B"], PROFILE_BSP_1, CARRIER_STICK, 0, BATCH)
    member.publish(b"1")
    assert member.node.wake_ms(0) == WAIT_MS_MAX


def test_a_log_that_waits_for_room_wakes_once_an_epoch() -> None:
    """Rows are full; another link hears that the peer holds them, and this one notices."""
    member = Member("A", Draw(1), pool=2)
    member.peers.append("B")
    member.add("B")
    member.boot()
    core = member.node.core
    link = member.node.link(member.numbers["B"], PROFILE_BSP_1, 0, 1000, BATCH)
    for number in range(3):
        member.publish(b"reading %d" % number)
    outbox = core.outboxes[0]
    frame = bytearray(1024)
    assert link.poll_into(frame, 0) > 0 and outbox.open_count == outbox.count == 2
    while link.poll_into(frame, 0):
        pass
    assert link.wake_ms(0) > 1000, "the back-off of what was sent"
    for row in range(outbox.count):
        outbox.step(row, GOT_ACK)
    link.hear(0)  # the peer is there
    assert 0 < link.wake_ms(0) <= 1000
    size = link.poll_into(frame, 1000)
    assert b"reading 2" in frame[:size]
    assert outbox.count == 2 and outbox.open_count == 1
