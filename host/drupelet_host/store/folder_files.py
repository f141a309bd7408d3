"""Files of a host: one folder, made durable with fsync of the file and of the folder."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX
from drupelet.store.files import Files
from drupelet_host.base.atomic_write import sync_folder

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _code(error: OSError) -> int:
    return E_CAPACITY if error.errno in _FULL else E_STORAGE


class HostFiles(Files):
    """Files in `folder`, which exists; readable by its owner only."""

    def __init__(self, folder: Path, open_max: int = FILES_OPEN_MAX) -> None:
        self._folder = folder
        self._open = [-1] * open_max
        self._lost: set[int] = set()  # descriptors of which a flush has failed

    def names(self) -> list[str]:
        return [entry.name for entry in os.scandir(self._folder) if entry.is_file()]

    def open(self, name: str, create: bool) -> int:
        if -1 not in self._open:
            return E_CAPACITY
        fd = self._open.index(-1)
        path = self._folder / name
        try:
            is_new = create and not path.exists()
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            self._open[fd] = os.open(path, flags, 0o600)
            if is_new:
                sync_folder(self._folder)
        except OSError as error:
            if self._open[fd] >= 0:
                self.close(fd)
            return _code(error)
        self._lost.discard(fd)
        return fd

    def append(self, fd: int, buf: bytes | bytearray | memoryview, at: int, size: int) -> int:
        try:
            wrote = os.write(self._open[fd], memoryview(buf)[at : at + size])
        except OSError as error:
            return _code(error)
        return OK if wrote == size else E_CAPACITY

    def flush(self, fd: int) -> int:
        if fd in self._lost:
            return E_STORAGE
        try:
            os.fsync(self._open[fd])
        except OSError:
            # Linux forgets what it could not write: the next call would succeed.
            self._lost.add(fd)
            return E_STORAGE
        return OK

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        try:
            data = os.pread(self._open[fd], size, offset)
        except OSError as error:
            return _code(error)
        buf[at : at + len(data)] = data
        return len(data)

    def close(self, fd: int) -> None:
        real, self._open[fd] = self._open[fd], -1
        # Whatever was flushed is safe, and nothing else was promised.
        with suppress(OSError):
            os.close(real)

    def size(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return -1
        except OSError:
            return E_STORAGE

    def rename(self, old: str, new: str) -> int:
        try:
            os.replace(self._folder / old, self._folder / new)
            sync_folder(self._folder)
        except OSError as error:
            return _code(error)
        return OK

    def remove(self, name: str) -> int:
        try:
            os.unlink(self._folder / name)
            sync_folder(self._folder)
        except OSError as error:
            return _code(error)
        return OK
