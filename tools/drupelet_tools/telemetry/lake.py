"""The lake: Parquet parts, raw packs and one manifest that says which of them count.

    LAKE/manifest.json       replaced atomically; what it does not name does not exist
    LAKE/parts/<id>-<table>.parquet
    LAKE/packs/<id>.dbxpack  the segments themselves, each behind its 32-bit length
    LAKE/plans/              work lists of the running ingest
    LAKE/lock                held by the running ingest

A part holds the rows of several devices. When a device has news, it is decoded again from its
packs into a new part, and older parts stop counting for it (`live` in the manifest).
Files that no manifest names are removed when the next ingest starts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.errors import TelemetryError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(list(columns))


_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()

TABLES: dict[str, pa.Schema] = {
    "segments": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("number", _LONG),
        ("first_ms", _LONG),
        ("last_ms", _LONG),
        ("wall_offset_ms", _LONG),
        ("wall_uncertainty_ms", _LONG),
        ("blocks", _INT),
        ("blocks_bad", _INT),
        ("copies", _INT),
        ("events", _LONG),
    ),
    "state_time": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("state", _INT),
        ("name", _TEXT),
        ("ms", _LONG),
        ("source", _TEXT),
    ),
    "traffic": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("carrier", _TEXT),
        ("direction", _TEXT),
        ("kind", _TEXT),
        ("unit", _TEXT),
        ("value", _LONG),
    ),
    "messages": _schema(
        ("device", _TEXT),
        ("message", _TEXT),
        ("event", _TEXT),
        ("boot", _INT),
        ("boot_ms", _LONG),
        ("wall_ms", _LONG),
        ("wall_uncertainty_ms", _LONG),
        ("peer", _INT),
        ("count", _LONG),
        ("sends_max", _LONG),
    ),
    "health": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("last_ms", _LONG),
        ("reset_cause", _INT),
        ("heap_limit", _LONG),
        ("heap_low", _LONG),
        ("battery_first_mv", _INT),
        ("battery_last_mv", _INT),
        ("battery_low_mv", _INT),
        ("errors", _LONG),
        ("blocks_lost", _LONG),
        ("segments_missing", _LONG),
        ("epoch_ms", _LONG),
        ("board_kind", _INT),
        ("flash_programs", _LONG),
        ("flash_erases", _LONG),
        ("messages_created", _LONG),
        ("messages_delivered", _LONG),
        ("duplicates", _LONG),
        ("retransmits", _LONG),
        ("refused", _LONG),
        ("damaged_frames", _LONG),
        ("malformed_records", _LONG),
        ("events_lost", _LONG),
    ),
    "quarantine": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("number", _LONG),
        ("block", _INT),
        ("file", _TEXT),
        ("offset", _LONG),
        ("reason", _TEXT),
    ),
    "sources": _schema(
        ("device", _TEXT),
        ("boot", _INT),
        ("number", _LONG),
        ("header_crc", _LONG),
        ("content_crc", _LONG),
        ("size", _LONG),
        ("damaged", _FLAG),
        ("file", _TEXT),
        ("offset", _LONG),
        ("pack", _TEXT),
        ("pack_offset", _LONG),
        ("reason", _TEXT),
    ),
}
DEVICES = _schema(("device", _TEXT), ("name", _TEXT), ("carriers", _TEXT), ("board", _TEXT))


@dataclass(slots=True)
class Part:
    """Files of one decoded group. `live` are those of its devices for which it still counts."""

    id: str
    devices: list[str]
    live: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    pack: str = ""

    def path(self, table: str) -> str:
        """Path of a table's file inside the lake."""
        return f"parts/{self.id}-{table}.parquet"


@dataclass(slots=True)
class Lake:
    """A lake folder and its manifest as last read. `packs` are the raw packs that count."""

    root: Path
    parts: list[Part] = field(default_factory=list)
    packs: list[str] = field(default_factory=list)
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    def read(self, table: str) -> pa.Table:
        """Rows of one table that count, in order of device."""
        schema = TABLES[table]
        pieces = [_read_part(self.root / part.path(table), part) for part in self.parts]
        whole = pa.concat_tables([schema.empty_table(), *pieces])
        return whole.sort_by("device")

    def read_devices(self) -> pa.Table:
        """One row per device: id, name, carriers, board; the board's own word where no names
        file says what it is."""
        told = {row["device"]: row["board_kind"] for row in self.read("health").to_pylist()}
        rows = []
        for device in sorted(told):
            facts = self.names.get(device, {})
            board = facts.get("board") or codes.BOARD_KINDS.get(told[device], "")
            name = facts.get("name") or device
            carriers = facts.get("carriers", "")
            rows.append({"device": device, "name": name, "carriers": carriers, "board": board})
        return pa.Table.from_pylist(rows, schema=DEVICES)


def _read_part(path: Path, part: Part) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as broken:
        raise TelemetryError(f"{path}: cannot read this part of the lake: {broken}") from None
    if len(part.live) == len(part.devices):
        return table
    return table.filter(pc.is_in(table["device"], value_set=pa.array(part.live, pa.string())))


def open_lake(root: Path) -> Lake:
    """Read the manifest of an existing lake.

    Raises:
        TelemetryError: no lake there, or its manifest cannot be read.
    """
    path = root / MANIFEST
    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise TelemetryError(
            f"{root}: no lake here; make one with: drupelet telemetry ingest PATH --lake {root}"
        ) from None
    except (OSError, ValueError) as broken:
        raise TelemetryError(f"{path}: cannot read the manifest: {broken}") from None
    if told.get("schema_version") != SCHEMA_VERSION:
        raise TelemetryError(
            f"{path}: written by another version; ingest the segments into a new folder"
        )
    parts = [Part(**part) for part in told["parts"]]
    return Lake(root, parts, list(told["packs"]), dict(told["names"]))


def create_lake(root: Path) -> Lake:
    """Open a lake, or make an empty folder for one.

    Raises:
        TelemetryError: the folder cannot be made or written.
    """
    try:
        for folder in (root, root / "parts", root / "packs", root / "plans"):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise TelemetryError(f"{root}: cannot write the lake: {refused.strerror}") from None
    return open_lake(root) if (root / MANIFEST).exists() else Lake(root)


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the lake for one ingest; another that comes meanwhile is refused."""
    try:
        handle = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as refused:
        raise TelemetryError(f"{root}: cannot write the lake: {refused.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TelemetryError(f"{root}: another ingest is writing this lake; wait") from None
        yield
    finally:
        os.close(handle)


def publish(lake: Lake) -> None:
    """Make the lake's state the one that counts: a durable temporary file, then a rename."""
    told = {
        "schema_version": SCHEMA_VERSION,
        "parts": [asdict(part) for part in lake.parts],
        "packs": lake.packs,
        "names": lake.names,
    }
    path = lake.root / MANIFEST
    temporary = path.with_suffix(".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(lake.root, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def supersede(lake: Lake, fresh: Iterable[Part]) -> None:
    """Take in new parts; older ones stop counting for the devices that these hold."""
    fresh = list(fresh)
    renewed = {device for part in fresh for device in part.devices}
    for part in lake.parts:
        part.live = [device for device in part.live if device not in renewed]
    lake.parts = [part for part in lake.parts if part.live] + fresh
    lake.packs += [part.pack for part in fresh if part.pack]


def sweep(lake: Lake) -> int:
    """Remove files that the manifest does not name (a killed ingest's, or superseded ones)."""
    named = {part.path(table) for part in lake.parts for table in TABLES} | set(lake.packs)
    removed = 0
    for folder in ("parts", "packs", "plans"):
        for path in sorted((lake.root / folder).iterdir()):
            if f"{folder}/{path.name}" not in named:
                path.unlink()
                removed += 1
    return removed


def write_table(path: Path, table: str, rows: list[dict[str, Any]]) -> None:
    """Write one table's rows as a Parquet file."""
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[table]), path, compression="zstd")
