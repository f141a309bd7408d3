"""The segment files of a log as they are found and read; `flashlog` writes them.

A record, little-endian; a segment begins with a HEAD record:

    byte  0..1     2      3     4 ..            length-4 ..
          length   kind   tag   payload         crc32 of everything before

A handle is segment number * segment size + offset: rising in log order, the same after a reboot.
Recovery is one scan. What fails its check costs only itself: the scan goes on byte by byte to the
next record that is whole, and such a segment is checked again whenever it is read. But behind
damage only that counts which had been flushed, as a later record says (a bit in its kind, or in
the next HEAD): a power cut may leave unflushed writes in any order.

A log that was begun with a salt has it in the CRC of its records. So no body that somebody sent
can be taken for records of ours where a damaged head lets the scan run into it.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import SCRATCH_SIZE
from drupelet.base.memory import crc32_into, equal, get_u16_le, get_u32_le, put_u16_le, put_u32_le

KIND_HEAD = const(1)
KIND_MAX = const(15)  # so much of noise is no record before anything is read
FLUSHED = const(0x80)  # in a kind, and in the tag of a HEAD: all before this record was flushed
GIVEN_UP = const(0x40)  # in the tag of a HEAD: a write to the segment before it had failed

RECORD_EXTRA = const(8)  # length, kind, tag and crc around a payload
HEAD_SIZE = const(16)  # the HEAD record: magic and segment number as payload
VERSION = const(3)  # 2 knew no salt and no count of dropped messages, 1 no flags and no OPENED
MAGIC = b"DRPL"
_SALT_ENDING = ".SLT"
SEGMENT_ROW = const(8)  # number u32, end u16, groups u8, state u8
_WHOLE = const(0)  # states of a segment: every record was whole at boot
_HIT = const(1)  # some were not: each is checked again when it is read
_UNREAD = const(2)  # not scanned yet
_CLOSED = const(4)  # and flushed to its end
_FAILED = const(8)  # its last record may be one that was refused

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.files import Files


class Segments:
    """The segments of a log: one is open for reading, beside the one that is written."""

    ending = ".LOG"

    def __init__(self, files: "Files", segment_size: int, segments_max: int) -> None:
        assert 64 <= segment_size <= 65535
        self.files = files
        self.segment_size = segment_size
        self.segments_max = segments_max
        self.count = 0  # segments on flash
        self._rows = bytearray(SEGMENT_ROW * segments_max)
        self._newest = 0
        self._number = 0  # the segment that is written, 0 for none
        self._fd = -1
        self._end = 0
        self._torn = False
        self._version = VERSION  # with what the newest HEAD says of the segment before it
        self._reader = -1
        self._reader_key = 0
        self.at = self.kind = self.tag = self.length = 0  # the record that was looked at last
        self.failed = OK  # first failure of the record that is being written
        self._four = bytearray(4)
        self._crc = bytearray(4)
        self.salt = bytearray(4)
        self.scratch = bytearray(SCRATCH_SIZE)
        self.dirty = False
        self.programs = self.erases = self.damaged = 0

    # --- recovery ---

    def open(self, names: "list[str]", salt: int) -> int:
        """Find the segments; OK, E_CAPACITY for more than segments_max, or E_STORAGE. Then `step`
        through all of them, which checks every record, and `resume`.

        `salt`: of a log that is begun with this.
        """
        numbers = sorted(
            [
                int(name[1:8])
                for name in names
                if name.endswith(self.ending) and name[1:8].isdigit()
            ]
        )
        if len(numbers) > self.segments_max:
            return E_CAPACITY
        found = 0 if numbers else salt
        for name in names:
            if name.endswith(_SALT_ENDING):
                found = int(name[:-4], 16)
                salt = 0
        put_u32_le(self.salt, 0, found)
        if salt and not numbers:
            self.files.close(self.files.open("%08X" % salt + _SALT_ENDING, True))
        for number in numbers:
            put_u32_le(self._rows, self.count * SEGMENT_ROW, number)
            self._rows[self.count * SEGMENT_ROW + 7] = _UNREAD
            self.count += 1
            self._newest = number
        for index in range(self.count - 1, -1, -1):
            if not self._find_head(index):
                return E_STORAGE
        return OK

    def _find_head(self, index: int) -> bool:
        """Check a HEAD, the newest first: it may say that the segment before it is closed.

        False when the flash does not say how long the segment is: what is there is not to go.
        """
        number = self.number(index)
        scratch = self.scratch
        newest = number == self._newest
        size = min(self.files.size(self.name(number)), self.segment_size)
        self._torn = self._torn or newest
        if size <= 0:
            return size == 0
        self.set_end(index, size)
        whole = self.read_into(number * self.segment_size, 0, scratch, 0, HEAD_SIZE) == HEAD_SIZE
        crc32_into(self._crc, 0, scratch, 0, 12, True)
        whole = whole and equal(scratch, 12, self._crc, 0, 4) and equal(scratch, 4, MAGIC, 0, 4)
        version = scratch[3] & 0x3F
        if not whole or get_u32_le(scratch, 8) != number:
            self.damaged += 1
            self._rows[index * SEGMENT_ROW + 7] |= _HIT
            if not self._was_flushed(index, HEAD_SIZE):
                self.set_end(index, 0)
        elif not 0 < version <= VERSION:
            self.damaged += 1
            self.set_end(index, 0)
        else:
            if index and self.number(index - 1) == number - 1:
                if scratch[3] & FLUSHED:
                    self._rows[index * SEGMENT_ROW - 1] |= _CLOSED
                if scratch[3] & GIVEN_UP:
                    self._rows[index * SEGMENT_ROW - 1] |= _FAILED
            if newest:
                self._torn = version != VERSION  # nothing new goes behind what is older
        return True

    def resume(self) -> None:
        """Once all is scanned: go on in the last segment if it is whole."""
        index = self.count - 1
        if index >= 0 and not self._torn and self._rows[index * SEGMENT_ROW + 7] == _WHOLE:
            self.release(self._newest)
            fd = self.files.open(self.name(self._newest), True)
            if fd >= 0:
                self._fd = fd
                self._number = self._newest
                self._end = self._end_of(index)
                self.dirty = True  # it may never have been flushed

    def verify(self, handle: int, size_max: int) -> bool:
        """Look at a record and check its CRC."""
        if not self._look(handle) or self.length > size_max:
            self.at = 0
            return False
        end = self.length - 4
        scratch = self.scratch
        at = 0
        while at < end:
            size = min(SCRATCH_SIZE, end - at)
            if self.read_into(handle, at, scratch, 0, size) != size:
                break
            crc32_into(self._crc, 0, scratch, 0, size, at == 0)
            at += size
        self._salted()
        whole = at == end and self.read_into(handle, end, scratch, 0, 4) == 4
        whole = whole and equal(scratch, 0, self._crc, 0, 4)
        if not whole:
            self.at = 0
        return whole

    def _salted(self) -> None:
        for i in range(4):
            self._crc[i] ^= self.salt[i]

    # --- reading ---

    def name(self, number: int) -> str:
        """Name of a segment's file."""
        return "S%07d" % number + self.ending

    def number(self, index: int) -> int:
        """Number of a segment; index 0 is the oldest."""
        return get_u32_le(self._rows, index * SEGMENT_ROW)

    def look(self, handle: int) -> bool:
        """Set kind, tag and length from a record; False when there is none."""
        index = self._index(handle // self.segment_size)
        if index < 0 or self.number(index) != handle // self.segment_size:
            return False
        offset = handle % self.segment_size
        return HEAD_SIZE <= offset < self._end_of(index) and self._is_sound(index, offset)

    def step(self, handle: int) -> int:
        """Look at the record after `handle` (0: at the first); its handle, 0 at the end."""
        number = handle // self.segment_size
        index = self._index(number)
        if index < 0 or self.number(index) != number:
            return self.enter(index + 1)
        offset = handle % self.segment_size
        known = handle == self.at or self.look(handle)
        return self._look_from(index, offset + self.length if known else max(offset, HEAD_SIZE))

    def enter(self, index: int) -> int:
        """Look at the first record of segment `index`, or of the next that has one."""
        return self._look_from(index, HEAD_SIZE)

    def has_failed(self, index: int) -> bool:
        """True if the last record of a segment may be one that was refused."""
        return self._rows[index * SEGMENT_ROW + 7] & _FAILED != 0

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
            name = self.name(key) if key > 0 else body_name(-key)
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

    # --- rows and records ---

    def set_end(self, index: int, end: int) -> None:
        """Let a segment end at an offset."""
        put_u16_le(self._rows, index * SEGMENT_ROW + 4, end)

    def _end_of(self, index: int) -> int:
        return get_u16_le(self._rows, index * SEGMENT_ROW + 4)

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
        self.at = 0
        if self.read_into(handle, 0, four, 0, 4) != 4:
            return False
        self.length = get_u16_le(four, 0)
        self.kind = four[2] & 0x7F
        self.tag = four[3]
        if self.length < RECORD_EXTRA or not 0 < self.kind <= KIND_MAX:
            return False
        self.at = handle
        return True

    def _is_sound(self, index: int, offset: int) -> bool:
        """Look at a record, and check it in a segment that was damaged or not scanned."""
        handle = self.number(index) * self.segment_size + offset
        if self._rows[index * SEGMENT_ROW + 7]:
            return self.verify(handle, self._end_of(index) - offset)
        return self._look(handle)

    def _look_from(self, index: int, offset: int) -> int:
        """Look at the first record at or behind `offset`; its handle, 0 at the end."""
        while index < self.count:
            state = index * SEGMENT_ROW + 7
            end = self._end_of(index)
            begin = offset
            while offset < end and not self._is_sound(index, offset):
                offset = offset + 1 if self._rows[state] else end
            if offset > begin and self._rows[state] & _UNREAD:
                self.damaged += 1
                self._rows[state] |= _HIT
                if not self._was_flushed(index, offset):
                    self.set_end(index, begin)
                    offset = end
                elif offset < end:
                    self._is_sound(index, offset)
            if offset < end:
                return self.number(index) * self.segment_size + offset
            self._rows[state] &= _HIT
            index += 1
            offset = HEAD_SIZE
        return 0

    def _was_flushed(self, index: int, offset: int) -> bool:
        """True if what is at `offset`, behind damage, was durable with all before it."""
        if self._rows[index * SEGMENT_ROW + 7] & _CLOSED:
            return True
        end = self._end_of(index)
        while offset < end:
            if not self._is_sound(index, offset):
                offset += 1
            elif self._four[2] & FLUSHED:
                return True
            else:
                offset += self.length
        return False


def body_name(number: int) -> str:
    """Name of a body file."""
    return "B%07d.BOD" % number
