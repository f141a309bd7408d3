"""What a person at a Pico does: build its image, look at its prompt, put files on its drive."""

import faulthandler
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import prompt

BUILD_S = 1200  # on two cores that others use too
# What the small set leaves at its fullest moment: a boot, a self-test, an exchange, with a sealed
# console and the tables that a new board gets.
HEAP_FREE_MIN = 168 * 1024
# MicroPython's stack, and what an image keeps free below it (drupelet_tools/image/sources.py).
STACK_SIZE_MAX = 8192 + 1792
BOARD, HOST = 0xA0000001, 0x40000000
EPOCH_MS = 300


def allow(seconds: int) -> None:
    """Give the running test so long before it counts as hanging (faulthandler_timeout)."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def flash_image(out: Path, *options: str) -> Path:
    """As a person does it."""
    allow(2 * BUILD_S)
    done = subprocess.run(
        [
            sys.executable, "-m", "drupelet_host", "flash", "image", "rp2", "--out", str(out),
            *options,
        ],
        capture_output=True, text=True, timeout=BUILD_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def check_memory(pico_status: dict[str, int]) -> None:
    """No life's stack grew into the heap, and its fullest heap left what it should."""
    assert 0 < pico_status["stack_peak"] <= STACK_SIZE_MAX, pico_status
    free = pico_status["heap"] - pico_status["heap_peak"]
    print(f"\na Pico with set small: at least {free:,} bytes free")
    assert free >= HEAP_FREE_MIN, pico_status


def ask(pico: Pico, expression: str) -> Any:
    """The value of an expression on the board, which JSON can carry."""
    with prompt(pico) as repl:
        return json.loads(repl.exec(f"import json;print(json.dumps({expression}))"))


def configuration(url: str, **more: object) -> bytes:
    """The text of a drupelet.json with one peer, the host."""
    settings = {
        "name": "A", "id": f"{BOARD:08x}", "flash": "/log", "group": "orchard",
        "epoch_ms": EPOCH_MS, "readings_max": 0, "telemetry_to": [], "peers_max": 2,
        "messages_max": 32, "offers_max": 32, "filter_size": 1024,
        "peers": [{"id": f"{HOST:08x}", "url": url, "mode": "batch"}],
    }  # fmt: skip
    return json.dumps(settings | more).encode()


def start_again(pico: Pico) -> None:
    """Pull the plug and put it in again."""
    pico.power_off()
    pico.power_on()
    pico.wait("usb")
