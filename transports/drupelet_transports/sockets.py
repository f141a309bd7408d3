"""Bytes to and from a socket that does not block: boards and hosts have other calls for it."""

import socket

from drupelet.base.compat import ON_BOARD


def write(sock: socket.socket, buf: bytearray, at: int, size: int) -> int:
    """Bytes that the socket took, 0 when it would block; OSError when it is broken."""
    if ON_BOARD:
        return sock.write(buf, at, size) or 0  # type: ignore[attr-defined]
    try:
        return sock.send(memoryview(buf)[at : at + size])
    except BlockingIOError:
        return 0


def read(sock: socket.socket, buf: bytearray) -> int:
    """Bytes read to the start of `buf`, 0 for the end of the stream, -1 when none are there."""
    if ON_BOARD:
        count = sock.readinto(buf)  # type: ignore[attr-defined]
        return -1 if count is None else count
    try:
        return sock.recv_into(buf)
    except BlockingIOError:
        return -1
