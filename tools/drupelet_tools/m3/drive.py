"""The file that is the board's flash: a LittleFS that MicroPython itself makes and reads."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.errors import BuildError

# The machine's PSRAM; the board's file system has the first megabyte of it (boot/drive.py).
FILE_SIZE = 16 << 20
_SCRIPTS = Path(__file__).with_name("on-host")
_TIMEOUT_S = 60


def write(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a drive with these files, and nothing else; names begin with /. Raises BuildError."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(FILE_SIZE)
    _run(path, {"write": {name: data.hex() for name, data in files.items()}})


def read(path: Path) -> dict[str, bytes]:
    """Every file of a drive."""
    return {name: bytes.fromhex(data) for name, data in _run(path, {"read": True}).items()}


def _run(path: Path, wish: Mapping[str, object]) -> dict[str, str]:
    completed = subprocess.run(
        [*micropython_command("x86"), "-X", "heapsize=16M", str(_SCRIPTS / "drive_files.py"),
         str(path)],
        input=json.dumps(wish) + "\n", capture_output=True, text=True, check=False,
        timeout=_TIMEOUT_S,
    )  # fmt: skip
    if completed.returncode:
        reason = completed.stderr.splitlines() or ["no reason"]
        raise BuildError(f"{path} cannot be made or read as a drive: {reason[-1]}")
    answer: dict[str, str] = json.loads(completed.stdout)
    return answer
