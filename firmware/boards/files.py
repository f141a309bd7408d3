"""Files of a MicroPython port: a folder of VfsPosix, or a mounted LittleFS (VfsLfs2).

On LittleFS `flush` is durable and `rename` is atomic. VfsPosix has no fsync: its `flush` hands the
bytes to the operating system, so they survive the end of the process, but not of the machine.
"""

import errno
import os

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX, SCRATCH_SIZE
from drupelet.base.memory import copy

# MicroPython's errno module does not have these two.
_EFBIG = 27
_ENOSPC = 28

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.files import Files
else:
    Files = object


def _code(error: OSError) -> int:
    return E_CAPACITY if error.errno in (_ENOSPC, _EFBIG) else E_STORAGE


class BoardFiles(Files):
    """Files in an existing `folder`; at most FILES_OPEN_MAX are open at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") + "/"
        self._open: "list" = [None] * FILES_OPEN_MAX
        self._scratch = bytearray(SCRATCH_SIZE)

    def names(self) -> "list[str]":
        """Return the names of all files in no order; allocates, so call it at boot only."""
        return os.listdir(self._folder)

    def open(self, name: str, create: bool) -> int:
        """Open a file; its descriptor or a code, see `Files`.

        A file that exists is opened for reading only, because LittleFS writes to flash when a file
        that is open for writing is closed.
        """
        if None not in self._open:
            return E_CAPACITY
        fd = self._open.index(None)
        try:
            self._open[fd] = open(self._folder + name, "a+b" if create else "rb")  # noqa: SIM115
        except OSError as error:
            return _code(error)
        return fd

    def append(self, fd: int, buf: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Append buf[at:at+size]; OK or a code. `write` with an offset is MicroPython's own."""
        file = self._open[fd]
        try:
            file.seek(0, 2)
            return OK if file.write(buf, at, size) == size else E_CAPACITY
        except OSError as error:
            return _code(error)

    def flush(self, fd: int) -> int:
        """Make what was appended durable (LittleFS commits the file's metadata); OK or a code."""
        try:
            self._open[fd].flush()
            return OK
        except OSError as error:
            return _code(error)

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read up to `size` bytes from `offset` into buf[at:]; return the count, or E_STORAGE."""
        file = self._open[fd]
        try:
            file.seek(offset)
            if not at:
                return file.readinto(buf, size)
            # `readinto` has no offset and a slice would allocate: copy through the scratch.
            count = 0
            while count < size:
                part_size = file.readinto(self._scratch, min(size - count, len(self._scratch)))
                if not part_size:
                    break
                copy(buf, at + count, self._scratch, 0, part_size)
                count += part_size
            return count
        except OSError as error:
            return _code(error)

    def close(self, fd: int) -> None:
        """Close a file and free its descriptor."""
        file = self._open[fd]
        self._open[fd] = None
        try:
            file.close()
        except OSError:
            pass  # what was flushed is safe, and nothing else was promised

    def size(self, name: str) -> int:
        """Return a file's size in bytes; -1 if it does not exist, E_STORAGE if flash fails."""
        try:
            return os.stat(self._folder + name)[6]
        except OSError as error:
            return -1 if error.errno == errno.ENOENT else E_STORAGE

    def rename(self, old: str, new: str) -> int:
        """Rename a closed file, replacing a file with the new name; OK or a code."""
        try:
            os.rename(self._folder + old, self._folder + new)
            return OK
        except OSError as error:
            return _code(error)

    def remove(self, name: str) -> int:
        """Delete a closed file; OK or a code."""
        try:
            os.remove(self._folder + name)
            return OK
        except OSError as error:
            return _code(error)
