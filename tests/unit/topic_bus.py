"""Members of one group on a topic: everybody hears everybody, and frames are lost."""

import random
from collections.abc import Callable

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.link.topic import Topic
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1, SHARED, Node
from drupelet.store.ports import StorePort
from ram_store import RamStore

EPOCH_MS = 1000
FRAMES_MAX = 64


class Member:
    """One of many who share a group, over a topic or over links to each other."""

    def __init__(
        self,
        number: int,
        count: int,
        rng: random.Random,
        seen: int = SHARED,
        store: Callable[[], StorePort] = RamStore,
    ) -> None:
        self.id = bytes((0, 0, 1, number))
        self.rng = rng
        self.byte: int | None = None  # what its topic draws, if that is not left to chance
        self.node = Node(
            store(), lambda: rng.randrange(256), peers_max=count, groups_max=2,
            messages_max=256, offers_max=256,
        )  # fmt: skip
        self.group = self.node.join(READINGS_CLIENT_ID, b"bus")
        self.others = [bytes((0, 0, 1, other)) for other in range(count) if other != number]
        self.links = []
        for id in self.others:
            peer = self.node.add_peer(id)
            self.node.share(self.group, peer, seen)
            link = self.node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
            self.links.append(link)
        self.node.boot(0)
        self.topic = Topic(
            self.node, self.group, self.links, b"".join(self.others), self.id,
            self.random_byte,
        )  # fmt: skip

    def random_byte(self) -> int:
        return self.rng.randrange(256) if self.byte is None else self.byte

    def publish(self, payload: bytes, now_ms: int) -> None:
        body = b"\0" + payload
        stamp = now_ms.to_bytes(8)
        assert self.node.publish(self.group, body, len(body), stamp, now_ms) > 0


class Bus:
    """Everybody hears everybody; each listener loses frames of its own."""

    def __init__(
        self, count: int, seed: int, loss: float, store: Callable[[], StorePort] = RamStore
    ) -> None:
        self.rng = random.Random(seed)
        self.members = [Member(number, count, self.rng, store=store) for number in range(count)]
        self.loss = loss
        self.now_ms = 0
        self.bytes = 0
        self.frames = 0

    def turn(self) -> None:
        self.now_ms += EPOCH_MS // 4
        frame = bytearray(FRAME_SIZE_MAX)
        for sender in self.members:
            for _ in range(FRAMES_MAX):
                size = sender.topic.poll_into(frame, self.now_ms)
                if not size:
                    break
                self.bytes += size
                self.frames += 1
                for other in self.members:
                    if self.rng.random() >= self.loss:
                        # Its own frame comes back to the sender, too.
                        assert other.topic.receive(bytearray(frame), size, self.now_ms) == OK

    def run(self, count: int, turns_max: int = 2000) -> None:
        for _ in range(turns_max):
            self.turn()
            if all(member.node.delivered == count for member in self.members):
                return
        raise AssertionError([member.node.delivered for member in self.members])
