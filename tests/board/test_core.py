"""The core on both MicroPythons: no allocation on the hot path, and CPython's very behaviour."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = f"{ROOT}/firmware:{ROOT}/transports:{ROOT}/tests"
TIMEOUT_S = 240
# Records or frames that the lock has to see at least; an epoch without any is a record of none.
RECORDS = {
    "authored": 240, "records": 1000, "idle": 0, "losses": 2, "invalid": 2500, "pieces": 0,
}  # fmt: skip
CALLS = {"idle": 1000, "pieces": 15}


def run(command: list[str], *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["batch", "interactive"])
def test_the_hot_path_allocates_nothing(micropython: list[str], firmware: Path, mode: str) -> None:
    command = [*micropython, "-X", "heapsize=2M", str(HERE / "core_heap.py"), mode]
    *lines, last = run(command, MICROPYPATH=str(firmware)).splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == list(RECORDS)
    for name, calls, records, used in rows:
        assert int(used) == 0, f"{name}: {used} B"
        assert int(records) >= RECORDS[name] and int(calls) >= CALLS.get(name, 0)
    assert last.startswith("delivered ")


@pytest.fixture(scope="module")
def expected() -> str:
    return run([sys.executable, str(HERE / "core_network.py"), SOURCES])


def test_networks_behave_as_on_cpython(micropython: list[str], expected: str) -> None:
    command = [*micropython, "-X", "heapsize=4M", str(HERE / "core_network.py"), SOURCES]
    assert run(command) == expected
    assert len(expected.splitlines()) == 6
