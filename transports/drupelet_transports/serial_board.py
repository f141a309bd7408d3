"""Serial lines under MicroPython: a terminal device on the unix port, a UART on a board.

Only the constructors allocate: reading goes into one buffer of 64 bytes, writing uses
MicroPython's `write(buf, offset, size)`.
"""

import os

from drupelet._compat import const
from drupelet.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.schedule import elapsed_ms
from drupelet_transports.base import E_CLOSED
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
# A line that was plugged in again is found within this.
_RETRY_MS = const(5000)


class StreamBoard(StreamTransport):
    """Frames over a MicroPython stream that never waits, such as machine.UART(timeout=0).

    The stream has `readinto(buf)` and `write(buf, offset, size)`, which return None when they
    would wait, and `close` or `deinit`.
    """

    def __init__(self, stream: "Stream | None", frame_size_max: int = FRAME_SIZE_MAX) -> None:
        super().__init__(frame_size_max)
        self.poll_object = stream
        self._stream: Stream | None = stream

    def _read(self) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            got = self._stream.readinto(self._rx)
        except OSError:  # EIO: the other end hung up or the adapter was pulled
            got = 0
        # No bytes although it would not wait: the end of the stream.
        self.up = got != 0
        if got is None:
            return 0
        return int(got) if got else E_CLOSED

    def _write(self, at: int, size: int) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            taken = self._stream.write(self._tx, at, size)
        except OSError:
            self.up = False
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
    """Frames over a terminal device of the machine, for the unix port.

    One that is not there is opened when it comes: call `maintain` at least every `wait_ms`.
    """

    def __init__(self, path: str, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        """Open `path` raw at 115,200 baud, if it is there and a terminal: see `up`."""
        StreamBoard.__init__(self, None, frame_size_max)
        self._path = path
        self._tried_ms = 0
        self.up = False
        self.maintain(_RETRY_MS)

    def maintain(self, now_ms: int) -> None:
        """Open a line again that went away."""
        if not self.up:
            self.close()  # else what waits on it is woken for ever
            if not self.wait_ms(now_ms):
                self._tried_ms = now_ms
                self._stream = self.poll_object = _open_terminal(self._path)
                self.up = self._stream is not None
                self._begun = False

    def wait_ms(self, now_ms: int) -> int:
        """How long `maintain` may wait."""
        waited_ms = elapsed_ms(now_ms, self._tried_ms)
        return WAIT_MS_MAX if self.up else max(0, _RETRY_MS - waited_ms)


def _open_terminal(path: str) -> "Stream | None":
    """The line, raw, and so that it never waits; None when it is not there, or no terminal."""
    import termios

    import ffi  # type: ignore[import-not-found]

    stream = None
    try:
        os.stat(path)
        stream = open(path, "r+b")  # noqa: SIM115
        descriptor = stream.fileno()
        termios.setraw(descriptor)  # type: ignore[attr-defined]
        settings = termios.tcgetattr(descriptor)
        settings[4] = settings[5] = termios.B115200
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        # MicroPython has no call for O_NONBLOCK, and a full line must not stop the board.
        fcntl = ffi.open(None).func("i", "fcntl", "iii")
        if fcntl(descriptor, _F_SETFL, fcntl(descriptor, _F_GETFL, 0) | _O_NONBLOCK) < 0:
            raise OSError
    except OSError:
        if stream is not None:
            stream.close()
        return None
    return stream  # type: ignore[return-value]
