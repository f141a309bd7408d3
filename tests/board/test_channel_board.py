"""A channel on both MicroPythons: no allocation on the hot path, and what it takes of the heap."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 240
# Frames that the lock has to see at least.
FRAMES = {"publish": 1000, "idle": 80, "lossy": 300, "invalid": 2000}
# docs/DESIGN.md 20: 128-byte filter, 16 out, 16 in, 100 ids.
STATE_MAX = 6 * 1024
HASH_MAX = 192


def run(micropython: list[str], firmware: Path, script: str) -> list[list[str]]:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=1M", str(HERE / script)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_the_hot_path_allocates_nothing(micropython: list[str], firmware: Path, arch: str) -> None:
    *rows, hashed, last = run(micropython, firmware, "channel_heap.py")
    assert [row[0] for row in rows] == list(FRAMES)
    for name, _, frames, used in rows:
        assert int(used) == 0, f"{name}: {used} B"
        assert int(frames) >= FRAMES[name]
    assert hashed[0] == "hash" and (arch != "x86" or int(hashed[3]) <= HASH_MAX)
    assert last[0] == "delivered" and min(map(int, last[1:])) > 600


def test_the_same_channel_on_every_interpreter(micropython: list[str], firmware: Path) -> None:
    script = str(HERE / "channel_same.py")
    root = HERE.parents[1]
    folders = [str(root / name) for name in ("tests", "transports")]
    there = subprocess.run(
        [*micropython, "-X", "heapsize=2M", script, *folders],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )  # fmt: skip
    assert there.returncode == 0, there.stdout + there.stderr
    here = subprocess.run(
        [sys.executable, script, *folders, str(root / "firmware")],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    assert here.stdout == there.stdout
    logs = [line.split(" ", 3) for line in here.stdout.splitlines()[1:]]
    assert len(logs) == 4 and {tuple(log[:3]) for log in logs} == {("40", "0", "0")}
    assert len({log[3].partition(") ")[2] for log in logs}) == 1


def state(micropython: list[str], firmware: Path) -> dict[str, list[str]]:
    return {name: values for name, *values in run(micropython, firmware, "channel_state.py")}


def test_the_usual_tables(micropython: list[str], firmware: Path) -> None:
    assert state(micropython, firmware)["bloom"] == ["128", "100", "16", "16"]


@pytest.mark.parametrize("arch", ["x86"], indirect=True)
def test_state_on_32_bits(micropython: list[str], firmware: Path) -> None:
    rows = state(micropython, firmware)
    print(f"\na channel takes {rows['channel'][0]} B, 64 kept messages {rows['keeper'][0]} B")
    assert int(rows["channel"][0]) <= STATE_MAX
