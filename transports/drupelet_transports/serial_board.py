"""Serial lines under MicroPython: a terminal device on the unix port, a UART on a board.

Only the constructors allocate: reading goes into one buffer of 64 bytes, writing uses
MicroPython's `write(buf, offset, size)`.
"""

import os

from drupelet._compat import const
from drupelet.limits import FRAME_SIZE_MAX
from drupelet_transports.base import E_CLOSED, TransportError
from drupelet_transports.framing import StreamTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Stream(Protocol):
        """What both kinds of line offer; `close` or `deinit` besides."""

        def readinto(self, buf: bytearray) -> int | None: ...

        def write(self, buf: bytearray, at: int, size: int) -> int | None: ...


# fcntl(2), the same numbers on every Linux that MicroPython's unix port runs on.
_F_GETFL = const(3)
_F_SETFL = const(4)
_O_NONBLOCK = const(0o4000)
_BAUD = const(115200)


class StreamBoard(StreamTransport):
    """Frames over a MicroPython stream that never waits, such as machine.UART(timeout=0).

    The stream has `readinto(buf)` and `write(buf, offset, size)`, which return None when they
    would wait, and `close` or `deinit`.
    """

    def __init__(self, stream: "Stream", frame_size_max: int = FRAME_SIZE_MAX) -> None:
        super().__init__(frame_size_max)
        self.poll_object = stream
        self._stream: Stream | None = stream

    def _read(self) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            got = self._stream.readinto(self._rx)
        except OSError:  # EIO: the other end hung up or the adapter was pulled
            return E_CLOSED
        if got is None:
            return 0
        # No bytes although it would not wait: the end of the stream.
        return int(got) if got else E_CLOSED

    def _write(self, at: int, size: int) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            taken = self._stream.write(self._tx, at, size)
        except OSError:
            return E_CLOSED
        return int(taken) if taken else 0

    def close(self) -> None:
        """Let go of the stream; bytes that still wait are lost."""
        stream = self._stream
        if stream is not None:
            self._stream = self.poll_object = None
            self.pending_size = self._tx_at = self._tx_end = 0
            getattr(stream, "close" if hasattr(stream, "close") else "deinit")()


class SerialBoard(StreamBoard):
    """Frames over a terminal device of the machine, for the unix port."""

    def __init__(self, path: str, baud: int = _BAUD, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        """Open `path` raw; TransportError if it is not there or no terminal."""
        super().__init__(_open_terminal(path, baud), frame_size_max)


def _open_terminal(path: str, baud: int) -> "Stream":
    import termios

    speed = getattr(termios, "B" + str(baud), None)
    if speed is None:
        raise TransportError("serial " + path + ": no such speed, use baud=115200")
    try:
        os.stat(path)
        stream = open(path, "r+b")  # noqa: SIM115
    except OSError as error:
        raise TransportError(
            "serial " + path + " cannot be opened (" + str(error) + "): plug the device in"
        ) from None
    try:
        termios.setraw(stream.fileno())  # type: ignore[attr-defined]
        settings = termios.tcgetattr(stream.fileno())
        settings[4] = settings[5] = speed
        termios.tcsetattr(stream.fileno(), termios.TCSANOW, settings)
        _never_wait(stream.fileno())
    except OSError:
        stream.close()
        raise TransportError("serial " + path + " is no serial device: check the path") from None
    return stream  # type: ignore[return-value]


def _never_wait(descriptor: int) -> None:
    """Set O_NONBLOCK, for which MicroPython has no call: a full line must not stop the board."""
    import ffi  # type: ignore[import-not-found]

    fcntl = ffi.open(None).func("i", "fcntl", "iii")
    flags = fcntl(descriptor, _F_GETFL, 0)
    if flags < 0 or fcntl(descriptor, _F_SETFL, flags | _O_NONBLOCK) < 0:
        raise OSError(flags)
