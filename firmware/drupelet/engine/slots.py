"""The slab tables: one preallocated bytearray per column, nothing grows.

A message slot is 10 bytes (tag 4, handle 4, group 1, flags 1); each peer adds 4 bytes to it
(state, send count, send epoch). The tag is how the id begins; the whole of it, bodies, their
lengths, sources, timestamps and dependencies stay in the store. A free slot has a tag of zeros.
"""

from drupelet.base.compat import const
from drupelet.base.limits import ID_PREFIX_SIZE, ID_SIZE, SEND_COUNT_NONE
from drupelet.base.memory import copy, equal, fill, find, get_u16, put_u16
from drupelet.engine.backoff import counted, drawn
from drupelet.engine.states import HOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.ports import StorePort

USED = const(1)
PENDING = const(2)  # some dependency is not delivered yet
EPHEMERAL = const(4)  # sent once to each peer, offered to none
MARKED = const(8)  # found by a walk from child to parent, for as long as it lasts
CLIMBED = const(16)  # and its own parents are marked, too

OFFERED = const(1)  # the peer offered it, we do not hold it and have not asked for it
REQUESTED = const(2)  # offered and asked for; MVDS asks until it comes
WANTED = const(3)  # a parent that we miss: asked for by id until it comes
OWED = const(4)  # an acknowledgement for a message that has no slot
OWED_TWICE = const(5)  # the same, of what is gone: the peer asked for it
OWED_BUNDLING = const(6)  # written into the bundle that is being made
# A parent that did not come after so many requests may be forgotten for an offer.
_WANTED_SENDS = const(8)

TAG_SIZE = const(4)
# What comes in and goes out in pieces: numbers for each part file, bytes for it and each peer.
PART_ROW = const(6)
PART_SIZE = const(16)
PART_OWNER = const(8)  # behind the key

# A peer's row in `Window.rows`: the highest bundle of its that was read to its end, the last one
# that we wrote, up to which handle that holds the log; up to which one the peer may have lost
# even what came from it; messages in slots that the peer is not known to hold; up to which of its
# own handles the peer's bundles were taken whole, 0: some were not; up to which bundle of ours an
# answer of the peer's acknowledges nothing any more; and last a number that is odd when something
# was queued: the peer's links compare.
PEER_ROW = const(8)
STICK_IN = const(0)
STICK_OUT = const(1)
STICK_HOLDS = const(2)
STICK_LOST = const(3)
STICK_TAKEN = const(5)
STICK_VOID = const(6)


class MessageSlots:
    """Messages on their way to or from some peer."""

    # Our numbers of `compact-1`, 2 bytes per slot; zeros when free.
    numbers = bytearray(0)

    def __init__(self, count: int, peers_max: int, store: "StorePort") -> None:
        self._store = store
        self.count = count
        self.tags = bytearray(TAG_SIZE * count)
        self.handles = [0] * count  # the store's; no longer than 4 bytes each on a board
        self.flags = bytearray(2 * count)  # behind them the groups' rows
        self.states = bytearray(peers_max * count)
        self.send_counts = bytearray(3 * peers_max * count)  # behind them the epochs, 2 bytes each
        # Slots are taken in a ring: slot order is log order, and a scan finds parents first.
        self.oldest = 0

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The slot of a message id, or -1."""
        return self.find_prefix(id, at, ID_SIZE)

    def find_prefix(self, id: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """The slot whose id begins with `size` bytes of `id`, 4 to 32, or -1."""
        tags = self.tags
        slot = find(tags, TAG_SIZE, self.count, id, at, TAG_SIZE)
        # Of others with the same tag, or free ones where it is zeros, there are few.
        while 0 <= slot < self.count:
            same = self.flags[slot] and equal(tags, slot * TAG_SIZE, id, at, TAG_SIZE)
            if same and self._store.is_id(self.handles[slot], id, at, size):
                return slot
            slot += 1
        return -1

    def id_into(self, slot: int, buf: bytearray, at: int) -> bool:
        """Copy the id of the message in a slot; False when the store does not have it."""
        return self._store.id_into(self.handles[slot], buf, at)

    def group(self, slot: int) -> int:
        """The row of the group of the message in a slot."""
        return self.flags[self.count + slot]

    def take(self, slot: int, id: "bytes | bytearray", at: int, handle: int, group: int) -> None:
        """Fill a free slot; states are the caller's to set."""
        assert not self.flags[slot]
        copy(self.tags, slot * TAG_SIZE, id, at, TAG_SIZE)
        self.handles[slot] = handle
        self.flags[slot] = USED
        self.flags[self.count + slot] = group
        for peer in range(len(self.states) // self.count):
            self.states[peer * self.count + slot] = 0
            self.send_counts[peer * self.count + slot] = 0
        self.oldest = (slot + 1) % self.count

    def free(self, slot: int) -> None:
        """Empty a slot."""
        fill(self.tags, slot * TAG_SIZE, TAG_SIZE, 0)
        if self.numbers:
            put_u16(self.numbers, slot * 2, 0)
        self.flags[slot] = 0

    def send_epoch(self, cell: int) -> int:
        """The epoch of the last send; `cell` = peer * count + slot."""
        return get_u16(self.send_counts, len(self.states) + cell * 2)

    def sent(self, cell: int, send_count: int, epoch: int) -> None:
        """Note a send: how many there were, and when the last one was."""
        self.send_counts[cell] = send_count
        put_u16(self.send_counts, len(self.states) + cell * 2, epoch)

    def sent_later(self, peer: int, handle: int, slot: int, epoch: int) -> bool:
        """True when the message with a handle went to the peer later than the one in `slot`."""
        base = peer * self.count
        for row in range(self.count):
            if self.handles[row] == handle and self.send_counts[base + row]:
                age = (epoch - self.send_epoch(base + row)) & 0xFFFF
                than = (epoch - self.send_epoch(base + slot)) & 0xFFFF
                return not self.send_counts[base + slot] or age < than
        return False

    # A peer's number of `compact-1` for a message that it holds: such a cell has no other epoch.

    def note_number(self, peer: int, slot: int, number: int) -> None:
        """Keep a peer's number for a message, if it holds it."""
        cell = peer * self.count + slot
        if self.states[cell] & HOLD:
            self.sent(cell, SEND_COUNT_NONE, number)

    def number_of(self, peer: int, slot: int) -> int:
        """The peer's number for a message that it holds, or 0."""
        cell = peer * self.count + slot
        return self.send_epoch(cell) if self.send_counts[cell] == SEND_COUNT_NONE else 0

    def forget_numbers(self, peer: int) -> None:
        """The peer begins to number anew."""
        for cell in range(peer * self.count, (peer + 1) * self.count):
            if self.send_counts[cell] == SEND_COUNT_NONE:
                self.send_counts[cell] = 0


class OfferPool:
    """Ids that have no slot: offered by a peer, wanted from it, or owed an ACK (DESIGN 5).

    One pool for all peers. Each has a quota; within it the peer's oldest offer is replaced
    (BSP v1 section 4.1): that only delays, for the peer offers again.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.ids = bytearray(ID_SIZE * count)
        # Columns: the kinds; whose they are; how often they were asked for; when they were added,
        # or last asked for, 2 bytes each; the peers' numbers of `compact-1`, if there are some,
        # likewise.
        self.kinds = bytearray(5 * count)
        self.quota = count

    def add(
        self, id: "bytes | bytearray | memoryview", at: int, peer: int, kind: int, epoch: int
    ) -> int:
        """Put an entry in, if need be in place of another of the peer's; it, or -1 for no room.

        A WANTED parent is not overwritten by an offer of the same id.
        """
        entry = self.find(id, at, OFFERED, OWED_BUNDLING, peer)
        if entry >= 0:
            # An offer of what was asked for already changes nothing.
            if kind > self.kinds[entry] or self.kinds[entry] > WANTED:
                self.kinds[entry] = kind
            return entry
        entry = self._room(peer, kind, epoch)
        if entry >= 0:
            copy(self.ids, entry * ID_SIZE, id, at, ID_SIZE)
            self.put(entry, peer, kind, epoch)
        return entry

    def put(self, entry: int, peer: int, kind: int, epoch: int) -> None:
        """Note what the id in an entry is, which was not asked for yet."""
        count = self.count
        self.kinds[entry] = kind
        self.kinds[count + entry] = peer
        self.kinds[2 * count + entry] = 0
        put_u16(self.kinds, 3 * count + entry * 2, epoch)
        if len(self.kinds) > 5 * count:
            put_u16(self.kinds, 5 * count + entry * 2, 0)

    def find(
        self, id: "bytes | bytearray | memoryview", at: int, first: int, last: int, peer: int = -1
    ) -> int:  # fmt: skip
        """An entry of an id of one of these kinds, of a peer or of any; -1: there is none."""
        begin = find(self.ids, ID_SIZE, self.count, id, at, ID_SIZE)
        for entry in range(begin if begin >= 0 else self.count, self.count):
            fits = first <= self.kinds[entry] <= last and (peer < 0 or self.peer_of(entry) == peer)
            if fits and equal(self.ids, entry * ID_SIZE, id, at, ID_SIZE):
                return entry
        return -1

    def peer_of(self, entry: int) -> int:
        """The row of the peer of an entry."""
        return self.kinds[self.count + entry]

    def is_whole(self, entry: int) -> bool:
        """False for the first 8 bytes of an id and zeros: the link that was told them asks."""
        at = entry * ID_SIZE + ID_PREFIX_SIZE
        size = ID_SIZE - ID_PREFIX_SIZE - 1
        return self.ids[at] != 0 or not equal(self.ids, at, self.ids, at + 1, size)

    def _room(self, peer: int, kind: int, epoch: int) -> int:
        """A free entry within the peer's quota, else the oldest that may give way; or -1.

        An offer gives way, though not to one of the same epoch: they come in log order, and were
        the first of them replaced, a small pool would ask for the last ones, which come too
        early. What is owed gives way to a wanted parent only: were the oldest replaced, a long
        log over a stick would be acknowledged from its end, and the sender's window never move.
        A wanted parent gives way after it was asked for in vain, and so does to one what was
        offered, where parents have all that they may have. What lacks a parent that nobody sent
        waits for it: that parent stays until it was asked for, as the first in a past is many such
        steps away; of two such it is drawn. Where a quota is one, each has its turn: a wanted
        parent gives way when it was asked for once, and as if drawn when it was not: else what
        would enter may come for ever when it is not its turn. Where there are more peers than
        entries, what is owed to one that seldom comes gives way to what is owed to another.
        """
        free = oldest = other = -1
        held = oldest_age = 0
        full = kind == WANTED and self._wanted(peer) + 1 >= self.quota
        sends = _WANTED_SENDS if self.quota > 1 else kind == WANTED or drawn(epoch)
        for entry in range(self.count):
            before = self.kinds[entry]
            if not before:
                free = entry
            elif self.peer_of(entry) == peer:
                held += 1
                age = (epoch - self.send_epoch(entry)) & 0xFFFF
                count = self.send_count(entry)
                if before == WANTED:
                    stays = count < sends
                    if kind == WANTED and self.quota == 1:
                        stays = stays and drawn(epoch ^ get_u16(self.ids, entry * ID_SIZE)) > 0
                elif before == REQUESTED and not count:
                    stays = kind != REQUESTED or drawn(epoch) > 0
                elif before <= REQUESTED:
                    stays = (kind <= REQUESTED and not age) or (full and count < sends)
                else:
                    stays = kind != WANTED or full
                if not stays and (oldest < 0 or age > oldest_age):
                    oldest = entry
                    oldest_age = age
            elif before == OWED == kind:
                other = entry
        if free >= 0 and held < self.quota and (not full or self.quota == 1):
            return free
        return oldest if held else other

    def _wanted(self, peer: int) -> int:
        """How many parents are wanted from a peer; one entry of its quota is kept from them.

        Else what it sends again for want of an ACK finds no room to be acknowledged, for ever; and
        parents that come too early keep out the offer of what they wait for.
        """
        count = 0
        for entry in range(self.count):
            count += self.kinds[entry] == WANTED and self.peer_of(entry) == peer
        return count

    def drop_id(self, id: "bytes | bytearray | memoryview", at: int) -> None:
        """Empty every peer's offer or want of `id`: the message is here.

        An offer may be the first 8 bytes and zeros; the offer of another id that begins with
        them is made again.
        """
        begin = find(self.ids, ID_SIZE, self.count, id, at, ID_PREFIX_SIZE)
        for entry in range(begin if begin >= 0 else self.count, self.count):
            kind = self.kinds[entry]
            size = ID_PREFIX_SIZE if kind == OFFERED else ID_SIZE
            if 0 < kind <= WANTED and equal(self.ids, entry * ID_SIZE, id, at, size):
                self.kinds[entry] = 0

    def send_count(self, entry: int) -> int:
        """How often the entry's REQUEST was sent."""
        return self.kinds[2 * self.count + entry]

    def send_epoch(self, entry: int) -> int:
        """The epoch in which the entry's REQUEST was last sent, or it was added."""
        return get_u16(self.kinds, 3 * self.count + entry * 2)

    def sent(self, entry: int, epoch: int) -> None:
        """Note that the entry's REQUEST was sent in `epoch`."""
        self.kinds[2 * self.count + entry] = counted(self.send_count(entry))
        put_u16(self.kinds, 3 * self.count + entry * 2, epoch)
