"""Restore what a node knew before a reboot, from its wake state (docs/SPEC.md 5.1).

Runs once at boot; boards unload the module afterwards, since code takes heap.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import GENERATIONS_APART, GONE_HANDLE
from drupelet.base.memory import get_u16, get_u32
from drupelet.engine.members import SHARED
from drupelet.engine.states import HOLD, REQUEST
from drupelet.engine.wake_state import (
    AT_BUNDLE_IN,
    AT_BUNDLE_OUT,
    AT_LOW,
    AT_SHARES,
    AT_TAKEN,
    AT_VOID,
    ROW_HELD,
    ROW_OWED,
    ROW_PASSED_OVER,
    ROW_REQUESTED,
    STATE_FORM,
    STATE_HEAD_SIZE,
    STATE_LOST,
    STATE_PEER_SIZE,
    save,
    settle,
)
from drupelet.store.states import STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core

# Size of a peer's row in form 2, which lacks the handles of whole bundles.
_PEER_SIZE_2 = const(14)


def wake(core: "Core", now_ms: int, generation: int) -> None:
    """Restore the tables after a boot, or from the snapshot of a `generation` (-1: a boot)."""
    _restore(core)
    core.promote(now_ms)
    if generation < 0:
        core.boot = (core.boot + 1) & 0xFFFF or 1
        core.is_dirty = True
        # `store_gen`, since a new store counts its boots from 1 again.
        generation = core.boot * GENERATIONS_APART + getattr(core.store, "store_gen", 0)
    core.clocks.generation = generation & 0xFFFF
    save(core)
    settle(core)  # also if there was nothing to save


def _restore(core: "Core") -> None:
    saved = core.store.saved
    size = core.store.saved_size
    row_size = STATE_PEER_SIZE if saved[0] == STATE_FORM else _PEER_SIZE_2
    is_known = STATE_FORM - 1 <= saved[0] <= STATE_FORM
    peers = 0
    if is_known and size >= STATE_HEAD_SIZE + saved[1] * row_size:
        peers = saved[1]
        core.boot = get_u16(saved, 2)
        core.consumed = get_u32(saved, 4)
    for row in range(peers):
        at = STATE_HEAD_SIZE + row * row_size
        peer = core.members.peer_row(saved[at])
        if peer >= 0:
            _restore_peer(core, peer, saved, at, row_size)
    _walk(core)
    for peer in range(core.members.peers):
        if core.outboxes[peer].lost_until:
            core.outboxes[peer].lost_until = core.last_handle()
        core.refill(peer)
    _restore_rows(core, saved, peers, row_size, size)


def _restore_peer(core: "Core", peer: int, saved: bytearray, at: int, row_size: int) -> None:
    outbox = core.outboxes[peer]
    inbox = core.inboxes[peer]
    if get_u32(saved, at + AT_BUNDLE_IN) or get_u32(saved, at + AT_BUNDLE_OUT):
        inbox.bundle_number = get_u32(saved, at + AT_BUNDLE_IN)
        outbox.bundle_number = outbox.void_until = get_u32(saved, at + AT_BUNDLE_OUT)
        if row_size > _PEER_SIZE_2:
            inbox.taken_until = get_u32(saved, at + AT_TAKEN)
    lost = saved[at + AT_LOW] & STATE_LOST
    saved[at + AT_LOW] -= lost
    if core.members.shares(peer) == saved[at + AT_SHARES]:
        outbox.cursor = get_u32(saved, at + AT_LOW)
        if row_size > _PEER_SIZE_2 and outbox.bundle_number:
            outbox.void_until = get_u32(saved, at + AT_VOID)
    if lost:
        outbox.lost_until = GONE_HANDLE


def _walk(core: "Core") -> None:
    """Set the newest message, and each peer's cursor to the last message before its `low`.

    The cursors hold `low` at first. That may no longer be the handle of a record, so the log is
    walked; from `consumed` on if no `low` is below, since that is one.
    """
    store = core.store
    lows = [outbox.cursor for outbox in core.outboxes]
    handle = core.consumed
    for peer in range(core.members.peers):
        core.outboxes[peer].cursor = 0
        if lows[peer] <= handle:
            handle = 0
    while handle >= 0:
        core.graph.newest = handle
        for peer in range(core.members.peers):
            if handle < lows[peer]:
                core.outboxes[peer].cursor = handle
        handle = store.next(handle) or -1


def _restore_rows(core: "Core", saved: bytearray, peers: int, row_size: int, size: int) -> None:
    store = core.store
    members = core.members
    at = STATE_HEAD_SIZE + peers * row_size
    while peers and at + 4 + (peers + 7) // 8 <= size:
        kind = saved[at] & ROW_PASSED_OVER
        saved[at] -= kind
        handle = get_u32(saved, at)
        at += 4
        group = members.group_row(store.group) if store.load(handle) == OK else -1
        for row in range(peers if group >= 0 or kind == ROW_PASSED_OVER else 0):
            peer = members.peer_row(saved[STATE_HEAD_SIZE + row * row_size])
            if peer >= 0 and saved[at + row // 8] & 1 << row % 8:
                _restore_row(core, peer, kind, handle, group)
        at += (peers + 7) // 8


def _restore_row(core: "Core", peer: int, kind: int, handle: int, group: int) -> None:
    """Restore what is known of one message at one peer."""
    if kind == ROW_PASSED_OVER:
        if core.passed_over is not None:
            core.passed_over.firsts[peer] = handle
        return
    visibility = core.members.visibility(group, peer)
    outbox = core.outboxes[peer]
    if kind == ROW_OWED:
        if visibility:
            core.inboxes[peer].owe_from(handle)
    elif visibility == SHARED and core.store.state == STATE_DELIVERED:
        row = outbox.row_of(handle)
        if kind == ROW_REQUESTED and row < 0:
            row = outbox.want(handle)
        if row >= 0:
            state = outbox.state(row)
            outbox.set_state(row, state | (HOLD if kind == ROW_HELD else REQUEST))
