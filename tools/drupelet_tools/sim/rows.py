"""What the rows of a node say, looked at from outside: for checks of the simulator."""

from drupelet import host_api
from drupelet.link.link import Link
from drupelet.node import Node

# ids by handle, of messages whose record may make room
Seen = dict[int, bytes]


def held_ids(link: Link, seen: Seen) -> set[bytes]:
    """The messages in rows that a link's peer is known to hold.

    `seen` keeps their ids for the time when their record has made room; one whose record did so
    before anybody looked is left out.
    """
    held = host_api.held_ids(link)
    seen.update((handle, id) for handle, id in held.items() if id)
    return {seen[handle] for handle in held if handle in seen}


def broken_rows(node: Node) -> str:
    """S10: rows are in the order of the log, and counts are right.

    What does not hold, in words; "" when all does.
    """
    core = node.core
    pending = core.pending
    if pending.count != sum(map(bool, pending.handles)):
        return "messages that wait are counted wrong"
    for outbox in core.outboxes:
        handles = outbox.handles[: outbox.count]
        if outbox.count > outbox.rows_max:
            return f"{outbox.count} rows of {outbox.rows_max}"
        if handles != sorted(set(handles)):
            return f"rows {handles} are not in the order of the log"
        if outbox.open_count != sum(map(outbox.is_open, range(outbox.count))):
            return "open rows are counted wrong"
    return ""
