"""`drupelet bench board`, rows rp2: the shipped image on an emulated Pico, while it talks."""

import json
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_tools.bench.board import SCRIPTS
from drupelet_tools.bench.board_peer import MESSAGES, PAUSE_S, BoardPeer, configuration
from drupelet_tools.bench.columns import Row, kinsn_columns
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.descriptor_line import DescriptorLine
from drupelet_tools.flash.sets import Choice
from drupelet_tools.image.build import build_image, symbols_of
from drupelet_tools.image.uf2 import BLOCK_SIZE, PAGE_SIZE
from drupelet_tools.m3.image import compiled
from drupelet_tools.pico.emulator import Pico

_SCRIPT = "board_meter.py"
_UP = b'"event": "started"'
_URL = "uart:0?tx=0&rx=1&plain=1"
# The emulator runs at a tenth of a Pico's speed, on a machine that does something else, too.
_BOOT_S = 180
_EXCHANGE_S = 600
_BARE = "import gc\ngc.collect()\nprint(gc.mem_alloc(), gc.mem_free())"
_FIXED_HEAP = "a Pico's heap is what its image leaves"


def measure(set_name: str, progress: Callable[[str], None]) -> Row:
    """The row of one set. Raises BenchError, BuildError."""
    progress(f"rp2 {set_name}: building the image")
    carriers = () if set_name == "full" else ("serial-sealed",)
    uf2 = build_image(Choice(set_name, carriers=carriers))
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("run", "peak", "count"):
            progress(f"rp2 {set_name}: {mode}")
            figures[mode] = _run(uf2, Path(folder) / mode, set_name, {"mode": mode})
        wish = {"mode": "modules", "names": figures["run"]["names"]}
        modules = _run(uf2, Path(folder) / "modules", set_name, wish)
    run, count = figures["run"], figures["count"]
    return {
        "board": "rp2", "set": set_name,
        "image_bytes": uf2.stat().st_size // BLOCK_SIZE * PAGE_SIZE, "heap": run["heap"],
        "used_after_boot": run["used"], "free_after_boot": run["heap"] - run["used"],
        "modules_heap": modules["modules_heap"], "stack_peak": run["stack_peak"],
        "heap_peak": figures["peak"]["heap_peak"],
        "alloc_per_record": count["alloc_per_record"], "alloc_per_epoch": count["alloc_per_epoch"],
        **kinsn_columns(count),
        "boot_ms": run["boot_ms"], "flash_programs_per_message": run["programs"] / (2 * MESSAGES),
        "flash_erases_per_message": run["erases"] / (2 * MESSAGES), "heap_min": None,
        "why_not": {"heap_min": _FIXED_HEAP},
    }  # fmt: skip


def _run(uf2: Path, flash: Path, set_name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One run of the script on a fresh Pico; what it answers, with what the emulator counted."""
    from drupelet_tools.pico.repl import prompt  # it needs the extra that brings mpremote

    with Pico(flash, uf2, symbols=symbols_of(uf2)) as pico:
        pico.wait("usb", timeout_s=_BOOT_S)
        with prompt(pico) as repl:
            used, free = map(int, repl.exec(_BARE).split())
            wish = settings | {"bare": used, "set": set_name, "port": "rp2"}
            for name, data in (
                ("/bench.json", json.dumps(wish).encode()),
                ("/bench.board.json", configuration(MESSAGES, _URL)),
                ("/meter.mpy", compiled(_SCRIPT, (SCRIPTS / _SCRIPT).read_text("utf-8"))),
            ):
                repl.fs_writefile(name, data)
            repl.exec_raw_no_follow("import meter")
            worn = [0, 0]
            if settings["mode"] != "modules":
                _wait_up(repl)
                worn = _exchange(pico, settings["mode"] == "count")
                repl.serial.write(b"stop\n")
            text, error = repl.follow(_BOOT_S)
    if error:
        raise BenchError(f"{_SCRIPT} on the Pico: {error.decode(errors='replace')[-200:]}")
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answer | {"heap": used + free, "programs": worn[0], "erases": worn[1]}


def _wait_up(repl: "Any") -> None:  # noqa: ANN401 - of a library without types
    """Until the board's loop runs. Raises BenchError with what it said instead."""
    text = b""
    end = time.monotonic() + _BOOT_S
    while _UP not in text:
        if time.monotonic() > end or b"\x04" in text:
            raise BenchError(f"the Pico's board does not start: {text[-200:]!r}")
        waiting = repl.serial.in_waiting
        text += repl.serial.read(waiting or 1)


def _exchange(pico: Pico, one_by_one: bool) -> list[int]:
    """Messages both ways; programs and erases of the flash meanwhile."""
    before = pico.status()
    end = socket.create_connection(("127.0.0.1", pico.uart_ports[0])).detach()
    with BoardPeer(DescriptorLine(end, end, FRAME_SIZE_MAX)) as peer:
        peer.exchange(MESSAGES, _EXCHANGE_S, _pause, one_by_one)
    after = pico.status()
    return [after[name] - before[name] for name in ("programs", "erases")]


def _pause() -> bytes:
    time.sleep(PAUSE_S)
    return b""
