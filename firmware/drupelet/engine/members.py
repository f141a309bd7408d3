"""The groups and peers of a node, and the visibility of each group to each peer.

A number (1 to 254) is given by the store and never changes; a row (from 0) is a place in the
tables of this run. A link number is something else: the number of a message in `compact-1`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import copy, fill, find

INVISIBLE = const(0)  # the group does not exist for this peer
VISIBLE = const(1)  # messages are accepted from the peer, but none is sent to it
SHARED = const(2)  # messages go both ways

GROUP_TELEMETRY = const(1)  # black boxes: not traced, deleted once every sharer has them
GROUP_UNORDERED = const(2)  # a message enters the log without waiting for its dependencies

# Families of message ids; a group is of one family for life (docs/DESIGN.md 8).
FAMILY_BSP = const(0)
FAMILY_MVDS = const(1)
FAMILY_BSP_0 = const(2)
FAMILIES = const(3)

# Offsets in a group's row of the table, which begins with its number.
_FLAGS = const(1)
_FAMILY = const(2)
GROUP_SIZE = const(3)

# Bits in the head byte of a stored MVDS body (docs/SPEC.md 4.3): number of parents, and a flag.
HEAD_PARENTS = const(0x1F)
HEAD_EPHEMERAL = const(0x80)


class Members:
    """The group and peer tables of one node."""

    def __init__(self, groups_max: int, peers_max: int) -> None:
        self.group_ids = bytearray(ID_SIZE * groups_max)
        self.groups = 0
        # The peers' numbers; then for each group its visibility to each peer; then, from
        # `_groups_at` on, number, flags and family of each group.
        self._table = bytearray(peers_max * (1 + groups_max) + GROUP_SIZE * groups_max)
        self._groups_at = peers_max * (1 + groups_max)
        self.peers_max = peers_max
        self.peers = 0

    def add_group(self, number: int, id: "bytes | bytearray", family: int, flags: int) -> int:
        """Add a group; return its row or E_CAPACITY."""
        row = self.group_row(number)
        if row < 0:
            row = self._group_row(0)  # the row of a group that was left
        if row < 0:
            if self.groups == self.groups_max():
                return E_CAPACITY
            row = self.groups
            self.groups += 1
        at = self._groups_at + row * GROUP_SIZE
        self._table[at] = number
        self._table[at + _FLAGS] = flags
        self._table[at + _FAMILY] = family
        copy(self.group_ids, row * ID_SIZE, id, 0, ID_SIZE)
        return row

    def groups_max(self) -> int:
        """Return the capacity of the group table."""
        return len(self.group_ids) // ID_SIZE

    def group_number(self, group: int) -> int:
        """Return the number of the group in a row; 0: the row is free."""
        return self._table[self._groups_at + group * GROUP_SIZE]

    def flags(self, group: int) -> int:
        """Return GROUP_TELEMETRY and GROUP_UNORDERED of a group (row)."""
        return self._table[self._groups_at + group * GROUP_SIZE + _FLAGS]

    def family(self, group: int) -> int:
        """Return the family of a group (row)."""
        return self._table[self._groups_at + group * GROUP_SIZE + _FAMILY]

    def add_peer(self, number: int) -> int:
        """Add a peer; return its row or E_CAPACITY."""
        row = self.peer_row(number)
        if row < 0:
            row = self._peer_row(0)  # the row of a peer that was removed
        if row < 0:
            if self.peers == self.peers_max:
                return E_CAPACITY
            row = self.peers
            self.peers += 1
        self._table[row] = number
        return row

    def group_row(self, number: int) -> int:
        """Return the row of a group number, or -1."""
        return self._group_row(number) if number else -1

    def _group_row(self, number: int) -> int:
        for row in range(self.groups):
            if self.group_number(row) == number:
                return row
        return -1

    def group_of(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """Return the row of a group id, or -1."""
        row = find(self.group_ids, ID_SIZE, self.groups, id, at, ID_SIZE)
        # A peer may send the zeros that a group that was left leaves in its row.
        return row if row >= 0 and self.group_number(row) else -1

    def peer_row(self, number: int) -> int:
        """Return the row of a peer number, or -1, also for 0, which is ourselves."""
        return self._peer_row(number) if number else -1

    def _peer_row(self, number: int) -> int:
        for row in range(self.peers):
            if self._table[row] == number:
                return row
        return -1

    def peer_number(self, peer: int) -> int:
        """Return the number of the peer in a row; 0: the row is free."""
        return self._table[peer]

    def set_visibility(self, group: int, peer: int, visibility: int) -> None:
        """Set the visibility of a group to a peer; both are rows."""
        self._table[(group + 1) * self.peers_max + peer] = visibility

    def visibility(self, group: int, peer: int) -> int:
        """Return INVISIBLE, VISIBLE or SHARED; both are rows."""
        return self._table[(group + 1) * self.peers_max + peer]

    def shares(self, peer: int) -> int:
        """Return a byte that stands for the groups that a peer shares; 0: none.

        Other groups seldom make the same byte, and never if they differ by a single group.
        """
        total = 0
        for group in range(self.groups):
            if self.visibility(group, peer) == SHARED:
                number = self.group_number(group)
                total += (1 << number % 8) + (number - 1 >> 3) * 3
        return total and (total - 1) % 255 + 1

    def drop_group(self, group: int) -> None:
        """Free the row of a group that was left."""
        self._table[self._groups_at + group * GROUP_SIZE] = 0
        fill(self.group_ids, group * ID_SIZE, ID_SIZE, 0)
        for peer in range(self.peers_max):
            self.set_visibility(group, peer, INVISIBLE)

    def drop_peer(self, peer: int) -> None:
        """Free the row of a peer that was removed."""
        self._table[peer] = 0
        for group in range(self.groups):
            self.set_visibility(group, peer, INVISIBLE)
