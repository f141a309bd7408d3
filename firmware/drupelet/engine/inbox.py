"""What one peer told us: ids that it offers, and the acknowledgements that we owe it.

Acknowledgements are owed by handle, in the order of arrival. When their rows are full, the log
itself says the rest: everything in it from a handle on that came from the peer. What waits or is
buried is not in the log: it is acknowledged when it has entered, or when a copy comes. An answer
to a copy that came again has no such place: if there is no row, the peer sends it once more.
"""

from drupelet.base.compat import const
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE, INBOX_OFFERS_MIN
from drupelet.base.memory import copy, equal, fill, find, get_u16, get_u32, put_u16, put_u32
from drupelet.engine.backoff import counted

# Kinds of entries, in rising order: a later one replaces an earlier one. Up to REQUESTED we ask
# for the message, from OWED on we acknowledge it.
OFFERED = const(1)  # the peer offered it, we do not hold it and have not asked for it
REQUESTED = const(2)  # asked for until it comes: in MVDS, and what the register has
OWED = const(3)  # an acknowledgement of what is not in the log any more
OWED_TWICE = const(4)  # the same, of what is gone: the peer asked for it
OWED_BUNDLING = const(5)  # written into the bundle that is being made

# An entry; it begins with the id.
_KIND = const(32)
_SENDS = const(33)
_EPOCH = const(34)
_NUMBER = const(36)
ENTRY_SIZE = const(38)
assert _KIND == ID_SIZE

# An owed row: handle (0: the acknowledgement has been written), group row, state, and the peer's
# number for the message.
_OWED_GROUP = const(4)
_OWED_STATE = const(5)
_OWED_NUMBER = const(6)
OWED_SIZE = const(8)
# States of owed rows.
BY_ROW = const(1)  # `owed_from` does not find it: to a copy that came again, mostly
_BUNDLING = const(2)  # written into the bundle that is being made
# With BY_ROW: the message had left for the peer as well. The two copies crossed, so the peer may
# have no row of it any more, and with `compact-1` no number.
CROSSED = const(4)


class Inbox:
    """One peer's offered ids and owed acknowledgements; with `compact-1` the peer's numbers.

    The last entry is the register for the deepest missing ancestor, which nobody offered.
    """

    # What few peers need takes RAM from when it is set.
    _bundling_from = 0  # `owed_from` as it was before the bundle that is being made
    # Of the peer's bundles: the highest one that was read to its end, and up to which of the
    # peer's own handles they were taken whole; 0: some were not.
    bundle_number = taken_until = 0

    def __init__(self) -> None:
        self.offers_max = self.owed_end = self._end = 0
        # The handle from which on the log tells what is owed; 0: the rows say all.
        self.owed_from = 0
        self.is_dirty = False  # more is owed than the wake state says, or other bundles were read
        self.entries = bytearray(0)
        self._owed_rows = bytearray(0)

    def resize(self, offers_max: int, owed_max: int) -> None:
        """Allocate the tables; what they held comes again."""
        assert offers_max >= INBOX_OFFERS_MIN
        for row in range(self.owed_end):
            if self.owed(row) and not self._owed_state(row) & BY_ROW:
                self.owe_from(self.owed(row))
        self.offers_max = offers_max
        self.owed_end = self._end = 0
        self.entries = bytearray(ENTRY_SIZE * (offers_max + 1))
        self._owed_rows = bytearray(OWED_SIZE * owed_max)

    # --- owed by handle ---

    def owe(self, handle: int, group: int, number: int, state: int) -> None:
        """An acknowledgement is owed for a message of the log (group: row).

        number: the peer's, 0 for none. state: 0, BY_ROW, or BY_ROW | CROSSED.
        """
        if state:
            for row in range(self.owed_end):
                if self.owed(row) == handle:
                    put_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER, number)
                    return
        elif self.owed_from:
            return
        owed_max = len(self._owed_rows) // OWED_SIZE
        if self.owed_end == owed_max:
            self._squeeze()
        row = self.owed_end
        if row == owed_max:
            if not state:
                self.owe_from(handle)
            return
        self.is_dirty = True
        self.owed_end = row + 1
        put_u32(self._owed_rows, row * OWED_SIZE, handle)
        at = row * OWED_SIZE
        self._owed_rows[at + _OWED_GROUP] = group
        self._owed_rows[at + _OWED_STATE] = state
        put_u16(self._owed_rows, at + _OWED_NUMBER, number)

    def owed(self, row: int) -> int:
        """The handle of the message in an owed row; 0: its acknowledgement has been written."""
        return get_u32(self._owed_rows, row * OWED_SIZE)

    def owed_group(self, row: int) -> int:
        """The group's row of the message in an owed row."""
        return self._owed_rows[row * OWED_SIZE + _OWED_GROUP]

    def is_crossed(self, row: int) -> bool:
        """True for the reply to a copy that had left for the peer as well."""
        return self._owed_state(row) & CROSSED != 0

    def _owed_state(self, row: int) -> int:
        return self._owed_rows[row * OWED_SIZE + _OWED_STATE]

    def owe_from(self, handle: int) -> None:
        """Everything in the log from a handle on that came from the peer is owed."""
        self.owed_from = min(self.owed_from, handle) if self.owed_from else handle
        self.is_dirty = True

    def _squeeze(self) -> None:
        to = 0
        for row in range(self.owed_end):
            if self.owed(row):
                rows = self._owed_rows
                copy(rows, to * OWED_SIZE, rows, row * OWED_SIZE, OWED_SIZE)
                to += 1
        self.owed_end = to

    def rename(self, handle: int, to: int) -> None:
        """A message that waited has entered the log under another handle; 0: nothing is owed."""
        for row in range(self.owed_end):
            if self.owed(row) == handle:
                put_u32(self._owed_rows, row * OWED_SIZE, to)

    def is_owed(self, row: int) -> bool:
        """True for a row whose acknowledgement has not been written yet."""
        return self.owed(row) != 0 and not self._owed_state(row) & _BUNDLING

    def take_owed(self, row: int, visits: bool) -> int:
        """The acknowledgement of a row is written; the peer's number for the message, or 0.

        visits: into a bundle, which may yet fail.
        """
        if visits:
            self._owed_rows[row * OWED_SIZE + _OWED_STATE] |= _BUNDLING
        else:
            put_u32(self._owed_rows, row * OWED_SIZE, 0)
        return get_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER)

    def begin_bundle(self) -> None:
        """A bundle is begun."""
        self._bundling_from = self.owed_from

    def end_bundle(self, is_written: bool) -> None:
        """The bundle is on the stick, or it failed and acknowledges nothing."""
        for row in range(self.owed_end):
            if self._owed_state(row) & _BUNDLING:
                self._owed_rows[row * OWED_SIZE + _OWED_STATE] &= ~_BUNDLING & 0xFF
                if is_written:
                    put_u32(self._owed_rows, row * OWED_SIZE, 0)
        for entry in range(self.offers_max):
            if self.kind(entry) == OWED_BUNDLING:
                self.set_kind(entry, 0 if is_written else OWED)
        if not is_written and self._bundling_from:
            self.owed_from = self._bundling_from

    def take_all_owed(self) -> bool:
        """One frame of the bundle stands for all that is owed; True if something was. What came
        over a line since, behind those bundles, comes again and is acknowledged then."""
        owes = self.owes()
        for row in range(self.owed_end):
            if self.owed(row):
                self._owed_rows[row * OWED_SIZE + _OWED_STATE] |= _BUNDLING
        for entry in range(self.offers_max):
            if self.kind(entry) == OWED:
                self.set_kind(entry, OWED_BUNDLING)
        self.owed_from = 0
        return owes

    def owes(self) -> bool:
        """True while an acknowledgement is owed."""
        for row in range(self.owed_end):
            if self.is_owed(row):
                return True
        for entry in range(self.offers_max):
            if OWED <= self.kind(entry) <= OWED_TWICE:
                return True
        return self.owed_from != 0

    def owed_low(self) -> int:
        """The handle from which on acknowledgements are owed, for the wake state; 0: none is.

        The lowest of what came first from the peer. If only answers to copies are owed, the
        highest: that keeps the walk short, and the other copies come again. A sleeper must not
        wake each time with nothing to say to a peer that lost its acknowledgement.
        """
        low = self.owed_from
        reply = 0
        for row in range(self.owed_end):
            handle = self.owed(row)
            if self._owed_state(row) & BY_ROW:
                reply = max(reply, handle)
            elif handle:
                low = min(low, handle) if low else handle
        return low or reply

    # --- entries by id ---

    def end(self) -> int:
        """The entry behind the last one that is used."""
        while self._end and not self.kind(self._end - 1):
            self._end -= 1
        return self._end

    def kind(self, entry: int) -> int:
        """What an entry is: OFFERED to OWED_BUNDLING, or 0: it is free."""
        return self.entries[entry * ENTRY_SIZE + _KIND]

    def set_kind(self, entry: int, kind: int) -> None:
        """Make another kind of an entry; 0: it is free."""
        self.entries[entry * ENTRY_SIZE + _KIND] = kind

    def sends(self, entry: int) -> int:
        """How often the id of an entry was asked for."""
        return self.entries[entry * ENTRY_SIZE + _SENDS]

    def epoch(self, entry: int) -> int:
        """When the id of an entry was asked for last, or else offered."""
        return get_u16(self.entries, entry * ENTRY_SIZE + _EPOCH)

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The entry of an id, or -1."""
        end = self.end()
        begin = find(self.entries, ENTRY_SIZE, end, id, at, ID_SIZE)
        for entry in range(begin if begin >= 0 else end, end):
            if self.kind(entry) and equal(self.entries, entry * ENTRY_SIZE, id, at, ID_SIZE):
                return entry
        return -1

    def add(
        self, id: "bytes | bytearray | memoryview", at: int, kind: int, epoch: int, number: int = 0
    ) -> int:
        """Put an id in, if need be in place of another one; its entry, or -1 for no room.

        When all entries are used, the oldest offer gives way, but not to one of the same epoch:
        offers come in the order of the log, and were the first ones replaced, only the last ones
        would be asked for, which come too early.
        """
        entry = self.find(id, at)
        if entry == self.offers_max and kind > REQUESTED:
            self.set_kind(entry, 0)  # the register asks only
            entry = -1
        if entry >= 0:
            # An offer of what was asked for already changes nothing.
            if kind > self.kind(entry):
                self.set_kind(entry, kind)
            if number:
                self.number_entry(entry, number)
            return entry
        oldest = -1
        oldest_age = 0
        for row in range(self._end if self._end < self.offers_max else 0, self.offers_max):
            age = (epoch - self.epoch(row)) & 0xFFFF
            if not self.kind(row):
                oldest = row
                break
            gives_way = self.kind(row) <= REQUESTED and (kind > REQUESTED or age)
            if gives_way and (oldest < 0 or age > oldest_age):
                oldest = row
                oldest_age = age
        if oldest >= 0:
            self._put(oldest, id, at, kind, epoch)
            self.number_entry(oldest, number)
        return oldest

    def ask(self, id: "bytes | bytearray | memoryview", at: int, epoch: int) -> None:
        """Ask the peer for a missing ancestor that nobody offered.

        The register keeps the one that it has until that has been asked for once.
        """
        last = self.offers_max
        if (not self.kind(last) or self.sends(last)) and self.find(id, at) < 0:
            self._put(last, id, at, REQUESTED, epoch)

    def _put(
        self, entry: int, id: "bytes | bytearray | memoryview", at: int, kind: int, epoch: int
    ) -> None:
        self._end = max(self._end, entry + 1)
        begin = entry * ENTRY_SIZE
        copy(self.entries, begin, id, at, ID_SIZE)
        self.entries[begin + _KIND] = kind
        self.entries[begin + _SENDS] = 0
        put_u16(self.entries, begin + _EPOCH, epoch)
        put_u16(self.entries, begin + _NUMBER, 0)

    def number_entry(self, entry: int, number: int) -> None:
        """Note the peer's number for the id of an entry."""
        put_u16(self.entries, entry * ENTRY_SIZE + _NUMBER, number)

    def entry_number(self, entry: int) -> int:
        """The peer's number for the id of an entry, or 0."""
        return get_u16(self.entries, entry * ENTRY_SIZE + _NUMBER)

    def forget_numbers(self) -> None:
        """The peer numbers its messages anew."""
        for entry in range(self.end()):
            self.number_entry(entry, 0)
        for row in range(self.owed_end):
            put_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER, 0)

    def complete_id(self, id: bytearray, at: int) -> None:
        """Complete 8 bytes of an id by an entry that is owed an acknowledgement, if there is one:
        the message arrived whole, and our log has dropped it."""
        for entry in range(self.offers_max):
            begin = entry * ENTRY_SIZE
            is_owed = self.kind(entry) >= OWED
            if is_owed and equal(self.entries, begin, id, at, ID_PREFIX_SIZE):
                copy(id, at, self.entries, begin, ID_SIZE)

    def is_whole(self, entry: int) -> bool:
        """False for the first 8 bytes of an id and zeros: the link that was told them asks."""
        at = entry * ENTRY_SIZE + ID_PREFIX_SIZE
        size = ID_SIZE - ID_PREFIX_SIZE - 1
        return self.entries[at] != 0 or not equal(self.entries, at, self.entries, at + 1, size)

    def note_asked(self, entry: int, epoch: int) -> None:
        """The id of an entry was asked for."""
        self.entries[entry * ENTRY_SIZE + _SENDS] = counted(self.sends(entry))
        put_u16(self.entries, entry * ENTRY_SIZE + _EPOCH, epoch)

    def ask_again(self) -> None:
        """What was asked for may be asked for at once."""
        for entry in range(self.offers_max + 1):
            self.entries[entry * ENTRY_SIZE + _SENDS] = 0

    def drop(self, id: "bytes | bytearray | memoryview", at: int) -> None:
        """The message is here: nothing is asked for.

        An offer may be the first 8 bytes and zeros; the offer of another id that begins with
        them is made again.
        """
        end = self.end()
        begin = find(self.entries, ENTRY_SIZE, end, id, at, ID_PREFIX_SIZE)
        for entry in range(begin if begin >= 0 else end, end):
            size = ID_SIZE if self.is_whole(entry) else ID_PREFIX_SIZE
            asks = 0 < self.kind(entry) <= REQUESTED
            if asks and equal(self.entries, entry * ENTRY_SIZE, id, at, size):
                self.set_kind(entry, 0)

    def drop_offers(self) -> None:
        """Forget what the peer offers, and what is asked for; what matters comes again."""
        fill(self.entries, 0, len(self.entries), 0)

    def forget(self) -> None:
        """The peer was removed: its tables are free for another one."""
        self.drop_offers()
        self.owed_end = self.owed_from = self.bundle_number = self.taken_until = 0


class Incoming:
    """The content that is put together in one part file. To begin one opens that, and so costs RAM
    anyway."""

    peer = -1  # the row of the peer that sends it; -1: the file is free
    size = 0  # of the whole content
    grew_ms = 0  # when it last grew
    # A STATE is due: how much was here (+ 1) when the sender seemed not to know; 0: none is.
    gap = 0
    gap_sends = 0  # how often that STATE has left
    stated = 0  # how much (+ 1) the last STATE said; 0: none was sent
    stated_ms = 0  # when it left
    is_box = False

    def __init__(self) -> None:
        self.key = bytearray(ID_PREFIX_SIZE)  # how its message id begins
