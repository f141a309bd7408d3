"""Files on a stick, the same calls on boards and hosts; what they raise is OSError."""

import errno
import os

from drupelet.base.compat import ON_BOARD
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

# Whether names can be made durable: fsync of folders on a host, `os.sync` on some boards.
SYNC = not ON_BOARD or hasattr(os, "sync")
_FULL = (27, 28, 122)  # EFBIG, ENOSPC, EDQUOT: MicroPython's errno has no names for them


def code_of(error: OSError) -> int:
    """E_CAPACITY for a full stick, E_STORAGE for anything else."""
    return E_CAPACITY if error.errno in _FULL else E_STORAGE


def put_bytes(file: "BinaryIO", buf: "bytes | bytearray", size: int) -> None:
    """Write `buf[:size]` or raise OSError."""
    count = file.write(buf, size) if ON_BOARD else file.write(memoryview(buf)[:size])  # type: ignore[call-overload]
    if count != size:
        raise OSError(_FULL[1])


def get_bytes(file: "BinaryIO", buf: bytearray, size: int) -> int:
    """Read up to `size` bytes to the start of `buf`; the count."""
    if ON_BOARD:
        return file.readinto(buf, size) or 0  # type: ignore[attr-defined]
    return file.readinto(memoryview(buf)[:size]) or 0  # type: ignore[attr-defined]


def create(path: str) -> "BinaryIO":
    """A new file; on a host an existing name, even a link to elsewhere, is never written to."""
    return open(path, "wb" if ON_BOARD else "xb")


def sync_file(file: "BinaryIO") -> None:
    """Make what was written durable."""
    file.flush()
    if not ON_BOARD:
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Make names in a folder durable: fsync where there is one, else the port's sync."""
    if ON_BOARD:
        if SYNC:
            os.sync()
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def close_file(file: "BinaryIO") -> None:
    """Let a file go, whatever the stick says."""
    try:
        file.close()
    except OSError:
        return  # what was synced is safe, and nothing else was promised


def remove(path: str) -> int:
    """Remove a file, if it is there; OK, or a code."""
    try:
        os.remove(path)
        return OK
    except OSError as error:
        return OK if error.errno == errno.ENOENT else code_of(error)


def exists(path: str) -> bool:
    """Whether there is something of that name."""
    try:
        os.stat(path)
        return True
    except OSError:
        return False


def make_folder(path: str) -> bool:
    """Make one folder; False when it is there already."""
    try:
        os.mkdir(path)
        return True
    except OSError as error:
        if error.errno == errno.EEXIST:
            return False
        raise
