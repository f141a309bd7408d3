"""A mailbox with the paper's contract: groups and a hint of time in, messages out.

It keeps envelopes for members that are absent: a topic, when it came, and sealed bytes that it
cannot read. Who asks gets what there is, some of which may be for others, with some missing; what
it loses, the members send each other as always, only later (docs/SPEC.md 15.6).

    envelope: topic [16], then vac.mvds.Message sealed as in a remote log
"""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drupelet import host_api
from drupelet.base.errors import CapacityError, PeerError, StorageError
from drupelet.node import Link, Node
from drupelet.store.states import STATE_DELIVERED
from drupelet_host.base import clock
from drupelet_host.remote.content_store import CONTENT_SIZE_MAX
from drupelet_host.remote.log import MESSAGES_PER_TURN_MAX, stamp_number, take_message
from drupelet_host.remote.log_bytes import (
    NAME_SIZE,
    SEAL_ENVELOPE,
    FeedKeys,
    Message,
    decode_message,
)
from drupelet_host.store import database

# Envelopes of all topics: the oldest goes for a new one.
ENVELOPES_MAX = 100_000
# Topics of one question, and envelopes of one answer.
TOPICS_MAX = 64
ANSWERS_MAX = 100
_SCHEMA = """
CREATE TABLE IF NOT EXISTS envelopes (entry INTEGER PRIMARY KEY AUTOINCREMENT,
    topic BLOB NOT NULL, came_s INTEGER NOT NULL, envelope BLOB NOT NULL UNIQUE);
CREATE INDEX IF NOT EXISTS envelopes_by_time ON envelopes (topic, came_s, entry);
"""


@dataclass(frozen=True)
class Kept:
    """An envelope, when it came in seconds since 1970, and its place among all."""

    entry: int
    came_s: int
    envelope: bytes


class Mailbox(Protocol):
    """A mailbox, here or elsewhere. Raises CapacityError or StorageError."""

    def keep(self, envelope: bytes, time_s: int) -> bool:
        """As `MailServer.keep`."""

    def ask(
        self, topics: Iterable[bytes], from_s: int = 0, to_s: int = 1 << 40, after: int = 0
    ) -> list[Kept]:
        """As `MailServer.ask`."""


class MailServer:
    """Envelopes in an SQLite file; each call is a transaction, or part of an open one."""

    def __init__(self, connection: sqlite3.Connection, envelopes_max: int = ENVELOPES_MAX) -> None:
        self._connection = connection
        self._envelopes_max = envelopes_max
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        self.dropped = 0

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def keep(self, envelope: bytes, time_s: int) -> bool:
        """Keep an envelope; False: it is held already. Raises CapacityError or StorageError."""
        if not NAME_SIZE < len(envelope) <= CONTENT_SIZE_MAX:
            raise CapacityError(f"an envelope of {len(envelope)} bytes")
        try:
            done = self._connection.execute(
                "INSERT OR IGNORE INTO envelopes (topic, came_s, envelope) VALUES (?, ?, ?)",
                (envelope[:NAME_SIZE], time_s, envelope),
            )
            if not done.rowcount:
                return False
            gone = self._connection.execute(
                "DELETE FROM envelopes WHERE entry IN (SELECT entry FROM envelopes"
                " ORDER BY entry LIMIT max(0, (SELECT count(*) FROM envelopes) - ?))",
                (self._envelopes_max,),
            )
        except sqlite3.Error as error:
            raise StorageError(f"the mailbox cannot be written ({error})") from error
        self.dropped += gone.rowcount
        return True

    def expire(self, before_s: int, from_s: int = 0) -> int:
        """Drop what came in the seconds from `from_s` to before `before_s`; how many."""
        done = self._connection.execute(
            "DELETE FROM envelopes WHERE came_s >= ? AND came_s < ?", (from_s, before_s)
        )
        return done.rowcount

    def shift(self, through_s: int, by_s: int) -> None:
        """Take what came up to that second as come so much later."""
        self._connection.execute(
            "UPDATE envelopes SET came_s = came_s + ? WHERE came_s <= ?", (by_s, through_s)
        )

    def ask(
        self, topics: Iterable[bytes], from_s: int = 0, to_s: int = 1 << 40, after: int = 0
    ) -> list[Kept]:
        """What came for these topics in this time, behind entry `after`; at most ANSWERS_MAX."""
        wanted = list(topics)[:TOPICS_MAX]
        marks = ",".join("?" * len(wanted))
        rows = self._connection.execute(
            "SELECT entry, came_s, envelope FROM envelopes"  # noqa: S608 - only question marks
            f" WHERE topic IN ({marks}) AND came_s BETWEEN ? AND ? AND entry > ?"
            " ORDER BY entry LIMIT ?",
            (*wanted, from_s, to_s, after, ANSWERS_MAX),
        )
        return [Kept(entry, came_s, bytes(envelope)) for entry, came_s, envelope in rows]


def open_mail(path: Path) -> MailServer:
    """A mailbox in a file of its own. Raises StorageError, one clear line."""
    connection = database.open_file(path)
    with database.closed_on_failure(path, connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        server = MailServer(connection)
        # Who read in an older file that was lost goes on here: its entries stay below.
        connection.execute(
            "INSERT INTO sqlite_sequence SELECT 'envelopes', ?"
            " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'envelopes')",
            (clock.wall_ms(),),
        )
    return server


class MailWriter:
    """Leaves a group's new messages at a mailbox; `through`: the handle of the last one.

    stays: given a body, False for one that is left out, because the message explodes.
    """

    def __init__(
        self, node: Node, group: int, keys: FeedKeys, through: int = 0,
        stays: Callable[[bytes], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._node = node
        self._stays = stays
        self._group = group
        self._keys = keys
        self.through = through

    def turn(self, server: Mailbox, time_s: int) -> int:
        """Leave what is new, a bounded number; how many. CapacityError, StorageError."""
        count = 0
        for logged in host_api.messages(self._node.store, self.through):
            body = host_api.body(self._node.store, logged) if self._is_ours(logged) else None
            if body is not None and self._stays(body):
                server.keep(self._envelope(logged, body), time_s)
                count += 1
            self.through = logged.handle
            if count == MESSAGES_PER_TURN_MAX:
                break
        return count

    def _is_ours(self, logged: host_api.Message) -> bool:
        is_shown = logged.state == STATE_DELIVERED and not logged.is_private
        return logged.group == self._group and is_shown and not logged.source

    def _envelope(self, logged: host_api.Message, body: bytes) -> bytes:
        node, group = self._node, self._group
        stamp = stamp_number(node, group, logged.timestamp)
        message = Message(host_api.group_id(node, group), stamp, body)
        return self._keys.name + self._keys.seal(SEAL_ENVELOPE, message.encode())


class MailReader:
    """Fetches what was left for a group by the members whose feeds are known.

    links: by topic, the link to the member that writes there. `unread`: envelopes that were not
    for us, or damaged. `after` is where to go on.
    """

    def __init__(self, node: Node, group: int, feeds: dict[bytes, tuple[FeedKeys, Link]]) -> None:
        assert all(len(topic) == NAME_SIZE for topic in feeds)
        self._node = node
        self._group = group
        self._feeds = feeds
        self.after = 0
        self.unread = 0

    def turn(self, server: Mailbox, now_ms: int, from_s: int = 0) -> int:
        """Take in what is there, ANSWERS_MAX at most; how many messages entered the log."""
        before = self._node.delivered
        for kept in server.ask(self._feeds, from_s, after=self.after):
            message, link = self._open(kept.envelope)
            if message is not None and link is not None:
                id = host_api.group_id(self._node, self._group)
                if message.group == id:
                    take_message(self._node, self._group, link, message, now_ms)
            self.after = kept.entry
        return self._node.delivered - before

    def _open(self, envelope: bytes) -> tuple[Message | None, Link | None]:
        keys, link = self._feeds[envelope[:NAME_SIZE]]
        try:
            return decode_message(keys.open(SEAL_ENVELOPE, envelope[NAME_SIZE:])), link
        except PeerError:
            self.unread += 1
            return None, None
