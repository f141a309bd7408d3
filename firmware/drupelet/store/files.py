"""Flash files as the store needs them: append, read anywhere, rename, remove.

`Files` is the port; `RamFiles` keeps everything in RAM, for tests, simulations and a first run.
Boards and hosts have their own (`boards.files`, `drupelet_host.store.folder_files`). All of them
pass one contract suite, and promise:

    append   adds at the end; a power cut may lose it until `flush` has returned OK
    flush    everything appended to this file is durable, also what was appended before an append
             or a flush failed; if that cannot be, `flush` fails until the file is closed
    open     a file that it creates is durable, still empty, when it returns
    rename   replaces `new` if that exists; atomic, and durable when it returns
    remove   durable when it returns
    names    8.3, upper case; no peer chooses a name

No call raises an exception because of the flash. They return E_CAPACITY if the flash, or the table
of open files, is full, and E_STORAGE for any other failure.
"""

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX
from drupelet.base.memory import copy


class Files:
    """The port. A descriptor is a small int that is valid until `close`."""

    def names(self) -> "list[str]":
        """Return the names of all files, in any order; allocates, so call it at boot only."""
        raise NotImplementedError

    def open(self, name: str, create: bool) -> int:
        """Open a file and return its descriptor.

        `create`: to append and read, creating it if it is missing; else to read only, and
        E_STORAGE if it is missing.
        """
        raise NotImplementedError

    def append(self, fd: int, buf: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Append `buf[at:at+size]`. After a failure, the end of the file is undefined."""
        raise NotImplementedError

    def flush(self, fd: int) -> int:
        """Make everything appended durable."""
        raise NotImplementedError

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read up to `size` bytes from `offset`; return the count, less only at the file's end."""
        raise NotImplementedError

    def close(self, fd: int) -> None:
        """Close the descriptor; bytes that were not flushed may or may not survive."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Return the size of a file, maybe without unflushed bytes; -1 if there is none.

        E_STORAGE if the flash cannot tell: the file must not be taken for missing.
        """
        raise NotImplementedError

    def rename(self, old: str, new: str) -> int:
        """Rename a closed file; replaces a file of the new name."""
        raise NotImplementedError

    def remove(self, name: str) -> int:
        """Delete a closed file."""
        raise NotImplementedError


class RamFiles(Files):
    """Files in RAM that lose on `power_cut` what was not flushed.

    `capacity` bounds the bytes of all files. With `file_size` and `files_count`, the memory for
    `files_count` files of at most `file_size` bytes is allocated at the start, so that appending
    allocates nothing. A test that cuts the power inside an operation overrides that operation.
    """

    def __init__(self, capacity: int = 1 << 20, file_size: int = 0, files_count: int = 0) -> None:
        self.capacity = capacity
        self.used = 0
        self._file_size = file_size
        self._spare = [bytearray(file_size) for _ in range(files_count)]
        self._data: "dict[str, bytearray]" = {}
        self._sizes: "dict[str, int]" = {}
        self._durable: "dict[str, int]" = {}
        self._open: "list[str]" = [""] * FILES_OPEN_MAX
        self._appends = bytearray(FILES_OPEN_MAX)  # 1: open for appending

    def content(self, name: str) -> bytearray:
        """The bytes of a file, not a copy: a test that changes them damages the flash."""
        return self._data[name]

    def hold(self, name: str, data: "bytes | bytearray") -> None:
        """Have a file with this content, all of it flushed. Not for files of a `file_size`."""
        self.used += len(data) - self._sizes.get(name, 0)
        self._data[name] = bytearray(data)
        self._sizes[name] = self._durable[name] = len(data)

    def copy(self) -> "RamFiles":
        """Files that hold the same, and of which the same is flushed; none is open."""
        copied = RamFiles(self.capacity)
        for name in self._data:
            copied.hold(name, self._data[name][: self._sizes[name]])
            copied._durable[name] = self._durable[name]
        return copied

    def names(self) -> "list[str]":
        return list(self._data)

    def open(self, name: str, create: bool) -> int:
        if name not in self._data:
            if not create:
                return E_STORAGE
            if self._file_size and not self._spare:
                return E_CAPACITY
            self._data[name] = self._spare.pop() if self._file_size else bytearray()
            self._sizes[name] = self._durable[name] = 0
        for fd in range(len(self._open)):
            if not self._open[fd]:
                self._open[fd] = name
                self._appends[fd] = create
                return fd
        return E_CAPACITY

    def append(self, fd: int, buf: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        assert self._appends[fd]
        name = self._open[fd]
        end = self._sizes[name]
        if self.used + size > self.capacity or 0 < self._file_size < end + size:
            return E_CAPACITY
        if not self._file_size:
            self._data[name].extend(bytes(size))
        copy(self._data[name], end, buf, at, size)
        self._sizes[name] = end + size
        self.used += size
        return OK

    def flush(self, fd: int) -> int:
        name = self._open[fd]
        self._durable[name] = self._sizes[name]
        return OK

    def read_into(self, fd: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        name = self._open[fd]
        count = min(size, self._sizes[name] - offset)
        if count <= 0:
            return 0
        copy(buf, at, self._data[name], offset, count)
        return count

    def close(self, fd: int) -> None:
        self._open[fd] = ""

    def size(self, name: str) -> int:
        return self._sizes.get(name, -1)

    def rename(self, old: str, new: str) -> int:
        if old not in self._data or old in self._open or new in self._open:
            return E_STORAGE
        self.remove(new)
        self._data[new] = self._data.pop(old)
        self._sizes[new] = self._sizes.pop(old)
        self._durable[new] = self._durable.pop(old)
        return OK

    def remove(self, name: str) -> int:
        if name not in self._data or name in self._open:
            return E_STORAGE
        data = self._data.pop(name)
        if self._file_size:
            self._spare.append(data)
        self.used -= self._sizes.pop(name)
        self._durable.pop(name)
        return OK

    def power_cut(self, kept: int = 0) -> None:
        """Close everything; of each file's unflushed tail only the first `kept` bytes survive."""
        for fd in range(len(self._open)):
            self._open[fd] = ""
        for name in self._data:
            size = min(self._sizes[name], self._durable[name] + kept)
            self.used -= self._sizes[name] - size
            self._sizes[name] = self._durable[name] = size
            if not self._file_size:
                self._data[name] = self._data[name][:size]
