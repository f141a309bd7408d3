"""Frames over a MicroPython stream that never waits: a UART of a chip, its console, a terminal.

Only the constructor allocates: reading goes into one buffer of 64 bytes, writing uses
MicroPython's `write(buf, offset, size)`.
"""

from drupelet.base.limits import FRAME_SIZE_MAX, WAIT_MS_MAX
from drupelet_transports.base import E_CLOSED
from drupelet_transports.framing import StreamTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Stream(Protocol):
        """What both kinds of line offer; `close` or `deinit` besides."""

        def readinto(self, buf: bytearray) -> int | None: ...

        def write(self, buf: bytearray, at: int, size: int) -> int | None: ...


class StreamBoard(StreamTransport):
    """Frames over a MicroPython stream that never waits, such as machine.UART(timeout=0).

    The stream has `readinto(buf)` and `write(buf, offset, size)`, which return None when they
    would wait, and `close` or `deinit`. `watched` is what to wait on where that is another object.
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

    def maintain(self, _now_ms: int) -> None:
        """A line of the chip's own is always there."""

    def wait_ms(self, _now_ms: int) -> int:
        """How long `maintain` may wait."""
        return WAIT_MS_MAX

    def close(self) -> None:
        """Let go of the stream; bytes that still wait are lost."""
        stream = self._stream
        if stream is not None:
            self._stream = self.poll_object = None
            self.pending_size = self._tx_at = self._tx_end = 0
            getattr(stream, "close" if hasattr(stream, "close") else "deinit")()
