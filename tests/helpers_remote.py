"""A host without carriers, and what it uploads: helpers of tests of the remote log."""

from drupelet.base.limits import BODY_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.node import BATCH, CARRIER_MQTT, PROFILE_BSP_1, SHARED, Link, Node
from drupelet_host.remote.content_store import RemoteStore
from drupelet_host.remote.log import LogReader, LogWriter, take_news
from drupelet_host.remote.log_bytes import FeedKeys
from ram_store import RamStore

KEYS = FeedKeys(bytes(range(32)))


class Device:
    """A node with one peer that is never there, and an author."""

    def __init__(self, groups: int = 1) -> None:
        self.node = Node(RamStore(), lambda: 0, 2, groups, 64, 64)
        self.group = self.node.join(READINGS_CLIENT_ID, b"orchard")
        self.peer = self.node.add_peer(b"peer")
        self.node.share(self.group, self.peer, SHARED)
        self.node.boot(0)
        self.author = Author(self.node, self.group)
        self.author.body = bytearray(BODY_SIZE_MAX)

    def link(self) -> Link:
        return self.node.link(self.peer, PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH)

    def put(self, payload: bytes, stamp: int = 1) -> int:
        size = self.author.compose(payload, len(payload))
        handle = self.node.publish(self.group, self.author.body, size, stamp.to_bytes(8), 0)
        assert handle > 0
        self.author.published(handle)
        return handle

    def log(self) -> list[tuple[bytes, bytes, bytes]]:
        """Id, timestamp and body of each message, in order."""
        store, found, handle = self.node.store, [], self.node.store.next(0)
        while handle:
            assert store.load(handle) == 0
            body = bytearray(store.size)
            store.read_into(handle, 0, body, 0, len(body))
            found.append((bytes(store.id), bytes(store.timestamp), bytes(body)))
            handle = store.next(handle)
        return found

    def writer(self, store: RemoteStore) -> LogWriter:
        return LogWriter(self.node, self.group, KEYS, store)

    def take(self, reader: LogReader, link: Link | None = None, at_once: int = 1000) -> int:
        return take_news(reader, self.node, self.group, link, 0, at_once)


def upload(writer: LogWriter) -> int:
    total = 0
    for _ in range(100):
        count = writer.turn(0)
        total += count
        if not count:
            return total
    raise AssertionError("it never ends")
