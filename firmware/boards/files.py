"""Files of a MicroPython port: a folder of VfsPosix, or a mounted LittleFS (VfsLfs2).

On LittleFS `flush` is durable and `rename` is atomic. After a write or a flush that failed,
LittleFS keeps nothing of the file that was not flushed before, and yet calls every later flush
done. If the flash was full, the bytes can still be read: `flush` writes them to a new file once
there is room.

VfsPosix has no fsync: its `flush` hands the bytes to the operating system, so they survive the end
of the process, but not of the machine.
"""

import errno
import gc
import os

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX, SCRATCH_SIZE
from drupelet.base.memory import copy

# MicroPython's errno module does not have these two.
_EFBIG = 27
_ENOSPC = 28

_COPY = "COPY.TMP"  # what `flush` writes again, until it has the file's name

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
        self._names = [""] * FILES_OPEN_MAX
        # The size with all that was appended. After a failure -1 minus the size that can still be
        # written again: -1 if nothing can.
        self._sizes = [0] * FILES_OPEN_MAX
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
            file = open(self._folder + name, "a+b" if create else "rb")  # noqa: SIM115
            self._sizes[fd] = file.seek(0, 2)
        except OSError as error:
            return _code(error)
        self._open[fd] = file
        self._names[fd] = name
        return fd

    def append(self, fd: int, buf: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Append buf[at:at+size]; OK or a code. `write` with an offset is MicroPython's own."""
        if self._sizes[fd] < 0:
            return E_STORAGE
        file = self._open[fd]
        code = E_CAPACITY
        try:
            file.seek(0, 2)
            if file.write(buf, at, size) == size:
                self._sizes[fd] += size
                return OK
        except OSError as error:
            code = _code(error)
        self._fail(fd, code)
        return code

    def _fail(self, fd: int, code: int) -> None:
        self._sizes[fd] = -1 - self._sizes[fd] if code == E_CAPACITY else -1

    def flush(self, fd: int) -> int:
        """Make what was appended durable (LittleFS commits the file's metadata); OK or a code."""
        if self._sizes[fd] >= 0:
            try:
                self._open[fd].flush()
                return OK
            except OSError as error:
                self._fail(fd, _code(error))
        return self._write_again(fd) if self._sizes[fd] < -1 else E_STORAGE

    def _write_again(self, fd: int) -> int:
        """Replace a file that a full flash has stopped by a copy that is durable; OK or a code."""
        file = self._open[fd]
        size = left = -1 - self._sizes[fd]
        scratch = self._scratch
        copied = self._folder + _COPY
        gc.collect()  # two files are opened
        try:
            with open(copied, "wb") as target:
                file.seek(0)
                while left > 0:
                    count = file.readinto(scratch, min(left, len(scratch)))
                    if not count or target.write(scratch, 0, count) != count:
                        break
                    left -= count
                target.flush()
            if left:
                os.remove(copied)
                return E_CAPACITY
            # From here on the old file is not to be read: its blocks are free.
            self._sizes[fd] = -1
            os.rename(copied, self._folder + self._names[fd])
            self._open[fd] = open(self._folder + self._names[fd], "a+b")  # noqa: SIM115
        except OSError as error:
            return _code(error)
        self._sizes[fd] = size
        file.close()
        return OK

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
