"""The keeper of a channel's messages in files of a board; it survives power cuts.

    C0000001.CHN   head 20: "DRPC" | version 2 | messages removed u8 | far ones removed u8 | 0 |
                   horizon 8 | crc32 4, then records
    record         size u16, big-endian | crc32 4 of size and content | content: a kept frame
                   (keeper.py), or a mark: the handle 4 of a message that waited and was delivered

The highest bit of a size says that the message waits for a dependency. Files of version 1 do not
have it: their messages count as being in the log.

A handle is file_size times the file's number modulo 2^30 // file_size, plus the offset in the
file. In RAM the number counts from the oldest file, so that handles rise from there.

CRCs and Lamport values are little-endian. Files are only appended to, and removed whole, the
oldest first. A file of an earlier boot is never appended to, so an incomplete record at its end
does no harm. `open` scans all files once. RAM has the key and handle of each message, 12 bytes.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import CHANNEL_FILES_MAX, CHANNEL_NAME_MAX
from drupelet.base.memory import copy, crc32_into, equal, fill, get_u16, get_u32, put_u16, put_u32
from drupelet.channel.keeper import Keeper, compare_ids, put_names
from drupelet.channel.lamport import compare
from drupelet.channel.rows import KEY_SIZE, KeyRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, Buffer, FilesPort, Key

_HEAD_SIZE = const(20)
_WENT_AT = const(5)
_FAR_AT = const(6)
_HORIZON_AT = const(8)
_HEAD_CRC_AT = const(16)
_RECORD_HEAD = const(6)
# Sender, id, channel and Lamport value of a kept frame are within its first bytes.
_FRONT_SIZE = const(216)
_MARK_SIZE = const(4)
_SIZE_MAX = const(0x7FFF)  # the bit above it: _WAITS
_HANDLES = const(1 << 30)  # larger handles would not be small ints
_STRIDE = const(12)
# Bits of the state of a row of the index.
_PINNED = const(1)
_WAITS = const(2)
_MAGIC = b"DRPC"
_VERSION = const(2)


def _name(number: int) -> str:
    return "C%07d.CHN" % number


class FlashKeeper(Keeper):
    """Keeps at most `kept_max` messages in `files_max` files of `file_size` bytes.

    Call `open` first. Each channel needs a Files port (a folder) of its own.
    """

    def __init__(
        self, files: "FilesPort", bloom: "BloomPort", frame_size: int, kept_max: int,
        file_size: int = 16384, files_max: int = CHANNEL_FILES_MAX,
    ) -> None:  # fmt: skip
        assert 1 < files_max <= min(CHANNEL_FILES_MAX, kept_max)
        assert frame_size + 26 <= file_size and frame_size <= _SIZE_MAX
        Keeper.__init__(self, frame_size)
        self.damaged = 0
        self._files = files
        self._bloom = bloom
        self._file_size = file_size
        self._rows = KeyRows(kept_max, _STRIDE)  # in the order of handles
        self._files_max = files_max
        self._base = 0  # a file's number in its name, less its number in RAM
        self._fds: "dict[int, int]" = {}  # descriptor of each file by its number
        self._number = 0  # the file that is written; 0: the next record begins a new one
        self._newest = 0
        self._end = 0
        self._written = 0  # messages in it; bounded, so that one file does not hold all of them
        self._dirty = False
        self._front = bytearray(_FRONT_SIZE)
        self._key = bytearray(8)

    # --- opening ---

    def open(self) -> int:
        """Scan all files; return how many are damaged, or a code."""
        numbers = []
        for name in self._files.names():
            if name.endswith(".CHN") and name[1:8].isdigit():
                numbers.append(int(name[1:8]))
        numbers.sort()
        self._base = max(numbers[0] - 1, 0) if numbers else 0
        fill(self.limit, 0, 8, 255)
        for number in numbers:
            self._newest = number - self._base
            code = self._scan(self._newest)
            if code < 0:
                return code
        return self.damaged

    def _scan(self, number: int) -> int:
        fd = self._open_file(number, False)
        if fd < 0:
            return fd
        at = _HEAD_SIZE
        size = self._read(fd, at) if self._read_head(fd) else E_STORAGE
        while size > 0:
            self._index_record(number * self._file_size + at, size)
            at += _RECORD_HEAD + size
            size = self._read(fd, at)
        self.damaged += size < 0
        return OK

    def _open_file(self, number: int, create: bool) -> int:
        """Open a file, removing the oldest one if there is no room; its descriptor or a code."""
        is_full = len(self._fds) == self._files_max or (create and self._rows.is_full())
        if is_full and not self._remove_oldest():
            return E_CAPACITY
        code = self.barrier() if create else OK
        fd = self._files.open(_name(self._base + number), create) if code == OK else code
        if fd >= 0:
            self._fds[number] = fd
        return fd

    def _read_head(self, fd: int) -> bool:
        """Read a file's head, which says what was removed before; False if it is damaged."""
        head = self._front
        if self._files.read_into(fd, 0, head, 0, _HEAD_SIZE) != _HEAD_SIZE:
            return False
        crc32_into(self._key, 0, head, 0, _HEAD_CRC_AT, True)
        is_known = equal(head, 0, _MAGIC, 0, 4) and 0 < head[4] <= _VERSION
        if not is_known or not equal(head, _HEAD_CRC_AT, self._key, 0, 4):
            return False
        self.left = max(self.left, head[_WENT_AT])
        self.left_far = max(self.left_far, head[_FAR_AT])
        if compare(head, _HORIZON_AT, self.horizon, 0) > 0:
            copy(self.horizon, 0, head, _HORIZON_AT, 8)
        return True

    def _index_record(self, handle: int, size: int) -> None:
        """Index the frame in `work`, whose handle is given, or apply the mark in `work`."""
        work = self.work
        if size == _MARK_SIZE:
            row = self._rows.find_handle(self._far(get_u32(work, 0), -self._base))
            if row >= 0:
                self._rows.set_state(row, 0)
            return
        waits = self._front[0] >> 6 & _WAITS
        at = 3 + work[1]
        self._bloom.key_into(self._key, 0, work, at + 1, work[at])
        if not self._rows.is_full() and not self.find(self._key, work, at + 1, work[at]):
            self._rows.insert(self._rows.count, self._key, handle)
            self._rows.set_state(self._rows.count - 1, waits)

    # --- files ---

    def _fd(self, handle: int) -> int:
        """Return the descriptor of the file that a handle is in, or -1."""
        return self._fds.get(handle // self._file_size, -1)

    def _far(self, handle: int, files: int) -> int:
        """Return a handle with `files` added to its file number: from RAM to file form or back."""
        size = self._file_size
        return (handle // size + files) % (_HANDLES // size) * size + handle % size

    def _read(self, fd: int, at: int) -> int:
        """Read the record at `at` into `work`; its size, 0: end of file, E_STORAGE: damaged.

        The record's flag is then the highest bit of `_front`.
        """
        head = self._front
        count = self._files.read_into(fd, at, head, 0, _RECORD_HEAD)
        size = get_u16(head, 0) & _SIZE_MAX
        if count != _RECORD_HEAD or not _MARK_SIZE <= size <= len(self.work):
            return E_STORAGE if count else 0
        if self._files.read_into(fd, at + _RECORD_HEAD, self.work, 0, size) != size:
            return E_STORAGE
        crc32_into(head, 6, head, 0, 2, True)
        crc32_into(head, 6, self.work, 0, size, False)
        return size if equal(head, 2, head, 6, 4) else E_STORAGE

    def _rotate(self) -> int:
        """Begin a new file, removing the oldest one if there is no room; OK or a code."""
        number = self._newest + 1
        if number >= _HANDLES // self._file_size:
            return E_CAPACITY  # until the next boot renumbers: handles are not reused
        fd = self._open_file(number, True)
        if fd < 0:
            return fd
        self._newest = self._number = number
        self._end = _HEAD_SIZE
        self._written = 0
        head = self._front
        fill(head, 0, _HEAD_SIZE, 0)
        copy(head, 0, _MAGIC, 0, 4)
        head[4] = _VERSION
        head[_WENT_AT] = min(self.left, 1)
        head[_FAR_AT] = min(self.left_far, 1)
        copy(head, _HORIZON_AT, self.horizon, 0, 8)
        crc32_into(head, _HEAD_CRC_AT, head, 0, _HEAD_CRC_AT, True)
        self._dirty = True
        return self._files.append(fd, head, 0, _HEAD_SIZE)

    def _remove_oldest(self) -> bool:
        """Remove the oldest file and its messages; False: one of them is pinned."""
        number = min(self._fds)
        rows = self._rows
        count = 0
        while count < rows.count and rows.handle(count) // self._file_size == number:
            if rows.state(count) & _PINNED:
                return False
            count += 1
        for _ in range(count):
            self.note_removal(self._front, 0, self._load_front(rows.handle(0)))
            rows.remove(0)
        self._files.close(self._fds.pop(number))
        self._files.remove(_name(self._base + number))
        if number == self._number:
            self._number = 0
        return True

    def _load_front(self, handle: int) -> int:
        """Read the first bytes of a kept frame into `_front`; their count, 0 if damaged."""
        front = self._front
        fd = self._fd(handle)
        at = handle % self._file_size + _RECORD_HEAD
        size = self._files.read_into(fd, at, front, 0, _FRONT_SIZE) if fd >= 0 else 0
        # Check the sizes of the names, because no CRC is checked here.
        if size <= 4 or front[1] > CHANNEL_NAME_MAX or front[1] > size - 4:
            return 0
        return size if 4 + front[1] + front[3 + front[1]] <= size else 0

    def barrier(self) -> int:
        """Flush what was put, before a frame that acknowledges it is sent; OK or a code."""
        if not self._dirty:
            return OK
        fd = self._fd(self._number * self._file_size)
        code = self._files.flush(fd) if fd >= 0 else OK
        self._dirty = code != OK
        return code

    # --- the port ---

    def put(self, key: "Key", size: int, waits: bool) -> int:
        """Keep work[:size]; return its handle, or a code."""
        rows = self._rows
        needs_file = rows.is_full() or self._written == rows.rows_max // self._files_max
        handle = self._append(self.work, size, waits, needs_file)
        if handle > 0:
            self._written += 1
            rows.insert(rows.count, key, handle)
            rows.set_state(rows.count - 1, _PINNED | _WAITS if waits else 0)
        return handle

    def _append(self, data: bytearray, size: int, flag: bool, full: bool) -> int:
        """Append a record, to a new file if the current one is full; its handle, or a code."""
        total = _RECORD_HEAD + size
        if full or not self._number or self._end + total > self._file_size:
            code = self._rotate()
            if code != OK:
                self._number = 0
                return code
        fd = self._fd(self._number * self._file_size)
        head = self._front
        put_u16(head, 0, size | flag << 15)
        crc32_into(head, 2, head, 0, 2, True)
        crc32_into(head, 2, data, 0, size, False)
        handle = self._number * self._file_size + self._end
        code = self._files.append(fd, head, 0, _RECORD_HEAD)
        if code == OK:
            code = self._files.append(fd, data, 0, size)
        if code != OK:
            self._number = 0  # where this file ends is not known any more
            return code
        self._end += total
        self._dirty = True
        return handle

    def load(self, handle: int) -> int:
        """Read a message's frame into `work`; its size, 0: it is gone or damaged."""
        fd = self._fd(handle)
        return max(self._read(fd, handle % self._file_size), 0) if fd >= 0 else 0

    def find(self, key: "Key", id: "Buffer", at: int, size: int) -> int:
        """Return the handle of the message with this key and id, or 0."""
        rows = self._rows
        row = rows.find(key)
        while 0 <= row < rows.count:
            handle = rows.handle(row)
            same = equal(rows.table, row * _STRIDE, key, 0, KEY_SIZE) and self._load_front(handle)
            if same and compare_ids(self._front, 3 + self._front[1], id, at, size) == 0:
                return handle
            row += 1
        return 0

    def names_into(self, handle: int, out: bytearray) -> bool:
        """Write sender and id of a message to `out`; False: it is gone."""
        if not self._load_front(handle):
            return False
        put_names(out, self._front, 0)
        return True

    def pin(self, handle: int, pinned: bool) -> None:
        """Pin a message or let it go; pinned ones are not removed to make room.

        Letting a waiting message go appends a mark that it was delivered. If there is no room for
        the mark, the message waits again after a restart.
        """
        rows = self._rows
        if not pinned and self.waited_ms(handle) == 0:
            put_u32(self._key, 0, self._far(handle, self._base))
            self._append(self._key, _MARK_SIZE, False, False)
        row = rows.find_handle(handle)
        if row >= 0:
            rows.set_state(row, rows.state(row) | _PINNED if pinned else 0)

    def waited_ms(self, handle: int) -> int:
        """0: the message waits for a dependency, since an unknown time; -1: it is in the log."""
        row = self._rows.find_handle(handle)
        return 0 if row >= 0 and self._rows.state(row) & _WAITS else -1

    def drop(self, handle: int) -> None:
        """Forget a message; it can be received again."""
        row = self._rows.find_handle(handle)
        if row >= 0:
            self._rows.remove(row)

    def next(self, handle: int) -> int:
        """Return the handle of the message put after `handle` (0: the first message), or 0."""
        for row in range(self._rows.count):
            if self._rows.handle(row) > handle:
                return self._rows.handle(row)
        return 0

    def tail(self, count: int) -> int:
        """Return the handle after which the last `count` messages were put."""
        row = self._rows.count - count
        return self._rows.handle(row - 1) if row > 0 else 0
