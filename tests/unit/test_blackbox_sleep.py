"""A black box that goes through deep sleep writes what one that stayed awake would have."""

import random

import pytest

from drupelet.blackbox import (
    CODE_BATTERY,
    COUNT_CREATED,
    STATE_DEEP_SLEEP,
    STATE_IDLE,
    STATE_SEND,
    BlackBox,
)
from drupelet.limits import RTC_SIZE_MAX

DEVICE = b"\x0a\x0b\x0c\x0d"


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
            box.count(COUNT_CREATED + rng.randrange(20), rng.randrange(1 << 20))
        box.flush_counters(now_ms)
        box.state(now_ms, STATE_DEEP_SLEEP)
        while box.ready:
            out += [bytes(box.header)] if box.starts else []
            out.append(bytes(box.block))
            box.take()
        slept_ms = rng.randrange(1 << 22)
        if sleeps:
            end = box.rest_into(kept, 0, len(kept))
            assert end
            box = BlackBox(DEVICE, 3, 2)
            now_ms = rng.randrange(1 << 30)  # another origin
            box.wake_from(kept, 0, end, now_ms, slept_ms)
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
    assert box.rest_into(kept, 0, 64) == 52  # 32, one event, one counter
    assert box.rest_into(kept, 0, 51) == 0
    assert box.rest_into(kept, 0, 43) == 0
