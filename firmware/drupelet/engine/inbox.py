"""What one peer told us: the ids that it offers, and the acknowledgements that we owe it.

Acknowledgements are owed by handle, in order of arrival: of messages in the log, pending ones and
buried ones. When their rows are full, `owed_from` covers the rest: every message of the log from
that handle on that came from the peer. A pending or buried message that finds no row is not
covered; it is acknowledged once it enters the log, or when another copy comes. The reply to
another copy is not covered either: if no row is free, it takes the row of the oldest reply, whose
message the peer has to send once more. So replies that wait for a link that is down do not keep
those of another link from leaving.
"""

from drupelet.base.compat import const
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE, INBOX_OFFERS_MIN
from drupelet.base.memory import copy, equal, fill, find, get_u16, get_u32, put_u16, put_u32
from drupelet.engine.backoff import counted

# Kinds of entries, in rising order: `add` replaces a lower kind by a higher one. Up to REQUESTED
# we request the message, from OWED on we acknowledge it.
OFFERED = const(1)  # the peer offered it; we neither hold it nor have requested it
REQUESTED = const(2)  # requested until it comes: in MVDS, and in the ask register
OWED = const(3)  # an acknowledgement of a message that is no longer in the log
OWED_TWICE = const(4)  # two ACKs in a row: the peer requested a message that no longer exists
OWED_BUNDLING = const(5)  # acknowledged in the bundle that is being written

# Offsets in an entry, which begins with the id.
_KIND = const(32)
_SENDS = const(33)
_EPOCH = const(34)
_NUMBER = const(36)
ENTRY_SIZE = const(38)
assert _KIND == ID_SIZE

# Offsets in an owed row, which begins with the handle (0: the acknowledgement was written).
_OWED_GROUP = const(4)
_OWED_STATE = const(5)
_OWED_NUMBER = const(6)
OWED_SIZE = const(8)
# State bits of owed rows.
BY_ROW = const(1)  # `owed_from` does not cover it: mostly the reply to another copy
_BUNDLING = const(2)  # written into the bundle that is being made
# With BY_ROW: we had sent the message, too, and the two copies crossed. So the peer may have no
# row for it any more, and with `compact-1` no number.
CROSSED = const(4)


class Inbox:
    """The offered ids and owed acknowledgements of one peer; with `compact-1` also its numbers.

    The last entry is the ask register: the deepest missing ancestor, which nobody offered.
    """

    # Defaults of the class: few peers need these, and an attribute takes RAM only once it is set.
    _bundling_from = 0  # `owed_from` before the bundle that is being made
    # Of the bundles from the peer: the highest one that was read to its end, and the peer's handle
    # up to which all of them were taken in completely; 0: some were not.
    bundle_number = taken_until = 0

    def __init__(self) -> None:
        self.owed_end = self._end = 0
        # From this handle on, the log itself shows what is owed; 0: the rows show everything.
        self.owed_from = 0
        self.is_dirty = False  # the wake state lacks an owed acknowledgement, or a read bundle
        self.entries = bytearray(ENTRY_SIZE)
        self._owed_rows = bytearray(0)

    @property
    def offers_max(self) -> int:
        """The number of entries before the ask register."""
        return len(self.entries) // ENTRY_SIZE - 1

    def resize(self, offers_max: int, owed_max: int) -> None:
        """Allocate the tables; what they held is owed from the log, or comes again."""
        assert offers_max >= INBOX_OFFERS_MIN
        for row in range(self.owed_end):
            if self.owed(row) and not self._owed_state(row) & BY_ROW:
                self.owe_from(self.owed(row))
        self.owed_end = self._end = 0
        self.entries = bytearray(ENTRY_SIZE * (offers_max + 1))
        self._owed_rows = bytearray(OWED_SIZE * owed_max)

    # --- owed by handle ---

    def owe(self, handle: int, group: int, number: int, state: int) -> None:
        """Owe an acknowledgement of a message of the log (group: row).

        `number`: the peer's, 0 for none. `state`: 0, BY_ROW, or BY_ROW | CROSSED.
        """
        if state:
            for row in range(self.owed_end):
                if self.owed(row) == handle:
                    put_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER, number)
                    return
        elif self.owed_from:
            return
        while self.owed_end and not self.owed(self.owed_end - 1):
            self.owed_end -= 1
        size = len(self._owed_rows)
        if self.owed_end * OWED_SIZE == size:
            self._compact(False)
            if state and self.owed_end * OWED_SIZE == size:
                self._compact(True)
        at = self.owed_end * OWED_SIZE
        if at == size:
            if not state:
                self.owe_from(handle)
            return
        self.is_dirty = True
        self.owed_end += 1
        put_u32(self._owed_rows, at, handle)
        self._owed_rows[at + _OWED_GROUP] = group
        self._owed_rows[at + _OWED_STATE] = state
        put_u16(self._owed_rows, at + _OWED_NUMBER, number)

    def owed(self, row: int) -> int:
        """Return the handle of the message in an owed row; 0: its acknowledgement was written."""
        return get_u32(self._owed_rows, row * OWED_SIZE)

    def owed_group(self, row: int) -> int:
        """Return the group (row) of the message in an owed row."""
        return self._owed_rows[row * OWED_SIZE + _OWED_GROUP]

    def is_crossed(self, row: int) -> bool:
        """Return True if a copy of the message had been sent to the peer, too."""
        return self._owed_state(row) & CROSSED != 0

    def _owed_state(self, row: int) -> int:
        return self._owed_rows[row * OWED_SIZE + _OWED_STATE]

    def owe_from(self, handle: int) -> None:
        """Owe everything in the log from a handle on that came from the peer."""
        self.owed_from = min(self.owed_from, handle) if self.owed_from else handle
        self.is_dirty = True

    def _compact(self, evicts: bool) -> None:
        """Remove the rows that were written; `evicts`: also the oldest reply to another copy that
        no unfinished bundle holds."""
        to = 0
        for row in range(self.owed_end):
            if evicts and self._owed_state(row) & (BY_ROW | _BUNDLING) == BY_ROW:
                evicts = False
            elif self.owed(row):
                rows = self._owed_rows
                copy(rows, to * OWED_SIZE, rows, row * OWED_SIZE, OWED_SIZE)
                to += 1
        self.owed_end = to

    def move_handle(self, handle: int, to: int) -> None:
        """Follow a pending message that entered the log, at handle `to`; 0: nothing is owed."""
        for row in range(self.owed_end):
            if self.owed(row) == handle:
                put_u32(self._owed_rows, row * OWED_SIZE, to)

    def disown(self, group: int) -> None:
        """Owe nothing more of a group (row) that the peer no longer sees: no link would take these
        rows, and the replies to other copies need them."""
        for row in range(self.owed_end):
            if self.owed_group(row) == group:
                put_u32(self._owed_rows, row * OWED_SIZE, 0)

    def is_owed(self, row: int) -> bool:
        """Return True for a row whose acknowledgement has not been written yet."""
        return self.owed(row) != 0 and not self._owed_state(row) & _BUNDLING

    def take_owed(self, row: int, visits: bool) -> int:
        """Record that a row's acknowledgement was written; return the peer's number or 0.

        `visits`: it was written into a bundle, which may still fail.
        """
        if visits:
            self._owed_rows[row * OWED_SIZE + _OWED_STATE] |= _BUNDLING
        else:
            put_u32(self._owed_rows, row * OWED_SIZE, 0)
        return get_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER)

    def begin_bundle(self) -> None:
        """Begin a bundle: remember what is owed, in case it fails."""
        self._bundling_from = self.owed_from

    def end_bundle(self, is_written: bool) -> None:
        """End a bundle: it is on the stick, or it failed and has acknowledged nothing."""
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
        """Write all that is owed as one TAKEN into the bundle; return True if anything was owed.

        A message behind those bundles that came over a line is acknowledged when a copy comes.
        """
        owes = self.owes()
        for row in range(self.owed_end):
            self._owed_rows[row * OWED_SIZE + _OWED_STATE] |= _BUNDLING
        for entry in range(self.offers_max):
            if self.kind(entry) == OWED:
                self.set_kind(entry, OWED_BUNDLING)
        self.owed_from = 0
        return owes

    def owes(self) -> bool:
        """Return True while an acknowledgement is owed."""
        for row in range(self.owed_end):
            if self.is_owed(row):
                return True
        for entry in range(self.offers_max):
            if OWED <= self.kind(entry) <= OWED_TWICE:
                return True
        return self.owed_from != 0

    def owed_low(self) -> int:
        """Return the handle from which on acknowledgements are owed, for the wake state; 0: none.

        That is the lowest message that the peer was the first to send. If only replies to other
        copies are owed, it is the highest of those, which keeps the walk short: a sleeper must not
        wake each time with nothing to say to a peer that missed an acknowledgement.
        """
        low = self.owed_from
        highest_reply = 0
        for row in range(self.owed_end):
            handle = self.owed(row)
            if self._owed_state(row) & BY_ROW:
                highest_reply = max(highest_reply, handle)
            elif handle:
                low = min(low, handle) if low else handle
        return low or highest_reply

    # --- entries by id ---

    def end(self) -> int:
        """Return one more than the last entry in use."""
        while self._end and not self.kind(self._end - 1):
            self._end -= 1
        return self._end

    def kind(self, entry: int) -> int:
        """Return the kind of an entry, OFFERED to OWED_BUNDLING; 0: it is free."""
        return self.entries[entry * ENTRY_SIZE + _KIND]

    def set_kind(self, entry: int, kind: int) -> None:
        """Set the kind of an entry; 0 frees it."""
        self.entries[entry * ENTRY_SIZE + _KIND] = kind

    def sends(self, entry: int) -> int:
        """Return how often the id of an entry was requested."""
        return self.entries[entry * ENTRY_SIZE + _SENDS]

    def epoch(self, entry: int) -> int:
        """Return the epoch in which the id of an entry was last requested, or else offered."""
        return get_u16(self.entries, entry * ENTRY_SIZE + _EPOCH)

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """Return the entry of an id, or -1."""
        end = self.end()
        begin = find(self.entries, ENTRY_SIZE, end, id, at, ID_SIZE)
        for entry in range(begin if begin >= 0 else end, end):
            if self.kind(entry) and equal(self.entries, entry * ENTRY_SIZE, id, at, ID_SIZE):
                return entry
        return -1

    def add(
        self, id: "bytes | bytearray | memoryview", at: int, kind: int, epoch: int, number: int = 0
    ) -> int:
        """Add an id, or raise the kind of its entry; return the entry, or -1 if there is no room.

        If no entry is free, evict the oldest offer, but none of the present epoch: offers come in
        log order, and if the later ones replaced the first, we would request only messages whose
        parents are still missing.
        """
        entry = self.find(id, at)
        if entry == self.offers_max and kind > REQUESTED:
            self.set_kind(entry, 0)  # the register is for requests only
            entry = -1
        if entry >= 0:
            # An offer of an id that was requested already changes nothing.
            if kind > self.kind(entry):
                self.set_kind(entry, kind)
            if number:
                self.number_entry(entry, number)
            return entry
        victim = victim_age = -1
        for row in range(self._end if self._end < self.offers_max else 0, self.offers_max):
            age = (epoch - self.epoch(row)) & 0xFFFF
            if not self.kind(row):
                victim = row
                break
            may_evict = self.kind(row) <= REQUESTED and (kind > REQUESTED or age)
            if may_evict and age > victim_age:
                victim = row
                victim_age = age
        if victim >= 0:
            self._put(victim, id, at, kind, epoch)
            self.number_entry(victim, number)
        return victim

    def ask(self, id: "bytes | bytearray | memoryview", at: int, epoch: int) -> None:
        """Put a missing ancestor that nobody offered into the ask register.

        The register keeps its present id until that has been requested once.
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
        """Set the peer's number for the id of an entry."""
        put_u16(self.entries, entry * ENTRY_SIZE + _NUMBER, number)

    def entry_number(self, entry: int) -> int:
        """Return the peer's number for the id of an entry, or 0."""
        return get_u16(self.entries, entry * ENTRY_SIZE + _NUMBER)

    def forget_numbers(self) -> None:
        """Clear the peer's numbers: it begins a new generation."""
        for entry in range(self.end()):
            self.number_entry(entry, 0)
        for row in range(self.owed_end):
            put_u16(self._owed_rows, row * OWED_SIZE + _OWED_NUMBER, 0)

    def complete_id(self, id: bytearray, at: int) -> None:
        """Complete an id of which only the first 8 bytes are known, from an entry that is owed an
        acknowledgement: the message arrived whole, and our log has dropped it."""
        for entry in range(self.offers_max):
            begin = entry * ENTRY_SIZE
            if self.kind(entry) >= OWED and equal(self.entries, begin, id, at, ID_PREFIX_SIZE):
                copy(id, at, self.entries, begin, ID_SIZE)

    def is_whole(self, entry: int) -> bool:
        """Return False if only 8 bytes of the id are known: only the link that got them asks."""
        at = entry * ENTRY_SIZE + ID_PREFIX_SIZE
        size = ID_SIZE - ID_PREFIX_SIZE - 1
        return self.entries[at] != 0 or not equal(self.entries, at, self.entries, at + 1, size)

    def note_asked(self, entry: int, epoch: int) -> None:
        """Record a request for the id of an entry."""
        self.entries[entry * ENTRY_SIZE + _SENDS] = counted(self.sends(entry))
        put_u16(self.entries, entry * ENTRY_SIZE + _EPOCH, epoch)

    def forget_asks(self) -> None:
        """Forget what was requested: all of it may be requested again at once."""
        for entry in range(self.offers_max + 1):
            self.entries[entry * ENTRY_SIZE + _SENDS] = 0

    def drop(self, id: "bytes | bytearray | memoryview", at: int) -> None:
        """Remove the requests for a message that is here now.

        An offer may be 8 bytes and zeros. If another id begins with the same bytes, its offer is
        lost here, and the peer repeats it.
        """
        end = self.end()
        begin = find(self.entries, ENTRY_SIZE, end, id, at, ID_PREFIX_SIZE)
        for entry in range(begin if begin >= 0 else end, end):
            size = ID_SIZE if self.is_whole(entry) else ID_PREFIX_SIZE
            asks = 0 < self.kind(entry) <= REQUESTED
            if asks and equal(self.entries, entry * ENTRY_SIZE, id, at, size):
                self.set_kind(entry, 0)

    def drop_offers(self) -> None:
        """Forget all that is kept by id: offers, requests, and acknowledgements of messages that
        are not in the log any more. The peer sends again what still matters to it."""
        fill(self.entries, 0, len(self.entries), 0)

    def forget_peer(self) -> None:
        """Clear the tables of a peer that was removed, for another one."""
        self.drop_offers()
        self.owed_end = self.owed_from = self.bundle_number = self.taken_until = 0
