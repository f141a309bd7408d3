# host only
"""Serial lines on a host, over pyserial: `serial:///dev/ttyACM0?baud=115200`."""

import select
import socket
import termios
from typing import Protocol

import serial

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_transports.common.framing import RX_SIZE, StreamTransport
from drupelet_transports.common.transport import E_CLOSED, TransportError
from drupelet_transports.common.url import Url, parse_url

BAUD = 115200
# A server of a serial port is on the local network, so it answers quickly.
_CONNECT_S_MAX = 4.0


class Port(Protocol):
    """An open serial line that never waits."""

    def fileno(self) -> int:
        """Return the descriptor for `select`."""

    def read(self, size: int, /) -> bytes:
        """Return the available bytes, b"" if there are none; raises OSError at the end."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int | None:
        """Return how many bytes were taken."""

    def close(self) -> None:
        """Close the line."""


class TcpPort:
    """A serial port that is served over TCP."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _CONNECT_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno
        self.close = self._socket.close

    def read(self, size: int) -> bytes:
        """See Port."""
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionResetError("closed at the other end")
        return data

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """See Port."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0


class SerialHost(StreamTransport):
    """Frames over an open port that never waits (pyserial: `timeout=0, write_timeout=0`)."""

    def __init__(self, port: Port, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        super().__init__(frame_size_max)
        self._port: Port | None = port
        self.poll_object = port

    def _read(self) -> int:
        if self._port is None:
            return E_CLOSED
        try:
            data = self._port.read(RX_SIZE)
        except (OSError, serial.SerialException):
            return E_CLOSED
        self._rx[: len(data)] = data
        return len(data)

    def _write(self, at: int, size: int) -> int:
        if self._port is None:
            return E_CLOSED
        try:
            # On a full non-blocking line pyserial would retry for ever, so ask first.
            if not select.select([], [self._port], [], 0)[1]:
                return 0
            count = self._port.write(self._tx[at : at + size])
        except (OSError, serial.SerialException):
            return E_CLOSED
        return count or 0

    def close(self) -> None:
        """Close the port; pending bytes are lost."""
        if self._port is not None:
            self._port.close()
            self._port = self.poll_object = None
            self.pending_size = 0


def open_serial(url: Url | str, frame_size_max: int = FRAME_SIZE_MAX) -> SerialHost:
    """Open the line of a URL; raises TransportError with one line and the remedy."""
    if isinstance(url, str):
        url = parse_url(url)
    if url.host:
        try:
            return SerialHost(TcpPort(url.host, url.port), frame_size_max)
        except OSError as error:
            why = error.strerror or error
            raise TransportError(f"{url.text}: {why}; start what serves this port") from None
    try:
        port = serial.Serial(
            url.path,
            baudrate=url.option_number("baud", BAUD),
            timeout=0,
            write_timeout=0,
            exclusive=True,
        )
    except (OSError, ValueError, serial.SerialException, termios.error) as error:
        raise TransportError(f"{url.text}: {remedy(url.path, error)}") from None
    return SerialHost(port, frame_size_max)


def remedy(path: str, error: Exception) -> str:
    """Return why a line cannot be opened, and what to do."""
    number = getattr(error, "errno", None)
    if isinstance(error, termios.error):  # unplugged while it was opened; not an OSError
        number = error.args[0]
    if isinstance(error, ValueError):
        return "the device does not take this speed; try ?baud=115200"
    if number == 2:
        return f"there is no device {path}; plug it in and check its name under /dev"
    if number == 13:
        return f"no permission for {path}; join the group that owns it (often dialout)"
    if number == 11 or "lock" in str(error):
        return f"another program uses {path}; close it"
    return f"{path} is no serial device or does not answer; check the path"
