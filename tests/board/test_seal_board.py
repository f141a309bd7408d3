"""Sealed links on both MicroPythons: the same frames, no allocation per frame, few per epoch."""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 240
# One key epoch: two HMACs, one AES object, the seal's part of a save (docs/DESIGN.md 20).
KEY_EPOCH_MAX = 2048
# docs/DESIGN.md 20: what a seal keeps per peer and carrier class, beside one AES object. Those
# are kept by the device, one per seal (and two at least).
PER_PEER_MAX = 200
# Growth within this is the dictionary of the keys that stand for flash.
GROWN_MAX = 256


@pytest.mark.parametrize("mode", ["best", "plain", "core"])
def test_frames_take_nothing_and_epochs_what_is_declared(
    micropython: list[str], firmware: Path, arch: str, mode: str
) -> None:
    done = subprocess.run(
        [*micropython, "-X", "heapsize=192K", str(HERE / "seal_board.py"), str(HERE.parent),
         *([] if mode == "best" else [mode])],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env={**os.environ, "MICROPYPATH": str(firmware)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    taken = {name: int(size) for name, size in (line.split() for line in done.stdout.splitlines())}
    print(taken)
    assert taken["grown"] <= GROWN_MAX
    assert taken["cipher_per_peer"] <= taken["cipher"]
    if arch == "x86":  # objects as large as a Cortex-M's
        assert taken["seal_per_peer"] <= PER_PEER_MAX
        for name in ("send_epoch", "receive_epoch", "straggler", "wake"):
            assert taken[name] <= KEY_EPOCH_MAX, f"{name}: {taken[name]} B"
