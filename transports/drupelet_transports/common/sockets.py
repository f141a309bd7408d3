"""Non-blocking reads and writes of sockets, for which boards and hosts have different calls."""

import socket

from drupelet.base.compat import ON_BOARD


def write(sock: socket.socket, buf: bytearray, at: int, size: int) -> int:
    """Write buf[at:at+size]; return the number of bytes taken, 0 if it would block. OSError."""
    if ON_BOARD:
        return sock.write(buf, at, size) or 0  # type: ignore[attr-defined]
    try:
        return sock.send(memoryview(buf)[at : at + size])
    except BlockingIOError:
        return 0


def read(sock: socket.socket, buf: bytearray) -> int:
    """Read to the beginning of `buf`; return the number of bytes, 0 at the end of the stream, -1
    if it would block. OSError.
    """
    if ON_BOARD:
        count = sock.readinto(buf)  # type: ignore[attr-defined]
        return -1 if count is None else count
    try:
        return sock.recv_into(buf)
    except BlockingIOError:
        return -1
