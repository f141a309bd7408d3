"""Link numbers of `compact-1`: what stands for a 32-byte id between two nodes (docs/SPEC.md 3.5).

A node numbers what it offers or sends to a peer, from 1 on. A number means one message for as long
as a generation lasts, and no number is given twice in it; generations are a peer's own. A set of
numbers that the peer names comes with the generation and a fold of the ids, so that a set of an
older generation, or of what is not here any more, does nothing.

Ours are a column of the peer's outbox, the peer's are columns of its inbox. 0 is none.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    COMPACT_COVER_SIZE,
    COMPACT_GROUPS_MAX,
    GONE_HANDLE,
    ID_PREFIX_SIZE,
    ID_SIZE,
)
from drupelet.base.memory import copy, equal, fill, get_u16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.exchange import Exchange

NUMBER_MAX = const(0x7FFF)
# More numbers than one frame can use: 1,024 B of messages of 3 B, with a body of 1, are 341.
_FRAME_NUMBERS = const(512)
# A row for each peer. Numbers of 16 bits: our generation, the peer's, and sets of group indices:
# those of the peer's that it told, those of ours that it knows, those that we told.
_PEER_GENERATION = const(2)
_KNOWN = const(4)
_CONFIRMED = const(6)
_TOLD = const(8)
# Bytes: the peer's member number, 1 when its generation is known, an index of the peer's (+ 1)
# that we should tell we do not know, how many indices of ours are in use. Then, for each group,
# its index (+ 1; 0: none) to us and to the peer.
_PEER = const(10)
_HEARD = const(11)
_UNKNOWN = const(12)
_USED = const(13)
_OURS = const(14)
_THEIRS = const(15)
FOLD_SIZE = const(4)
# In front of the rows is what a codec works with: an id; a set of numbers, a bit each, and the
# fold of their ids; the last timestamp. One serves all: nothing is read while a set is written.
BITS_AT = const(32)
_FOLD_AT = const(64)
STAMP_AT = const(68)
_ROWS_AT = const(76)

assert COMPACT_COVER_SIZE == 32 == ID_SIZE


class Numbering:
    """The numbers between us and each peer, whatever link they travel on.

    Of one peer at a time: the one that `turn_to` was called for last.
    """

    def __init__(self, core: "Core") -> None:
        members = core.members
        self._core = core
        self._outbox = core.outboxes[0]  # of the peer that `turn_to` was called for
        self._hint = 0
        self._announced = 0  # indices in the frame that is being written
        self._row_size = _OURS + 2 * members.groups_max()
        self._row = _ROWS_AT
        self._slab = bytearray(_ROWS_AT + self._row_size * members.peers_max)

    def meet(self, peer: int, peer_number: int) -> None:
        """A link to the peer of a row is made; a removed peer's row may have passed to another."""
        self.turn_to(peer)
        rows = self._slab
        row = self._row
        before = rows[row + _PEER]
        if before != peer_number:
            fill(rows, row, self._row_size, 0)
            rows[row + _PEER] = peer_number
            put_u16(rows, row, self._core.clocks.generation)
            if before:
                self.restart()

    def rows_end(self) -> int:
        """Where the rows of the peers end, and those of the links begin."""
        return _ROWS_AT + self._row_size * self._core.members.peers_max

    def turn_to(self, peer: int) -> None:
        """What follows is about the peer of this row."""
        self._row = _ROWS_AT + peer * self._row_size
        self._outbox = self._core.outboxes[peer]

    def _has(self, set_at: int, index: int) -> bool:
        return get_u16(self._slab, self._row + set_at) & 1 << index != 0

    def _put(self, set_at: int, index: int, is_in: bool) -> None:
        at = self._row + set_at
        indices = get_u16(self._slab, at) & ~(1 << index)
        put_u16(self._slab, at, indices | (1 << index if is_in else 0))

    # --- ours ---

    def generation(self) -> int:
        """Of our numbers, to this peer."""
        return get_u16(self._slab, self._row)

    def begin_frame(self) -> None:
        """Begin a new generation if group indices or numbers run out."""
        self._announced = 0
        indices_run_out = self._slab[self._row + _USED] > COMPACT_GROUPS_MAX
        if indices_run_out or self._outbox.next_number > NUMBER_MAX - _FRAME_NUMBERS:
            self.restart()

    def restart(self) -> None:
        """A new generation: nothing that was said of the old one counts any more."""
        outbox = self._outbox
        outbox.next_number = 1
        for row in range(outbox.count):
            outbox.set_number(row, 0)
        clocks = self._core.clocks
        clocks.generation = (clocks.generation + 1) & 0xFFFF
        put_u16(self._slab, self._row, clocks.generation)
        fill(self._slab, self._row + _CONFIRMED, 4, 0)
        self._slab[self._row + _USED] = 0
        self._drop_indices(_OURS)

    def _drop_indices(self, column: int) -> None:
        """Forget what one of the two calls the groups: _OURS or _THEIRS."""
        for at in range(self._row + column, self._row + self._row_size, 2):
            self._slab[at] = 0

    def assign(self, row: int) -> int:
        """Our number for the message in a row: the one that it has, else the next one."""
        outbox = self._outbox
        number = outbox.number(row)
        if not number:
            number = outbox.next_number
            assert number <= NUMBER_MAX
            outbox.next_number = number + 1
            outbox.set_number(row, number)
        return number

    def row_of(self, number: int) -> int:
        """The row that has this number of ours, or -1."""
        outbox = self._outbox
        row = self._hint
        if row >= outbox.count or outbox.number(row) != number:
            row = outbox.count - 1
            while row >= 0 and outbox.number(row) != number:
                row -= 1
            if row < 0:
                return -1
        # Numbers are given in the order of the rows: the next one asked for is most likely there.
        self._hint = row + 1
        return row

    def index_of(self, group: int) -> int:
        """The index of a group (row) in this generation; -1: the next frame begins a new one."""
        rows = self._slab
        at = self._row + _OURS + 2 * group
        if not rows[at]:
            used = rows[self._row + _USED]
            if used >= COMPACT_GROUPS_MAX:
                rows[self._row + _USED] = COMPACT_GROUPS_MAX + 1
                return -1
            rows[self._row + _USED] = rows[at] = used + 1
        return rows[at] - 1

    def regroup(self, group: int) -> None:
        """We joined or left a group (row): peers are asked again what their indices mean.

        Our own index of it has a meaning to the peer, and is not given again.
        """
        rows = self._slab
        for peer in range(len(self._core.outboxes)):
            self.turn_to(peer)
            rows[self._row + _OURS + 2 * group] = rows[self._row + _THEIRS + 2 * group] = 0
            for index in range(COMPACT_GROUPS_MAX):
                if self.group_row(index) < 0:
                    self._put(_KNOWN, index, False)

    def confirm(self, group: int) -> None:
        """The peer holds a message of this group: what it was told of its index, it knows."""
        index = self._slab[self._row + _OURS + 2 * group] - 1
        if index >= 0 and self._has(_TOLD, index):
            self._put(_CONFIRMED, index, True)

    def doubt(self, index: int) -> None:
        """The peer does not know this index."""
        self._put(_CONFIRMED, index, False)
        self._put(_TOLD, index, False)

    def is_announced(self, index: int) -> bool:
        """True when the peer knows our index, or finds it in this frame."""
        return self._announced & 1 << index != 0 or self._has(_CONFIRMED, index)

    def announce(self, index: int) -> None:
        """Our index is in this frame."""
        self._announced |= 1 << index
        self._put(_TOLD, index, True)

    # --- the peer's ---

    def peer_generation(self) -> int:
        """Of the peer's numbers; -1: not heard yet."""
        if not self._slab[self._row + _HEARD]:
            return -1
        return get_u16(self._slab, self._row + _PEER_GENERATION)

    def hear(self, generation: int) -> bool:
        """The peer's frame is of this generation; True: of a new one, the old one is void."""
        if generation == self.peer_generation():
            return False
        rows = self._slab
        # It may have lost what we announced, unless that is how we met.
        fill(rows, self._row + _KNOWN, 6 if rows[self._row + _HEARD] else 4, 0)
        rows[self._row + _HEARD] = 1
        put_u16(rows, self._row + _PEER_GENERATION, generation)
        rows[self._row + _UNKNOWN] = 0
        self._drop_indices(_THEIRS)
        self._core.inboxes[(self._row - _ROWS_AT) // self._row_size].forget_numbers()
        return True

    def whole_id(self, exchange: "Exchange", frame: bytearray, at: int, size: int) -> None:
        """Put an offered id into the scratch: as our log has it, or followed by zeros."""
        store = exchange.core.store
        fill(self._slab, 0, ID_SIZE, 0)
        copy(self._slab, 0, frame, at, size)
        handle = store.find(frame, at, ID_PREFIX_SIZE) if size == ID_PREFIX_SIZE else 0
        if 0 < handle < GONE_HANDLE and store.load(handle) == OK:
            group = exchange.core.members.group_row(store.group)
            if group >= 0 and exchange.sees(group):
                copy(self._slab, 0, store.id, 0, ID_SIZE)
        elif handle >= GONE_HANDLE:
            exchange.inbox.complete_id(self._slab, 0)

    def announced(self, index: int, group: int) -> None:
        """The peer's group of this index is this one of ours (row), or none (-1)."""
        self._put(_KNOWN, index, True)
        theirs = self._row + _THEIRS
        before = self.group_row(index)
        if before >= 0:
            self._slab[theirs + 2 * before] = 0
        if group >= 0:
            self._slab[theirs + 2 * group] = index + 1

    def knows(self, index: int) -> bool:
        """True when the peer announced this index in this generation."""
        return self._has(_KNOWN, index)

    def group_row(self, index: int) -> int:
        """The row of the group that the peer means, or -1 when we are no member of it."""
        theirs = self._row + _THEIRS
        for group in range((self._row_size - _OURS) >> 1):
            if self._slab[theirs + 2 * group] == index + 1:
                return group
        return -1

    def wonder(self, index: int) -> None:
        """The peer should hear that we do not know this index of its."""
        self._slab[self._row + _UNKNOWN] = index + 1

    def wondered(self) -> int:
        """The index that the peer should hear of, once; -1: none."""
        index = self._slab[self._row + _UNKNOWN] - 1
        self._slab[self._row + _UNKNOWN] = 0
        return index


def begin_set(scratch: bytearray) -> None:
    """Begin an empty set of numbers in `scratch`, and the fold of their ids."""
    fill(scratch, BITS_AT, COMPACT_COVER_SIZE + FOLD_SIZE, 0)


def origin_of(number: int, size_max: int) -> int:
    """What bit 0 of a set stands for that begins with `number` and may take `size_max` bytes."""
    # They come in the order of owed rows or of offered ids, which may be falling.
    return number - size_max * 4 if number > size_max * 4 else 1


def add_to_set(scratch: bytearray, bit: int, at: int) -> bool:
    """Add a number and its id, once: a row and an offered id may owe the same."""
    if scratch[BITS_AT + (bit >> 3)] & 1 << (bit & 7):
        return False
    scratch[BITS_AT + (bit >> 3)] |= 1 << (bit & 7)
    fold_in(scratch, at)
    return True


def fold_in(scratch: bytearray, at: int) -> None:
    """XOR 4 bytes of the id, of what both sides know of it, into the fold."""
    for index in range(FOLD_SIZE):
        scratch[_FOLD_AT + index] ^= scratch[at + index]


def folds_to(scratch: bytearray, buf: bytearray, at: int) -> bool:
    """True when the fold is the 4 bytes at buf[at]."""
    return equal(scratch, _FOLD_AT, buf, at, FOLD_SIZE)
