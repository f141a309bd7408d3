"""Profile `compact-1` between two nodes: bytes, bad lines, contacts, falling back."""

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compact_view import Spoken
from drupelet.base.limits import COMPACT_PROBE_EPOCHS, ID_SIZE
from drupelet.engine.inbox import OFFERED
from drupelet.engine.outbox import ROW_SIZE
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_STICK,
    FAMILY_BSP,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    SHARED,
    Link,
    Node,
)
from drupelet.wire.compact.hello import COMPACT, FULL, GREETING, IN_SYNC, PLAIN
from helpers import (
    EPOCH_MS,
    ROUND_MS,
    Draw,
    Member,
    Network,
    check_causal,
    frames,
    give,
    kinds_of,
    stamp,
)
from ram_store import RamStore

ROUNDS_PER_EPOCH = EPOCH_MS // ROUND_MS
CADENCE_MS = 900_000  # a reading every 15 minutes
BAD_LINE = {"loss": 200, "repeat": 150, "reorder": 200, "flip": 20}
# docs/DESIGN.md 20: bytes per message of 100 bytes on a warm link, both directions.
BUDGETS = {
    BATCH: {1: 153, 10: 111, 100: 106, 1000: 106},
    INTERACTIVE: {1: 173, 10: 120, 100: 115, 1000: 114},
}
IN_SYNC_BYTES = 24
HELLO_SIZE = 6
both_modes = pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])


def network(
    names: str = "AB",
    mode: int = BATCH,
    pool: int = 64,
    profiles: str = "",
    salt: int = 0,
    **faults: int,
) -> Network:
    """Members in a ring; `profiles`: a letter for each member, c compact-1, p bsp-1."""
    draw = Draw(len(names) * 1000 + pool + mode)
    members = [Member(name, draw, pool=pool, offers=max(pool, 4), salt=salt) for name in names]
    edges = [names[i] + names[(i + 1) % len(names)] for i in range(len(names))]
    net = Network(draw, members, edges[: 1 if len(names) == 2 else None], mode, **faults)
    for name, letter in zip(names, profiles or "c" * len(names), strict=True):
        reconnect(net, name, PROFILE_COMPACT_1 if letter == "c" else PROFILE_BSP_1)
    return net


def reconnect(net: Network, name: str, profile: int) -> None:
    """A member's links anew, in a profile."""
    net.profile = profile
    net.members[name].node.links.clear()
    net.connect(net.members[name])


def link_of(net: Network, here: str = "A", there: str = "B") -> Link:
    link = net.members[here].links[there]
    assert isinstance(link, Link)
    return link


def codec_of(net: Network, here: str = "A", there: str = "B") -> Spoken:
    return Spoken(link_of(net, here, there))


def sent_bytes(net: Network) -> int:
    return sum(line.bytes for line in net.lines.values())


def rounds(net: Network, count: int) -> int:
    """So many rounds; the bytes that were sent."""
    before = sent_bytes(net)
    for _ in range(count):
        net.round()
    return sent_bytes(net) - before


def publish(member: Member, count: int, size: int, now_ms: int) -> None:
    """Readings of one size without dependencies, 15 minutes apart."""
    draw = random.Random(count)
    for number in range(count):
        body = b"\x00" + draw.randbytes(size - 1)
        stamp = (1_700_000_000_000 + number * CADENCE_MS).to_bytes(8, "big")
        assert member.node.publish(member.group, body, size, stamp, now_ms) > 0


@both_modes
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_bytes_per_message_stay_in_the_budget(mode: int, count: int) -> None:
    net = network(mode=mode, pool=2048)
    publish(net.members["A"], 1, 99, 0)  # the link is warm when this has come
    net.run(lambda: net.complete(1), 100)
    rounds(net, 4 * ROUNDS_PER_EPOCH)
    before = sent_bytes(net)
    publish(net.members["A"], count, 100, net.now_ms)
    net.run(lambda: net.complete(1 + count), 400)
    rounds(net, 4 * ROUNDS_PER_EPOCH)
    assert (sent_bytes(net) - before) / count <= BUDGETS[mode][count]
    for here, there in ("AB", "BA"):
        assert not codec_of(net, here, there).codec.ignored


def test_in_sync_costs_two_short_hellos_and_then_nothing() -> None:
    net = network()
    # Both have just booted: two questions that cross, two answers.
    assert rounds(net, 4 * ROUNDS_PER_EPOCH) == 4 * HELLO_SIZE <= IN_SYNC_BYTES
    assert codec_of(net).has(IN_SYNC) and codec_of(net, "B", "A").has(IN_SYNC)
    assert rounds(net, 300 * ROUNDS_PER_EPOCH) == 0, "an idle contact is silent"
    codec_of(net).greet()
    link_of(net).exchange.attention = True
    assert rounds(net, 8 * ROUNDS_PER_EPOCH) == 2 * HELLO_SIZE
    assert codec_of(net).has(IN_SYNC)
    assert rounds(net, 300 * ROUNDS_PER_EPOCH) == 0


def test_a_hello_goes_with_the_first_frames_until_it_was_read() -> None:
    net = network(salt=9)
    rounds(net, 4 * ROUNDS_PER_EPOCH)
    net.lines["B", "A"].loss = 1000
    a = net.members["A"]
    codec_of(net).greet()
    codec_of(net, "B", "A").codec.heard_store(7)
    for number in range(3):
        a.publish(b"%d" % number)
        rounds(net, 4)
    assert codec_of(net, "B", "A").peer_store_gen == 9, "though HELLO never went alone"
    assert codec_of(net).has(GREETING)
    net.lines["B", "A"].loss = 0
    net.run(lambda: net.complete(3), 100)
    rounds(net, 8 * ROUNDS_PER_EPOCH)
    assert not codec_of(net).has(GREETING)


def test_a_greeting_that_is_lost_is_repeated_and_then_given_up() -> None:
    net = network(loss=1000)
    first = rounds(net, 400 * ROUNDS_PER_EPOCH)
    # At 0, 2, 6 epochs; then each end gives compact-1 up and asks after 64, 128 ... more.
    assert 2 * 5 * HELLO_SIZE <= first <= 2 * 8 * HELLO_SIZE
    for line in net.lines.values():
        line.loss = 0
    assert net.members["A"].publish(b"at last")
    net.run(lambda: net.complete(1), 100)
    rounds(net, 8)
    assert codec_of(net).speaks == codec_of(net, "B", "A").speaks == COMPACT


@both_modes
@pytest.mark.parametrize("pool", [1, 2, 64])
def test_bad_lines_complete(mode: int, pool: int) -> None:
    net = network("ABC", mode, pool, frame_size=256, **BAD_LINE)
    count = 0
    for number in range(12):
        for member in net.members.values():
            payload = member.name.encode() + b"%d" % number + bytes(number * 9)
            assert member.publish(payload, net.now_ms)
            count += 1
        net.round()
    net.run(lambda: net.complete(count), 6000)
    for member in net.members.values():
        check_causal(member)
        assert not member.node.malformed


@pytest.mark.parametrize("seed", range(4))
def test_reboots_begin_new_generations_and_all_completes(seed: int) -> None:
    net = network("ABC", seed % 2, 8, **BAD_LINE)
    draw = Draw(seed)
    count = 0
    for number in range(30):
        name = "ABC"[draw(3)]
        member = net.members[name]
        assert member.publish(b"%d" % number, net.now_ms)
        count += 1
        rounds(net, draw(6))
        if draw(4) == 0:
            member.store.barrier()
            member.files.power_cut()
            before = codec_of(net, name, member.peers[0]).generation
            member.start()
            member.boot(net.now_ms)
            net.connect(member)
            assert codec_of(net, name, member.peers[0]).generation != before
    net.run(lambda: net.complete(count), 4000)
    for member in net.members.values():
        check_causal(member)
        assert not member.node.malformed


def test_long_messages_go_in_segments_between_compact_records() -> None:
    net = network(mode=INTERACTIVE, loss=100)
    a = net.members["A"]
    ids = [a.publish(bytes(size)) for size in (10, 3000, 952 - 1 - 32, 953, 20)]
    net.run(lambda: net.complete(5), 2000)
    assert net.members["B"].log() == ids == a.log()


# --- generations, groups, conflicts ---


def test_an_index_that_the_peer_forgot_is_told_and_announced_again() -> None:
    net = network()
    a, b = net.members["A"], net.members["B"]
    a.publish(b"1")
    net.run(lambda: net.complete(1), 50)
    codec_of(net).codec.begin_frame()
    assert codec_of(net).codec.is_announced(0)
    codec_of(net, "B", "A").codec.regroup(0)
    assert not codec_of(net, "B", "A").codec.knows(0)
    a.publish(b"2")
    net.run(lambda: net.complete(2), 100)
    assert b.log() == a.log()


def test_who_lost_its_numbers_lost_our_indices() -> None:
    """Though it holds messages of the group: the index may have been told before, and lost."""
    net = network()
    net.members["A"].publish(b"1")
    net.run(lambda: net.complete(1), 50)
    codec = codec_of(net).codec
    codec.begin_frame()
    assert codec.is_announced(0)
    codec.hear(codec.peer_generation() + 1)
    codec.confirm(0)
    assert not codec.is_announced(0)


def test_what_came_in_pieces_confirms_no_index() -> None:
    """The frame with the index was lost; what is acknowledged by its number came without it."""
    net = network(mode=INTERACTIVE)
    rounds(net, 8)
    a, b = net.members["A"], net.members["B"]
    publish(a, 1, 10, net.now_ms)
    publish(a, 1, 3000, net.now_ms)
    id = a.log()[1]
    net.lines["A", "B"].never = b"\xc0" + a.node.core.members.group_ids[:ID_SIZE]  # GROUP
    net.lines["B", "A"].never = id
    peer, handle = link_of(net).peer, a.store.find(id, 0)
    net.run(lambda: a.node.core.holds(peer, handle), 400)
    codec_of(net).codec.begin_frame()
    assert b.log() == [id] and not codec_of(net).codec.is_announced(0)


def test_numbers_that_run_out_begin_a_new_generation() -> None:
    net = network()
    a = net.members["A"]
    codec = codec_of(net)
    rounds(net, 8)
    before = codec.generation
    outbox = link_of(net).exchange.outbox
    outbox.next_number = 0x7FFF - 260
    for number in range(30):
        a.publish(b"%d" % number)
        net.round()
    net.run(lambda: net.complete(30), 200)
    assert codec.generation == before + 1
    assert codec_of(net, "B", "A").peer_generation == before + 1
    assert outbox.next_number < 40


def collide(net: Network) -> tuple[bytes, bytes]:
    """A message at B and another one at A that look alike in an 8-byte prefix."""
    a, b = net.members["A"], net.members["B"]
    mine, theirs = a.publish(b"mine"), b.publish(b"theirs")
    assert mine is not None and theirs is not None
    outbox = link_of(net, "B", "A").exchange.outbox
    b.node.core.refill(outbox.peer)
    row = outbox.find(theirs, 0)
    alike = mine[:8] + theirs[8:]
    outbox.rows[row * ROW_SIZE : row * ROW_SIZE + 4] = mine[:4]
    store, handle = b.node.store, outbox.handles[row]
    find, load, is_id, id_into = store.find, store.load, store.is_id, store.id_into

    def find_alike(id: bytes, at: int, size: int = 32) -> int:
        return handle if alike[:size] == bytes(id[at : at + size]) else find(id, at, size)

    def load_alike(other: int) -> int:
        code = load(other)
        if other == handle:
            store.id[:] = alike
        return code

    def is_alike(other: int, id: bytes, at: int, size: int) -> bool:
        same = alike[:size] == bytes(id[at : at + size])
        return same if other == handle else is_id(other, id, at, size)

    def alike_into(other: int, buf: bytearray, at: int) -> bool:
        there = id_into(other, buf, at)
        if other == handle:
            buf[at : at + 32] = alike
        return there

    store.find, store.load = find_alike, load_alike  # type: ignore[method-assign]
    store.is_id, store.id_into = is_alike, alike_into  # type: ignore[method-assign]
    return mine, theirs


def test_two_ids_with_one_prefix_are_told_apart() -> None:
    net = network(mode=INTERACTIVE)
    rounds(net, 8)
    mine, _ = collide(net)
    # B takes A's offer for its own message and acknowledges that: the fold shows it.
    for _ in range(200):
        net.round()
        if mine in net.members["B"].log():
            break
    assert mine in net.members["B"].log()
    assert codec_of(net).codec.ignored == 1 and codec_of(net).has(FULL)


def test_a_prefix_of_a_message_beyond_the_rows_is_known() -> None:
    net = network(mode=INTERACTIVE, pool=4)
    a = net.members["A"]
    first = a.publish(b"0")
    assert first is not None
    for number in range(1, 12):
        a.publish(b"%d" % number)
    net.run(lambda: net.complete(12), 400)
    assert link_of(net, "B", "A").exchange.outbox.find(first, 0) < 0
    generation = codec_of(net).generation.to_bytes(2, "big")
    frame = bytearray(b"\x44\xa0" + generation + b"\x64\x42" + first[:8])
    assert link_of(net, "B", "A").receive(frame, len(frame), net.now_ms) == 0
    # Known: acknowledged as number 100, with the fold of the whole id, and not asked for.
    out = bytearray(64)
    size = link_of(net, "B", "A").poll_into(out, net.now_ms + EPOCH_MS)
    assert out[:size] == b"\x44\x04" + generation + b"\x64" + first[8:12]


def test_a_row_that_went_before_its_ack_costs_no_other_message() -> None:
    """Copies of one message crossed: the peer's has shown that it holds it, and the row may go."""
    net = network(pool=4)
    a, b = net.members.values()
    rounds(net, 4 * ROUNDS_PER_EPOCH)  # they know each other
    for member in (a, b):  # both have it from somebody else
        member.node.publish(member.group, b"\x00both", 5, stamp(0), net.now_ms)
    publish(a, 2, 20, net.now_ms)
    net.now_ms += EPOCH_MS
    there, back = frames(net, "A", "B"), frames(net, "B", "A")
    assert give(net, "A", "B", there) == [0] and give(net, "B", "A", back) == [0]
    outbox = link_of(net).exchange.outbox
    assert outbox.count == 3 and outbox.open_count == 2
    publish(a, 4, 21, net.now_ms)
    assert outbox.count == 4 == outbox.open_count, "the row of what both have has gone"
    net.now_ms += EPOCH_MS
    assert give(net, "B", "A", frames(net, "B", "A")) == [0]
    assert codec_of(net).codec.ignored == 1 and outbox.open_count == 2


def test_a_mesh_with_few_rows_sends_no_more_than_once_is_needed() -> None:
    """60 messages of 41 bytes, four times: 105,518 bytes where such a row voids a set."""
    total = 0
    for seed in range(4):
        draw = Draw(seed * 31 + 7)
        members = [Member(name, draw, pool=16, offers=16) for name in "ABC"]
        net = Network(draw, members, ["AB", "BC", "AC"], BATCH, profile=PROFILE_COMPACT_1)
        for number in range(60):
            members[number % 3].publish(bytes((number,)) * 40, net.now_ms)
            if number % 3 == 2:
                net.round()
        net.run(partial(net.complete, 60), 400)
        total += sent_bytes(net)
    assert total <= 90_000


def test_a_message_that_came_makes_its_offer_by_prefix_void() -> None:
    net = network("AB", INTERACTIVE)
    id = bytes(range(1, 33))
    frame = bytearray(b"\x44\xa0\x00\x10\x01\x42" + id[:8])
    link_of(net, "B", "A").receive(frame, len(frame), 0)
    inbox = link_of(net, "B", "A").exchange.inbox
    assert inbox.kind(inbox.find(id[:8] + bytes(24), 0)) == OFFERED
    inbox.drop(bytearray(id), 0)
    assert not any(kinds_of(inbox))


def test_links_to_one_peer_share_the_numbers() -> None:
    net = network()
    a, b = net.members["A"], net.members["B"]
    rounds(net, 8)
    other = b.node.link(b.numbers["A"], PROFILE_COMPACT_1, CARRIER_MQTT, EPOCH_MS, BATCH)
    id = a.publish(b"came by cable, is acknowledged by radio")
    assert id is not None
    frame = bytearray(1024)
    size = link_of(net).poll_into(frame, net.now_ms + EPOCH_MS)
    assert link_of(net, "B", "A").receive(frame, size, net.now_ms) == 0
    size = other.poll_into(frame, net.now_ms + EPOCH_MS)
    generation = codec_of(net).generation.to_bytes(2, "big")
    # Its contact begins, too: a HELLO that asks, then number 1.
    assert frame[1] == 0x84 and frame[6:size] == b"\x04" + generation + b"\x01" + id[8:12]
    assert link_of(net).receive(frame, size, net.now_ms) == 0
    assert a.node.outstanding(a.numbers["B"]) == 0


def test_a_row_that_passes_to_another_peer_begins_a_new_generation() -> None:
    net = network()
    net.members["A"].publish(b"1")
    net.run(lambda: net.complete(1), 50)
    codec = codec_of(net).codec
    before = codec.generation()
    number = net.members["A"].node.core.members.peer_number(0)
    codec.meet(0, number)
    assert codec.generation() == before, "another link to the same peer"
    codec.meet(0, number + 1)
    assert codec.generation() != before and codec.peer_generation() == -1
    codec.begin_frame()
    assert not codec.is_announced(0) and not codec.knows(0)


def test_more_groups_than_indices_take_another_generation() -> None:
    node = Node(RamStore(), lambda: 0, 2, groups_max=40)
    node.join_id(bytes(32), FAMILY_BSP)
    links = [
        node.link(node.add_peer(id), PROFILE_COMPACT_1, CARRIER_MQTT, 1000, BATCH)
        for id in (b"B___", b"C___")
    ]
    one, other = Spoken(links[0]), Spoken(links[1])
    one.codec.begin_frame()
    before = one.generation
    assert [one.codec.index_of(group) for group in range(17)] == [*range(16), -1]
    one.codec.begin_frame()
    assert one.generation == before + 1 and one.codec.index_of(16) == 0
    assert other.generation == before, "its indices are its own"


def test_an_index_never_means_the_group_that_took_the_row_of_another() -> None:
    net = network()
    a, b = net.members["A"], net.members["B"]
    a.publish(b"1")
    net.run(lambda: net.complete(1), 50)
    there = codec_of(net, "B", "A")
    assert there.codec.group_row(0) == 0
    id = bytes(b.node.core.members.group_ids[:32])
    b.node.leave(b.group)
    other = b.node.join(bytes(32), b"another")
    b.node.share(other, b.numbers["A"], SHARED)
    assert b.node.core.members.group_row(other) == 0 and not there.codec.knows(0)
    unknown = b.node.core.unknown
    late = a.publish(b"2")
    net.run(lambda: b.node.core.unknown > unknown, 100)
    assert b.log() == [] and there.codec.knows(0) and there.codec.group_row(0) == -1
    b.group = b.node.join_id(id, FAMILY_BSP)
    b.node.share(b.group, b.numbers["A"], SHARED)
    net.run(lambda: late in b.log(), 300)
    assert there.codec.group_row(0) == 1


# --- a peer that lost its store ---


def test_another_store_shows_the_peer_everything_again() -> None:
    net = network(mode=INTERACTIVE, salt=7)
    a, b = net.members["A"], net.members["B"]
    for number in range(20):
        a.publish(b"%d" % number)
    net.run(lambda: net.complete(20), 100)
    rounds(net, 8)
    codec_of(net).greet()
    link_of(net).exchange.attention = True
    codec_of(net).codec.heard_store(5)  # that of the store before
    assert a.node.outstanding(a.numbers["B"]) == 0
    before = sent_bytes(net)
    rounds(net, 3)
    assert codec_of(net).peer_store_gen == 7
    net.run(lambda: net.complete(20), 100)
    # B has it all in fact: offers by prefix and one set, no messages.
    assert 20 * 8 <= sent_bytes(net) - before < 20 * 8 + 60
    assert b.node.duplicates == 0


# --- falling back ---


@both_modes
@pytest.mark.parametrize("profiles", ["cp", "pc"])
def test_an_end_that_has_only_bsp_1_works(mode: int, profiles: str) -> None:
    net = network("AB", mode, profiles=profiles, loss=100)
    count = 0
    for number in range(20):
        for member in net.members.values():
            member.publish(b"%s %d" % (member.name.encode(), number), net.now_ms)
            count += 1
        rounds(net, 2)
    net.run(lambda: net.complete(count), 2000)
    compact = "A" if profiles == "cp" else "B"
    assert codec_of(net, compact, "AB".replace(compact, "")).speaks == PLAIN


def test_a_silent_peer_is_spoken_to_in_bsp_1_and_asked_again() -> None:
    net = network("AB", profiles="cp")
    net.members["A"].publish(b"hello")
    net.run(lambda: net.complete(1), 20 * ROUNDS_PER_EPOCH)
    contact = codec_of(net)
    assert contact.speaks == PLAIN
    dropped = net.members["B"].node.malformed
    rounds(net, 63 * ROUNDS_PER_EPOCH)
    rounds(net, 140 * ROUNDS_PER_EPOCH)
    asked = net.members["B"].node.malformed - dropped
    assert 1 <= asked <= 3, "at 64 and 128 epochs"
    # The peer learns compact-1: the next question finds out.
    reconnect(net, "B", PROFILE_COMPACT_1)
    link_of(net, "B", "A").take_attention()
    codec_of(net, "B", "A").mark(GREETING, False)
    rounds(net, 300 * ROUNDS_PER_EPOCH)
    assert contact.speaks == COMPACT


def test_two_ends_that_both_gave_up_find_each_other() -> None:
    net = network()
    contacts = [codec_of(net), codec_of(net, "B", "A")]
    for line in net.lines.values():
        line.loss = 1000
    for member in net.members.values():
        member.publish(member.name.encode(), net.now_ms)
    while {contact.speaks for contact in contacts} != {PLAIN}:
        rounds(net, 1)
        assert net.now_ms < COMPACT_PROBE_EPOCHS * EPOCH_MS
    for line in net.lines.values():
        line.loss = 0
    net.run(lambda: net.complete(2), 60)
    rounds(net, 8)
    assert net.now_ms < COMPACT_PROBE_EPOCHS * EPOCH_MS, "before either end would have asked"
    assert [contact.speaks for contact in contacts] == [COMPACT, COMPACT]


def test_a_stick_carries_bsp_1_records() -> None:
    a, b = Member("A", Draw(1)), Member("B", Draw(2))
    a.peers, b.peers = ["B"], ["A"]
    for member in (a, b):
        member.add(member.peers[0])
        member.boot()
    links = [
        member.node.link(member.numbers[member.peers[0]], PROFILE_COMPACT_1, CARRIER_STICK, 0, 0)
        for member in (a, b)
    ]
    a.publish(b"1")
    frame = bytearray(1024)
    links[0].visit(0, True)
    size = links[0].poll_into(frame, 0)
    assert frame[0] == 0x40
    assert links[1].receive(frame, size, 0) == 0
    assert b.log() == a.log()


# --- what was said of another numbering ---


def holds_are_true(net: Network, ever: dict[str, set[bytes]]) -> None:
    """Nobody is believed to hold what it never held."""
    for member in net.members.values():
        id = bytearray(32)
        for handle in filter(None, member.node.core.pending.handles):
            assert member.store.id_into(handle, id, 0)
            ever[member.name].add(bytes(id))
        ever[member.name].update(member.log())
    for member in net.members.values():
        core = member.node.core
        for name in member.peers:
            peer = core.members.peer_row(member.numbers[name])
            for id in member.log():
                is_held = core.holds(peer, member.store.find(id, 0))
                assert not is_held or id in ever[name], "acknowledged what it never held"


@settings(max_examples=50)
@given(st.integers(0, 4095), st.booleans())
def test_an_old_acknowledgement_never_acknowledges_anything_new(seed: int, same: bool) -> None:
    """Frames of all times come again; `same`: and every generation has the same number."""
    draw = Draw(seed)
    net = network("AB", seed % 2, 4, loss=200, repeat=100, reorder=200)
    recorded: list[tuple[str, str, bytes]] = []
    ever: dict[str, set[bytes]] = {"A": set(), "B": set()}
    for number in range(12):
        member = net.members["AB"[draw(2)]]
        member.publish(b"%d %d" % (seed, number), net.now_ms)
        for (here, there), line in net.lines.items():
            recorded += [(here, there, bytes(frame)) for frame in line.frames]
        rounds(net, draw(4))
        holds_are_true(net, ever)
        for (here, there), line in net.lines.items():
            recorded += [(here, there, bytes(frame)) for frame in line.frames]
        if draw(4) == 0:
            member.store.barrier()
            member.files.power_cut()
            member.start()
            member.boot(net.now_ms)
            net.connect(member)
            if same:
                codec_of(net, member.name, member.peers[0]).generation = 16
        for (here, there), line in net.lines.items():
            frame = bytearray(1024)
            size = link_of(net, here, there).poll_into(frame, net.now_ms + EPOCH_MS)
            if size:
                recorded.append((here, there, bytes(frame[:size])))
                line.send(frame, size)
        for _ in range(4 if recorded else 0):
            here, there, old = recorded[draw(len(recorded))]
            again = bytearray(old)
            link_of(net, there, here).receive(again, len(again), net.now_ms)
            holds_are_true(net, ever)
    count = 12
    net.run(lambda: net.complete(count), 2000)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.booleans(), st.randoms())
def test_acknowledgements_of_the_life_before_do_nothing(
    bursts: list[int], same: bool, order: random.Random
) -> None:
    """What B told before A's reset comes again when A has given its numbers to other messages."""
    net = network("AB", pool=8)
    a = net.members["A"]
    frames_before: list[bytes] = []
    for burst in bursts:
        for number in range(burst):
            a.publish(b"before %d" % number + bytes(len(frames_before)), net.now_ms)
        for _ in range(8):
            net.round()
            frames_before += net.lines["B", "A"].frames
            frame = bytearray(1024)
            size = link_of(net, "B", "A").poll_into(frame, net.now_ms + EPOCH_MS)
            frames_before += [bytes(frame[:size])] if size else []
            link_of(net).receive(frame, size, net.now_ms)
    assert frames_before
    a.node.save(net.now_ms)
    a.store.barrier()
    a.files.power_cut()
    a.start()
    a.boot(net.now_ms)
    net.connect(a)
    net.lines["A", "B"].loss = 1000
    if same:
        codec_of(net).generation = 16
    new = [a.publish(b"after %d" % number, net.now_ms) for number in range(6)]
    rounds(net, 4)
    assert link_of(net).exchange.outbox.next_number > 6, "they have numbers"
    order.shuffle(frames_before)
    for old in frames_before:
        link_of(net).receive(bytearray(old), len(old), net.now_ms)
    for id in new:
        assert id is not None
        assert not a.node.core.holds(link_of(net).peer, a.store.find(id, 0))
