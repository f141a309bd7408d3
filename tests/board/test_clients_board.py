"""Commands on MicroPython: as on CPython."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = f"{ROOT / 'firmware'}:{ROOT / 'transports'}"
WANTED = [
    "done [(0, 60005), (3, 60006), (1, 60007)] replayed 1 refused 1",
    "answers [(5, 0), (6, 3), (7, 1)]",
]


def run(command: list[str]) -> list[str]:
    done = subprocess.run(
        [*command, str(HERE / "clients_on_board.py"), SOURCES],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"MICROPYPATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_on_a_host() -> None:
    assert run([sys.executable]) == WANTED


def test_on_a_board(micropython: list[str]) -> None:
    assert run([*micropython, "-X", "heapsize=512K"]) == WANTED
