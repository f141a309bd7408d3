# host only
"""Serial lines on a host, over pyserial: `serial:///dev/ttyACM0?baud=115200`."""

import select
import termios

import serial

from drupelet.limits import FRAME_SIZE_MAX
from drupelet_transports.base import E_CLOSED, TransportError
from drupelet_transports.framing import RX_SIZE, StreamTransport
from drupelet_transports.url import Url, parse_url

BAUD = 115200


class SerialHost(StreamTransport):
    """Frames over an open pyserial port that never waits (`timeout=0, write_timeout=0`)."""

    def __init__(self, port: serial.Serial, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        super().__init__(frame_size_max)
        self._port: serial.Serial | None = port
        self.poll_object = port

    def _read(self) -> int:
        if self._port is None:
            return E_CLOSED
        try:
            got = self._port.read(RX_SIZE)
        except (OSError, serial.SerialException):
            return E_CLOSED
        self._rx[: len(got)] = got
        return len(got)

    def _write(self, at: int, size: int) -> int:
        if self._port is None:
            return E_CLOSED
        try:
            # pyserial tries again for ever when a line that never waits is full: ask first.
            if not select.select([], [self._port], [], 0)[1]:
                return 0
            taken = self._port.write(self._tx[at : at + size])
        except (OSError, serial.SerialException):
            return E_CLOSED
        return taken or 0

    def close(self) -> None:
        """Close the port; bytes that still wait are lost."""
        if self._port is not None:
            self._port.close()
            self._port = self.poll_object = None
            self.pending_size = self._tx_at = self._tx_end = 0


def open_serial(url: Url | str, frame_size_max: int = FRAME_SIZE_MAX) -> SerialHost:
    """Open the line that `url` names; TransportError with one line and the remedy."""
    if isinstance(url, str):
        url = parse_url(url)
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
    """Why a line cannot be opened, and what to do."""
    number = getattr(error, "errno", None)
    if isinstance(error, termios.error):  # a device that went while it was opened; no OSError
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
