"""The `drupelet` command in a process of its own, forked off one that has loaded it already.

To load it takes 0.4 s of processor time, and tests run hundreds of commands. What the process does
then is the same. Tests of the start itself (test_entry.py), and commands with an environment, a
folder or an input of their own, begin with the interpreter.
"""

import importlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from typing import IO, Any

_LOADED = [
    "drupelet_host.entry", "drupelet_host.cli.app", "drupelet_host.agent.loop",
    "drupelet_tools.cli", __name__,
]  # fmt: skip
_context = multiprocessing.get_context("forkserver")


class _Descriptor:
    """A descriptor that goes along to the new process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __getstate__(self) -> object:
        return DupFd(self.fd)

    def __setstate__(self, copy: Any) -> None:
        self.fd = copy.detach()


class Command:
    """A command that runs, with what subprocess.Popen has for it.

    constants: dotted name -> value that the command's modules have in place of their own.
    """

    def __init__(
        self, words: list[str], stdout: IO[Any], stderr: IO[Any],
        constants: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        _context.set_forkserver_preload(_LOADED)
        with open(os.devnull, "rb") as stdin:
            streams = [_Descriptor(stream.fileno()) for stream in (stdin, stdout, stderr)]
            umask = os.umask(0)
            os.umask(umask)
            self._words = words
            self._process = _context.Process(
                target=_run,
                args=(words, dict(os.environ), os.getcwd(), umask, streams, dict(constants or {})),
                daemon=True,
            )  # fmt: skip
            self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code once it has ended; that of a signal is negative."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._words, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """As Popen does it: who has ended gets none."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(words: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = Command(words, out, err)
        try:
            code = command.wait(timeout_s)
        finally:
            command.kill()
        return subprocess.CompletedProcess(words, code, _text_of(out), _text_of(err))


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return io.TextIOWrapper(io.BytesIO(file.read())).read()


def _run(
    words: list[str], environment: dict[str, str], folder: str, umask: int,
    streams: list[_Descriptor], constants: dict[str, object],
) -> None:  # fmt: skip
    """In the new process: what the interpreter does before it runs the command."""
    from drupelet_host.entry import main

    for number, stream in enumerate(streams):
        os.dup2(stream.fd, number)
        os.close(stream.fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = ["drupelet", *words]
    os.environ.clear()
    os.environ.update(environment)
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    os.chdir(folder)
    os.umask(umask)
    main()
