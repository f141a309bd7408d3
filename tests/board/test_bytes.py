"""Byte helpers, hashes and frames on both MicroPythons: CPython's bytes, and no allocation."""

import subprocess
import sys
from pathlib import Path

import pytest

from drupelet_tools.flash.build import build
from published import blake2s_answers

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = f"{ROOT}/firmware:{ROOT}/transports"
TIMEOUT_S = 120

MODULES = [
    "drupelet.base._blake2s",
    "drupelet.base._blake2s_halves",
    "drupelet.base._blake2s_viper",
    "drupelet.base.compat",
    "drupelet.base._memory_plain",
    "drupelet.base._memory_viper",
    "drupelet.base.errors",
    "drupelet.base.hashes",
    "drupelet.base.limits",
    "drupelet.base.memory",
    "drupelet_transports.common.transport",
    "drupelet_transports.common.faulty",
    "drupelet_transports.common.framing",
    "drupelet_transports.common.in_process",
]

modes = pytest.mark.parametrize("mode", ["best", "plain"])


def run(command: list[str], script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*command, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return done


@pytest.fixture(scope="module")
def compiled(arch: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp(f"bytes-{arch}")
    build(target, arch, modules=MODULES)
    return str(target)


@pytest.fixture(scope="module")
def expected() -> str:
    return run([sys.executable], "bytes_same.py", SOURCES, "best").stdout


@modes
def test_compiled_for_boards_gives_cpythons_bytes(
    micropython: list[str], compiled: str, expected: str, mode: str
) -> None:
    done = run(micropython, "bytes_same.py", compiled, mode)
    assert done.stdout == expected
    assert expected.count("\n") > 150
    wanted = "_memory_viper" if mode == "best" else "_memory_viper _memory_plain"
    assert done.stderr.splitlines()[-1] == f"modules {wanted}"


@modes
def test_sources_give_cpythons_bytes(micropython: list[str], expected: str, mode: str) -> None:
    assert run(micropython, "bytes_same.py", SOURCES, mode).stdout == expected


@modes
def test_published_hashes(
    micropython: list[str], compiled: str, mode: str, tmp_path: Path
) -> None:
    answers = tmp_path / "blake2s.txt"
    lines = [",".join(part.hex() for part in answer) + "\n" for answer in blake2s_answers()]
    answers.write_text("".join(lines), "ascii")
    done = run(micropython, "bytes_same.py", compiled, mode, str(answers))
    assert "known answers 256\n" in done.stderr


@modes
def test_hot_calls_allocate_nothing(micropython: list[str], compiled: str, mode: str) -> None:
    assert run(micropython, "bytes_heap.py", compiled, mode).stdout == "allocating: none\n"


def test_another_processors_code_falls_back_to_bytecode(
    arch: str, micropython: list[str], tmp_path: Path, expected: str
) -> None:
    build(tmp_path, "x86" if arch == "x64" else "x64", modules=MODULES)
    done = run(micropython, "bytes_same.py", str(tmp_path), "best")
    assert done.stdout == expected
    assert "_memory_plain" in done.stderr
