"""`pip install drupelet[flash]` without a clone: the wheel has what a board gets."""

import json
import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flash.pty_board import PtyBoard

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; the packages that it needs come from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT,
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60
    )
    (packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    # A path in a .pth file is searched after the environment's own, and its .pth files are not
    # read: the clone that this environment points to stays out of sight.
    (packages / "others.pth").write_text(site.getsitepackages()[0] + "\n")
    return environment / "bin/python"


def run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), "-m", "drupelet_host", *words], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_nothing_comes_from_the_clone(installed: Path, tmp_path: Path) -> None:
    program = (
        "import drupelet, drupelet_transports, drupelet_host, drupelet_tools, sys;"
        "from drupelet_tools.flash.build import board_sources;"
        "print(next(iter(board_sources('unix')))[0]);"
        "[print(m.__file__) for m in (drupelet, drupelet_transports, drupelet_host,"
        " drupelet_tools)]"
    )
    done = subprocess.run(
        [str(installed), "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 5 and not [line for line in lines if line.startswith(str(ROOT))]


def test_board_is_flashed_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with PtyBoard(tmp_path) as board:
        done = run(
            installed, folder, "flash", board.target, "--home", "home", "--name", "well-7",
            "--group", "orchard", "--json",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["alive"] and facts["keyed"] and facts["parts_sent"] > 20
    assert (facts["name"], facts["board"]) == ("well-7", "rp2")
    assert '"board":"well-7"' in facts["reading"]


def test_wheel_has_every_file_of_the_boards(installed: Path) -> None:
    (packages,) = installed.parents[1].glob("lib/python*/site-packages")
    there = packages / "drupelet_tools/flash/firmware"
    ours = ROOT / "firmware"
    names = {path.relative_to(ours) for path in (ours / "boards").rglob("*.py")}
    assert names == {path.relative_to(there) for path in there.rglob("*.py")}
    assert len(names) > 20
