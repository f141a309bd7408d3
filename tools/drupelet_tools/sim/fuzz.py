"""Fuzzes every parser on an interpreter: the same script on CPython and on MicroPython."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from drupelet_tools.flash.build import ROOT, micropython_command
from drupelet_tools.flash.errors import BuildError

SCRIPT = Path(__file__).with_name("on-board") / "fuzz_frames.py"
PARSERS = (
    "bsp-1", "compact-1", "mvds-1", "mvds-nested", "mvds-5001", "cobs", "mqtt", "seal", "sds",
)  # fmt: skip
INTERPRETERS = {"cpython": "", "micropython": "x64", "micropython-i386": "x86"}
# The code as source and the largest parser's tables; nothing is left for growth.
HEAP_SIZE = {"x64": "1M", "x86": "512K"}
# What an interpreter may keep for itself between two collections, in bytes or blocks.
GROWTH_MAX = 512
SECONDS_MAX = 6 * 3600


class FuzzError(Exception):
    """A parser raised, grew, or could not be run; the message says which."""


def fuzz(frames: int, interpreter: str, seed: int, parsers: list[str]) -> list[dict[str, Any]]:
    """One row per parser: frames, taken, heap in use early and late. Raises FuzzError."""
    if interpreter not in INTERPRETERS:
        raise FuzzError(f"{interpreter}: one of {', '.join(INTERPRETERS)}")
    unknown = set(parsers) - set(PARSERS)
    if unknown:
        raise FuzzError(f"{', '.join(sorted(unknown))}: one of {', '.join(PARSERS)}")
    wanted = [parser for parser in PARSERS if not parsers or parser in parsers]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda name: _one(name, frames, interpreter, seed), wanted))


def _one(parser: str, frames: int, interpreter: str, seed: int) -> dict[str, Any]:
    arch = INTERPRETERS[interpreter]
    folders = os.pathsep.join(str(ROOT / name) for name in ("firmware", "transports"))
    command = [sys.executable]
    if arch:
        try:
            command = [*micropython_command(arch), "-X", f"heapsize={HEAP_SIZE[arch]}"]
        except BuildError as error:
            raise FuzzError(str(error)) from error
    task = json.dumps({"parser": parser, "frames": frames, "seed": seed})
    done = subprocess.run(
        [*command, str(SCRIPT)], input=task + "\n", capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
        env=os.environ | {"PYTHONPATH": folders, "MICROPYPATH": folders, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        told = (done.stderr or done.stdout).strip().splitlines() or ["no answer"]
        raise FuzzError(f"{parser} on {interpreter}: {' | '.join(told[-3:])}")
    row: dict[str, Any] = json.loads(lines[-1])
    row["interpreter"] = interpreter
    if row["heap_late"] - row["heap_early"] > GROWTH_MAX:
        raise FuzzError(f"{parser} on {interpreter}: the heap grew: {row}")
    return row
