"""Ids of messages whose records went to make room, in a log of its own: a ring of segments.

Without them a message that was dropped would be unknown: what depends on it would wait for ever,
and a late copy would be delivered again. Kept is the beginning of an id and its group's number.
Beside them stand parents that never came, for whoever was asked for them has them no more.

    record   tag | rows
    tag      0, or FLAG_INVALID for what was not valid; 1 for what never came
    row      id [8] | group number u8

Records of the message log go first: a message that is still there is not departed.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import GONE_HANDLE, GONE_SHARE, GONE_SPARE, ID_PREFIX_SIZE
from drupelet.base.memory import copy, fill, find
from drupelet.store.log import KIND_GONE, RECORD_EXTRA, Log

NEVER_CAME = const(1)
DEPARTED_ROW = const(9)
_LOOK_SIZE = const(4)  # no more of what was written is read again
_BATCH_SIZE = const(63)  # rows in a record: as many as a scratch takes
_TRIES = const(3)  # the ring is full, the flash is, and once more

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class IdFilter:
    """Which ids may be in the log: no false negatives, 4 bits per id (a Bloom filter).

    An id is a hash already: its first 8 bytes give the 4 bit numbers. `twist` makes another key
    of the same id.
    """

    def __init__(self, size: int) -> None:
        assert 0 < size <= 8192 and not size & (size - 1), "a power of two, 16-bit bit numbers"
        self._bits = bytearray(size)
        self._mask = size * 8 - 1
        self.count = 0

    def clear(self) -> None:
        """Forget everything."""
        fill(self._bits, 0, len(self._bits), 0)
        self.count = 0

    def crowded(self) -> bool:
        """True when a search for an unknown id begins to cost flash reads (about 1 in 20)."""
        return self.count * 6 > self._mask

    def add(self, id: "Buffer", at: int, twist: int) -> None:
        """Note an id."""
        self.count += 1
        for i in range(at, at + 8, 2):
            bit = ((id[i] ^ twist) | id[i + 1] << 8) & self._mask
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def has(self, id: "Buffer", at: int, twist: int) -> bool:
        """False: certainly not noted."""
        for i in range(at, at + 8, 2):
            bit = ((id[i] ^ twist) | id[i + 1] << 8) & self._mask
            if not self._bits[bit >> 3] & 1 << (bit & 7):
                return False
        return True


class DepartedIds:
    """The ring. Its oldest segment makes room, and the ids in that are forgotten and counted."""

    def __init__(self, store: "StoreParts", messages: Log, filter_size: int) -> None:
        self._store = store
        segments = messages.segments_max // GONE_SHARE + GONE_SPARE
        self.log = Log(store, ".IDS", messages.segment_size, segments, _LOOK_SIZE)
        self._filter = IdFilter(filter_size)
        self._batch = bytearray(_BATCH_SIZE)
        self._size = 0
        self._code = OK
        self._tag = 0
        self.noted = 0  # ids since the last `write_noted`

    def fill_filter(self) -> None:
        """Make the filter from the ring."""
        self._filter.clear()
        handle = 0
        while handle := self.log.step(handle):
            for row in range(self.read(handle)):
                self._filter.add(self.log.scratch, row * DEPARTED_ROW, 0)

    def read(self, handle: int) -> int:
        """Read the rows of the record that was looked at; how many."""
        size = min(self.log.length - RECORD_EXTRA, _BATCH_SIZE)
        return max(self.log.read_into(handle, 4, self.log.scratch, 0, size), 0) // DEPARTED_ROW

    def note(self, id: "Buffer", at: int, group: int, tag: int) -> None:
        """Keep an id; `write_noted` makes it durable."""
        if self._size == _BATCH_SIZE or tag != self._tag:
            self._write()
        self._tag = tag
        copy(self._batch, self._size, id, at, ID_PREFIX_SIZE)
        self._batch[self._size + ID_PREFIX_SIZE] = group
        self._size += DEPARTED_ROW
        self.noted += 1

    def write_noted(self) -> int:
        """Make all that was noted durable; OK or a code.

        When the flash has no room for them, ids are forgotten: or nothing could ever go.
        """
        self._write()
        code = self._code
        self._code = OK
        self.noted = 0
        return code if code != OK else self.log.flush()

    def _write(self) -> None:
        log = self.log
        size = self._size
        self._size = 0
        code = OK
        for _ in range(_TRIES if size else 0):
            code = OK if log.fits(size) else log.rotate(log.segments_max)
            if code == OK:
                code = min(log.append(KIND_GONE, self._tag, self._batch, size, b"", 0, 0), OK)
            if code != E_CAPACITY:
                break
            if log.count and not log.is_held(0) and log.remove(0) == OK:
                held = self._filter.count
                self.fill_filter()
                self._store.forgotten += held - self._filter.count
        if code == E_CAPACITY:
            self._store.forgotten += size // DEPARTED_ROW
        elif code != OK:
            self._code = code
        else:
            for at in range(0, size, DEPARTED_ROW):
                self._filter.add(self._batch, at, 0)

    def find(self, id: "Buffer", at: int, left: bytearray, tag: int = 0) -> int:
        """A handle that tells tag and group of an id that is here, or 0.

        `left`: a bit for each number of a group whose ids do not count. `tag`: 1 for what never
        came, else all the others.
        """
        log = self.log
        handle = 0
        while self._filter.has(id, at, 0) and (handle := log.step(handle)):
            rows = self.read(handle) if (log.tag == NEVER_CAME) == tag else 0
            row = find(log.scratch, DEPARTED_ROW, rows, id, at, ID_PREFIX_SIZE)
            group = log.scratch[row * DEPARTED_ROW + ID_PREFIX_SIZE] if row >= 0 else 0
            if row >= 0 and not left[group >> 3] & 1 << (group & 7):
                return GONE_HANDLE + (log.tag << 8) + group
        return 0
