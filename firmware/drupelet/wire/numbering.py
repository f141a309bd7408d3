"""Link numbers of `compact-1`: what stands for a 32-byte id between two nodes (docs/SPEC.md 3.5).

A node numbers what it offers or sends, from 1 on, for all its peers alike. A number means one
message for as long as a generation lasts, and no number is given twice in it; generations are a
peer's own. A set of numbers that the peer names comes with the generation and a fold of the ids,
so that a set of an older generation, or of what is not here any more, does nothing.

Ours are a column of the message slots, 2 bytes each. A peer's number for a message that it holds
stands in the cell's send epoch, which is of no use there; that of an offer stands beside the pool.
0 is none.
"""

from drupelet._compat import const
from drupelet.limits import COMPACT_COVER_SIZE, COMPACT_GROUPS_MAX
from drupelet.memory import equal, fill, find, get_u16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core

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
# its index (+ 1; 0: none) to us, and behind all of these to the peer.
_PEER = const(10)
_HEARD = const(11)
_UNKNOWN = const(12)
_USED = const(13)
_OURS = const(14)
FOLD_SIZE = const(4)


class Numbering:
    """The numbers between us and each peer, whatever link they travel on.

    Of one peer at a time: the one that `turn_to` was called for last.
    """

    def __init__(self, core: "Core") -> None:
        members = core.members
        slots = core.slots
        slots.numbers = self._ours = bytearray(2 * slots.count)
        core.offers.numbers = bytearray(2 * core.offers.count)
        self._core = core
        self._next = 1
        self._hint = 0
        self._announced = 0  # indices in the frame that is being written
        self._groups = members.groups_max()
        self._row_size = _OURS + 2 * self._groups
        self._rows = bytearray(self._row_size * members.peers_max)
        self._row = 0

    def meet(self, peer: int, peer_number: int) -> None:
        """A link to the peer of a row is made; a removed peer's row may have passed to another."""
        self.turn_to(peer)
        rows = self._rows
        row = self._row
        before = rows[row + _PEER]
        if before != peer_number:
            fill(rows, row, self._row_size, 0)
            rows[row + _PEER] = peer_number
            put_u16(rows, row, self._core.clocks.generation)
            if before:
                self.restart()

    def turn_to(self, peer: int) -> None:
        """What follows is about the peer of this row."""
        self._row = peer * self._row_size

    def _has(self, set_at: int, index: int) -> bool:
        return get_u16(self._rows, self._row + set_at) & 1 << index != 0

    def _put(self, set_at: int, index: int, is_in: bool) -> None:
        at = self._row + set_at
        indices = get_u16(self._rows, at) & ~(1 << index)
        put_u16(self._rows, at, indices | (1 << index if is_in else 0))

    # --- ours ---

    def generation(self) -> int:
        """Of our numbers, to this peer."""
        return get_u16(self._rows, self._row)

    def begin_frame(self) -> None:
        """Begin a new generation if group indices run out; one with every peer, if numbers do."""
        self._announced = 0
        if self._rows[self._row + _USED] > COMPACT_GROUPS_MAX:
            self.restart()
        if self._next > NUMBER_MAX - _FRAME_NUMBERS:
            self._next = 1
            fill(self._ours, 0, len(self._ours), 0)
            row = self._row
            for peer in range(len(self._rows) // self._row_size):
                self.turn_to(peer)
                self.restart()
            self._row = row

    def restart(self) -> None:
        """A new generation: nothing that was said of the old one counts any more."""
        clocks = self._core.clocks
        clocks.generation = (clocks.generation + 1) & 0xFFFF
        put_u16(self._rows, self._row, clocks.generation)
        fill(self._rows, self._row + _CONFIRMED, 4, 0)
        self._rows[self._row + _USED] = 0
        fill(self._rows, self._row + _OURS, self._groups, 0)

    def assign(self, slot: int) -> int:
        """Our number for the message in a slot: the one that it has, else the next one."""
        numbers = self._ours
        number = get_u16(numbers, slot * 2)
        if not number:
            number = self._next
            assert number <= NUMBER_MAX
            self._next = number + 1
            put_u16(numbers, slot * 2, number)
        return number

    def slot_of(self, number: int, key: bytearray) -> int:
        """The slot that has this number of ours, or -1; `key`: room for 2 bytes."""
        slot = self._hint
        count = len(self._ours) >> 1
        if get_u16(self._ours, slot * 2) != number:
            put_u16(key, 0, number)
            slot = find(self._ours, 2, count, key, 0, 2)
            if slot < 0:
                return -1
        # Numbers are given in the order of the slots: the next one asked for is most likely there.
        self._hint = slot + 1 if slot + 1 < count else 0
        return slot

    def index_of(self, group: int) -> int:
        """The index of a group (row) in this generation; -1: the next frame begins a new one."""
        rows = self._rows
        at = self._row + _OURS + group
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
        rows = self._rows
        for peer in range(len(rows) // self._row_size):
            self.turn_to(peer)
            rows[self._row + _OURS + group] = 0
            theirs = self._row + _OURS + self._groups
            rows[theirs + group] = 0
            for index in range(COMPACT_GROUPS_MAX):
                if self.group_row(index) < 0:
                    self._put(_KNOWN, index, False)

    def confirm(self, group: int) -> None:
        """The peer holds a message of this group: what it was told of its index, it knows."""
        index = self._rows[self._row + _OURS + group] - 1
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
        if not self._rows[self._row + _HEARD]:
            return -1
        return get_u16(self._rows, self._row + _PEER_GENERATION)

    def hear(self, generation: int) -> bool:
        """The peer's frame is of this generation; True: of a new one, the old one is void."""
        if generation == self.peer_generation():
            return False
        rows = self._rows
        # It may have lost what we announced, unless that is how we met.
        fill(rows, self._row + _KNOWN, 6 if rows[self._row + _HEARD] else 4, 0)
        rows[self._row + _HEARD] = 1
        put_u16(rows, self._row + _PEER_GENERATION, generation)
        rows[self._row + _UNKNOWN] = 0
        fill(rows, self._row + _OURS + self._groups, self._groups, 0)
        peer = self._row // self._row_size
        self._core.slots.forget_numbers(peer)
        offers = self._core.offers
        for entry in range(offers.count):
            if offers.peers[entry] == peer:
                put_u16(offers.numbers, entry * 2, 0)
        return True

    def note_entry(self, entry: int, number: int) -> None:
        """The peer's number for the id in an entry of the offered pool."""
        put_u16(self._core.offers.numbers, entry * 2, number)

    def of_entry(self, entry: int) -> int:
        """The peer's number for the id in an entry of the offered pool, or 0."""
        return get_u16(self._core.offers.numbers, entry * 2)

    def announced(self, index: int, group: int) -> None:
        """The peer's group of this index is this one of ours (row), or none (-1)."""
        self._put(_KNOWN, index, True)
        rows = self._rows
        before = self.group_row(index)
        theirs = self._row + _OURS + self._groups
        if before >= 0:
            rows[theirs + before] = 0
        if group >= 0:
            rows[theirs + group] = index + 1

    def knows(self, index: int) -> bool:
        """True when the peer announced this index in this generation."""
        return self._has(_KNOWN, index)

    def group_row(self, index: int) -> int:
        """The row of the group that the peer means, or -1 when we are no member of it."""
        rows = self._rows
        theirs = self._row + _OURS + self._groups
        for group in range(self._groups):
            if rows[theirs + group] == index + 1:
                return group
        return -1

    def wonder(self, index: int) -> None:
        """The peer should hear that we do not know this index of its."""
        self._rows[self._row + _UNKNOWN] = index + 1

    def wondered(self) -> int:
        """The index that the peer should hear of, once; -1: none."""
        index = self._rows[self._row + _UNKNOWN] - 1
        self._rows[self._row + _UNKNOWN] = 0
        return index


class Cover:
    """A set of numbers that is being put together, and the fold of their ids.

    fold: XOR of 4 bytes of each id, of what both sides know of it; `at` is where these are.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        self.last = 0
        self.origin = 0  # the number of bit 0
        self.size_max = 0
        self.bits = bytearray(COMPACT_COVER_SIZE + FOLD_SIZE)  # and the fold behind them

    def open(self, number: int, size_max: int) -> None:
        """Begin an empty set of numbers around `number`, of at most `size_max` bytes of bits."""
        self.count = 0
        self.first = self.last = number
        # They come in the order of slots or of the pool, which may be falling.
        self.origin = number - size_max * 4 if number > size_max * 4 else 1
        self.size_max = size_max
        fill(self.bits, 0, COMPACT_COVER_SIZE + FOLD_SIZE, 0)

    def takes(self, number: int) -> bool:
        """True when the set has room for this number."""
        return 0 <= number - self.origin < self.size_max * 8

    def add(self, number: int, ids: bytearray, at: int) -> None:
        """Add a number and its id, once: it may be owed for a slot and in the offered pool."""
        offset = number - self.origin
        if self.bits[offset >> 3] & 1 << (offset & 7):
            return
        self.bits[offset >> 3] |= 1 << (offset & 7)
        self.count += 1
        if number > self.last:
            self.last = number
        elif number < self.first:
            self.first = number
        self.mix(ids, at)

    def mix(self, ids: bytearray, at: int) -> None:
        """Add an id to the fold alone."""
        for index in range(4):
            self.bits[COMPACT_COVER_SIZE + index] ^= ids[at + index]

    def folds_to(self, buf: bytearray, at: int) -> bool:
        """True when the fold is the 4 bytes at buf[at]."""
        return equal(self.bits, COMPACT_COVER_SIZE, buf, at, FOLD_SIZE)
