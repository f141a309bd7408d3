"""What the rows of a node say, looked at from outside: for checks of the simulator."""

from drupelet.engine.core import Core

# ids by handle, of messages whose record may make room
Seen = dict[int, bytes]


def held_ids(core: Core, peer: int, seen: Seen) -> set[bytes]:
    """The messages in rows that a peer (row) is known to hold.

    `seen` keeps their ids for the time when their record has made room; one whose record did so
    before anybody looked is left out.
    """
    outbox = core.outboxes[peer]
    id = bytearray(32)
    ids = set()
    for row in range(outbox.count):
        if not outbox.is_open(row):
            handle = outbox.handles[row]
            if core.store.id_into(handle, id, 0):
                seen[handle] = bytes(id)
            ids.add(seen.get(handle, b""))
    return ids - {b""}


def broken_rows(core: Core) -> str:
    """S10: rows are in the order of the log, and counts are right.

    What does not hold, in words; "" when all does.
    """
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
