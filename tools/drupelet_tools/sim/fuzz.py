"""Fuzzes every parser on an interpreter: the same script on CPython and on MicroPython.

A fuzz that is refused at the outermost check finds nothing: how many frames got further in is
counted with each parser, and `DEPTHS` says how many at least have to.
"""

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
# Of each parser: per cent of the frames that it takes, and after which something leaves or is
# obeyed, at least; a link is polled after every eighth frame, a serial decoder never answers.
DEPTHS = {
    "bsp-1": (40, 4), "compact-1": (30, 4), "mvds-1": (40, 4), "mvds-nested": (35, 4),
    "mvds-5001": (40, 4), "topic": (40, 4), "wake": (50, 3), "sds": (15, 8), "channel": (20, 0),
    "cobs": (25, 0), "mqtt": (30, 10), "mqtt-client": (8, 8), "stick": (50, 30),
    "seal": (18, 12), "seal-stick": (15, 12), "sender-keys": (40, 0), "handover": (45, 20),
    "micro": (25, 4), "seal-sleep": (60, 50),
    "snapshot": (50, 25), "provision": (8, 50), "command": (60, 10),
}  # fmt: skip
HOST_DEPTHS = {
    "bsp-0": (60, 10), "sketch": (30, 25), "sds-nim": (15, 5),
    "remote-log": (15, 8), "remote-store": (15, 15), "black-box": (50, 30),
}  # fmt: skip
DEPTHS |= HOST_DEPTHS
PARSERS = tuple(DEPTHS)
INTERPRETERS = {"cpython": "", "micropython": "x64", "micropython-i386": "x86"}
# The code compiled from source and the largest parser's tables fit in 544 KB on x86; the rest is
# for fragments, which differ with the lengths of the paths. Growth is measured, whatever is free.
HEAP_SIZE = {"x64": "1536K", "x86": "768K"}
# What an interpreter may keep for itself between two collections, in bytes or blocks.
GROWTH_MAX = 512
# In a few hundred frames not everything has been made once, nor is all garbage found.
_GROWTH_SHORT_MAX = 2048
SECONDS_MAX = 6 * 3600
_SHORT_MAX = 10_000
_SHORT_PROCESSES = 4


class FuzzError(Exception):
    """A parser raised, grew, or could not be run; the message says which."""


def parsers_of(interpreter: str) -> tuple[str, ...]:
    """The parsers that run there: those of hosts alone only on CPython."""
    if INTERPRETERS[interpreter]:
        return tuple(name for name in PARSERS if name not in HOST_DEPTHS)
    return PARSERS


def fuzz(frames: int, interpreter: str, seed: int, parsers: list[str]) -> list[dict[str, Any]]:
    """One row per parser: how far its frames got, their rate, heap in use early and late.

    Raises FuzzError.
    """
    if interpreter not in INTERPRETERS:
        raise FuzzError(f"{interpreter}: one of {', '.join(INTERPRETERS)}")
    here = parsers_of(interpreter)
    unknown = set(parsers) - set(here)
    if unknown:
        raise FuzzError(f"{', '.join(sorted(unknown))}: one of {', '.join(here)}")
    wanted = [parser for parser in here if not parsers or parser in parsers]
    # To start a process takes longer than a few frames do: then one process runs several parsers.
    count = 1 if frames > _SHORT_MAX else -(-len(wanted) // _SHORT_PROCESSES)
    parts = [wanted[at : at + count] for at in range(0, len(wanted), count)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        row_lists = pool.map(lambda part: _some(part, frames, interpreter, seed), parts)
        return [row for rows in row_lists for row in rows]


def shallow(row: dict[str, Any]) -> str:
    """What is wrong with a row when too few of its frames got far enough; "" when nothing is."""
    taken, answered = DEPTHS[row["parser"]]
    if row["taken"] * 100 < taken * row["frames"]:
        return f"{row['parser']} took {row['taken']} of {row['frames']} frames, not {taken} %"
    if row["answered"] * 100 < answered * row["frames"]:
        return f"{row['parser']} answered {row['answered']} of {row['frames']}, not {answered} %"
    return ""


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as lines of columns."""
    head = ("parser", "frames", "taken %", "answered %", "frames/s", "heap early", "late")
    lines = [f"{head[0]:13}{head[1]:>10}" + "".join(f"{name:>12}" for name in head[2:])]
    for row in rows:
        shares = (100 * row[name] / row["frames"] for name in ("taken", "answered"))
        lines.append(
            f"{row['parser']:13}{row['frames']:>10}"
            + "".join(f"{share:>12.1f}" for share in shares)
            + "".join(f"{row[name]:>12}" for name in ("frames_per_s", "heap_early", "heap_late"))
        )
    return lines


def _some(parsers: list[str], frames: int, interpreter: str, seed: int) -> list[dict[str, Any]]:
    arch = INTERPRETERS[interpreter]
    rooms = ("firmware", "transports") if arch else ("firmware", "transports", "host", "tools")
    folders = os.pathsep.join(str(ROOT / name) for name in rooms)
    command = [sys.executable]
    if arch:
        try:
            command = [*micropython_command(arch), "-X", f"heapsize={HEAP_SIZE[arch]}"]
        except BuildError as error:
            raise FuzzError(str(error)) from error
        folders += os.pathsep + str(SCRIPT.parent)
    task = json.dumps({"parsers": parsers, "frames": frames, "seed": seed})
    completed = subprocess.run(
        [*command, str(SCRIPT)], input=task + "\n", capture_output=True, text=True,
        timeout=SECONDS_MAX, check=False,
        env=os.environ | {"PYTHONPATH": folders, "MICROPYPATH": folders, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    rows: list[dict[str, Any]] = [json.loads(line) for line in completed.stdout.splitlines()]
    if completed.returncode or len(rows) < len(parsers):
        error_lines = (completed.stderr or completed.stdout).strip().splitlines() or ["no answer"]
        where = parsers[min(len(rows), len(parsers) - 1)]
        raise FuzzError(f"{where} on {interpreter}: {' | '.join(error_lines[-3:])}")
    growth_max = GROWTH_MAX if frames > _SHORT_MAX else _GROWTH_SHORT_MAX
    for row in rows:
        row["interpreter"] = interpreter
        if row["heap_late"] - row["heap_early"] > growth_max:
            raise FuzzError(f"{row['parser']} on {interpreter}: the heap grew: {row}")
    return rows
