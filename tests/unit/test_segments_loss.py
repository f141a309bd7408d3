"""Long messages on bad lines: several at once, small frames, both directions, tables of any size.

Every third frame is lost. What bounds the bytes: all pieces once are 1.25 of the content in frames
of 64 bytes; each was to be sent 1.43 times if the sender knew which ones are missing; it knows how
long the run from the start is, once an epoch, so that what follows a loss is sent again.
"""

import pytest

from drupelet.engine.graph import REFUSED
from drupelet.node import (
    BATCH,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from drupelet_host.member.mode_policy import AUTO, set_mode
from helpers import (
    EPOCH_MS,
    ROUND_MS,
    Draw,
    Member,
    Network,
    check_causal,
    frames,
    give,
    stamp,
)

LOSS = 300
EPOCH_ROUNDS = EPOCH_MS // ROUND_MS
MVDS = (PROFILE_MVDS_1, PROFILE_MVDS_NESTED, PROFILE_MVDS_5001)
SEGMENT = 0x50
STATE = 0x51


def network(
    names: str, edges: list[str], seed: int, pool: int = 64, profile: int = PROFILE_BSP_1,
    mode: int = BATCH, frame_size: int = 64, loss: int = LOSS,
) -> Network:  # fmt: skip
    draw = Draw(seed)
    family = FAMILY_MVDS if profile in MVDS else FAMILY_BSP
    members = [Member(name, draw, pool=pool, family=family, body_files_max=64) for name in names]
    net = Network(draw, members, edges, BATCH, frame_size, profile=profile, loss=loss)
    for member in members:
        for link in member.links.values():
            set_mode(link, mode)
    return net


def publish(member: Member, sizes: list[int]) -> int:
    """Publish bodies of these sizes; how many bytes they are."""
    for number, size in enumerate(sizes):
        assert member.publish((member.name * size).encode(), number)
    return sum(sizes)


def run(net: Network, count: int, content: int, epochs_max: int, cost_max: float) -> None:
    """Complete within these epochs, and so many bytes on the lines for each of the content."""
    net.run(lambda: net.complete(count), epochs_max * EPOCH_ROUNDS)
    for member in net.members.values():
        check_causal(member)
    sent = sum(line.bytes for line in net.lines.values())
    assert sent < cost_max * content, f"{sent / content} bytes for each"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "frame_size", "mode", "pool", "epochs_max"),
    [
        ([3900], 64, BATCH, 64, 80),
        ([3900, 3900], 64, BATCH, 64, 100),
        ([3900, 3900], 100, BATCH, 64, 80),
        ([4050, 4050, 4050], 100, INTERACTIVE, 2, 400),
        ([4050, 4050, 4050], 100, BATCH, 64, 120),
        ([4200, 4200], 64, BATCH, 64, 120),
        ([8000], 64, BATCH, 64, 120),
        ([8000, 8000], 64, BATCH, 64, 200),
        ([32_000], 64, BATCH, 64, 350),
        ([1200] * 10, 222, BATCH, 64, 90),
        ([32_000, 32_000], 1024, BATCH, 64, 200),
    ],
)
def test_one_way(
    sizes: list[int], frame_size: int, mode: int, pool: int, epochs_max: int, seed: int
) -> None:
    net = network("AB", ["AB"], seed, pool, mode=mode, frame_size=frame_size)
    run(net, len(sizes), publish(net.members["A"], sizes), epochs_max, 12)


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE, AUTO], ids=["batch", "interactive", "auto"])
@pytest.mark.parametrize(
    "profile", [PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1, PROFILE_MVDS_5001]
)
def test_both_directions_at_once(profile: int, mode: int) -> None:
    pool = (1, 2, 64)[(profile + mode) % 3]
    net = network("AB", ["AB"], pool + mode, pool, profile, mode, 80)
    content = publish(net.members["A"], [5000, 20, 1000])
    content += publish(net.members["B"], [1500, 3900])
    run(net, 5, content, 400, 18)


@pytest.mark.parametrize("pool", [1, 64])
def test_more_senders_than_part_files(pool: int) -> None:
    net = network("RABC", ["RA", "RB", "RC"], 5, pool, frame_size=222)
    content = sum(publish(net.members[name], [6000, 2000]) for name in "ABC")
    run(net, 6, 3 * content, 250, 9)


def test_a_short_beginning_does_not_give_way_to_the_next_message() -> None:
    net = network("AB", ["AB"], 1, frame_size=1024, loss=0)
    publish(net.members["A"], [3900, 3900])
    net.members["A"].links["B"].hear(net.now_ms)
    sent = frames(net, "A", "B")
    assert [frame[11:13] for frame in sent[::4]] == [b"\0\0", b"\0\0"], "one after the other"
    give(net, "A", "B", [*sent[:2], *sent[3:]])
    (state,) = frames(net, "B", "A")
    assert state == bytes([STATE]) + sent[0][1:9] + (2 * 1011).to_bytes(2, "big")


def test_after_a_loss_the_sender_asks_and_stays_with_one_message() -> None:
    net = network("AB", ["AB"], 1, frame_size=64, loss=0)
    publish(net.members["A"], [8000, 8000])
    first = frames(net, "A", "B")
    give(net, "A", "B", [first[0], *first[2:]])
    give(net, "B", "A", frames(net, "B", "A"))
    for _ in range(3):
        sent = []
        for _ in range(2 * EPOCH_ROUNDS):
            net.now_ms += ROUND_MS
            sent += frames(net, "A", "B")
        assert {frame[1:9] for frame in sent} == {first[0][1:9]}, "the other one waits"
        # Nobody answers: the last byte is sent again, twice, that is 28 bytes an epoch or less.
        asked = [frame for frame in sent if len(frame) == 14]
        assert asked and len(set(asked)) == 1
    give(net, "A", "B", asked)
    net.now_ms += EPOCH_MS
    assert frames(net, "B", "A")[0] == bytes([STATE]) + first[0][1:9] + (51).to_bytes(2, "big")
    sent = []
    for _ in range(40):
        net.now_ms += EPOCH_MS
        sent += frames(net, "A", "B")
    assert len({frame[1:9] for frame in sent}) == 2, "in vain: the other one has its turn"


def test_a_copy_is_no_question_and_a_byte_that_is_there_is_one() -> None:
    net = network("AB", ["AB"], 1, frame_size=64, loss=0)
    publish(net.members["A"], [8000])
    first, second = frames(net, "A", "B")[:2]
    give(net, "A", "B", [first, first, second, second])
    assert frames(net, "B", "A") == []
    ask = second[:11] + (101).to_bytes(2, "big") + second[-1:]
    give(net, "A", "B", [ask])
    assert frames(net, "B", "A") == [bytes([STATE]) + first[1:9] + (102).to_bytes(2, "big")]


def test_a_message_that_is_refused_keeps_none_back() -> None:
    net = network("AB", ["AB"], 3, frame_size=100)
    a, b = net.members["A"], net.members["B"]
    for number in (1, 2):
        body = bytes([0, number]) + bytes(3000)
        assert a.node.publish(a.group, body, len(body), stamp(number), 0) > 0
    refused, other = a.log()
    take_part = b.node.core.graph.take_part

    def take(group: int, source: int, id: bytearray, part: int) -> int:
        if bytes(id[:32]) == refused and not b.log():
            return REFUSED
        return take_part(group, source, id, part)

    b.node.core.graph.take_part = take  # type: ignore[method-assign]
    net.run(lambda: net.complete(2), 400 * EPOCH_ROUNDS)
    assert b.log() == [other, refused]
