"""Properties that hold for all inputs: codecs, offered ids, back-off, and graphs of any shape.

What is written is read by the naive implementations of tests/naive, and the other way round.
"""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BACKOFF_EPOCHS_MAX, DEPENDENCIES_MAX, INBOX_OFFERS_MIN
from drupelet.engine.inbox import ENTRY_SIZE, OFFERED, Inbox
from drupelet.node import (
    BATCH,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
)
from drupelet.wire import bsp1, protobuf
from drupelet.wire.mvds import payload as mvds
from helpers import Draw, Member, Network, check_causal, kinds_of, stamp
from mvds_payloads import timestamp_of
from naive import bsp as naive_bsp
from naive import mvds as naive_mvds

IDS = st.binary(min_size=32, max_size=32)
UINT63 = st.integers(0, (1 << 63) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
KINDS = {0: "ack", 2: "offer", 3: "request"}
modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


class Sink:
    """A link that writes down what a codec reads, and has things to write."""

    frame_size_max = 1023
    message_group = 0

    def __init__(self, due: dict | None = None) -> None:
        self.got: list[tuple] = []
        self.due = due or {}

    def count_record(self, sent, kind, size):
        """Nothing is counted here."""

    def on_ack(self, buf, at):
        self.got.append((0, bytes(buf[at : at + 32])))

    def on_gone(self, buf, at):
        """The id of an ACK that was read twice in a row."""
        acks = [entry for entry in self.got if entry[0] == 0]
        assert acks[-2:] == [(0, bytes(buf[at : at + 32]))] * 2

    def on_offer(self, buf, at):
        self.got.append((2, bytes(buf[at : at + 32])))

    def on_request(self, buf, at):
        self.got.append((3, bytes(buf[at : at + 32])))

    def on_message(self, group, group_at, moment, moment_at, body, at, size):
        head = bytes(group[group_at : group_at + 32]), bytes(moment[moment_at : moment_at + 8])
        self.got.append((1, *head, bytes(body[at : at + size])))

    def take_ack(self, buf, at):
        return self._put(0, buf, at)

    def take_offer(self, buf, at):
        return self._put(2, buf, at)

    def take_request(self, buf, at):
        return self._put(3, buf, at)

    def _put(self, kind, buf, at):
        if not self.due.get(kind):
            return False
        buf[at : at + 32] = self.due[kind].pop(0)
        return True

    @property
    def core(self):
        group, moment, body = self.due[1][0]
        store = SimpleNamespace(size=len(body), timestamp=moment)
        return SimpleNamespace(
            store=store, members=SimpleNamespace(group_ids=group),
            frame_size_max=self.frame_size_max,
        )  # fmt: skip

    def next_message(self):
        return bool(self.due.get(1))

    def body_into(self, buf, at, offset, size):
        buf[at : at + size] = self.due[1][0][2][offset : offset + size]
        return True

    def put_message(self):
        self.due[1].pop(0)

    def too_long(self):
        raise AssertionError("no body here is too long")


contents = st.tuples(IDS, UINT63.map(lambda n: n.to_bytes(8, "big")), st.binary(max_size=120))
# An offer of another link may be known by the first 8 bytes alone: zeros stand behind them.
entries = st.lists(IDS.filter(lambda id: any(id[8:])), max_size=4)


@given(entries, entries, entries, st.lists(contents, max_size=3), st.integers(80, 1023))
def test_what_bsp1_writes_the_text_reads(acks, requests, offers, messages, limit) -> None:
    due = {0: list(acks), 3: list(requests), 2: list(offers), 1: list(messages)}
    wanted = [(0, i) for i in acks] + [(3, i) for i in requests] + [(1, *m) for m in messages]
    wanted += [(2, i) for i in offers]
    limit = max(limit, max((45 + len(body) for _, _, body in messages), default=0))
    sink = Sink(due)
    sink.frame_size_max = limit
    found = []
    for _ in range(20):
        frame = bytearray(limit)
        end = bsp1.fill(sink, frame, 1, limit)
        if end == 1:
            break
        for kind, payload in naive_bsp.records_of(bytes(frame[1:end])):
            if kind == naive_bsp.MESSAGE:
                message = naive_bsp.message_of(payload)
                moment = message.timestamp.to_bytes(8, "big")
                found.append((kind, message.group, moment, message.body))
            else:
                found += [(kind, id) for id in naive_bsp.ids_of(payload)]
    assert sorted(found) == sorted(wanted)


@given(st.lists(st.tuples(st.sampled_from([0, 2, 3]), st.lists(IDS, min_size=1, max_size=4))
                | st.tuples(st.just(1), contents) | st.tuples(st.integers(4, 255), entries),
                max_size=6), st.integers(0, 3))  # fmt: skip
def test_what_the_text_writes_bsp1_reads(parts, at) -> None:
    stream, wanted = b"", []
    for kind, value in parts:
        if kind == naive_bsp.MESSAGE:
            group, moment, body = value
            message = naive_bsp.Message(group, int.from_bytes(moment, "big"), body)
            stream += naive_bsp.record(kind, message.payload)
            wanted.append((kind, *value))
        else:
            stream += naive_bsp.record(kind, b"".join(value))
            wanted += [(kind, id) for id in value if kind in KINDS]
    sink = Sink()
    assert bsp1.parse(sink, bytearray(bytes(at) + stream), at, at + len(stream)) == OK
    assert sink.got == wanted
    cut = bytearray(bytes(at) + stream)
    if stream:
        assert bsp1.parse(Sink(), cut, at, at + len(stream) - 1) in (OK, E_PEER)


mvds_messages = st.builds(naive_mvds.Message, IDS, INT64, st.binary(max_size=120))
payloads = st.builds(
    naive_mvds.Payload, entries, entries, entries, st.lists(mvds_messages, max_size=3)
)


def read_mvds(wire: bytes) -> naive_mvds.Payload:
    """What our decoder makes of a payload of profile mvds-1."""
    found = naive_mvds.Payload()
    lists = {mvds.ACK: found.acks, mvds.OFFER: found.offers, mvds.REQUEST: found.requests}
    decoder = mvds.Payload(mvds.MVDS_1)
    decoder.open(wire, 0, len(wire))
    while (what := decoder.next()) > 0:
        if what in lists:
            lists[what].append(wire[decoder.at : decoder.at + 32])
            continue
        group = wire[decoder.group_at : decoder.group_at + decoder.group_size]
        body = wire[decoder.body_at : decoder.body_at + decoder.body_size]
        moment = int.from_bytes(timestamp_of(decoder), "little", signed=True)
        found.messages.append(naive_mvds.Message(group, moment, body))
    assert what == mvds.END and not decoder.skipped
    return found


@given(payloads, st.integers(300, 1023))
def test_mvds_1_both_ways(payload: naive_mvds.Payload, size_max: int) -> None:
    wire = b"".join(payload.entries())
    assert read_mvds(wire) == payload == naive_mvds.payload_of(wire)
    pieces = payload.pieces(size_max)
    assert b"".join(pieces) == wire and all(0 < len(piece) <= size_max for piece in pieces)
    buf = bytearray(4096)
    encoder = mvds.Payload(mvds.MVDS_1)
    encoder.open(buf, 0, len(buf))
    for what in (mvds.ACK, mvds.OFFER, mvds.REQUEST):
        for id in (payload.acks, payload.offers, payload.requests)[what - 1]:
            encoder.put_id(what, id, 0)
    for message in payload.messages:
        moment = message.timestamp.to_bytes(8, "little", signed=True)
        at = encoder.put_message(message.group, 0, 32, moment, 0, len(message.body))
        buf[at : at + len(message.body)] = message.body
    assert buf[: encoder.at] == wire


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 30) - 1))
def test_varints_both_ways(value: int, small: int) -> None:
    wire = naive_mvds.varint(value)
    assert protobuf.skip_varint(wire, 0, len(wire)) == len(wire)
    assert protobuf.get_varint(wire, 0, len(wire)) == (value if value < 1 << 30 else -1)
    buf = bytearray(10)
    end = protobuf.put_varint(buf, 0, small)
    assert naive_mvds.read_varint(bytes(buf[:end]), 0) == (small, end)
    assert end == protobuf.varint_size(small)


offers = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 3)), max_size=90)


@given(st.integers(INBOX_OFFERS_MIN, 9), offers)
def test_the_oldest_offer_of_a_peer_is_replaced(offers_max: int, steps: list) -> None:
    """4.1: the list is bounded, and the oldest entry is replaced; each peer has its own list."""
    inboxes = [Inbox() for _ in range(3)]
    for inbox in inboxes:
        inbox.resize(offers_max, 2)
    model: list[list[int]] = [[], [], []]
    epoch = 0xFFF0
    for peer, number, later in steps:
        epoch = (epoch + later) & 0xFFFF
        inboxes[peer].add(bytes([number + 1]) * 32, 0, OFFERED, epoch)
        if number not in model[peer]:
            model[peer] = [*model[peer], number][-offers_max:]
        for inbox, numbers in zip(inboxes, model, strict=True):
            held = [entry for entry, kind in enumerate(kinds_of(inbox)) if kind]
            assert {inbox.entries[ENTRY_SIZE * entry] - 1 for entry in held} == set(numbers)
            assert len(held) == len(numbers)


def departures(link, epochs: int, now_ms: int) -> list[int]:
    """The epochs in which a link sends, one poll after the other, and what lies between them."""
    frame = bytearray(1024)
    found = []
    for epoch in range(epochs):
        sent = 0
        while link.poll_into(frame, now_ms + epoch * 1000):
            sent += 1
        if sent:
            found.append(epoch)
    return [later - sooner for sooner, later in pairwise(found)]


@modes
@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_MVDS_1])
def test_back_off_to_a_silent_peer_doubles_and_a_word_from_it_ends_it(
    profile: int, mode: int
) -> None:
    """BSP 4.3 and MVDS "Retransmission": exponentially, up to a bound."""
    family = FAMILY_BSP if profile == PROFILE_BSP_1 else FAMILY_MVDS
    member = Member("A", Draw(3), family=family)
    member.peers.append("B")
    member.add("B")
    member.boot()
    assert member.publish(b"unheard")
    link = member.node.link(member.numbers["B"], profile, 0, 1000, mode)
    gaps = departures(link, 600, 1000)
    assert gaps[:6] == [2, 4, 8, 16, 32, 64]
    assert max(gaps) == BACKOFF_EPOCHS_MAX and set(gaps) <= {2, 4, 8, 16, 32, 64}
    if profile == PROFILE_BSP_1:
        assert gaps == sorted(gaps), "BSP's is capped, it never falls"
    ids = [b"\x01\x00\x00\x20", b"\x0a\x20"][profile] + b"?" * 32
    word = bytearray(bytes([0x40 | profile]) + ids)
    assert link.receive(word, len(word), 601_000) == OK
    again = departures(link, 300, 601_000)
    assert again[0] == 2 and sorted(set(again)) == [2, 4, 8, 16, 32, 64], "from its base again"


# --- graphs ---


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Parents of each message by number, always lower ones; and an order of arrival."""
    count = draw(st.integers(1, 14))
    parents = [
        draw(st.lists(st.integers(0, number - 1), max_size=DEPENDENCIES_MAX, unique=True))
        if number
        else []
        for number in range(count)
    ]
    return parents, draw(st.permutations(range(count)))


def messages_of(group: bytes, parents: list[list[int]]) -> list[naive_bsp.Message]:
    made: list[naive_bsp.Message] = []
    for number, above in enumerate(parents):
        body = bytes([len(above)]) + b"".join(made[p].id for p in above) + b"%d" % number
        made.append(naive_bsp.Message(group, number, body))
    return made


def receiver(pool: int) -> tuple[Member, object]:
    member = Member("R", Draw(1), pool=pool, offers=4)
    member.peers.append("S")
    member.add("S")
    member.boot()
    return member, member.node.link(member.numbers["S"], PROFILE_BSP_1, 0, 1000, 0)


@pytest.mark.parametrize("pool", [1, 2, 64])
@settings(max_examples=40)
@given(graph=graphs())
def test_any_graph_arrives_in_any_order(pool: int, graph: tuple) -> None:
    """5: delivered once all dependencies are, whatever the components, the order and the room."""
    parents, order = graph
    member, link = receiver(pool)
    messages = messages_of(bytes(member.node.core.members.group_ids[:32]), parents)
    frame = bytearray(1024)
    now_ms = 0
    # A small pool refuses what comes too early; its sender, unacknowledged, sends it again.
    for turn in range(1 if pool == 64 else len(messages) + 1):
        for number in order:
            record = b"\x40" + naive_bsp.record(naive_bsp.MESSAGE, messages[number].payload)
            frame[: len(record)] = record
            assert link.receive(frame, len(record), now_ms) == OK
            if turn:
                now_ms += 1000
                while link.poll_into(frame, now_ms):
                    pass
    log = member.log()
    assert sorted(log) == sorted(message.id for message in messages)
    places = {id: place for place, id in enumerate(log)}
    for number, above in enumerate(parents):
        for parent in above:
            assert places[messages[parent].id] < places[messages[number].id]
    assert member.node.pending_count() == 0 and member.node.delivered == len(messages)


@modes
@pytest.mark.parametrize("pool", [1, 2, 5])
@pytest.mark.parametrize("seed", range(2))
def test_graphs_of_several_components_cross_a_bad_line(seed: int, pool: int, mode: int) -> None:
    draw = Draw(seed * 10 + pool)
    sender, taker = Member("S", draw), Member("R", draw, pool=pool, offers=pool)
    net = Network(draw, [sender, taker], ["SR"], mode, loss=300, repeat=50, reorder=200)
    components: list[list[bytes]] = [[], [], []]
    for number in range(45):
        ids = components[draw(3)]
        parents = {ids[draw(len(ids))] for _ in range(draw(DEPENDENCIES_MAX + 1)) if ids}
        body = bytes([len(parents)]) + b"".join(sorted(parents)) + b"%d" % number
        assert sender.node.publish(sender.group, body, len(body), stamp(number), 0) > 0
        ids.append(sender.log()[-1])
    net.run(lambda: net.complete(45), 30_000)
    check_causal(taker)
    assert taker.node.pending_count() == 0 and taker.node.malformed == 0


def test_a_chain_of_200_completes_over_mvds_too() -> None:
    """test_graph.py has the same over bsp-1 with every pool in both modes."""
    pool, mode = 2, INTERACTIVE
    draw = Draw(pool + 100)
    sender = Member("S", draw, family=FAMILY_MVDS)
    taker = Member("R", draw, pool=pool, offers=pool, family=FAMILY_MVDS)
    net = Network(draw, [sender, taker], ["SR"], mode, profile=PROFILE_MVDS_1, loss=300)
    for number in range(200):
        assert sender.publish(b"%d" % number)
    net.run(lambda: net.complete(200), 60_000)
    assert taker.log() == sender.log()
