"""A device's clock may be absent, wrong or jump: only the label on a message is another one."""

from collections.abc import Callable

import pytest

from drupelet.base.errors import OK
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1
from helpers import EPOCH_MS, Draw, Member

READINGS = 14
HOUR_MS = 3_600_000
NOW_MS = 1_763_700_000_000
EDGE = 1 << 63

Clock = Callable[[int], int]
CLOCKS: dict[str, Clock] = {
    "right": lambda n: NOW_MS + n * 1000,
    "absent": lambda _n: 0,
    "1970": lambda n: n * 1000,
    "hours": lambda n: NOW_MS + (HOUR_MS if n % 2 else -HOUR_MS),
    "fifty years": lambda n: NOW_MS + (n > 6) * 50 * 8766 * HOUR_MS,
    "backwards": lambda n: NOW_MS - n * 86_400_000,
    "edges": lambda n: (EDGE - 1, 0, EDGE - 2, 1)[n % 4],
}


def life(clock: Clock, origin_ms: int) -> tuple[list, list]:
    """Two members with readings, deletions, a reboot of each, in between; what is left of it.

    The clock only labels messages; `origin_ms` is where the time of the node's own begins.
    """
    draw = Draw(11)
    a, b = (Member(name, draw) for name in "AB")
    seen: list[tuple] = []
    now_ms = origin_ms
    for here, there in ((a, b), (b, a)):
        here.peers.append(there.name)
        here.add(there.name)

    def start(here: Member, there: Member) -> None:
        here.boot(now_ms)
        here.links[there.name] = here.node.link(
            here.numbers[there.name], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH, now_ms
        )

    start(a, b)
    start(b, a)
    frame = bytearray(1024)
    for step in range(4 * READINGS):
        now_ms = (now_ms + EPOCH_MS // 2) & 0x3FFFFFFF
        if step % 4 == 0:
            number = step // 4
            body = b"\0%3d" % number
            stamp = clock(number).to_bytes(8)
            here = a if number % 3 else b
            handle = here.node.publish(here.group, body, len(body), stamp, now_ms)
            assert handle > 0
            if number % 5 == 4:
                assert here.node.delete(handle) == OK
        if step in (17, 30):
            here, there = (a, b) if step == 17 else (b, a)
            assert here.node.save(now_ms) == OK and here.store.barrier() == OK
            here.files.power_cut()
            here.start()
            start(here, there)
        for here, there in ((a, b), (b, a)):
            link = here.links[there.name]
            for _ in range(20):
                size = link.poll_into(frame, now_ms)
                seen.append((step, here.name, size, here.node.wake_ms(now_ms)))
                if not size:
                    break
                assert there.links[here.name].receive(frame, size, now_ms) >= 0
            here.consume()
    return seen, [story(member, clock) for member in (a, b)]


def story(member: Member, clock: Clock) -> list[tuple]:
    """The log with states and sizes, and what it cost; labels are compared with the clock."""
    store = member.store
    found: list[tuple] = []
    handle = store.next(0)
    while handle:
        assert store.load(handle) == OK
        label, row = bytes(store.timestamp), (handle, store.state, store.source, store.size)
        body = member.body(handle)
        if body:
            assert label == clock(int(body[1:])).to_bytes(8)
        found.append((*row, body))
        handle = store.next(handle)
    found.append((member.node.delivered, member.node.duplicates, member.node.refused))
    found.append((store.programs, store.erases, store.damaged))
    return found


@pytest.mark.parametrize("name", [name for name in CLOCKS if name != "right"])
def test_a_clock_changes_nothing_but_labels(name: str) -> None:
    seen, logs = life(CLOCKS["right"], 0)
    assert len(logs[1]) > READINGS // 2
    assert life(CLOCKS[name], 0) == (seen, logs)


@pytest.mark.parametrize("origin_ms", [1, 12_345_678, (1 << 30) - 3_000])
def test_the_origin_of_time_does_not_matter(origin_ms: int) -> None:
    """Not even that it begins anew in the middle of it all, every 2^30 ms."""
    assert life(CLOCKS["right"], origin_ms) == life(CLOCKS["right"], 0)
