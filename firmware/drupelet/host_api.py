# host only: boards ask Node and Link themselves
"""What hosts and tools ask of a node beside `Node` and `Link`, in plain Python values.

They must not reach deeper into the core than this (tests/test_tidy.py). Peers and groups are given
by their numbers, messages by handle or 32-byte id. Results are copies, which later changes of the
node do not affect.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drupelet.base.errors import OK
from drupelet.base.limits import FRAME_SIZE_MAX, ID_SIZE
from drupelet.engine import oversize, wake_state
from drupelet.engine.group_family import keep_family
from drupelet.engine.members import FAMILY_BSP, SHARED
from drupelet.engine.pace import ACKS, TRIP_EPOCHS
from drupelet.link.host_link import HostLink
from drupelet.wire.compact.codec import Compact1

if TYPE_CHECKING:
    from drupelet.duty.snapshot import Snapshot
    from drupelet.duty.wake_plan import WakePlan
    from drupelet.engine.core import Core
    from drupelet.link.link import Link
    from drupelet.link.ports import PolicyPort
    from drupelet.link.stick_visit import BundleLink
    from drupelet.node import Node
    from drupelet.store.ports import StorePort


# --- the log ---


class Message(NamedTuple):
    """What a store knows of a message, except its body."""

    handle: int
    id: bytes  # 32
    group: int  # number
    source: int  # number of the peer that sent it; 0: our own
    timestamp: bytes  # 8, in the order of its family
    size: int  # bytes of the stored body
    state: int  # `drupelet.store.states`
    is_private: bool  # not shared, as its client decided
    edges_size: int  # bytes of dependencies that are left of a deleted message


def message(store: "StorePort", handle: int) -> Message | None:
    """Return a message by its handle; None: the store does not have it, or cannot read it."""
    if store.load(handle) != OK:
        return None
    return Message(
        handle, bytes(store.id), store.group, store.source, bytes(store.timestamp), store.size,
        store.state, store.private, store.edges_size,
    )  # fmt: skip


def find(store: "StorePort", id: bytes) -> Message | None:
    """Return a message in any state by its 32-byte id; None: the store does not know it."""
    handle = store.find(bytearray(id), 0)
    return message(store, handle) if handle > 0 else None


def messages(store: "StorePort", after: int = 0) -> Iterator[Message]:
    """Yield the messages of the log after a handle, in log order, also deleted ones.

    Leaves out what cannot be read. Meanwhile the log may grow, and messages may be deleted.
    """
    handle = store.next(after)
    while handle > 0:
        logged = message(store, handle)
        if logged is not None:
            yield logged
        handle = store.next(handle)


def body(store: "StorePort", logged: Message) -> bytes | None:
    """Return the stored body of a message; None: the store cannot read all of it."""
    return _read(store, logged.handle, logged.size)


def edges(store: "StorePort", deleted: Message) -> bytes | None:
    """Return the dependencies of a deleted message, in the form in which its body began."""
    return _read(store, deleted.handle, deleted.edges_size)


def _read(store: "StorePort", handle: int, size: int) -> bytes | None:
    content = bytearray(size)
    return bytes(content) if store.read_into(handle, 0, content, 0, size) == size else None


def newest(node: "Node") -> int:
    """Return the handle of the last message of the log; 0: the log is empty."""
    return node.core.graph.newest


def done_through(node: "Node") -> int:
    """Return the handle up to which the client has confirmed the log: see `Node.done`."""
    return node.core.consumed


# --- groups and peers ---


class PeerState(NamedTuple):
    """How far a node has sent its log to a peer."""

    cursor: int  # the handle up to which the log has been looked at for the peer
    outstanding: int  # messages in rows that the peer may lack
    has_waiting: bool  # the log has messages after the cursor
    passed_over: int  # the first message that was passed over as too long for a frame; 0: none
    is_passed_held: bool  # the peer is known to hold that message by now


def group_id(node: "Node", group: int) -> bytes:
    """Return the 32-byte id of a group of the node."""
    members = node.core.members
    at = members.group_row(group) * ID_SIZE
    return bytes(members.group_ids[at : at + ID_SIZE])


def group_family(node: "Node", group: int) -> int:
    """Return FAMILY_BSP, FAMILY_MVDS, or the family of another profile."""
    members = node.core.members
    return members.family(members.group_row(group))


def keep_bsp_family(node: "Node", group: int) -> None:
    """Record that a group is of the bsp family, for life. Raises CapacityError if it is not.

    `Node.join` of a board does not check that: code takes heap, and few boards use another family.
    """
    keep_family(node.core, group, FAMILY_BSP)


def unknown_count(node: "Node") -> int:
    """Return how many messages since boot were of groups that we or their sender do not see."""
    return node.core.unknown


def lacking_peers(node: "Node", handle: int) -> list[int]:
    """Return the peers (numbers) that share a message's group and may lack the message."""
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
    """Return how far the log has been sent to a peer (number)."""
    return _state_of(node.core, node.core.members.peer_row(peer))


def _state_of(core: "Core", row: int) -> PeerState:
    outbox = core.outboxes[row]
    first = core.passed_over.firsts[row] if core.passed_over is not None else 0
    return PeerState(
        outbox.cursor, outbox.open_count, outbox.cursor != core.graph.newest,
        ~first if first < 0 else first, first < 0,
    )  # fmt: skip


def is_current(node: "Node", peer: int) -> bool:
    """Return True if a peer (number) is known to hold everything that the log has for it."""
    row = node.core.members.peer_row(peer)
    state = _state_of(node.core, row)
    is_shown = not state.has_waiting and not state.outstanding
    return is_shown and not node.core.outboxes[row].reserved_rows


def is_on_its_way(node: "Node", peer: int, handle: int) -> bool:
    """Return True if a message has a row for a peer (number) that may lack it."""
    outbox = node.core.outboxes[node.core.members.peer_row(peer)]
    row = outbox.row_of(handle)
    return row >= 0 and outbox.is_open(row)


def is_too_long(node: "Node", peer: int, handle: int) -> bool:
    """Return True if a peer (number) may lack a message because it fits no frame (SPEC.md 3.4)."""
    core = node.core
    return oversize.is_oversize(core, core.members.peer_row(peer), handle, FRAME_SIZE_MAX)


def reads_segments(node: "Node", peer: int) -> bool:
    """Return True if an MVDS peer (number) has shown that it reads segments."""
    passed_over = node.core.passed_over
    return passed_over is not None and passed_over.reads_segments(node.core.members.peer_row(peer))


def fill_outboxes(node: "Node") -> None:
    """Fill the rows of all peers, so that messages for those without a live link are counted."""
    for row in range(node.core.members.peers):
        node.core.refill(row)


def drop_from_outboxes(node: "Node", handle: int) -> None:
    """Drop the rows of a message that cannot be read any more: it is owed to nobody."""
    for outbox in node.core.outboxes:
        row = outbox.row_of(handle)
        if row >= 0:
            outbox.drop(row)


def skip_bundles(node: "Node", count: int) -> None:
    """After a loss of the store: skip bundle numbers that peers may have read already, and ignore
    answers to bundles that were lost, whose handles are of another log."""
    for outbox in node.core.outboxes:
        outbox.bundle_number += count
        outbox.void_until = outbox.bundle_number
        outbox.bundled_until = 0
        outbox.is_dirty = True


# --- saving and sleeping ---


def would_save(node: "Node") -> bool:
    """Return True if `Node.save` would write."""
    return wake_state.is_dirty(node.core)


def require_save(node: "Node") -> None:
    """Make the next `Node.save` write, even if nothing changed in the node."""
    node.core.is_dirty = True


def snapshot_into(
    buf: bytearray, node: "Node", snapshot: "Snapshot", links: "Sequence[Link]",
    plan: "WakePlan | None", now_ms: int,
) -> int:  # fmt: skip
    """Write the long form of a snapshot before a deep sleep; return its size, or E_CAPACITY."""
    core = node.core
    size = wake_state.pack(core, snapshot.state_room(core.members.peers))
    return snapshot.write(buf, core, links, plan, size, now_ms)


def resume(
    buf: bytearray, node: "Node", snapshot: "Snapshot", links: "Sequence[Link]",
    plan: "WakePlan | None", now_ms: int, slept_ms: int,
) -> None:  # fmt: skip
    """Continue after a deep sleep with a snapshot that `Snapshot.read` accepted."""
    snapshot.apply(buf, node.core, links, plan, now_ms, slept_ms)


# --- links ---


def peer_number(link: "Link") -> int:
    """Return the number of the peer of a link."""
    return link.exchange.peer_number


def is_interactive(link: "Link") -> bool:
    """Return True if a link offers messages before sending them now."""
    return link.exchange.interactive


def set_policy(link: "Link", policy: "PolicyPort") -> None:
    """Let a policy choose the mode of a host's live link, until `set_mode` sets one."""
    assert isinstance(link, HostLink)
    link.exchange.policy = policy


def is_settled(link: "Link") -> bool:
    """Return True if the peer is known to hold everything that it is shown."""
    state = _state_of(link.core, link.peer)
    return not state.has_waiting and not state.outstanding


def round_trip_ms(link: "Link") -> int | None:
    """Return the longest recent time to an answer, in whole epochs; None: it was not heard."""
    pace = link.exchange.pace
    if pace.heard_epoch < 0:
        return None
    return (pace.answers[ACKS + TRIP_EPOCHS] + 1) * link.epoch_ms


def epoch_at(link: "Link", now_ms: int) -> int:
    """Advance the peer's clock to the epoch that contains `now_ms`, and return that epoch."""
    return link.core.clocks.advance(link.peer, now_ms)


def is_shown(link: "Link") -> bool:
    """Return True if the peer sees any group over this link."""
    exchange = link.exchange
    return any(exchange.sees(group) for group in range(link.core.members.groups))


def held_ids(link: "Link") -> dict[int, bytes]:
    """Return handle -> id of the messages in rows that the peer is known to hold.

    The id is b"" if the record was reclaimed.
    """
    outbox, store = link.exchange.outbox, link.core.store
    id = bytearray(ID_SIZE)
    return {
        outbox.handles[row]: bytes(id) if store.id_into(outbox.handles[row], id, 0) else b""
        for row in range(outbox.count)
        if not outbox.is_open(row)
    }


def note_reads_segments(link: "Link") -> None:
    """Record that the peer is one of our nodes, which read segments in any profile."""
    if link.core.passed_over is not None:
        link.core.passed_over.note_reads_segments(link.peer)


def forget_holds(link: "Link") -> None:
    """Show a peer that lost its store everything again, as if it held nothing."""
    link.exchange.forget_holds()


def set_quiet(link: "Link", is_quiet: bool) -> None:
    """Offer and send nothing unasked over a link, or do so again; what is asked for is sent."""
    if link.exchange.is_quiet != is_quiet:
        link.exchange.is_quiet = is_quiet
        link.exchange.attention = True


def take_message(link: "Link", group: bytes, timestamp: bytes, body: bytes, now_ms: int) -> None:
    """Take in a message as if the link's peer had sent it; the peer gets an acknowledgement.

    `group`: the 32-byte id. `timestamp`: 8 bytes. `body`: as stored.
    """
    link.core.now_ms = now_ms
    link.exchange.on_message(
        bytearray(group), 0, bytearray(timestamp), 0, bytearray(body), 0, len(body)
    )


def waiting_count(link: "BundleLink", count_max: int) -> int:
    """Return how many messages the peer may lack that are on no stick, at most `count_max`."""
    exchange, store = link.exchange, link.core.store
    count = sum(exchange.message_due(row) for row in range(exchange.outbox.count))
    handle = store.next(max(exchange.logged, exchange.outbox.cursor))
    while handle > 0 and count < count_max:
        count += store.load(handle) == OK and exchange.wants(handle)
        handle = store.next(handle)
    return count


# --- compact-1 ---


def spoken(link: "Link") -> int:
    """Return UNKNOWN, COMPACT or PLAIN of `drupelet.wire.compact.hello`: what a link sends."""
    return _compact(link).spoken(link.exchange)


def peer_store_gen(link: "Link") -> int:
    """Return the `store_gen` that a compact-1 peer announced last; -1: unknown."""
    return _compact(link).peer_store_gen(link.exchange)


def note_peer_store(link: "Link", store_gen: int) -> None:
    """Set the `store_gen` that a compact-1 peer had before our boot."""
    codec = _compact(link)
    codec.use(link.exchange)
    codec.heard_store(store_gen)


def _compact(link: "Link") -> Compact1:
    codec = link.codec
    assert isinstance(codec, Compact1)
    return codec
