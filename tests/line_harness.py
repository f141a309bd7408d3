"""Asks the line harness (tests/harness.py), on each interpreter that it runs on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = [sys.executable]
COMMANDS = {
    "python": PYTHON,
    "micropython": [str(ROOT / "tools/micropython")],
    "micropython-i386": [str(ROOT / "tools/micropython-i386")],
}
TIMEOUT_S = 120

Json = dict[str, Any]
Request = tuple[str, Json]
on_all = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def printed(command: list[str], text: str) -> str:
    """Return what the harness prints when it is handed `text`."""
    done = subprocess.run(
        [*command, str(ROOT / "tests/harness.py")],
        input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(requests: list[Request]) -> str:
    return "".join(f"{verb} {json.dumps(request)}\n" for verb, request in requests)


def ask(command: list[str], requests: list[Request]) -> list[tuple[str, Json]]:
    """Return the harness's replies as pairs of ok or error and what follows."""
    replies = [line.partition(" ") for line in printed(command, lines_of(requests)).splitlines()]
    assert len(replies) == len(requests)
    return [(status, json.loads(rest)) for status, _, rest in replies]
