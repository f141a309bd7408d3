"""A board whose MVDS peer knows no segments: no allocation on the hot path."""

import os
import subprocess
from pathlib import Path

HEAP = Path(__file__).parent / "oversize_heap.py"
TIMEOUT_S = 240


def test_what_is_passed_over_allocates_nothing(micropython: list[str], firmware: Path) -> None:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=4M", str(HEAP)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    frames, asked, is_waiting, outstanding = done.stdout.split()
    # 15 small ones wait for an acknowledgement, and go again; the long ones have no slot.
    assert (is_waiting, outstanding) == ("True", "15")
    assert 8 <= int(asked) <= 11 and int(frames) > int(asked)
