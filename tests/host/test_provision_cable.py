"""Keys over a cable whose device goes away: one line, and no traceback."""

import errno
import os
import pty
import termios
from collections.abc import Iterator

import pytest
import serial

from drupelet_host.provision_serial import SerialKeys
from drupelet_transports.base import TransportError

OWN, PEER = b"\xa0\0\0\1", b"\xb0\0\0\1"


def gone(*_: object, **__: object) -> None:
    """pyserial lets the terminal's own error through, which is no OSError."""
    raise termios.error(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def terminal() -> Iterator[str]:
    ends = pty.openpty()
    yield os.ttyname(ends[1])
    for end in ends:
        os.close(end)


def test_a_device_that_goes_while_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    monkeypatch.setattr(serial, "Serial", gone)
    with pytest.raises(TransportError, match=f"serial://{terminal}: .* does not answer"):
        SerialKeys(f"serial://{terminal}", OWN, PEER)


def test_a_device_that_goes_while_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    monkeypatch.setattr(serial.Serial, "flush", gone)
    with pytest.raises(TransportError, match=f"serial://{terminal}: the device went away"):
        SerialKeys(f"serial://{terminal}", OWN, PEER)
