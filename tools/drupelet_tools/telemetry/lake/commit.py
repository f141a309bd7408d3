"""What changes a lake: one Delta transaction, tried again where another writer was faster.

Pieces and rows from elsewhere are only added, and a piece that is there twice counts once, so
two ingests may both commit what they read. Only the files of keys are also merged: an ingest
reads all that may have a device of its own, so they have to stay few.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import (
    Place,
    Remote,
    create,
    delta_options,
    delta_uri,
    finish,
    is_cut,
    place,
    sync,
)
from drupelet_tools.telemetry.lake.delta import (
    LOG,
    NAMES_TABLE,
    TABLE_FACTS,
    UNNAMED,
    Lake,
    LakeFile,
    create_lake,
    read_files,
    unwritable,
)
from drupelet_tools.telemetry.lake.piece_file import TABLE, Written
from drupelet_tools.telemetry.tables.schemas import DELTA, FILES, FOREIGN, KEY, PIECE, TABLES

# Each writer that is faster costs one try; the pause between two doubles up to a second.
COMMIT_TRIES = 40
_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0
# What is taken in together lies together: an ingest that brings the next numbers of each device
# skips the row groups before.
KEY_ORDER = [("boot", "ascending"), ("number", "ascending"), ("device", "ascending")]
ROW_GROUP = 1 << 12
# A file of keys is merged with newer ones that have at least half as many rows: of n keys there
# are about log2(n) files, and each key is written about as often; beyond MERGED_MAX, a file for
# each so many.
MERGE_RATIO = 2
# Keys that are merged at most: the driver holds them, some hundred bytes for each.
MERGED_MAX = 1 << 18


@dataclass(slots=True)
class Change:
    """What one transaction adds and removes.

    `keys` are rows that are added to those of the lake; with `all_keys`, given a lake, they are
    what takes the place of all that it has. `app` is an id that is committed once only.
    """

    files: list[LakeFile]
    keys: pa.Table
    removed: Collection[LakeFile] = ()
    all_keys: Callable[[Lake], pa.Table] | None = None
    app: str = ""


class SupersededError(Exception):
    """A file that a change removes is not there any more: another one removed it."""


def commit(lake: Lake, change: Change) -> None:
    """Make a change to a lake count, whole or not at all.

    Raises:
        TelemetryError: the lake cannot be written, or others were faster COMMIT_TRIES times.
        SupersededError: another change removed what this one removes, or committed its app id.
    """
    for turn in range(COMMIT_TRIES):
        if try_once(lake.refreshed(), change):
            return
        time.sleep(random.random() * min(_PAUSE_MAX_S, _PAUSE_S * 2**turn))
    raise TelemetryError(
        f"{lake.root}: other writers were faster {COMMIT_TRIES} times; nothing changed:"
        " run it again"
    )


def try_once(lake: Lake, change: Change) -> bool:
    """Commit a change to this state of the lake; False: another writer was faster."""
    there = {one.path for kind in lake.files for one in lake.files[kind]}
    if any(one.path not in there for one in change.removed):
        raise SupersededError
    if change.app and lake.table.transaction_version(change.app) is not None:
        raise SupersededError
    merged: list[LakeFile] = []
    keys = change.keys
    if change.all_keys is not None:
        merged, keys = lake.files[KEY], change.all_keys(lake)
    elif keys.num_rows:
        merged = _to_merge(lake.files[KEY], keys.num_rows)
        paths = [str(lake.root / TABLE / one.path) for one in merged]
        keys = pa.concat_tables([keys, read_files(paths, FILES[KEY], FILES[KEY].names)])
    own = write_file(lake.root, KEY, secrets.token_hex(8), keys.sort_by(KEY_ORDER))
    properties = CommitProperties(
        app_transactions=[Transaction(change.app, 0)] if change.app else None
    )
    now_ms = time.time_ns() // 1_000_000
    added = [_add(one, now_ms) for one in [*change.files, *own] if one.rows]
    removed = [
        RemoveAction(one.path, True, now_ms, one.size, {"kind": one.kind})
        for one in [*change.removed, *merged]
    ]
    if not added and not removed:
        return True
    try:
        lake.table.create_write_transaction(
            [*added, *removed], "append", DELTA, ["kind"], commit_properties=properties
        )
    except (DeltaError, OSError) as refused:
        if _has_landed(lake, [*change.files, *own]):
            return True
        if isinstance(refused, CommitFailedError) or is_cut(refused):
            return False  # the file of keys is left to a compaction: nothing names it
        raise unwritable(lake.root, refused) from None
    _make_durable(lake)
    return True


def _make_durable(lake: Lake) -> None:
    """Wait until the log entries since `lake` are kept: delta-rs does not."""
    log = lake.root / TABLE / LOG
    if isinstance(log, Remote):
        return
    version = lake.version + 1
    while (entry := log / f"{version:020}.json").exists():
        sync(entry)
        version += 1
    sync(log)


def _has_landed(lake: Lake, added: Iterable[LakeFile]) -> bool:
    """Whether a commit counts whose answer was lost: no other has files of these names."""
    now = lake.refreshed()
    there = {one.path for kind in now.files for one in now.files[kind]}
    return any(one.path in there for one in added)


def _to_merge(files: Iterable[LakeFile], rows: int) -> list[LakeFile]:
    merged = []
    for one in sorted(files, key=lambda one: one.rows):
        if one.rows > MERGE_RATIO * rows or one.rows + rows > MERGED_MAX:
            break
        merged.append(one)
        rows += one.rows
    return merged


def _add(file: LakeFile, now_ms: int) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {"device": file.device_min},
        "maxValues": {"device": file.device_max},
        "nullCount": {"device": 0},
    }
    return AddAction(file.path, file.size, {"kind": file.kind}, now_ms, True, json.dumps(stats))


def create_table(
    root: Place, files: Iterable[LakeFile], mode: Literal["error", "overwrite"] = "error"
) -> None:
    """Make the Delta table of a lake with these files, in one commit.

    With `overwrite` they take the place of one that is there, with all that it names.

    Raises:
        TelemetryError: there is one, or it cannot be written.
    """
    now_ms = time.time_ns() // 1_000_000
    try:
        create_table_with_add_actions(
            delta_uri(root / TABLE),
            Schema.from_arrow(DELTA),
            [_add(one, now_ms) for one in files],
            mode=mode,
            storage_options=delta_options(root),
            partition_by=["kind"],
            **TABLE_FACTS,
        )
    except (DeltaError, OSError) as refused:
        raise unwritable(root, refused) from None


# --- files ---


def write_file(root: Place, kind: str, name: str, rows: pa.Table) -> list[LakeFile]:
    """Write rows as a file of the lake; none without rows.

    Raises:
        TelemetryError: it cannot be written.
    """
    if not rows.num_rows:
        return []
    path = f"kind={kind}/{name}.parquet"
    whole = root / TABLE / path
    try:
        out = create(whole)
        pq.write_table(rows, out, compression="zstd", store_schema=False, row_group_size=ROW_GROUP)
        size = finish(out, whole)
    except OSError as refused:
        raise unwritable(root, refused) from None
    ends = pc.min_max(rows["device"]).as_py()
    return [LakeFile(kind, path, size, rows.num_rows, ends["min"], ends["max"])]


def file_of(written: Written) -> LakeFile:
    """The file that a worker wrote."""
    ends = written.device_min, written.device_max
    return LakeFile(PIECE, written.path, written.size, written.rows, *ends)


# --- keys ---


def keys_of(root: Place, files: Iterable[LakeFile]) -> pa.Table:
    """A row for each copy of which there are pieces in these files."""
    schema = FILES[KEY]
    shared = [name for name in schema.names if name in FILES[PIECE].names]
    paths = [str(root / TABLE / one.path) for one in files]
    rows = read_files(paths, FILES[PIECE], [*shared, "block_from"])
    # Of a damaged copy there may be several; each would say the same.
    distinct = rows.select(shared).group_by(shared).aggregate([])
    return filled(distinct, schema)


def filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a schema; those that they lack are null."""
    columns = [
        rows[one.name].cast(one.type) if one.name in rows.column_names
        else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=schema)


def key_rows(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of keys; what they lack is null."""
    return pa.Table.from_pylist(list(rows), schema=FILES[KEY])


def name_keys(
    names: Mapping[str, Mapping[str, str]], known: Mapping[str, Mapping[str, str]], taken_ms: int
) -> list[dict[str, Any]]:
    """Key rows for what is not known of devices."""
    return [
        {
            "device": device,
            "taken_ms": taken_ms,
            "table": NAMES_TABLE,
            "row": json.dumps(dict(facts), sort_keys=True),
        }
        for device, facts in names.items()
        if known.get(device) != dict(facts)
    ]


# --- rows from elsewhere ---


def append(
    root: Place,
    rows: Mapping[str, Iterable[Mapping[str, Any]]],
    origin: str,
    names: Mapping[str, Mapping[str, str]] | None = None,
    look: Callable[[Lake], None] | None = None,
) -> bool:
    """Add rows that do not come from segments; False: the lake has this origin.

    Args:
        root: the lake's folder; made if it is not there.
        rows: by table; missing columns are null.
        origin: names the content, so that the same is not added twice.
        names: device -> `name`, `carriers`, `board`.
        look: called with the lake before anything is written; may refuse.

    Raises:
        TelemetryError: the lake cannot be written, or a row does not fit its table.
    """
    root = place(root).resolve()
    lake = create_lake(root)
    if origin in lake.keys([])["origin"].to_pylist():
        return False
    if look is not None:
        look(lake)
    taken_ms = time.time_ns() // 1_000_000
    foreign = foreign_rows(rows, origin, taken_ms)
    devices = set(foreign["device"].to_pylist()) | {UNNAMED}
    keys = [{"device": one, "origin": origin, "taken_ms": taken_ms} for one in sorted(devices)]
    keys += name_keys(names or {}, lake.names, taken_ms)
    files = write_file(root, FOREIGN, secrets.token_hex(8), foreign)
    try:
        commit(lake, Change(files, key_rows(keys), app=origin))
    except SupersededError:
        return False
    return True


def foreign_rows(
    rows: Mapping[str, Iterable[Mapping[str, Any]]], origin: str | None, taken_ms: int
) -> pa.Table:
    """Rows of tables as the lake keeps those that do not come from pieces.

    Raises:
        TelemetryError: a row does not fit its table.
    """
    entries = []
    for table, listed in rows.items():
        kept = list(listed)
        try:
            pa.Table.from_pylist(kept, schema=TABLES[table])
        except (pa.ArrowInvalid, pa.ArrowTypeError) as wrong:
            raise TelemetryError(f"{origin}: {table}: {wrong}") from None
        entries += [
            {
                "device": row.get("device", UNNAMED),
                "boot": row.get("boot"),
                "taken_ms": taken_ms,
                "origin": origin,
                "table": table,
                "row": json.dumps(row),
            }
            for row in kept
        ]
    return pa.Table.from_pylist(entries, schema=FILES[FOREIGN]).sort_by("device")
