"""How many messages of a group a store has from each peer, and the last handle of its log."""

import sqlite3

from drupelet.store.states import STATE_DELIVERED

_COUNT = (
    "SELECT peers.key, count(*) FROM log"
    " JOIN members AS ours ON ours.kind = 1 AND ours.number = member_group AND ours.key = ?"
    " LEFT JOIN members AS peers ON peers.kind = 2 AND peers.number = source"
    " WHERE state = ? GROUP BY source"
)


def by_peer(connection: sqlite3.Connection, group_id: bytes) -> dict[bytes, int]:
    """Messages in the log by the 4-byte id of the peer that handed them over; b"" for our own."""
    rows = connection.execute(_COUNT, (group_id, STATE_DELIVERED))
    return {bytes(key or b""): int(count) for key, count in rows}


def last_handle(connection: sqlite3.Connection) -> int:
    """The highest handle that a message of the log has or had; 0 for an empty one."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'log'").fetchone()
    return int(row[0]) if row else 0
