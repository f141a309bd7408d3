"""The slab tables: one preallocated bytearray per column, nothing grows.

A message slot is 40 bytes (id 32, handle 4, size 2, group 1, source 1) and a flag byte; each peer
adds 4 bytes to it (state, send count, send epoch). Bodies, timestamps and dependencies stay in
the store. A free slot has an id of zeros.
"""

from drupelet._compat import const
from drupelet.limits import ID_SIZE
from drupelet.memory import copy, equal, fill, find, get_u16, get_u32, put_u16, put_u32

USED = const(1)
PENDING = const(2)  # some dependency is not delivered yet

OFFERED = const(1)  # the peer offered it, we do not hold it and have not asked for it
WANTED = const(2)  # a parent that we miss: asked for by id until it comes
OWED = const(3)  # an acknowledgement for a message that has no slot
OWED_BUNDLING = const(4)  # the same, written into the bundle that is being made
# A parent that did not come after so many requests may be forgotten for an offer.
_WANTED_SENDS = const(8)


class MessageSlots:
    """Messages on their way to or from some peer; `index` maps ids to slots where scans are slow."""

    def __init__(self, count: int, peers_max: int, index: "object | None") -> None:
        self.count = count
        self.ids = bytearray(ID_SIZE * count)
        self._handles = bytearray(4 * count)
        self._sizes = bytearray(2 * count)
        self.groups = bytearray(count)
        self.sources = bytearray(count)
        self.flags = bytearray(count)
        self.states = bytearray(peers_max * count)
        self.send_counts = bytearray(peers_max * count)
        self._send_epochs = bytearray(2 * peers_max * count)
        self._peers_max = peers_max
        self._index = index
        # Slots are taken in a ring, so that slot order is log order and a scan finds parents first.
        self.oldest = 0

    def find(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The slot of a message id, or -1."""
        if self._index is not None:
            return self._index.find(id, at)  # type: ignore[attr-defined, no-any-return]
        return find(self.ids, ID_SIZE, self.count, id, at, ID_SIZE)

    def find_prefix(self, id: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """The slot whose id begins with `size` bytes of `id`, or -1."""
        return find(self.ids, ID_SIZE, self.count, id, at, size)

    def take(self, slot: int, id: "bytes | bytearray", at: int, handle: int, size: int) -> None:
        """Fill a free slot; group, source and states are the caller's to set."""
        assert not self.flags[slot]
        copy(self.ids, slot * ID_SIZE, id, at, ID_SIZE)
        put_u32(self._handles, slot * 4, handle)
        put_u16(self._sizes, slot * 2, size)
        self.flags[slot] = USED
        for peer in range(self._peers_max):
            self.states[peer * self.count + slot] = 0
            self.send_counts[peer * self.count + slot] = 0
        self.oldest = (slot + 1) % self.count
        if self._index is not None:
            self._index.put(id, at, slot)  # type: ignore[attr-defined]

    def free(self, slot: int) -> None:
        """Empty a slot."""
        if self._index is not None:
            self._index.drop(self.ids, slot * ID_SIZE)  # type: ignore[attr-defined]
        fill(self.ids, slot * ID_SIZE, ID_SIZE, 0)
        self.flags[slot] = 0

    def handle(self, slot: int) -> int:
        """The store's handle of the message in `slot`."""
        return get_u32(self._handles, slot * 4)

    def set_handle(self, slot: int, handle: int) -> None:
        """Give the slot the handle that its message has in the log."""
        put_u32(self._handles, slot * 4, handle)

    def size(self, slot: int) -> int:
        """Body bytes of the message in `slot`."""
        return get_u16(self._sizes, slot * 2)

    def send_epoch(self, cell: int) -> int:
        """The epoch of the last send; `cell` = peer * count + slot."""
        return get_u16(self._send_epochs, cell * 2)

    def sent(self, cell: int, send_count: int, epoch: int) -> None:
        """Note a send: how many there were, and when the last one was."""
        self.send_counts[cell] = send_count if send_count < 256 else 255
        put_u16(self._send_epochs, cell * 2, epoch)


class OfferPool:
    """Ids that have no slot: offered by a peer, wanted from it, or owed an ACK (DESIGN 5).

    One pool for all peers. Each has a quota; within it the peer's oldest entry is replaced
    (BSP v1 section 4.1), so an eviction only delays: the peer offers again.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.ids = bytearray(ID_SIZE * count)
        self.peers = bytearray(count)
        self.kinds = bytearray(count)
        self.send_counts = bytearray(count)
        self._send_epochs = bytearray(2 * count)
        self._ages = bytearray(2 * count)
        self._clock = 0
        self.quota = count
        self.replaced = 0

    def find(self, id: "bytes | bytearray | memoryview", at: int, peer: int) -> int:
        """The entry of `id` at `peer`, or -1."""
        for entry in range(self.count):
            if self.kinds[entry] and self.peers[entry] == peer:
                if equal(self.ids, entry * ID_SIZE, id, at, ID_SIZE):
                    return entry
        return -1

    def add(self, id: "bytes | bytearray | memoryview", at: int, peer: int, kind: int) -> int:
        """Put an entry in, replacing the peer's oldest when its quota or the pool is full.

        A WANTED parent is not overwritten by an offer of the same id. Returns the entry, or -1
        when the pool is full of other peers' entries.
        """
        entry = self.find(id, at, peer)
        if entry >= 0:
            if self.kinds[entry] != WANTED or kind == OWED:
                self.kinds[entry] = kind
            return entry
        entry = self._room(peer)
        if entry < 0:
            return -1
        copy(self.ids, entry * ID_SIZE, id, at, ID_SIZE)
        self.peers[entry] = peer
        self.kinds[entry] = kind
        self.send_counts[entry] = 0
        self._clock = (self._clock + 1) & 0xFFFF
        put_u16(self._ages, entry * 2, self._clock)
        return entry

    def _room(self, peer: int) -> int:
        """A free entry within the peer's quota, else the peer's oldest; -1 when all are wanted.

        A wanted parent gives way only after it was asked for a few times in vain: offers come
        again by themselves, and a flood of them must not hide what a chain waits for.
        """
        free = oldest = -1
        held = oldest_age = 0
        for entry in range(self.count):
            if not self.kinds[entry]:
                free = entry
            elif self.peers[entry] == peer:
                held += 1
                age = (self._clock - get_u16(self._ages, entry * 2)) & 0xFFFF
                if self.kinds[entry] == WANTED and self.send_counts[entry] < _WANTED_SENDS:
                    continue
                if oldest < 0 or age > oldest_age:
                    oldest, oldest_age = entry, age
        if free >= 0 and held < self.quota:
            return free
        if oldest >= 0:
            self.replaced += 1
        return oldest

    def drop(self, entry: int) -> None:
        """Empty an entry."""
        self.kinds[entry] = 0
        fill(self.ids, entry * ID_SIZE, ID_SIZE, 0)

    def drop_id(self, id: "bytes | bytearray | memoryview", at: int) -> None:
        """Empty every peer's offer or want of `id`: the message is here."""
        for entry in range(self.count):
            kind = self.kinds[entry]
            if kind == OFFERED or kind == WANTED:
                if equal(self.ids, entry * ID_SIZE, id, at, ID_SIZE):
                    self.drop(entry)

    def send_epoch(self, entry: int) -> int:
        """The epoch in which the entry's REQUEST was last sent."""
        return get_u16(self._send_epochs, entry * 2)

    def sent(self, entry: int, epoch: int) -> None:
        """Note that the entry's REQUEST was sent in `epoch`."""
        count = self.send_counts[entry]
        self.send_counts[entry] = count + 1 if count < 255 else 255
        put_u16(self._send_epochs, entry * 2, epoch)
