"""The agent's socket in a home, however long the home's path is.

The kernel takes 107 bytes of a socket's path (unix(7)). A longer one is reached through a
descriptor of its folder.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_NAME = "agent.sock"
_PATH_SIZE_MAX = 107


@contextmanager
def socket_address(home: Path) -> Iterator[str]:
    """What to bind or connect to, within the block. Raises OSError."""
    path = os.fspath(home / SOCKET_NAME)
    if len(os.fsencode(path)) <= _PATH_SIZE_MAX:
        yield path
        return
    folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)
