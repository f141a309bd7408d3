"""`drupelet bench board`, rows m3: the image on a Cortex-M3 in QEMU, measured while it talks."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_tools.bench.board import SCRIPTS
from drupelet_tools.bench.board_peer import (
    BODY_SIZE,
    EPOCH_MS,
    FRAME_SIZE_MICRO,
    GROUP,
    MESSAGES,
    PAUSE_S,
    BoardPeer,
    configuration,
)
from drupelet_tools.bench.columns import Row, kinsn_columns
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.turns import TurnsLine
from drupelet_tools.m3 import drive
from drupelet_tools.m3.image import compiled, image, image_bytes
from drupelet_tools.m3.machine import STACK_SIZE, BoardError, Machine, Start
from drupelet_transports.host.serial_line import open_serial

# What each set is for (flash/sets.toml): run in place on 128 KB, and frozen in 16 KB of RAM.
HEAPS = {"small": 128 * 1024, "micro": 16 * 1024}
# The smallest heap is looked for in steps of this many bytes.
HEAP_STEP = 1024
# What the script may take of a heap that it measures, and what is made up for by as much more.
_SCRIPT_HEAP = 32 * 1024
_SCRIPT_STACK = 4 * 1024
_SCRIPT = "board_meter.py"
_TURNS = "turns.py"
_BARE = "import gc\ngc.collect()\nprint('bare', gc.mem_alloc(), gc.mem_free())\n"
_BOOT_S = 120
_EXCHANGE_S = 240
_END_S = 60
_PROMPT = b">>> "
_UP = {"small": b'"event": "started"', "micro": b"board up"}
NO_TIME = "QEMU has no timing of a Cortex-M3: instructions are counted"
NO_SEAL = "the set has no seal"

_MICRO_CONFIG = f"""
GROUP = {GROUP!r}
EPOCH_MS = {EPOCH_MS}
LINES = ((1, 115200, 0),)
IDS = "ids"


def reading(number):
    return b"%0{BODY_SIZE}d" % number if number < {MESSAGES} else b""


def taken(node, row):
    pass
"""
_MICRO_MAIN = "print('board up')\nimport boards.micro.main\n"
_SMALL_MAIN = "import boards.qemu.main\nboards.qemu.main.run('/bench.board.json')\n"


@dataclass(frozen=True)
class Bench:
    """One set's image, and a folder for drives."""

    set_name: str
    image: Path
    folder: Path

    def run(self, settings: dict[str, Any], counted: bool = False) -> dict[str, Any]:
        """One run of the script on the board; what it answers."""
        files = self._files() | {
            "/bench.json": json.dumps(settings | {"set": self.set_name, "port": "qemu"}).encode(),
            "/meter.mpy": compiled(_SCRIPT, (SCRIPTS / _SCRIPT).read_text("utf-8")),
            "/turns.mpy": compiled(_TURNS, (SCRIPTS / _TURNS).read_text("utf-8")),
            "/main.py": b"import meter\n",
        }
        heap = HEAPS[self.set_name] + _SCRIPT_HEAP
        with self._machine(files, heap, counted, STACK_SIZE + _SCRIPT_STACK) as machine:
            if settings["mode"] != "modules":
                machine.wait_for(_UP[self.set_name], _BOOT_S)
                if counted:
                    self._exchange_in_turns(machine)
                else:
                    self._exchange(machine)
                    machine.write(b"\x03" if self.set_name == "micro" else b"stop\n")
            text = machine.wait_for(_PROMPT, _END_S)
        lines = [line for line in text.splitlines() if line.startswith(b'{"')]
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        if not answer or "event" in answer:
            raise BenchError(f"{_SCRIPT} on the board: {text[-200:].decode(errors='replace')}")
        return answer

    def bare(self) -> tuple[int, int]:
        """Bytes of the heap that are in use, and free, before any program."""
        files = {"/meter.mpy": compiled("bare.py", _BARE), "/main.py": b"import meter\n"}
        with self._machine(files, HEAPS[self.set_name]) as machine:
            text = machine.wait_for(_PROMPT, _BOOT_S)
        used, free = text.split(b"bare ")[1].split()[:2]
        return int(used), int(free)

    def runs_in(self, heap: int) -> bool:
        """Whether the set's own program, and nothing else, exchanges all messages in a heap."""
        main = _MICRO_MAIN if self.set_name == "micro" else _SMALL_MAIN
        with self._machine(self._files() | {"/main.py": main.encode()}, heap) as machine:
            try:
                # What does not start says so and is at its prompt.
                text = machine.wait_for(_UP[self.set_name], _BOOT_S, _PROMPT)
                if _PROMPT in text:
                    return False
                self._exchange(machine)
            except (BenchError, BoardError):
                return False
        return True

    @property
    def _frame_size(self) -> int:
        return FRAME_SIZE_MICRO if self.set_name == "micro" else FRAME_SIZE_MAX

    def _exchange(self, machine: Machine) -> None:
        def wait() -> bytes:
            time.sleep(PAUSE_S)
            text = machine.text()
            return b"" if machine.running and _PROMPT not in text else text[-200:]

        line = open_serial(f"serial://{machine.line}?plain=1", self._frame_size)
        with BoardPeer(line, self._frame_size) as peer:
            peer.exchange(MESSAGES, _EXCHANGE_S, wait, one_by_one=False)

    def _exchange_in_turns(self, machine: Machine) -> None:
        line = TurnsLine(machine, self._frame_size)
        line.wait()
        with BoardPeer(line, self._frame_size, lambda: line.now_ms) as peer:
            peer.exchange(MESSAGES, _EXCHANGE_S, line.wait, one_by_one=True)

    def _files(self) -> dict[str, bytes]:
        if self.set_name == "micro":
            return {"/micro_config.mpy": compiled("micro_config.py", _MICRO_CONFIG)}
        return {"/bench.board.json": configuration(MESSAGES, "uart:1?plain=1")}

    @contextmanager
    def _machine(
        self, files: dict[str, bytes], heap: int, counted: bool = False, stack: int = STACK_SIZE
    ) -> Iterator[Machine]:
        path = self.folder / "drive"
        drive.write(path, files)
        with Machine(Start(self.image, path, heap, stack, counted=counted)) as machine:
            yield machine


def measure(set_name: str, progress: Callable[[str], None]) -> Row:
    """The row of one set. Raises BenchError, BuildError."""
    progress(f"m3 {set_name}: building the image")
    path = image(set_name)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(set_name, path, Path(folder))
        try:
            return _row(bench, progress)
        except BoardError as error:
            raise BenchError(f"m3 {set_name}: {error}") from None


def _row(bench: Bench, progress: Callable[[str], None]) -> Row:
    name = bench.set_name
    bare, bare_free = bench.bare()
    figures = {}
    for mode in ("run", "peak", "count"):
        progress(f"m3 {name}: {mode}")
        figures[mode] = bench.run({"mode": mode, "bare": bare}, counted=mode == "count")
    modules = bench.run({"mode": "modules", "names": figures["run"]["names"], "bare": bare})
    run, count = figures["run"], figures["count"]
    progress(f"m3 {name}: looking for the smallest heap")
    why = {"boot_ms": NO_TIME} | ({"kinsn_seal_100": NO_SEAL} if name == "micro" else {})
    return {
        "board": "m3", "set": name, "image_bytes": image_bytes(bench.image),
        "heap": HEAPS[name], "used_after_boot": run["used"],
        "free_after_boot": bare + bare_free - run["used"],
        "modules_heap": modules["modules_heap"], "stack_peak": run["stack_peak"],
        "heap_peak": figures["peak"]["heap_peak"], "alloc_per_record": count["alloc_per_record"],
        "alloc_per_epoch": count["alloc_per_epoch"],
        **kinsn_columns(count),
        "boot_ms": None, "flash_programs_per_message": run["programs"] / (2 * MESSAGES),
        "flash_erases_per_message": run["erases"] / (2 * MESSAGES),
        "heap_min": smallest_heap(bench, run["used"]), "why_not": why,
    }  # fmt: skip


def smallest_heap(bench: Bench, used: int) -> int:
    """The least heap in which the set exchanges its messages, to HEAP_STEP.

    Looked for upwards from `used`, what the set holds after its boot: a heap that is too small
    shows at once, an exchange takes seconds.
    """
    for steps in range(used // HEAP_STEP, HEAPS[bench.set_name] // HEAP_STEP + 1):
        if bench.runs_in(steps * HEAP_STEP):
            return steps * HEAP_STEP
    raise BenchError(f"m3 {bench.set_name} does not run in the heap that it is for")
