"""The micro member by itself: what it takes, refuses, sends and when; and its serial line."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.micro.link import MicroLink
from drupelet.micro.member import Micro
from drupelet.micro.serial_line import MicroSerial
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max
from helpers import Draw, Line
from naive import bsp

EPOCH_MS = 1000
GROUP = bsp.group_id(READINGS_CLIENT_ID, b"test")
STAMP = bytearray((1_700_000_000_000).to_bytes(8, "big"))
UNKNOWN = bytes(range(1, 33))
FRAME_SIZE = 251
BATCH, INTERACTIVE = 0, 1


class End:
    """A micro member with one link, and time."""

    def __init__(self, mode: int = BATCH, **sizes: int) -> None:
        self.node = Micro(READINGS_CLIENT_ID, b"test", **{"peers_max": 1, **sizes})
        self.link = MicroLink(self.node, mode)
        self.now_ms = 0

    def epochs(self, count: int = 1) -> None:
        self.now_ms += count * EPOCH_MS

    def give(self, *records: bytes) -> int:
        frame = bytearray(b"\x40" + b"".join(records))
        return self.link.receive(frame, len(frame), self.now_ms)

    def take(self) -> dict[int, list[bytes]]:
        """All that is due now: record type -> ids or message payloads."""
        found: dict[int, list[bytes]] = {}
        frame = bytearray(FRAME_SIZE)
        for _ in range(100):
            size = self.link.poll_into(frame, self.now_ms)
            if not size:
                return found
            assert frame[0] == 0x40
            for kind, payload in bsp.records_of(bytes(frame[1:size])):
                items = [payload] if kind == bsp.MESSAGE else bsp.ids_of(payload)
                found.setdefault(kind, []).extend(items)
        raise AssertionError("no end of frames")

    def publish(self, text: bytes) -> bytes:
        row = self.node.publish(text, len(text), STAMP)
        assert row >= 0
        return self.id(row)

    def id(self, row: int) -> bytes:
        at = row * self.node.stride
        return bytes(self.node.table[at : at + 32])

    def consume(self) -> list[bytes]:
        found = []
        while (row := self.node.next_event()) >= 0:
            found.append(self.id(row))
            self.node.done(row)
        return found


def foreign(text: bytes, *parents: bytes) -> bsp.Message:
    return bsp.Message(GROUP, 1_800_000_000_000, bytes([len(parents)]) + b"".join(parents) + text)


def message(item: bsp.Message) -> bytes:
    return bsp.record(bsp.MESSAGE, item.payload)


def ids(kind: int, *items: bytes) -> bytes:
    return bsp.record(kind, b"".join(items))


def test_its_messages_are_those_of_the_text_and_follow_what_it_saw() -> None:
    end = End()
    first = end.publish(b"one")
    one = foreign(b"other")
    assert end.give(message(one)) == OK
    assert end.consume() == [one.id]
    second = end.publish(b"two")
    sent = [bsp.message_of(payload) for payload in end.take()[bsp.MESSAGE]]
    assert [each.id for each in sent] == [first, second]
    assert [each.body for each in sent] == [b"\0one", b"\2" + first + one.id + b"two"]
    assert all(each.group == GROUP and each.timestamp == 1_700_000_000_000 for each in sent)


def test_the_board_uses_the_client_of_readings() -> None:
    source = Path(__file__).parents[2] / "firmware/boards/micro/board.py"
    assert f'"{READINGS_CLIENT_ID.hex()}"' in source.read_text("utf-8")


def test_a_message_without_its_parent_is_refused_and_the_parent_asked_for() -> None:
    end = End()
    root = foreign(b"root")
    child = foreign(b"child", root.id)
    grandchild = foreign(b"grandchild", child.id)
    end.give(message(grandchild))
    assert end.take() == {bsp.REQUEST: [child.id]}
    end.epochs()
    end.give(message(child))
    # The deepest one that is missing comes next, and nothing is acknowledged.
    assert end.take() == {bsp.REQUEST: [root.id]}
    end.epochs()
    end.give(message(root), message(child), message(grandchild))
    assert end.take() == {}  # not before the client has them
    assert end.consume() == [root.id, child.id, grandchild.id]
    assert end.take() == {bsp.ACK: [root.id, child.id, grandchild.id]}
    assert end.node.refused == 2 and end.node.malformed == 0


@pytest.mark.parametrize("place", range(6))
def test_each_of_its_parents_must_be_here(place: int) -> None:
    end = End()
    roots = [foreign(b"%d" % number) for number in range(6)]  # no more fit its longest body
    child = foreign(b"child", *(root.id for root in roots))
    late = roots.pop(place)
    end.give(*map(message, roots[:3]))
    end.give(*map(message, roots[3:]))
    assert end.consume() == [root.id for root in roots]
    end.give(message(child))
    assert end.take()[bsp.REQUEST] == [late.id] and end.consume() == []
    end.epochs()
    end.give(message(late), message(child))
    assert end.consume() == [late.id, child.id]


def test_what_has_gone_is_acknowledged_and_met_but_not_taken_in_again() -> None:
    end = End(messages_max=2)
    one, two, three = foreign(b"1"), foreign(b"2"), foreign(b"3")
    for each in (one, two, three):
        end.give(message(each))
        assert end.consume() == [each.id]
        assert end.take() == {bsp.ACK: [each.id]}
        end.epochs()
    assert end.node.find(bytearray(one.id), 0) < 0
    late = foreign(b"late", one.id)
    end.give(message(one), ids(bsp.OFFER, one.id), message(late))
    assert end.consume() == [late.id]
    assert set(end.take()[bsp.ACK]) == {one.id, late.id}
    assert end.node.duplicates == 1


def test_who_asks_for_what_has_gone_is_told_that_it_was_here() -> None:
    """A host that comes late waits for no reading that this board has let go."""
    end = End(messages_max=4)
    published = []
    for number in range(6):
        published.append(end.publish(bytes([number])))
        end.take()
        end.give(ids(bsp.ACK, published[-1]))
        end.epochs()
    first = published[0]
    assert end.node.find(bytearray(first), 0) < 0
    end.give(ids(bsp.REQUEST, first, b"\7" * 32))
    assert end.take()[bsp.ACK] == [first, first]  # once would say that it is still here
    assert end.take() == {}


def test_a_full_table_refuses_and_counts_and_keeps_room_for_others() -> None:
    end = End(messages_max=8)
    for number in range(6):
        end.publish(bytes([number]))
    assert end.node.publish(b"x", 1, STAMP) == E_CAPACITY
    some = [foreign(bytes([number])) for number in range(3)]
    end.give(*(message(each) for each in some))
    assert end.consume() == [some[0].id, some[1].id]
    assert set(end.take()[bsp.ACK]) == {some[0].id, some[1].id}
    assert end.node.refused == 2
    end.epochs()
    end.give(message(some[2]))  # the first foreign one is settled now and makes room
    assert end.consume() == [some[2].id]
    assert end.node.publish(bytes(250), 250, STAMP) == E_CAPACITY


def test_bodies_are_bounded_by_bytes_too() -> None:
    end = End(messages_max=32, bodies_size=256)
    some = [foreign(bytes([number]) * 99) for number in range(3)]
    end.give(*(message(each) for each in some))
    assert end.consume() == [some[0].id, some[1].id]
    long = foreign(bytes(300))
    end.give(message(long))
    assert end.consume() == [] and end.node.refused == 2


def test_back_off_doubles_to_its_cap_and_falls_when_the_peer_is_heard() -> None:
    end = End()
    end.publish(b"x")
    sent = []
    for epoch in range(300):
        if end.take():
            sent.append(epoch)
        end.epochs()
    gaps = [b - a for a, b in pairwise(sent)]
    assert gaps == [2, 4, 8, 16, 32, 64, 64, 64]
    end.give(ids(bsp.ACK, UNKNOWN))
    end.take()
    end.epochs(1)
    end.take()
    end.epochs(2)
    assert bsp.MESSAGE in end.take()


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
def test_wake_is_exact(mode: int) -> None:
    """Nothing comes before the time that `wake_ms` says, and something may come then."""
    end = End(mode)
    end.publish(b"x")
    useful = 0
    for _ in range(12):
        wait = end.link.wake_ms(end.now_ms)
        for step in range(0, wait, max(wait // 7, 1)):
            probe = end.link.poll_into(bytearray(FRAME_SIZE), end.now_ms + step)
            assert not probe, (wait, step)
        end.now_ms += wait
        useful += bool(end.take())
    assert useful >= 6


def test_an_offer_is_asked_for_once_and_a_request_answered_once() -> None:
    end = End(INTERACTIVE)
    end.give(ids(bsp.OFFER, UNKNOWN))
    assert end.take() == {bsp.REQUEST: [UNKNOWN]}
    end.epochs(40)
    assert end.take() == {}
    own = end.publish(b"x")
    end.epochs()
    assert end.take() == {bsp.OFFER: [own]}
    end.epochs()
    end.give(ids(bsp.REQUEST, own, UNKNOWN))
    assert [bsp.message_of(each).id for each in end.take()[bsp.MESSAGE]] == [own]
    end.epochs()
    assert end.take() == {}
    end.give(ids(bsp.ACK, own))
    end.epochs(100)
    assert end.take() == {}


def test_offers_of_one_epoch_do_not_push_each_other_out() -> None:
    end = End(INTERACTIVE, offers_max=4)
    many = [bytes([number]) * 32 for number in range(1, 10)]
    end.give(ids(bsp.OFFER, *many[:6]))
    assert end.take() == {bsp.REQUEST: many[:4]}


def test_peers_have_their_own_entries_and_cells() -> None:
    node = Micro(READINGS_CLIENT_ID, b"test", peers_max=2, offers_max=4)
    links = [MicroLink(node, INTERACTIVE), MicroLink(node, BATCH)]
    with pytest.raises(AssertionError):
        MicroLink(node, BATCH)
    flood = bytearray(b"\x40" + ids(bsp.OFFER, *(bytes([n]) * 32 for n in range(1, 8))))
    links[0].receive(flood, len(flood), 0)
    one = foreign(b"one")
    frame = bytearray(b"\x40" + message(one))
    links[1].receive(frame, len(frame), 0)
    node.done(0)
    out = bytearray(FRAME_SIZE)
    size = links[1].poll_into(out, 0)
    assert bsp.records_of(bytes(out[1:size])) == [(bsp.ACK, one.id)]
    size = links[0].poll_into(out, 0)
    assert [kind for kind, _ in bsp.records_of(bytes(out[1:size]))] == [bsp.REQUEST, bsp.OFFER]


BAD = [
    b"", b"\x40", b"\x41\x01\x00\x00\x00", b"\x50" + bytes(40), b"\x40\x00\x00\x00\x20" + UNKNOWN,
    b"\x40" + ids(bsp.ACK), b"\x40\x01\x01\x00\x10" + bytes(16), b"\x40\x01\x00\xff\xff",
]  # fmt: skip


@pytest.mark.parametrize("frame", BAD)
def test_malformed_frames_are_counted(frame: bytes) -> None:
    end = End()
    assert end.link.receive(bytearray(frame), len(frame), 0) == E_PEER
    assert end.node.malformed == 1


def test_whatever_comes_is_dropped_or_taken_and_nothing_else() -> None:
    chance = random.Random(7)
    end = End(peers_max=2, messages_max=8, offers_max=8, bodies_size=512, gone_max=8)
    known = [foreign(bytes([number])) for number in range(4)]
    made = [message(each) for each in known]
    made += [ids(kind, *(each.id for each in known)) for kind in (bsp.ACK, bsp.OFFER, bsp.REQUEST)]
    sizes = len(end.node.table), len(end.node.bodies)
    for _ in range(20_000):
        if chance.random() < 0.5:
            frame = bytearray(chance.randbytes(chance.randrange(80)))
        else:
            frame = bytearray(b"\x40" + chance.choice(made))
            for _ in range(chance.randrange(3)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            frame = frame[: chance.randrange(len(frame) + 1)] if chance.random() < 0.2 else frame
        if frame and chance.random() < 0.7:
            frame[0] = 0x40
        assert end.link.receive(frame, len(frame), end.now_ms) in (OK, E_PEER)
        if chance.random() < 0.2:
            end.take()
            end.consume()
            end.epochs(chance.randrange(4))
    assert sizes == (len(end.node.table), len(end.node.bodies))
    assert end.node.malformed > 1_000 and end.node.delivered >= 4


class Wire:
    """A stream in memory that takes as much as it likes."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.coming = bytearray()
        self.takes = 1_000

    def readinto(self, buf: bytearray) -> int | None:
        part = self.coming[: len(buf)]
        del self.coming[: len(part)]
        buf[: len(part)] = part
        return len(part) or None

    def write(self, buf: bytearray, at: int, size: int) -> int | None:
        size = min(size, self.takes)
        self.sent += buf[at : at + size]
        return size or None


class Echo:
    """In place of a link: keeps what comes, sends what it is told to."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.due: list[bytes] = []

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:  # noqa: ARG002
        self.got.append(bytes(frame[:size]))
        return OK

    def poll_into(self, frame: bytearray, now_ms: int) -> int:  # noqa: ARG002
        if not self.due:
            return 0
        frame[: len(self.due[0])] = self.due[0]
        return len(self.due.pop(0))

    def wake_ms(self, now_ms: int) -> int:  # noqa: ARG002
        return 77


def frames() -> list[bytes]:
    chance = random.Random(3)
    made = [bytes(size) for size in range(1, FRAME_SIZE + 1)]
    made += [b"\xff" * size for size in range(1, FRAME_SIZE + 1)]
    made += [bytes(chance.choice(b"\0\0\1\xff") for _ in range(size)) for size in range(1, 252)]
    return made


def test_the_line_has_the_bytes_of_the_other_coder() -> None:
    link, wire = Echo(), Wire()
    line = MicroSerial(link, wire)  # type: ignore[arg-type]
    for frame in frames():
        link.due.append(frame)
        wire.takes = 7
        while line.pump(0) != 77:
            pass
        out = bytearray(wire_size_max(len(frame)) + 1)
        size = encode_into(out, frame, len(frame))
        assert bytes(wire.sent.lstrip(b"\0")) == bytes(out[:size])
        decoder = Decoder(FRAME_SIZE)
        assert decoder.feed(out, 0, size) == size and decoder.size == len(frame)
        wire.coming += wire.sent
        wire.sent.clear()
        while wire.coming:
            line.pump(0)
        assert link.got.pop() == frame
    assert line.damaged == 0


def test_damage_and_overlong_frames_are_counted_and_reading_goes_on() -> None:
    link, wire = Echo(), Wire()
    line = MicroSerial(link, wire)  # type: ignore[arg-type]
    chance = random.Random(5)
    good = bytearray(20)
    size = encode_into(good, b"a good frame", 12)
    good = good[:size]
    for noise in (bytes([255] * 300), bytes([1]), bytes([2, 9]), bytes([200, 1, 1]), b"\5abc"):
        wire.coming += noise + b"\0" + good
    for _ in range(500):
        wire.coming += bytes(chance.randrange(1, 256) for _ in range(chance.randrange(1, 400)))
        wire.coming += b"\0" + good
    while wire.coming:
        line.pump(0)
    assert link.got == [b"a good frame"] * 505
    assert line.damaged == 505


def test_a_busy_line_is_tried_again_soon_and_then_left_alone() -> None:
    link, wire = Echo(), Wire()
    line = MicroSerial(link, wire)  # type: ignore[arg-type]
    wire.takes = 0
    link.due.append(b"x")
    assert line.pump(0) == 5 and link.due
    wire.takes = 1
    assert line.pump(0) == 77
    assert wire.sent[0] == 0 and wire.sent.count(0) == 2


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("seed", range(3))
def test_with_a_device_written_from_the_text_alone(seed: int, mode: int) -> None:
    draw = Draw(seed)
    end = End(mode, messages_max=16)
    device = bsp.Device()
    device.share(GROUP, "M")
    there, back = (Line(draw, loss=300, repeat=150, reorder=200) for _ in range(2))
    taken: list[bytes] = []
    own = b""
    for turn in range(12_000):
        if turn < 80 and turn % 4 == 0:
            taken.append(end.publish(b"m%d" % turn)) if end.node.outstanding() < 8 else None
            item = foreign(b"n%d" % turn, *([own] if own else []))
            own = device.publish(item)
        end.now_ms = turn * 250
        frame = bytearray(FRAME_SIZE)
        while size := end.link.poll_into(frame, end.now_ms):
            there.send(frame, size)
        for each in device.records("M", turn // 4, mode == INTERACTIVE, 7):
            back.send(b"\x40" + each, len(each) + 1)
        for got in there.take():
            device.receive("M", got[1:])
        for got in back.take():
            assert end.link.receive(bytearray(got), len(got), end.now_ms) == OK
        taken += end.consume()
        if turn > 80 and device.is_idle("M") and not end.node.outstanding():
            break
    assert len(taken) == len(set(taken)) and set(taken) == set(device.log)
    assert not device.malformed and not device.invalid and not end.node.malformed
