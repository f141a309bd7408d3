"""Serial lines of MicroPython's unix port: terminal devices of the machine."""

import os

from drupelet.base.compat import const
from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet_transports.stream_board import StreamBoard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet_transports.stream_board import Stream

# fcntl(2), the same numbers on every Linux that MicroPython's unix port runs on.
_F_GETFL = const(3)
_F_SETFL = const(4)
_O_NONBLOCK = const(0o4000)
# A line that was plugged in again is found within this.
_RETRY_MS = const(5000)


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
