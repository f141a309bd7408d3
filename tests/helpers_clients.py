"""Nodes with any client, and perfect lines between them: helpers of tests of clients."""

from drupelet.node import BATCH, CARRIER_MQTT, PROFILE_BSP_1, SHARED, Link, Node
from ram_store import RamStore


class World:
    """Named nodes, everybody linked to everybody, or as `edges` say."""

    def __init__(self, names: str, edges: list[tuple[str, str]] | None = None) -> None:
        self.now_ms = 0
        self.nodes: dict[str, Node] = {}
        self.peers: dict[tuple[str, str], int] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.edges = edges or [(x, y) for x in names for y in names if x < y]
        self.frames = self.bytes = 0
        for name in names:
            self.nodes[name] = Node(RamStore(), lambda: 0, 32, 4, 256, 256)
        for one, two in self.edges:
            for here, there in ((one, two), (two, one)):
                self.peers[here, there] = self.nodes[here].add_peer(self.id(there))

    @staticmethod
    def id(name: str) -> bytes:
        """The device id of a node."""
        return name.encode() * 4

    def roster(self, name: str) -> dict[int, bytes]:
        """The peers of a node: id by number."""
        return {
            number: self.id(other) for (here, other), number in self.peers.items() if here == name
        }

    def start(self, groups: dict[str, int]) -> None:
        """Share each node's group with all its peers, boot, link."""
        for name, group in groups.items():
            self.share(name, group)
            self.nodes[name].boot(0)
        for (here, there), peer in self.peers.items():
            self.links[here, there] = self.nodes[here].link(
                peer, PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH
            )

    def share(self, name: str, group: int) -> None:
        """Share a group with all peers of a node."""
        for (here, _), peer in self.peers.items():
            if here == name:
                self.nodes[name].share(group, peer, SHARED)

    def run(self, epochs: int = 12) -> None:
        """Carry frames for some epochs."""
        frame = bytearray(1024)
        for _ in range(epochs):
            self.now_ms += 1000
            for (here, there), link in self.links.items():
                while size := link.poll_into(frame, self.now_ms):
                    self.frames += 1
                    self.bytes += size
                    self.links[there, here].receive(frame, size, self.now_ms)

    def events(self, name: str) -> list[int]:
        """Handles of what entered a node's log, confirmed."""
        node, found = self.nodes[name], []
        while node.next_event():
            found.append(node.event_handle)
            node.done(node.event_handle)
        return found
