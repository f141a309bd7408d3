"""A dense graph goes from a log in no order to tables of a few entries, and always arrives whole.

The receiver asks for what is too early for it; the way to the first in its past has many steps,
and neither other parents nor offers may lead it round in a circle.
"""

import pytest

from drupelet.base.errors import OK
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    SHARED,
    Link,
    Node,
)
from helpers import EPOCH_MS, Draw, stamp
from ram_store import RamStore
from repeats import few

COUNT = 14
# Parents are among so many messages before.
NEAR = 10
STEP_MS = EPOCH_MS // 2
EPOCHS_MAX = 1_500
FRAMES_MAX = 64
# Rows for messages, of which as many may wait, and entries for offers, of which 4 are the fewest.
TABLES = [(1, 4), (2, 4), (3, 4), (4, 4), (4, 6)]


def member(draw: Draw, peers: list[str], pool: int, offers: int) -> tuple[Node, int, list[int]]:
    """A node of a group, its group and its peers."""
    node = Node(RamStore(), lambda: draw(256), len(peers), 1, pool, offers)
    group = node.join(READINGS_CLIENT_ID, b"dense")
    return node, group, [node.add_peer(peer.encode() * 4) for peer in peers]


def connect(
    here: Node, there: Node, numbers: tuple[int, int], profile: int, mode: int, now_ms: int
) -> tuple[Link, Link]:
    """A line between two nodes, each with its number of the other."""
    links = []
    for node, number in zip((here, there), numbers, strict=True):
        link = node.link(number, profile, CARRIER_SERIAL, EPOCH_MS, mode, now_ms)
        assert isinstance(link, Link)
        links.append(link)
    return links[0], links[1]


def publish_dense(node: Node, group: int, draw: Draw) -> None:
    """Messages, each behind some of those just before it."""
    ids: list[bytes] = []
    for number in range(COUNT):
        near = ids[-NEAR:]
        count = min(len(near), (1, 1, 2, 3, 5, 8)[draw(6)])
        parents = [near.pop(draw(len(near))) for _ in range(count)]
        body = bytes((count,)) + b"".join(parents) + b"reading %d" % number
        handle = node.publish(group, body, len(body), stamp(number), 0)
        assert handle > 0 and node.store.load(handle) == OK
        ids.append(bytes(node.store.id))


def run(links: tuple[Link, Link], draw: Draw, loss: int, now_ms: int, count: int) -> int:
    """Until the second node has delivered so many; the time then. `loss`: of 1,000 frames."""
    frame = bytearray(1024)
    for step in range(EPOCHS_MAX * EPOCH_MS // STEP_MS):
        if links[1].core.delivered >= count:
            return now_ms + step * STEP_MS
        for link, other in (links, links[::-1]):
            for _ in range(FRAMES_MAX):
                size = link.poll_into(frame, now_ms + step * STEP_MS)
                if not size:
                    break
                if draw(1000) >= loss:
                    other.receive(bytearray(frame[:size]), size, now_ms + step * STEP_MS)
    raise AssertionError("not whole in time", links[1].core.delivered, count)


@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1], ids=["bsp-1", "compact-1"])
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
@pytest.mark.parametrize(("pool", "offers"), TABLES)
@pytest.mark.parametrize("seeds", few(1, (15, 60)))
def test_a_dense_graph_arrives_whole(
    pool: int, offers: int, mode: int, profile: int, seeds: int
) -> None:
    for seed in range(seeds):
        draw = Draw(seed)
        author, group, to_relay = member(draw, ["R"], 64, 64)
        relay, relayed, of_relay = member(draw, ["A", "B"], 16, 16)
        board, on_board, to_board = member(draw, ["R"], pool, offers)
        author.share(group, to_relay[0], SHARED)
        relay.share(relayed, of_relay[0], SHARED)
        for node in (author, relay, board):
            node.boot(0)
        publish_dense(author, group, draw)
        # What is lost on the way puts the relay's log in no order.
        line = connect(author, relay, (to_relay[0], of_relay[0]), PROFILE_BSP_1, mode, 0)
        now_ms = run(line, draw, 200, 0, COUNT)
        relay.share(relayed, of_relay[1], SHARED)
        board.share(on_board, to_board[0], SHARED)
        line = connect(relay, board, (of_relay[1], to_board[0]), profile, mode, now_ms)
        run(line, draw, (0, 0, 100, 300)[draw(4)], now_ms, COUNT)


def test_the_oldest_long_message_has_every_other_turn_whichever_the_peer_asks_for() -> None:
    """In between goes the one that left longest ago: a peer may refuse the oldest, too."""
    node, group, (peer,) = member(Draw(1), ["R"], 8, 8)
    node.share(group, peer, SHARED)
    node.boot(0)
    body = bytes(2000)
    for number in range(4):
        assert node.publish(group, body, len(body), stamp(number), 0) > 0
    link = node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, BATCH)
    assert isinstance(link, Link)
    outbox = link.exchange.outbox
    link.poll_into(bytearray(1024), 40 * EPOCH_MS)
    chosen = [outbox.row_of(link.exchange.long_handle)]
    for ages in ((9, 0, 0, 0), (9, 8, 7, 6), (7, 9, 0, 0), (0, 8, 0, 7), (7, 8, 9, 9)):
        for row, age in enumerate(ages):
            assert outbox.is_open(row)
            outbox.note_sent(row, int(age > 0), (link.exchange.epoch - age) & 0xFFFF)
        link.core.long.end(link.exchange)
        link.exchange.rewind()
        while link.exchange.next_message():
            link.exchange.too_long()
        chosen.append(outbox.row_of(link.exchange.long_handle))
    assert chosen == [0, 1, 0, 1, 0, 2]
