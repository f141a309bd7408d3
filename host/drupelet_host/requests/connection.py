"""A connection to the socket of the agent that runs on a home."""

import socket
from contextlib import suppress
from pathlib import Path

from drupelet_host.requests.socket_path import socket_address

# Connecting takes no time where an agent listens.
CONNECT_WAIT_S = 5.0


def open_socket(home: Path, wait_s: float) -> socket.socket:
    """A connection to the agent, whose calls wait at most so long. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(wait_s)
        with socket_address(home) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def poke(home: Path) -> None:
    """Have the agent look for letters now instead of within a second; nothing without one."""
    with suppress(OSError), open_socket(home, CONNECT_WAIT_S):
        pass
