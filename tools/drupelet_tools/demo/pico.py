"""The demo's sixth member: a Raspberry Pi Pico in an emulator, on the image that is shipped.

Its console tells how it is and takes commands, as that of any board. The host reaches it over its
UART, which is a TCP port of this machine. The emulator takes several seconds for one of the chip's
when there is work, so the Pico has an epoch of its own and fewer readings to take.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from drupelet_host.home.config import Config
from drupelet_host.keys import provision
from drupelet_tools.demo import plan
from drupelet_tools.demo.child import Event
from drupelet_tools.demo.plan import HOST, IDS, PICO, DemoError, Folders
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import copy_folder, put
from drupelet_tools.pico.wire import Wire

_UART = 1
_URL = "uart:1?tx=4&rx=5&baud=115200"
_LOG_FOLDER = "/log"
# The longest that a demo may run with it; the emulator ends by itself then.
_LIFE_S = 1800
# From power-on to its request for keys: 0.6 s of the chip's.
_BOOT_S = 120.0
_CONNECT_S = 10.0
_LOOK_S = 0.1
_CHUNK_SIZE = 4096
# A line of its status has 200 bytes; what is longer comes from something else than our firmware.
_LINE_SIZE_MAX = 4096
# Other members have clocks of this machine, which the emulator must not slow down as well.
_NICENESS = 5


class PicoMember:
    """The Pico; `tell` gets (name, event) for each line of JSON on its console."""

    def __init__(self, folders: Folders, image: Path, tell: Callable[[str, Event], None]) -> None:
        self._tell = tell
        self._target = folders.flash(PICO)
        self.log = folders.board(PICO) / "output.log"
        self.log.parent.mkdir(parents=True)
        self._pico = Pico(
            folders.board(PICO) / "flash.bin", image, seconds=_LIFE_S, log=self.log
        )  # fmt: skip
        os.setpriority(os.PRIO_PROCESS, self._pico.process.pid, _NICENESS)
        self._console: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """How the host's agent reaches it."""
        return f"serial://localhost:{self._pico.uart_ports[_UART]}"

    # --- set-up ---

    def set_up(self, settings: Config) -> None:
        """Send its configuration and its keys over USB, then hear what its console tells."""
        self._pico.wait("usb", timeout_s=_BOOT_S)
        put(self._pico, {"/drupelet.json": json.dumps(configuration(), indent=2).encode()})
        self._pico.power_off()
        self._pico.power_on()
        end = time.monotonic() + _BOOT_S
        while b'"keyless"' not in self.log.read_bytes():
            if time.monotonic() > end:
                raise DemoError(f"{PICO} asked for no keys: {self.last_words()}")
            time.sleep(_LOOK_S)
        cable = Wire(self._pico.console_port)
        try:
            provision.provision_peer(settings, PICO, f"serial://{cable.device}")
        finally:
            cable.close()
        self._console = socket.create_connection(
            ("127.0.0.1", self._pico.console_port), _CONNECT_S
        )  # fmt: skip
        self._console.settimeout(None)
        self._thread = threading.Thread(
            target=self._read, args=(self._console,), daemon=True, name=f"read {PICO}"
        )
        self._thread.start()

    def _read(self, console: socket.socket) -> None:
        text = b""
        while True:
            try:
                piece = console.recv(_CHUNK_SIZE)
            except OSError:
                return
            if not piece:
                return
            *lines, text = (text + piece).split(b"\n")
            text = text[-_LINE_SIZE_MAX:]
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict):
                    self._tell(PICO, event)

    # --- as of a child process ---

    @property
    def running(self) -> bool:
        """Whether the emulator is alive."""
        return self._pico.process.poll() is None

    def command(self, text: str) -> None:
        """Write one line to its console."""
        if self._console is None:
            raise DemoError(f"{PICO} is not set up yet")
        self._console.sendall(text.encode() + b"\n")

    def last_words(self) -> str:
        """The last line on its console, for an error message."""
        lines = self.log.read_bytes().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    # --- the end ---

    def take_log(self) -> None:
        """Copy its log once it has stopped, by its prompt."""
        self._hang_up()
        copy_folder(self._pico, _LOG_FOLDER, self._target)

    def close(self) -> None:
        """End the emulator."""
        self._hang_up()
        self._pico.close()

    def _hang_up(self) -> None:
        if self._console is None:
            return
        # The reader sees the end at once; a close alone would leave it waiting.
        with suppress(OSError):  # of an emulator that has hung up first
            self._console.shutdown(socket.SHUT_RDWR)
        self._console.close()
        self._console = None
        if self._thread is not None:
            self._thread.join(_CONNECT_S)


def configuration() -> dict[str, Any]:
    """What its file drupelet.json says."""
    return {
        "name": PICO,
        "id": IDS[PICO],
        "flash": _LOG_FOLDER,
        "group": plan.GROUP,
        "epoch_ms": plan.PICO_EPOCH_MS,
        "readings_max": plan.PICO_READINGS,
        **plan.TABLES,
        "telemetry_to": [IDS[name] for name in plan.TELEMETRY_TO[PICO]],
        "peers": [{"id": IDS[HOST], "url": _URL, "mode": "batch"}],
    }
