"""Who takes part in the demo, what they are called, and where their folders are.

    A -- serial -- host        B -- MQTT -- host
    D -- serial -- C -- stick -- host
    E -- serial -- host        only with --pico

One group for the readings, one for the black boxes, which travel toward the host only.
"""

import fcntl
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from drupelet.base.errors import DrupeletError
from drupelet_transports.common.loopback import require_loopback
from drupelet_transports.common.url import parse_url

EPOCH_MS = 1000
# A broker on this machine answers at once or never.
BROKER_TIMEOUT_S = 3
# A Pico W or an ESP32 leaves MicroPython about this much.
HEAP_LIMIT = 128 * 1024
# Tables of a board: what a gateway in the field would set (docs/limits.md).
TABLES = {"peers_max": 8, "messages_max": 64, "offers_max": 64, "filter_size": 2048}
# One reading per board and epoch; the stick makes three round trips meanwhile.
READINGS = 24
# An emulated Pico takes several seconds for one of its own where it has work to do, so it takes
# fewer readings, and its peer gives it more of its own time to answer.
PICO_READINGS = 6
PICO_EPOCH_MS = 300
PICO_PEER_EPOCH_MS = 3000
GROUP = "demo"
HOST = "host"
BOARDS = ("A", "B", "C", "D")
PICO = "E"
IDS = {
    HOST: "40000000",
    "A": "a0000001",
    "B": "b0000002",
    "C": "c0000003",
    "D": "d0000004",
    PICO: "e0000005",
}
CARRIERS = {
    HOST: "serial, mqtt, stick",
    "A": "serial",
    "B": "mqtt",
    "C": "stick, serial",
    "D": "serial",
    PICO: "serial",
}
KINDS = {
    HOST: "process, CPython",
    **dict.fromkeys(BOARDS, "process, unix port"),
    PICO: "Pico, emulated",
}
# Of drupelet_tools.telemetry: whose currents a member is modelled with.
ENERGY = {HOST: "", **dict.fromkeys(BOARDS, "esp32"), PICO: "rp2040"}
# What a board gives its black boxes to: the way to the host.
TELEMETRY_TO = {"A": (HOST,), "B": (HOST,), "C": (HOST,), "D": ("C",), PICO: (HOST,)}
# An output folder with this file is one of ours and may be written again.
MARKER = ".drupelet-demo"
_OURS = (
    *("boards", "host", "firmware", "carried", "telemetry", "lake"),
    *("report.html", "names.json", "host.log"),
)
# LittleFS images, Parquet files, the report: a run takes about 15 MB.
FREE_BYTES_MIN = 64 * 1024 * 1024


class DemoError(DrupeletError):
    """The demo cannot run, or what it showed was not what it promises."""


@dataclass(frozen=True)
class Folders:
    """Where one run keeps its things, all below `out`."""

    out: Path

    @property
    def host(self) -> Path:
        """The agent's home."""
        return self.out / "host"

    def board(self, name: str) -> Path:
        """A board's own folder: configuration, flash, log of its output."""
        return self.out / "boards" / name

    def flash(self, name: str) -> Path:
        """A board's flash."""
        return self.board(name) / "flash"

    @property
    def firmware(self) -> Path:
        """The compiled core."""
        return self.out / "firmware"

    @property
    def hand(self) -> Path:
        """The stick while somebody carries it."""
        return self.out / "carried"

    def mount(self, name: str) -> Path:
        """Where the stick appears at a member."""
        return (self.host if name == HOST else self.board(name)) / "stick"

    @property
    def telemetry(self) -> Path:
        """Black-box segments as the host exports them."""
        return self.out / "telemetry"

    @property
    def lake(self) -> Path:
        """The Parquet tables."""
        return self.out / "lake"

    @property
    def report(self) -> Path:
        """The page."""
        return self.out / "report.html"


def check_broker(text: str) -> None:
    """Raise TransportError or DemoError unless an MQTT broker of this machine listens there."""
    url = parse_url(text)
    if url.scheme != "mqtt":
        raise DemoError(f"--broker {text}: must be an MQTT URL, as in mqtt://localhost:1883/demo")
    address = require_loopback(url.host)
    try:
        socket.create_connection((address, url.port), BROKER_TIMEOUT_S).close()
    except OSError as error:
        raise DemoError(
            f"--broker {text}: no answer ({error.strerror or error}); start the broker,"
            " or leave --broker out and one is started"
        ) from None


def lock(out: Path) -> IO[str] | None:
    """Keep other demos out of an output folder while the result is open; None if it is new."""
    marker = out / MARKER
    if not marker.is_file():
        return None
    held = marker.open()
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise DemoError(f"{out}: another demo runs there; give another --out folder") from None
    return held


def prepare(out: Path) -> Folders:
    """Make the output folder, or empty one that an earlier demo made."""
    folders = Folders(out.resolve())
    marker = folders.out / MARKER
    try:
        if folders.out.is_dir() and any(folders.out.iterdir()) and not marker.is_file():
            raise DemoError(f"{out}: not empty and not from a demo; give another --out folder")
        folders.out.mkdir(parents=True, exist_ok=True)
        marker.write_text("drupelet demo writes here; delete the folder when you like\n")
        for name in _OURS:
            path = folders.out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for board in BOARDS:
            folders.flash(board).mkdir(parents=True)
        folders.host.mkdir(mode=0o700)
        folders.hand.mkdir()
        free = shutil.disk_usage(folders.out).free
    except OSError as error:
        reason = error.strerror or str(error)
        raise DemoError(
            f"{out}: cannot be written ({reason}); give another --out folder"
        ) from None
    if free < FREE_BYTES_MIN:
        raise DemoError(
            f"{out}: {free >> 20} MB free, the demo needs {FREE_BYTES_MIN >> 20};"
            " make room or give another --out folder"
        )
    return folders
