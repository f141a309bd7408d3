"""Serial lines of MicroPython's unix port: terminal devices."""

import os

from drupelet.base.compat import const
from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet_transports.board.stream import StreamBoard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet_transports.board.stream import Stream

# fcntl(2), the same numbers on every Linux that MicroPython's unix port runs on.
_F_GETFL = const(3)
_F_SETFL = const(4)
_O_NONBLOCK = const(0o4000)
# How often to look for a device that is not plugged in.
_RETRY_MS = const(5000)


class SerialBoard(StreamBoard):
    """Frames over a terminal device, for the unix port.

    A missing device is opened when it appears: call `maintain` at least every `wait_ms`.
    """

    def __init__(self, path: str, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        """Open `path` raw at 115,200 baud; `up` says whether it is there and a terminal."""
        StreamBoard.__init__(self, None, frame_size_max)
        self._path = path
        self._tried_ms = 0
        self.up = False
        self.maintain(_RETRY_MS)

    def maintain(self, now_ms: int) -> None:
        """Open the device again after it was unplugged."""
        if not self.up:
            self.close()  # a closed line is always ready, so a wait on it would not sleep
            if not self.wait_ms(now_ms):
                self._tried_ms = now_ms
                self._stream = self.poll_object = _open_terminal(self._path)
                self.up = self._stream is not None
                self._begun = False

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next call of `maintain`, in ms."""
        waited_ms = elapsed_ms(now_ms, self._tried_ms)
        return WAIT_MS_MAX if self.up else max(0, _RETRY_MS - waited_ms)


def _open_terminal(path: str) -> "Stream | None":
    """Open a device raw and non-blocking; None if it is missing or no terminal."""
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
        # A full line must not block the board, and MicroPython has no call for O_NONBLOCK.
        fcntl = ffi.open(None).func("i", "fcntl", "iii")
        if fcntl(descriptor, _F_SETFL, fcntl(descriptor, _F_GETFL, 0) | _O_NONBLOCK) < 0:
            raise OSError
    except OSError:
        if stream is not None:
            stream.close()
        return None
    return stream  # type: ignore[return-value]
