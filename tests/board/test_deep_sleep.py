"""Boards that sleep deeply: each wake is a new process on an empty heap, with RTC memory alone."""

import re
import time
from pathlib import Path

import pytest

from board_box import IDS, Box, box
from drupelet_tools.demo.cable import Cable

READINGS = 3
EPOCH_MS = 1500
PERIOD_MS = 3000


def sleep_of(board: Box, rtc_size: int = 2048, **more: int) -> dict[str, object]:
    """Configuration of a board that sleeps between its readings."""
    sleep = {
        "rtc": str(board.folder / "rtc"), "rtc_size": rtc_size, "period_ms": PERIOD_MS,
        "window_ms": 1000, "contact_ms": 200, **more,
    }  # fmt: skip
    return {"sleep": sleep, "epoch_ms": EPOCH_MS, "readings_max": READINGS}


def said(board: Box, what: str) -> int:
    return len(re.findall(f'"event": ?"{what}"', (board.folder / "log").read_text()))


def epochs(board: Box, peer: str) -> int:
    """Key epochs that a board has begun to send in: each is a write of its flash."""
    # Its first record is the send chain of live carriers (docs/SPEC.md 11.2).
    return int.from_bytes((board.flash / f"{IDS[peer].upper()}.KEY").read_bytes()[8:12])


@pytest.mark.parametrize("rtc_size", [2048, 492, 28, 0])
def test_readings_reach_a_peer_that_is_always_awake(
    tmp_path: Path, full_image: Path, rtc_size: int
) -> None:
    """A snapshot with the black box, without it, the short form, and none at all."""
    cable = Cable()
    try:
        with box("A", tmp_path, full_image) as sleeper, box("B", tmp_path, full_image) as other:
            ends = [f"serial://{end}" for end in cable.ends]  # sealed
            sleeper.configure({"B": ends[0]}, **sleep_of(sleeper, rtc_size))
            other.configure({"A": ends[1]}, readings_max=0, epoch_ms=100)
            for board in (other, sleeper):
                board.start()
            other.wait_for(lambda: int(other.status.get("logged", 0)) == READINGS, "readings")
            sleeper.wait_for(lambda: said(sleeper, "asleep") > READINGS, "sleep")
            assert sleeper.status["outstanding"] == 0
            assert other.status["malformed"] == 0
            assert said(sleeper, "woke") + said(sleeper, "started") > READINGS
            # Keys go on in their epoch; without a long snapshot each wake begins one.
            wakes = len(sleeper.boots)
            assert epochs(sleeper, "B") < wakes if rtc_size >= 492 else wakes
            # Where the black box goes on, so does the boot; else each wake is one of its own.
            assert len(set(sleeper.boots)) == (1 if rtc_size == 2048 else len(sleeper.boots))
    finally:
        cable.close()


def test_two_sleepers_find_each_other_without_a_common_clock(
    tmp_path: Path, full_image: Path
) -> None:
    cable = Cable()
    try:
        with box("A", tmp_path, full_image) as left, box("B", tmp_path, full_image) as right:
            for board, end, peer in ((left, 0, "B"), (right, 1, "A")):
                board.configure({peer: f"serial://{cable.ends[end]}?plain=1"}, **sleep_of(board))
                board.change_peers(awake="plan")
                board.start()
                time.sleep(1.3)  # out of phase
            both = (left, right)
            left.wait_for(
                lambda: all(int(board.status.get("logged", 0)) == 2 * READINGS for board in both),
                "the readings of both at both",
            )
            for board in both:
                board.wait_for(lambda one=board: said(one, "woke") >= 2, "sleep")
    finally:
        cable.close()


def test_a_power_cut_empties_rtc_memory_and_loses_nothing(
    tmp_path: Path, full_image: Path
) -> None:
    cable = Cable()
    try:
        with box("A", tmp_path, full_image) as sleeper, box("B", tmp_path, full_image) as other:
            ends = [f"serial://{end}?plain=1" for end in cable.ends]
            sleeper.configure({"B": ends[0]}, **sleep_of(sleeper))
            other.configure({"A": ends[1]}, readings_max=0, epoch_ms=100)
            other.start()
            for _ in range(3):
                sleeper.start()
                sleeper.wait_for(lambda: said(sleeper, "asleep") > 0, "sleep")
                assert sleeper.child is not None
                sleeper.child.kill()
                (sleeper.folder / "log").unlink()
            assert len(set(sleeper.boots)) == 3
            sleeper.start()
            other.wait_for(lambda: int(other.status.get("logged", 0)) == READINGS, "readings")
    finally:
        cable.close()
