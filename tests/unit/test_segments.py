"""Messages longer than a frame: pieces over frames of any size, lost, cut and resumed."""

import pytest

from drupelet import host_api
from drupelet.base.limits import CONTENT_HEADER_SIZE, INLINE_SIZE_MAX, PART_INCOMING
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_MVDS_1,
)
from helpers import (
    EPOCH_MS,
    Draw,
    Line,
    Member,
    Network,
    frames,
    give,
    part_owners,
    stamp,
)

SIZES = [INLINE_SIZE_MAX, INLINE_SIZE_MAX + 1, 2000, 32768]
STATE = 0x51
SEGMENT = 0x50


def body_of(size: int) -> bytes:
    return b"\x00" + bytes(i * 7 & 255 for i in range(size - 1))


def publish(member: Member, size: int, number: int = 0) -> bytes:
    assert member.node.publish(member.group, body_of(size), size, stamp(number), 0) > 0
    return member.log()[-1]


def pair(mode: int = BATCH, frame_size: int = 1024, **faults: int) -> Network:
    draw = Draw(frame_size)
    members = [Member(name, draw, pool=16, offers=16, body_files_max=64) for name in "AB"]
    return Network(draw, members, ["AB"], mode, frame_size, **faults)


def has_body(member: Member, id: bytes, size: int) -> bool:
    handle = member.store.find(id, 0)
    return handle > 0 and member.body(handle) == body_of(size)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize("frame_size", [64, 222, 1024])
@pytest.mark.parametrize("size", SIZES)
def test_sizes_and_frames(size: int, frame_size: int, mode: int) -> None:
    net = pair(mode, frame_size)
    id = publish(net.members["A"], size)
    rounds = net.run(lambda: net.complete(1), 400)
    assert has_body(net.members["B"], id, size)
    line = net.lines["A", "B"]
    content = size + CONTENT_HEADER_SIZE
    pieces = content // (frame_size - 13) + 1
    assert line.bytes < content + 13 * pieces + 1500, "each byte went once"
    # 64 frames an epoch of four rounds, and a few epochs to offer, ask and acknowledge.
    assert rounds < 4 * (pieces / 64 + 5)


@pytest.mark.parametrize("loss", [100, 300])
@pytest.mark.parametrize("frame_size", [64, 1024])
def test_loss(frame_size: int, loss: int) -> None:
    net = pair(BATCH, frame_size, loss=loss, repeat=50, reorder=50)
    id = publish(net.members["A"], 32768)
    net.run(lambda: net.complete(1), 12_000)
    assert has_body(net.members["B"], id, 32768)


def test_a_flipping_line_gives_the_body_whole() -> None:
    net = pair(BATCH, 1024, flip=100)
    id = publish(net.members["A"], 20_000)
    net.run(lambda: net.complete(1), 2_000)
    assert has_body(net.members["B"], id, 20_000)


def test_many_long_messages_in_both_directions() -> None:
    net = pair(BATCH, 1024, loss=200)
    for number in range(12):
        for member in net.members.values():
            size = (953, 3000, 9000, 32768)[number % 4]
            assert member.node.publish(
                member.group, body_of(size) + member.name.encode(), size + (size < 32768),
                stamp(number + (member.name == "B") * 100), 0,
            )  # fmt: skip
    net.run(lambda: net.complete(24), 8_000)


def test_short_messages_do_not_wait_for_a_long_one() -> None:
    net = pair(BATCH, 64)
    publish(net.members["A"], 32768)
    for _ in range(8):
        net.round()
    a, b = net.members["A"], net.members["B"]
    for member in (a, b):
        body = b"\x00" + member.name.encode()
        assert member.node.publish(member.group, body, 2, stamp(9), 0) > 0
    net.run(lambda: len(a.log()) == 3 and len(b.log()) == 2, 12)
    assert net.members["B"].node.core.store.spool.part_size(PART_INCOMING) < 32768


def test_a_gap_is_reported_and_the_sender_goes_on_from_there() -> None:
    net = pair()
    publish(net.members["A"], 10_000)
    sent = frames(net, "A", "B")
    assert [frame[0] for frame in sent] == [SEGMENT] * 10
    give(net, "A", "B", sent[:3] + sent[4:])
    net.now_ms += EPOCH_MS
    (state,) = frames(net, "B", "A")
    have = 3 * (1024 - 13)
    assert state == bytes([STATE]) + sent[0][1:9] + have.to_bytes(2, "big")
    give(net, "B", "A", [state])
    rest = frames(net, "A", "B")
    assert len(rest) == 7 and int.from_bytes(rest[0][11:13], "big") == have
    give(net, "A", "B", rest)
    assert len(net.members["B"].log()) == 1


def test_lost_acknowledgement_costs_one_piece() -> None:
    net = pair()
    publish(net.members["A"], 32_000)
    sent = frames(net, "A", "B")
    give(net, "A", "B", sent)
    for _ in range(3):
        net.now_ms += EPOCH_MS
        again = frames(net, "A", "B")
        if again:
            break
    assert len(again) == 1 and again[0][0] == SEGMENT
    assert len(net.members["B"].log()) == 1
    give(net, "A", "B", again)
    assert net.members["B"].node.delivered == 1


def test_a_receiver_that_has_nothing_answers_the_last_piece() -> None:
    net = pair()
    publish(net.members["A"], 32_000)
    sent = frames(net, "A", "B")  # all lost
    net.run(lambda: net.complete(1), 40)
    assert net.lines["A", "B"].bytes < 32_000 + 33 * 13 + 3000, len(sent)


def test_cut_and_resumed_on_another_link() -> None:
    net = pair()
    a, b = net.members["A"], net.members["B"]
    id = publish(a, 32_768)
    sent = frames(net, "A", "B")
    give(net, "A", "B", sent[:20])
    for here, there in ((a, "B"), (b, "A")):
        here.links[there] = here.node.link(
            here.numbers[there], PROFILE_BSP_1, CARRIER_MQTT, EPOCH_MS, BATCH, net.now_ms
        )
    assert a.links["B"].exchange.epoch == a.node.links[0].exchange.epoch
    net.run(lambda: net.complete(1), 60)
    assert has_body(b, id, 32_768)
    assert net.lines["A", "B"].bytes < 14_500 + 2_000, "the first twenty pieces stay"
    assert not any(part_owners(b.node))


def test_a_transfer_survives_the_receivers_reboot() -> None:
    net = pair()
    a, b = net.members["A"], net.members["B"]
    id = publish(a, 32_768)
    give(net, "A", "B", frames(net, "A", "B")[:20])
    b.store.barrier()
    b.files.power_cut()
    b.start()
    b.boot()
    net.connect(b)
    net.run(lambda: net.complete(1), 80)
    assert has_body(b, id, 32_768)
    # 4,096 bytes are the flush size: all that a cut may cost beside one probe.
    assert net.lines["A", "B"].bytes < 32_768 - 20 * 1011 + 4096 + 4 * 1024


def test_a_part_that_was_whole_before_a_cut_needs_one_piece_of_any_kind() -> None:
    net = pair()
    a, b = net.members["A"], net.members["B"]
    id = publish(a, 5_000)
    pieces = frames(net, "A", "B")
    b.store.put_part = lambda *_: -2  # the power goes in it
    give(net, "A", "B", pieces)
    b.store.spool.part_drop = lambda *_: 0
    content = b"".join(piece[13:] for piece in pieces)
    b.store.spool.part_open(PART_INCOMING + id[0] % 2, id, 0, len(content))
    b.store.spool.part_append(PART_INCOMING + id[0] % 2, content, 0, len(content))
    b.files.power_cut(1 << 20)
    b.start()
    b.boot()
    net.connect(b)
    give(net, "A", "B", pieces[:1])
    assert has_body(b, id, 5_000)
    assert not any(part_owners(b.node))


def test_a_cut_that_tears_what_no_id_covers_is_no_message_of_it() -> None:
    """The id of `mvds` does not cover parents: a part from before the cut is not gone on with."""
    draw = Draw(1)
    members = [Member(name, draw, family=FAMILY_MVDS) for name in "AB"]
    net = Network(draw, members, ["AB"], profile=PROFILE_MVDS_1)
    a, b = members
    for number in range(3):
        assert a.publish(b"parent %d" % number)
    net.run(lambda: net.complete(3), 80)
    host_api.note_reads_segments(a.links["B"])
    assert a.publish(b"child" + bytes(9_000))
    net.now_ms += EPOCH_MS
    give(net, "A", "B", frames(net, "A", "B")[:6])
    b.store.barrier()
    b.files.power_cut()
    (name,) = (name for name in b.files.names() if 4096 <= b.files.size(name) < 9_000)
    torn = b.files.content(name)
    assert torn.count(a.log()[2]) == 1
    torn[torn.index(a.log()[2])] ^= 1
    b.start()
    b.boot()
    net.connect(b)
    net.run(lambda: net.complete(4), 400)
    assert b.dependencies() == a.dependencies()


def test_a_sender_that_moves_on_finds_the_receiver_still_at_the_first() -> None:
    net = pair()
    a = net.members["A"]
    publish(a, 30_000, 1)
    publish(a, 30_000, 2)
    a.links["B"].hear(net.now_ms)
    sent = frames(net, "A", "B")
    first, second = sent[:30], sent[30:]
    assert second and first[0][1:9] != second[0][1:9]
    give(net, "A", "B", first[:10] + second)
    node = net.members["B"].node
    part = PART_INCOMING + part_owners(node).index(1)
    assert node.core.store.spool.part_size(part) == 10 * 1011
    net.now_ms += EPOCH_MS
    assert frames(net, "B", "A")[0][1:9] == first[0][1:9]
    net.run(lambda: net.complete(2), 80)


def test_three_senders_share_two_parts() -> None:
    draw = Draw(9)
    members = [Member(name, draw, pool=16) for name in "RABC"]
    net = Network(draw, members, ["RA", "RB", "RC"], loss=100)
    for number, name in enumerate("ABC"):
        publish(net.members[name], 30_000, number)
    net.run(lambda: net.complete(3), 600)


def test_a_transfer_that_stands_still_gives_way() -> None:
    draw = Draw(9)
    members = [Member(name, draw, pool=16) for name in "RABC"]
    net = Network(draw, members, ["RA", "RB", "RC"])
    for number, name in enumerate("ABC"):
        publish(net.members[name], 30_000, number)
    for name in "AB":
        give(net, name, "R", frames(net, name, "R")[:15])
        net.lines[name, "R"].loss = 1000
    r = net.members["R"]
    net.run(lambda: len(r.log()) == 1, 200)
    for name in "AB":
        net.lines[name, "R"].loss = 0
    net.run(lambda: net.complete(3), 400)


def segment(key: bytes, total: int, offset: int, data: bytes) -> bytes:
    head = bytes([SEGMENT]) + key + total.to_bytes(2, "big") + offset.to_bytes(2, "big")
    return head + data


def test_pieces_that_are_none() -> None:
    net = pair()
    b = net.members["B"]
    key = b"k" * 8
    group = bytes(b.node.core.members.group_ids[:32])
    assert give(net, "A", "B", [
        segment(key, 100, 0, b""), segment(key, 40, 0, bytes(40)), segment(key, 0, 0, b"x"),
        segment(key, 100, 90, bytes(11)), segment(key, 32_809, 0, bytes(99)), b"\x50",
        bytes([STATE]), bytes([STATE]) + key + b"123", bytes([STATE]) + key,
    ]) == [-1] * 9  # fmt: skip
    assert b.node.malformed == 9 and not any(part_owners(b.node))
    # A content whose hash is another: refused, and the part is free again.
    assert give(net, "A", "B", [segment(key, 100, 0, group + bytes(68))]) == [0]
    assert b.node.malformed == 10 and not any(part_owners(b.node))
    # A group that is not shared takes no flash.
    assert give(net, "A", "B", [segment(key, 100, 0, bytes(64))]) == [0]
    assert not any(part_owners(b.node)) and b.node.core.unknown == 1
    # A state for what we never offered, and for zeros.
    assert give(net, "A", "B", [bytes([STATE]) + key + b"\x00\x01"]) == [0]
    assert give(net, "A", "B", [bytes([STATE]) + bytes(10)]) == [0]
    assert b.log() == []


def trio() -> tuple[Network, Member, bytes]:
    """R with the peers A and B; the beginning of a content of their group."""
    draw = Draw(9)
    net = Network(draw, [Member(name, draw, pool=16) for name in "RAB"], ["RA", "RB"])
    node = net.members["R"].node
    return net, net.members["R"], bytes(node.core.members.group_ids[:32]) + bytes(8)


def states(net: Network, here: str, there: str) -> list[tuple[bytes, int]]:
    """Key and length of each SEGMENT STATE that leaves in the next epoch."""
    net.now_ms += EPOCH_MS
    return [
        (frame[1:9], int.from_bytes(frame[9:], "big"))
        for frame in frames(net, here, there)
        if frame[0] == STATE
    ]


def test_a_question_takes_no_part_file_and_is_answered_behind_a_run() -> None:
    net, receiver, head = trio()
    first, other, last = b"first...", b"other...", b"last...."
    for key in (first, other):
        assert give(net, "A", "R", [segment(key, 100, 99, b"\0")]) == [0]
    assert not any(part_owners(receiver.node)) and receiver.files.size("P2.PRT") < 0
    # While another content is taken in, its length goes first.
    assert (
        give(net, "A", "R", [segment(last, 100, 0, head), segment(last, 100, 60, b"gap")])[0] == 0
    )
    assert states(net, "R", "A") == [(last, 40)]
    assert give(net, "A", "R", [segment(last, 100, 40, bytes(60))]) == [0]
    assert receiver.node.malformed == 1, "its id is not that of its content"
    assert states(net, "R", "A") == [(first, 0)]
    assert states(net, "R", "A") == []


def test_only_a_question_calls_again_for_what_was_refused() -> None:
    net, receiver, head = trio()
    key = b"k" * 8
    last = segment(key, 100, 40, bytes(60))
    assert give(net, "A", "R", [segment(key, 100, 0, head), last, last]) == [0] * 3
    assert receiver.node.malformed == 1 and states(net, "R", "A") == []
    # What another peer sends is not what was refused, though it is the same content.
    assert give(net, "B", "R", [last]) == [0] and states(net, "R", "B") == [(key, 0)]
    assert give(net, "A", "R", [segment(key, 100, 99, b"\0"), last]) == [0, 0]
    assert states(net, "R", "A") == [(key, 0)]
    assert give(net, "A", "R", [last]) == [0] and states(net, "R", "A") == []


def test_the_transfer_that_stands_still_the_longest_gives_way() -> None:
    """B and C send a payload in 40 epochs, and A, which has the other part file, is gone."""
    draw = Draw(9)
    members = [Member(name, draw, pool=16) for name in "RABC"]
    net = Network(draw, members, ["RA", "RB", "RC"], frame_size=64)
    receiver = net.members["R"]
    scratch = Member("X", draw)
    scratch.boot()
    numbers = iter(range(64))
    for name in "ABC":
        # By its key, A's content takes the second file, and B and C both look at the first one.
        is_odd = name == "A"
        number = next(n for n in numbers if publish(scratch, 9_999, n)[0] % 2 == is_odd)
        publish(net.members[name], 9_999, number)
    give(net, "A", "R", frames(net, "A", "R"))
    for _ in range(12):
        for name in "BC":
            net.now_ms += 20 * EPOCH_MS
            give(net, name, "R", frames(net, name, "R"))
            give(net, "R", name, frames(net, "R", name))
    assert len(receiver.log()) == 2


def test_the_oldest_goes_though_its_peer_answers_seldom() -> None:
    """The peer, with epochs of 12 of ours, takes in the oldest message only."""
    draw = Draw(3)
    sender, receiver = (Member(name, draw, pool=16, body_files_max=64) for name in "SR")
    net = Network(draw, [sender, receiver], ["SR"])
    receiver.links["S"] = receiver.node.link(
        receiver.numbers["S"], PROFILE_BSP_1, CARRIER_SERIAL, 12 * EPOCH_MS, BATCH, 0
    )
    oldest = publish(sender, 6_000)
    assert sender.publish(bytes(6_000))
    receiver.node.core.pending.has_room = lambda _source: False
    take_part = receiver.node.core.graph.take_part
    receiver.node.core.graph.take_part = lambda group, source, id, part: (
        take_part(group, source, id, part) if is_open and id[:8] == oldest[:8] else 0
    )
    is_open = False  # at first the receiver's log is full
    for epoch in range(400):
        net.now_ms += EPOCH_MS
        is_open = epoch > 150
        lost = epoch < 30
        if not epoch % 12:
            receiver.publish(b"reading", net.now_ms)
        for here, there in ("SR", "RS"):
            sent = frames(net, here, there)
            give(net, here, there, [] if lost else sent)
        sender.consume()
        if oldest in receiver.log():
            break
    assert oldest in receiver.log()


def test_a_state_beyond_the_end_begins_anew() -> None:
    net = pair()
    id = publish(net.members["A"], 3000)
    frames(net, "A", "B")
    give(net, "B", "A", [bytes([STATE]) + id[:8] + (3040).to_bytes(2, "big")])
    net.now_ms += EPOCH_MS
    assert int.from_bytes(frames(net, "A", "B")[0][11:13], "big") == 0


def test_lines_of_two_carriers_count_by_one_clock() -> None:
    net = pair()
    a = net.members["A"]
    slow = a.node.link(a.numbers["B"], PROFILE_BSP_1, CARRIER_MQTT, 3500, BATCH, 0)
    fast = a.links["B"]
    assert a.node.core.clocks.epoch_ms(fast.peer) == EPOCH_MS
    assert (fast.exchange.pace.every, slow.exchange.pace.every) == (1, 4)
    faster = a.node.link(a.numbers["B"], PROFILE_BSP_1, CARRIER_SERIAL, 100, BATCH, 0)
    assert a.node.core.clocks.epoch_ms(fast.peer) == 100
    every = [link.exchange.pace.every for link in (fast, slow, faster)]
    assert every == [10, 35, 1]
    slowest = a.node.link(a.numbers["B"], PROFILE_BSP_1, CARRIER_SERIAL, 1 << 28, BATCH, 0)
    assert slowest.exchange.pace.every == 511


def test_a_dead_carrier_keeps_no_message_from_a_live_one() -> None:
    net = pair()
    a = net.members["A"]
    dead = a.node.link(a.numbers["B"], PROFILE_BSP_1, CARRIER_MQTT, EPOCH_MS, BATCH, 0)
    frame = bytearray(1024)
    for number in range(20):
        a.publish(b"%d" % number)
        for _ in range(4):
            while dead.poll_into(frame, net.now_ms):
                pass
            net.round()
    net.run(lambda: net.complete(20), 40)
    assert isinstance(net.lines["A", "B"], Line)
