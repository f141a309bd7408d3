"""The frames of profile `bsp-0`: what is written is read, and whatever is read does no harm."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, OK, PeerError
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    BSP0_INSISTS_MAX,
    BSP0_RIVAL_EPOCHS,
    FRAME_SIZE_MAX,
)
from drupelet.node import BATCH, CARRIER_SERIAL, CARRIER_STICK, INTERACTIVE
from drupelet.wire.bsp0 import records as bsp0
from drupelet.wire.bsp0.codec import FrameCodec
from drupelet.wire.bsp0.session import Session
from drupelet.wire.profiles import PROFILE_BSP_0
from helpers import EPOCH_MS, Draw, Network, stamp
from helpers_bsp0 import KIND, VERSIONS, Friend, friends, records
from mutations import STREAMS, TRACED, mutated, no_growth

NAMES = {bsp0.ACK: "ack", bsp0.MESSAGE: "message", bsp0.OFFER: "offer", bsp0.REQUEST: "request"}
OPENING_SIZE = len(VERSIONS) + 4 + 16
POLL_EVERY = 40
FRAMES_MAX = 80
GROUP = b"group id of 32 bytes, in row one"

Event = tuple[str, bytes]


class FakeLink:
    """Gives a codec what is due, and notes what a codec read."""

    def __init__(self, visits: bool = False) -> None:
        self.core: Any = SimpleNamespace(
            store=SimpleNamespace(size=0, timestamp=bytearray(stamp(7))),
            members=SimpleNamespace(group_ids=bytearray(32) + GROUP, peer_number=lambda _: 1),
        )
        self.message_group = 1
        self.peer = 0
        self.visits = visits
        self.carrier = 0
        self.epoch = self.every = 1
        self.pace = self
        self.due: dict[str, list[bytes]] = {name: [] for name in NAMES.values()}
        self.read: list[Event] = []
        self.long: list[bytes] = []
        self.sent_size = self.read_size = 0

    def poll(self, codec: FrameCodec, limit: int, room: int = 0) -> bytes:
        """A frame as a link has it made; `room`: what a budget leaves of the limit."""
        frame = bytearray(KIND + bytes(limit - 1))
        end = codec.fill(self, frame, 1, room or limit)
        assert 1 <= end <= (room or limit)
        assert not any(frame[end:]) or end == 1
        return bytes(frame[:end]) if end > 1 else b""

    def receive(self, codec: FrameCodec, frame: bytes) -> int:
        return codec.parse(self, bytearray(frame), 1, len(frame))

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        assert 0 <= kind <= 255
        self.sent_size += size if sent else 0
        self.read_size += 0 if sent else size

    # What is read.

    def on_ack(self, buf: bytearray, at: int) -> None:
        self.read.append(("ack", bytes(buf[at : at + 32])))

    def on_gone(self, buf: bytearray, at: int) -> None:
        assert self.read[-2:] == [("ack", bytes(buf[at : at + 32]))] * 2

    def on_offer(self, buf: bytearray, at: int) -> None:
        self.read.append(("offer", bytes(buf[at : at + 32])))

    def on_request(self, buf: bytearray, at: int) -> None:
        self.read.append(("request", bytes(buf[at : at + 32])))

    def on_message(
        self, group: bytearray, group_at: int, moment: bytearray, moment_at: int,
        body: bytearray, at: int, size: int,
    ) -> None:  # fmt: skip
        content = group[group_at : group_at + 32] + moment[moment_at : moment_at + 8]
        self.read.append(("message", bytes(content + body[at : at + size])))

    # What is due.

    def _take(self, name: str, buf: bytearray, at: int) -> bool:
        if self.due[name]:
            buf[at : at + 32] = self.due[name].pop(0)
            return True
        return False

    def take_ack(self, buf: bytearray, at: int) -> bool:
        return self._take("ack", buf, at)

    def take_request(self, buf: bytearray, at: int) -> bool:
        return self._take("request", buf, at)

    def take_offer(self, buf: bytearray, at: int) -> bool:
        return self._take("offer", buf, at)

    def next_message(self) -> bool:
        if self.due["message"]:
            self.core.store.size = len(self.due["message"][0])
        return bool(self.due["message"])

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        buf[at : at + size] = self.due["message"][0][offset : offset + size]
        return True

    def put_message(self) -> None:
        self.due["message"].pop(0)

    def too_long(self) -> None:
        self.long.append(self.due["message"].pop(0))


ids = st.lists(st.binary(min_size=32, max_size=32), max_size=40)
bodies = st.lists(st.integers(1, 1100), max_size=6)


@settings(max_examples=200)
@given(ids, ids, ids, bodies, st.sampled_from([64, 100, 222, 1024, 49157]), st.booleans())
def test_what_is_written_is_read(
    acks: list[bytes], requests: list[bytes], offers: list[bytes], sizes: list[int], limit: int,
    visits: bool,
) -> None:  # fmt: skip
    sender, receiver = FakeLink(visits), FakeLink(visits)
    ours, theirs = FrameCodec(Place(sender), 0), FrameCodec(Place(receiver), 0)
    messages = [bytes((number + 1,)) * size for number, size in enumerate(sizes)]
    sender.due = {"ack": acks[:], "request": requests[:], "offer": offers[:], "message": messages}
    wanted = [*messages]
    total = 0
    for number in range(len(acks) + len(requests) + len(offers) + len(sizes) + 1):
        frame = sender.poll(ours, limit)
        if not frame:
            break
        opens = visits or number == 0
        kinds = [kind for kind, _ in records(frame[1:])]
        assert kinds.count(bsp0.VERSIONS) == opens and (kinds[0] == bsp0.VERSIONS) == opens
        assert len(kinds) > opens, "nothing but an opening"
        assert receiver.receive(theirs, frame) == OK
        total += len(frame) - 1
    assert not any(sender.due.values()) and not sender.poll(ours, limit)
    found: dict[str, list[bytes]] = {name: [] for name in NAMES.values()}
    for name, content in receiver.read:
        found[name].append(content)
    assert (found["ack"], found["request"], found["offer"]) == (acks, requests, offers)
    # What fits no frame behind an opening goes out in pieces.
    fits = [body for body in wanted if 1 + OPENING_SIZE + 44 + len(body) <= limit]
    assert set(fits) <= {content[40:] for content in found["message"]}
    assert [content[40:] for content in found["message"]] + sender.long == sorted(
        wanted, key=lambda body: (body in sender.long, wanted.index(body))
    )
    assert all(content[:40] == GROUP + stamp(7) for content in found["message"])
    assert sender.sent_size == receiver.read_size == total


class Place:
    """Stands for a core, which the codecs of a node share."""

    def __init__(self, link: FakeLink) -> None:
        self.members = link.core.members
        self.boot = 1
        self.bsp0_codecs = None


def test_a_full_record_has_1536_ids() -> None:
    link = FakeLink()
    codec = FrameCodec(Place(link), 0)
    link.due["ack"] = [number.to_bytes(32, "big") for number in range(3100)]
    frames = [link.poll(codec, 70_000) for _ in range(3)]
    counts = [[len(payload) // 32 for kind, payload in records(f[1:]) if not kind] for f in frames]
    assert counts == [[1536], [1536], [28]]


def test_what_waits_for_a_budget_is_not_too_long() -> None:
    link = FakeLink()
    codec = FrameCodec(Place(link), 0)
    link.due["message"] = [bytes(500)]
    assert link.poll(codec, 1024, 300) == b"" and not link.long
    assert len(records(link.poll(codec, 1024)[1:])) == 2


@pytest.mark.parametrize("size", [*range(940, 985)])
def test_no_size_is_stuck_behind_an_opening(size: int) -> None:
    link = FakeLink()
    codec = FrameCodec(Place(link), 0)
    link.due["message"] = [bytes(size)]
    frame = link.poll(codec, 1024)
    assert not link.due["message"]
    assert bool(frame) != bool(link.long), "in a frame, or in pieces"


def test_an_epoch_has_one_opening_even_if_nothing_was_due_at_first() -> None:
    link = FakeLink()
    codec = FrameCodec(Place(link), 0)
    assert link.poll(codec, 1024) == b"" and link.sent_size == 0
    for epoch, kinds in ((1, [4, 0]), (1, [0]), (2, [4, 0])):
        link.epoch = epoch
        link.due["ack"] = [bytes(32)]
        assert [kind for kind, _ in records(link.poll(codec, 1024)[1:])] == kinds


def rivals(first: int, second: int) -> list[tuple[FakeLink, FrameCodec]]:
    """Two codecs of one node and peer; their peers' nonces begin with these bytes."""
    core = Place(FakeLink())
    made = [(FakeLink(), FrameCodec(core, 0)) for _ in range(2)]
    for (link, codec), begin in zip(made, (first, second), strict=True):
        codec.nonce = bytes(16)
        assert link.poll(codec, 1024) == b""
        nonce = bsp0.record(bsp0.PRIORITY, bytes((begin,)) * 16)
        assert link.receive(codec, KIND + VERSIONS + nonce) == OK
    return made


@pytest.mark.parametrize(
    ("first", "second", "silent"), [(1, 2, [True, False]), (128, 127, [False, True])]
)
def test_the_loser_falls_silent_but_answers(first: int, second: int, silent: list[bool]) -> None:
    made = rivals(first, second)
    assert [codec.is_silent(link) for link, codec in made] == silent
    link, codec = made[silent.index(True)]
    link.due["offer"] = [bytes(32)]
    assert link.poll(codec, 1024) == b"" and len(link.due["offer"]) == 1
    # Openings alone are not answered: both ends may be silent.
    assert link.receive(codec, KIND + VERSIONS) == OK and link.poll(codec, 1024) == b""
    assert link.receive(codec, KIND + VERSIONS + bsp0.record(bsp0.ACK, bytes(32))) == OK
    assert [kind for kind, _ in records(link.poll(codec, 1024)[1:])] == [4, 5]
    assert link.poll(codec, 1024) == b"" and len(link.due["offer"]) == 1


@pytest.mark.parametrize(("gap", "silent"), [(1, False), (BSP0_RIVAL_EPOCHS + 1, True)])
def test_who_goes_on_over_a_link_that_lost_is_answered_there(gap: int, silent: bool) -> None:
    made = rivals(1, 2)
    (loser, ours), (winner, theirs) = made
    spoken = KIND + VERSIONS + bsp0.record(bsp0.ACK, bytes(32))
    for count in range(1, BSP0_INSISTS_MAX + 2):
        assert ours.is_silent(loser)
        loser.epoch = winner.epoch = 1 + count * gap
        winner.receive(theirs, KIND + VERSIONS)
        for _ in range(3):  # frames of one payload
            loser.receive(ours, spoken)
    assert ours.is_silent(loser) == silent
    loser.receive(ours, KIND + bsp0.record(bsp0.PRIORITY, bytes((1,)) * 15 + b"\0"))
    assert ours.is_silent(loser), "with another nonce all begins anew"


def test_equal_nonces_silence_nobody() -> None:
    assert not any(codec.is_silent(link) for link, codec in rivals(3, 3))


def test_codecs_belong_to_their_node() -> None:
    friends = [Friend(name, Draw(1)) for name in "ac"]
    for friend in friends:
        friend.add("b")
        friend.boot()
    for _ in range(2):
        friends[0].node.link(
            friends[0].numbers["b"], PROFILE_BSP_0, CARRIER_SERIAL, EPOCH_MS, BATCH
        )
    assert friends[0].node.core.bsp0_codecs.made == 2
    assert friends[1].node.core.bsp0_codecs is None


def test_a_stick_carries_it_there_and_the_acknowledgements_back() -> None:
    made = friends(Draw(6), 2)
    frame = bytearray(1024)
    links = []
    for member, other in zip(made, "ba", strict=True):
        member.peers.append(other)
        member.add(other)
        member.boot()
        peer = member.numbers[other]
        node = member.node
        links.append(node.link(peer, PROFILE_BSP_0, CARRIER_STICK, 0, INTERACTIVE))
        node.link(peer, PROFILE_BSP_0, CARRIER_STICK, 0, INTERACTIVE)
    ids = [made[0].publish(bytes((n + 1,)) * (n * 150 + 1)) for n in range(10)]
    seen = []
    for sender in (0, 1):
        links[sender].visit(0, True)
        while size := links[sender].poll_into(frame, 0):
            found = [kind for kind, _ in records(bytes(frame[1:size]))] if frame[0] == 0x45 else []
            assert not found or (found[0] == bsp0.VERSIONS and found.count(bsp0.VERSIONS) == 1)
            seen += found
            assert links[1 - sender].receive(frame, size, 0) == OK
        links[sender].commit(0)
    assert made[1].log() == ids and bsp0.ACK in seen and bsp0.PRIORITY not in seen
    assert made[0].node.outstanding(made[0].numbers["b"]) == 0


# --- any bytes ---


def sound(group: bytes) -> list[bytes]:
    """Each record by itself, and all together; the messages are of this group."""
    rng = random.Random("sound")
    parts = [VERSIONS, bsp0.record(bsp0.PRIORITY, rng.randbytes(16)), b"\x00\x09\x00\x03new"]
    parts += [bsp0.record(kind, rng.randbytes(32 * n)) for kind in (0, 2, 3) for n in (1, 4)]
    parts += [bsp0.record(1, group + stamp(n) + b"body"[: n + 1]) for n in range(4)]
    return [*parts, b"".join(parts)]


def read_by_briar(stream: bytes) -> tuple[list[Event], bool]:
    """What comes out of the whole stream, and whether it is to Briar's liking."""
    reader = bsp0.Reader()
    reader.push(stream)
    found: list[Event] = []
    try:
        while reader.next():
            if reader.kind == bsp0.MESSAGE:
                found.append(("message", reader.payload))
            elif reader.kind in NAMES:
                ids = range(0, len(reader.payload), 32)
                found += [(NAMES[reader.kind], reader.payload[at : at + 32]) for at in ids]
    except PeerError:
        return found, False
    return found, not reader.is_cut


def test_frames_are_read_as_streams_are() -> None:
    rng = random.Random("differential")
    streams = sound(GROUP)
    core = Place(FakeLink())
    verdicts = {OK: 0, E_PEER: 0}
    for _ in range(STREAMS // 4):
        stream = bytes(mutated(rng, streams, 2000))
        link = FakeLink()
        code = link.receive(FrameCodec(core, 0), KIND + stream)
        assert (link.read, code == OK) == read_by_briar(stream)
        verdicts[code] += 1
    assert min(verdicts.values()) > 1000


class Target:
    """A member, its link to a peer, and all that must not grow."""

    def __init__(self, mode: int) -> None:
        self.member = Friend("A", Draw(mode), pool=8, offers=8)
        self.member.peers.append("B")
        self.member.add("B")
        self.member.boot()
        self.own = [self.member.publish(b"own %d" % n) for n in range(3)]
        peer = self.member.numbers["B"]
        self.link = self.member.node.link(peer, PROFILE_BSP_0, CARRIER_SERIAL, EPOCH_MS, mode)
        self.now_ms = 0
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.rivals: list[Session] = []
        self.codes = {OK: 0, E_PEER: 0}

    def frame_in(self, stream: bytes) -> None:
        size = min(len(stream) + 1, FRAME_SIZE_MAX)
        self.frame[:size] = (KIND + stream)[:size]
        self.codes[self.link.receive(self.frame, size, self.now_ms)] += 1

    def stream_in(self, stream: bytes) -> None:
        session = Session(self.link, self.rivals)
        step = len(stream) // 3 + 1
        code = OK
        for at in range(0, len(stream), step):
            code = session.feed(stream[at : at + step], self.now_ms)
        self.codes[code] += 1
        session.end()
        assert not self.rivals

    def poll(self) -> None:
        self.now_ms = (self.now_ms + EPOCH_MS) & 0x3FFFFFFF
        for _ in range(FRAMES_MAX):
            size = self.link.poll_into(self.frame, self.now_ms)
            if not size:
                break
            records(bytes(self.frame[1:size]))
        assert self.link.poll_into(self.frame, self.now_ms) == 0
        self.member.consume()


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize("way", ["frame", "stream"])
def test_any_bytes_are_skipped_or_the_peers_error(way: str, mode: int) -> None:
    rng = random.Random(f"bsp-0 {way} {mode}")
    target = Target(mode)
    streams = sound(bytes(32))  # nobody's group: the log must stay as it is
    give = target.frame_in if way == "frame" else target.stream_in
    for number in range(STREAMS // 2 - TRACED):
        give(mutated(rng, streams, FRAME_SIZE_MAX - 1))
        if number % POLL_EVERY == 0 and way == "frame":
            target.poll()
    last = [mutated(rng, streams, FRAME_SIZE_MAX - 1) for _ in range(TRACED)]
    target.stream_in(VERSIONS)
    with no_growth():
        for stream in last:
            give(stream)
    assert target.member.log() == target.own
    assert min(target.codes.values()) > 1000
    malformed = target.member.node.malformed
    assert malformed == target.codes[E_PEER]


def test_what_enters_the_log_is_what_was_sound() -> None:
    rng = random.Random("sound ones")
    target = Target(BATCH)
    streams = sound(target.member.group_id())
    for number in range(4000):
        target.frame_in(mutated(rng, streams, FRAME_SIZE_MAX - 1))
        if number % POLL_EVERY == 0:
            target.poll()
    log = target.member.log()
    assert len(set(log)) == len(log) > 10 and set(target.own) <= set(log)
    store = target.member.store
    handle = store.next(0)
    while handle:
        body = target.member.body(handle)
        made = bsp0.message_id(target.member.group_id(), bytes(store.timestamp), body)
        assert made == bytes(store.id) and 0 < len(body) <= BODY_SIZE_MAX
        handle = store.next(handle)


def test_a_node_that_was_fuzzed_still_works() -> None:
    draw = Draw(4)
    made = friends(draw, 2)
    net = Network(draw, made, ["ab"], profile=PROFILE_BSP_0, flip=300)
    rng = random.Random("still")
    streams = sound(bytes(32))
    for index in range(20):
        made[index % 2].publish(b"%d" % index * 30, net.now_ms)
        for _ in range(50):
            frame = bytearray(KIND) + mutated(rng, streams, FRAME_SIZE_MAX - 1)
            made[0].links["b"].receive(frame, len(frame), net.now_ms)
        net.round()
    net.run(lambda: net.complete(20), 4000)
