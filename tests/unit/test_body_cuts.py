"""The longest body, cut twenty times: it goes on at the last piece, on whatever carrier comes.

Each cut loses what is on its way in both directions; the next carrier is another link object of
the same two nodes. Every SEGMENT is looked at when it leaves: its bytes that the receiver had then
are sent again, and there may be one piece of them per cut at most.
"""

import pytest

from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    PIECE_SIZE,
    SEGMENT_HEADER_SIZE,
)
from drupelet.node import BATCH, CARRIER_MQTT, CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1
from helpers import EPOCH_MS, Draw, Member, check_causal, part_owners, stamp

CUTS = 20
TOTAL = CONTENT_HEADER_SIZE + BODY_SIZE_MAX
# A cable, a broker, and a second cable.
CARRIERS = (CARRIER_SERIAL, CARRIER_MQTT, CARRIER_SERIAL)
SEGMENT = 0x50
ROUND_MS = 250
ROUNDS_MAX = 4_000
BODY = b"\x00" + bytes(i * 11 + (i >> 8) & 255 for i in range(BODY_SIZE_MAX - 1))


class Cable:
    """Two members and the links between them, of which one carrier works at a time."""

    def __init__(self, draw: Draw, mode: int, frame_size: int, window: int) -> None:
        self.draw = draw
        self.mode = mode
        self.frame_size = frame_size
        self.window = window  # frames on their way at once
        self.now_ms = 0
        self.sender, self.receiver = (Member(name, draw, body_files_max=64) for name in "AB")
        for here, there in ((self.sender, "B"), (self.receiver, "A")):
            here.peers.append(there)
            here.add(there)
            here.boot(0)
        self.links: dict[int, tuple] = {}
        self.carrier = 0
        self.forth: list[bytes] = []
        self.back: list[bytes] = []
        self.arrived = 0  # bytes of the content that the receiver has taken in
        self.sent = 0
        self.again = [0]  # bytes sent that had arrived: before the first cut, and after each
        self.lost = 0

    @property
    def cuts(self) -> int:
        """Cuts so far."""
        return len(self.again) - 1

    def link(self) -> tuple:
        """The two ends of the carrier; made when it is used for the first time."""
        if self.carrier not in self.links:
            self.links[self.carrier] = tuple(
                here.node.link(
                    here.numbers[there], PROFILE_BSP_1, CARRIERS[self.carrier], EPOCH_MS,
                    self.mode, self.now_ms,
                )
                for here, there in ((self.sender, "B"), (self.receiver, "A"))
            )  # fmt: skip
        return self.links[self.carrier]

    def poll(self, out: list[bytes], end: int) -> None:
        """What one end has to say, as far as the carrier takes it now."""
        frame = bytearray(self.frame_size)
        while len(out) < self.window:
            size = self.link()[end].poll_into(frame, self.now_ms)
            if not size:
                return
            out.append(bytes(frame[:size]))
            if frame[0] == SEGMENT:
                first = int.from_bytes(frame[11:13], "big")
                last = first + size - SEGMENT_HEADER_SIZE
                self.sent += size - SEGMENT_HEADER_SIZE
                self.again[-1] += max(0, min(last, self.arrived) - first)

    def give(self, frame: bytes) -> None:
        """One frame arrives at the receiver; a piece counts if it goes on where the run ends."""
        assert self.link()[1].receive(bytearray(frame), len(frame), self.now_ms) == 0
        if frame[0] == SEGMENT:
            first = int.from_bytes(frame[11:13], "big")
            if first <= self.arrived:
                last = first + len(frame) - SEGMENT_HEADER_SIZE
                self.arrived = max(self.arrived, last)

    def round(self, place: int = TOTAL) -> None:
        """A quarter of an epoch; some of what is on its way arrives, no more once at `place`."""
        self.now_ms += ROUND_MS
        self.poll(self.forth, 0)
        self.poll(self.back, 1)
        for _ in range(min(len(self.forth), 1 + self.draw(self.window))):
            if self.arrived >= place and place < TOTAL:
                break
            self.give(self.forth.pop(0))
        while self.back:
            frame = self.back.pop(0)
            assert self.link()[0].receive(bytearray(frame), len(frame), self.now_ms) == 0

    def cut(self) -> None:
        """The carrier goes with all that is on it; another one comes after some time."""
        self.again.append(0)
        self.lost += len(self.forth)
        self.forth.clear()
        self.back.clear()
        self.carrier = (self.carrier + self.draw(3)) % 3  # the same one, too
        self.now_ms += self.draw(4) * EPOCH_MS

    def run(self) -> None:
        """Cut at twenty random places of the content, then to the end."""
        places = [*sorted(self.draw(TOTAL // 9) * 9 for _ in range(CUTS)), TOTAL]
        for _ in range(ROUNDS_MAX):
            place = places[self.cuts]
            self.round(place)
            if self.arrived == TOTAL and self.cuts == CUTS:
                break
            if self.arrived >= place:
                self.poll(self.forth, 0)
                self.cut()
        for _ in range(40):
            self.round()


def check(cable: Cable) -> None:
    assert cable.cuts == CUTS and cable.lost >= CUTS // 2
    (id,) = cable.sender.log()
    assert cable.receiver.log() == [id]
    handle = cable.receiver.store.find(id, 0)
    assert cable.receiver.body(handle) == BODY
    assert cable.receiver.node.delivered == 1 and cable.receiver.node.duplicates == 0
    assert cable.receiver.node.malformed == cable.sender.node.malformed == 0
    assert cable.sender.node.outstanding(cable.sender.numbers["B"]) == 0
    assert not any(part_owners(cable.receiver.node)), "the part file is free again"
    check_causal(cable.receiver)
    assert max(cable.again) <= PIECE_SIZE, f"{cable.again} of {cable.sent}"


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize(("frame_size", "window"), [(1024, 2), (1024, 8), (1024, 40), (222, 40)])
@pytest.mark.parametrize("seed", range(3))
def test_cut_twenty_times(seed: int, frame_size: int, window: int, mode: int) -> None:
    cable = Cable(Draw(seed * 100 + window), mode, frame_size, window)
    assert cable.sender.node.publish(cable.sender.group, BODY, len(BODY), stamp(0), 0) > 0
    cable.run()
    check(cable)
