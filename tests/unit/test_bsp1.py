"""Profile bsp-1: every byte of a record, and what becomes of bytes that are none."""

import random
import struct
from types import SimpleNamespace

import pytest

from drupelet.base.errors import E_PEER, OK
from drupelet.wire import bsp1
from helpers import Draw, Member

IDS = [bytes([i]) * 32 for i in range(1, 40)]


def record(kind: int, payload: bytes, version: int = 1, length: int | None = None) -> bytes:
    return struct.pack(">BBH", version, kind, len(payload) if length is None else length) + payload


class Notes:
    """A link that writes down what a profile reads, and has a list of things to write."""

    message_group = 0

    def __init__(self, acks=(), requests=(), offers=(), messages=()) -> None:
        self.got: list[tuple] = []
        self.counted: list[tuple[bool, int, int]] = []
        self.acks, self.requests, self.offers = list(acks), list(requests), list(offers)
        self.messages = list(messages)
        self.long: list[bytes] = []
        self.gone: list[bytes] = []

    def count_record(self, sent, kind, size):
        self.counted.append((sent, kind, size))

    def _id(self, name, buf, at):
        self.got.append((name, bytes(buf[at : at + 32])))

    def on_ack(self, buf, at):
        self._id("ack", buf, at)

    def on_gone(self, buf, at):
        self.gone.append(bytes(buf[at : at + 32]))

    def on_offer(self, buf, at):
        self._id("offer", buf, at)

    def on_request(self, buf, at):
        self._id("request", buf, at)

    def on_message(self, group, group_at, stamp, stamp_at, body, at, size):
        head = bytes(group[group_at : group_at + 32]) + bytes(stamp[stamp_at : stamp_at + 8])
        self.got.append(("message", head + bytes(body[at : at + size])))

    @staticmethod
    def _take(ids, buf, at):
        if not ids:
            return False
        buf[at : at + 32] = ids.pop(0)
        return True

    def take_ack(self, buf, at):
        return self._take(self.acks, buf, at)

    def take_request(self, buf, at):
        return self._take(self.requests, buf, at)

    def take_offer(self, buf, at):
        return self._take(self.offers, buf, at)

    # What a codec reads of the message that is due, as the core of an exchange gives it.
    @property
    def core(self):
        content = self.messages[0]
        store = SimpleNamespace(size=len(content) - 40, timestamp=content[32:40])
        members = SimpleNamespace(group_ids=content[:32])
        return SimpleNamespace(store=store, members=members)

    def next_message(self):
        return bool(self.messages)

    def body_into(self, buf, at, offset, size):
        body = self.messages[0][40:]
        buf[at : at + size] = body[offset : offset + size]
        return True

    def put_message(self):
        self.left = self.messages.pop(0)

    def too_long(self):
        self.long.append(self.messages.pop(0))


def read(wire: bytes) -> tuple[int, Notes]:
    notes = Notes()
    return bsp1.parse(notes, bytearray(wire), 0, len(wire)), notes


def test_what_is_written_is_read() -> None:
    content = bytes(32) + struct.pack(">Q", 1) + b"body"
    empty = bytes(40)
    notes = Notes(IDS[:2], IDS[2:4], IDS[4:6], [content, empty])
    frame = bytearray(1024)
    end = bsp1.fill(notes, frame, 0, 1024)
    wire = bytes(frame[:end])
    assert wire == (
        record(0, IDS[0] + IDS[1]) + record(3, IDS[2] + IDS[3]) + record(1, content)
        + record(1, empty) + record(2, IDS[4] + IDS[5])
    )  # fmt: skip
    assert sum(size for _, _, size in notes.counted) == end
    code, got = read(wire)
    assert code == OK
    assert got.got == [
        *[("ack", id) for id in IDS[:2]], *[("request", id) for id in IDS[2:4]],
        ("message", content), ("message", empty), *[("offer", id) for id in IDS[4:6]],
    ]  # fmt: skip
    assert sum(size for _, _, size in got.counted) == end


def test_nothing_due_writes_nothing() -> None:
    frame = bytearray(b"\xaa" * 64)
    assert bsp1.fill(Notes(), frame, 3, 64) == 3


@pytest.mark.parametrize("limit", range(36, 140))
def test_a_frame_takes_what_fits(limit: int) -> None:
    notes = Notes(IDS[:9], IDS[9:18], IDS[18:27], [bytes(45)])
    frame = bytearray(limit)
    end = bsp1.fill(notes, frame, 0, limit)
    assert 0 < end <= limit
    code, got = read(bytes(frame[:end]))
    assert code == OK and len(got.got) == 28 - sum(
        map(len, (notes.acks, notes.requests, notes.offers, notes.messages, notes.long))
    )
    assert not notes.long or limit < 50


MALFORMED = {
    "version 0": record(0, IDS[0], version=0),
    "version 2": record(0, IDS[0], version=2),
    "no ids": record(0, b""),
    "no offers": record(2, b""),
    "no requests": record(3, b""),
    "an id and a byte": record(3, IDS[0] + b"x"),
    "an id less a byte": record(2, IDS[0][:-1]),
    "cut in its payload": record(0, IDS[0] + IDS[1])[:-1],
    "cut in its header": record(0, IDS[0])[:3],
    "length beyond the frame": record(1, bytes(44), length=45),
    "message without a timestamp": record(1, bytes(39)),
    "body of 32,769 bytes": record(1, bytes(40 + 32769)),
    "negative timestamp": record(1, bytes(32) + b"\xff" * 8 + b"body"),
    "least negative timestamp": record(1, bytes(32) + b"\x80" + bytes(7)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    good = record(2, IDS[5])
    # Where a record is cut, the bytes behind it would only fill it up.
    behind = b"" if "cut" in name or "beyond" in name else good
    code, notes = read(good + MALFORMED[name] + behind)
    assert code == E_PEER
    assert notes.got == [("offer", IDS[5])], "what came before is used, what follows is not"


@pytest.mark.parametrize("kind", [4, 5, 127, 255])
@pytest.mark.parametrize("size", [0, 1, 33])
def test_unknown_types_are_skipped_by_length(kind: int, size: int) -> None:
    code, notes = read(record(kind, bytes(size)) + record(2, IDS[0]))
    assert code == OK and notes.got == [("offer", IDS[0])]


def test_the_largest_of_everything() -> None:
    code, notes = read(record(0, bytes(range(1, 33)) * 2047))
    assert code == OK and len(notes.got) == 2047 and len(notes.gone) == 2046
    code, notes = read(record(1, bytes(32) + b"\x7f" + b"\xff" * 7 + bytes(32768)))
    assert code == OK and len(notes.got[0][1]) == 40 + 32768


def test_an_ack_of_the_same_id_twice_in_a_row_says_that_it_is_gone() -> None:
    one, other = IDS[:2]
    for ids, gone in (
        ([one, other, one], []), ([one, one], [one]), ([other, one, one, other], [one]),
    ):  # fmt: skip
        code, notes = read(record(0, b"".join(ids)))
        assert code == OK and notes.got == [("ack", id) for id in ids] and notes.gone == gone
    for kind in (2, 3):
        assert read(record(kind, one + one))[1].gone == []
    assert read(record(0, one) + record(0, one))[1].gone == [one], "whatever records they are in"


def state_of(member: Member) -> tuple:
    core = member.node.core
    outbox, inbox = core.outboxes[0], core.inboxes[0]
    rows = (outbox.rows, outbox.handles, inbox.entries, core.pending.rows)
    return (*map(len, rows), core.members.peers)


def test_fuzz() -> None:
    """10,000 streams of noise, cut, flipped and shuffled records: a code, never an exception."""
    rng = random.Random(1)
    member = Member("A", Draw(1), pool=8, offers=8)
    member.peers.append("B")
    member.add("B")
    member.boot()
    own = [member.publish(b"x") for _ in range(3)]
    link = member.node.link(member.numbers["B"], 0, 0, 1000, 0)
    group = bytes(member.node.core.members.group_ids[:32])
    size = state_of(member)
    frame = bytearray(1024)
    parts = [
        lambda: rng.randbytes(rng.randrange(60)),
        lambda: record(rng.randrange(5), b"".join(rng.choices(IDS + own, k=rng.randrange(4)))),
        lambda: record(1, group + bytes(8) + rng.randbytes(rng.randrange(200))),
        lambda: record(1, rng.randbytes(rng.randrange(80))),
        lambda: record(rng.choice([0, 2, 3]), bytes(32 * rng.randrange(3))),
    ]
    for step in range(10_000):
        body = bytearray(b"".join(rng.choice(parts)() for _ in range(rng.randrange(1, 5))))
        for _ in range(rng.randrange(3)):
            if body:
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        body = bytearray([rng.choice([0x40, 0x40, 0x40, 0x50, 0x51, rng.randrange(256)])]) + body
        got = min(len(body), len(frame))
        frame[:got] = body[:got]
        assert link.receive(frame, got, step * 100) in (OK, E_PEER, -2)
        if step % 50 == 0:
            while link.poll_into(frame, step * 100):
                pass
            member.consume()
    assert state_of(member) == size
    assert len(set(member.log())) == len(member.log())
    assert set(own) <= set(member.log())
    outbox = member.node.core.outboxes[0]
    assert outbox.open_count == sum(map(outbox.is_open, range(outbox.count)))
