"""Who shares what with whom: groups, peers, and the visibility of each group to each peer.

Numbers (1..254) come from the store and are for life; slots (0..) are this run's table rows.
"""

from drupelet._compat import const
from drupelet.errors import E_CAPACITY
from drupelet.limits import ID_SIZE
from drupelet.memory import copy, find

INVISIBLE = const(0)  # to this peer the group does not exist
VISIBLE = const(1)  # messages are accepted from the peer, none are offered to it
SHARED = const(2)

GROUP_TELEMETRY = const(1)  # black boxes: not traced, removed once every sharer has them


class Members:
    """The group and peer tables of one node."""

    def __init__(self, groups_max: int, peers_max: int) -> None:
        self.groups_max = groups_max
        self.peers_max = peers_max
        self.group_ids = bytearray(ID_SIZE * groups_max)
        self.group_numbers = bytearray(groups_max)
        self.group_flags = bytearray(groups_max)
        self.groups = 0
        self.peer_numbers = bytearray(peers_max)
        self.peers = 0
        self._visibility = bytearray(groups_max * peers_max)

    def add_group(self, number: int, id: "bytes | bytearray", flags: int) -> int:
        """Take a group in; returns its slot or E_CAPACITY."""
        slot = self.group_slot(number)
        if slot < 0:
            if self.groups == self.groups_max:
                return E_CAPACITY
            slot = self.groups
            self.groups += 1
        self.group_numbers[slot] = number
        self.group_flags[slot] = flags
        copy(self.group_ids, slot * ID_SIZE, id, 0, ID_SIZE)
        return slot

    def add_peer(self, number: int) -> int:
        """Take a peer in; returns its slot or E_CAPACITY."""
        slot = self.peer_slot(number)
        if slot < 0:
            if self.peers == self.peers_max:
                return E_CAPACITY
            slot = self.peers
            self.peers += 1
            self.peer_numbers[slot] = number
        return slot

    def group_slot(self, number: int) -> int:
        """The row of a group number, or -1."""
        for slot in range(self.groups):
            if self.group_numbers[slot] == number:
                return slot
        return -1

    def group_of(self, id: "bytes | bytearray | memoryview", at: int) -> int:
        """The row of a group id, or -1."""
        return find(self.group_ids, ID_SIZE, self.groups, id, at, ID_SIZE)

    def peer_slot(self, number: int) -> int:
        """The row of a peer number, or -1 (0 is ourselves)."""
        for slot in range(self.peers):
            if self.peer_numbers[slot] == number:
                return slot
        return -1

    def set_visibility(self, group: int, peer: int, visibility: int) -> None:
        """Show a group to a peer, or hide it; both are rows."""
        self._visibility[group * self.peers_max + peer] = visibility

    def visibility(self, group: int, peer: int) -> int:
        """INVISIBLE, VISIBLE or SHARED."""
        return self._visibility[group * self.peers_max + peer]

    def shares(self, peer: int) -> int:
        """Which groups the peer shares, as a byte: bit number % 8 of each group's number."""
        mask = 0
        for group in range(self.groups):
            if self.visibility(group, peer) == SHARED:
                mask |= 1 << self.group_numbers[group] % 8
        return mask
