"""What `log`, `status` and `export-telemetry` read from a home: never a write, agent or not."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from drupelet.base.errors import StorageError
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import GONE_HANDLE, ID_SIZE, TIMESTAMP_SIZE
from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet.clients.default import TELEMETRY_CLIENT_ID
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_PENDING,
    STATE_PRIVATE,
)
from drupelet_host.base import clock
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.output import payload_text
from drupelet_host.clients.default_body import split_body
from drupelet_host.home import config
from drupelet_host.home.lifetime import AFTER_READING, Lifetime
from drupelet_host.member import family, identity
from drupelet_host.member.author_name import author_of
from drupelet_host.member.report_shapes import MemberReport, PeerReport, SharedReport
from drupelet_host.requests.client import latest_status
from drupelet_host.store import database, outbox
from drupelet_host.store.checksum import row_checksum
from drupelet_host.view import telemetry_files
from drupelet_host.view.status_shapes import PeerStatus, Status

_Shared = TypeVar("_Shared", bound=SharedReport)

GROUPS = ("readings", "telemetry")
_CLIENT_IDS = {"telemetry": TELEMETRY_CLIENT_ID, "commands": COMMANDS_CLIENT_ID}
# A number of the group follows; the index log_delivered has these rows.
_OF_GROUP = f"member_group = ? AND state = {STATE_DELIVERED}"
_COUNT = f"SELECT count(*) FROM log WHERE {_OF_GROUP}"  # noqa: S608 - no input
# A bit of a damaged row may have changed a value's type.
_COLUMNS = (
    "SELECT handle, CAST(id AS BLOB), source, CAST(timestamp AS BLOB), CAST(body AS BLOB),"
    " {checksum} FROM log WHERE"
)
_ROWS_BEHIND = f"{_COLUMNS} {_OF_GROUP} AND handle > ? ORDER BY handle LIMIT ?"
_ROWS_BEFORE = f"{_COLUMNS} {_OF_GROUP} AND handle < ? ORDER BY handle DESC LIMIT ?"
_BY_HANDLE = f"{_COLUMNS} handle = ?"
_BY_ID = "SELECT handle, id, member_group, state FROM log WHERE id BETWEEN ? AND ? LIMIT 5"
# A row as these queries give it.
_Row = tuple[int, bytes, int, bytes, bytes, int | None]
# Ids are shown by their first 4 bytes.
SHORT_ID_SIZE = 4
# Groups of which messages are found by their ids.
_ALL_GROUPS = (*GROUPS, *(name for name in _CLIENT_IDS if name not in GROUPS))
# Rows that are read by one query, and ids that are shown of many.
_ROWS_AT_ONCE = 256
_SHOWN_MAX = 4
_MEMBER_GROUP = 1
_MEMBER_PEER = 2
_log = logging.getLogger("drupelet.log")


class LogLine(TypedDict):
    """A message of the log."""

    order: Annotated[int, Meta(description="its place in the log, from 1")]
    handle: Annotated[int, Meta(description="number of the row that holds it in the store")]
    id: Annotated[str, Meta(description="64 hex digits")]
    author: Annotated[str, Meta(description="who wrote it; empty: the message does not say")]
    via: Annotated[str, Meta(description="the peer that sent it to us")]
    timestamp_ms: Annotated[int, Meta(description="when it was written, in ms since 1970")]
    time: Annotated[str, Meta(description="the same, in UTC, as text")]
    text: Annotated[str, Meta(description="the content; if not UTF-8, its size and start")]
    payload: Annotated[str, Meta(description="the content's bytes as hex digits")]
    dependencies: Annotated[list[str], Meta(description="ids of the messages that it follows")]
    damaged: NotRequired[
        Annotated[bool, Meta(description="the disk has spoiled it; the content is empty")]
    ]
    explodes_ms: NotRequired[Annotated[int, Meta(description="when it is deleted everywhere")]]
    explodes_once_read: NotRequired[
        Annotated[bool, Meta(description="it is deleted once it was read")]
    ]


class Entry(NamedTuple):
    """One message of the log, as it is shown.

    is_damaged: the disk has spoiled it; nothing of what it says is given out.
    """

    order: int
    handle: int
    id: bytes
    author: str
    via: str
    timestamp: bytes
    payload: bytes
    dependencies: list[bytes]
    is_damaged: bool = False
    lifetime: Lifetime = Lifetime()

    @property
    def is_shown(self) -> bool:
        """False for a message that is ephemeral or whose time is over, though it is still here."""
        if not self.lifetime.kind:
            return True
        is_over = self.lifetime.is_over(int.from_bytes(self.timestamp), clock.wall_ms())
        return not self.lifetime.is_ephemeral and not is_over

    @property
    def explodes_ms(self) -> int:
        """When it is deleted whoever has it, in ms since 1970; 0: never."""
        return self.lifetime.end_ms(int.from_bytes(self.timestamp))

    def fields(self) -> LogLine:
        """For JSON."""
        line: LogLine = {
            "order": self.order,
            "handle": self.handle,
            "id": self.id.hex(),
            "author": self.author,
            "via": self.via,
            "timestamp_ms": int.from_bytes(self.timestamp),
            "time": clock.timestamp_text(self.timestamp),
            "text": payload_text(self.payload),
            "payload": self.payload.hex(),
            "dependencies": [id.hex() for id in self.dependencies],
        }
        if self.is_damaged:
            line["damaged"] = True
        if self.explodes_ms:
            line["explodes_ms"] = self.explodes_ms
        if self.lifetime.kind & AFTER_READING:
            line["explodes_once_read"] = True
        return line


class Wanted(NamedTuple):
    """Which messages of a group: written at a time or later, by an author, with such an id."""

    since_ms: int = 0
    author: str = ""
    id_prefix: str = ""  # hex digits

    def has(self, entry: Entry) -> bool:
        """True for a message that is wanted."""
        return (
            int.from_bytes(entry.timestamp) >= self.since_ms
            and entry.author == (self.author or entry.author)
            and entry.id.hex().startswith(self.id_prefix)
        )


ALL = Wanted()


class LogView:
    """A home's log, read-only. Raises ConfigError or StorageError with one clear line."""

    def __init__(self, home: Path) -> None:
        self.config = config.load(home)
        self._open()

    def renew(self) -> None:
        """Look again whether there is a store now."""
        self.close()
        self._open()

    def _open(self) -> None:
        path = self.config.store_path
        # Before the first agent there is no store: that is an empty log, and nothing is made.
        self.begun = os.path.lexists(path)
        self.connection = (
            database.connect(path, read_only=True) if self.begun else database.empty()
        )
        self._checksum = "checksum" if database.has_checksums(self.connection) else "NULL"

    def check_identity(self) -> None:
        """Raise ConfigError when id or group are no longer those that the store was begun with.

        What the store has would else look like nothing.
        """
        if wrong := identity.problem(self.connection, self.config):
            raise config.ConfigError(wrong)

    def close(self) -> None:
        """Free the file."""
        self.connection.close()

    def _group_number(self, group: str) -> int:
        if group == "readings":
            id = family.group_id(self.config)
        else:
            group_id = bytearray(ID_SIZE)
            descriptor = self.config.group.encode()
            group_id_into(group_id, _CLIENT_IDS[group], descriptor, len(descriptor))
            id = bytes(group_id)
        row = self.connection.execute(
            "SELECT number FROM members WHERE kind = ? AND key = ?", (_MEMBER_GROUP, id)
        ).fetchone()
        return int(row[0]) if row else 0

    def _names(self) -> dict[int, str]:
        known = self.config.names()
        names = {0: self.config.name}
        for number, key in self._peer_ids().items():
            names[number] = known.get(key.hex(), key.hex())
        return names

    def _peer_ids(self) -> dict[int, bytes]:
        rows = self.connection.execute(
            "SELECT number, key FROM members WHERE kind = ? AND key != x''", (_MEMBER_PEER,)
        )
        return {int(number): bytes(key) for number, key in rows}

    def _taken(self) -> list[tuple[int, int]]:
        """First and last handles of what came from a feed as if it were ours, whoever wrote it."""
        rows = self.connection.execute(
            "SELECT substr(key, ?), value FROM meta WHERE key GLOB ?",
            (len(database.TAKEN) + 1, database.TAKEN + "*"),
        )
        return [(int(first), int(last)) for first, last in rows]

    def entries(
        self, group: str = "readings", after: int = 0, order: int = 0, wanted: Wanted = ALL
    ) -> Iterator[Entry]:  # fmt: skip
        """The log of a group in its order, from behind handle `after`, numbered from `order`+1.

        group: one of GROUPS, or "commands". Rows are read as they are asked for, some at a time.
        """
        entry_of = self._entry_maker(group)
        for row in self._rows(group, after):
            order += 1
            entry = entry_of(order, row)
            if entry.is_shown and (wanted is ALL or wanted.has(entry)):
                yield entry

    def is_sound(self, entry: Entry) -> bool:
        """False for a message that the disk has spoiled, with a warning that names it."""
        if entry.is_damaged:
            _log.warning(
                "message %d of %s is damaged and left out; `drupelet doctor` says what to do",
                entry.handle, self.config.store_path,
            )  # fmt: skip
        return not entry.is_damaged

    def newest(self, group: str, count: int, wanted: Wanted = ALL) -> list[Entry]:
        """The last `count` messages of a group that are wanted, in the log's order."""
        entry_of = self._entry_maker(group)
        order = self.count(group) + 1
        entries: list[Entry] = []
        for row in self._rows(group, GONE_HANDLE, is_backwards=True):
            if len(entries) == count:
                break
            order -= 1
            entry = entry_of(order, row)
            if entry.is_shown and wanted.has(entry):
                entries.append(entry)
        return entries[::-1]

    def count(self, group: str) -> int:
        """How many messages the log has of a group."""
        row = self.connection.execute(_COUNT, (self._group_number(group),)).fetchone()
        return int(row[0])

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """All that is read inside is of one moment, however much the agent writes meanwhile."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")

    def end(self) -> int:
        """The handle of the newest message of the log, whatever group and state it has."""
        row = self.connection.execute("SELECT max(handle) FROM log").fetchone()
        return row[0] or 0

    def _rows(self, group: str, after: int, is_backwards: bool = False) -> Iterator[_Row]:
        """Rows behind a handle, or before it; no query stays open while they are looked at, so
        that the agent can go on, however slow the reader is."""
        query = _ROWS_BEFORE if is_backwards else _ROWS_BEHIND
        query = query.format(checksum=self._checksum)
        number = self._group_number(group)
        while rows := self.connection.execute(query, (number, after, _ROWS_AT_ONCE)).fetchall():
            yield from rows
            after = rows[-1][0]

    def _entry_maker(
        self, group: str, state: int = STATE_DELIVERED
    ) -> Callable[[int, _Row], Entry]:
        """Makes entries of a group's rows, given their place in its log."""
        names = self._names()
        number = self._group_number(group)
        taken = self._taken() if group == "readings" else []

        def entry_of(order: int, row: _Row) -> Entry:
            handle, id, source, timestamp, body, checksum = row
            if group == "readings":
                dependencies, payload = family.split(self.config, body)
                timestamp = family.timestamp_of(self.config, timestamp)
                lifetime = family.lifetime_in(self.config, body)
            else:
                dependencies, payload = split_body(body)
                lifetime = Lifetime()
            via = names.get(source, "?")
            if checksum is not None:
                content = (number, source, state, id, row[3], body)
                if row_checksum(*content) != checksum:
                    return Entry(order, handle, id, "", via, timestamp, b"", [], True)
            ours = not source and not any(first <= handle <= last for first, last in taken)
            author = via if ours else author_of(payload)
            return Entry(
                order, handle, id, author, via, timestamp, payload, dependencies, False, lifetime
            )

        return entry_of

    def find(self, prefix: str) -> Entry:
        """The message of any group whose id begins with these hex digits.

        Raises StorageError when there is none, or more than one, or when it cannot be given out.
        """
        low, high = (bytes.fromhex(prefix.ljust(2 * ID_SIZE, digit)) for digit in "0f")
        rows = self.connection.execute(_BY_ID, (low, high)).fetchall()
        if not rows:
            # A store of an early release, which is only read, has no table of them.
            gone = (
                database.has_table(self.connection, "gone")
                and self.connection.execute(
                    "SELECT 1 FROM gone WHERE id BETWEEN ? AND ?", (low, high)
                ).fetchone()
            )
            why = " any more: it made room for others" if gone else ""
            raise StorageError(f"{prefix}: the log has no message with this id{why}")
        if len(rows) > 1:
            some = ", ".join(bytes(id).hex()[: len(prefix) + 4] for _, id, *_ in rows[:_SHOWN_MAX])
            more = ", ..." if len(rows) > _SHOWN_MAX else ""
            raise StorageError(
                f"{prefix}: more than one message begins so ({some}{more}); give more digits"
            )
        [(handle, _, number, state)] = rows
        if state not in (STATE_DELIVERED, STATE_PRIVATE):
            why = {
                STATE_PENDING: "it waits for a message that it depends on; try again later",
                STATE_DELETED: "it was deleted",
            }.get(state, "its client has rejected it")
            raise StorageError(f"{prefix}: the log does not have this message: {why}")
        group = next((name for name in _ALL_GROUPS if self._group_number(name) == number), "")
        if not group:
            raise StorageError(f"{prefix}: a message of a group that this home is not in")
        query = _BY_HANDLE.format(checksum=self._checksum)
        row = self.connection.execute(query, (handle,)).fetchone()
        entry = self._entry_maker(group, state)(0, row)
        if not entry.is_shown:
            raise StorageError(f"{prefix}: the log does not have this message: it has exploded")
        if entry.is_damaged:
            raise StorageError(
                f"{prefix}: message {handle} of {self.config.store_path} is damaged; get it from"
                " another member, or from a backup"
            )
        return entry

    def newest_timestamp(self) -> bytes:
        """The 8-byte timestamp of the reading that came last, in milliseconds; 0 for none."""
        row = self.connection.execute(
            f"SELECT timestamp FROM log WHERE {_OF_GROUP} ORDER BY handle DESC LIMIT 1",  # noqa: S608 - no input
            (self._group_number("readings"),),
        ).fetchone()
        return family.timestamp_of(self.config, bytes(row[0])) if row else bytes(TIMESTAMP_SIZE)

    def status(self) -> Status:
        """Identity, what the store holds, and what the agent last said of its carriers."""
        held = {group: self.count(group) for group in GROUPS}
        waiting = self.connection.execute(
            f"SELECT count(*) FROM log WHERE state = {STATE_PENDING}"  # noqa: S608 - no input
        ).fetchone()[0]
        running = config.locked(self.config.home)
        last = latest_status(self.config)
        return Status(
            name=self.config.name,
            id=self.config.id.hex(),
            group=self.config.group,
            home=str(self.config.home),
            running=running,
            store_gen=database.meta_int(self.connection, "store_gen", 0),
            boot=database.meta_int(self.connection, "boot", 0),
            lifetime=family.default_lifetime(self.config).text(),
            ephemeral=self.config.ephemeral,
            delivered=held["readings"],
            telemetry=held["telemetry"],
            pending=waiting,
            outbox=outbox.waiting(self.connection),
            store_bytes=_store_bytes(self.config.store_path),
            said_ms=last.said_ms,
            counters=last.counters,
            peers=self._peers(last, running),
            topics=_shared(last.topics, running),
            channels=_shared(last.channels, running),
            shares_with=last.shares_with if running else None,
            feed=last.feed,
            not_learned=last.not_learned,
        )

    def _peers(self, last: MemberReport, running: bool) -> list[PeerStatus]:
        rows_by_id = {row.id: row for row in last.peers}
        peers = []
        for peer in self.config.peers:
            row = rows_by_id.get(peer.id.hex()) or PeerReport(id=peer.id.hex(), seals={})
            known = msgspec.structs.asdict(row) | {
                "profile": row.profile or peer.asked_profile,
                "mode": row.mode or ("batch" if peer.carrier == "stick" else peer.mode),
            }
            if not running:
                known |= {"state": "stopped", "reason": ""}
            peers.append(PeerStatus(name=peer.name, url=peer.url, **known))
        return peers

    def export_telemetry(self, folder: Path) -> telemetry_files.Exported:
        """Write each black-box segment to a file of its own, and names.json; returns how many.

        Raises StorageError.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            exported = telemetry_files.write_segments(folder, self._segments)
            names = json.dumps(self._device_names(), indent=2) + "\n"
            atomic_write(folder / "names.json", names, durable=False)
        except OSError as error:
            raise StorageError(
                f"{error.filename or folder}: cannot be written ({error.strerror})"
            ) from error
        return exported

    def _segments(self) -> Iterator[telemetry_files.Segment]:
        """The messages of the telemetry group with who handed each over, in the log's order."""
        senders = {0: self.config.id, **self._peer_ids()}
        taken = self._taken()
        number = self._group_number("telemetry")
        for handle, id, source, timestamp, body, checksum in self._rows("telemetry", 0):
            content = (number, source, STATE_DELIVERED, id, timestamp, body)
            if checksum is not None and row_checksum(*content) != checksum:
                continue  # `drupelet doctor` names it
            of_feed = not source and any(first <= handle <= last for first, last in taken)
            sender = b"" if of_feed else senders.get(source, b"")
            yield telemetry_files.Segment(sender, split_body(body)[1])

    def _device_names(self) -> dict[str, dict[str, str]]:
        us = {"name": self.config.name, "carrier": "", "board": "host"}
        return {self.config.id.hex(): us} | {
            peer.id.hex(): {
                "name": peer.name,
                "carrier": peer.carrier,
                "board": peer.board or "board",
            }
            for peer in self.config.peers
        }


def _shared(rows: list[_Shared], running: bool) -> list[_Shared]:
    """What the agent last said of its topics or channels."""
    for row in rows if not running else ():
        row.state, row.reason = "stopped", ""
    return rows


def _store_bytes(path: Path) -> int:
    total = 0
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            total += name.stat().st_size
        except FileNotFoundError:
            continue
    return total
