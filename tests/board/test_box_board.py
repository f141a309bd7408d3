"""The black box of a board that is killed: what it noted is on its flash, and in the tables."""

import json
import time
from pathlib import Path

from board.box_segments import segments
from board_box import EPOCH_MS, box
from drupelet.base.limits import EVENTS_PER_BLOCK
from drupelet_tools.telemetry.tables.summary import read, summarise
from telemetry.segment_log import damages_of, events_of

WATCHDOG = 3
DEEP_SLEEP = 4
STOP_S = 30.0


def test_a_killed_board_has_noted_everything_but_its_last_events(
    tmp_path: Path, full_image: Path
) -> None:
    with box("A", tmp_path, full_image) as board:
        gauge = board.folder / "voltage_now"
        gauge.write_text("3912000\n")
        rows = board.folder / "rows.ndjson"
        # The fourth is too long to be published, at each epoch again.
        rows.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(3)) + "x" * 40_000)
        board.configure(
            {"B": f"stick://{tmp_path / 'none'}"}, battery=str(gauge), rows=str(rows),
            reset_cause=WATCHDOG,
        )  # fmt: skip
        board.start()
        board.wait_for(board.own(3), "three readings")
        gauge.write_text("3700000\n")
        started = time.monotonic()
        time.sleep(9.0)  # the counters' time: states and errors fill blocks meanwhile
        board.kill()
        lived_ms = (time.monotonic() - started) * 1000
        log = read(segments(board.flash))
        (health,) = summarise(log)["health"]
        battery = [row["mv"] for row in summarise(log)["battery"]]
    assert damages_of(log) == []
    assert health["reset_cause"] == WATCHDOG
    assert battery == [3912, 3700] and health["battery_low_mv"] == 3700
    assert health["errors"] > 5
    assert 0 < health["heap_low"] < 128 * 1024 and health["heap_limit"] == 128 * 1024
    assert health["flash_programs"] > 0 and health["messages_created"] == 3
    found = events_of(log)
    # Three events an epoch at the least: what RAM held is so many epochs.
    lost_ms = lived_ms - (found.time_ms[-1] - found.time_ms[0])
    assert lost_ms < EVENTS_PER_BLOCK / 3 * EPOCH_MS + 2000


def test_wakes_from_deep_sleep_go_on_in_one_segment_or_say_so(
    tmp_path: Path, full_image: Path
) -> None:
    """With RTC memory a segment grows over many wakes; without, each is a boot with its cause."""
    for rtc_size in (2048, 28):
        name = f"A{rtc_size}"
        with box("A", tmp_path / name, full_image) as board:
            sleep = {
                "rtc": str(board.folder / "rtc"), "rtc_size": rtc_size, "period_ms": 3000,
                "window_ms": 300, "contact_ms": 100,
            }  # fmt: skip
            board.configure({"B": f"stick://{tmp_path / 'none'}"}, sleep=sleep, epoch_ms=1500)
            board.start()
            board.wait_for(board.own(4), "wakes")
            assert board.child is not None
            board.child.stop(time.monotonic() + STOP_S)  # it may be asleep
            log = read(segments(board.flash))
        tables = summarise(log)
        assert damages_of(log) == []
        if rtc_size == 2048:
            (health,) = tables["health"]
            (segment,) = tables["segments"]
            assert health["reset_cause"] == 1 and health["messages_created"] >= 4
            slept = [row["ms"] for row in tables["state_time"] if row["state"] == 0]
            assert sum(slept) > 1000 and segment["blocks"] >= 2
            # Each reading is a program; every other wake writes one more after the epoch's count.
            assert 2 * health["flash_programs"] >= 3 * health["messages_created"]
        else:
            causes = {row["reset_cause"] for row in tables["health"]}
            assert DEEP_SLEEP in causes, "the last wake was flushed at the stop"
