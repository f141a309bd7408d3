"""A lock on a file that one process holds, and a look at it that takes nothing.

Open-file-description locks (fcntl(2)): like those of `flock` they belong to whoever opened the
file and end with its descriptor, and besides the kernel says whether one is held. A look that
took the lock for a moment would make a process fail that starts in that moment.
"""

import fcntl
import os
import struct
from pathlib import Path

# struct flock: l_type, l_whence, l_start, l_len (0: to the end), l_pid (0, as fcntl(2) asks), and
# what pads its end.
_FLOCK = struct.Struct("@hhqqi0q")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def take(fd: int) -> bool:
    """Lock a file that is open for writing until the descriptor is closed; False: another has it.

    Raises OSError where the file system has no locks.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except (BlockingIOError, PermissionError):  # fcntl(2): EAGAIN or EACCES
        return False
    return True


def is_taken(path: Path) -> bool:
    """Whether anybody holds the lock of a file now; nobody holds that of a missing one.

    Raises OSError when the file cannot be opened for reading.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(fd)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
