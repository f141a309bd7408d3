"""Runs the board: QEMU with an image, a drive and a heap size, its console and its serial line."""

import os
import re
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from drupelet_tools.flash.errors import BuildError
from drupelet_tools.terminal import DeviceLink

# Where the image looks for what it is told (port/board.h, port/memory.ld).
_SETTINGS = 0x203FF000
# What an RP2040 has, which has least of our real boards.
STACK_SIZE = 8192
_PROGRAM = "qemu-system-arm"
_PTY = re.compile(rb"char device redirected to (\S+) \(label line\)\r?\n")
_POWER_ON = 1
_END_TIMEOUT_S = 10
_CHUNK_SIZE = 4096


class BoardError(Exception):
    """The board did not do what was waited for; one line."""


@dataclass(frozen=True)
class Start:
    """How a board is started."""

    image: Path
    drive: Path
    heap: int
    stack: int = STACK_SIZE
    seed: int = 1  # of its random numbers: the machine has no source of chance
    counted: bool = False  # an instruction is a nanosecond of the board's time


class Machine:
    """A board that runs until `stop`, or until it resets itself."""

    def __init__(self, start: Start) -> None:
        if not shutil.which(_PROGRAM):
            raise BuildError(f"{_PROGRAM} is missing: run tools/setup --for-tests")
        self._process = subprocess.Popen(
            [_PROGRAM, *_arguments(start)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._text = bytearray()
        match = self._until(lambda: _PTY.search(self._text), _END_TIMEOUT_S, "a serial line")
        assert isinstance(match, re.Match)
        self._link = DeviceLink(match[1].decode())
        self.line = self._link.path
        """The other end of its UART 1: a terminal device."""
        del self._text[: match.end()]

    def __enter__(self) -> "Machine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()

    def write(self, data: bytes) -> None:
        """Type on its console."""
        self._input.write(data)
        self._input.flush()

    def wait_for(self, mark: bytes, timeout_s: float, other: bytes = b"\n\n\n") -> bytes:
        """What its console says up to and with `mark`, or `other`. Raises BoardError."""
        first = re.compile(re.escape(mark) + b"|" + re.escape(other))
        match = self._until(lambda: first.search(self._text), timeout_s, repr(mark))
        assert isinstance(match, re.Match)
        end = match.end()
        text = bytes(self._text[:end])
        del self._text[:end]
        return text

    def text(self) -> bytes:
        """What its console has said and nobody has taken."""
        self._read(0)
        return bytes(self._text)

    @property
    def running(self) -> bool:
        """Whether it has not reset itself."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Cut its power: what the drive holds by now stays."""
        self._link.close()
        if self.running:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(_END_TIMEOUT_S)
        self._input.close()
        self._output.close()

    def _read(self, wait_s: float) -> bool:
        """Take what the console says; False at its end."""
        if not select.select([self._output], [], [], wait_s)[0]:
            return True
        data = os.read(self._output.fileno(), _CHUNK_SIZE)
        self._text += data
        return bool(data)

    def _until(self, ready: "object", timeout_s: float, what: str) -> object:
        assert callable(ready)
        end = time.monotonic() + timeout_s
        alive = True
        while not (result := ready()):
            left_s = end - time.monotonic()
            if not alive or left_s <= 0:
                why = f"not in {timeout_s:.0f} s" if alive else "it ended"
                last = bytes(self._text[-300:]).decode("utf-8", "backslashreplace").strip()
                raise BoardError(f"the board was to give {what}: {why}; it said: {last!r}")
            alive = self._read(left_s)
        return result


def _arguments(start: Start) -> list[str]:
    settings = (
        (0, start.heap, 4), (4, _POWER_ON, 4), (8, start.seed, 8), (16, start.stack, 4),
    )  # fmt: skip
    arguments = [
        "-machine", "mps2-an385,memory-backend=drive",
        "-object", f"memory-backend-file,id=drive,size=16M,share=on,mem-path={start.drive}",
        "-display", "none", "-monitor", "none", "-semihosting",
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-chardev", "pty,id=line", "-serial", "chardev:line",
        "-kernel", str(start.image),
    ]  # fmt: skip
    for at, value, size in settings:
        loaded = f"loader,addr={_SETTINGS + at:#x},data={value:#x},data-len={size}"
        arguments += ["-device", loaded]
    return arguments + (["-icount", "shift=0"] if start.counted else [])
