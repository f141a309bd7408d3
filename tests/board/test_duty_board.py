"""Duty cycle and back-off on both MicroPythons: nothing is allocated."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
CALLS = {"plan": 5000, "backoff": 1500}


def test_the_duty_cycle_allocates_nothing(micropython: list[str], firmware: Path) -> None:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=128K", str(HERE / "duty_heap.py")],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    calls = {line.split()[0]: int(line.split()[1]) for line in lines}
    assert list(calls) == list(CALLS)
    assert all(calls[name] >= least for name, least in CALLS.items())
    assert last == "foreign 190", "not what CPython does"
