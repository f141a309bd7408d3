"""A lake of schema version 3 or 4 to this one: its segments are decoded again where they lie.

Version 3 kept Parquet parts beside a manifest, and sums of boots that cannot be taken apart again;
the pieces of version 4 do not say in which hour a counter rose. The lake's packs, and the large
packs that stayed where they were, have every segment that it accepted. The Delta table comes to be
or is replaced in one commit; before that the lake is as it was.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from drupelet_host.base.local_path import local_path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake.job import Task, run_here, run_plans
from drupelet_tools.telemetry.intake.plan import NOTHING, make_plan
from drupelet_tools.telemetry.lake.commit import (
    KEY_ORDER,
    create_table,
    file_of,
    foreign_rows,
    key_rows,
    keys_of,
    name_keys,
    write_file,
)
from drupelet_tools.telemetry.lake.delta import (
    DESCRIPTION_BEFORE,
    LOG,
    OLD_MANIFEST,
    PLANS,
    UNNAMED,
    Lake,
    LakeFile,
    make_folders,
    open_lake,
    read_files,
)
from drupelet_tools.telemetry.lake.piece_file import TABLE
from drupelet_tools.telemetry.tables.schemas import FILES, FOREIGN, KEY, PIECE, TABLES

OLD_VERSION = 3
OLD_PARTS, OLD_LOCK = "parts", "lock"
GROUPS = 4


@dataclass(frozen=True, slots=True)
class Migrated:
    """Counts of what the lake has now."""

    segments: int
    imports: int
    names: int


@dataclass(frozen=True, slots=True)
class _Old:
    """What a lake of version 3 holds: accepted copies, places of no device, and imports."""

    root: Path
    parts: list[dict[str, Any]]
    names: dict[str, dict[str, str]]

    def rows(self, table: str, parts: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Rows of a table in some parts, or in all."""
        all_rows: list[dict[str, Any]] = []
        for part in self.parts if parts is None else parts:
            if part["counts"].get(table, 0) > 0:
                path = self.root / OLD_PARTS / f"{part['id']}-{table}.parquet"
                try:
                    all_rows += pq.read_table(path).to_pylist()
                except (OSError, pa.ArrowInvalid) as broken:
                    reason = str(broken).splitlines()[0]
                    raise TelemetryError(f"{path}: cannot read it: {reason}") from None
        return all_rows

    @property
    def imports(self) -> list[dict[str, Any]]:
        return [part for part in self.parts if part["origin"]]


def migrate(root: Path) -> Migrated:
    """Bring a lake of version 3 or 4 up to this one, in its place.

    Raises:
        TelemetryError: no such lake, or a file with segments of it is not where it was.
    """
    # Lakes of older versions are all local.
    root = local_path(str(root)).resolve()
    if (root / TABLE / LOG).is_dir():
        table = _of_version_4(root)
        if table is not None:
            return _in_scratch(root, partial(_pieces_again, root, table))
        lake = open_lake(root)
        segments = lake.key_columns(["number"], pc.field("number").is_valid()).num_rows
        if (root / OLD_MANIFEST).is_file():
            remove_old(root)  # killed when all but this was done
            return Migrated(segments, 0, len(lake.names))
        raise TelemetryError(f"{root}: nothing to migrate: it is a lake of this version")
    old = _open_old(root)
    migrated = _in_scratch(root, partial(_decode_again, old))
    remove_old(root)
    return migrated


def _in_scratch(root: Path, decode: Callable[[str], Migrated]) -> Migrated:
    make_folders(root)
    run = secrets.token_hex(6)
    (root / PLANS / run).mkdir()
    try:
        return decode(run)
    finally:
        shutil.rmtree(root / PLANS / run, ignore_errors=True)


# --- version 4 ---


def _of_version_4(root: Path) -> DeltaTable | None:
    """The table of a lake of version 4; None for another one."""
    try:
        table = DeltaTable(root / TABLE)
        return table if table.metadata().description == DESCRIPTION_BEFORE else None
    except (DeltaError, OSError):
        return None  # `open_lake` says what is wrong


def _pieces_again(root: Path, table: DeltaTable, run: str) -> Migrated:
    """Pieces made anew; keys and rows from elsewhere are as they were."""
    lake = Lake(root, table)
    lake.check()
    schema = FILES[PIECE]
    copies = ["file", "offset", "size", "pack", "pack_offset"]
    paths = lake.paths(PIECE)
    rows = read_files(paths, schema, copies).group_by(copies).aggregate([])
    places = [_place(root, row) for row in rows.to_pylist()]
    _look_for(places)
    with_events = pc.field("event_rows").is_valid()
    events = bool(paths) and ds.dataset(paths, schema=schema).count_rows(filter=with_events) > 0
    name = secrets.token_hex(8)
    files = _decoded(root, places, run, events=events)
    for kind in (FOREIGN, KEY):
        kept = read_files(lake.paths(kind), FILES[kind], FILES[kind].names)
        order = KEY_ORDER if kind == KEY else "device"
        files += write_file(root, kind, name, kept.sort_by(order))
    if lake.refreshed().version != lake.version:
        raise TelemetryError(f"{root}: was written to meanwhile; nothing changed: run it again")
    create_table(root, files, mode="overwrite")
    return Migrated(len(places), _imports(lake), len(lake.names))


def _imports(lake: Lake) -> int:
    origins = lake.key_columns(["origin"], pc.field("origin").is_valid())["origin"]
    return len(pc.unique(origins))


def _place(root: Path, row: dict[str, Any]) -> tuple[Path, int, int]:
    """Where a copy lies: in a pack of the lake, or where it was found."""
    if row["pack"] is not None:
        return root / row["pack"], row["pack_offset"], row["size"]
    return Path(row["file"]), row["offset"], row["size"]


def _decoded(
    root: Path, places: list[tuple[Path, int, int]], run: str, *, events: bool
) -> list[LakeFile]:
    """Files of pieces of the segments at some places."""
    plan = make_plan(inputs.scan_places(places), NOTHING, GROUPS)
    task = Task(str(root), f"{run}/0", events)
    written = run_plans(root, plan.groups, task, run_here) if plan.groups else []
    return [file_of(one) for one in written if one.rows]


# --- version 3 ---


def _open_old(root: Path) -> _Old:
    path = root / OLD_MANIFEST
    try:
        content = json.loads(path.read_text("utf-8"))
        version = content["schema_version"]
        old = _Old(root, list(content["parts"]), dict(content["names"]))
    except FileNotFoundError:
        raise TelemetryError(f"{root}: no lake here that could be migrated") from None
    except (OSError, ValueError, KeyError, TypeError) as broken:
        raise TelemetryError(f"{path}: cannot read the manifest: {broken}") from None
    if version != OLD_VERSION:
        raise TelemetryError(
            f"{path}: of schema version {version}; only version {OLD_VERSION} can be migrated:"
            " ingest the segments, with the lake's packs, into a new folder"
        )
    return old


def _decode_again(old: _Old, run: str) -> Migrated:
    taken_ms = time.time_ns() // 1_000_000
    places, nowhere = _places(old)
    events = any(part["counts"].get("events") for part in old.parts)
    pieces = _decoded(old.root, places, run, events=events)
    foreign, keys = [foreign_rows({"quarantine": nowhere}, None, taken_ms)], [
        {"device": UNNAMED, "content_crc": one["content_crc"], "size": one["size"],
         "damaged": True, "taken_ms": taken_ms}
        for one in nowhere
    ]  # fmt: skip
    for part in old.imports:
        rows = {name: old.rows(name, [part]) for name in TABLES if part["counts"].get(name)}
        foreign.append(foreign_rows(rows, part["origin"], taken_ms))
        devices = sorted({UNNAMED, *foreign[-1]["device"].to_pylist()})
        keys += [
            {"device": one, "origin": part["origin"], "taken_ms": taken_ms} for one in devices
        ]
    keys += name_keys(old.names, {}, taken_ms)
    all_keys = pa.concat_tables([keys_of(old.root, pieces), key_rows(keys)]).sort_by(KEY_ORDER)
    name = secrets.token_hex(8)
    files = [
        *pieces,
        *write_file(old.root, FOREIGN, name, pa.concat_tables(foreign).sort_by("device")),
        *write_file(old.root, KEY, name, all_keys),
    ]
    create_table(old.root, files)
    return Migrated(len(places), len(old.imports), len(old.names))


def _places(old: _Old) -> tuple[list[tuple[Path, int, int]], list[dict[str, Any]]]:
    """Where each accepted copy lies: file, offset and size; and places that are of no device.

    A segment whose number was too far on was noted as one of no device, with the name of one in
    quarantine; it is a copy as the others are now.
    """
    reasons = {(row["file"], row["offset"]): row for row in old.rows("quarantine")}
    places, nowhere = [], []
    for row in old.rows("sources"):
        bad = reasons.get((row["file"], row["offset"]))
        if row["device"] == UNNAMED and bad is not None and bad["device"] == UNNAMED:
            identity = {"content_crc": row["content_crc"], "size": row["size"]}
            nowhere.append({**bad, **identity})
        else:
            places.append(_place(old.root, row))
    _look_for(places)
    return places, nowhere


def _look_for(places: list[tuple[Path, int, int]]) -> None:
    for path in _missing(places):
        raise TelemetryError(
            f"{path}: has segments of the lake and is not there; put it back to migrate"
        )


def _missing(places: list[tuple[Path, int, int]]) -> Iterator[Path]:
    ends: dict[Path, int] = {}
    for path, offset, size in places:
        ends[path] = max(ends.get(path, 0), offset + size)
    for path, end in sorted(ends.items()):
        if not path.is_file() or path.stat().st_size < end:
            yield path


def remove_old(root: Path) -> None:
    """Remove what only version 3 reads; its manifest last."""
    shutil.rmtree(root / OLD_PARTS, ignore_errors=True)
    (root / OLD_LOCK).unlink(missing_ok=True)
    (root / OLD_MANIFEST).unlink(missing_ok=True)
