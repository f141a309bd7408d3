"""The wake state: what a node must not forget over a reboot or a deep sleep (docs/SPEC.md 5.1).

`recovery` reads it. From the same tables follows what the store may drop: every message that no
peer may lack and that the client has taken.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.memory import fill, put_u16, put_u32
from drupelet.engine.members import SHARED
from drupelet.engine.states import EPHEMERAL, HOLD, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core

STATE_FORM = const(3)
STATE_HEAD_SIZE = const(8)
# A flag in the first byte of `low`: the peer may lack even messages that it sent to us.
STATE_LOST = const(0x80)
STATE_PEER_SIZE = const(22)
# Offsets in a peer's row, which begins with its number: the handle from which on it may lack
# messages; the last bundle from it that was read, and the last one made for it; a byte for the
# groups that it shares (`Members.shares`); the handle of its log up to which its bundles were
# taken in whole; the number of our bundles up to which its answers no longer count.
AT_LOW = const(1)
AT_BUNDLE_IN = const(5)
AT_BUNDLE_OUT = const(9)
AT_SHARES = const(13)
AT_TAKEN = const(14)
AT_VOID = const(18)
# What a message row says of its peers, in the upper bits of its handle: the message is the first
# that was passed over for them; from it on, they are owed acknowledgements; they requested it;
# they hold it.
ROW_PASSED_OVER = const(0xC0)
ROW_OWED = const(0x40)
ROW_REQUESTED = const(0x80)
ROW_HELD = const(0)


def save(core: "Core") -> int:
    """Write the wake state if it changed; return OK or a code.

    It is durable after the next barrier, and before anything that the message log gets later.
    """
    if not is_dirty(core):
        return OK
    settle(core)
    store = core.store
    code = store.save(store.saved, pack(core, len(store.saved)))
    if code == OK:
        core.is_dirty = False
        for peer in range(len(core.outboxes)):
            core.outboxes[peer].is_dirty = core.inboxes[peer].is_dirty = False
    return code


def is_dirty(core: "Core") -> bool:
    """Return True if the wake state differs from the one that was saved last."""
    dirty = core.is_dirty
    for peer in range(len(core.outboxes)):
        dirty = dirty or core.outboxes[peer].is_dirty or core.inboxes[peer].is_dirty
    return dirty


def settle(core: "Core") -> None:
    """Tell the store which messages it may drop: those that the client and all peers that share
    the group have."""
    members = core.members
    _settle_groups(core)
    lowest = core.consumed + 1
    for peer in range(members.peers):
        low = _low(core, peer)
        lowest = min(low, lowest, _keep_passed_over(core, peer) or low)
    core.store.settled_handle = lowest


def _low(core: "Core", peer: int) -> int:
    """Return the handle from which on a peer may lack messages."""
    return core.outboxes[peer].low() if core.members.shares(peer) else core.graph.newest + 1


def pack(core: "Core", limit: int) -> int:
    """Write the wake state to `store.saved`; return its size, at most `limit`."""
    state = core.store.saved  # a buffer that is otherwise used at boot only
    members = core.members
    state[0] = STATE_FORM
    state[1] = members.peers
    put_u16(state, 2, core.boot)
    put_u32(state, 4, core.consumed)
    at = STATE_HEAD_SIZE
    for peer in range(members.peers):
        outbox = core.outboxes[peer]
        inbox = core.inboxes[peer]
        low = _low(core, peer)
        state[at] = members.peer_number(peer)
        put_u32(state, at + AT_LOW, low)
        lost_until = outbox.lost_until
        if lost_until and (lost_until >= low or 0 < core.store.next_pending(0) <= lost_until):
            state[at + AT_LOW] |= STATE_LOST
        put_u32(state, at + AT_BUNDLE_IN, inbox.bundle_number)
        put_u32(state, at + AT_BUNDLE_OUT, outbox.bundle_number)
        state[at + AT_SHARES] = members.shares(peer)
        put_u32(state, at + AT_TAKEN, inbox.taken_until)
        put_u32(state, at + AT_VOID, outbox.void_until)
        at += STATE_PEER_SIZE
    return _pack_rows(core, state, at, limit)


def _settle_groups(core: "Core") -> None:
    """Tell the store for each group the handle up to which everybody has its messages."""
    members = core.members
    settled = core.store.settled
    for row in range(len(settled)):
        settled[row] = 0
    for group in range(members.groups):
        number = members.group_number(group)
        if not number:
            continue
        low = core.consumed + 1
        for peer in range(members.peers):
            if members.visibility(group, peer) == SHARED:
                low = min(low, core.outboxes[peer].low(group))
        before = settled[number & 7]
        settled[number & 7] = min(before, low) if before else low


def _keep_passed_over(core: "Core", peer: int) -> int:
    """Keep the first passed-over message that the peer may still take; return its handle or 0."""
    if core.passed_over is None:
        return 0
    handle = core.passed_over.needed_from(peer)
    settled = core.store.settled
    for row in range(len(settled) if handle else 0):
        settled[row] = min(settled[row], handle)
    return handle


def _pack_rows(core: "Core", state: bytearray, at: int, limit: int) -> int:
    """Write message rows, the most important ones first; return the end.

    What has no room is left out, which costs repeated bytes, but no message.
    """
    for peer in range(core.members.peers if core.passed_over is not None else 0):
        handle = core.passed_over.begin(peer)  # type: ignore[union-attr]
        if 0 < handle <= core.outboxes[peer].cursor:
            at = _pack_row(core, state, at, handle, peer, ROW_PASSED_OVER, limit)
    for peer in range(core.members.peers):
        owed = core.inboxes[peer].owed_low()
        if owed:
            at = _pack_row(core, state, at, owed, peer, ROW_OWED, limit)
    for peer in range(core.members.peers):
        outbox = core.outboxes[peer]
        for row in range(outbox.count):
            if outbox.state(row) & (HOLD | REQUEST) == REQUEST and not outbox.sends(row):
                at = _pack_row(core, state, at, outbox.handles[row], peer, ROW_REQUESTED, limit)
    for peer in range(core.members.peers):
        outbox = core.outboxes[peer]
        low = outbox.low()
        for row in range(outbox.count):
            is_held = outbox.state(row) & (HOLD | EPHEMERAL) == HOLD
            if is_held and outbox.handles[row] >= low:
                at = _pack_row(core, state, at, outbox.handles[row], peer, ROW_HELD, limit)
    return at


def _pack_row(
    core: "Core", state: bytearray, at: int, handle: int, peer: int, kind: int, limit: int
) -> int:
    size = 4 + (core.members.peers + 7) // 8
    if at + size > limit:
        return at
    fill(state, at, size, 0)
    put_u32(state, at, handle)
    state[at] |= kind
    state[at + 4 + peer // 8] |= 1 << peer % 8
    return at + size
