"""What other processes leave for the agent: messages to publish.

Rows in the agent's own SQLite file: written whether or not an agent runs, and removed in the same
transaction as what came of them.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from drupelet.base.errors import CapacityError
from drupelet.base.limits import BODY_SIZE_MAX, DEPENDENCIES_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet_host.base import clock

# Messages that wait for an agent that does not run.
OUTBOX_MAX = 4096
# What the default client's body leaves beside its dependencies (docs/SPEC.md: clients).
PAYLOAD_SIZE_MAX = BODY_SIZE_MAX - 1 - DEPENDENCIES_MAX * ID_SIZE


class FullError(CapacityError):
    """As many entries as may wait do; who knows whether the agent runs says what to do."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(f"{waiting} entries wait already; the agent takes them when it runs")


class Letter(NamedTuple):
    """One message in the outbox."""

    entry: int
    timestamp: bytes
    payload: bytes


_COUNT_OUTBOX = "SELECT count(*) FROM outbox"
_ADD_OUTBOX = "INSERT INTO outbox (timestamp, payload) VALUES (?, ?)"


def _add(connection: sqlite3.Connection, timestamp: bytes, payload: bytes) -> int:
    connection.execute("BEGIN IMMEDIATE")
    try:
        waiting = connection.execute(_COUNT_OUTBOX).fetchone()[0]
        if waiting >= OUTBOX_MAX:
            raise FullError(waiting)
        cursor = connection.execute(_ADD_OUTBOX, (timestamp, payload))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def post(connection: sqlite3.Connection, payload: bytes, wall_ms: int | None = None) -> int:
    """Leave a message for the agent; durable on return. Returns its outbox entry.

    Raises CapacityError for a full outbox or a payload over PAYLOAD_SIZE_MAX bytes.
    """
    check_size(payload)
    return _add(connection, _stamp(wall_ms), payload)


def post_many(connection: sqlite3.Connection, payloads: Sequence[bytes]) -> int:
    """Leave the first messages for which there is room; durable on return. Returns how many.

    Raises CapacityError for a payload over PAYLOAD_SIZE_MAX bytes: then none is left.
    """
    for payload in payloads:
        check_size(payload)
    connection.execute("BEGIN IMMEDIATE")
    try:
        room = max(0, OUTBOX_MAX - waiting(connection))
        rows = [(_stamp(None), payload) for payload in payloads[:room]]
        connection.executemany(_ADD_OUTBOX, rows)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(rows)


def check_size(payload: bytes) -> None:
    """Raise CapacityError for a message that is too long."""
    if len(payload) > PAYLOAD_SIZE_MAX:
        raise CapacityError(
            f"message of {len(payload)} bytes; at most {PAYLOAD_SIZE_MAX} fit, split it"
        )


def _stamp(wall_ms: int | None) -> bytes:
    stamp = clock.timestamp8(clock.wall_ms() if wall_ms is None else wall_ms)
    assert len(stamp) == TIMESTAMP_SIZE
    return stamp


def letters(connection: sqlite3.Connection, count: int) -> list[Letter]:
    """The oldest `count` messages that wait."""
    rows = connection.execute(
        "SELECT entry, timestamp, payload FROM outbox ORDER BY entry LIMIT ?", (count,)
    )
    return [Letter(entry, bytes(stamp), bytes(payload)) for entry, stamp, payload in rows]


def waiting(connection: sqlite3.Connection) -> int:
    """Messages that wait."""
    return int(connection.execute(_COUNT_OUTBOX).fetchone()[0])
