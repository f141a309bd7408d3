"""A file that an export appends to, each message once, whenever the export is killed.

The reader's place in the log and the length of the file are one commit, made after the append is
on disk. So what is behind that length at the next start was cut short: it is the beginning of what
is appended next, and is written over. If it is anything else, somebody else wrote it, and the
export stops before it harms it.
"""

import os
import stat
from pathlib import Path

from drupelet.base.errors import CapacityError, StorageError
from drupelet_host.base.atomic_write import sync_folder
from drupelet_host.home import file_lock


class ExportFile:
    """An open file, locked for this export. whole: bytes that are known to be complete.

    Raises StorageError, or CapacityError when another export writes the file; each one line.
    """

    def __init__(self, path: Path, whole: int) -> None:
        self.path = path
        self._fd = -1
        try:
            is_new = not os.path.lexists(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            self._fd = fd
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StorageError(f"{path}: is no ordinary file; name one, or - for the screen")
            if not file_lock.take(fd):
                raise CapacityError(f"{path}: another export writes it; stop that one first")
            if is_new:
                sync_folder(path.absolute().parent)
            size = os.fstat(fd).st_size
        except OSError as error:
            self.close()
            raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
        except (StorageError, CapacityError):
            self.close()
            raise
        self.size = whole
        self._cut_short = size - whole
        if size < whole:
            self.close()
            raise StorageError(
                f"{path}: has {size} bytes, but {whole} were exported; put it back, or have"
                " --start-over export everything into a new file"
            )

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def append(self, data: bytes) -> int:
        """Append bytes; the file's length, when they are on disk. Nothing: check it only."""
        if self._cut_short:
            self._check_cut_short(data)
        try:
            left = memoryview(data)
            at = self.size
            while left:
                count = os.pwrite(self._fd, left, at)
                left, at = left[count:], at + count
            if data:
                os.fdatasync(self._fd)
        except OSError as error:
            raise StorageError(
                f"{self.path}: cannot be written ({error.strerror}); the next export goes on"
            ) from error
        self.size += len(data)
        self._cut_short = 0
        return self.size

    def _check_cut_short(self, data: bytes) -> None:
        is_short = self._cut_short <= len(data)
        if not is_short or not data.startswith(os.pread(self._fd, self._cut_short, self.size)):
            raise StorageError(
                f"{self.path}: {self._cut_short} bytes behind the first {self.size} are not of"
                " this export; move it away, or name another file"
            )
