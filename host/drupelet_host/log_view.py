"""What `log`, `status` and `export-telemetry` read from a home: never a write, agent or not."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet.clients import TELEMETRY_CLIENT_ID
from drupelet.clients_command import COMMANDS_CLIENT_ID
from drupelet.errors import StorageError
from drupelet.flashread import STATE_DELIVERED, STATE_PENDING
from drupelet.hashes import group_id_into
from drupelet.limits import BOX_HEADER_SIZE, ID_SIZE
from drupelet_host import clock, config, database, family, mailbox
from drupelet_host.output import payload_text
from drupelet_host.parse import split_body
from drupelet_host.status import last_status

GROUPS = ("readings", "telemetry")
_CLIENT_IDS = {"telemetry": TELEMETRY_CLIENT_ID, "commands": COMMANDS_CLIENT_ID}
# Ids are shown by their first 4 bytes.
SHORT_ID_SIZE = 4
_BOX_MAGIC = b"DRBX"
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

    def close(self) -> None:
        """Free the file."""
        self.connection.close()

    def _group_number(self, group: str) -> int:
        if group == "readings":
            id = family.group_id(self.config)
        else:
            made = bytearray(ID_SIZE)
            descriptor = self.config.group.encode()
            group_id_into(made, _CLIENT_IDS[group], descriptor, len(descriptor))
            id = bytes(made)
        row = self.connection.execute(
            "SELECT number FROM members WHERE kind = ? AND key = ?", (_MEMBER_GROUP, id)
        ).fetchone()
        return int(row[0]) if row else 0

    def _names(self) -> dict[int, str]:
        known = self.config.names()
        names = {0: self.config.name}
        for number, key in self.connection.execute(
            "SELECT number, key FROM members WHERE kind = ? AND key != x''", (_MEMBER_PEER,)
        ):
            names[number] = known.get(bytes(key).hex(), bytes(key).hex())
        return names

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
        last = last_status(self.config.status_path)
        running = config.locked(self.config.home)
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
            "outbox": mailbox.waiting(self.connection),
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
        said = {row["id"]: row for row in last.get("peers", [])}
        peers = []
        for peer in self.config.peers:
            row = said.get(peer.id.hex(), {})
            peers.append(
                {
                    "name": peer.name,
                    "id": peer.id.hex(),
                    "url": peer.url,
                    "state": row.get("state", "unknown") if running else "stopped",
                    "reason": row.get("reason", "") if running else "",
                    "heard_ms": row.get("heard_ms", 0),
                    "outstanding": row.get("outstanding"),
                    "profile": row.get("profile", peer.asked_profile),
                    "mode": row.get("mode", "batch" if peer.carrier == "stick" else peer.mode),
                    "mode_now": row.get("mode_now"),
                    "duplicates": row.get("duplicates"),
                    "round_trip_ms": row.get("round_trip_ms"),
                    "recovering": row.get("recovering", False),
                    "seals": row.get("seals", {}),
                }
            )
        return peers

    def export_telemetry(self, folder: Path) -> int:
        """Write each black-box segment to a file of its own, and names.json; returns how many.

        Files: `<device>-<boot>-<number>.dbx`, the same bytes every time. Raises StorageError.
        """
        written = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for entry in self.entries("telemetry"):
                name = segment_name(entry.payload)
                if name:
                    _replace(folder / name, entry.payload)
                    written += 1
            names = json.dumps(self._device_names(), indent=2) + "\n"
            _replace(folder / "names.json", names.encode())
        except OSError as error:
            raise StorageError(
                f"{error.filename or folder}: cannot be written ({error.strerror})"
            ) from error
        return written

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
    """Who wrote a reading: boards say so in their JSON, `"board": "A"`; '' for anything else."""
    if not payload.startswith(b"{"):
        return ""
    try:
        board = json.loads(payload).get("board", "")
        # JSON can say what no text is, a lone surrogate: a ValueError of `encode`, too.
        return payload_text(board.encode()) if isinstance(board, str) else ""
    except (ValueError, RecursionError):
        return ""


def segment_name(payload: bytes) -> str:
    """The file name of a black-box segment, '' when it is none (docs/SPEC.md: black box)."""
    if len(payload) <= BOX_HEADER_SIZE or not payload.startswith(_BOX_MAGIC):
        return ""
    boot = int.from_bytes(payload[6:8], "little")
    number = int.from_bytes(payload[16:20], "little")
    return f"{payload[8:12].hex()}-{boot:05d}-{number:08d}.dbx"


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(content)
    os.replace(part, path)


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
