"""A black box that goes through deep sleep writes what one that stayed awake would have."""

import random
from types import SimpleNamespace

import pytest

from boards.sleep import Sleeper
from drupelet.base.events import (
    CODE_BATTERY,
    COUNT_CREATED,
    COUNT_LOST,
    STATE_DEEP_SLEEP,
    STATE_IDLE,
    STATE_SEND,
)
from drupelet.base.limits import PART_INCOMING, PARTS_MAX, RTC_SIZE_MAX
from drupelet.telemetry.black_box import BlackBox
from drupelet.telemetry.sleep import rest_into, wake_from
from helpers import Draw, Member, Network, frames, give

DEVICE = b"\x0a\x0b\x0c\x0d"
COUNTERS = (COUNT_CREATED, COUNT_LOST, 64, 66, 159, 160, 191)


def blocks_of(seed: int, sleeps: bool) -> list[bytes]:
    """All blocks and headers of one life; `sleeps`: RAM is lost at every sleep."""
    rng = random.Random(seed)
    box = BlackBox(DEVICE, 3, 2)
    kept = bytearray(RTC_SIZE_MAX)
    out: list[bytes] = []
    now_ms = rng.randrange(1 << 30)
    box.wall(now_ms, (1_700_000_000_000).to_bytes(6, "little"), 3)
    for _ in range(60):
        for _ in range(rng.randrange(12)):
            now_ms = (now_ms + rng.randrange(2000)) & 0x3FFFFFFF
            box.state(now_ms, rng.choice((STATE_IDLE, STATE_SEND)))
            box.log(now_ms, CODE_BATTERY, 0, rng.randrange(4000), 0, 0)
            box.count(rng.choice(COUNTERS), rng.randrange(1 << 20))
        box.flush_counters(now_ms)
        box.state(now_ms, STATE_DEEP_SLEEP)
        while box.ready:
            out += [bytes(box.header)] if box.starts else []
            out.append(bytes(box.block))
            box.take()
        slept_ms = rng.randrange(1 << 22)
        if sleeps:
            end = rest_into(box, kept, 0, len(kept))
            assert end
            box = BlackBox(DEVICE, 3, 2)
            now_ms = rng.randrange(1 << 30)  # another origin
            wake_from(box, kept, 0, end, now_ms, slept_ms)
        else:
            rng.randrange(1 << 30)
            now_ms = (now_ms + slept_ms) & 0x3FFFFFFF
    return out


@pytest.mark.parametrize("seed", range(4))
def test_the_same_bytes_as_without_sleep(seed: int) -> None:
    awake = blocks_of(seed, False)
    assert len(awake) > 10
    assert blocks_of(seed, True) == awake


def test_no_room_is_told() -> None:
    box = BlackBox(DEVICE, 1, 1)
    box.log(0, CODE_BATTERY, 0, 3700, 0, 0)
    box.count(COUNT_CREATED, 1)
    kept = bytearray(64)
    assert rest_into(box, kept, 0, 64) == 52  # 32, one event, one counter
    assert rest_into(box, kept, 0, 51) == 0
    assert rest_into(box, kept, 0, 43) == 0


class RoomyRtc:
    """Memory with room for the black box, which a sleep of a minute leaves as it was."""

    size = RTC_SIZE_MAX
    slept_ms = 60_000
    due_ms = 0
    kept = b""

    def load_into(self, buf: bytearray) -> int:
        buf[: len(self.kept)] = self.kept
        return len(self.kept)

    def forget(self) -> None:
        self.kept = b""

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:  # noqa: ARG002
        self.kept = bytes(buf[:size])
        self.due_ms = due_ms


class Clock:
    """A device's port, as far as its sleep goes."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


def device_of(member: Member, box: BlackBox, clock: Clock) -> SimpleNamespace:
    """A device that samples in 90 s and has no links."""
    return SimpleNamespace(
        node=member.node,
        box=box,
        port=clock,
        seals=[],
        tally=lambda: None,
        drain=lambda: None,
        left_ms=lambda _now_ms: 90_000,
        due_ms=-1,
    )


def last_block(box: BlackBox, now_ms: int) -> bytes:
    box.state(now_ms, STATE_IDLE)
    assert box.finish() and box.ready
    return bytes(box.block)


def test_what_the_start_takes_after_a_wake_belongs_to_the_sleep() -> None:
    """Else a board's clock and its schedule fall behind by it at each wake."""
    awake, box = BlackBox(DEVICE, 3, 2), BlackBox(DEVICE, 3, 2)
    awake.state(5000, STATE_DEEP_SLEEP)
    member, rtc, clock = Member("A", Draw(1)), RoomyRtc(), Clock()
    member.boot()
    clock.ms = 5000
    Sleeper(DEVICE, rtc, 1000, 200, None).rest(device_of(member, box, clock), 60_000)
    assert rtc.kept and rtc.due_ms == 90_000
    sleeper = Sleeper(DEVICE, rtc, 1000, 200, None)
    member.start()
    sleeper.wake(member.store, 70)
    assert sleeper.resumed
    member.boot(70, sleeper.generation)
    woken = BlackBox(DEVICE, 3, 2)
    clock.ms = 370
    assert sleeper.go_on_box(woken, 370)
    assert last_block(woken, 370) == last_block(awake, 5000 + 60_000 + 300)
    device = device_of(member, woken, clock)
    sleeper.start(device)
    assert device.due_ms == 370 + 90_000 - 60_000 - 300
    clock.ms = 1 << 29  # more than a snapshot takes up
    sleeper.start(device)
    assert device.due_ms == clock.ms


def test_what_a_wake_received_of_a_long_message_stays() -> None:
    draw = Draw(1)
    net = Network(draw, [Member(name, draw, pool=16) for name in "SR"], ["SR"])
    assert net.members["S"].publish(bytes(3000))
    give(net, "S", "R", frames(net, "S", "R")[:2])
    receiver = net.members["R"]
    box, rtc = BlackBox(DEVICE, 3, 2), RoomyRtc()
    Sleeper(DEVICE, rtc, 1000, 200, None).rest(device_of(receiver, box, Clock()), 60_000)
    receiver.files.power_cut()
    receiver.start()
    parts = range(PART_INCOMING, PART_INCOMING + PARTS_MAX)
    assert max(receiver.store.spool.part_left(part) for part in parts) == 2 * (1024 - 13)
