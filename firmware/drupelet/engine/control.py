"""Changes on a running node: share or delete a message, leave a group, remove a peer.

Loaded when a client or an owner first asks for one. To share a private message shares all that it
depends on, ancestors first (BSP v1 5), so that a power cut leaves no shared message with private
dependencies. Before each step, a wake state is written that says that every peer may lack the
message, so that a power cut loses none on its way. A deleted message leaves its id and its edges.
Leaving a group drops its messages; their ids are refused until the group is joined again. The row
of a removed peer is free for another one.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import DEPENDENCIES_MAX, GONE_HANDLE, ID_SIZE
from drupelet.base.memory import copy
from drupelet.engine.body import BodyReader
from drupelet.engine.members import FAMILY_MVDS
from drupelet.engine.wake_state import save
from drupelet.store.states import STATE_PENDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.core import Core
    from drupelet.engine.members import Members

# Kinds of members in `store.dismiss`.
_MEMBER_GROUP = const(1)
_MEMBER_PEER = const(2)


class Control:
    """Shares and deletes single messages; a ControlPort of the graph."""

    def __init__(self, core: "Core") -> None:
        self._core = core

    def share(self, group: int, handle: int) -> int:
        """Share a message of a group (row), and first its private ancestors; return OK or a code.

        `handle` 0: only the ancestors of the message that the graph has open. Depth first, along a
        path of bounded length: when it overflows, the walk begins again from `handle` with fewer
        messages left. It passes through deleted messages.
        """
        core = self._core
        store = core.store
        path = [handle]
        id = bytearray(ID_SIZE)
        reader = BodyReader(store)
        lowest = GONE_HANDLE
        while True:
            current = path[-1]
            parent = self._private_parent(group, reader, current, id)
            if parent:
                if len(path) > core.pending.rows_max:
                    path = []
                path.append(parent)
                continue
            code = OK
            # A record that reclaim removed cannot be opened up.
            if current and (store.load(current) != OK or store.private):
                for outbox in core.outboxes:
                    outbox.show(current, group)
                if current < lowest:
                    # Cursors have passed it: after a power cut, the record alone reaches no peer.
                    lowest = current
                    core.is_dirty = True
                    code = save(core)
                if code == OK:
                    code = store.open_up(current)
            if code != OK or current == handle:
                return code
            path.pop()
            if not path:
                path.append(handle)

    def _private_parent(self, group: int, reader: BodyReader, handle: int, id: bytearray) -> int:
        """Return the handle of a private dependency; 0: there is none.

        `handle` 0: of the message that the graph has open.
        """
        core = self._core
        store = core.store
        members = core.members
        last = GONE_HANDLE
        if not handle:
            reader = core.graph.reader
        else:
            if members.family(group) == FAMILY_MVDS:
                last = handle  # ids do not cover dependencies, so there may be a cycle
            if not reader.open_stored(group, handle):
                return 0
        finder = core.graph.finder(group, reader)
        for row in range(finder.dependencies(reader)):
            if finder.dependency_into(reader, row, id):
                parent = store.find(id, 0)
                # The author of a message may name one of another group.
                if (
                    0 < parent < last
                    and store.load(parent) == OK
                    and store.private
                    and store.group == members.group_number(group)
                ):
                    return parent
        return 0

    def delete(self, group: int, handle: int) -> int:
        """Delete a delivered message of a group (row) except id and edges; return OK or a code."""
        core = self._core
        reader = core.graph.reader
        if not reader.open_stored(group, handle) or core.store.state == STATE_PENDING:
            return E_STORAGE
        edges = bytearray(1 + DEPENDENCIES_MAX * ID_SIZE)
        id = bytearray(ID_SIZE)
        finder = core.graph.finder(group, reader)
        count = finder.dependencies(reader)
        assert 0 <= count <= DEPENDENCIES_MAX  # it was delivered
        for row in range(count):
            if finder.dependency_into(reader, row, id):
                copy(edges, 1 + row * ID_SIZE, id, 0, ID_SIZE)
        edges[0] = count
        missing = self._missing(group, handle)
        code = core.store.entomb(handle, edges, 1 + count * ID_SIZE, missing)
        if code == OK:
            for outbox in core.outboxes:
                row = outbox.row_of(handle)
                if row >= 0:
                    outbox.drop(row)
        return code

    def _missing(self, group: int, handle: int) -> int:
        """Return a bit for each peer that sees a group and may lack the message."""
        core = self._core
        members = core.members
        missing = 0
        for peer in range(members.peers):
            if members.visibility(group, peer) and not core.holds(peer, handle):
                missing |= _bit(members, members.peer_number(peer))
        return missing


def _bit(members: "Members", number: int) -> int:
    """Return the bit of a peer (number) in `store.missing`, which has 16 or `peers_max` bits."""
    return 1 << number % max(16, members.peers_max)


def on_held(core: "Core", peer: int, handle: int) -> None:
    """Record that a peer (row) has a deleted message; once all peers have it, its id may go."""
    members = core.members
    store = core.store
    number = members.peer_number(peer)  # 0: the peer was removed
    seen = 0
    if store.load(handle) == OK:
        group = members.group_row(store.group)
        for row in range(members.peers):
            if row != peer and group >= 0 and members.visibility(group, row):
                seen |= _bit(members, members.peer_number(row))
        # Do not wait for peers that no longer see the group, nor for others with the same bit.
        store.keep(handle, store.missing & seen & ~(_bit(members, number) if number else 0))


def on_shown(core: "Core", group: int, peer: int) -> None:
    """Follow a group that is shared with a peer (rows) from now on.

    Others may offer it copies of deleted messages: their ids stay until it has them, too.
    """
    store = core.store
    members = core.members
    group_number = members.group_number(group)
    _save_changed(core)
    handle = 0
    while handle := store.next_kept(handle):
        if store.load(handle) == OK and store.group == group_number:
            store.keep(handle, store.missing | _bit(members, members.peer_number(peer)))


def on_hidden(core: "Core", group: int, peer: int, visibility: int) -> None:
    """Follow a peer that sees less of a group (rows) now: drop what was on its way to it."""
    _drop_rows(core, group, peer)
    if not visibility:
        core.inboxes[peer].disown(group)
        _forget(core, peer)
    _save_changed(core)


def _drop_rows(core: "Core", group: int, peer: int) -> None:
    outbox = core.outboxes[peer]
    for row in range(outbox.count - 1, -1, -1):
        if outbox.group(row) == group and outbox.is_open(row):
            outbox.drop(row)


def leave(core: "Core", group: int) -> int:
    """Leave a group (row) and drop its messages; OK, or a code if nothing has changed."""
    members = core.members
    code = core.store.dismiss(_MEMBER_GROUP, members.group_number(group))
    if code != OK:
        return code
    for peer in range(members.peers):
        outbox = core.outboxes[peer]
        for row in range(outbox.count - 1, -1, -1):
            if outbox.group(row) == group:
                outbox.drop(row)
    pending = core.pending
    for row in range(pending.rows_max):
        if pending.handles[row] and pending.group(row) == group:
            pending.drop(row)
    members.drop_group(group)
    core.regroup(group, None)
    # Entries do not say which group they are of; what matters comes again.
    for inbox in core.inboxes:
        inbox.drop_offers()
        inbox.disown(group)
    pending.ask_again()
    _shorten(core)
    return _save_changed(core)


def _shorten(core: "Core") -> None:
    """Lower `newest` and the cursors to the new end of the log."""
    newest = 0
    while (handle := core.store.next(newest)) > 0:
        newest = handle
    if not handle:  # else the flash refused a read
        core.graph.newest = newest
        for outbox in core.outboxes:
            outbox.cursor = min(outbox.cursor, newest)


def remove_peer(core: "Core", peer: int) -> int:
    """Forget a peer (row) and all that is known of it; OK, or a code if nothing has changed."""
    code = core.store.dismiss(_MEMBER_PEER, core.members.peer_number(peer))
    if code != OK:
        return code
    core.outboxes[peer].forget_peer()
    core.inboxes[peer].forget_peer()
    core.long.forget_peer(peer)
    if core.passed_over is not None:
        core.passed_over.forget(peer)
    # If it comes back in another row, it must not read old link numbers as those of that row.
    core.clocks.generation = (core.clocks.generation + 1) & 0xFFFF
    core.members.drop_peer(peer)
    _forget(core, peer)
    return _save_changed(core)


def _forget(core: "Core", peer: int) -> None:
    """Wait for nothing from a peer (row) any more, after its view of groups has changed."""
    core.inboxes[peer].drop_offers()
    core.pending.ask_again()
    handle = 0
    while handle := core.store.next_kept(handle):
        on_held(core, peer, handle)


def _save_changed(core: "Core") -> int:
    """Save the wake state after a change of members. Returns OK in any case: if it could not be
    saved, that is tried again before the next sleep."""
    core.is_dirty = True
    save(core)
    return OK
