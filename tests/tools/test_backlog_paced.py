"""A backlog for a peer that was away and then answers slowly, in simulated time."""

import random
from collections import deque
from pathlib import Path

import pytest

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.link.link import BATCH, INTERACTIVE
from drupelet.node import CARRIER_MQTT
from drupelet_tools.bench.pipe import End
from drupelet_tools.bench.profiles import PROFILES, Profile

MESSAGES = 1500
AWAY_MS = 20_000
STEP_MS = 10
# What a receiver needs to take in a frame, and how much longer than that it rests when slowed.
FRAME_MS = 5
SLOWED_TO = 10
FRAMES_PER_TURN = 64
MINUTES_MAX = 15
AWAY_FRAMES_MAX = 6


class Side:
    """One end; what was posted to it while it was away is gone, as at a broker."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.inbox: deque[bytes] = deque()
        self.here = False
        self.busy_until_ms = 0
        self.total_bytes = self.frames = 0
        self._frame = bytearray(FRAME_SIZE_MAX)

    def come(self, mode: int, now_ms: int) -> None:
        self.here = True
        self.link = self.end.connect(mode, CARRIER_MQTT, now_ms)

    def turn(self, other: "Side", now_ms: int, rest: int) -> None:
        if not self.here or now_ms < self.busy_until_ms:
            return
        count = 0
        while self.inbox and count < FRAMES_PER_TURN:
            frame = self.inbox.popleft()
            self._frame[: len(frame)] = frame
            self.link.receive(self._frame, len(frame), now_ms)
            self.end.consume()
            count += 1
        self.busy_until_ms = now_ms + count * FRAME_MS * rest
        for _ in range(FRAMES_PER_TURN):
            size = self.link.poll_into(self._frame, now_ms)
            if not size:
                return
            self.total_bytes += size
            self.frames += 1
            if other.here:
                other.inbox.append(bytes(self._frame[:size]))


def carry(
    folder: Path, profile: Profile, mode: int, away_ms: int, rest: int, messages: int = MESSAGES
) -> tuple[int, int, int, float]:
    """Frames to nobody, all bytes, duplicates, and seconds until A knows that B has all."""
    draw = random.Random(1)
    a, b = (
        Side(End(folder, profile, name, other, draw))
        for name, other in ((b"AAAA", b"BBBB"), (b"BBBB", b"AAAA"))
    )
    for number in range(messages):
        a.end.publish(b"\0" + draw.randbytes(99), number, 0)
    a.end.consume()
    a.come(mode, 0)
    away_frames = 0
    for now_ms in range(0, MINUTES_MAX * 60_000, STEP_MS):
        if now_ms >= away_ms and not b.here:
            away_frames = a.frames
            b.come(mode, now_ms)
        a.turn(b, now_ms, 0)
        b.turn(a, now_ms, rest)
        if b.end.node.delivered == messages and not a.end.outstanding:
            break
    else:
        pytest.fail(f"{b.end.node.delivered} of {messages}")
    for end in (a.end, b.end):
        end.store.close()
    total = a.total_bytes + b.total_bytes
    return away_frames, total, b.end.node.core.duplicates, (now_ms - away_ms) / 1000


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_backlog_is_sent_as_fast_as_it_is_answered(
    tmp_path: Path, profile: Profile, mode: int
) -> None:
    for name in ("free", "slow"):
        (tmp_path / name).mkdir()
    _, free, none, free_s = carry(tmp_path / "free", profile, mode, 0, 1)
    away, total, twice, slow_s = carry(tmp_path / "slow", profile, mode, AWAY_MS, SLOWED_TO)
    print(f"{free} {none} {free_s}; {away} {total} {total / free:.2f} {twice} {slow_s}")
    assert away <= AWAY_FRAMES_MAX
    assert total <= 1.1 * free
    assert none + twice <= MESSAGES // 100
