"""Starts and stops an emulated Pico (`runner.mjs`), cuts its power, tells what it counts.

Its USB console and its UARTs are TCP ports of loopback; its flash is a file, which holds at any
moment what a loss of power would leave. A Pico lives no longer than the `with` block around it.
"""

import json
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from drupelet_tools.flash.build import ROOT
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.image.sources import cache

RUNNER = Path(__file__).with_name("runner.mjs")
SECONDS_MAX = 3600  # what no emulator outlives
ANSWER_S = 60  # for what the emulator does at once, on a machine that has other work
_EVENTS_MAX = 10_000  # kept until somebody asks for them

Event = dict[str, Any]


def parts() -> Path:
    """Where tools/setup put the emulator and its boot ROM. Raises BuildError."""
    folder = cache().parent / "emulator"
    if not shutil.which("node"):
        raise BuildError("the emulator needs Node: apt-get install nodejs npm")
    for part in ("bootrom.bin", "node_modules/rp2040js/package.json"):
        if not (folder / part).is_file():
            raise BuildError("the emulator is not there: run tools/setup --for-pico")
    return folder


class Pico:
    """One emulated Pico; `uf2` is dropped on it before its first start.

    speed: how many simulated seconds may pass in one of this machine, at most. symbols: those of
    the image, where a program on the chip asks for what meter.mjs has.
    """

    def __init__(
        self, flash: Path, uf2: Path | None = None, *, speed: float = 1.0,
        seconds: int = SECONDS_MAX, log: Path | None = None,
        symbols: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        folder = parts()
        options = {
            "modules": str(folder), "bootrom": str(folder / "bootrom.bin"), "flash": str(flash),
            "uf2": str(uf2) if uf2 else None, "speed": speed, "seconds": seconds,
            "log": str(log) if log else None, "symbols": symbols,
        }  # fmt: skip
        self._events: queue.Queue[Event] = queue.Queue(_EVENTS_MAX)
        self.process = subprocess.Popen(
            ["node", str(RUNNER), json.dumps(options)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            ready = self.wait("ready")
        except (BuildError, KeyboardInterrupt):
            self.close()
            raise
        self.console_port = int(ready["console"])
        self.uart_ports = tuple(int(port) for port in ready["uarts"])

    def __enter__(self) -> "Pico":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    @property
    def console(self) -> str:
        """The USB console as pyserial and mpremote take it."""
        return f"socket://127.0.0.1:{self.console_port}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self._events.put_nowait(json.loads(line))
            except queue.Full:
                return

    def wait(self, *names: str, timeout_s: float = ANSWER_S) -> Event:
        """The next event of one of these names; those before it are dropped. Raises BuildError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                event = self._events.get(timeout=max(0.0, min(deadline - time.monotonic(), 0.5)))
            except queue.Empty:
                if self.process.poll() is not None and self._events.empty():
                    raise BuildError(f"the emulator ended: {self.process.returncode}") from None
                if time.monotonic() >= deadline:
                    raise BuildError(
                        f"the emulated Pico did not say {'/'.join(names)} in {timeout_s:.0f} s"
                    ) from None
                continue
            if event["event"] in names:
                return event
            if event["event"] == "error":
                raise BuildError(f"the emulator: {event['why']}")

    def poll(self, *names: str) -> Event | None:
        """An event of one of these names that has happened, None if there is none."""
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return None
            if event["event"] in names:
                return event

    def command(self, command: str, **fields: object) -> None:
        """Have the runner do something (see `commands` there)."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **fields}) + "\n")
        self.process.stdin.flush()

    def status(self) -> Event:
        """Counters: erases, programs, operations, instructions, resets, boots, sim_ms; with
        symbols heap, and heap_peak and stack_peak of all lives (see meter.mjs).
        """
        self.command("status")
        return self.wait("status")

    def cut(self, after: int, torn: float, kind: str = "") -> None:
        """Have the power fail at the `after`-th flash operation from now, when so much of its
        bytes are done; the event `cut` tells that it has. kind: only erase or program counts.
        """
        self.command("cut", after=after, torn=torn, kind=kind)

    def power_off(self) -> Event:
        """Pull the plug."""
        self.command("power_off")
        return self.wait("off")

    def power_on(self) -> Event:
        """Plug it in again."""
        self.command("power_on")
        return self.wait("on")

    def drop(self, uf2: Path) -> Event:
        """Drop another image on the board: the rest of its flash stays as it is."""
        self.command("uf2", file=str(uf2))
        return self.wait("on")

    def close(self) -> None:
        """End the emulator."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
