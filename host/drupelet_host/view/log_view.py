"""What `log`, `status` and `export-telemetry` read from a home: never a write, agent or not."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet.base.errors import StorageError
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE, TIMESTAMP_SIZE
from drupelet.clients.command import COMMANDS_CLIENT_ID
from drupelet.clients.default import TELEMETRY_CLIENT_ID
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING
from drupelet_host.base import clock
from drupelet_host.base.output import payload_text
from drupelet_host.clients.default_body import split_body
from drupelet_host.home import config
from drupelet_host.home.toml_table import NAME_SIZE_MAX
from drupelet_host.member import family, identity
from drupelet_host.requests.client import said_status
from drupelet_host.store import database, outbox
from drupelet_host.view import telemetry_files

GROUPS = ("readings", "telemetry")
_CLIENT_IDS = {"telemetry": TELEMETRY_CLIENT_ID, "commands": COMMANDS_CLIENT_ID}
# Ids are shown by their first 4 bytes.
SHORT_ID_SIZE = 4
_MEMBER_GROUP = 1
_MEMBER_PEER = 2


@dataclass(frozen=True)
class Entry:
    """One message of the log, as it is shown."""

    order: int
    handle: int
    id: bytes
    author: str
    via: str
    timestamp: bytes
    payload: bytes
    dependencies: list[bytes]

    def fields(self) -> dict[str, Any]:
        """For JSON; `via` is who handed it to us, `author` who wrote it, '' if it does not say."""
        return {
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


class LogView:
    """A home's log, read-only. Raises ConfigError or StorageError with one clear line."""

    def __init__(self, home: Path) -> None:
        self.config = config.load(home)
        path = self.config.store_path
        # Before the first agent there is no store: that is an empty log, and nothing is made.
        self.begun = os.path.lexists(path)
        self.connection = (
            database.connect(path, read_only=True) if self.begun else database.empty()
        )

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

    def entries(self, group: str = "readings", after: int = 0, order: int = 0) -> Iterator[Entry]:
        """The log of a group in its order, from behind handle `after`, numbered from `order`+1.

        group: one of GROUPS, or "commands".
        """
        names = self._names()
        rows = self.connection.execute(
            "SELECT handle, id, source, timestamp, body FROM log"
            " WHERE member_group = ? AND state = ? AND handle > ? ORDER BY handle",
            (self._group_number(group), STATE_DELIVERED, after),
        )
        taken = self._taken() if group == "readings" else []
        for handle, id, source, timestamp, body in rows:
            order += 1
            if group == "readings":
                dependencies, payload = family.split(self.config, bytes(body))
                shown = family.timestamp_of(self.config, bytes(timestamp))
            else:
                shown = bytes(timestamp)
                dependencies, payload = split_body(bytes(body))
            via = names.get(source, "?")
            ours = not source and not any(first <= handle <= last for first, last in taken)
            author = via if ours else author_of(payload)
            yield Entry(
                order, handle, bytes(id), author, via, shown, payload, dependencies
            )  # fmt: skip

    def newest(self, count: int) -> list[Entry]:
        """The last readings, in the log's order; their `order` counts from 1."""
        row = self.connection.execute(
            "SELECT handle FROM log WHERE member_group = ? AND state = ?"
            " ORDER BY handle DESC LIMIT 1 OFFSET ?",
            (self._group_number("readings"), STATE_DELIVERED, count - 1),
        ).fetchone()
        return list(self.entries("readings", row[0] - 1 if row else 0))

    def newest_timestamp(self) -> bytes:
        """The 8-byte timestamp of the reading that came last, in milliseconds; 0 for none."""
        row = self.connection.execute(
            "SELECT timestamp FROM log WHERE member_group = ? AND state = ?"
            " ORDER BY handle DESC LIMIT 1",
            (self._group_number("readings"), STATE_DELIVERED),
        ).fetchone()
        return family.timestamp_of(self.config, bytes(row[0])) if row else bytes(TIMESTAMP_SIZE)

    def status(self) -> dict[str, Any]:
        """Identity, what the store holds, and what the agent last said of its carriers."""
        count = "SELECT count(*) FROM log WHERE state = ? AND member_group = ?"
        held = {
            group: self.connection.execute(
                count, (STATE_DELIVERED, self._group_number(group))
            ).fetchone()[0]
            for group in GROUPS
        }
        waiting = self.connection.execute(
            "SELECT count(*) FROM log WHERE state = ?", (STATE_PENDING,)
        ).fetchone()[0]
        running = config.locked(self.config.home)
        last = said_status(self.config)
        return {
            "name": self.config.name,
            "id": self.config.id.hex(),
            "group": self.config.group,
            "home": str(self.config.home),
            "running": running,
            "store_gen": database.meta_int(self.connection, "store_gen", 0),
            "boot": database.meta_int(self.connection, "boot", 0),
            "delivered": held["readings"],
            "telemetry": held["telemetry"],
            "pending": waiting,
            "outbox": outbox.waiting(self.connection),
            "store_bytes": _store_bytes(self.config.store_path),
            "said_ms": last.get("said_ms", 0),
            "counters": last.get("counters", {}),
            "peers": self._peers(last, running),
            "topics": _shared(last.get("topics", []), running),
            "channels": _shared(last.get("channels", []), running),
            "feed": last.get("feed"),
            "not_learned": last.get("not_learned", []),
        }

    def _peers(self, last: dict[str, Any], running: bool) -> list[dict[str, Any]]:
        rows_by_id = {row["id"]: row for row in last.get("peers", [])}
        peers = []
        for peer in self.config.peers:
            row = rows_by_id.get(peer.id.hex(), {})
            peers.append(
                {
                    "name": peer.name,
                    "id": peer.id.hex(),
                    "url": peer.url,
                    "state": row.get("state", "unknown") if running else "stopped",
                    "reason": row.get("reason", "") if running else "",
                    "heard_ms": row.get("heard_ms", 0),
                    "outstanding": row.get("outstanding"),
                    "owed_since_ms": row.get("owed_since_ms", 0),
                    "undeliverable": row.get("undeliverable", 0),
                    "pending": row.get("pending", 0),
                    "more_outstanding": row.get("more_outstanding", False),
                    "profile": row.get("profile", peer.asked_profile),
                    "mode": row.get("mode", "batch" if peer.carrier == "stick" else peer.mode),
                    "mode_now": row.get("mode_now"),
                    "duplicates": row.get("duplicates"),
                    "foreign": row.get("foreign", 0),
                    "round_trip_ms": row.get("round_trip_ms"),
                    "recovering": row.get("recovering", False),
                    "seals": row.get("seals", {}),
                }
            )
        return peers

    def export_telemetry(self, folder: Path) -> telemetry_files.Exported:
        """Write each black-box segment to a file of its own, and names.json; returns how many.

        Raises StorageError.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            exported = telemetry_files.write_segments(folder, self._segments)
            names = json.dumps(self._device_names(), indent=2) + "\n"
            telemetry_files.replace_file(folder / "names.json", names.encode())
        except OSError as error:
            raise StorageError(
                f"{error.filename or folder}: cannot be written ({error.strerror})"
            ) from error
        return exported

    def _segments(self) -> Iterator[telemetry_files.Segment]:
        """The messages of the telemetry group with who handed each over, in the log's order."""
        senders = {0: self.config.id, **self._peer_ids()}
        taken = self._taken()
        rows = self.connection.execute(
            "SELECT handle, source, body FROM log"
            " WHERE member_group = ? AND state = ? ORDER BY handle",
            (self._group_number("telemetry"), STATE_DELIVERED),
        )
        for handle, source, body in rows:
            of_feed = not source and any(first <= handle <= last for first, last in taken)
            sender = b"" if of_feed else senders.get(source, b"")
            yield telemetry_files.Segment(sender, split_body(bytes(body))[1])

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


def author_of(payload: bytes) -> str:
    """Who wrote a reading: boards say so in their JSON, `"board": "A"`; '' for anything else.

    It is what the body says and no proof: any member can write any name. A name that no member
    could have (over NAME_SIZE_MAX characters) is none.
    """
    if not payload.startswith(b"{"):
        return ""
    try:
        board = json.loads(payload).get("board", "")
        # JSON can say what no text is, a lone surrogate: a ValueError of `encode`, too.
        is_name = isinstance(board, str) and len(board) <= NAME_SIZE_MAX
        return payload_text(board.encode()) if is_name else ""
    except (ValueError, RecursionError):
        return ""


def _shared(rows: list[dict[str, Any]], running: bool) -> list[dict[str, Any]]:
    """What the agent last said of its topics or channels."""
    return [row if running else {**row, "state": "stopped", "reason": ""} for row in rows]


def _store_bytes(path: Path) -> int:
    total = 0
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            total += name.stat().st_size
        except FileNotFoundError:
            continue
    return total
