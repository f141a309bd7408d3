"""What a node knew before a reboot: its wake state (docs/SPEC.md 5.1) is taken up once, at boot.

Boards let this go when it is done: code is heap.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import GENERATIONS_APART, GONE_HANDLE
from drupelet.base.memory import get_u16, get_u32
from drupelet.engine.members import SHARED, VISIBLE
from drupelet.engine.slots import OWED, PEER_ROW, STICK_LOST, STICK_OUT, STICK_TAKEN, STICK_VOID
from drupelet.engine.states import ACK, HOLD, REQUEST
from drupelet.engine.window import (
    STATE_FORM,
    STATE_HEAD_SIZE,
    STATE_LOST,
    STATE_PEER_SIZE,
    STATE_SHIFT,
)
from drupelet.store.reader import STATE_DELIVERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.window import Window

_PEER_SIZE_2 = const(14)


def wake(core: "Core", now_ms: int, generation: int) -> None:
    """Take up where the store left off: in a new boot, or from the snapshot of a `generation`."""
    window = core.window
    restore(window)
    core.promote(now_ms)
    if generation < 0:
        window.boot = (window.boot + 1) & 0xFFFF or 1
        window.dirty = True
        # Boots of another store count from 1, too.
        generation = window.boot * GENERATIONS_APART + getattr(window.store, "store_gen", 0)
    core.clocks.generation = generation & 0xFFFF
    window.save()
    window.pack(len(window.store.saved))  # without a write, too, the store is told what may go


def restore(window: "Window") -> None:
    """Take up the saved state after `store.open()`; call once groups and peers are known."""
    saved = window.store.saved
    size = window.store.saved_size
    peers = 0
    # A form 2 of an older program ends each peer's row before what bundles were taken whole.
    row_size = STATE_PEER_SIZE if saved[0] == STATE_FORM else _PEER_SIZE_2
    if STATE_FORM - 1 <= saved[0] <= STATE_FORM and size >= STATE_HEAD_SIZE + saved[1] * row_size:
        peers = saved[1]
        window.boot = get_u16(saved, 2)
        window.consumed = get_u32(saved, 4)
    for row in range(peers):
        at = STATE_HEAD_SIZE + row * row_size
        peer = window.members.peer_slot(saved[at])
        if peer >= 0:
            window.rows[peer * PEER_ROW] = get_u32(saved, at + 5)
            window.rows[peer * PEER_ROW + STICK_OUT] = get_u32(saved, at + 9)
            window.void_bundles(peer)
            if row_size == STATE_PEER_SIZE:
                window.rows[peer * PEER_ROW + STICK_TAKEN] = get_u32(saved, at + 14)
            lost = saved[at + 1] & STATE_LOST
            saved[at + 1] -= lost
            if not window.members.shares(peer) & ~saved[at + 13]:
                window.cursors[peer] = get_u32(saved, at + 1)
                if row_size == STATE_PEER_SIZE:
                    window.rows[peer * PEER_ROW + STICK_VOID] = get_u32(saved, at + 18)
            window.rows[peer * PEER_ROW + STICK_LOST] = GONE_HANDLE if lost else 0
    _restore_rows(window, saved, peers, row_size, size)
    _walk(window)
    for peer in range(window.members.peers):
        if window.rows[peer * PEER_ROW + STICK_LOST]:
            window.lose(peer)


def _walk(window: "Window") -> None:
    """Find the newest message, and for each peer the last one before what it may miss.

    Cursors hold where that begins. It may be no handle by now, so the log is walked: as far
    as possible from `consumed` on, which is one.
    """
    lows = window.cursors
    window.cursors = [0] * len(lows)
    handle = window.consumed
    for peer in range(window.members.peers):
        if lows[peer] <= handle:
            handle = 0
    while True:
        window.newest = handle
        for peer in range(window.members.peers):
            if handle < lows[peer]:
                window.cursors[peer] = handle
        handle = window.store.next(handle)
        if not handle:
            break


def _restore_rows(
    window: "Window", saved: bytearray, peers: int, row_size: int, size: int
) -> None:
    store = window.store
    at = STATE_HEAD_SIZE + peers * row_size
    while peers and at + 4 + (peers + 7) // 8 <= size:
        flags = saved[at] >> STATE_SHIFT & (ACK | REQUEST)
        saved[at] -= flags << STATE_SHIFT
        handle = get_u32(saved, at)
        at += 4
        group = window.members.group_slot(store.group) if store.load(handle) == OK else -1
        slot = window.slots.find(store.id, 0)
        passed_over = flags == ACK | REQUEST
        takes_slot = group >= 0 and store.state == STATE_DELIVERED and not passed_over
        if slot < 0 and takes_slot:
            slot = window.admit(store.id, 0, handle, group, store.source, False)
        for row in range(peers if group >= 0 or passed_over else 0):
            peer = window.members.peer_slot(saved[STATE_HEAD_SIZE + row * row_size])
            if peer >= 0 and saved[at + row // 8] & 1 << row % 8:
                if passed_over:
                    if window.oversize:
                        window.oversize[peer] = handle
                    continue
                sight = window.members.visibility(group, peer)
                if sight < (SHARED if flags & REQUEST else VISIBLE):
                    continue  # it asked for, or sent, what it may not know of any more
                if slot >= 0:
                    window.set_state(slot, peer, flags if flags & REQUEST else flags | HOLD)
                elif flags == ACK:
                    window.offers.add(store.id, 0, peer, OWED, 0)
        at += (peers + 7) // 8
