"""The prompt of an emulated Pico, over its USB console."""

import functools
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mpremote.transport import TransportError
from mpremote.transport_serial import SerialTransport

from drupelet_tools.pico.emulator import ANSWER_S, Pico

# What ends a node whose console carries frames (boards/console_line.py), then one with a free one.
_ESCAPE = b"\x00\x03\x03\x00"
_INTERRUPT = b"\x03"
_SETTLE_S = 3.0
_TRY_S = 10.0
_BAUD = 115200


@contextmanager
def prompt(pico: Pico) -> Iterator[SerialTransport]:
    """The REPL of a Pico that runs no node."""
    transport = SerialTransport(pico.console, _BAUD)
    # The emulated chip is slow, and this machine may have other work.
    transport.exec_raw = functools.partial(transport.exec_raw, timeout=ANSWER_S)
    _enter(transport)
    try:
        yield transport
        transport.exit_raw_repl()
    finally:
        transport.close()


def _enter(transport: SerialTransport) -> None:
    """Interrupt whatever runs. A Ctrl-C that comes while a program starts may find nobody."""
    until_s = time.monotonic() + ANSWER_S
    while True:
        try:
            transport.enter_raw_repl(soft_reset=False, timeout_overall=_TRY_S)
            return
        except TransportError:
            if time.monotonic() > until_s:
                raise


def interrupt(pico: Pico) -> None:
    """End the node that a Pico runs, as a person at its console does."""
    with socket.create_connection(("127.0.0.1", pico.console_port), _SETTLE_S) as console:
        for keys in (_ESCAPE, _INTERRUPT):
            console.sendall(keys)
            time.sleep(_SETTLE_S)


def put(pico: Pico, files: Mapping[str, bytes]) -> None:
    """Write files to the drive."""
    with prompt(pico) as repl:
        for name, content in files.items():
            repl.fs_writefile(name, content)


def copy_folder(pico: Pico, source: str, target: Path) -> None:
    """Copy the files of a folder on the drive."""
    target.mkdir(parents=True)
    with prompt(pico) as repl:
        for entry in repl.fs_listdir(source):
            content = repl.fs_readfile(f"{source}/{entry.name}")
            (target / entry.name).write_bytes(content)
