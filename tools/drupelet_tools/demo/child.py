"""One child process: its lines of JSON become events, and it never outlives the demo."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
_PR_SET_PDEATHSIG = 1
# How long a child that was asked to end may take.
STOP_S = 1.0


# Looked up before there are threads: between fork and exec only the call itself may happen.
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def die_with_parent() -> None:
    """In the child: be killed when the demo is, however the demo ends (Linux; else nothing)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C until the block ends.

    An exception that is raised in the hooks that run at a fork would be lost.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def run_to_end(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Run a command; return its exit code and its standard error. Ctrl-C leaves nothing running.

    Raises subprocess.TimeoutExpired.
    """
    started: list[subprocess.Popen[str]] = []
    try:
        with interrupts_held():
            started.append(
                subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
                )
            )
        error_text = started[0].communicate(timeout=timeout_s)[1]
        return started[0].returncode, error_text
    finally:
        for process in started:
            with process:  # waits for the process, and closes its pipes
                process.kill()


class Child:
    """A running process; `tell` gets (name, event) for each line of JSON that it prints.

    To end it, `Child` sends the line `stop` and closes its input, or sends SIGTERM if `by_signal`
    is set; a process that does not end in time is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        tell: Callable[[str, Event], None],
        env: dict[str, str] | None = None,
        by_signal: bool = False,
    ) -> None:
        self.name = name
        self._by_signal = by_signal
        self.log = log
        self._tell = tell
        self._log = log.open("ab")
        try:
            with interrupts_held():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    env={**os.environ, **(env or {})},
                    # Not in the foreground group: Ctrl-C reaches the demo alone, which stops
                    # its children in order.
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call, see above
                )
        except KeyboardInterrupt:
            self._process.kill()
            self._process.wait()
            raise
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"read {name}")
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.write(line)
            self._log.flush()
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._tell(self.name, event)

    @property
    def pid(self) -> int:
        """The number of the process, by which the system tells what it uses."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def command(self, text: str) -> None:
        """Write one line to the process."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """No warning: SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._end()

    def ask(self) -> None:
        """Ask it to end; `stop` sees to it."""
        assert self._process.stdin is not None
        if self._by_signal:
            self._process.terminate()
        elif self.running:
            self.command("stop")
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def stop(self, deadline_s: float | None = None) -> None:
        """Ask, then make it end within a second, or by `deadline_s` of time.monotonic."""
        if deadline_s is None:
            deadline_s = time.monotonic() + STOP_S
        self.ask()
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._end()

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        # What a process leaves in its pipe is read in no time: nobody else holds the other end.
        self._thread.join(STOP_S)
        self._process.stdout.close()
        self._log.close()

    def last_words(self) -> str:
        """The last line that it wrote, for an error message."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
