"""Runs this folder's scripts on MicroPython, or on CPython where they can say something there."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet_tools.bench.errors import BenchError
from drupelet_tools.flash.build import ROOT, micropython_command

SCRIPTS = Path(__file__).with_name("on-board")
# The slowest script: 1,000 records of each type on a machine that does something else, too.
SCRIPT_TIMEOUT_S = 300


@dataclass(frozen=True)
class Interpreter:
    """What runs a script; `arch` is a key of flash.build.ARCHES, "" for CPython."""

    name: str
    arch: str
    word: int  # bytes of a pointer


def interpreters() -> tuple[Interpreter, ...]:
    """Every interpreter that the project knows; `micropython` is this machine's own width."""
    native = "arm64" if os.uname().machine == "aarch64" else "x64"
    return (
        Interpreter("micropython-i386", "x86", 4),
        Interpreter("micropython", native, 8),
        Interpreter("cpython", "", 8),
    )


def run(
    interpreter: Interpreter, firmware: Path, heap: int, script: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """One script's answer. firmware: the module path. Raises BenchError, BuildError."""
    command: Sequence[str] = [sys.executable]
    folders = ("firmware", "transports", "host")
    path = {"PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in folders)}
    if interpreter.arch:
        command = [*micropython_command(interpreter.arch), "-X", f"heapsize={heap}"]
        path = {"MICROPYPATH": str(firmware)}
    try:
        completed = subprocess.run(
            [*command, str(SCRIPTS / script)], input=json.dumps(settings) + "\n",
            capture_output=True, text=True, timeout=SCRIPT_TIMEOUT_S, check=False,
            env=os.environ | path,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BenchError(f"{script} on {interpreter.name}: not done in time") from None
    lines = completed.stdout.splitlines()
    if completed.returncode or not lines:
        error_lines = (completed.stderr or completed.stdout).strip().splitlines() or ["no answer"]
        raise BenchError(f"{script} on {interpreter.name}: {error_lines[-1]}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result
