"""The black box on its way into the log: whole segments, left-over ones, and who lets them go."""

import pytest

from drupelet.base.limits import BLOCK_SIZE, BOX_HEADER_SIZE, EVENTS_PER_BLOCK
from drupelet.clients.default import TELEMETRY_CLIENT_ID
from drupelet.node import CARRIER_SERIAL, GROUP_TELEMETRY, PROFILE_BSP_1, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox

STAMP = bytes(8)


class Boxed:
    """A node with a black box, and a telemetry group shared with one peer."""

    def __init__(self, files: RamFiles, name: bytes = b"AAAA", peer: bytes = b"BBBB") -> None:
        self.store = FlashStore(files)
        self.store.open()
        self.box = BlackBox(name, 0, 2)
        self.node = Node(self.store, lambda: 0, 2, 2, 16, 16, self.box)
        self.group = self.node.join(TELEMETRY_CLIENT_ID, b"boxes", GROUP_TELEMETRY)
        self.peer = self.node.add_peer(peer)
        self.node.share(self.group, self.peer, SHARED)
        self.box.boot = self.node.boot(0)
        self.link = self.node.link(self.peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, 0)

    def events(self, count: int, now_ms: int = 0) -> None:
        for number in range(count):
            self.box.log(now_ms, 30, number & 255, 0, 0, number)
            assert self.node.telemetry(self.group, now_ms, STAMP) == 0

    def segments(self) -> list[bytes]:
        """Bodies of the log, less their dependency count."""
        found = []
        handle = self.store.next(0)
        while handle:
            assert self.store.load(handle) == 0
            body = bytearray(self.store.size)
            self.store.read_into(handle, 0, body, 0, len(body))
            if body:
                assert body[0] == 0
                found.append(bytes(body[1:]))
            handle = self.store.next(handle)
        return found


def numbers(segment: bytes) -> list[int]:
    """The counting events of a segment."""
    found = []
    for start in range(BOX_HEADER_SIZE, len(segment), BLOCK_SIZE):
        block = segment[start : start + BLOCK_SIZE]
        for event in range(block[1]):
            at = 16 + event * 12
            if block[at + 4] == 30:
                found.append(int.from_bytes(block[at + 8 : at + 12], "little"))
    return found


def test_a_full_segment_is_published_at_once() -> None:
    a = Boxed(RamFiles())
    a.events(2 * EVENTS_PER_BLOCK - 1)
    assert a.segments() == []
    a.events(1)
    (segment,) = a.segments()
    assert len(segment) == BOX_HEADER_SIZE + 2 * BLOCK_SIZE and segment[:4] == b"DRBX"
    assert len(numbers(segment)) == 2 * EVENTS_PER_BLOCK


def test_a_flush_publishes_what_there_is() -> None:
    a = Boxed(RamFiles())
    a.events(5)
    assert a.node.telemetry_flush(a.group, 0, STAMP) == 0
    (segment,) = a.segments()
    assert numbers(segment) == list(range(5))


def test_what_a_killed_run_left_behind_is_published_at_the_next_start() -> None:
    files = RamFiles()
    a = Boxed(files)
    a.events(EVENTS_PER_BLOCK + 3)
    files.power_cut(1 << 20)  # the process is gone, its files stay
    again = Boxed(files)
    again.events(EVENTS_PER_BLOCK)
    (segment,) = again.segments()
    assert numbers(segment) == list(range(EVENTS_PER_BLOCK)) and segment[6] == 1
    again.node.telemetry_flush(again.group, 0, STAMP)
    assert [segment[6] for segment in again.segments()] == [1, 2], "each with its boot"


def test_a_power_cut_leaves_no_half_segment() -> None:
    for kept in (0, 40, 73, 100, 600):
        files = RamFiles()
        a = Boxed(files)
        a.events(EVENTS_PER_BLOCK + 3)
        files.power_cut(kept)
        again = Boxed(files)
        again.events(2 * EVENTS_PER_BLOCK)
        for segment in again.segments():
            assert (len(segment) - BOX_HEADER_SIZE) % BLOCK_SIZE == 0


def exchange(here: Boxed, there: Boxed, now_ms: int) -> None:
    frame = bytearray(1024)
    size = here.link.poll_into(frame, now_ms)
    while size:
        there.link.receive(frame, size, now_ms)
        size = here.link.poll_into(frame, now_ms)


def test_black_boxes_go_once_all_who_share_them_have_them() -> None:
    a = Boxed(RamFiles())
    b = Boxed(RamFiles(), b"BBBB", b"AAAA")
    a.events(4 * EVENTS_PER_BLOCK)
    sizes = [len(segment) for segment in a.segments()]
    assert len(sizes) == 2
    while a.node.next_event():
        a.node.done(a.node.event_handle)
    for now_ms in range(0, 10_000, 500):
        exchange(a, b, now_ms)
        exchange(b, a, now_ms)
    assert [len(segment) for segment in b.segments()] == sizes
    assert a.segments() == [], "deleted here, for the peer has them"
    assert a.node.outstanding(a.peer) == 0


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["ack", "message", "offer"])
def test_black_boxes_go_whatever_shows_that_the_peer_has_them(kind: int) -> None:
    """It has them from another one, and may offer or send them before it is sent them."""
    a = Boxed(RamFiles())
    a.events(5)
    assert a.node.telemetry_flush(a.group, 0, STAMP) == 0
    while a.node.next_event():
        a.node.done(a.node.event_handle)
    assert a.store.load(a.store.next(0)) == 0
    id = bytes(a.store.id)
    body = b"\x00" + a.segments()[0]
    record = id if kind != 1 else bytes(a.node.core.members.group_ids[:32]) + STAMP + body
    frame = bytearray(b"\x40\x01" + bytes([kind]) + len(record).to_bytes(2, "big") + record)
    assert a.link.receive(frame, len(frame), 500) == 0
    assert a.segments() == [] and a.store.find(id, 0) > 0
    if kind:
        out = bytearray(1024)
        size = a.link.poll_into(out, 2_000)
        assert out[:size] == b"\x40\x01\x00\x00\x20" + id, "an ACK, and nothing else"
