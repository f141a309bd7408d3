"""Frames over a MicroPython stream that never waits: a chip's UART, its console, a terminal.

Only the constructor allocates: bytes are read into one buffer of 64 bytes and written by
MicroPython's `write(buf, offset, size)`.
"""

from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet_transports.common.framing import StreamTransport
from drupelet_transports.common.transport import E_CLOSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Stream(Protocol):
        """What both kinds of line have, beside `close` or `deinit`."""

        def readinto(self, buf: bytearray) -> int | None: ...

        def write(self, buf: bytearray, at: int, size: int) -> int | None: ...


class StreamBoard(StreamTransport):
    """Frames over a MicroPython stream that never waits, such as machine.UART(timeout=0).

    The stream has `readinto(buf)` and `write(buf, offset, size)`, which return None when they
    would wait, and `close` or `deinit`. `watched` is the object to wait on if it is another one.
    """

    def __init__(
        self, stream: "Stream | None", frame_size_max: int = FRAME_SIZE_MAX,
        watched: "object | None" = None,
    ) -> None:  # fmt: skip
        super().__init__(frame_size_max)
        self.poll_object = watched or stream
        self._stream: Stream | None = stream

    def _read(self) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            count = self._stream.readinto(self._rx)
        except OSError:  # EIO: the other end hung up or the adapter was pulled
            count = 0
        # 0 bytes (None: it would wait) is the end of the stream.
        self.up = count != 0
        if count is None:
            return 0
        return int(count) if count else E_CLOSED

    def _write(self, at: int, size: int) -> int:
        if self._stream is None:
            return E_CLOSED
        try:
            count = self._stream.write(self._tx, at, size)
        except OSError:
            self.up = False
            return E_CLOSED
        return int(count) if count else 0

    def maintain(self, _now_ms: int) -> None:
        """Do nothing: a line of the chip is always there."""

    def wait_ms(self, _now_ms: int) -> int:
        """Return the time until the next call of `maintain`, in ms."""
        return WAIT_MS_MAX

    def close(self) -> None:
        """Close the stream; pending bytes are lost."""
        stream = self._stream
        if stream is not None:
            self._stream = self.poll_object = None
            self.pending_size = 0
            getattr(stream, "close" if hasattr(stream, "close") else "deinit")()
