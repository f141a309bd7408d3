"""Link numbers of `compact-1`: what stands for a 32-byte id between two nodes (docs/SPEC.md 3.5).

A node numbers what it offers or sends to a peer, from 1 on, for one generation. A number means
one message for as long as the generation lasts, and no number is given twice in it. A set of
numbers that the peer names comes with the generation and a fold of the ids, so that a set of an
older generation, or of what is not here any more, does nothing.

Numbers are columns beside the message slots, 2 bytes per slot for each peer and direction, and
one beside the offered pool; 0 is none. Ours have 0x8000 more once the message itself was sent.
"""

from drupelet._compat import const
from drupelet.limits import COMPACT_COVER_SIZE, COMPACT_GROUPS_MAX
from drupelet.memory import equal, fill, find, get_u16, put_u16

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.core import Core

NUMBER_MAX = const(0x7FFF)
_SENT = const(0x8000)
# More numbers than one frame can use: 1,024 B of 8-byte prefixes are 128.
_FRAME_NUMBERS = const(256)
# Columns by index, COMPACT_GROUPS_MAX bytes each: of the group that we mean, and of the one that
# the peer means, the row + 1 (0: none, or not ours); and what is known of them.
_THEIRS_AT = const(16)
_KNOWN_AT = const(32)
_GROUPS_SIZE = const(48)
assert COMPACT_GROUPS_MAX == _THEIRS_AT
_SPENT = const(255)  # we left the group; its index has a meaning to the peer
_CONFIRMED = const(1)  # the peer knows our group of this index
_ANNOUNCED = const(2)  # in the frame that is being written
_KNOWN = const(4)  # the peer announced its group of this index
FOLD_SIZE = const(4)


class Numbering:
    """The numbers between us and one peer, whatever link they travel on."""

    def __init__(self, core: "Core", peer: int, first: int) -> None:
        slots = core.slots
        self._peer_number = core.members.peer_numbers[peer]
        self._peer = peer
        self._offers = core.offers
        self._ours = bytearray(2 * slots.count)
        self._theirs = bytearray(2 * slots.count)
        slots.columns = list(slots.columns) + [self._ours, self._theirs]
        # One column for all peers: an entry of the pool belongs to one of them at a time.
        if not core.offers.columns:
            core.offers.columns = [bytearray(2 * core.offers.count)]
        self._hint = 0
        self.generation = first & 0xFFFF
        self._next = 1
        self.peer_generation = -1
        self._groups = bytearray(_GROUPS_SIZE)
        self._groups_used = 0
        self.unknown = -1  # an index of the peer's that we should tell we do not know

    def meet(self, peer_number: int) -> None:
        """A link to this peer is made; a removed peer's row may have passed to another one."""
        if peer_number != self._peer_number:
            self._peer_number = peer_number
            self.restart()
            self.hear(-1)

    # --- ours ---

    def begin_frame(self) -> None:
        """Begin a new generation if the numbers or the group indices of this one run out."""
        self._clear(_ANNOUNCED)
        if self._next > NUMBER_MAX - _FRAME_NUMBERS:
            self.restart()

    def restart(self) -> None:
        """A new generation: nothing that was said of the old one counts any more."""
        # The upper bits tell boots apart, the lower ones the generations of a boot.
        self.generation = self.generation & 0xFFF0 | (self.generation + 1) & 15
        self._next = 1
        self._groups_used = 0
        self._clear(_CONFIRMED)
        fill(self._ours, 0, len(self._ours), 0)

    def assign(self, slot: int) -> int:
        """Our number for the message in a slot: the one that it has, else the next one."""
        number = get_u16(self._ours, slot * 2) & NUMBER_MAX
        if not number:
            number = self._next
            assert number <= NUMBER_MAX
            self._next = number + 1
            put_u16(self._ours, slot * 2, number)
        return number

    def note_sent(self, slot: int) -> None:
        """The message itself goes out under its number."""
        put_u16(self._ours, slot * 2, get_u16(self._ours, slot * 2) | _SENT)

    def was_sent(self, slot: int) -> bool:
        """True when the message itself went out under our number for it."""
        return get_u16(self._ours, slot * 2) & _SENT != 0

    def slot_of(self, number: int, key: bytearray) -> int:
        """The slot that has this number of ours, or -1; `key`: room for 2 bytes."""
        slot = self._hint
        count = len(self._ours) >> 1
        if get_u16(self._ours, slot * 2) & NUMBER_MAX != number:
            put_u16(key, 0, number | _SENT)
            slot = find(self._ours, 2, count, key, 0, 2)
            if slot < 0:
                put_u16(key, 0, number)
                slot = find(self._ours, 2, count, key, 0, 2)
            if slot < 0:
                return -1
        # Numbers are given in the order of the slots: the next one asked for is most likely there.
        self._hint = slot + 1 if slot + 1 < count else 0
        return slot

    def index_of(self, group: int) -> int:
        """The index of a group (row) in this generation; -1: the next frame begins a new one."""
        index = self._index(group)
        if index < 0:
            index = self._groups_used
            if index == COMPACT_GROUPS_MAX:
                self._next = NUMBER_MAX + 1
                return -1
            self._groups_used = index + 1
            self._groups[index] = group + 1
        return index

    def _index(self, group: int) -> int:
        for index in range(self._groups_used):
            if self._groups[index] == group + 1:
                return index
        return -1

    def regroup(self, group: int) -> None:
        """We joined or left a group (row): the peer is asked again what its indices mean."""
        groups = self._groups
        for index in range(COMPACT_GROUPS_MAX):
            if groups[index] == group + 1:
                groups[index] = _SPENT
            if not groups[_THEIRS_AT + index] or groups[_THEIRS_AT + index] == group + 1:
                groups[_KNOWN_AT + index] &= ~_KNOWN & 0xFF

    def confirm(self, group: int) -> None:
        """The peer holds a message that was sent under this group's index: it knows the index."""
        index = self._index(group)
        if index >= 0:
            self._groups[_KNOWN_AT + index] |= _CONFIRMED

    def doubt(self, index: int) -> None:
        """The peer does not know this index."""
        self._groups[_KNOWN_AT + index] &= ~_CONFIRMED & 0xFF

    def is_announced(self, index: int) -> bool:
        """True when the peer knows our index, or finds it in this frame."""
        return self._groups[_KNOWN_AT + index] & (_CONFIRMED | _ANNOUNCED) != 0

    def announce(self, index: int) -> None:
        """Our index is in this frame."""
        self._groups[_KNOWN_AT + index] |= _ANNOUNCED

    def _clear(self, flag: int) -> None:
        for index in range(COMPACT_GROUPS_MAX):
            self._groups[_KNOWN_AT + index] &= ~flag & 0xFF

    # --- the peer's ---

    def hear(self, generation: int) -> None:
        """The peer's frame is of this generation: what we know of another one is void."""
        if generation == self.peer_generation:
            return
        self.peer_generation = generation
        self.unknown = -1
        # It may have lost what we announced.
        self._clear(_KNOWN | _CONFIRMED)
        fill(self._theirs, 0, len(self._theirs), 0)
        offers = self._offers
        for entry in range(offers.count):
            if offers.peers[entry] == self._peer:
                put_u16(offers.columns[0], entry * 2, 0)

    def note(self, slot: int, number: int) -> None:
        """The peer's number for the message in a slot."""
        put_u16(self._theirs, slot * 2, number)

    def note_entry(self, entry: int, number: int) -> None:
        """The peer's number for the id in an entry of the offered pool."""
        put_u16(self._offers.columns[0], entry * 2, number)

    def of_slot(self, slot: int) -> int:
        """The peer's number for the message in a slot, or 0."""
        return get_u16(self._theirs, slot * 2)

    def of_entry(self, entry: int) -> int:
        """The peer's number for the id in an entry of the offered pool, or 0."""
        return get_u16(self._offers.columns[0], entry * 2)

    def announced(self, index: int, group: int) -> None:
        """The peer's group of this index is this one of ours (row), or none (-1)."""
        self._groups[_KNOWN_AT + index] |= _KNOWN
        self._groups[_THEIRS_AT + index] = group + 1

    def knows(self, index: int) -> bool:
        """True when the peer announced this index in this generation."""
        return self._groups[_KNOWN_AT + index] & _KNOWN != 0

    def group_row(self, index: int) -> int:
        """The row of the group that the peer means, or -1 when we are no member of it."""
        return self._groups[_THEIRS_AT + index] - 1


class Cover:
    """A set of numbers that is being put together, and the fold of their ids.

    fold: XOR of 4 bytes of each id, from `fold_at` on: of what both sides know of it.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        self.last = 0
        self.origin = 0  # the number of bit 0
        self.size_max = 0
        self.bits = bytearray(COMPACT_COVER_SIZE)
        self.fold = bytearray(FOLD_SIZE)
        self.fold_at = 0

    def open(self, number: int, size_max: int, fold_at: int) -> None:
        """Begin an empty set of numbers around `number`, of at most `size_max` bytes of bits."""
        self.count = 0
        self.first = self.last = number
        # They come in the order of slots or of the pool, which may be falling.
        self.origin = number - size_max * 4 if number > size_max * 4 else 1
        self.size_max = size_max
        self.fold_at = fold_at
        fill(self.bits, 0, COMPACT_COVER_SIZE, 0)
        fill(self.fold, 0, FOLD_SIZE, 0)

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
        at += self.fold_at
        for index in range(4):
            self.fold[index] ^= ids[at + index]

    def folds_to(self, buf: bytearray, at: int) -> bool:
        """True when the fold is the 4 bytes at buf[at]."""
        return equal(self.fold, 0, buf, at, FOLD_SIZE)
