"""A sealed topic on both MicroPythons: no allocation on the hot path."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 120


def test_a_sealed_topic_allocates_nothing(micropython: list[str], firmware: Path) -> None:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=2M", str(HERE / "topic_heap.py")],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "MICROPYPATH": f"{firmware}:{ROOT}/tests"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    rows = {line.split()[0]: [int(part) for part in line.split()[1:]] for line in lines}
    assert rows["messages"][1] >= 150 and rows["idle"][1] < 10
    assert rows["messages"][2] == rows["idle"][2] == 0, rows
    assert last == f"delivered {2 * 6 + 45}"
