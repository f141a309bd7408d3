"""Files on a stick, with the same calls on boards and hosts; they raise OSError."""

import errno
import os

from drupelet.base.compat import ON_BOARD
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

_FULL = (27, 28, 122)  # EFBIG, ENOSPC, EDQUOT: MicroPython's errno has no names for them


def code_of(error: OSError) -> int:
    """Return E_CAPACITY for a full stick, E_STORAGE for any other error."""
    return E_CAPACITY if error.errno in _FULL else E_STORAGE


def put_bytes(file: "BinaryIO", buf: "bytes | bytearray", size: int) -> None:
    """Write buf[:size]; raises OSError if not all of it was written."""
    count = file.write(buf, size) if ON_BOARD else file.write(memoryview(buf)[:size])  # type: ignore[call-overload]
    if count != size:
        raise OSError(_FULL[1])


def get_bytes(file: "BinaryIO", buf: bytearray, size: int) -> int:
    """Read up to `size` bytes to the beginning of `buf`; return the count."""
    if ON_BOARD:
        return file.readinto(buf, size) or 0  # type: ignore[attr-defined]
    return file.readinto(memoryview(buf)[:size]) or 0  # type: ignore[attr-defined]


def create(path: str) -> "BinaryIO":
    """Create a file; on a host it fails if the name exists, which may be a link to elsewhere."""
    return open(path, "wb" if ON_BOARD else "xb")


def sync_file(file: "BinaryIO") -> None:
    """Make what was written durable."""
    file.flush()
    if not ON_BOARD:
        os.fsync(file.fileno())


def sync_name(path: str) -> None:
    """Make a new name durable: by fsync of its folder on a host, by `os.sync` on some boards."""
    if ON_BOARD:
        if hasattr(os, "sync"):
            os.sync()
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def close_file(file: "BinaryIO") -> None:
    """Close a file, and ignore errors of the stick."""
    try:
        file.close()
    except OSError:
        return  # what was flushed is safe, and nothing else was promised


def remove(path: str) -> int:
    """Remove a file if it exists; OK or a code."""
    try:
        os.remove(path)
        return OK
    except OSError as error:
        return OK if error.errno == errno.ENOENT else code_of(error)


def exists(path: str) -> bool:
    """Whether a file or folder exists."""
    try:
        os.stat(path)
        return True
    except OSError:
        return False


def make_folder(path: str) -> bool:
    """Create one folder; False if it exists already."""
    try:
        os.mkdir(path)
        return True
    except OSError as error:
        if error.errno == errno.EEXIST:
            return False
        raise
