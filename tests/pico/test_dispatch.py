"""The emulated core that `dispatch.mjs` makes fast does what the one of rp2040js does."""

import subprocess
from pathlib import Path

import pytest

from drupelet_tools.pico.emulator import parts
from repeats import few

PROGRAM = Path(__file__).with_name("same_core.mjs")
OPCODES = 1 << 16
RUN_S = 120


@pytest.mark.parametrize("repeats", few(1, (1, 20)))
def test_each_instruction_does_the_same(repeats: int) -> None:
    done = subprocess.run(
        ["node", str(PROGRAM), str(parts()), str(repeats)],
        capture_output=True, text=True, timeout=repeats * RUN_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{repeats * OPCODES}\n"), done.stderr
