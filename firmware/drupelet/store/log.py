"""An append-only log of records in segment files, with one writer, and one scan at boot.

A segment begins with a HEAD record. A record, little-endian:

    byte  0..1     2      3     4 ..            length-4 ..
          length   kind   tag   payload         crc32 of everything before

A place is segment number * segment size + offset: it rises in log order and is the same after a
reboot. The handle of a message is the place where it was first written (`Index`). Nothing is
truncated or overwritten. A segment that is full, or whose last append failed, is closed: the HEAD
of the next one says how long it is, so that bytes behind that length do not count.

The scan skips damage byte by byte up to the next valid record, and every read of a damaged segment
checks the CRC again. A power cut may leave unflushed writes in any order. So in a segment that is
not closed, records behind damage count only if they had been flushed, as a later record says (a
bit in its kind). docs/SPEC.md draws every record.

The CRCs of a log contain its salt: when damage makes the scan search inside a body, no bytes that
somebody sent can pass for records of ours.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import GONE_HANDLE, SCRATCH_SIZE
from drupelet.base.memory import (
    copy,
    crc32_into,
    equal,
    fill,
    get_u16_le,
    put_u16_le,
)

# The order matters: 4 to 9 belong to messages; of 4 to 7, the odd ones have a body file.
KIND_HEAD = const(1)
KIND_WAKE = const(2)
KIND_MEMBER = const(3)
KIND_MESSAGE = const(4)
KIND_MESSAGE_FILE = const(5)
KIND_PENDING = const(6)
KIND_PENDING_FILE = const(7)
KIND_TOMBSTONE = const(8)
KIND_OPENED = const(9)  # a private message that is shared from now on
KIND_GONE = const(10)  # ids of removed messages; in files of their own
_KIND_MAX = const(15)  # a higher byte is damage, which is seen without reading the CRC
FLUSHED = const(0x80)  # a bit in a kind: everything before this record was flushed

# Offsets of the fields of a message record (docs/SPEC.md).
AT_SOURCE = const(4)
AT_FLAGS = const(5)
# Bytes of the body; of a TOMBSTONE, one bit for each sharer that may lack the message.
AT_SIZE = const(6)
# What the record is about, 0: nothing. Of a copy of a PENDING record, a TOMBSTONE and an OPENED,
# the handle of the message; of a message that was pending, the place of its PENDING record.
AT_REF = const(8)
AT_TIMESTAMP = const(12)
AT_ID = const(20)
AT_BODY = const(52)
MESSAGE_HEAD_SIZE = const(56)  # up to and with the number of a body file
MESSAGE_PAYLOAD = const(48)  # bytes of every message payload before the body

# Flags of a message record.
FLAG_PRIVATE = const(1)  # the message is not shared
FLAG_INVALID = const(2)  # a tombstone of an invalid message

RECORD_EXTRA = const(8)  # length, kind, tag and crc around a payload
# The size of a HEAD, whose payload is: magic, segment number u16, length u16 of the one before.
HEAD_SIZE = const(16)
# Version 3 had members and wake states in this log, and no length in HEAD; version 2 no salt and
# no count of dropped messages; version 1 no flags and no OPENED.
VERSION = const(4)
MAGIC = b"DRPL"
# A row of a segment: end u16, flags u8. In the message log also what `Index.apply` found: groups
# u8 (one bit each); offset of the last message u16; a bit for each earlier segment that its
# records refer to (bit 0: the one before it; bit 7: the eighth or an older one).
SEGMENT_ROW = const(7)
ROW_FLAGS = const(2)
ROW_GROUPS = const(3)
ROW_LAST = const(4)
ROW_ABOUT = const(6)
DAMAGED = const(1)  # check the CRC at each read
CLOSED = const(2)  # the end is known, and everything before it was flushed
CUT = const(4)  # the file is longer than the segment
NOTED = const(8)  # its ids have been added to the departed ids

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class Log:
    """Segments with one file name ending: one is written, and another one is open for reading."""

    def __init__(
        self, store: "StoreParts", ending: str, segment_size: int, segments_max: int,
        head_size: int,
    ) -> None:  # fmt: skip
        """`head_size`: how many bytes are kept of the record that was read last (`head`), and of
        the one that was written last."""
        assert 64 <= segment_size <= 65535
        self._store = store
        self.files = store.files
        self.ending = ending
        self.segment_size = segment_size
        self.segments_max = segments_max
        # By segment, the oldest one first: its number, and its row.
        self.numbers = [0] * segments_max
        self.rows = bytearray(SEGMENT_ROW * segments_max)
        self.count = self._newest_number = 0  # segments on flash; the number of the newest one
        self.fd = self._reader = -1  # the newest segment, if it is open for writing; another one
        self._reader_key = 0
        self.is_torn = True  # nothing may be appended to the newest segment
        self.is_scanned = False  # while False, every read checks the CRC
        # The present record, which was looked at last, and its first bytes.
        self.at = self.kind = self.tag = self.length = self._flushed = 0
        self.head = bytearray(head_size)
        self.failed = OK  # the first failure while writing the present record
        # The record that was written last is kept in RAM: reading it back would make LittleFS
        # write out its cache first.
        self.last_written = self._written_size = 0
        self._written = bytearray(head_size)
        self._crc = store.crc
        self.scratch = store.scratch
        self.dirty = False
        self.is_old = False  # some of it was written by an earlier version

    # --- reading ---

    def verify(self, place: int, size_max: int) -> bool:
        """Read the record at a place and check its CRC; return True if it is valid."""
        self.at = 0
        is_whole = self._look(place) and self.length <= size_max
        end = self.length - 4
        scratch = self.scratch
        at = min(len(self.head), end)
        if is_whole:
            crc32_into(self._crc, 0, self.head, 0, at, True)
        while is_whole and at < end:
            size = min(SCRATCH_SIZE, end - at)
            is_whole = self.read_into(place, at, scratch, 0, size) == size
            crc32_into(self._crc, 0, scratch, 0, size, False)
            at += size
        self._add_salt()
        is_whole = is_whole and self.read_into(place, end, scratch, 0, 4) == 4
        is_whole = is_whole and equal(scratch, 0, self._crc, 0, 4)
        if not is_whole:
            self.at = 0
        return is_whole

    def _add_salt(self) -> None:
        for i in range(4 if self.at % self.segment_size else 0):  # HEAD has none
            self._crc[i] ^= self._store.salt[i]

    def name(self, number: int) -> str:
        """Return the name of a segment's file."""
        return "S%07d" % number + self.ending

    def look(self, place: int) -> bool:
        """Read a record's head: sets kind, tag and length; False if there is none there."""
        if place == self.at:
            return place > 0
        index = self.index_of(place // self.segment_size)
        offset = place % self.segment_size
        is_there = index >= 0 and HEAD_SIZE <= offset < self.end_of(index)
        return is_there and self._is_sound(index, offset)

    def step(self, place: int) -> int:
        """Read the head of the record after `place` (0: the first); return its place, 0: none."""
        number = place // self.segment_size
        index = self._index(number)
        if index < 0 or self.numbers[index] != number:
            return self._look_from(index + 1, HEAD_SIZE)
        offset = place % self.segment_size
        offset = offset + self.length if self.look(place) else max(offset, HEAD_SIZE)
        return self._look_from(index, offset)

    def step_in(self, index: int, place: int) -> int:
        """Read the head of the record after `place` in a segment (0: its first); 0 at its end."""
        first = self.numbers[index] * self.segment_size
        place = self.step(place or first)
        return place if place < first + self.segment_size else 0

    def read_into(self, place: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read bytes of the record at `place`, from `offset` on; return the count or a code."""
        if place == self.last_written and offset + size <= self._written_size:
            copy(buf, at, self._written, offset, size)
            return size
        count = self.descriptor(place // self.segment_size)
        offset += place % self.segment_size
        if count >= 0:
            count = self.files.read_into(count, offset, buf, at, size)
        self._store.unread += count < 0
        return count

    def descriptor(self, key: int) -> int:
        """Return an open file of segment `key`, or of body file `-key`; allocates on a change."""
        if key == self._newest_number and self.fd >= 0:
            return self.fd
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

    def add_row(self, number: int) -> None:
        """Add the row of a segment, the newest one."""
        row = self.count * SEGMENT_ROW
        fill(self.rows, row, SEGMENT_ROW, 0)
        self.numbers[self.count] = number
        self._newest_number = number
        self.count += 1

    def note_damage(self, index: int) -> None:
        """Count a damaged place in a segment, and check its records from now on."""
        self._store.damaged += 1
        self.rows[index * SEGMENT_ROW + ROW_FLAGS] |= DAMAGED

    def set_end(self, index: int, end: int) -> None:
        """Set the offset at which a segment ends."""
        put_u16_le(self.rows, index * SEGMENT_ROW, end)

    def end_of(self, index: int) -> int:
        """Return the offset at which a segment ends."""
        return get_u16_le(self.rows, index * SEGMENT_ROW)

    def index_of(self, number: int) -> int:
        """Return the index of a segment by its number, or -1."""
        index = self._index(number)
        return index if index >= 0 and self.numbers[index] == number else -1

    def _index(self, number: int) -> int:
        """Return the index of the newest segment up to `number`, or -1."""
        index = min(number - self.numbers[0], self.count - 1)
        while index >= 0 and self.numbers[index] > number:
            index -= 1
        return max(index, -1)

    def _look(self, place: int) -> bool:
        head = self.head
        self.at = 0
        size = self._written_size if place == self.last_written else len(self._written)
        if self.read_into(place, 0, head, 0, size) < 4:
            return False
        self.length = get_u16_le(head, 0)
        self._flushed = head[2] & FLUSHED
        self.kind = head[2] & 0x7F
        self.tag = head[3]
        if self.length < RECORD_EXTRA or not 0 < self.kind <= _KIND_MAX:
            return False
        self.at = place
        return True

    def _is_sound(self, index: int, offset: int) -> bool:
        """Read a record's head; check its CRC if the segment is damaged or not yet scanned."""
        place = self.numbers[index] * self.segment_size + offset
        if not self.is_scanned or self.rows[index * SEGMENT_ROW + ROW_FLAGS] & DAMAGED:
            return self.verify(place, self.end_of(index) - offset)
        return self._look(place)

    def _look_from(self, index: int, offset: int) -> int:
        """Read the head of the first valid record from `offset` on; return its place, 0: none."""
        while index < self.count:
            begin = offset
            offset = self._next_sound(index, begin)
            if offset > begin and not self.is_scanned:
                self.note_damage(index)
                if self.was_flushed(index, offset):
                    self._next_sound(index, offset)  # `was_flushed` read on
                else:
                    self.set_end(index, begin)
            if offset < self.end_of(index):
                return self.numbers[index] * self.segment_size + offset
            index += 1
            offset = HEAD_SIZE
        return 0

    def _next_sound(self, index: int, offset: int) -> int:
        """Return the offset of a segment's first valid record from `offset` on, or its end."""
        end = self.end_of(index)
        search = not self.is_scanned or self.rows[index * SEGMENT_ROW + ROW_FLAGS] & DAMAGED
        while offset < end and not self._is_sound(index, offset):
            offset = offset + 1 if search else end
        return offset

    def was_flushed(self, index: int, offset: int) -> bool:
        """Return True if the record at `offset`, behind damage, and all before it was flushed."""
        if self.rows[index * SEGMENT_ROW + ROW_FLAGS] & CLOSED:
            return True
        offset = self._next_sound(index, offset)
        while offset < self.end_of(index) and not self._flushed:
            offset = self._next_sound(index, offset + self.length)
        return offset < self.end_of(index)

    # --- writing ---

    def fits(self, size: int) -> bool:
        """Return True if a payload of `size` bytes fits the segment that is being written."""
        assert HEAD_SIZE + RECORD_EXTRA + size <= self.segment_size
        end = self.end_of(self.count - 1) + RECORD_EXTRA + size
        return self.fd >= 0 and not self.is_torn and end <= self.segment_size

    def rotate(self, segments: int) -> int:
        """Begin a new segment; OK, or E_CAPACITY if there would be more than `segments`."""
        if self.count >= segments or (self._newest_number + 2) * self.segment_size > GONE_HANDLE:
            return E_CAPACITY
        code = self.flush()
        if code != OK:
            return code
        self.release(self._reader_key)
        fd = self.files.open(self.name(self._newest_number + 1), True)
        if fd < 0:
            return fd
        index = self.index_of(self._newest_number)
        length = self.end_of(index) if index >= 0 else 0
        if self.fd >= 0:
            if self.is_torn:
                self.rows[index * SEGMENT_ROW + ROW_FLAGS] |= CUT
            # Records that were written last are likely to be read next.
            self._reader = self.fd
            self._reader_key = self._newest_number
        self.add_row(self._newest_number + 1)
        self.fd = fd
        copy(self.scratch, 0, MAGIC, 0, 4)
        put_u16_le(self.scratch, 4, self._newest_number & 0xFFFF)
        put_u16_le(self.scratch, 6, length)
        return min(self.append(KIND_HEAD, VERSION, b"", 0, self.scratch, 0, 8), OK)

    def abandon(self) -> None:
        """Remove the newest segment, which has no valid record, so that failures fill no flash."""
        if self.fd >= 0:
            self.files.close(self.fd)
        self.fd = -1
        self.is_torn = True
        self.dirty = False
        if self.remove(self.count - 1) == OK:
            self._newest_number -= 1

    def append(
        self, kind: int, tag: int, first: "Buffer", first_size: int, buf: "Buffer", at: int,
        size: int,
    ) -> int:  # fmt: skip
        """Append a record that `fits`: bytes of `first`, then of `buf`; its place or a code.

        `first_size`: at most what `head` has room for behind length, kind and tag.
        """
        self._begin(kind, tag, first_size + size, first, first_size)
        self._add(buf, at, size)
        return self._finish()

    def _begin(
        self, kind: int, tag: int, payload_size: int, first: "Buffer", first_size: int
    ) -> None:
        # Until `_finish`: nothing may be appended behind a part of a record.
        self.is_torn = True
        self.last_written = 0
        written = self._written
        self.length = payload_size + RECORD_EXTRA
        put_u16_le(written, 0, self.length)
        self._flushed = 0 if self.dirty else FLUSHED
        written[2] = kind | self._flushed
        written[3] = tag
        copy(written, 4, first, 0, first_size)
        self._written_size = 4 + first_size
        self.at = self._newest_number * self.segment_size + self.end_of(self.count - 1)
        self.kind = kind
        self.tag = tag
        crc32_into(self._crc, 0, written, 0, 4 + first_size, True)
        self.failed = self.files.append(self.fd, written, 0, 4 + first_size)

    def _add(self, buf: "Buffer", at: int, size: int) -> None:
        if self.failed == OK and size:
            crc32_into(self._crc, 0, buf, at, size, False)
            self.failed = self.files.append(self.fd, buf, at, size)
            kept = min(size, len(self._written) - self._written_size)
            copy(self._written, self._written_size, buf, at, kept)
            self._written_size += kept

    def _finish(self) -> int:
        """Complete the record, which becomes the present one; return its place or a code.

        After a failure the log has no such record, and its segment takes no other.
        """
        if self.failed == OK:
            self._add_salt()
            self.failed = self.files.append(self.fd, self._crc, 0, 4)
        if self.failed != OK:
            self.at = 0
            if self.end_of(self.count - 1) <= HEAD_SIZE:
                self.abandon()
            return self.failed
        self.is_torn = False
        self.set_end(self.count - 1, self.end_of(self.count - 1) + self.length)
        self.dirty = True
        self.last_written = self.at
        copy(self.head, 0, self._written, 0, self._written_size)
        return self.at

    def append_copy(self, place: int, kind: int, first: "Buffer", size: int) -> int:
        """Append a copy of a record, as `kind` and with other first bytes; its place or a code.

        E_STORAGE if its CRC is wrong: a damaged record must not get a new CRC.
        """
        if not self.verify(place, self.segment_size):
            return E_STORAGE
        end = self.length - 4
        scratch = self.scratch
        self._begin(kind, self.tag, end - 4, first, size)
        at = 4 + size
        while at < end:
            size = min(SCRATCH_SIZE, end - at)
            if self.read_into(place, at, scratch, 0, size) != size:
                self.failed = E_STORAGE
            self._add(scratch, 0, size)
            at += size
        return self._finish()

    def flush(self) -> int:
        """Make all complete records durable; return OK or a code."""
        if not self.dirty:
            return OK
        code = self.files.flush(self.fd)
        if code == OK:
            self.dirty = False
            self._store.programs += 1
        return code

    # --- giving room back ---

    def is_held(self, index: int) -> bool:
        """Return True for the newest segment, or one that says where a cut one ends.

        Without the newest segment, a reboot would assign its number again, even if it is full.
        """
        is_cut = index > 0 and self.rows[(index - 1) * SEGMENT_ROW + ROW_FLAGS] & CUT != 0
        return is_cut or index == self.count - 1

    def remove(self, index: int) -> int:
        """Remove a segment that is not being written; return OK or a code."""
        number = self.numbers[index]
        self.release(number)
        code = self.files.remove(self.name(number))
        if code != OK:
            return code
        self.count -= 1
        self._store.erases += 1
        self.at = self.last_written = 0
        row = index * SEGMENT_ROW
        copy(self.rows, row, self.rows, row + SEGMENT_ROW, self.count * SEGMENT_ROW - row)
        for later in range(index, self.count):
            self.numbers[later] = self.numbers[later + 1]
        return OK


def body_name(number: int) -> str:
    """Return the name of a body file."""
    return "B%07d.BOD" % number
