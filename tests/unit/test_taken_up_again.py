"""What a link goes back to when its peer takes something again: its pace, and how soon it asks."""

from itertools import pairwise

from compact_view import Spoken
from drupelet.base.errors import OK
from drupelet.base.limits import COMPACT_PROBE_EPOCHS
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    SHARED,
    Link,
    Node,
)
from drupelet.wire.compact.hello import COMPACT, PLAIN
from helpers import EPOCH_MS, stamp
from ram_store import RamStore

POOL = 64
FIRST_PACE = 16  # what a peer gets that was not heard yet
KIND_PLAIN = 0x40
KIND_COMPACT = 0x44
ACK = 0
OFFER = 2
REQUEST = 3
UNKNOWN_ID = b"\1" * 32


def plain(kind: int, *ids: bytes) -> bytes:
    """A frame of bsp-1 with one record."""
    content = b"".join(ids)
    return bytes((KIND_PLAIN, 1, kind)) + len(content).to_bytes(2, "big") + content


class End:
    """A node with one link; the other end is told by hand."""

    def __init__(self, profile: int, mode: int, count: int) -> None:
        self.node = Node(RamStore(), lambda: 0, 1, 1, POOL)
        group = self.node.join(READINGS_CLIENT_ID, b"g")
        peer = self.node.add_peer(b"PEER")
        self.node.share(group, peer, SHARED)
        self.node.boot(0)
        for number in range(count):
            body = b"\0%d" % number
            assert self.node.publish(group, body, len(body), stamp(number), 0) > 0
        link = self.node.link(peer, profile, CARRIER_SERIAL, EPOCH_MS, mode)
        assert isinstance(link, Link)
        self.link = link
        self.epoch = 0

    def hear(self, frame: bytes) -> None:
        assert self.link.receive(bytearray(frame), len(frame), self.epoch * EPOCH_MS) == OK

    def says(self) -> list[bytes]:
        """The frames of the next epoch."""
        self.epoch += 1
        frame = bytearray(1024)
        found = []
        while size := self.link.poll_into(frame, self.epoch * EPOCH_MS):
            found.append(bytes(frame[:size]))
        return found


def offered(frames: list[bytes]) -> list[bytes]:
    """The ids in frames that are one record of OFFERs each."""
    found = []
    for frame in frames:
        assert frame[:3] == bytes((KIND_PLAIN, 1, OFFER))
        found += [frame[at : at + 32] for at in range(5, len(frame), 32)]
    return found


def test_each_gain_doubles_the_pace_however_long_nothing_was_taken() -> None:
    end = End(PROFILE_BSP_1, INTERACTIVE, POOL)
    last = offered(end.says())
    assert len(last) == FIRST_PACE
    for _ in range(1000):  # it is there, but its tables are full
        end.hear(plain(REQUEST, UNKNOWN_ID))
        last = offered(end.says()) or last
        assert len(last) <= POOL
    paces = []
    for _ in range(5):
        paces.append(len(last))
        end.hear(plain(ACK, last[0]))
        last = offered(end.says())
        if not last:  # the wait of the rest began again with the first answer
            end.hear(plain(REQUEST, UNKNOWN_ID))
            last = offered(end.says())
    assert paces == [1, 2, 3, 6, 11], "1, 2, 4, 8, 16 less what is under way"


def probes(end: End) -> list[int]:
    """Epochs between the HELLOs that ask whether a peer in bsp-1 understands them by now."""
    found = []
    for _ in range(18 * COMPACT_PROBE_EPOCHS):
        end.hear(plain(REQUEST, UNKNOWN_ID))
        frames = end.says()
        if Spoken(end.link).speaks == PLAIN:
            found += [end.epoch for frame in frames if frame[0] == KIND_COMPACT]
    return [after - before for before, after in pairwise(found)]


def test_a_peer_that_fell_back_again_is_asked_as_often_as_the_first_time() -> None:
    """It spoke compact-1 meanwhile: the waits do not go on from those before."""
    end = End(PROFILE_COMPACT_1, BATCH, 1)
    waits = [COMPACT_PROBE_EPOCHS * times for times in (1, 2, 4, 8)]
    assert probes(end) == waits
    end.hear(bytes.fromhex("448400000000"))
    assert Spoken(end.link).speaks == COMPACT
    assert probes(end) == waits
