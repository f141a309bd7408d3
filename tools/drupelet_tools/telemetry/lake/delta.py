"""The lake: one Delta table of what segments contribute, and packs of what came in small files.

    LAKE/table/_delta_log/        which files count, by Delta Lake's protocol
    LAKE/table/kind=piece/…       what copies of segments contribute (telemetry/lake/piece_file.py)
    LAKE/table/kind=key/…         what an ingest must know of the lake: all keys, names, imports
    LAKE/table/kind=foreign/…     rows from elsewhere, and places that are of no device
    LAKE/packs/<name>.dbxpack     segments that came as files of their own, each behind its length
    LAKE/plans/<run>/             work lists of a running ingest

All kinds are in one table, so one transaction changes them together. Pieces are only added, and
the tables that a reader sees are made of them as they are read (telemetry/tables/settle.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from drupelet_tools.telemetry.base.errors import LastingError, TelemetryError
from drupelet_tools.telemetry.base.place import (
    Opened,
    Place,
    Remote,
    again,
    dataset,
    delta_options,
    delta_uri,
    place,
    reason,
)
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake.clocks import work_out
from drupelet_tools.telemetry.lake.piece_file import PACKS, TABLE
from drupelet_tools.telemetry.tables.days import day_table
from drupelet_tools.telemetry.tables.schemas import (
    CHOICE,
    DELTA,
    DEVICES,
    FILES,
    FOREIGN,
    KEY,
    KINDS,
    MADE_OF,
    PIECE,
    SCHEMA_VERSION,
    TABLES,
    WALL_TABLES,
)
from drupelet_tools.telemetry.tables.settle import settled

# Boots of devices, as `Lake.keys` is asked for them.
NO_BOOTS = pa.schema([("device", pa.string()), ("boot", pa.int64())]).empty_table()
BOOTS_MAX = 1 << 16  # a boot's number has two bytes in a header (docs/SPEC.md 6)
PLANS = "plans"
FOLDERS = (TABLE, PACKS, PLANS)
LOG = "_delta_log"
OLD_MANIFEST = "manifest.json"  # of a lake up to version 3
# A snapshot of the log is written every so many commits: an ingest reads no more than that.
CHECKPOINT_COMMITS = 20
DESCRIPTION = f"schema version {SCHEMA_VERSION}"
DESCRIPTION_BEFORE = "schema version 4"  # which `migrate` brings up
TABLE_FACTS: dict[str, Any] = {
    "name": "drupelet telemetry",
    "description": DESCRIPTION,
    "configuration": {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        # What was removed is kept for who reads an earlier state, and then it leaves the log, too.
        "delta.deletedFileRetentionDuration": "interval 24 hours",
        "delta.logRetentionDuration": "interval 24 hours",
    },
}
# Pieces that are read at a time where a whole table need not be held.
SHARE_PIECES = 1 << 16
PARQUET_END = b"PAR1"
NAMES_TABLE = "names"  # of key rows: what a names file says of a device
UNNAMED = ""
_FIRMWARE = ("firmware", "firmware_set")  # of `health`; a boot says both at once


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file that counts: its path in the Delta table, and the devices that it is about."""

    kind: str
    path: str
    size: int
    rows: int
    device_min: str
    device_max: str


@dataclass(frozen=True, slots=True)
class Share:
    """Whole devices, some at a time: files that may have them, and the first and last of them.

    `devices` are the only ones that count; None where all between these two do.
    """

    paths: tuple[str, ...]
    device_min: str
    device_max: str
    devices: tuple[str, ...] | None = None

    def pieces(self, names: Collection[str]) -> pa.Table:
        """Columns of the pieces of these devices.

        Raises:
            TelemetryError: a file of the lake cannot be read.
        """
        schema = FILES[PIECE]
        wanted = [one.name for one in schema if one.name in names]
        device = pc.field("device")
        within = (device >= self.device_min) & (device <= self.device_max)
        if self.devices is not None:
            within &= device.isin(self.devices)
        return read_files(self.paths, schema, wanted, within)

    def table(self, name: str) -> pa.Table:
        """The rows of a table, wall times as the devices' own clocks say."""
        return settled(self.pieces({*CHOICE, *MADE_OF[name]}), name)


class Lake:
    """A lake as it was at one moment; what is committed later does not show."""

    def __init__(self, root: Place, table: DeltaTable) -> None:
        self.root = root
        self.version = table.version()
        self._described = table.metadata().description
        self.files = _files(table)
        self.table = table  # goes on with `refreshed`
        # Rows from elsewhere by table: a report reads some of them a dozen times.
        self._foreign_tables: dict[str, pa.Table] = {}

    def refreshed(self) -> Lake:
        """The lake as it is now; reads what was committed since.

        Raises:
            TelemetryError: the log cannot be read, or is of another version by now.
        """
        try:
            again(self.root, self.table.update_incremental)
        except (DeltaError, OSError) as broken:
            raise _bad_log(self.root, broken) from None
        if self.table.version() == self.version:
            return self
        if self.table.metadata().description != self._described:
            _check_version(self.root, self.table)
        return Lake(self.root, self.table)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever taken in."""
        return not (self.files[PIECE] or self.files[FOREIGN])

    def paths(self, kind: str) -> list[str]:
        """Paths of the files of a kind that count."""
        return [str(self.root / TABLE / one.path) for one in self.files[kind]]

    def read(
        self,
        table: str,
        columns: list[str] | None = None,
        where: pc.Expression | None = None,
        devices: Collection[str] | None = None,
    ) -> pa.Table:
        """Rows of one table, in order of device and boot.

        Args:
            table: a name in `schemas.TABLES`, or `devices`, which is read whole.
            columns: only these, wall times as the devices' own clocks say; all without.
            where: only rows for which this holds, wall times as the devices' own clocks say.
            devices: only rows of these, without reading what is stored of others.

        Raises:
            TelemetryError: a file of the lake cannot be read, or there is no such table.
        """
        if table == "devices":
            return self.read_devices(devices)
        if table not in TABLES:
            raise TelemetryError(f"{table}: no such table; one of {', '.join(TABLES)}, devices")
        schema = TABLES[table]
        names = columns or schema.names
        if table == "clocks":
            whole = self.clocks
        else:
            every = self._each(table, devices)
            chosen = every if where is None else (piece.filter(where) for piece in every)
            pieces = [piece.select(names) for piece in chosen]
            whole = pa.concat_tables([schema.empty_table().select(names), *pieces])
        if table in WALL_TABLES and columns is None:
            whole = fill_wall(whole, self.clocks)
        keys = [(name, "ascending") for name in ("device", "boot") if name in names]
        return whole.select(names).sort_by(keys) if keys else whole.select(names)

    def each(self, table: str, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of `read`, some devices at a time and as the devices' own clocks say."""
        for piece in self._each(table):
            yield piece.select(columns)

    def _each(self, table: str, devices: Collection[str] | None = None) -> Iterator[pa.Table]:
        if table == "days":
            for hours in self._each("hours", devices):
                yield day_table(fill_wall(hours, self.clocks))
            return
        if table != "events" and self._fits_one_share and devices is None:
            yield settled(self._pieces, table)
        else:
            for share in self.shares() if devices is None else self.shares_of(devices):
                yield share.table(table)
        foreign = self.foreign(table, devices)
        if foreign.num_rows:
            yield foreign

    def shares_of(self, devices: Collection[str]) -> list[Share]:
        """Some devices; what is stored of others is not read, as far as Parquet can skip it."""
        shares = []
        for share in self.shares():
            own = sorted(name for name in devices if share.device_min <= name <= share.device_max)
            if own:
                shares.append(self._share(own[0], own[-1], tuple(own)))
        return shares

    def shares(self) -> list[Share]:
        """All devices, some at a time."""
        if not self.files[PIECE]:
            return []
        if self._fits_one_share:
            files = self.files[PIECE]
            low = min(one.device_min for one in files)
            return [self._share(low, max(one.device_max for one in files))]
        own = self.key_columns(["device"], pc.field("device") != UNNAMED)
        counted = own.group_by("device").aggregate([([], "count_all")]).sort_by("device")
        before = np.cumsum(counted["count_all"].to_numpy()) // SHARE_PIECES
        edges = np.flatnonzero(np.diff(before, prepend=-1, append=-1))
        names = counted["device"].to_pylist()
        return [
            self._share(names[low], names[high - 1])
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]

    @property
    def _fits_one_share(self) -> bool:
        return sum(one.rows for one in self.files[PIECE]) <= SHARE_PIECES

    @cached_property
    def _pieces(self) -> pa.Table:
        """What all tables but that of events are made of, where it fits one share: a report
        reads nearly all of them."""
        rows = FILES[PIECE].empty_table()
        for share in self.shares():
            rows = share.pieces(FILES[PIECE].names[:-1])
        return rows

    def _share(self, low: str, high: str, devices: tuple[str, ...] | None = None) -> Share:
        own = [
            str(self.root / TABLE / one.path)
            for one in self.files[PIECE]
            if one.device_min <= high and one.device_max >= low
        ]
        return Share(tuple(own), low, high, devices)

    def foreign(self, table: str, devices: Collection[str] | None = None) -> pa.Table:
        """Rows of a table that do not come from pieces; of some devices, or of all."""
        if devices is not None:
            rows = self.foreign(table)
            return rows.filter(pc.is_in(rows["device"], pa.array(list(devices), pa.string())))
        if not self.files[FOREIGN]:
            return TABLES[table].empty_table()
        if table not in self._foreign_tables:
            self._foreign_tables[table] = self._read_foreign(table)
        return self._foreign_tables[table]

    def _read_foreign(self, table: str) -> pa.Table:
        schema = TABLES[table]
        all_rows = self._foreign
        of_table = all_rows.filter(pc.equal(all_rows["table"], table))
        rows = json.loads(f"[{','.join(of_table['row'].to_pylist())}]")
        if table == "quarantine":
            rows = _each_place_once(rows)
        return pa.Table.from_pylist(rows, schema=schema)

    @cached_property
    def _foreign(self) -> pa.Table:
        return read_files(self.paths(FOREIGN), FILES[FOREIGN], ["table", "row"])

    def key_columns(self, columns: list[str], where: pc.Expression | None = None) -> pa.Table:
        """Columns of the keys."""
        return read_files(self.paths(KEY), FILES[KEY], columns, where)

    def keys(
        self, devices: Collection[str], boots: pa.Table = NO_BOOTS, numbers: Collection[int] = ()
    ) -> pa.Table:
        """What an ingest must know: of the segments of `boots` (columns of NO_BOOTS) those that
        have one of these numbers, of these devices all that is of no segment, and the places that
        are of no device.

        Raises:
            TelemetryError: a file of the lake cannot be read.
        """
        number, boot = pc.field("number"), pc.field("boot")
        wanted = number.is_null() & pc.field("device").isin([UNNAMED, *devices])
        own = pc.unique(boots["device"])
        wanted_codes = _boot_codes(boots, own)
        if boots.num_rows and numbers:
            ends = pc.min_max(boots["boot"]).as_py()
            near = pc.field("device").isin(own) & number.isin(list(numbers))
            # By ranges Parquet's row groups are skipped.
            near &= (number >= min(numbers)) & (number <= max(numbers))
            wanted |= near & (boot >= ends["min"]) & (boot <= ends["max"])
        # A lake has many more boots with these numbers than those: a part at a time is looked at.
        schema, parts = FILES[KEY], []
        for part in read_parts(self.paths(KEY), schema, schema.names, wanted):
            is_near = pc.is_in(_boot_codes(part, own), value_set=wanted_codes)
            parts.append(part.filter(pc.or_(pc.is_null(part["number"]), is_near)))
        return pa.Table.from_batches(parts, schema)

    @cached_property
    def names(self) -> dict[str, dict[str, str]]:
        """What names files say, by device; of several the latest."""
        own = self.key_columns(["device", "taken_ms", "row"], pc.field("table") == NAMES_TABLE)
        return latest_names(own)

    def ids_of(self, words: Collection[str]) -> set[str]:
        """The ids of devices that are named, or given by their ids.

        Raises:
            TelemetryError: no device is called so.
        """
        ids: set[str] = set()
        for word in words:
            own = {device for device, facts in self.names.items() if facts.get("name") == word}
            if self.key_columns(["device"], pc.field("device") == word).num_rows:
                own.add(word)
            if not own:
                raise TelemetryError(f"{self.root}: no device {word!r}; name one by name or id")
            ids |= own
        return ids

    def imported(self) -> set[str]:
        """Devices that were added as rows; no segment may tell of them, too."""
        own = self.key_columns(["device"], pc.field("origin").is_valid())
        return set(pc.unique(own["device"]).to_pylist()) - {UNNAMED}

    @cached_property
    def clocks(self) -> pa.Table:
        """Wall clocks of boots that had none, from what they exchanged (lake/clocks.py)."""
        return work_out(self.each)

    def check(self) -> None:
        """Look at the ends of all files: those of Parquet say what they are.

        Raises:
            TelemetryError: the first one that is gone, cut or something else.
        """
        check_files(path for kind in KINDS for path in self.paths(kind))

    def read_devices(self, devices: Collection[str] | None = None) -> pa.Table:
        """One row per device, or per device of some: its id, what a names file says of it, and
        what its last boot that said so tells of board and firmware."""
        columns = ["device", "boot", "board_kind", *_FIRMWARE]
        boots = self.read("health", columns, devices=devices)
        rows = {device: {"device": device} for device in pc.unique(boots["device"]).to_pylist()}
        with_board = pc.is_valid(boots["board_kind"])
        with_firmware = pc.or_(*(pc.is_valid(boots[name]) for name in _FIRMWARE))
        for some, names in ((with_board, ("board_kind",)), (with_firmware, _FIRMWARE)):
            for row in _last(boots.filter(some), names):
                rows[row["device"]] |= row
        for table in ("messages", "battery", "traffic"):
            for device in pc.unique(self.foreign(table, devices)["device"]).to_pylist():
                rows.setdefault(device, {"device": device})
        for device, row in rows.items():
            facts = self.names.get(device, {})
            row["name"] = codes.as_text(facts.get("name") or device)
            row["carriers"] = facts.get("carriers", "")
            kind = codes.BOARD_KINDS.get(row.get("board_kind") or 0, "")
            row["board"] = facts.get("board") or kind
        return pa.Table.from_pylist([rows[device] for device in sorted(rows)], schema=DEVICES)


def latest_names(rows: pa.Table) -> dict[str, dict[str, str]]:
    """Of key rows with names the latest of each device."""
    listed = zip(
        rows["taken_ms"].to_pylist(),
        rows["row"].to_pylist(),
        rows["device"].to_pylist(),
        strict=True,
    )
    return {device: json.loads(row) for _, row, device in sorted(listed)}


def _each_place_once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two ingests at once may both have noted a place; a row of an import has no content."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for at, row in enumerate(
        sorted(rows, key=lambda one: (one.get("file") or "", one.get("offset") or 0))
    ):
        content = row.get("content_crc")
        seen.setdefault((at,) if content is None else (content, row["size"]), row)
    return list(seen.values())


# --- files ---


def _last(boots: pa.Table, names: Collection[str]) -> list[dict[str, Any]]:
    """What the last boot of each device has in some columns, null where it has nothing."""
    # Threads would not keep the order of the boots.
    last = boots.group_by("device", use_threads=False).aggregate(
        [(name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in names]
    )
    rows: list[dict[str, Any]] = last.rename_columns(["device", *names]).to_pylist()
    return rows


def _boot_codes(rows: pa.Table | pa.RecordBatch, devices: pa.Array) -> pa.Array:
    """A number for each row's device and boot; null for a device that is not among these."""
    index = pc.index_in(rows["device"], value_set=devices).cast(pa.int64())
    return pc.add(pc.multiply(index, BOOTS_MAX), rows["boot"].cast(pa.int64()))


def read_parts(
    paths: Collection[str], schema: pa.Schema, columns: list[str], where: pc.Expression
) -> Iterator[pa.RecordBatch]:
    """Rows of some Parquet files of the lake, as they are read.

    Raises:
        TelemetryError: one of the files cannot be read.
    """
    try:
        if paths:
            yield from dataset(paths, schema).to_batches(columns=columns, filter=where)
    except (OSError, pa.ArrowInvalid) as broken:
        check_files(paths)
        raise TelemetryError(f"cannot read this part of the lake: {reason(broken)}") from None


def read_files(
    paths: Collection[str],
    schema: pa.Schema,
    columns: list[str],
    where: pc.Expression | None = None,
) -> pa.Table:
    """Columns of some Parquet files of the lake.

    Raises:
        TelemetryError: one of them cannot be read.
    """
    if not paths:
        return schema.empty_table().select(columns)
    try:
        return dataset(paths, schema).to_table(columns, where)
    except (OSError, pa.ArrowInvalid) as broken:
        check_files(paths)
        raise TelemetryError(f"cannot read this part of the lake: {reason(broken)}") from None


def check_files(paths: Collection[str] | Iterator[str]) -> None:
    """Look at the ends of files.

    Raises:
        TelemetryError: the first one that is no whole Parquet file.
    """
    for path in paths:
        try:
            with Opened(place(path)) as file:
                end = file.pread(len(PARQUET_END), max(file.size - len(PARQUET_END), 0))
        except OSError as broken:
            raise _unreadable(place(path), reason(broken)) from None
        if end != PARQUET_END:
            raise _unreadable(place(path), "not a whole Parquet file")


def _unreadable(path: Place, why: str) -> TelemetryError:
    return TelemetryError(
        f"{path}: cannot read this part of the lake: {why}"
        # What a store refuses for now says itself what to do.
        + ("" if "; " in why else f"; put it back, or {_anew(path.parent.parent.parent)}")
    )


def fill_wall(table: pa.Table, clocks: pa.Table) -> pa.Table:
    """Wall times by `clocks`, for the boots that it names."""
    if clocks.num_rows == 0 or table.num_rows == 0:
        return table
    clocks = clocks.rename_columns(["device", "boot", "_offset", "_spread", "_from", "_jumps"])
    # A join takes no lists along.
    plain = [one.name for one in table.schema if not pa.types.is_nested(one.type)]
    rows = table.select(plain).append_column("_row", pa.array(np.arange(table.num_rows)))
    rows = rows.join(clocks, ["device", "boot"], join_type="left outer").sort_by("_row")
    is_known = pc.is_valid(rows["_jumps"])
    if "wall_ms" in table.column_names:
        fresh = {"wall_ms": pc.add(rows["boot_ms"], rows["_offset"])}
    else:
        fresh = {"wall_offset_ms": rows["_offset"], "wall_source": rows["_from"]}
        fresh["clock_jump"] = pc.greater(rows["_jumps"], 0)
    fresh["wall_uncertainty_ms"] = rows["_spread"]
    for name, values in fresh.items():
        place = table.schema.get_field_index(name)
        if place >= 0:
            table = table.set_column(place, name, pc.if_else(is_known, values, rows[name]))
    return table


# --- the folder ---


def open_lake(root: Place) -> Lake:
    """The state of an existing lake.

    Raises:
        TelemetryError: no lake there, one of another version, or one that cannot be read.
    """
    root = place(root)
    if not _has_log(root):
        if (root / OLD_MANIFEST).is_file():
            raise LastingError(
                f"{root}: a lake of schema version 3 or older, and this is {SCHEMA_VERSION};"
                f" bring it up with: drupelet telemetry migrate {root}"
            )
        raise TelemetryError(
            f"{root}: no lake here; make one with: drupelet telemetry ingest PATH --lake {root}"
        )
    if entry := _empty_entry(root / TABLE / LOG):
        raise LastingError(
            f"{entry}: is empty, as a power cut leaves it; remove it, and run the last ingest"
            " again"
        )
    try:
        options = delta_options(root)
        table = again(root, lambda: DeltaTable(delta_uri(root / TABLE), storage_options=options))
    except (DeltaError, TableNotFoundError, OSError) as broken:
        raise _bad_log(root, broken) from None
    _check_version(root, table)
    return Lake(root, table)


def _check_version(root: Place, table: DeltaTable) -> None:
    described = table.metadata().description
    if described == DESCRIPTION_BEFORE:
        raise LastingError(
            f"{root}: a lake of {described}, and this is {SCHEMA_VERSION};"
            f" bring it up with: drupelet telemetry migrate {root}"
        )
    if described != DESCRIPTION:
        raise LastingError(
            f"{root / TABLE}: of {described or 'another table'}, and this is {DESCRIPTION};"
            f" {_anew(root)}"
        )


def _bad_log(root: Place, broken: Exception) -> TelemetryError:
    log, why = root / TABLE / LOG, reason(broken)
    remedy = "" if "; " in why else f"; {_anew(root)}"
    return TelemetryError(f"{log}: cannot read the log: {why}{remedy}")


def _files(table: DeltaTable) -> dict[str, list[LakeFile]]:
    files: dict[str, list[LakeFile]] = {kind: [] for kind in KINDS}
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("partition.kind", "path", "size_bytes", "num_records", "min.device", "max.device")
    if actions.num_rows:
        for row in zip(*(actions[name].to_pylist() for name in names), strict=True):
            files[row[0]].append(LakeFile(*row))
    return files


def _anew(root: Place) -> str:
    """What to do with a lake that cannot be used; its packs may be all there is of an inbox."""
    packs = root / PACKS
    is_packed = isinstance(packs, Remote) or (packs.is_dir() and any(packs.iterdir()))
    kept = f" and {packs}" if is_packed else ""
    return f"ingest the segments{kept} into a new folder"


def create_lake(root: Place) -> Lake:
    """Open a lake, or make an empty one.

    Raises:
        TelemetryError: the folder cannot be made or written, or is not a lake's.
    """
    if _has_log(root) or (root / OLD_MANIFEST).is_file():
        return open_lake(root)
    strange = _strange_folder(root)
    # A lake that somebody else makes right now has its log before any other file.
    if strange and not _has_log(root):
        raise LastingError(
            f"{root / strange}: holds files, and {root / TABLE} has no {LOG}: not a lake, or one"
            " that lost it; name a new folder as --lake, and the segments and packs as input"
        )
    make_folders(root)
    schema = Schema.from_arrow(DELTA)
    try:
        # Where two make it at once, one of them does.
        table = DeltaTable.create(
            delta_uri(root / TABLE),
            schema,
            mode="ignore",
            storage_options=delta_options(root),
            partition_by=["kind"],
            **TABLE_FACTS,
        )
    except (DeltaError, OSError) as refused:
        raise unwritable(root, refused) from None
    return Lake(root, table)


def make_folders(root: Place) -> None:
    """Make the folders of a lake.

    Raises:
        TelemetryError: they cannot be made.
    """
    try:
        for folder in (*FOLDERS, *(f"{TABLE}/kind={kind}" for kind in KINDS)):
            (root / folder).mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise unwritable(root, refused) from None


def unwritable(root: Place, refused: Exception) -> TelemetryError:
    """The error that says why a lake cannot be written."""
    return TelemetryError(f"{root}: cannot write the lake: {reason(refused)}")


def _strange_folder(root: Place) -> str:
    """The folder in which something lies that the first steps of an ingest do not leave."""
    return next((folder for folder in (TABLE, PACKS, PLANS) if _has_files(root / folder)), "")


def _empty_entry(log: Place) -> str:
    """The newest entry of the log if it is empty: delta-rs would read it as a commit of nothing.
    The others were made durable before it was written. Empty: it is not."""
    if isinstance(log, Remote):
        return ""  # a store shows a file when all of it is there
    newest = max((name for name in os.listdir(log) if name.endswith(".json")), default="")
    entry = log / newest
    return str(entry) if newest and entry.stat().st_size == 0 else ""


def _has_log(root: Place) -> bool:
    log = root / TABLE / LOG
    return log.is_dir() if isinstance(log, Remote) else _has_files(log)


def _has_files(folder: Place) -> bool:
    if isinstance(folder, Remote):
        return bool(folder.below())
    # delta-rs has a `#` in the names of files that it has not finished.
    return any("#" not in name for _, _, names in os.walk(folder) for name in names)
