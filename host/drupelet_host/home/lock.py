"""Which process owns a home: the lock that an agent holds as long as it runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drupelet.base.errors import CapacityError, StorageError
from drupelet_host.home import file_lock

_LOCK_NAME = "agent.lock"


class LockedError(CapacityError):
    """An agent already owns the home."""


@contextmanager
def lock(home: Path) -> Iterator[None]:
    """Own the home; raises LockedError when another agent does (freed by the kernel on exit)."""
    path = home / _LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        if not file_lock.take(fd):
            raise LockedError(
                f"{home}: an agent already owns this home; stop it or choose another --home"
            )
        yield
    finally:
        os.close(fd)


def locked(home: Path) -> bool:
    """True while an agent runs on this home; a look that keeps none from starting."""
    path = home / _LOCK_NAME
    try:
        return file_lock.is_taken(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be looked at ({error.strerror})") from error
