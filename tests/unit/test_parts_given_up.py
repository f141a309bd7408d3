"""Part files and turns that long messages give up: of who vanished, was removed, or lost them."""

import pytest

from drupelet import host_api
from drupelet.base.limits import INLINE_SIZE_MAX, PART_INCOMING
from drupelet.node import BATCH, FAMILY_BSP, FAMILY_MVDS, PROFILE_BSP_1, PROFILE_MVDS_1
from helpers import (
    EPOCH_MS,
    ROUND_MS,
    Draw,
    Line,
    Member,
    Network,
    frames,
    give,
    part_owners,
    stamp,
)

ROUNDS_PER_EPOCH = EPOCH_MS // ROUND_MS
SEGMENT = 0x50
STATE = 0x51
LONG = 30_000
# Of a body that goes in one frame, but not into a record of the store.
WIDE = INLINE_SIZE_MAX + 8
# After so many epochs what stands still gives way.
STILL_EPOCHS = 16


class Tapped(Line):
    """A line that keeps what was sent."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.said: list[bytes] = []

    def send(self, frame: bytearray, size: int) -> None:
        self.said.append(bytes(frame[:size]))
        super().send(frame, size)


def network(names: str, profile: int = PROFILE_BSP_1, frame_size: int = 1024) -> Network:
    """The first one is linked to each of the others."""
    draw = Draw(len(names))
    family = FAMILY_MVDS if profile == PROFILE_MVDS_1 else FAMILY_BSP
    members = [Member(name, draw, pool=16, offers=16, family=family) for name in names]
    edges = [names[0] + name for name in names[1:]]
    return Network(draw, members, edges, BATCH, frame_size, profile=profile)


def publish(member: Member, size: int, number: int = 0) -> bytes:
    body = b"\0" + (member.name.encode() * size)[: size - 1]
    assert member.node.publish(member.group, body, size, stamp(number), 0) > 0
    return member.log()[-1]


def begin(net: Network, names: str, there: str) -> None:
    """Each of them begins a long message, and is heard no more."""
    for number, name in enumerate(names):
        link = net.members[name].links[there]
        host_api.note_reads_segments(link)
        publish(net.members[name], LONG, number)
        give(net, name, there, frames(net, name, there)[:5])
        net.lines[name, there].loss = net.lines[there, name].loss = 1000
    rows = [net.members[there].numbers[name] for name in names]
    assert len(rows) == sum(owner > 0 for owner in part_owners(net.members[there].node))


# --- vanished ---


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_MVDS_1], ids=["bsp", "mvds"])
def test_part_files_of_peers_that_vanished_give_way_to_a_message_of_one_frame(
    profile: int,
) -> None:
    """Until they may, what finds none is refused, and that is counted."""
    net = network("RABC", profile)
    r, c = net.members["R"], net.members["C"]
    begin(net, "AB", "R")
    id = publish(c, WIDE)
    sent = frames(net, "C", "R")
    assert [frame[0] == SEGMENT for frame in sent] == [False], "in one frame"
    give(net, "C", "R", sent)
    assert r.node.refused == 1 and not r.log()
    owners = part_owners(r.node)
    net.run(lambda: not net.now_ms < STILL_EPOCHS * EPOCH_MS // 2, 100)
    assert r.node.refused > 1 and part_owners(r.node) == owners, "they still may come back"
    net.run(lambda: r.log() == [id], 6 * STILL_EPOCHS * ROUNDS_PER_EPOCH)
    assert sum(owner > 0 for owner in part_owners(r.node)) == 1, "one of them is enough"
    net.run(lambda: not c.node.outstanding(c.numbers["R"]), 4 * ROUNDS_PER_EPOCH)


def test_who_gave_a_part_file_up_begins_anew_when_it_is_back() -> None:
    net = network("RABC")
    r = net.members["R"]
    begin(net, "AB", "R")
    publish(net.members["C"], WIDE)
    net.run(lambda: len(r.log()) == 1, 6 * STILL_EPOCHS * ROUNDS_PER_EPOCH)
    for line in net.lines.values():
        line.loss = 0
    net.run(lambda: net.complete(3), 200 * ROUNDS_PER_EPOCH)


# --- removed ---


def test_what_came_in_pieces_from_a_removed_peer_holds_no_part_file() -> None:
    """Neither its own, nor that of who gets its row: it would be told of a stranger's message."""
    net = network("RABC")
    r = net.members["R"]
    begin(net, "AB", "R")
    keys = [net.members[name].log()[0][:8] for name in "AB"]
    for name in "AB":
        r.node.remove_peer(r.numbers[name])
        del net.lines["R", name], net.lines[name, "R"]
    assert not any(part_owners(r.node))
    d = Member("D", net.draw, pool=16, offers=16)
    net.members["D"] = d
    for here, there in ((r, d), (d, r)):
        here.peers.append(there.name)
        here.add(there.name)
        net.lines[here.name, there.name] = Tapped(net.draw)
    d.boot()
    net.connect(d)
    r.links["D"] = r.node.link(r.numbers["D"], PROFILE_BSP_1, 0, EPOCH_MS, BATCH, net.now_ms)
    assert r.links["D"].peer < 2, "one of the rows that are free"
    ids = [publish(net.members[name], LONG, number) for number, name in enumerate("CD")]
    net.run(lambda: sorted(r.log()) == sorted(ids), STILL_EPOCHS // 2 * ROUNDS_PER_EPOCH)
    told = net.lines["R", "D"].said
    assert not any(key in frame for key in keys for frame in told)


# --- lost ---


@pytest.mark.parametrize("left", [0, 1000])
def test_what_a_receiver_lost_or_refused_leaves_the_turn_to_another(left: int) -> None:
    """It may have been refused for want of the other one, and begins anew in any case."""
    net = network("BA", frame_size=255)
    a, b = net.members["A"], net.members["B"]
    first, second = (publish(a, LONG, number) for number in range(2))
    sent = frames(net, "A", "B")
    give(net, "A", "B", [*sent[:10], sent[29]])
    net.now_ms += EPOCH_MS
    give(net, "B", "A", frames(net, "B", "A"))
    sent = frames(net, "A", "B")
    have = b.store.spool.part_size(PART_INCOMING + part_owners(b.node).index(1))
    assert {frame[1:9] for frame in sent} == {first[:8]}
    assert int.from_bytes(sent[0][11:13], "big") == have > left
    # Then B lost what it had, or some of it: it answers the last of these.
    net.now_ms += EPOCH_MS
    give(net, "B", "A", [bytes((STATE,)) + first[:8] + left.to_bytes(2, "big")])
    assert {frame[1:9] for frame in frames(net, "A", "B")} == {second[:8]}
    net.run(lambda: net.complete(2), 60 * ROUNDS_PER_EPOCH)
