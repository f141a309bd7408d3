"""Carriers that are not there, go away and come back, on boards as processes of 128 KB."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from board_box import IDS, Box, box
from drupelet_host.broker import Broker
from drupelet_tools.demo.cable import Cable
from drupelet_tools.flash.sets import Choice, build_set

READINGS = 20
# Of the time in which a carrier is away; what spins takes most of it.
BUSY_SHARE_MAX = 0.1
AWAY_S = 4.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    try:
        yield made
    finally:
        made.stop()


def cpu_s(board: Box) -> float:
    """What its process has taken of a processor."""
    assert board.child is not None
    stat = Path(f"/proc/{board.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def idles(board: Box) -> bool:
    """Whether a board does next to nothing for a while."""
    before = cpu_s(board)
    time.sleep(AWAY_S)
    return cpu_s(board) - before < BUSY_SHARE_MAX * AWAY_S


def logged(board: Box) -> Callable[[int], Callable[[], bool]]:
    return lambda count: lambda: int(board.status.get("logged", 0)) >= count


def test_a_line_that_is_plugged_in_later_and_again(tmp_path: Path, full_image: Path) -> None:
    """The board runs without it, wastes nothing on it, and goes on when it is back."""
    line = tmp_path / "line"
    with box("A", tmp_path, full_image) as board, box("B", tmp_path, full_image) as other:
        board.configure({"B": f"serial://{line}"}, epoch_ms=2000, readings_max=4)
        board.start()
        board.wait_for(board.own(1), "a reading without a line")
        said = (board.folder / "log").read_text()
        assert f'{{"event":"absent","carrier":"{line}","why":"plug the device in"}}' in said
        for count in (1, 2):
            cable = Cable()
            line.unlink(missing_ok=True)
            line.symlink_to(cable.ends[0])
            other.configure({"A": f"serial://{cable.ends[1]}"}, readings_max=0)
            other.start()
            other.wait_for(logged(other)(2 * count), f"readings over cable {count}")
            other.stop()
            cable.close()
            assert idles(board), "the line is away"


def test_a_broker_that_goes_away_costs_nothing(
    tmp_path: Path, full_image: Path, broker: Broker
) -> None:
    broker.start()
    url = f"mqtt://127.0.0.1:{broker.port}/t"
    with box("A", tmp_path, full_image) as board, box("B", tmp_path, full_image) as other:
        board.configure({"B": url}, epoch_ms=2000, readings_max=1)
        other.configure({"A": url}, epoch_ms=100, readings_max=0)
        for one in (board, other):
            one.start()
        other.wait_for(logged(other)(1), "a reading")
        broker.stop()
        assert idles(board)


def test_a_deep_sleeper_behind_a_broker_keeps_nothing_back(
    tmp_path: Path, full_image: Path, broker: Broker
) -> None:
    """What is due while it connects leaves when it is connected; then it sleeps at once.

    The next reading is far away: it must not wait awake for it.
    """
    broker.start()
    url = f"mqtt://127.0.0.1:{broker.port}/t"
    with box("A", tmp_path, full_image) as sleeper, box("B", tmp_path, full_image) as other:
        sleep = {
            "rtc": str(sleeper.folder / "rtc"), "rtc_size": 2048, "period_ms": 30_000,
            "window_ms": 3000, "contact_ms": 400,
        }  # fmt: skip
        sleeper.configure({"B": url}, sleep=sleep, epoch_ms=5000, readings_max=5)
        other.configure({"A": url}, epoch_ms=100, readings_max=0)
        for one in (other, sleeper):
            one.start()
        other.wait_for(logged(other)(5), "readings")
        sleeper.wait_for(lambda: sleeper.status["outstanding"] == 0, "acknowledgements")
        said = (sleeper.folder / "log").read_text()
    slept = [int(line.split(":")[-1][:-1]) for line in said.splitlines() if '"asleep"' in line]
    assert len(slept) >= 4
    assert max(slept) > 5000 - 3000, "it goes to sleep when it has been heard"


def test_a_stick_is_found_between_two_readings(tmp_path: Path, full_image: Path) -> None:
    """And a damaged name on it is no name: the visit goes on, and the board."""
    usb = tmp_path / "usb"
    with box("A", tmp_path, full_image) as board:
        board.configure({"host": f"stick://{usb}"}, epoch_ms=60_000)
        board.start()
        board.wait_for(lambda: bool(board.boots), "its start")
        time.sleep(1.0)
        for name in ("A", "host"):
            folder = usb / "DRUPELET" / IDS["A"].upper() / IDS[name].upper()
            folder.mkdir(parents=True)
            Path(os.fsdecode(os.fsencode(folder) + b"/\x90000002A.TMP")).touch()
        begun = time.monotonic()
        board.wait_for(lambda: board.visits == 1, "a visit")
        assert time.monotonic() - begun < 20, "only at the next reading"
        written = list((usb / "DRUPELET" / IDS["host"].upper()).rglob("*.DRP"))
        assert written


def test_a_full_board_as_mpy_has_every_carrier_at_once(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 256 KB, the code not in place: sealed cable, broker and stick, in `compact-1`."""
    firmware = tmp_path / "mpy"
    build_set(firmware, "x86", Choice("full"))
    # The heap holds each module's path: from inside of the folder it is as short as on a board.
    monkeypatch.chdir(firmware)
    broker.start()
    cable = Cable()
    usb = tmp_path / "usb"
    usb.mkdir()
    url = f"mqtt://127.0.0.1:{broker.port}/t"
    peers = {
        "A": {"B": f"serial://{cable.ends[0]}", "C": url, "host": f"stick://{usb}"},
        "B": {"A": f"serial://{cable.ends[1]}"},
        "C": {"A": url},
    }
    with (
        box("A", tmp_path, firmware) as board,
        box("B", tmp_path, firmware) as over_cable,
        box("C", tmp_path, firmware) as over_broker,
    ):
        boards = (board, over_cable, over_broker)
        for one in boards:
            one.configure(peers[one.name], readings_max=READINGS)
            one.change_peers(profile="compact-1")
            one.start()
        for one in boards:
            one.wait_for(logged(one)(3 * READINGS), "all readings")
        board.wait_for(lambda: board.visits > 0, "a visit")
        low = int(board.status["heap_low"])
    cable.close()
    print(
        f"\nfull, compact-1, sealed, three carriers, 256 KB as .mpy: at least {low:,} bytes free"
    )
    assert low > 34 * 1024
