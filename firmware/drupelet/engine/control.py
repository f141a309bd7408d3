"""What a client decides now and then, and what changes on a running node; loaded when it does.

Sharing a message that was kept to itself shares all that it depends on (BSP v1 section 5), first
things first, so that a power cut leaves nothing shared without its dependencies. A wake state by
which every peer may lack it goes before each, so that a cut loses none on its way. Deleting keeps
a message's place: its id and its edges. Leaving a group drops its messages; its id is refused
until it is joined again. A removed peer's row is free for another one.
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

# Kinds of `store.dismiss`.
_MEMBER_GROUP = const(1)
_MEMBER_PEER = const(2)


class Control:
    """Carries out what clients say of single messages; a ControlPort of the graph."""

    def __init__(self, core: "Core") -> None:
        self._core = core

    def share(self, group: int, handle: int) -> int:
        """Share a message of a group (row) and, before it, what it depends on that is not shared;
        OK or a code.

        `handle` 0: only what the message depends on that the graph is looking at. Depth first over
        a path of bounded length: where that overflows, it is forgotten, and the walk begins again
        from `handle`, with less to do. It goes through what was deleted.
        """
        core = self._core
        store = core.store
        path = [handle]
        id = bytearray(ID_SIZE)
        reader = BodyReader(store)
        lowest = GONE_HANDLE
        while True:
            here = path[-1]
            deeper = self._private_parent(group, reader, here, id)
            if deeper:
                if len(path) > core.pending.rows_max:
                    path = []
                path.append(deeper)
                continue
            code = OK
            # What went to make room cannot be opened up.
            if here and (store.load(here) != OK or store.private):
                for outbox in core.outboxes:
                    outbox.show(here, group)
                if here < lowest:
                    # Peers have passed it, so the record alone would reach none after a cut.
                    lowest = here
                    core.is_dirty = True
                    code = save(core)
                if code == OK:
                    code = store.open_up(here)
            if code != OK or here == handle:
                return code
            path.pop()
            if not path:
                path.append(handle)

    def _private_parent(self, group: int, reader: BodyReader, handle: int, id: bytearray) -> int:
        """The handle of a dependency that is not shared yet; 0: there is none.

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
                last = handle  # its ids do not cover what they depend on: there may be a circle
            if not reader.open_stored(group, handle):
                return 0
        finder = core.graph.finder(group, reader)
        for row in range(finder.dependencies(reader)):
            if finder.dependency_into(reader, row, id):
                parent = store.find(id, 0)
                # Whoever writes a message may name one of another group.
                if (
                    0 < parent < last
                    and store.load(parent) == OK
                    and store.private
                    and store.group == members.group_number(group)
                ):
                    return parent
        return 0

    def delete(self, group: int, handle: int) -> int:
        """Delete a delivered message of a group (row) and keep its place in the graph; OK or a
        code."""
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
        """Who sees a group and is not known to have a message: a bit for each."""
        core = self._core
        members = core.members
        missing = 0
        for peer in range(members.peers):
            if members.visibility(group, peer) and not core.holds(peer, handle):
                missing |= _bit(members, members.peer_number(peer))
        return missing


def _bit(members: "Members", number: int) -> int:
    """Of a peer (number), in what is missing: 16 on a board, on a host as many as it has."""
    return 1 << number % max(16, members.peers_max)


def held(core: "Core", peer: int, handle: int) -> None:
    """A peer (row) turns out to have a deleted message: once all do, its id may be forgotten."""
    members = core.members
    store = core.store
    number = members.peer_number(peer)  # 0: it was removed
    seen = 0
    if store.load(handle) == OK:
        group = members.group_row(store.group)
        for row in range(members.peers):
            if row != peer and group >= 0 and members.visibility(group, row):
                seen |= _bit(members, members.peer_number(row))
        # Whoever does not see the group any more is not waited for, nor who has the same bit.
        store.keep(handle, store.missing & seen & ~(_bit(members, number) if number else 0))


def shown(core: "Core", group: int, peer: int) -> None:
    """A peer is shared a group (rows) from now on: nothing that it lacks is settled.

    Of what was deleted it may be offered copies by others: that stays until it has them, too.
    """
    store = core.store
    members = core.members
    group_number = members.group_number(group)
    _save_changed(core)
    handle = 0
    while handle := store.next_kept(handle):
        if store.load(handle) == OK and store.group == group_number:
            store.keep(handle, store.missing | _bit(members, members.peer_number(peer)))


def hidden(core: "Core", group: int, peer: int, visibility: int) -> None:
    """A peer sees less of a group (rows): nothing of it is on its way any more."""
    _drop_rows(core, group, peer)
    if not visibility:
        _forget(core, peer)
    _save_changed(core)


def _drop_rows(core: "Core", group: int, peer: int) -> None:
    outbox = core.outboxes[peer]
    for row in range(outbox.count - 1, -1, -1):
        if outbox.group(row) == group and outbox.is_open(row):
            outbox.drop(row)


def leave(core: "Core", group: int) -> int:
    """Leave a group (row): its messages go, and what of it was on its way; OK or a code.

    When the store does not take it, nothing has changed.
    """
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
    # Nobody knows which offers and wishes were of this group; what matters comes again.
    for inbox in core.inboxes:
        inbox.drop_offers()
    pending.ask_again()
    _shorten(core)
    return _save_changed(core)


def _shorten(core: "Core") -> None:
    """The log may end earlier than it did."""
    newest = 0
    while (handle := core.store.next(newest)) > 0:
        newest = handle
    if not handle:  # else the flash does not say
        core.graph.newest = newest
        for outbox in core.outboxes:
            outbox.cursor = min(outbox.cursor, newest)


def remove_peer(core: "Core", peer: int) -> int:
    """Forget a peer (row) and all that is known about it; OK or a code: nothing has changed."""
    code = core.store.dismiss(_MEMBER_PEER, core.members.peer_number(peer))
    if code != OK:
        return code
    core.outboxes[peer].forget()
    core.inboxes[peer].forget()
    core.long.end_turn(peer)
    if core.passed_over is not None:
        core.passed_over.forget(peer)
    for incoming in core.incoming:
        if incoming.peer == peer:
            incoming.peer = -1
    # It may come back in another row, and must not take our numbers for those of this one.
    core.clocks.generation = (core.clocks.generation + 1) & 0xFFFF
    core.members.drop_peer(peer)
    _forget(core, peer)
    return _save_changed(core)


def _forget(core: "Core", peer: int) -> None:
    """Wait for nothing of a peer (row) any more, whose view of groups has changed before."""
    core.inboxes[peer].drop_offers()
    core.pending.ask_again()
    handle = 0
    while handle := core.store.next_kept(handle):
        held(core, peer, handle)


def _save_changed(core: "Core") -> int:
    """Save the wake state, now that who is to get what has changed; OK, for what could not be
    saved is tried again before the next sleep."""
    core.is_dirty = True
    save(core)
    return OK
