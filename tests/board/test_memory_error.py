"""Memory that runs out at any place of the receive and send path: nothing is lost or doubled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = f"{ROOT / 'firmware'}:{ROOT / 'transports'}"
PROFILES = ("bsp-1", "mvds-1", "compact-1")


def run(command: list[str], profile: str, how: str, step: int) -> tuple[int, int, int, int]:
    """(runs, MemoryErrors, bad runs, calls in a clean run)."""
    done = subprocess.run(
        [*command, str(HERE / "memory_error.py"), SOURCES, profile, how, "1", str(step)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"MICROPYPATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs, errors, bad, calls, *which = done.stdout.split()
    assert bad == "0", f"{profile} {how}: bad at {' '.join(which)}"
    return int(runs), int(errors), int(bad), int(calls)


@pytest.mark.parametrize("profile", PROFILES)
def test_at_every_call_of_the_files(profile: str) -> None:
    runs, errors, _, calls = run([sys.executable], profile, "before", 1)
    assert runs == errors == calls > 60


@pytest.mark.parametrize("profile", PROFILES)
def test_after_a_call_has_done_its_work(profile: str) -> None:
    """A record that was refused though it is on the flash is there once in the end."""
    runs, errors, _, calls = run([sys.executable], profile, "after", 1)
    assert runs == calls > 60
    assert errors > 40


@pytest.mark.parametrize("how", ["before", "locked", "called"])
@pytest.mark.parametrize("profile", PROFILES)
def test_on_a_board(micropython: list[str], arch: str, profile: str, how: str) -> None:
    """`locked` and `called` lock the real heap: the next allocation fails, wherever it is."""
    step = 4 if arch == "x86" else 11
    runs, errors, _, calls = run([*micropython, "-X", "heapsize=512K"], profile, how, step)
    assert calls > 60 and runs >= calls // step
    # Most calls allocate nothing; there is always one that does.
    assert errors == runs if how == "before" else errors > 0
