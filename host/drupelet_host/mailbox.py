"""What other processes leave for the agent: messages to publish and sticks to visit.

Rows in the agent's own SQLite file: written whether or not an agent runs, and removed in the same
transaction as what came of them.
"""

import sqlite3
from dataclasses import dataclass

from drupelet.errors import CapacityError
from drupelet.limits import BODY_SIZE_MAX, DEPENDENCIES_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet_host import clock

# Messages that wait for an agent that does not run.
OUTBOX_MAX = 4096
# Visits that wait at the same time.
REQUESTS_MAX = 16
# What the default client's body leaves beside its dependencies (docs/SPEC.md: clients).
PAYLOAD_SIZE_MAX = BODY_SIZE_MAX - 1 - DEPENDENCIES_MAX * ID_SIZE


@dataclass(frozen=True)
class Letter:
    """One message in the outbox."""

    entry: int
    timestamp: bytes
    payload: bytes


@dataclass(frozen=True)
class Request:
    """One stick visit that somebody waits for."""

    entry: int
    kind: str
    argument: str


def _add(connection: sqlite3.Connection, table: str, bound: int, values: tuple[object, ...]) -> int:
    columns = {"outbox": "timestamp, payload", "requests": "kind, argument"}[table]
    connection.execute("BEGIN IMMEDIATE")
    try:
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        if count >= bound:
            raise CapacityError(f"{table}: {count} entries wait already; start the agent first")
        cursor = connection.execute(f"INSERT INTO {table} ({columns}) VALUES (?, ?)", values)
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
    if len(payload) > PAYLOAD_SIZE_MAX:
        raise CapacityError(
            f"message of {len(payload)} bytes; at most {PAYLOAD_SIZE_MAX} fit, split it"
        )
    stamp = clock.timestamp8(clock.wall_ms() if wall_ms is None else wall_ms)
    assert len(stamp) == TIMESTAMP_SIZE
    return _add(connection, "outbox", OUTBOX_MAX, (stamp, payload))


def letters(connection: sqlite3.Connection, count: int) -> list[Letter]:
    """The oldest `count` messages that wait."""
    rows = connection.execute(
        "SELECT entry, timestamp, payload FROM outbox ORDER BY entry LIMIT ?", (count,)
    )
    return [Letter(entry, bytes(stamp), bytes(payload)) for entry, stamp, payload in rows]


def waiting(connection: sqlite3.Connection) -> int:
    """Messages that wait."""
    return int(connection.execute("SELECT count(*) FROM outbox").fetchone()[0])


def ask(connection: sqlite3.Connection, kind: str, argument: str) -> int:
    """Ask the running agent for something; returns the entry to wait for."""
    return _add(connection, "requests", REQUESTS_MAX, (kind, argument))


def requests(connection: sqlite3.Connection) -> list[Request]:
    """What is asked and not answered yet."""
    rows = connection.execute(
        "SELECT entry, kind, argument FROM requests WHERE result IS NULL ORDER BY entry"
    )
    return [Request(*row) for row in rows]


def answer(connection: sqlite3.Connection, entry: int) -> str | None:
    """The result of a request, None while it waits; taking it removes the request."""
    row = connection.execute("SELECT result FROM requests WHERE entry = ?", (entry,)).fetchone()
    if row is None or row[0] is None:
        return None
    connection.execute("DELETE FROM requests WHERE entry = ?", (entry,))
    return str(row[0])


def withdraw(connection: sqlite3.Connection, entry: int) -> None:
    """Stop waiting for a request."""
    connection.execute("DELETE FROM requests WHERE entry = ?", (entry,))
