"""Who shares what with whom: groups, peers, and the visibility of each group to each peer.

A number (1..254) comes from the store and is for life; a row (0.., also called a slot) is the
place in this run's tables. A link number is another thing: what `compact-1` says for a message.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY
from drupelet.base.limits import ID_SIZE
from drupelet.base.memory import copy, find

INVISIBLE = const(0)  # to this peer the group does not exist
VISIBLE = const(1)  # messages are accepted from the peer, none are offered to it
SHARED = const(2)

GROUP_TELEMETRY = const(1)  # black boxes: not traced, removed once every sharer has them
GROUP_UNORDERED = const(2)  # a message enters the log although what it depends on has not come

# What message ids are made of; a group belongs to one family for life (docs/DESIGN.md 8).
FAMILY_BSP = const(0)
FAMILY_MVDS = const(1)
FAMILY_BSP_0 = const(2)
FAMILIES = const(3)

# The head byte of a stored MVDS body (docs/SPEC.md 4.3): parents, and a flag.
HEAD_PARENTS = const(0x1F)
HEAD_EPHEMERAL = const(0x80)


class Members:
    """The group and peer tables of one node."""

    def __init__(self, groups_max: int, peers_max: int) -> None:
        self.group_ids = bytearray(ID_SIZE * groups_max)
        self.groups = 0
        # The numbers; a row for each group: what it is to each peer; then the columns of the
        # groups: their numbers, flags, families.
        self.peer_numbers = bytearray(peers_max * (1 + groups_max) + 3 * groups_max)
        self.groups_at = peers_max * (1 + groups_max)
        self.peers_max = peers_max
        self.peers = 0

    def add_group(self, number: int, id: "bytes | bytearray", family: int, flags: int) -> int:
        """Take a group in; returns its slot or E_CAPACITY."""
        slot = self.group_slot(number)
        if slot < 0:
            slot = self._row(self.groups_at, self.groups, 0)  # one that was left
        if slot < 0:
            if self.groups == self.groups_max():
                return E_CAPACITY
            slot = self.groups
            self.groups += 1
        at = self.groups_at + slot
        self.peer_numbers[at] = number
        self.peer_numbers[at + self.groups_max()] = flags
        self.peer_numbers[at + 2 * self.groups_max()] = family
        copy(self.group_ids, slot * ID_SIZE, id, 0, ID_SIZE)
        return slot

    def groups_max(self) -> int:
        """How many groups there is room for."""
        return len(self.group_ids) // ID_SIZE

    def group_number(self, group: int) -> int:
        """The number of the group in a row; 0: there is none."""
        return self.peer_numbers[self.groups_at + group]

    def flags(self, group: int) -> int:
        """GROUP_TELEMETRY, GROUP_UNORDERED of a row."""
        return self.peer_numbers[self.groups_at + self.groups_max() + group]

    def family(self, group: int) -> int:
        """The family of a row."""
        return self.peer_numbers[self.groups_at + 2 * self.groups_max() + group]

    def add_peer(self, number: int) -> int:
        """Take a peer in; returns its slot or E_CAPACITY."""
        slot = self.peer_slot(number)
        if slot < 0:
            slot = self._row(0, self.peers, 0)  # one whose peer was removed
        if slot < 0:
            if self.peers == self.peers_max:
                return E_CAPACITY
            slot = self.peers
            self.peers += 1
        self.peer_numbers[slot] = number
        return slot

    def group_slot(self, number: int) -> int:
        """The row of a group number, or -1."""
        return self._row(self.groups_at, self.groups, number) if number else -1

    def group_of(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The row of a group id, or -1."""
        slot = find(self.group_ids, ID_SIZE, self.groups, id, at, ID_SIZE)
        # A peer may well name the zeros of a row that was left.
        return slot if slot >= 0 and self.group_number(slot) else -1

    def peer_slot(self, number: int) -> int:
        """The row of a peer number, or -1 (0 is ourselves)."""
        return self._row(0, self.peers, number) if number else -1

    def set_visibility(self, group: int, peer: int, visibility: int) -> None:
        """Show a group to a peer, or hide it; both are rows."""
        self.peer_numbers[(group + 1) * self.peers_max + peer] = visibility

    def visibility(self, group: int, peer: int) -> int:
        """INVISIBLE, VISIBLE or SHARED."""
        return self.peer_numbers[(group + 1) * self.peers_max + peer]

    def shares(self, peer: int) -> int:
        """Which groups the peer shares, as a byte: bit number % 8 of each group's number."""
        mask = 0
        for group in range(self.groups):
            if self.visibility(group, peer) == SHARED:
                mask |= 1 << self.group_number(group) % 8
        return mask

    def _row(self, at: int, rows: int, number: int) -> int:
        for row in range(rows):
            if self.peer_numbers[at + row] == number:
                return row
        return -1
