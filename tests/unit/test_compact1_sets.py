"""An ACK or REQUEST of `compact-1` does what its set says, between two nodes, and no more."""

from functools import reduce

import pytest

from compact_view import Spoken
from drupelet.base.errors import OK
from drupelet.engine.outbox import Outbox
from drupelet.engine.states import HOLD, REQUEST
from drupelet.node import BATCH, PROFILE_COMPACT_1
from helpers import EPOCH_MS, Draw, Member, Network

# The type in the upper 3 bits, where the 4 bytes of an id begin that are folded, what it does.
Kind = tuple[int, int, int]
KINDS = {"ACK": (0 << 5, 8, HOLD), "REQUEST": (3 << 5, 4, REQUEST)}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
SENT = 12


class Ends:
    """A has sent messages to B and hears no answer but what a test lets through."""

    def __init__(self) -> None:
        draw = Draw(1)
        self.a, self.b = (Member(name, draw, pool=32, offers=32) for name in "AB")
        self.net = Network(draw, [self.a, self.b], ["AB"], BATCH, profile=PROFILE_COMPACT_1)
        self.ids: list[bytes] = []
        for _ in range(16):
            self.net.round()  # they know each other, and nothing is due
        self.net.lines["B", "A"].loss = 1000

    def publish(self, count: int) -> None:
        for _ in range(count):
            id = self.a.publish(b"%d" % len(self.ids), self.net.now_ms)
            assert id is not None
            self.ids.append(id)

    def send(self, count: int) -> None:
        """A gives so many messages to its line."""
        self.publish(count)
        for _ in range(8):
            self.net.round()

    @property
    def outbox(self) -> Outbox:
        return self.a.links["B"].exchange.outbox

    def row(self, id: bytes) -> int:
        row = self.outbox.find(id, 0)
        assert row >= 0
        return row

    @property
    def first(self) -> int:
        """The number of the first message; the others follow it."""
        numbers = [self.outbox.number(self.row(id)) for id in self.ids]
        assert numbers == list(range(numbers[0], numbers[0] + len(self.ids)))
        return numbers[0]

    def with_flag(self, flag: int) -> list[bytes]:
        """The messages that B holds (HOLD) or asked for (REQUEST), as A knows it.

        When a fold does not fit, A walks its log again: then no message has a row.
        """
        core = self.a.node.core
        if flag == HOLD:
            peer = self.outbox.peer
            return [id for id in self.ids if core.holds(peer, core.store.find(id, 0))]
        rows = [self.outbox.find(id, 0) for id in self.ids]
        return [
            id for id, row in zip(self.ids, rows, strict=True)
            if row >= 0 and self.outbox.state(row) & flag
        ]  # fmt: skip

    def hear(self, frame: bytes) -> int:
        """A takes in a frame of B's."""
        taken: int = self.a.links["B"].receive(bytearray(frame), len(frame), self.net.now_ms)
        return taken

    def range_of(self, kind: Kind, first: int, count: int, ids: list[bytes]) -> int:
        """A takes in a range of its numbers, with the fold of these ids."""
        head, at, _ = kind
        # The length stands in the first byte up to 7, and behind the number above.
        short, long = (count << 2, b"") if count <= 7 else (0, bytes([count]))
        generation = Spoken(self.a.links["B"]).generation.to_bytes(2, "big")
        folded = reduce(int.__xor__, (int.from_bytes(id[at : at + 4], "big") for id in ids))
        wire = bytes([0x44, head | short]) + generation + bytes([first]) + long
        return self.hear(wire + folded.to_bytes(4, "big"))

    def say(self, here: Member, there: str) -> bytes:
        """The frame that one has for the other in the next epoch."""
        self.net.now_ms += EPOCH_MS
        frame = bytearray(1024)
        return bytes(frame[: here.links[there].poll_into(frame, self.net.now_ms)])


@every_kind
@pytest.mark.parametrize("begin", [0, 2])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 10])
def test_a_range_does_what_it_says_to_each_of_its_numbers_and_to_no_other(
    kind: Kind, begin: int, count: int
) -> None:
    ends = Ends()
    ends.send(SENT)
    assert ends.with_flag(kind[2]) == []
    named = ends.ids[begin : begin + count]
    assert ends.range_of(kind, ends.first + begin, count, named) == OK
    assert ends.with_flag(kind[2]) == named


@every_kind
@pytest.mark.parametrize("count", [1, 6, 7, 8, 11])
@pytest.mark.parametrize("end", ["front", "back"])
def test_a_range_that_is_one_too_long_does_nothing(kind: Kind, count: int, end: str) -> None:
    """One number more than the ids that were folded: a message that was sent, and did not come."""
    ends = Ends()
    ends.send(SENT)
    begin = 1 if end == "front" else 0
    named = ends.ids[begin : begin + count]
    assert ends.range_of(kind, ends.first, count + 1, named) == OK
    assert ends.with_flag(kind[2]) == []
    assert Spoken(ends.a.links["B"]).codec.ignored == 1


@every_kind
@pytest.mark.parametrize("count", [1, 6, 7, 11])
def test_a_range_that_ends_with_a_number_that_was_never_given_does_nothing(
    kind: Kind, count: int
) -> None:
    """Its fold may be right: what has no message adds nothing to it."""
    ends = Ends()
    ends.send(count)
    assert ends.range_of(kind, ends.first, count + 1, ends.ids) == OK
    assert ends.with_flag(kind[2]) == []
    assert ends.range_of(kind, ends.first, count, ends.ids) == OK
    assert ends.with_flag(kind[2]) == ends.ids


@pytest.mark.parametrize("count", [1, 2, 6, 7, 8, 11])
def test_what_came_is_acknowledged_and_nothing_that_was_sent_behind_it(count: int) -> None:
    ends = Ends()
    ends.publish(count)
    frame = bytearray(ends.say(ends.a, "B"))
    assert ends.b.links["A"].receive(frame, len(frame), ends.net.now_ms) == OK
    assert ends.b.log() == ends.ids
    ends.publish(SENT - count)
    assert ends.say(ends.a, "B"), "which is lost"
    assert ends.first, "they all have numbers"
    assert ends.hear(ends.say(ends.b, "A")) == OK
    assert ends.with_flag(HOLD) == ends.ids[:count]
    assert Spoken(ends.a.links["B"]).codec.ignored == 0
