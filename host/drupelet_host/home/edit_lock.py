"""One process at a time changes drupelet.toml: a command, or an agent that learned of a peer."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drupelet_host.home.toml_table import ConfigError

# A change reads and writes one small file; on a slow SD card that takes about 0.5 s.
WAIT_S_MAX = 10.0
_LOOK_EVERY_S = 0.02


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """Wait for the others and keep them out; raises ConfigError. Freed by the kernel on exit.

    The folder itself is locked: the file is replaced by each change.
    """
    try:
        fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{home}: cannot be opened ({error.strerror})") from error
    try:
        _wait(fd, home)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, home: Path) -> None:
    end_s = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise ConfigError(
                    f"{home}: another command changes its configuration; let it finish"
                ) from None
        except OSError as error:
            raise ConfigError(f"{home}: cannot be locked ({error.strerror})") from error
        else:
            return
        time.sleep(_LOOK_EVERY_S)
