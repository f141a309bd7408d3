"""Profile `bsp-0` with the real engine: frames, byte streams, and what Briar itself wrote."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BSP0_INSISTS_MAX, BSP0_RIVAL_EPOCHS
from drupelet.clients.bsp0 import PlainClient, join
from drupelet.engine.members import FAMILY_BSP_0
from drupelet.node import BATCH, CARRIER_MQTT, CARRIER_SERIAL, INTERACTIVE, SHARED, Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.wire.bsp0 import records as bsp0
from drupelet.wire.bsp0.hash import Bsp0MessageHash
from drupelet.wire.bsp0.session import Session
from drupelet.wire.profiles import PROFILE_BSP_0
from helpers import EPOCH_MS, ROUND_MS, Draw, Network, stamp
from helpers_bsp0 import KIND, VERSIONS, Friend, friends, records, vectors

modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
FAULTS = {"loss": 300, "repeat": 100, "reorder": 100}


# --- ids ---


@given(st.binary(max_size=400), st.lists(st.integers(1, 90), max_size=8), st.integers(0, 3))
def test_an_id_in_pieces_is_the_id_of_the_whole(body: bytes, cuts: list[int], at: int) -> None:
    group, moment = b"g" * 32, bytes(range(8))
    made = Bsp0MessageHash()
    for _ in range(2):  # `start` begins anew
        made.start(bytes(at) + group, at, bytes(at) + moment, at, len(body))
        done = 0
        for cut in [*cuts, len(body)]:
            size = min(cut, len(body) - done)
            made.update(bytearray(at) + body, at + done, size)
            done += size
        out = bytearray(40)
        made.digest_into(out, at)
        assert bytes(out[at : at + 32]) == bsp0.message_id(group, moment, body)


def test_briars_ids() -> None:
    made = Bsp0MessageHash()
    out = bytearray(32)
    for message in vectors()["messages"]:
        body = bytes.fromhex(message["body"])
        moment = int(message["timestamp"]).to_bytes(8, "big")
        made.start(bytes.fromhex(message["group_id"]), 0, moment, 0, len(body))
        made.update(body, 0, len(body))
        made.digest_into(out, 0)
        assert out.hex() == message["message_id"]


# --- frames ---


@modes
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_members_completes_under_loss(mode: int, seed: int) -> None:
    draw = Draw(seed)
    made = friends(draw, 3)
    net = Network(draw, made, ["ab", "bc"], mode=mode, profile=PROFILE_BSP_0, **FAULTS)
    for index in range(30):
        assert made[index % 3].publish(bytes((index + 40,)) * (index * 9 + 1), net.now_ms)
        if index % 5 == 0:
            net.round()
    net.run(lambda: net.complete(30), 4000)


@modes
@pytest.mark.parametrize("pool", [1, 2])
def test_tiny_pools_complete(mode: int, pool: int) -> None:
    draw = Draw(pool)
    made = friends(draw, 2, pool=pool)
    net = Network(draw, made, ["ab"], mode=mode, profile=PROFILE_BSP_0, loss=300)
    for index in range(40):
        assert made[index % 2].publish(bytes((index,)), net.now_ms)
    net.run(lambda: net.complete(40), 20000)


@pytest.mark.parametrize("frame_size", [64, 1024])
def test_long_bodies_travel_in_pieces(frame_size: int) -> None:
    draw = Draw(5)
    made = friends(draw, 2)
    net = Network(
        draw, made, ["ab"], profile=PROFILE_BSP_0, loss=50, frame_size=frame_size
    )  # fmt: skip
    sizes = (1, 14, 15, 950, 952, 953, 978, 979, 980) + (32768,) * (frame_size > 64)
    for size in sizes:
        assert made[0].publish(bytes((size % 251,)) * size, net.now_ms)
    net.run(lambda: net.complete(len(sizes)), 8000)


@modes
def test_every_payload_opens_with_versions(mode: int) -> None:
    draw = Draw(2)
    made = friends(draw, 2)
    net = Network(draw, made, ["ab"], mode=mode, profile=PROFILE_BSP_0)
    frames: dict[str, list[tuple[int, bytes]]] = {"a": [], "b": []}
    for (name, _), line in net.lines.items():

        def watch(frame: bytearray, size: int, name: str = name, send: Any = line.send) -> None:
            frames[name].append((made["ab".index(name)].links["ba"["ab".index(name)]].exchange.epoch,
                                 bytes(frame[:size])))  # fmt: skip
            send(frame, size)

        line.send = watch
    for index in range(60):
        made[index % 2].publish(b"%d" % index * 20, net.now_ms)
    net.run(lambda: net.complete(60), 400)
    for sent in frames.values():
        epochs = [epoch for epoch, _ in sent]
        assert len(set(epochs)) < len(epochs), "no payload has two frames"
        for index, (epoch, frame) in enumerate(sent):
            assert frame[:1] == KIND
            kinds = [kind for kind, _ in records(frame[1:])]
            first = epoch not in epochs[:index]
            assert kinds.count(bsp0.VERSIONS) == first == (kinds[0] == bsp0.VERSIONS)
            assert bsp0.PRIORITY not in kinds, "there is one link only"
            assert len(kinds) > 1 or not first, "an opening alone"


def test_an_empty_body_is_refused_here_and_there() -> None:
    draw = Draw(1)
    made = friends(draw, 2)
    net = Network(draw, made, ["ab"], profile=PROFILE_BSP_0)
    assert made[0].publish(b"") is None
    group = made[0].group_id()
    frame = bytearray(KIND + bytes.fromhex("00010028") + group + stamp(0))
    assert made[0].links["b"].receive(frame, len(frame), 0) == E_PEER
    frame = bytearray(KIND + bytes.fromhex("00010029") + group + b"\x80" + bytes(8))
    assert made[0].links["b"].receive(frame, len(frame), 0) == E_PEER, "a negative timestamp"
    assert made[0].log() == [] and made[0].node.malformed == 2
    frame = bytearray(KIND + bytes.fromhex("00010029") + group + stamp(0) + b"\xff")
    assert made[0].links["b"].receive(frame, len(frame), 0) == OK
    assert len(made[0].log()) == 1
    net.run(lambda: made[0].node.outstanding(made[0].numbers["b"]) == 0, 40)


# --- several links to one peer ---


class Two:
    """Two members with two links; what one says over one of them may be cut off."""

    def __init__(self, seed: int, carriers: tuple[int, int] = (CARRIER_SERIAL,) * 2) -> None:
        self.rng = random.Random(seed)
        self.members = friends(Draw(seed), 2)
        self.now_ms = 0
        self.dead: set[tuple[int, int]] = set()  # sender, link
        self.links: list[list[Any]] = []
        for member, other in zip(self.members, "ba", strict=True):
            member.peers.append(other)
            member.add(other)
            member.boot()
            node, peer = member.node, member.numbers[other]
            self.links.append(
                [node.link(peer, PROFILE_BSP_0, c, EPOCH_MS, BATCH) for c in carriers]
            )

    def run(self, epochs: int) -> set[tuple[int, int]]:
        """Who sent messages over which link, as (sender, link)."""
        found = set()
        frame = bytearray(1024)
        for _ in range(epochs * EPOCH_MS // ROUND_MS):
            self.now_ms += ROUND_MS
            moving = []
            first = self.rng.randrange(2)  # neither link is always asked first
            for sender in (0, 1):
                for link in (first, 1 - first):
                    while size := self.links[sender][link].poll_into(frame, self.now_ms):
                        moving.append((sender, link, bytes(frame[:size])))
            for sender, link, got in moving:
                if any(kind == bsp0.MESSAGE for kind, _ in records(got[1:])):
                    found.add((sender, link))
                if (sender, link) not in self.dead:
                    frame[: len(got)] = got
                    self.links[1 - sender][link].receive(frame, len(got), self.now_ms)
            for member in self.members:
                member.consume()
        return found

    def talk(self, epochs: int) -> set[tuple[int, int]]:
        """The same, while both publish in every epoch."""
        found = set()
        for epoch in range(epochs):
            for number, member in enumerate(self.members):
                assert member.publish(b"%d %d %d" % (self.now_ms, epoch, number), self.now_ms)
            found |= self.run(1)
        return found

    def settle(self) -> int:
        """Talk until both ends know both nonces; the link that won."""
        self.talk(12)
        ends = [[link.codec.priority for link in links] for links in self.links]
        assert ends[0] == ends[1] and all(ends[0]) and ends[0][0] != ends[0][1]
        return int(ends[0][1] > ends[0][0])

    def finish(self) -> None:
        """Both have everything."""
        for _ in range(40):
            self.run(4)
            logs = [sorted(member.log()) for member in self.members]
            if logs[0] == logs[1]:
                return
        raise AssertionError("not complete")


seeds = pytest.mark.parametrize("seed", range(4))


@seeds
def test_of_two_links_the_one_with_the_greater_nonce_goes_on(seed: int) -> None:
    two = Two(seed)
    winner = two.settle()
    assert two.talk(20) == {(0, winner), (1, winner)}
    two.finish()


@seeds
def test_links_over_two_carriers_are_no_rivals(seed: int) -> None:
    two = Two(seed, (CARRIER_SERIAL, CARRIER_MQTT))
    two.talk(12)
    assert len(two.talk(12)) == 4
    two.finish()


@seeds
def test_a_link_speaks_again_when_the_winner_dies(seed: int) -> None:
    two = Two(seed)
    winner = two.settle()
    two.talk(4)
    two.dead = {(0, winner), (1, winner)}
    assert two.talk(BSP0_RIVAL_EPOCHS - 2) == {(0, winner), (1, winner)}
    assert (0, 1 - winner) in two.talk(8)  # whose turn an epoch is, is drawn
    two.finish()
    two.dead = set()
    two.talk(12)
    assert two.talk(12) == {(0, winner), (1, winner)}
    two.finish()


@seeds
def test_a_winner_that_works_one_way_silences_nobody(seed: int) -> None:
    two = Two(seed)
    winner = two.settle()
    two.dead = {(0, winner)}  # member 1 hears nothing there, member 0 does
    two.talk(BSP0_RIVAL_EPOCHS + 4 * BSP0_INSISTS_MAX + 8)
    assert (0, 1 - winner) in two.talk(8)
    two.finish()


@seeds
def test_a_link_that_is_made_later_meets_the_other(seed: int) -> None:
    two = Two(seed)
    for links in two.links:
        assert links[0].codec.nonce != links[1].codec.nonce
    frame = bytearray(1024)
    two.members[0].publish(b"alone", 0)
    size = two.links[0][0].poll_into(frame, 2 * EPOCH_MS)
    assert [kind for kind, _ in records(bytes(frame[1:size]))] == [bsp0.VERSIONS, bsp0.MESSAGE]
    two.now_ms = 2 * EPOCH_MS
    two.settle()


# --- streams ---


class Wire:
    """A connection: two sessions and the bytes between them, cut at any place."""

    def __init__(self, ends: "list[Any]", rivals: "list[list[Session]]", nonce: bytes) -> None:
        self.sessions = [
            Session(link, known, nonce if number == 0 else b"")
            for number, (link, known) in enumerate(zip(ends, rivals, strict=True))
        ]
        self.moving = [b"", b""]  # what an end has written
        self.said = [b"", b""]

    def step(self, now_ms: int, rate: int) -> None:
        """So many bytes go each way; an end that has written all closes its half."""
        for number, session in enumerate(self.sessions):
            while len(self.moving[number]) < rate and (piece := session.poll(now_ms)):
                self.moving[number] += piece
                self.said[number] += piece
        for number, other in enumerate(reversed(self.sessions)):
            piece = self.moving[number][:rate]
            self.moving[number] = self.moving[number][rate:]
            if piece and not other.is_over:
                assert other.feed(piece, now_ms) == OK
            if self.sessions[number].is_written and not self.moving[number]:
                other.end()

    def cut(self) -> bool:
        """Break the connection; return whether bytes were on their way, or a record incomplete."""
        codes = [session.end() for session in self.sessions]
        return any(self.moving) or E_PEER in codes

    @property
    def is_over(self) -> bool:
        return all(session.is_over for session in self.sessions)


def streams_of(
    draw: Draw, mode: int, links: int = 1, **sizes: int
) -> tuple[list[Friend], list[list[Any]]]:
    """Two members, and what each has in links for connections to the other."""
    made = friends(draw, 2, **sizes)
    ends = []
    for member, other in zip(made, "ba", strict=True):
        member.peers.append(other)
        member.add(other)
        member.boot()
        node, peer = member.node, member.numbers[other]
        ends.append(
            [node.link(peer, PROFILE_BSP_0, CARRIER_SERIAL, EPOCH_MS, mode) for _ in range(links)]
        )
    return made, ends


def have_same(made: list[Friend], count: int) -> bool:
    logs = [member.log() for member in made]
    assert all(len(set(log)) == len(log) for log in logs)
    done = all(len(log) == count for log in logs)
    return done and not any(m.node.outstanding(m.numbers[m.peers[0]]) for m in made)


@modes
@seeds
def test_connections_that_break_lose_nothing(mode: int, seed: int) -> None:
    draw = Draw(seed)
    made, ends = streams_of(draw, mode)
    rivals: list[list[Session]] = [[], []]
    total = 40
    for index in range(total):
        size = 32768 if index % 13 == 5 else draw(2000) + 1
        assert made[index % 2].publish(bytes((index + 9,)) * size, 0)
    now_ms = breaks = 0
    while not have_same(made, total):
        wire = Wire([end[0] for end in ends], rivals, bytes((draw(256),)) * 16)
        steps = draw(40) + 1
        for _ in range(steps):
            now_ms += ROUND_MS
            wire.step(now_ms, draw(4000) + 1)
            for member in made:
                member.consume()
        breaks += wire.cut()
        assert rivals == [[], []]
        for said in wire.said:
            assert said[:5] == VERSIONS
        opener = bsp0.Reader()
        opener.push(wire.said[0])
        kinds = []
        while opener.next():
            kinds.append(opener.kind)
        assert (
            kinds[:2] == [bsp0.VERSIONS, bsp0.PRIORITY] and len(set(kinds[2:]) - {0, 1, 2, 3}) == 0
        )
        assert now_ms < 4000 * EPOCH_MS, "not complete"
    assert breaks, "no connection broke within a record"


def test_of_two_connections_the_one_with_the_greater_nonce_goes_on() -> None:
    for greater in (0, 1):
        draw = Draw(greater)
        made, ends = streams_of(draw, INTERACTIVE, links=2)
        rivals: list[list[Session]] = [[], []]
        nonces = [b"\x7f" + bytes(15), b"\x80" + bytes(15)]  # compared without signs
        wires = [
            Wire([end[0] for end in ends], rivals, nonces[greater]),
            # The other end opened this one at the same time.
            Wire([end[1] for end in reversed(ends)], rivals[::-1], nonces[1 - greater]),
        ]
        winner, loser = (wires[0], wires[1]) if greater else (wires[1], wires[0])
        for index in range(20):
            made[index % 2].publish(b"%d" % index * 300, 0)
        now_ms = 0
        for _ in range(400):
            now_ms += ROUND_MS
            for wire in wires:
                wire.step(now_ms, 500)
        assert loser.is_over and not winner.is_over
        assert not any(session.is_written for session in winner.sessions)
        assert [len(known) for known in rivals] == [1, 1]
        assert have_same(made, 20)
        for said in loser.said:
            assert len(said) < 1500, "the loser went on"


def test_three_connections_leave_one() -> None:
    draw = Draw(3)
    _, ends = streams_of(draw, BATCH, links=3)
    rivals: list[list[Session]] = [[], []]
    wires = []
    for number, first in enumerate((5, 9, 7)):
        wires.append(Wire([end[number] for end in ends], rivals, bytes((first,)) * 16))
        for now_ms in range(2):
            for wire in wires:
                wire.step(now_ms, 100)
    assert [wire.is_over for wire in wires] == [True, False, True]


def test_equal_nonces_leave_both() -> None:
    _, ends = streams_of(Draw(3), BATCH, links=2)
    rivals: list[list[Session]] = [[], []]
    wires = [Wire([end[n] for end in ends], rivals, bytes(15) + b"!") for n in (0, 1)]
    for wire in wires * 2:
        wire.step(0, 100)
    assert not any(wire.is_over for wire in wires)


def test_a_nonce_from_the_end_that_accepted_is_ignored() -> None:
    made, ends = streams_of(Draw(3), BATCH, links=2)
    rivals: list[Session] = []
    ours = [Session(ends[0][0], rivals, bytes((5,)) * 16), Session(ends[0][1], rivals)]
    assert ours[0].feed(VERSIONS + bsp0.record(bsp0.PRIORITY, bytes(16)), 0) == OK
    assert ours[0].priority == bytes((5,)) * 16
    assert ours[1].feed(VERSIONS + bsp0.record(bsp0.PRIORITY, bytes((4,)) * 16), 0) == OK
    assert ours[1].is_written and not ours[0].is_written
    assert ours[1].feed(bsp0.record(bsp0.ACK, bytes(32)), 0) == OK, "it is read to its end"
    assert ours[1].poll(0) == b""
    assert ours[1].end() == OK and rivals == [ours[0]]
    assert made[0].node.malformed == 0


def test_ids_go_1536_to_a_record() -> None:
    count = 1600
    made, ends = streams_of(Draw(1), INTERACTIVE, pool=count)
    ids = [made[0].publish(b"%d" % index) for index in range(count)]
    session = Session(ends[0][0], [])
    session.feed(VERSIONS, 0)
    said = b"".join(iter(lambda: session.poll(EPOCH_MS), b""))
    offers = [payload for kind, payload in records(said) if kind == bsp0.OFFER]
    assert [len(payload) // 32 for payload in offers] == [1536, 64]
    assert [b"".join(offers)[at : at + 32] for at in range(0, 32 * count, 32)] == ids


@pytest.mark.parametrize(
    ("record", "goes_on"),
    [
        pytest.param("01000020" + "00" * 32, False, id="version 1"),
        pytest.param("01090000", False, id="version 1, unknown type"),
        pytest.param("00090003abcdef", True, id="unknown type"),
        pytest.param("00010028" + "00" * 40, False, id="empty body"),
        pytest.param("00010029" + "00" * 32 + "80" + "00" * 8, False, id="negative timestamp"),
        pytest.param("00020000", False, id="no ids"),
        pytest.param("00020021" + "00" * 33, False, id="33 bytes of ids"),
        pytest.param("0002c020", False, id="more than 48 KiB"),
        pytest.param("0004000b" + "00" * 11, False, id="11 versions"),
        pytest.param("00050011" + "00" * 17, False, id="nonce of 17"),
        pytest.param("00010029" + "11" * 41, True, id="a group that we have not"),
    ],
)
def test_what_ends_a_session(record: str, goes_on: bool) -> None:
    made, ends = streams_of(Draw(4), BATCH)
    rivals: list[Session] = []
    session = Session(ends[0][0], rivals)
    group = made[0].group_id()
    good = bsp0.record(bsp0.MESSAGE, group + stamp(1) + b"good")
    assert session.feed(VERSIONS + good[:-1], 0) == OK
    assert len(made[0].log()) == 0
    code = session.feed(good[-1:] + bytes.fromhex(record) + good.replace(b"good", b"more"), 0)
    assert code == (OK if goes_on else E_PEER)
    assert len(made[0].log()) == 1 + goes_on
    assert session.is_over != goes_on and session.is_written != goes_on
    assert made[0].node.malformed == (not goes_on)
    assert rivals == [session] * goes_on
    if not goes_on:
        assert session.poll(EPOCH_MS) == b"" and session.feed(good, 0) == E_PEER
        again = Session(ends[0][0], rivals)
        assert again.poll(EPOCH_MS) == VERSIONS
        assert [kind for kind, _ in records(again.poll(2 * EPOCH_MS))] == [bsp0.ACK]


def test_a_stream_that_ends_within_a_record() -> None:
    made, ends = streams_of(Draw(4), BATCH)
    for piece, code in ((VERSIONS, OK), (VERSIONS + b"\0", E_PEER), (b"", OK)):
        session = Session(ends[0][0], [])
        assert session.feed(piece, 0) == OK
        assert session.end() == code and session.is_over
        assert session.end() == OK
    made[0].publish(b"late")
    assert ends[0][0].poll_into(bytearray(1024), 4 * EPOCH_MS) == 0, "without a connection"
    session = Session(ends[0][0], [])
    assert session.poll(4 * EPOCH_MS) == VERSIONS
    assert [kind for kind, _ in records(session.poll(4 * EPOCH_MS))] == [bsp0.MESSAGE]
    ends[0][0].close()  # as when the peer is removed
    assert session.feed(VERSIONS, 0) == E_PEER and session.is_over


def test_what_the_peer_supports_is_kept() -> None:
    _, ends = streams_of(Draw(4), BATCH)
    session = Session(ends[0][0], [])
    assert session.peer_versions == b""
    session.feed(bsp0.record(bsp0.VERSIONS, b"\0\7"), 0)
    assert session.peer_versions == b"\0\7"


# --- what Briar wrote ---


@modes
@pytest.mark.parametrize("pieces", [[100_000], [1], [7, 1, 300]], ids=str)
def test_a_live_node_takes_in_what_briar_wrote(mode: int, pieces: list[int]) -> None:
    delivered = 0
    for number, case in enumerate(vectors()["streams"]):
        stream = bytes.fromhex(case["stream"])
        read = records(stream)
        ids = {payload[:32] for kind, payload in read if kind == bsp0.MESSAGE}
        node, link, store = briars_friend(ids, number, mode)
        session = Session(link, [])
        at = turn = 0
        while at < len(stream):
            size = pieces[turn % len(pieces)]
            assert session.feed(stream[at : at + size], turn) == OK
            at += size
            turn += 1
        assert session.peer_versions == b"\0" and not session.is_over
        wanted = {}
        for kind, payload in read:
            if kind == bsp0.MESSAGE:
                body = payload[40:]
                wanted[bsp0.message_id(payload[:32], payload[32:40], body)] = body
        log = {}
        while node.next_event():
            assert store.load(node.event_handle) == OK
            body = bytearray(store.size)
            assert store.read_into(node.event_handle, 0, body, 0, len(body)) == len(body)
            log[bytes(store.id)] = bytes(body)
            node.done(node.event_handle)
        assert log == wanted and node.malformed == 0 and node.core.unknown == 0
        delivered += len(log)
        said = b"".join(iter(lambda: session.poll(EPOCH_MS), b""))  # noqa: B023 - called here
        answers = dict(records(said)[1:])
        acks = answers.get(bsp0.ACK, b"")
        requests = answers.get(bsp0.REQUEST, b"")
        offered = {
            payload[at : at + 32]
            for kind, payload in read
            if kind == bsp0.OFFER
            for at in range(0, len(payload), 32)
        }
        assert {acks[at : at + 32] for at in range(0, len(acks), 32)} == set(wanted)
        asked = {requests[at : at + 32] for at in range(0, len(requests), 32)}
        assert asked == offered - set(wanted)
        assert said[:5] == VERSIONS and bsp0.MESSAGE not in answers
    assert delivered > 15, "the recorded streams have fewer messages"


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_session_has_the_verdict_of_briars_reader(step: int) -> None:
    for number, case in enumerate(vectors()["negative"]):
        _, link, _ = briars_friend(set(), number, BATCH)
        session = Session(link, [])
        stream = bytes.fromhex(case["stream"])
        codes = {session.feed(stream[at : at + step], 0) for at in range(0, len(stream), step)}
        verdict = case["readback"].split(" ")[-1]
        assert (E_PEER in codes) == (verdict == "ERR:FormatException")
        assert (session.end() == E_PEER) == (verdict == "ERR:EOFException")


def briars_friend(groups: set[bytes], seed: int, mode: int) -> tuple[Node, Any, FlashStore]:
    """A node in these groups, with a link to a peer that shares them."""
    draw = Draw(seed)
    store = FlashStore(RamFiles(1 << 20))
    store.open()
    node = Node(store, lambda: draw(256), peers_max=1, groups_max=len(groups) + 1)
    peer = node.add_peer(b"brir")
    for group in sorted(groups):
        known = [g for g in vectors()["groups"] if g["group_id"] == group.hex()]
        if known:
            descriptor = bytes.fromhex(known[0]["descriptor"])
            number = join(node, known[0]["client_id"], known[0]["major_version"], descriptor)
            assert node.core.members.group_of(group, 0) == node.core.members.group_row(number)
        else:
            number = node.join_id(group, FAMILY_BSP_0, 0, PlainClient())
        node.share(number, peer, SHARED)
    node.boot(0)
    link = node.link(peer, PROFILE_BSP_0, CARRIER_SERIAL, EPOCH_MS, mode)
    return node, link, store
