"""What a member makes of what it hears on a topic: whose sends count, and what it may not say."""

from itertools import pairwise

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.link.topic import KIND_TOPIC, Topic
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1, SHARED, Link, Node
from helpers import stamp
from ram_store import RamStore

EPOCH_MS = 1000
RECORDS = 0x40
ACK = 0
MESSAGE = 1
REQUEST = 3
OWN_ID = b"\0\0\1\0"
OTHERS = (b"\0\0\1\1", b"\0\0\1\2")
# Who heard a message sends it again after so many epochs at the earliest.
ACKED_EPOCHS = 5


def record(kind: int, content: bytes) -> bytes:
    return bytes((1, kind)) + len(content).to_bytes(2, "big") + content


class Listener:
    """A member that is told by hand what the two others say on the topic."""

    def __init__(self, offers_max: int = 16) -> None:
        self.store = RamStore()
        self.node = Node(self.store, lambda: 0, 2, 1, 16, offers_max)
        self.group = self.node.join(READINGS_CLIENT_ID, b"bus")
        links = []
        for other in OTHERS:
            peer = self.node.add_peer(other)
            self.node.share(self.group, peer, SHARED)
            link = self.node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
            assert isinstance(link, Link)
            links.append(link)
        self.node.boot(0)
        self.topic = Topic(
            self.node, self.group, links, b"".join(OTHERS), OWN_ID, lambda: 0
        )  # fmt: skip
        self.now_ms = 0

    def hear(self, sender: bytes, kind: int, content: bytes) -> None:
        frame = bytearray(bytes((KIND_TOPIC,)) + sender + bytes((RECORDS,)))
        frame += record(kind, content)
        assert self.topic.receive(frame, len(frame), self.now_ms) == OK

    def says(self) -> list[bytes]:
        """What leaves in the next epoch, from the first record on."""
        self.now_ms += EPOCH_MS
        frame = bytearray(FRAME_SIZE_MAX)
        found = []
        while size := self.topic.poll_into(frame, self.now_ms):
            found.append(bytes(frame[6:size]))
        return found


def test_what_another_sent_counts_as_a_send_to_who_may_lack_it() -> None:
    """Whoever wrote it: who holds it, too, goes on where that one left off, not from the start."""
    listener = Listener()
    listener.says()
    body = b"\0heard by one of two"
    group = bytes(listener.node.core.members.group_ids[:32])
    listener.hear(OTHERS[0], MESSAGE, group + stamp(1) + body)
    assert listener.node.delivered == 1
    sent = []
    for epoch in range(1, 150):
        sent += [epoch] * sum(body in each for each in listener.says())
    assert sent[0] >= ACKED_EPOCHS
    gaps = [after - before for before, after in pairwise(sent)]
    assert gaps[:5] == [4, 8, 16, 32, 64], "it had been sent once before"


def test_requests_for_what_is_gone_take_no_room_from_what_is_heard_of() -> None:
    """On a link an ACK, twice, tells it; on a topic it would say that we hold the message."""
    listener = Listener(4)
    gone = [bytes([number + 1]) * 32 for number in range(8)]
    listener.store.absent_ids.update(gone)
    listener.hear(OTHERS[0], REQUEST, b"".join(gone))
    for _ in range(10):
        assert not listener.says()
    held = [bytes([number + 100]) * 32 for number in range(2)]
    listener.hear(OTHERS[0], ACK, b"".join(held))
    (said,) = listener.says()
    assert said in (record(REQUEST, b"".join(ids)) for ids in (held, held[::-1]))
