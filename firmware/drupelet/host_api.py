# host only: boards ask Node and Link themselves
"""What hosts and tools ask of a node beside what `Node` and `Link` offer, in plain Python values.

They reach no deeper into the core than this (tests/test_tidy.py). Peers and groups are given by
their numbers, a message by its handle or its 32-byte id. What is returned is a copy: it stays as
it is, whatever the node does next.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX, ID_SIZE
from drupelet.engine import oversize, wake_state
from drupelet.engine.group_family import keep_family
from drupelet.engine.members import FAMILY_BSP, SHARED
from drupelet.engine.pace import ACKS, TRIP_EPOCHS
from drupelet.wire.compact.codec import Compact1

if TYPE_CHECKING:
    from drupelet.duty.snapshot import Snapshot
    from drupelet.duty.wake_plan import WakePlan
    from drupelet.engine.core import Core
    from drupelet.link.link import Link
    from drupelet.link.stick_visit import BundleLink
    from drupelet.node import Node
    from drupelet.store.ports import StorePort


# --- the log ---


class Message(NamedTuple):
    """What a store knows of a message, its body apart."""

    handle: int
    id: bytes  # 32
    group: int  # number
    source: int  # number of the peer that sent it, 0: it is our own
    timestamp: bytes  # 8, in the order of its family
    size: int  # bytes of the stored body
    state: int  # `drupelet.store.states`
    is_private: bool  # its client keeps it from the peers
    edges_size: int  # bytes of dependencies that are left of a deleted one


def message(store: "StorePort", handle: int) -> Message | None:
    """A message by its handle; None: the store has none, or cannot read it."""
    if store.load(handle) != OK:
        return None
    return Message(
        handle, bytes(store.id), store.group, store.source, bytes(store.timestamp), store.size,
        store.state, store.private, store.edges_size,
    )  # fmt: skip


def find(store: "StorePort", id: bytes) -> Message | None:
    """A message by its 32-byte id, in whatever state; None: the store does not know it."""
    handle = store.find(bytearray(id), 0)
    return message(store, handle) if handle > 0 else None


def messages(store: "StorePort", after: int = 0) -> Iterator[Message]:
    """The messages of the log behind a handle, in its order; of deleted ones the place is left.

    What cannot be read is left out. The log may grow, and messages may be deleted, meanwhile.
    """
    handle = store.next(after)
    while handle > 0:
        logged = message(store, handle)
        if logged is not None:
            yield logged
        handle = store.next(handle)


def body(store: "StorePort", logged: Message) -> bytes | None:
    """The stored body of a message; None: the store cannot give it whole."""
    return _read(store, logged.handle, logged.size)


def edges(store: "StorePort", deleted: Message) -> bytes | None:
    """The dependencies that are left of a deleted message, as its body began."""
    return _read(store, deleted.handle, deleted.edges_size)


def _read(store: "StorePort", handle: int, size: int) -> bytes | None:
    content = bytearray(size)
    return bytes(content) if store.read_into(handle, 0, content, 0, size) == size else None


def newest(node: "Node") -> int:
    """The handle of the last message of the log; 0: it is empty."""
    return node.core.graph.newest


def done_through(node: "Node") -> int:
    """The handle up to which the client has taken the log in: see `Node.done`."""
    return node.core.consumed


# --- groups and peers ---


class PeerState(NamedTuple):
    """How far a node has come in sending its log to a peer."""

    cursor: int  # the handle up to which the log was looked at for it
    outstanding: int  # messages on their way: in rows, and it is not known to hold them
    has_waiting: bool  # the log goes on behind the cursor
    passed_over: int  # the first message that was passed over as too long for a frame; 0: none
    is_passed_held: bool  # and the peer is known to hold that one by now


def group_id(node: "Node", group: int) -> bytes:
    """The 32-byte id of a group that the node is in."""
    members = node.core.members
    at = members.group_row(group) * ID_SIZE
    return bytes(members.group_ids[at : at + ID_SIZE])


def group_family(node: "Node", group: int) -> int:
    """FAMILY_BSP, FAMILY_MVDS, or that of another profile."""
    members = node.core.members
    return members.family(members.group_row(group))


def keep_bsp_family(node: "Node", group: int) -> None:
    """Note that a group is of the bsp family, for life. Raises CapacityError if it is not.

    A board's `Node.join` does not look: code is heap, and few boards know another family.
    """
    keep_family(node.core, group, FAMILY_BSP)


def unknown_count(node: "Node") -> int:
    """Messages since the boot of groups that are not ours, or that their sender does not see."""
    return node.core.unknown


def lacking_peers(node: "Node", handle: int) -> list[int]:
    """The peers (numbers) with whom a message's group is shared and who may lack the message."""
    core = node.core
    if core.store.load(handle) != OK:
        return []
    group, source = core.members.group_row(core.store.group), core.store.source
    return [
        core.members.peer_number(peer)
        for peer in range(core.members.peers)
        if core.members.visibility(group, peer) == SHARED and not core.holds(peer, handle)
        if not core.outboxes[peer].is_source(source, handle)
    ]


def peer_state(node: "Node", peer: int) -> PeerState:
    """How far the log has gone to a peer (number)."""
    return _state_of(node.core, node.core.members.peer_row(peer))


def _state_of(core: "Core", row: int) -> PeerState:
    outbox = core.outboxes[row]
    first = core.passed_over.firsts[row] if core.passed_over is not None else 0
    return PeerState(
        outbox.cursor, outbox.open_count, outbox.cursor != core.graph.newest,
        ~first if first < 0 else first, first < 0,
    )  # fmt: skip


def is_on_its_way(node: "Node", peer: int, handle: int) -> bool:
    """Whether a message has a row for a peer (number) that is not known to hold it."""
    outbox = node.core.outboxes[node.core.members.peer_row(peer)]
    row = outbox.row_of(handle)
    return row >= 0 and outbox.is_open(row)


def is_too_long(node: "Node", peer: int, handle: int) -> bool:
    """Whether a peer (number) may lack a message since it fits no frame (docs/SPEC.md 3.4)."""
    core = node.core
    return oversize.is_oversize(core, core.members.peer_row(peer), handle, FRAME_SIZE_MAX)


def reads_segments(node: "Node", peer: int) -> bool:
    """Whether a peer (number) showed, in a node with groups of MVDS, that it reads segments."""
    passed_over = node.core.passed_over
    return passed_over is not None and passed_over.reads_segments(node.core.members.peer_row(peer))


def fill_outboxes(node: "Node") -> None:
    """Give rows to what waits for peers that no live link serves, so that it is counted."""
    for row in range(node.core.members.peers):
        node.core.refill(row)


def skip_bundles(node: "Node", count: int) -> None:
    """After a loss: no bundle has a number that a peer has read already, and answers to what was
    lost, which name handles of another log, count for nothing."""
    for outbox in node.core.outboxes:
        outbox.bundle_number += count
        outbox.void_until = outbox.bundle_number
        outbox.bundled_until = 0
        outbox.is_dirty = True


# --- saving and sleeping ---


def require_save(node: "Node") -> None:
    """Have the next `Node.save` write, whatever changed in the node."""
    node.core.is_dirty = True


def snapshot_into(
    buf: bytearray, node: "Node", snapshot: "Snapshot", links: "Sequence[Link]",
    plan: "WakePlan | None", now_ms: int,
) -> int:  # fmt: skip
    """Write the long form of a snapshot before a deep sleep; its size, or E_CAPACITY."""
    core = node.core
    size = wake_state.pack(core, snapshot.state_room(core.members.peers))
    return snapshot.write(buf, core, links, plan, size, now_ms)


def resume(
    buf: bytearray, node: "Node", snapshot: "Snapshot", links: "Sequence[Link]",
    plan: "WakePlan | None", now_ms: int, slept_ms: int,
) -> None:  # fmt: skip
    """Go on after a deep sleep with a snapshot that `Snapshot.read` took."""
    snapshot.apply(buf, node.core, links, plan, now_ms, slept_ms)


# --- links ---


def peer_number(link: "Link") -> int:
    """The number of the peer at the other end."""
    return link.exchange.peer_number


def is_interactive(link: "Link") -> bool:
    """Whether a link offers before it sends now, by its mode or by what it measures."""
    return link.exchange.interactive


def is_settled(link: "Link") -> bool:
    """True when the peer is known to hold all that it was shown."""
    state = _state_of(link.core, link.peer)
    return not state.has_waiting and not state.outstanding


def round_trip_ms(link: "Link") -> int | None:
    """What an answer of the peer takes at most, in whole epochs; None: it was not heard yet."""
    pace = link.pace
    if pace.heard_epoch < 0:
        return None
    return (pace.answers[ACKS + TRIP_EPOCHS] + 1) * link.epoch_ms


def epoch_at(link: "Link", now_ms: int) -> int:
    """The epoch of the peer's clock that holds `now_ms`; the clock moves on to it."""
    return link.core.clocks.advance(link.peer, now_ms)


def is_shown(link: "Link") -> bool:
    """Whether the peer sees any group over this link."""
    exchange = link.exchange
    return any(exchange.sees(group) for group in range(link.core.members.groups))


def held_ids(link: "Link") -> dict[int, bytes]:
    """Handle -> id of messages in rows that the peer is known to hold.

    b"" for one whose record made room.
    """
    outbox, store = link.exchange.outbox, link.core.store
    id = bytearray(ID_SIZE)
    return {
        outbox.handles[row]: bytes(id) if store.id_into(outbox.handles[row], id, 0) else b""
        for row in range(outbox.count)
        if not outbox.is_open(row)
    }


def note_reads_segments(link: "Link") -> None:
    """The peer is one of our nodes, so it reads segments in any profile."""
    link.core.note_reads_segments(link.peer)


def forget_holds(link: "Link") -> None:
    """The peer lost its store: show it everything that we share, as if it held nothing."""
    link.exchange.forget_holds()


def stay_quiet(link: "Link") -> None:
    """Filters tell what the peer lacks (docs/SPEC.md 14): nothing goes to it unasked."""
    link.exchange.is_quiet = True


def take_message(link: "Link", group: bytes, timestamp: bytes, body: bytes, now_ms: int) -> None:
    """Take a message in as if the link's peer had sent it; it is acknowledged to the peer.

    group: its 32-byte id; timestamp: 8 bytes; body: as stored.
    """
    link.core.now_ms = now_ms
    link.exchange.on_message(
        bytearray(group), 0, bytearray(timestamp), 0, bytearray(body), 0, len(body)
    )


def waiting_count(link: "BundleLink", count_max: int) -> int:
    """How many messages the peer lacks that are on no stick; no more than `count_max`."""
    exchange, store = link.exchange, link.core.store
    count = sum(exchange.message_due(row) for row in range(exchange.outbox.count))
    handle = store.next(exchange.logged or exchange.outbox.cursor)
    while handle > 0 and count < count_max:
        count += exchange.wants(handle)
        handle = store.next(handle)
    return count


# --- compact-1 ---


def spoken(link: "Link") -> int:
    """What goes to the peer of a link in compact-1: see `drupelet.wire.compact.hello`."""
    return _compact(link).spoken(link.exchange)


def peer_store_gen(link: "Link") -> int:
    """The number of the store of a peer in compact-1, as it said last; -1: not known."""
    return _compact(link).peer_store_gen(link.exchange)


def note_peer_store(link: "Link", store_gen: int) -> None:
    """The number of the store that a peer in compact-1 had before our boot."""
    codec = _compact(link)
    codec.use(link.exchange)
    codec.heard_store(store_gen)


def _compact(link: "Link") -> Compact1:
    codec = link.codec
    assert isinstance(codec, Compact1)
    return codec
