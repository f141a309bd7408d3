"""An append-only log of records in segment files: one writer. `flashsegments` reads them.

Nothing is truncated or written over; after a torn end writing goes on in a new segment.
docs/SPEC.md draws every record.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import GONE_HANDLE
from drupelet.base.memory import copy, crc32_into, put_u16_le, put_u32_le
from drupelet.store.segments import (
    FLUSHED,
    GIVEN_UP,
    HEAD_SIZE,
    KIND_HEAD,
    MAGIC,
    RECORD_EXTRA,
    SEGMENT_ROW,
    VERSION,
    Segments,
)

KIND_WAKE = const(2)
KIND_MEMBER = const(3)
KIND_MESSAGE = const(4)
KIND_MESSAGE_FILE = const(5)
KIND_PENDING = const(6)
KIND_PENDING_FILE = const(7)
KIND_TOMBSTONE = const(8)
KIND_OPENED = const(9)  # a private message that is shared from here on
KIND_GONE = const(10)  # ids of messages that went; in files of their own

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


class RecordLog(Segments):
    """The segments of a store, and the one of them that is written."""

    # --- writing ---

    def fits(self, size: int) -> bool:
        """True when a payload of `size` goes into the segment that is written."""
        assert HEAD_SIZE + RECORD_EXTRA + size <= self.segment_size
        end = self._end + RECORD_EXTRA + size
        return self._number != 0 and not self._torn and end <= self.segment_size

    def rotate(self, segments: int) -> int:
        """Begin a segment, of which there are at most `segments` then; OK or a code."""
        if self.count >= segments or (self._newest + 2) * self.segment_size > GONE_HANDLE:
            return E_CAPACITY
        code = self.flush()
        if code != OK:
            return code
        self.release(self._reader_key)
        fd = self.files.open(self.name(self._newest + 1), True)
        if fd < 0:
            return fd
        if self._number:
            self._version = VERSION | FLUSHED | (GIVEN_UP if self._torn else 0)
            # What was written last is read next.
            self._reader = self._fd
            self._reader_key = self._number
        self._newest += 1
        row = self.count * SEGMENT_ROW
        put_u32_le(self._rows, row, self._newest)
        put_u32_le(self._rows, row + 4, 0)
        self.count += 1
        self._number = self._newest
        self._fd = fd
        self._end = 0
        self._torn = True
        scratch = self.scratch
        put_u16_le(scratch, 0, HEAD_SIZE)
        scratch[2] = KIND_HEAD
        scratch[3] = self._version
        copy(scratch, 4, MAGIC, 0, 4)
        put_u32_le(scratch, 8, self._newest)
        crc32_into(scratch, 12, scratch, 0, 12, True)
        code = self.files.append(fd, scratch, 0, HEAD_SIZE)
        if code != OK:
            self._give_up()
            return code
        self._end = HEAD_SIZE
        self.set_end(self.count - 1, HEAD_SIZE)
        self._torn = False
        self.dirty = True
        return OK

    def _give_up(self) -> None:
        """A write failed: without a record the segment goes, or refusals would fill the flash."""
        self.at = 0
        if self._end <= HEAD_SIZE:
            self.files.close(self._fd)
            self._number = 0
            self.dirty = False
            if self.remove(self.count - 1) == OK:
                self._newest -= 1  # no record had a place there

    def begin(self, kind: int, tag: int, size: int) -> int:
        """Begin a record that `fits`; its handle. `add` the payload, then `end`."""
        # Until it has ended: whatever comes between, nothing is put behind half a record.
        self._torn = True
        put_u16_le(self._four, 0, size + RECORD_EXTRA)
        self._four[2] = kind if self.dirty else kind | FLUSHED
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
            self._salted()
            self.failed = self.files.append(self._fd, self._crc, 0, 4)
        if self.failed != OK:
            self._give_up()
            return self.failed
        self._torn = False
        self._end += self.length
        self.set_end(self.count - 1, self._end)
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

    # --- giving room back ---

    def is_written(self, index: int) -> bool:
        """True for the segment that takes the next record."""
        return self.number(index) == self._number

    def groups(self, index: int) -> int:
        """Of which groups (number modulo 8, a bit each) somebody may need what is in a segment."""
        return self._rows[index * SEGMENT_ROW + 6]

    def pin(self, handle: int) -> None:
        """Note that the record that was looked at last, a message's, may be needed."""
        row = self._index(handle // self.segment_size) * SEGMENT_ROW
        self._rows[row + 6] |= 1 << (self.tag & 7)

    def set_groups(self, index: int, groups: int) -> None:
        """Note that."""
        self._rows[index * SEGMENT_ROW + 6] = groups

    def remove(self, index: int) -> int:
        """Remove a segment that is not being written."""
        number = self.number(index)
        self.release(number)
        code = self.files.remove(self.name(number))
        if code != OK:
            return code
        self.count -= 1
        self.erases += 1
        self.at = 0
        row = index * SEGMENT_ROW
        copy(self._rows, row, self._rows, row + SEGMENT_ROW, self.count * SEGMENT_ROW - row)
        return OK
