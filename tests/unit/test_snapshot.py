"""Snapshots for deep sleep: what they save, and that a wrong one is as good as none."""

from typing import Any

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    GENERATIONS_APART,
    SNAPSHOT_KEYS_SIZE,
    SNAPSHOT_SHORT_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.duty.snapshot import Snapshot
from drupelet.duty.wake_plan import WakePlan
from drupelet.engine import wake_state
from drupelet.engine.states import HOLD, REQUEST
from drupelet.engine.wake_state import STATE_HEAD_SIZE, STATE_PEER_SIZE
from drupelet.link.link import PROFILE_COMPACT_1
from drupelet.node import BATCH, INTERACTIVE
from helpers import EPOCH_MS, Draw, Member, Network, check_causal

DEVICE = b"A___"
ROUNDS_MAX = 2_000


class Sleepy(Network):
    """A network whose member A loses its RAM on demand; a snapshot may bring it back."""

    def __init__(self, seed: int, mode: int = BATCH, **faults: Any) -> None:
        draw = Draw(seed)
        super().__init__(
            draw, [Member(name, draw, pool=16) for name in "AB"], ["AB"], mode, **faults
        )
        self.a = self.members["A"]
        self.rtc = bytearray(WAKE_STATE_SIZE_MAX)
        self.size = 0

    def links(self) -> list:
        return list(self.a.links.values())

    def sleep(self, plan: WakePlan | None = None) -> None:
        """Save what would be lost; the last thing before RAM goes."""
        node = self.a.node
        assert self.a.store.barrier() == OK
        snapshot = Snapshot(DEVICE)
        size = wake_state.pack(node.core, snapshot.state_room(node.core.members.peers))
        self.size = snapshot.write(self.rtc, node.core, self.links(), plan, size, self.now_ms)
        assert 0 < self.size <= WAKE_STATE_SIZE_MAX

    def off(self) -> None:
        """RAM is gone, and what was not flushed."""
        self.a.files.power_cut()
        self.a.start()

    def wake(self, slept_ms: int, plan: WakePlan | None = None, usable: bool = True) -> int:
        """Boot with what the RTC memory holds; how `read` liked it."""
        self.now_ms += slept_ms
        member = self.a
        self.off()
        snapshot = Snapshot(DEVICE)
        code = snapshot.read(self.rtc, self.size, member.store) if usable else E_STORAGE
        member.boot(self.now_ms, snapshot.generation)
        self.connect(member)
        if code == OK:
            core = member.node.core
            snapshot.apply(self.rtc, core, self.links(), plan, self.now_ms, slept_ms)
        return code

    def sent(self) -> int:
        return self.lines["A", "B"].bytes


def silent_nights(usable: bool, seed: int) -> int:
    """Bytes that A sends in 40 wakes of one epoch each while nobody hears it."""
    network = Sleepy(seed)
    for number in range(8):
        network.a.publish(b"%d" % number)
    network.a.node.save(0)
    network.lines["A", "B"].loss = 1000
    before = network.sent()
    for _ in range(40):
        for _ in range(EPOCH_MS // 250):
            network.round()
        network.sleep()
        assert network.wake(300, usable=usable) == (OK if usable else E_STORAGE)
    sent = network.sent() - before
    network.lines["A", "B"].loss = 0
    network.run(lambda: network.complete(8), ROUNDS_MAX)
    return sent


@pytest.mark.parametrize("seed", [1, 2])
def test_back_off_goes_on_over_deep_sleep(seed: int) -> None:
    with_it, without = silent_nights(True, seed), silent_nights(False, seed)
    # 40 epochs of 1.3 s: sent after 2, 4, 8, 16 and 32 epochs, instead of at each wake.
    assert with_it * 4 < without
    assert with_it > 0


@pytest.mark.parametrize("seed", range(6))
def test_everything_arrives_once_whatever_is_slept_through(seed: int) -> None:
    network = Sleepy(seed, INTERACTIVE if seed % 2 else BATCH, loss=200)
    count = 0
    for wake in range(25):
        for member in network.members.values():
            if network.draw(2):
                count += 1
                member.publish(b"%d" % count, network.now_ms)
        for _ in range(1 + network.draw(10)):
            network.round()
        network.sleep()
        if network.draw(4) == 0:
            network.rtc[network.draw(network.size)] ^= 4  # refused: as good as none
            network.a.node.save(network.now_ms)
            assert network.wake(network.draw(4000)) == E_STORAGE, wake
        else:
            assert network.wake(network.draw(4000)) == OK, wake
    network.run(lambda: network.complete(count), ROUNDS_MAX)
    for member in network.members.values():
        check_causal(member)


def test_who_holds_what_survives_without_a_flash_program() -> None:
    results = []
    for usable in (True, False):
        network = Sleepy(3)
        for number in range(10):
            network.a.publish(b"%d" % number)
        network.run(lambda network=network: network.complete(10), 200)
        network.sleep()
        before = network.sent()
        assert network.wake(500, usable=usable) == (OK if usable else E_STORAGE)
        for _ in range(40):
            network.round()
        results.append(network.sent() - before)
    assert results[0] == 0 < results[1], "without a snapshot it is all sent again"


def test_clocks_and_the_wake_plan_go_on() -> None:
    network = Sleepy(4)
    plan = WakePlan(60_000, 3_000, 600, 1, DEVICE, 0, 17_000)
    plan.seek(0, b"B___", 0)
    network.a.publish(b"to be heard")
    for _ in range(17):
        network.round()
    clocks, peer = network.a.node.core.clocks, network.links()[0].peer
    assert network.links()[0].exchange.pace.heard_epoch >= 0
    start, wakes = clocks.start_ms(peer), plan.next_wake_ms(network.now_ms)
    silent = (clocks.epochs[peer] - network.links()[0].exchange.pace.heard_epoch) % 65536
    network.sleep(plan)
    after = WakePlan(60_000, 3_000, 600, 1, DEVICE, 0, 1)
    after.seek(0, b"B___", 0)
    assert network.wake(700, after) == OK
    clocks, peer = network.a.node.core.clocks, network.links()[0].peer
    assert (clocks.start_ms(peer) - start) % EPOCH_MS == 0
    assert after.next_wake_ms(network.now_ms) == wakes - 700
    assert after.probe == plan.probe and network.links()[0].exchange.pace.heard_epoch >= 0
    clocks.advance(peer, network.now_ms)
    now_silent = (clocks.epochs[peer] - network.links()[0].exchange.pace.heard_epoch) % 65536
    assert silent <= now_silent <= silent + 1


def numbers_of(network: Sleepy) -> list[int]:
    """A's numbers for the messages that have a row for B."""
    outbox = network.a.node.core.outboxes[0]
    return [outbox.number(row) for row in range(outbox.count)]


@pytest.mark.parametrize("form", ["long", "short"])
def test_numbers_begin_anew_in_a_generation_of_the_wake(form: str) -> None:
    network = Sleepy(5, profile=PROFILE_COMPACT_1)
    generations = []
    boots = []
    for wake in range(4):
        # Only after the first of them is it gone before it was heard.
        network.lines["A", "B"].loss = 0 if wake else 1000
        network.a.publish(b"%d" % wake)
        for _ in range(8):
            network.round()
        link = network.links()[0]
        assert 1 in numbers_of(network), "it uses number 1"
        link.codec.use(link.exchange)
        generations.append(link.codec.generation())
        boots.append(network.a.node.core.boot)
        if form == "short":
            network.rtc = short(network)
            network.size = len(network.rtc)
        else:
            network.sleep()
        assert network.wake(300, usable=wake < 2) == (OK if wake < 2 else E_STORAGE)
    first = GENERATIONS_APART
    assert boots == [1, 1, 1, 2]
    assert generations == [first, first + 1, first + 2, 2 * first & 0xFFFF]
    network.run(lambda: network.complete(4), ROUNDS_MAX)


# --- wrong ones ---


def asleep() -> Sleepy:
    network = Sleepy(7)
    for number in range(3):
        network.a.publish(b"%d" % number)
    network.run(lambda: network.complete(3), 200)
    network.sleep()
    return network


def refused(network: Sleepy, buf: bytearray, size: int, device: bytes = DEVICE) -> bool:
    member = network.a
    before = bytes(member.store.saved), member.store.saved_size
    snapshot = Snapshot(device)
    code = snapshot.read(buf, size, member.store)
    untouched = before == (bytes(member.store.saved), member.store.saved_size)
    assert (snapshot.generation < 0) == (code != OK)
    return code == E_STORAGE and untouched


def test_a_snapshot_is_good_once() -> None:
    network = asleep()
    network.off()
    again = bytearray(network.rtc)
    assert Snapshot(DEVICE).read(network.rtc, network.size, network.a.store) == OK
    assert network.rtc[0] == 0 and network.rtc[1:] == again[1:]
    assert refused(network, network.rtc, network.size)


def test_every_flipped_bit_and_every_torn_end_is_refused() -> None:
    network = asleep()
    network.off()
    good = bytes(network.rtc[: network.size])
    assert not refused(network, bytearray(good), len(good))
    network.off()
    for bit in range(8 * len(good)):
        buf = bytearray(good)
        buf[bit // 8] ^= 1 << bit % 8
        assert refused(network, buf, len(buf)), bit
    for size in range(len(good)):
        assert refused(network, bytearray(good[:size]), size), size
        torn = bytearray(good[:size] + bytes(len(good) - size))
        assert torn == good or refused(network, torn, len(torn)), size
    for value in (0, 1, 2, 255):
        assert refused(network, bytearray([value] * WAKE_STATE_SIZE_MAX), WAKE_STATE_SIZE_MAX)


def test_another_devices_snapshot_is_refused() -> None:
    network = asleep()
    network.off()
    assert refused(network, bytearray(network.rtc), network.size, b"B___")


def test_an_old_snapshot_is_refused() -> None:
    network = asleep()
    old = bytearray(network.rtc)
    network.a.publish(b"since then")
    network.a.store.barrier()
    network.off()
    assert refused(network, bytearray(old), network.size), "the log went on"

    network = asleep()
    old = bytearray(network.rtc)
    assert network.wake(100, usable=False) == E_STORAGE
    assert network.a.store.barrier() == OK  # before it, nothing of that boot counts
    network.off()
    assert refused(network, bytearray(old), network.size), "another boot"


def test_one_that_does_not_fit_is_not_written() -> None:
    network = asleep()
    core = network.a.node.core
    snapshot = Snapshot(DEVICE)
    size = wake_state.pack(core, snapshot.state_room(1))
    before = bytes(network.rtc)
    for room in (0, 28, network.size - 1):
        small = bytearray(room)
        assert snapshot.write(small, core, [], None, size, 0) == E_CAPACITY
        assert small == bytes(room)
    too_long = snapshot.state_room(1) + 1
    assert snapshot.write(network.rtc, core, [], None, too_long, 0) == E_CAPACITY
    assert network.rtc == before


def test_the_room_that_is_promised() -> None:
    snapshot = Snapshot(DEVICE)
    # docs/SPEC.md 10.3: peers -> bytes for the wake state, messages in it.
    for peers, room, messages in ((1, 345, 63), (4, 291, 39), (8, 219, 7)):
        assert snapshot.state_room(peers) == room
        assert (room - STATE_HEAD_SIZE - STATE_PEER_SIZE * peers) // 5 == messages
    network = asleep()
    at = snapshot.keys_at
    network.rtc[at : at + SNAPSHOT_KEYS_SIZE] = bytes(range(SNAPSHOT_KEYS_SIZE))
    network.sleep()
    network.off()
    assert snapshot.read(network.rtc, network.size, network.a.store) == OK
    assert network.rtc[at : at + SNAPSHOT_KEYS_SIZE] == bytes(range(SNAPSHOT_KEYS_SIZE))


# --- what is owed ---


def busy_wakes(network: Sleepy, wakes: int) -> None:
    """A sends something new at each wake, before anything comes, and sleeps again."""
    for number in range(wakes):
        network.a.publish(b"wake %d" % number, network.now_ms)
        network.round()
        network.sleep()
        assert network.wake(EPOCH_MS) == OK


def test_who_always_has_something_to_send_acknowledges_all_the_same() -> None:
    network = Sleepy(11)
    b = network.members["B"]
    b.publish(b"for the sleeper")
    busy_wakes(network, 16)
    assert b.node.outstanding(b.numbers["A"]) == 0


def test_who_always_has_something_to_offer_sends_what_was_asked_for() -> None:
    network = Sleepy(11, INTERACTIVE)
    busy_wakes(network, 16)
    assert len(network.members["B"].log()) > 8


def owing(network: Sleepy) -> tuple[list[int], list[bytes]]:
    """Three of B's messages at A: it asks for the second one, which it has lost, and the third one
    is not acknowledged yet; handles and ids."""
    a, b = network.members.values()
    for number in range(3):
        b.publish(b"%d" % number)
    network.run(lambda: network.complete(3), 200)
    ids = a.log()
    handles = [a.store.find(id, 0) for id in ids]
    exchange = a.links["B"].exchange
    exchange.on_request(bytearray(ids[1]), 0)
    exchange.inbox.owe(handles[2], 0, 0, False)
    return handles, ids


def acks(network: Sleepy) -> list[bytes]:
    """What A acknowledges to B from now on, until it has nothing more to say."""
    frame = bytearray(1024)
    found = []
    exchange = network.links()[0].exchange
    exchange.rewind()
    while exchange.take_ack(frame, 0):
        found.append(bytes(frame[:32]))
    return found


def test_what_is_owed_comes_first_in_the_wake_state() -> None:
    network = Sleepy(12)
    (_, asked, owed), _ = owing(network)
    a = network.a
    core = a.node.core
    outbox = core.outboxes[0]
    a.publish(b"lacked")
    a.publish(b"held")
    held = outbox.handles[outbox.count - 1]
    outbox.set_state(outbox.count - 1, HOLD)
    # docs/SPEC.md 5.1: bit 30, acknowledgements are owed from here on; bit 31, it was asked for.
    # Of `limit` the rows at the end may be cut.
    rows = [
        handle.to_bytes(4, "big") + b"\1" for handle in (owed | 1 << 30, asked | 1 << 31, held)
    ]
    for limit, count in ((30, 0), (34, 0), (35, 1), (39, 1), (40, 2), (44, 2), (45, 3), (345, 3)):
        size = wake_state.pack(core, limit)
        assert bytes(core.store.saved[30:size]) == b"".join(rows[:count])
    outbox.note_sent(outbox.row_of(asked), 1, 0)
    size = wake_state.pack(core, 345)
    assert bytes(core.store.saved[30:size]) == rows[0] + rows[2], "it was sent already"


@pytest.mark.parametrize("form", ["long", "short"])
def test_what_is_owed_is_owed_after_the_sleep(form: str) -> None:
    network = Sleepy(13)
    _, ids = owing(network)
    if form == "short":
        network.rtc = short(network)
        network.size = len(network.rtc)
    else:
        network.sleep()
    assert network.wake(300) == OK
    core = network.a.node.core
    outbox = core.outboxes[0]
    row = outbox.find(ids[1], 0)
    assert outbox.state(row) & (HOLD | REQUEST) == REQUEST
    assert outbox.sends(row) == 0, "due at once"
    assert core.inboxes[0].owes()
    assert acks(network) == [ids[2]]
    assert not core.inboxes[0].owes(), "it is said once"
    for _ in range(8):
        network.round()
    assert not outbox.state(outbox.find(ids[1], 0)) & REQUEST


def test_what_was_taken_in_behind_what_is_owed_is_owed_after_the_sleep() -> None:
    """The acknowledgements are lost with RAM, the handle from which on they are owed is not."""
    network = Sleepy(13)
    a, b = network.members.values()
    for number in range(12):
        b.publish(b"%d" % number)
        a.publish(b"own %d" % number)
    network.lines["A", "B"].loss = 1000
    for _ in range(4):
        network.round()
    theirs = [id for id in a.log() if id in b.log()]
    assert len(theirs) == 12
    # A sleeps before its acknowledgements leave.
    inbox = a.node.core.inboxes[0]
    inbox.owed_end = 0
    for id in theirs[4:]:
        inbox.owe(a.store.find(id, 0), 0, 0, False)
    network.sleep()
    assert network.wake(300) == OK
    assert acks(network) == theirs[4:], "its own messages are not acknowledged to B"


def test_a_copy_that_came_again_is_acknowledged_by_who_sleeps_behind_each_frame() -> None:
    """The acknowledgement of the first copy was lost; each later one comes just before a sleep."""
    network = Sleepy(16)
    a, b = network.members.values()
    b.publish(b"for the sleeper")
    network.lines["A", "B"].loss = 1000
    for _ in range(12):
        network.round()
    assert len(a.log()) == 1 and b.node.outstanding(b.numbers["A"]) == 1
    network.lines["A", "B"].loss = 0
    frame = bytearray(1024)
    for _ in range(100):
        network.now_ms += EPOCH_MS
        while size := network.links()[0].poll_into(frame, network.now_ms):
            b.links["A"].receive(frame, size, network.now_ms)
        while size := b.links["A"].poll_into(frame, network.now_ms):
            network.links()[0].receive(frame, size, network.now_ms)
        a.consume()
        network.sleep()
        assert network.wake(300) == OK
    assert b.node.outstanding(b.numbers["A"]) == 0


def test_a_pending_message_is_acknowledged_after_the_sleep() -> None:
    network = Sleepy(14)
    a, b = network.members.values()
    b.publish(b"parent")
    child = b.publish(b"child")
    frame = bytearray(1024)
    outbox = b.node.core.outboxes[0]
    outbox.set_state(0, HOLD)  # only the child goes
    size = b.links["A"].poll_into(frame, network.now_ms)
    a.links["B"].receive(frame, size, network.now_ms)
    assert a.node.pending_count() == 1 and a.log() == []
    network.sleep()
    assert network.wake(300) == OK
    assert a.node.pending_count() == 1
    assert acks(network) == [child]


# --- 28 bytes ---


def short(network: Sleepy, plan: WakePlan | None = None) -> bytearray:
    core = network.a.node.core
    assert wake_state.save(core) == OK and network.a.store.barrier() == OK
    buf = bytearray(SNAPSHOT_SHORT_SIZE)
    assert Snapshot(DEVICE).write_short(buf, core, plan, network.now_ms) == len(buf) == 28
    return buf


def test_the_short_form_rests_on_one_flash_program() -> None:
    network = asleep()
    plan = WakePlan(60_000, 3_000, 600, 1, DEVICE, 0, 17_000)
    network.rtc = short(network, plan)
    network.size = len(network.rtc)
    wakes = plan.next_wake_ms(network.now_ms)
    before = network.sent()
    after = WakePlan(60_000, 3_000, 600, 1, DEVICE, 0, 1)
    consumed = network.a.node.core.consumed
    assert network.wake(900, after) == OK
    assert after.next_wake_ms(network.now_ms) == wakes - 900
    assert network.a.node.core.consumed == consumed > 0
    for _ in range(40):
        network.round()
    assert network.sent() == before, "the wake state on flash knows who holds what"


def test_a_wrong_short_form_is_refused() -> None:
    network = asleep()
    good = short(network)
    network.off()
    for bit in range(8 * len(good)):
        buf = bytearray(good)
        buf[bit // 8] ^= 1 << bit % 8
        assert refused(network, buf, len(buf)), bit
    assert refused(network, good[:27], 27)
    assert refused(network, bytearray(good), 28, b"B___")
    assert not refused(network, good, 28)
    assert refused(network, good, 28), "once"
