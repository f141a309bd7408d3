"""Ids of messages whose records were reclaimed: a log of its own, a ring of segments.

Without them, children of a dropped message would wait for ever, and a late copy of it would be
delivered again. The log keeps the first 8 bytes of each id and the number of its group, and also
the ids of parents that never came and that no peer has any more.

    record   tag | rows
    tag      0, FLAG_INVALID for invalid messages, or NEVER_CAME
    row      id [8] | group number u8

Look into the message log first: only an id without a record there is departed.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import GONE_HANDLE, GONE_SHARE, GONE_SPARE, ID_PREFIX_SIZE
from drupelet.base.memory import copy, fill, find
from drupelet.store.log import KIND_GONE, RECORD_EXTRA, Log

NEVER_CAME = const(1)
DEPARTED_ROW = const(9)
_LOOK_SIZE = const(4)  # head bytes kept of the record that was written last
_BATCH_SIZE = const(63)  # bytes of rows in a record, 7 rows: as many as fit the scratch
_TRIES = const(3)  # the first fails on a full ring, the second on a full flash

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.ports import StoreParts


class IdFilter:
    """A Bloom filter of the ids in a log, with 4 bits per id: no false negatives.

    An id is a hash, so its first 8 bytes give the 4 bit numbers. `twist` makes a second, different
    key of the same id.
    """

    def __init__(self, size: int) -> None:
        assert 0 < size <= 8192 and not size & (size - 1), "a power of two, 16-bit bit numbers"
        self._bits = bytearray(size)
        self._mask = size * 8 - 1
        self.count = 0

    def clear(self) -> None:
        """Remove all ids."""
        fill(self._bits, 0, len(self._bits), 0)
        self.count = 0

    def crowded(self) -> bool:
        """Return True if about 1 in 20 unknown ids passes the filter, and costs flash reads."""
        return self.count * 6 > self._mask

    def add(self, id: "Buffer", at: int, twist: int) -> None:
        """Add an id."""
        self.count += 1
        for i in range(at, at + 8, 2):
            bit = ((id[i] ^ twist) | id[i + 1] << 8) & self._mask
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def has(self, id: "Buffer", at: int, twist: int) -> bool:
        """Return False if the id was certainly not added."""
        for i in range(at, at + 8, 2):
            bit = ((id[i] ^ twist) | id[i + 1] << 8) & self._mask
            if not self._bits[bit >> 3] & 1 << (bit & 7):
                return False
        return True


class DepartedIds:
    """The ring of departed ids; when it is full, those in its oldest segment are forgotten."""

    def __init__(self, store: "StoreParts", messages: Log, filter_size: int) -> None:
        self._store = store
        segments = messages.segments_max // GONE_SHARE + GONE_SPARE
        self.log = Log(store, ".IDS", messages.segment_size, segments, _LOOK_SIZE)
        self._filter = IdFilter(filter_size)
        self._batch = bytearray(_BATCH_SIZE)
        self._size = 0
        self._code = OK
        self._tag = 0
        self.noted = 0  # ids added since the last `write_noted`

    def fill_filter(self) -> None:
        """Rebuild the filter from the ring."""
        self._filter.clear()
        place = 0
        while place := self.log.step(place):
            for row in range(self.read(place)):
                self._filter.add(self.log.scratch, row * DEPARTED_ROW, 0)

    def read(self, place: int) -> int:
        """Read the rows of the record at a place into the scratch; return how many there are."""
        size = min(self.log.length - RECORD_EXTRA, _BATCH_SIZE)
        return max(self.log.read_into(place, 4, self.log.scratch, 0, size), 0) // DEPARTED_ROW

    def note(self, id: "Buffer", at: int, group: int, tag: int) -> None:
        """Add an id; it is durable after `write_noted`."""
        if self._size == _BATCH_SIZE or tag != self._tag:
            self._write()
        self._tag = tag
        copy(self._batch, self._size, id, at, ID_PREFIX_SIZE)
        self._batch[self._size + ID_PREFIX_SIZE] = group
        self._size += DEPARTED_ROW
        self.noted += 1

    def write_noted(self) -> int:
        """Make all added ids durable; return OK or a code.

        If the flash has no room for them, they are forgotten: otherwise no segment could be
        reclaimed on a full flash.
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
                code = min(log.append(KIND_GONE, self._tag, b"", 0, self._batch, 0, size), OK)
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
        """Return a handle that contains tag and group of a departed id; 0 if it is unknown.

        `left`: a bit for each group number whose ids are ignored. `tag`: NEVER_CAME, or 0 for all
        other ids.
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
