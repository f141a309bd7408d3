"""What other processes leave for the agent: messages to publish and sticks to visit.

Rows in the agent's own SQLite file: written whether or not an agent runs, and removed in the same
transaction as what came of them.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from drupelet.base.errors import CapacityError, StorageError
from drupelet.base.limits import BODY_SIZE_MAX, DEPENDENCIES_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet_host.base import clock
from drupelet_host.store import database

# Messages that wait for an agent that does not run.
OUTBOX_MAX = 4096
# Requests that wait at the same time.
REQUESTS_MAX = 16
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


@dataclass(frozen=True)
class Request:
    """Something that somebody waits for: a stick visit, new keys, a message on a channel."""

    entry: int
    kind: str
    argument: str


_COUNT_OUTBOX = "SELECT count(*) FROM outbox"
_COUNT_REQUESTS = "SELECT count(*) FROM requests WHERE result IS NULL"
_ADD_OUTBOX = "INSERT INTO outbox (timestamp, payload) VALUES (?, ?)"
_ADD_REQUEST = "INSERT INTO requests (kind, argument) VALUES (?, ?)"


def _add(
    connection: sqlite3.Connection, count: str, bound: int, insert: str, *values: object
) -> int:
    connection.execute("BEGIN IMMEDIATE")
    try:
        waiting = connection.execute(count).fetchone()[0]
        if waiting >= bound:
            raise FullError(waiting)
        cursor = connection.execute(insert, values)
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
    return _add(connection, _COUNT_OUTBOX, OUTBOX_MAX, _ADD_OUTBOX, _stamp(wall_ms), payload)


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


def ask(connection: sqlite3.Connection, kind: str, argument: str) -> int:
    """Ask the running agent for something; returns the entry to wait for."""
    return _add(connection, _COUNT_REQUESTS, REQUESTS_MAX, _ADD_REQUEST, kind, argument)


def next_request(connection: sqlite3.Connection) -> Request | None:
    """The oldest that is not answered yet; alone, for the others may be withdrawn meanwhile."""
    row = connection.execute(
        "SELECT entry, kind, argument FROM requests WHERE result IS NULL ORDER BY entry LIMIT 1"
    ).fetchone()
    return Request(*row) if row else None


def forget_requests(path: Path) -> None:
    """Take away what was asked of an agent that ran before; raises StorageError.

    Whoever asked waits no more, and a cut may have left open what was done: not done twice.
    """
    with contextlib.closing(database.connect(path)) as connection:
        try:
            connection.execute("DELETE FROM requests")
        except sqlite3.Error as error:
            raise StorageError(database.explain(path, error)) from error


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
