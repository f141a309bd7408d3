"""Files, store and black box on both MicroPythons: contract, power cuts on LittleFS, no garbage.

What needs the constants runs from the sources: the compiled modules have them folded in.
"""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "firmware"
TIMEOUT_S = 120


def run(command: list[str], script: str, *arguments: object) -> str:
    done = subprocess.run(
        [*command, str(HERE / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return done.stdout


def test_files_keep_the_contract(micropython: list[str], tmp_path: Path) -> None:
    assert run(micropython, "files_on_board.py", SOURCES, tmp_path) == "contract kept\n"


def test_a_cut_at_every_block_write_of_littlefs(micropython: list[str]) -> None:
    words = run(micropython, "store_lfs2.py", SOURCES).split()
    assert words[0] == "cuts" and int(words[1]) > 50
    assert words[2:] == ["lost", "0"]


def test_what_a_full_littlefs_refuses_costs_nothing_that_came_before(
    micropython: list[str],
) -> None:
    words = run(micropython, "full_lfs2.py", SOURCES).split()
    assert int(words[1]) > 100 and int(words[3]) >= 32


@pytest.mark.parametrize("kind", ["ram", "folder", "lfs2"])
def test_the_steady_state_allocates_nothing(
    micropython: list[str], arch: str, firmware: Path, tmp_path: Path, kind: str
) -> None:
    allocating, occasion = run(
        micropython, "store_heap.py", firmware, kind, tmp_path
    ).splitlines()  # fmt: skip
    assert allocating == "allocating: none"
    if arch == "x86":
        assert all(int(size) <= 400 for size in occasion.split()[2:]), occasion
