"""`compact-1` on both MicroPythons: no allocation on the hot path, valid input or not."""

import os
import subprocess
from pathlib import Path

import pytest

HEAP = Path(__file__).parent / "compact_heap.py"
TIMEOUT_S = 240
# Frames that the lock has to see at least; an idle contact has none.
FRAMES = {
    "records": 80, "idle": 0, "contacts": 60, "losses": 20, "conflicts": 20, "plain": 20,
    "invalid": 1800,
}  # fmt: skip
IDLE_EPOCHS = 1000


@pytest.mark.parametrize("mode", ["batch", "interactive"])
def test_the_hot_path_allocates_nothing(micropython: list[str], firmware: Path, mode: str) -> None:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=2M", str(HEAP), mode],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == list(FRAMES)
    for name, calls, frames, used in rows:
        assert int(used) == 0, f"{name}: {used} B"
        assert int(frames) >= FRAMES[name]
        assert name != "idle" or (int(calls) == IDLE_EPOCHS and not int(frames))
    assert last.startswith("delivered ")
