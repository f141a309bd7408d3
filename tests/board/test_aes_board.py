"""The core's AES on both MicroPythons, as on a port without `cryptolib`: the host's bytes, no
allocation per frame, a bound on what a key takes; where no viper runs, the same in bytecode."""

import subprocess
from pathlib import Path

import pytest

from board.aes_frames import FRAMES, frames, write_frames
from drupelet_tools.flash.build import build
from drupelet_tools.flash.sets import Choice, build_set

HERE = Path(__file__).parent
TIMEOUT_S = 120
# Of a key with 16 bytes: 176 of round keys, its object and the method that is kept of it.
KEY_BYTES_MAX = 256
MODULES = [
    "boards.aead",
    "drupelet.base._aes_plain",
    "drupelet.base._aes_viper",
    "drupelet.base._ccm_plain",
    "drupelet.base._ccm_viper",
    "drupelet.base.compat",
    "drupelet.base._memory_plain",
    "drupelet.base._memory_viper",
    "drupelet.base.aes",
    "drupelet.base.ccm",
    "drupelet.base.memory",
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frames(tmp_path_factory.mktemp("aes") / "frames.txt")


def run(
    micropython: list[str], folder: Path, mode: str, answers: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*micropython, "-X", "heapsize=128K", str(HERE / "aes_same.py"), str(folder), mode,
         str(answers)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def facts(micropython: list[str], folder: Path, mode: str, answers: Path) -> dict[str, str]:
    done = run(micropython, folder, mode, answers)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("mode", ["best", "plain"])
def test_the_hosts_bytes_and_no_allocation(
    micropython: list[str], firmware: Path, arch: str, mode: str, answers: Path
) -> None:
    figures = facts(micropython, firmware, mode, answers)
    assert int(figures["frames"]) == len(frames()) > FRAMES
    assert figures["loops"] == ("_aes_viper" if mode == "best" else "_aes_viper _aes_plain")
    if arch == "x86":  # objects as large as a Cortex-M's
        assert int(figures["key"]) <= KEY_BYTES_MAX


def test_another_processors_code_falls_back_to_bytecode(
    micropython: list[str], arch: str, tmp_path: Path, answers: Path
) -> None:
    build(tmp_path, "x86" if arch == "x64" else "x64", modules=MODULES)
    assert facts(micropython, tmp_path, "best", answers)["loops"] == "_aes_plain"


def test_a_set_seals_on_a_port_without_cryptolib_only_when_it_is_built_for_one(
    micropython: list[str], arch: str, tmp_path: Path, answers: Path
) -> None:
    build_set(tmp_path, arch, Choice("small", carriers=("mqtt",), lacks=("cryptolib",)))
    assert facts(micropython, tmp_path, "best", answers)["loops"] == "_aes_viper"
    build_set(tmp_path, arch, Choice("small", carriers=("mqtt",)))
    done = run(micropython, tmp_path, "best", answers)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ImportError: can't import name aes"
