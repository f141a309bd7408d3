"""Message numbers of `compact-1`: they replace 32-byte ids between two nodes (docs/SPEC.md 3.5).

A node numbers the messages that it offers or sends to a peer, from 1 on. Within a generation a
number means one message and is not used again; each direction of a pair of nodes has its own
generation. An ACK or REQUEST of a set of numbers carries the generation and a fold of the ids, so
a set of an older generation, or of messages without a row, has no effect.

Our numbers are a column of the peer's outbox, the peer's numbers columns of its inbox. 0: none.
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
# More numbers than one frame can use: a message with a body of 1 byte takes 3, so 1,024 bytes
# have at most 341.
_FRAME_NUMBERS = const(512)
# The slab has a row for each peer. Fields of 16 bits: our generation, the peer's generation, and
# sets of group indices, a bit each: the peer's indices that it announced, our indices that it
# knows, our indices that we announced.
_PEER_GENERATION = const(2)
_KNOWN = const(4)
_CONFIRMED = const(6)
_TOLD = const(8)
# Fields of 8 bits: the peer's member number; 1 if its generation is known; an index of the peer
# (+ 1) that we must report as unknown; how many of our indices are in use. Then, for each group,
# our index for it and the peer's (+ 1; 0: none).
_PEER = const(10)
_HEARD = const(11)
_UNKNOWN = const(12)
_USED = const(13)
_OURS = const(14)
_THEIRS = const(15)
FOLD_SIZE = const(4)
# In front of the rows is the codec's scratch: an id; a set of numbers, a bit each, and the fold of
# their ids; the previous timestamp. Reading and writing share it, because they never overlap.
BITS_AT = const(32)
_FOLD_AT = const(64)
STAMP_AT = const(68)
_ROWS_AT = const(76)

assert COMPACT_COVER_SIZE == 32 == ID_SIZE


class Numbering:
    """Message numbers and group indices between us and each peer, shared by all links to it.

    `turn_to` selects the peer that the other methods are about.
    """

    def __init__(self, core: "Core") -> None:
        members = core.members
        self._core = core
        self._outbox = core.outboxes[0]  # of the selected peer
        self._hint = 0  # the row in which `row_of` looks first
        self._announced = 0  # set of indices announced in the frame that is being written
        self._row_size = _OURS + 2 * members.groups_max()
        self._row = _ROWS_AT
        self._slab = bytearray(_ROWS_AT + self._row_size * members.peers_max)

    def meet(self, peer: int, peer_number: int) -> None:
        """Select a peer to which a link is made; clear its row if it was another member's."""
        self.turn_to(peer)
        rows = self._slab
        row = self._row
        previous_number = rows[row + _PEER]
        if previous_number != peer_number:
            fill(rows, row, self._row_size, 0)
            rows[row + _PEER] = peer_number
            put_u16(rows, row, self._core.clocks.generation)
            if previous_number:
                self.restart()

    def rows_end(self) -> int:
        """The end of the peers' rows, where the rows of the links begin."""
        return _ROWS_AT + self._row_size * self._core.members.peers_max

    def turn_to(self, peer: int) -> None:
        """Select the peer (row) that the following calls are about."""
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
        """The generation of our numbers for this peer."""
        return get_u16(self._slab, self._row)

    def begin_frame(self) -> None:
        """Prepare for a frame: begin a new generation if group indices or numbers run out."""
        self._announced = 0
        indices_run_out = self._slab[self._row + _USED] > COMPACT_GROUPS_MAX
        if indices_run_out or self._outbox.next_number > NUMBER_MAX - _FRAME_NUMBERS:
            self.restart()

    def restart(self) -> None:
        """Begin a new generation: the old one's numbers and group indices become void."""
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
        """Clear the group indices in a column: _OURS or _THEIRS."""
        for at in range(self._row + column, self._row + self._row_size, 2):
            self._slab[at] = 0

    def assign(self, row: int) -> int:
        """Return our number for the message in an outbox row; if it has none, assign the next."""
        outbox = self._outbox
        number = outbox.number(row)
        if not number:
            number = outbox.next_number
            assert number <= NUMBER_MAX
            outbox.next_number = number + 1
            outbox.set_number(row, number)
        return number

    def row_of(self, number: int) -> int:
        """Return the outbox row with this number of ours, or -1."""
        outbox = self._outbox
        row = self._hint
        if row >= outbox.count or outbox.number(row) != number:
            row = outbox.count - 1
            while row >= 0 and outbox.number(row) != number:
                row -= 1
            if row < 0:
                return -1
        # Numbers are assigned in row order, so the next lookup most likely hits the next row.
        self._hint = row + 1
        return row

    def index_of(self, group: int) -> int:
        """Return our index of a group (row); -1 if none is free, then `begin_frame` restarts."""
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
        """Forget the indices of a group (row) that we joined or left, at all peers.

        Peers are asked again what their unassigned indices mean. Our old index of the group is not
        reused in this generation, because it still means something to the peer.
        """
        rows = self._slab
        for peer in range(len(self._core.outboxes)):
            self.turn_to(peer)
            rows[self._row + _OURS + 2 * group] = rows[self._row + _THEIRS + 2 * group] = 0
            for index in range(COMPACT_GROUPS_MAX):
                if self.group_row(index) < 0:
                    self._put(_KNOWN, index, False)

    def confirm(self, group: int) -> None:
        """The peer holds a message of this group, so it knows our index if we announced it."""
        index = self._slab[self._row + _OURS + 2 * group] - 1
        if index >= 0 and self._has(_TOLD, index):
            self._put(_CONFIRMED, index, True)

    def doubt(self, index: int) -> None:
        """The peer reported that it does not know this index of ours: announce it again."""
        self._put(_CONFIRMED, index, False)
        self._put(_TOLD, index, False)

    def is_announced(self, index: int) -> bool:
        """True if the peer knows our index, or this frame announces it."""
        return self._announced & 1 << index != 0 or self._has(_CONFIRMED, index)

    def announce(self, index: int) -> None:
        """Note that this frame announces our index."""
        self._announced |= 1 << index
        self._put(_TOLD, index, True)

    # --- the peer's ---

    def peer_generation(self) -> int:
        """The generation of the peer's numbers; -1 if it is not known yet."""
        if not self._slab[self._row + _HEARD]:
            return -1
        return get_u16(self._slab, self._row + _PEER_GENERATION)

    def hear(self, generation: int) -> bool:
        """Note the generation of the peer's frame; True if it is new, which voids the old one."""
        if generation == self.peer_generation():
            return False
        rows = self._slab
        # A peer with a new generation may have lost the indices that we announced (_TOLD); the
        # first generation we hear of says nothing about them.
        fill(rows, self._row + _KNOWN, 6 if rows[self._row + _HEARD] else 4, 0)
        rows[self._row + _HEARD] = 1
        put_u16(rows, self._row + _PEER_GENERATION, generation)
        rows[self._row + _UNKNOWN] = 0
        self._drop_indices(_THEIRS)
        self._core.inboxes[(self._row - _ROWS_AT) // self._row_size].forget_numbers()
        return True

    def whole_id(self, exchange: "Exchange", frame: bytearray, at: int, size: int) -> None:
        """Store the offered id at frame[at] in the scratch.

        A prefix (`size` is 8) is completed from our log if the peer may see the message there,
        else it is followed by zeros.
        """
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
        """Note that the peer's index means this group of ours (row), or none of them (-1)."""
        self._put(_KNOWN, index, True)
        column = self._row + _THEIRS
        previous_group = self.group_row(index)
        if previous_group >= 0:
            self._slab[column + 2 * previous_group] = 0
        if group >= 0:
            self._slab[column + 2 * group] = index + 1

    def knows(self, index: int) -> bool:
        """True if the peer has announced this index in this generation."""
        return self._has(_KNOWN, index)

    def group_row(self, index: int) -> int:
        """The row of the group that the peer's index means, or -1 if we are not a member of it."""
        column = self._row + _THEIRS
        for group in range((self._row_size - _OURS) >> 1):
            if self._slab[column + 2 * group] == index + 1:
                return group
        return -1

    def wonder(self, index: int) -> None:
        """Remember to report that we do not know this index of the peer's."""
        self._slab[self._row + _UNKNOWN] = index + 1

    def wondered(self) -> int:
        """Return the unknown index to report, and forget it; -1 if there is none."""
        index = self._slab[self._row + _UNKNOWN] - 1
        self._slab[self._row + _UNKNOWN] = 0
        return index


def begin_set(scratch: bytearray) -> None:
    """Clear the set of numbers in `scratch` and the fold of their ids."""
    fill(scratch, BITS_AT, COMPACT_COVER_SIZE + FOLD_SIZE, 0)


def origin_of(number: int, size_max: int) -> int:
    """Return the number that bit 0 of a set of up to `size_max` bytes means, given its first."""
    # The first number goes to the middle: the following ones may be greater or smaller.
    return number - size_max * 4 if number > size_max * 4 else 1


def add_to_set(scratch: bytearray, bit: int, at: int) -> bool:
    """Add a number to the set and its id to the fold; False if the number was in the set.

    A message may be owed both by a row and by an offered id. `at`: see `fold_in`.
    """
    if scratch[BITS_AT + (bit >> 3)] & 1 << (bit & 7):
        return False
    scratch[BITS_AT + (bit >> 3)] |= 1 << (bit & 7)
    fold_in(scratch, at)
    return True


def fold_in(scratch: bytearray, at: int) -> None:
    """XOR the 4 bytes at offset `at` of the id in `scratch` into the fold."""
    for index in range(FOLD_SIZE):
        scratch[_FOLD_AT + index] ^= scratch[at + index]


def folds_to(scratch: bytearray, buf: bytearray, at: int) -> bool:
    """True if the fold equals the 4 bytes at buf[at]."""
    return equal(scratch, _FOLD_AT, buf, at, FOLD_SIZE)
