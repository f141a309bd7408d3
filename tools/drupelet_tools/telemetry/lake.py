"""The lake: Parquet parts, packs of small files, and one manifest that says which of them count.

    LAKE/manifest.json       replaced atomically; what it does not name does not exist
    LAKE/parts/<id>-<table>.parquet
    LAKE/packs/<id>.dbxpack  segments that came as files of their own, each behind its length
    LAKE/plans/              work lists of the running ingest
    LAKE/lock                held by the running ingest

Parts are only added. When a boot that a part holds has news, a later part holds all rows of that
boot anew and says so in its table `renewed`; the earlier rows stop counting. Files that no
manifest names are removed when the next ingest starts, if they have names that an ingest gives.
A manifest is there before the first part or pack, so folders with something in them and no
manifest are not touched: somebody's own, or a lake that lost it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.local_path import local_path
from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.schemas import (
    BOOT_TABLES,
    DEVICES,
    SCHEMA_VERSION,
    TABLES,
    WALL_TABLES,
)

MANIFEST = "manifest.json"
FOLDERS = ("parts", "packs", "plans")
PARQUET_END = b"PAR1"
# The names that an ingest and an import give; only such files are ever removed.
_RUN = r"[0-9a-f]{12}"
_GROUP = rf"{_RUN}-\d+-\d+-\d+-[0-9a-f]{{6}}"
OWN_NAMES = {
    "parts": re.compile(
        rf"({_GROUP}|{_RUN}-\d+-unnamed|{_RUN}|import-[0-9a-f]{{16}})-[a-z_]+\.parquet"
    ),
    "packs": re.compile(rf"{_GROUP}\.dbxpack"),
    "plans": re.compile(rf"{_RUN}|{_RUN}-\d+-\d+\.(arrow|done)"),
}


@dataclass(slots=True)
class Part:
    """Files of one decoded group: rows by table (a table without rows has no file).

    `origin` names the content of a part that did not come from segments.
    """

    id: str
    counts: dict[str, int] = field(default_factory=dict)
    packs: list[str] = field(default_factory=list)
    origin: str = ""

    def path(self, table: str) -> str:
        """Path of a table's file inside the lake."""
        return f"parts/{self.id}-{table}.parquet"

    def has(self, table: str) -> bool:
        """Whether there is a file for a table."""
        return self.counts.get(table, 0) > 0


@dataclass(slots=True)
class Lake:
    """A lake folder and its manifest as last read."""

    root: Path
    parts: list[Part] = field(default_factory=list)
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    clocks: str = ""

    def read(
        self, table: str, columns: list[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """Rows of one table that count, in order of device and boot.

        Args:
            table: a name in `schemas.TABLES`.
            columns: only these, wall times as the devices' own clocks say; all without.
            where: only rows for which this holds.

        Raises:
            TelemetryError: a file of the lake cannot be read.
        """
        schema = TABLES[table]
        if table == "clocks":
            pieces = [self._file(self.clocks, None, None)] if self.clocks else []
        else:
            pieces = list(self._pieces(table, columns, where))
        names = columns or schema.names
        wanted = pa.schema([schema.field(name) for name in names])
        whole = pa.concat_tables(
            [wanted.empty_table(), *(piece.select(names).cast(wanted) for piece in pieces)]
        )
        if table in WALL_TABLES and columns is None:
            whole = fill_wall(whole, self)
        keys = [(name, "ascending") for name in ("device", "boot") if name in names]
        return whole.sort_by(keys) if keys else whole

    def each(self, table: str, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of `read`, part by part and as the devices' own clocks say."""
        for piece in self._pieces(table, columns, None):
            yield piece.select(columns).cast(pa.schema([TABLES[table].field(n) for n in columns]))

    def _pieces(
        self, table: str, columns: list[str] | None, where: pc.Expression | None
    ) -> Iterator[pa.Table]:
        for at, part in enumerate(self.parts):
            if not part.has(table):
                continue
            gone = self.renewed_after(at) if table in BOOT_TABLES else None
            needed = columns
            if columns is not None and gone is not None and gone.num_rows:
                needed = [*columns, *(key for key in ("device", "boot") if key not in columns)]
            piece = self._file(part.path(table), needed, where)
            if gone is not None and gone.num_rows and piece.num_rows:
                piece = without_boots(piece, gone)
            yield piece

    def renewed_after(self, at: int) -> pa.Table:
        """Boots whose rows in the part of this index stopped counting."""
        later = [part for part in self.parts[at + 1 :] if part.has("renewed")]
        pieces = [self._file(part.path("renewed"), None, None) for part in later]
        return pa.concat_tables([TABLES["renewed"].empty_table(), *pieces])

    def _file(self, path: str, columns: list[str] | None, where: pc.Expression | None) -> pa.Table:
        try:
            return pq.read_table(self.root / path, columns=columns, filters=where)
        except (OSError, pa.ArrowInvalid) as broken:
            raise self._unreadable(path, str(broken).splitlines()[0]) from None

    def imported(self) -> set[str]:
        """Devices whose boots were added as rows (`append`); no segment may tell of them, too."""
        devices: set[str] = set()
        for part in self.parts:
            if part.origin and part.has("health"):
                rows = self._file(part.path("health"), ["device"], None)
                devices.update(pc.unique(rows["device"]).to_pylist())
        return devices

    def check(self) -> None:
        """Look at the ends of all files: those of Parquet say what they are.

        Raises:
            TelemetryError: the first one that is gone, cut or something else.
        """
        named = [part.path(table) for part in self.parts for table in TABLES if part.has(table)]
        for path in [*named, self.clocks] if self.clocks else named:
            try:
                with open(self.root / path, "rb") as file:
                    file.seek(-len(PARQUET_END), os.SEEK_END)
                    end = file.read()
            except OSError as broken:
                raise self._unreadable(path, str(broken.strerror)) from None
            if end != PARQUET_END:
                raise self._unreadable(path, "not a whole Parquet file")

    def _unreadable(self, path: str, reason: str) -> TelemetryError:
        return TelemetryError(
            f"{self.root / path}: cannot read this part of the lake: {reason};"
            f" put it back, or {_anew(self.root)}"
        )

    def read_devices(self) -> pa.Table:
        """One row per device: id, name, carriers, board; the board's own word where no names
        file says what it is."""
        kinds: dict[str, int | None] = {}
        health = self.read("health", ["device", "board_kind"])
        for device, kind in zip(
            health["device"].to_pylist(), health["board_kind"].to_pylist(), strict=True
        ):
            kinds[device] = kinds.get(device) if kind is None else kind
        for table in ("messages", "battery", "traffic"):
            if any(part.origin and part.has(table) for part in self.parts):
                for device in pc.unique(self.read(table, ["device"])["device"]).to_pylist():
                    kinds.setdefault(device, None)
        rows = []
        for device in sorted(kinds):
            facts = self.names.get(device, {})
            board = facts.get("board") or codes.BOARD_KINDS.get(kinds[device] or 0, "")
            name = codes.as_text(facts.get("name") or device)
            carriers = facts.get("carriers", "")
            rows.append({"device": device, "name": name, "carriers": carriers, "board": board})
        return pa.Table.from_pylist(rows, schema=DEVICES)


def without_boots(rows: pa.Table, gone: pa.Table) -> pa.Table:
    """The rows whose device and boot are not in `gone`, in their order."""
    # The join carries row numbers only: it takes no lists.
    keys = rows.select(["device", "boot"]).append_column("_row", pa.array(np.arange(len(rows))))
    kept = keys.join(gone, ["device", "boot"], join_type="left anti")["_row"]
    return rows.take(kept.take(pc.array_sort_indices(kept.combine_chunks())))


def fill_wall(table: pa.Table, lake: Lake) -> pa.Table:
    """Wall times by `clocks`, for the boots that it names."""
    if not lake.clocks or table.num_rows == 0:
        return table
    clocks = lake.read("clocks").rename_columns(
        ["device", "boot", "_offset", "_spread", "_from", "_jumps"]
    )
    rows = table.append_column("_row", pa.array(np.arange(table.num_rows)))
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


def open_lake(root: Path) -> Lake:
    """Read the manifest of an existing lake.

    Raises:
        TelemetryError: no lake there, or its manifest cannot be read.
    """
    root = local_path(root)
    path = root / MANIFEST
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise TelemetryError(
            f"{root}: no lake here; make one with: drupelet telemetry ingest PATH --lake {root}"
        ) from None
    except (OSError, ValueError) as broken:
        raise TelemetryError(
            f"{path}: cannot read the manifest: {broken}; {_anew(root)}"
        ) from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise TelemetryError(
            f"{path}: of schema version {version}, and this is {SCHEMA_VERSION}; {_anew(root)}"
        )
    try:
        parts = [Part(**part) for part in content["parts"]]
        return Lake(root, parts, dict(content["names"]), content["clocks"])
    except (KeyError, TypeError, ValueError) as broken:
        raise TelemetryError(f"{path}: not as it was written: {broken}; {_anew(root)}") from None


def _anew(root: Path) -> str:
    """What to do with a lake that cannot be used; its packs may be all there is of an inbox."""
    packs = root / "packs"
    kept = f" and {packs}" if packs.is_dir() and any(packs.iterdir()) else ""
    return f"ingest the segments{kept} into a new folder"


def create_lake(root: Path) -> Lake:
    """Open a lake, or make an empty folder for one.

    Raises:
        TelemetryError: the folder cannot be made or written, or is not a lake's.
    """
    strange = _strange_folder(root)  # looked at first: another's first ingest may write now
    if strange and not (root / MANIFEST).exists():
        raise TelemetryError(
            f"{root / strange}: holds files, and {root} has no {MANIFEST}: not a lake, or one"
            " that lost it; name a new folder as --lake, and the segments and packs as input"
        )
    try:
        for folder in (root, *(root / name for name in FOLDERS)):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise TelemetryError(f"{root}: cannot write the lake: {refused.strerror}") from None
    return open_lake(root) if (root / MANIFEST).exists() else Lake(root)


def _strange_folder(root: Path) -> str:
    """The folder in which something lies that an ingest into a new lake does not leave; or ""."""
    for folder in FOLDERS:
        try:
            names = os.listdir(root / folder)
        except OSError:
            continue  # none there, or none that can be made: then making it says why
        # Work lists come before the manifest does; nothing else.
        if any(folder != "plans" or not OWN_NAMES[folder].fullmatch(name) for name in names):
            return folder
    return ""


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


def begin(lake: Lake) -> None:
    """Give a new lake its manifest, before its first part: then all that lies in it is its own.

    Raises:
        TelemetryError: the lake's folder cannot be written.
    """
    if not (lake.root / MANIFEST).exists():
        publish(lake)


def publish(lake: Lake) -> None:
    """Make the lake's state the one that counts: a durable temporary file, then a rename.

    Raises:
        TelemetryError: the lake's folder cannot be written.
    """
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "parts": [asdict(part) for part in lake.parts],
        "names": lake.names,
        "clocks": lake.clocks,
    }
    path = lake.root / MANIFEST
    try:
        atomic_write(path, json.dumps(manifest, indent=1, sort_keys=True), durable=True)
    except OSError as refused:
        raise TelemetryError(
            f"{path}: cannot write it: {refused.strerror}; nothing changed"
        ) from None


def sweep(lake: Lake, keep: Collection[Path] = ()) -> int:
    """Remove files that the manifest does not name (a killed ingest's, or superseded ones).

    Files with other names than an ingest gives are somebody's own and stay, and so do those
    in `keep` (resolved paths) and folders with one of these in them.
    """
    named = {part.path(table) for part in lake.parts for table in TABLES if part.has(table)}
    named |= {pack for part in lake.parts for pack in part.packs} | {lake.clocks}
    removed = 0
    for folder in FOLDERS:
        for path in sorted((lake.root / folder).iterdir()):
            own = OWN_NAMES[folder].fullmatch(path.name)
            if not own or f"{folder}/{path.name}" in named or path in keep:
                continue
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
            elif not any(kept.is_relative_to(path) for kept in keep):
                shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed


def append(
    root: Path,
    rows: Mapping[str, Iterable[Mapping[str, Any]]],
    origin: str,
    names: Mapping[str, Mapping[str, str]] | None = None,
    look: Callable[[Lake], None] | None = None,
) -> bool:
    """Add rows that do not come from segments, as one part; False: the lake has this origin.

    Args:
        root: the lake's folder; made if it is not there.
        rows: by table; missing columns are null.
        origin: names the content, so that the same is not added twice.
        names: device -> `name`, `carriers`, `board`.
        look: called with the lake, which is held, before anything is written; may refuse.

    Raises:
        TelemetryError: the lake cannot be written, or a row does not fit its table.
    """
    root = local_path(root).resolve()
    lake = create_lake(root)
    with locked(root):
        lake = create_lake(root)
        if any(part.origin == origin for part in lake.parts):
            return False
        if look is not None:
            look(lake)
        part = Part(id="import-" + hashlib.sha256(origin.encode()).hexdigest()[:16], origin=origin)
        filled = {table: _filled(origin, table, listed) for table, listed in rows.items()}
        begin(lake)
        for table, whole in filled.items():
            part.counts[table] = whole.num_rows
            if whole.num_rows:
                write_table(root / part.path(table), whole)
        lake.parts.append(part)
        lake.names.update({device: dict(facts) for device, facts in (names or {}).items()})
        publish(lake)
    return True


def _filled(origin: str, table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    try:
        return pa.Table.from_pylist(list(rows), schema=TABLES[table])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as wrong:
        raise TelemetryError(f"{origin}: {table}: {wrong}") from None


def write_table(path: Path, table: pa.Table) -> None:
    """Write a small table as a Parquet file, durably.

    Raises:
        TelemetryError: it cannot be written.
    """
    try:
        pq.write_table(table, path, compression="zstd", store_schema=False)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot write the lake: {refused}") from None
