"""Frames over descriptors that never wait: a socket, pipes, our end of a terminal."""

import os

from drupelet_transports.common.framing import StreamTransport
from drupelet_transports.common.transport import E_CLOSED


class DescriptorLine(StreamTransport):
    """Reads frames at one descriptor and writes them at another, or the same."""

    def __init__(self, read_fd: int, write_fd: int, frame_size_max: int) -> None:
        super().__init__(frame_size_max)
        self._read_fd, self._write_fd = read_fd, write_fd
        for fd in {read_fd, write_fd}:
            os.set_blocking(fd, False)

    def _read(self) -> int:
        try:
            data = os.read(self._read_fd, len(self._rx))
        except BlockingIOError:
            return 0
        except OSError:
            return E_CLOSED
        self._rx[: len(data)] = data
        return len(data) or E_CLOSED

    def _write(self, at: int, size: int) -> int:
        try:
            return os.write(self._write_fd, self._tx[at : at + size])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close both descriptors."""
        for fd in {self._read_fd, self._write_fd}:
            os.close(fd)
