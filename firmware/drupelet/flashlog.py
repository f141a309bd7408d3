"""An append-only log of records in segment files.

A record, little-endian; a segment begins with a HEAD record and ends where its file ends:

    byte  0..1     2      3     4 ..            length-4 ..
          length   kind   tag   payload         crc32 of everything before

A handle is segment number * segment size + offset: rising in log order, the same after a reboot.
Recovery is one scan. What fails its check ends its segment: nothing behind it is read, nothing is
truncated, writing goes on in a new segment. docs/SPEC.md draws every record.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY, OK
from drupelet.limits import SCRATCH_SIZE
from drupelet.memory import copy, crc32_into, equal, get_u16_le, get_u32_le, put_u16_le, put_u32_le

KIND_HEAD = const(1)
KIND_WAKE = const(2)
KIND_MEMBER = const(3)
KIND_MESSAGE = const(4)
KIND_MESSAGE_FILE = const(5)
KIND_PENDING = const(6)
KIND_PENDING_FILE = const(7)
KIND_TOMBSTONE = const(8)
KIND_OPENED = const(9)  # a private message that is shared from here on

# Where the fields of a message record are (docs/SPEC.md).
AT_SOURCE = const(4)
AT_FLAGS = const(5)
AT_SIZE = const(6)
AT_REF = const(8)
AT_TIMESTAMP = const(12)
AT_ID = const(20)
AT_BODY = const(52)
MESSAGE_HEAD_SIZE = const(56)  # up to the number of a body file
MESSAGE_PAYLOAD = const(48)  # what every payload has before the body

# Flags of a message record.
FLAG_PRIVATE = const(1)  # a message that is not shared
FLAG_INVALID = const(2)  # a tombstone of a message that is not valid

RECORD_EXTRA = const(8)  # length, kind, tag and crc around a payload
_HEAD_SIZE = const(16)  # the HEAD record: magic and segment number as payload
_VERSION = const(2)  # 1 knew no flags and no OPENED: it would share private messages
_MAGIC = b"DRPL"
_HANDLE_END = const(1 << 30)  # handles are small ints on 32-bit boards
_ROW = const(8)  # number u32, end u16, pinned u8

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.files import Files


class RecordLog:
    """The segments of a store: one writer, one segment open for writing and one for reading."""

    def __init__(self, files: "Files", segment_size: int, segments_max: int) -> None:
        assert 64 <= segment_size <= 65535
        self.files = files
        self.segment_size = segment_size
        self.segments_max = segments_max
        self.count = 0  # segments on flash
        self._rows = bytearray(_ROW * segments_max)
        self._newest = 0
        self._number = 0  # the segment that is written, 0 for none
        self._fd = -1
        self._end = 0
        self._torn = False
        self._reader = -1
        self._reader_key = 0
        self.at = self.kind = self.tag = self.length = 0  # the record that was looked at last
        self.failed = OK  # first failure of the record that is being written
        self._four = bytearray(4)
        self._crc = bytearray(4)
        self.scratch = bytearray(SCRATCH_SIZE)
        self.dirty = False
        self.programs = self.erases = self.damaged = 0

    # --- recovery ---

    def open(self, names: "list[str]") -> int:
        """Check every record of every segment; OK, or E_CAPACITY for more than segments_max."""
        numbers = sorted(
            [int(name[1:8]) for name in names if name.endswith(".LOG") and name[1:8].isdigit()]
        )
        if len(numbers) > self.segments_max:
            return E_CAPACITY
        self._newest = numbers[-1] if numbers else 0
        for number in numbers:
            self.count += 1
            put_u32_le(self._rows, self.count * _ROW - _ROW, number)
            self._check_segment(self.count - 1, number)
        return OK

    def _check_segment(self, index: int, number: int) -> None:
        size = self.files.size(_segment_name(number))
        base = number * self.segment_size
        end = 0
        while end < size:
            if not self.verify(base + end, min(size, self.segment_size) - end):
                break
            if not end:
                if not self._is_head(base):
                    break
                self._torn = self.tag != _VERSION  # nothing new goes behind what is older
            end += self.length
            self._set_end(index, end)
            self._pin(index)
        if end != size:
            self.damaged += 1
        elif end and number == self._newest:
            # The last segment is whole: go on in it. It may never have been flushed.
            self.release(number)
            self._fd = self.files.open(_segment_name(number), True)
            if self._fd >= 0:
                self._number = number
                self._end = end
                self.dirty = True

    def _is_head(self, base: int) -> bool:
        scratch = self.scratch
        return (
            self.kind == KIND_HEAD
            and 0 < self.tag <= _VERSION
            and self.length == _HEAD_SIZE
            and self.read_into(base, 4, scratch, 0, 8) == 8
            and equal(scratch, 0, _MAGIC, 0, 4)
            and get_u32_le(scratch, 4) * self.segment_size == base
        )

    def verify(self, handle: int, size_max: int) -> bool:
        """Look at a record and check its CRC."""
        if not self._look(handle) or self.length > size_max:
            return False
        end = self.length - 4
        scratch = self.scratch
        at = 0
        while at < end:
            size = min(SCRATCH_SIZE, end - at)
            if self.read_into(handle, at, scratch, 0, size) != size:
                return False
            crc32_into(self._crc, 0, scratch, 0, size, at == 0)
            at += size
        if self.read_into(handle, end, scratch, 0, 4) != 4:
            return False
        return equal(scratch, 0, self._crc, 0, 4)

    # --- writing ---

    def room(self, size: int, segments: int) -> int:
        """Have room for a payload of `size` with at most `segments` segments; OK or a code."""
        assert _HEAD_SIZE + RECORD_EXTRA + size <= self.segment_size
        if self.count > segments:
            return E_CAPACITY
        end = self._end + RECORD_EXTRA + size
        if self._number and not self._torn and end <= self.segment_size:
            return OK
        if self.count >= segments or (self._newest + 2) * self.segment_size > _HANDLE_END:
            return E_CAPACITY
        return self._rotate()

    def _rotate(self) -> int:
        code = self.flush()
        if code != OK:
            return code
        if self._number:
            self.files.close(self._fd)
            self._number = 0
        self._newest += 1
        name = _segment_name(self._newest)
        fd = self.files.open(name, True)
        if fd < 0:
            return fd
        scratch = self.scratch
        put_u16_le(scratch, 0, _HEAD_SIZE)
        scratch[2] = KIND_HEAD
        scratch[3] = _VERSION
        copy(scratch, 4, _MAGIC, 0, 4)
        put_u32_le(scratch, 8, self._newest)
        crc32_into(scratch, 12, scratch, 0, 12, True)
        code = self.files.append(fd, scratch, 0, _HEAD_SIZE)
        if code != OK:
            self.files.close(fd)
            self.files.remove(name)
            return code
        put_u32_le(self._rows, self.count * _ROW, self._newest)
        self._rows[self.count * _ROW + 6] = 0
        self.count += 1
        self._number = self._newest
        self._fd = fd
        self._end = _HEAD_SIZE
        self._set_end(self.count - 1, _HEAD_SIZE)
        self._torn = False
        self.dirty = True
        return OK

    def begin(self, kind: int, tag: int, size: int) -> int:
        """Begin a record for which there is `room`; its handle. `add` the payload, then `end`."""
        self.failed = OK
        put_u16_le(self._four, 0, size + RECORD_EXTRA)
        self._four[2] = kind
        self._four[3] = tag
        self.length = size + RECORD_EXTRA
        self.at = self._number * self.segment_size + self._end
        self.kind = kind
        self.tag = tag
        crc32_into(self._crc, 0, self._four, 0, 4, True)
        self.failed = self.files.append(self._fd, self._four, 0, 4)
        return self.at

    def add(self, buf: "bytes | bytearray | memoryview", at: int, size: int) -> None:
        """Add bytes of the payload; a failure is kept for `end`."""
        if self.failed == OK and size:
            crc32_into(self._crc, 0, buf, at, size, False)
            self.failed = self.files.append(self._fd, buf, at, size)

    def end(self) -> int:
        """Close the record. After a failure it is as if it had never been begun."""
        if self.failed == OK:
            self.failed = self.files.append(self._fd, self._crc, 0, 4)
        if self.failed != OK:
            self.at = 0
            self._torn = True
            if self._end == _HEAD_SIZE:
                # Nothing else is in this segment: it goes, or refusals would fill the flash.
                self.files.close(self._fd)
                self._number = 0
                self.dirty = False
                self.remove(self.count - 1)
            return self.failed
        self._end += self.length
        self._set_end(self.count - 1, self._end)
        self._pin(self.count - 1)
        self.dirty = True
        return OK

    def flush(self) -> int:
        """Make every ended record durable."""
        if not self.dirty:
            return OK
        code = self.files.flush(self._fd)
        if code == OK:
            self.dirty = False
            self.programs += 1
        return code

    # --- reading ---

    def number(self, index: int) -> int:
        """Number of a segment; index 0 is the oldest."""
        return get_u32_le(self._rows, index * _ROW)

    def look(self, handle: int) -> bool:
        """Set kind, tag and length from a record; False when there is none."""
        index = self._index(handle // self.segment_size)
        if index < 0 or self.number(index) != handle // self.segment_size:
            return False
        offset = handle % self.segment_size
        return _HEAD_SIZE <= offset < self._end_of(index) and self._look(handle)

    def step(self, handle: int) -> int:
        """Look at the record after `handle` (0: at the first); its handle, 0 at the end."""
        number = handle // self.segment_size
        index = self._index(number)
        if index < 0 or self.number(index) != number:
            return self.enter(index + 1)
        if handle != self.at and not self._look(handle):
            return self.enter(index + 1)
        return self._look_from(index, handle % self.segment_size + self.length)

    def enter(self, index: int) -> int:
        """Look at the first record of segment `index`, or of the next that has one."""
        return self._look_from(index, _HEAD_SIZE)

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read bytes of the record at `handle`, `offset` from its beginning; the count."""
        fd = self.descriptor(handle // self.segment_size)
        if fd < 0:
            return fd
        return self.files.read_into(fd, handle % self.segment_size + offset, buf, at, size)

    def descriptor(self, key: int) -> int:
        """The open file of segment `key` or of body file `-key`; allocates when it changes."""
        if key == self._number:
            return self._fd
        if key != self._reader_key:
            self.release(self._reader_key)
            name = _segment_name(key) if key > 0 else body_name(-key)
            self._reader = self.files.open(name, False)
            if self._reader < 0:
                return self._reader
            self._reader_key = key
        return self._reader

    def release(self, key: int) -> None:
        """Close the file of `key` if it is open for reading."""
        if key and key == self._reader_key:
            self.files.close(self._reader)
            self._reader_key = 0

    # --- giving room back ---

    def idle(self, handle: int) -> int:
        """Index of a closed segment of nothing but wake states, without the one at `handle`."""
        for index in range(self.count):
            number = self.number(index)
            kept = number == self._number or number == handle // self.segment_size
            if not kept and not self._rows[index * _ROW + 6]:
                return index
        return -1

    def is_written(self, index: int) -> bool:
        """True for the segment that takes the next record."""
        return self.number(index) == self._number

    def remove(self, index: int) -> int:
        """Remove a segment that is not being written."""
        number = self.number(index)
        self.release(number)
        code = self.files.remove(_segment_name(number))
        if code != OK:
            return code
        self.count -= 1
        self.erases += 1
        self.at = 0
        row = index * _ROW
        copy(self._rows, row, self._rows, row + _ROW, self.count * _ROW - row)
        return OK

    # --- rows and records ---

    def _set_end(self, index: int, end: int) -> None:
        put_u16_le(self._rows, index * _ROW + 4, end)

    def _pin(self, index: int) -> None:
        """Note that the segment holds more than wake states, if its latest record is more."""
        if self.kind > KIND_WAKE:
            self._rows[index * _ROW + 6] = 1

    def _end_of(self, index: int) -> int:
        return get_u16_le(self._rows, index * _ROW + 4)

    def _index(self, number: int) -> int:
        """Index of the newest segment that is not newer than `number`; -1 for none."""
        index = -1
        if self.count:
            index = min(number - self.number(0), self.count - 1)
        while index >= 0 and self.number(index) > number:
            index -= 1
        return max(index, -1)

    def _look(self, handle: int) -> bool:
        four = self._four
        if self.read_into(handle, 0, four, 0, 4) != 4:
            return False
        self.at = handle
        self.length = get_u16_le(four, 0)
        self.kind = four[2]
        self.tag = four[3]
        return self.length >= RECORD_EXTRA

    def _look_from(self, index: int, offset: int) -> int:
        while index < self.count:
            handle = self.number(index) * self.segment_size + offset
            if offset < self._end_of(index) and self._look(handle):
                return handle
            index += 1
            offset = _HEAD_SIZE
        return 0


def _segment_name(number: int) -> str:
    return "S%07d.LOG" % number


def body_name(number: int) -> str:
    """Name of a body file."""
    return "B%07d.BOD" % number
