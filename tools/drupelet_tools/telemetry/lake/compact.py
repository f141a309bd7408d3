"""Many small files and packs of a lake into few, without old boots, and what nothing names
removed.

Readers and ingests may go on meanwhile: a reader's files stay for ORPHAN_HOURS, and pieces that
come while this works are left as they are.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place, Remote, create, finish, place, remove_folder
from drupelet_tools.telemetry.lake.commit import (
    Change,
    SupersededError,
    commit,
    key_rows,
    write_file,
)
from drupelet_tools.telemetry.lake.delta import (
    PLANS,
    SHARE_PIECES,
    Lake,
    LakeFile,
    Share,
    make_folders,
    open_lake,
    read_files,
    unwritable,
)
from drupelet_tools.telemetry.lake.piece_file import PACKS, ROWS_WRITTEN, TABLE
from drupelet_tools.telemetry.lake.repack import PACK_SIZE, PLACE, Repacked, pack_sizes, repack
from drupelet_tools.telemetry.tables.schemas import COPY_KEY, FILES, FOREIGN, KEY, PIECE

# A file of this size is left as it is.
FILE_SIZE = 128 << 20
# So many files of pieces of about one size become one at the end of an ingest: a log that names
# few files is quick to read. Each piece is written anew once per power of this.
TIER_FILES = 64
# Of large ones fewer become one, but not below this part of them: then they are large enough.
TIER_PART_MIN = 1 / 8
# What nothing names is somebody's work as long as it is young: an ingest that runs, or a reader
# of an earlier state.
ORPHAN_HOURS = 24
# Compactions that were faster; then there is nothing to do.
TRIES = 3
MS_PER_DAY = 86_400_000
KEEP_DAYS_MAX = 36_525  # a hundred years
_BOOT = ["device", "boot"]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Counts of a compaction."""

    files_before: int
    files: int
    packs_before: int
    packs: int
    boots_removed: int
    orphans_removed: int
    packs_damaged: list[str]  # that are gone or do not hold what was taken in


def compact(root: Place, keep_days: int | None = None) -> Compacted:
    """Make few files of many, and remove what nothing names.

    Args:
        root: the lake's folder.
        keep_days: boots, rows from elsewhere and places in quarantine of which nothing came for
            so many days are removed; None keeps all.

    Raises:
        TelemetryError: no lake, a file of it cannot be read, or it cannot be written.
    """
    root = place(root).resolve()
    before = open_lake(root)
    before.check()
    make_folders(root)
    since_ms = None
    if keep_days is not None:
        since_ms = time.time_ns() // 1_000_000 - keep_days * MS_PER_DAY
    try:
        return _compact(before, since_ms)
    except OSError as refused:
        raise unwritable(root, refused) from None


def _compact(before: Lake, since_ms: int | None) -> Compacted:
    root = before.root
    removed, damaged = 0, set[str]()
    named = packs_named(before.paths(PIECE))
    for _ in range(TRIES):
        lake = open_lake(root)
        old = _old_boots(lake, since_ms)
        try:
            removed = old.num_rows
            damaged |= set(_rewrite(lake, old, since_ms))
            break
        except SupersededError:
            continue  # another compaction was faster: look at what it left
    after = open_lake(root)
    packs = packs_named(after.paths(PIECE))
    sizes = pack_sizes(root)
    damaged |= packs - sizes.keys()
    for name in named - packs:
        _age_anew(root / name)
    # Who reads the state before may still need what it names.
    orphans = _vacuum(root, named | packs)
    return Compacted(
        _count(before), _count(after), len(named), len(packs), removed, orphans,
        sorted(damaged & packs),
    )  # fmt: skip


def _age_anew(pack: Place) -> None:
    """Let a pack that nothing names from now on stay for ORPHAN_HOURS, where files have times
    that can be set."""
    if isinstance(pack, Path):
        with suppress(OSError):
            os.utime(pack)


def merge_tiers(before: Lake, rows: Iterable[int]) -> None:
    """Make one file of TIER_FILES of about one size, of pieces or of rows from elsewhere; of as
    many as can be held at once where they are large, and of none if those are few.

    Args:
        before: a lake as it was before files of pieces of so many `rows` came, and at most one
            of rows from elsewhere.

    Raises:
        TelemetryError: a file of the lake cannot be read, or it cannot be written.
    """
    counts = Counter(map(_tier, [*(one.rows for one in before.files[PIECE]), *rows]))
    if max([*counts.values(), len(before.files[FOREIGN]) + 1]) < TIER_FILES:
        return
    lake = before.refreshed()
    tiers = [[one for one in lake.files[PIECE] if _tier(one.rows) == tier] for tier in counts]
    try:
        for files in map(_merged, tiers):
            if files:
                ends = min(one.device_min for one in files), max(one.device_max for one in files)
                share = Share(_paths(lake, files), *ends)
                fresh = _pieces_anew(lake, files, [share])
                commit(lake, Change(fresh, key_rows([]), removed=files))
        if files := _merged(lake.files[FOREIGN]):
            fresh = _foreign_anew(lake, files, None)
            commit(lake, Change(fresh, key_rows([]), removed=files))
    except SupersededError:
        return  # another one did it
    except OSError as refused:
        raise unwritable(lake.root, refused) from None


def _merged(files: list[LakeFile]) -> list[LakeFile]:
    """Which of the files of a tier become one."""
    if len(files) < TIER_FILES:
        return []
    files = sorted(files, key=lambda one: one.rows)
    rows = accumulate(one.rows for one in files)
    chosen = [one for one, sum_ in zip(files, rows, strict=True) if sum_ <= SHARE_PIECES]
    return chosen if len(chosen) > max(1, TIER_PART_MIN * len(files)) else []


def _tier(rows: int) -> int:
    return rows.bit_length() // (TIER_FILES.bit_length() - 1)


def _paths(lake: Lake, files: Iterable[LakeFile]) -> tuple[str, ...]:
    return tuple(str(lake.root / TABLE / one.path) for one in files)


def _count(lake: Lake) -> int:
    return sum(map(len, lake.files.values()))


def _old_boots(lake: Lake, since_ms: int | None) -> pa.Table:
    """Boots of which the last segment was taken in before that."""
    none = FILES[KEY].empty_table().select(_BOOT)
    if since_ms is None:
        return none
    rows = lake.key_columns([*_BOOT, "number", "taken_ms"])
    rows = rows.filter(pc.is_valid(rows["number"]))
    newest = rows.group_by(_BOOT).aggregate([("taken_ms", "max")])
    return newest.filter(pc.less(newest["taken_ms_max"], since_ms)).select(_BOOT).cast(none.schema)


def _rewrite(lake: Lake, old: pa.Table, since_ms: int | None) -> list[str]:
    """Write small files anew as few, and those with something to remove; commit that. The packs
    that are damaged."""
    doomed = set(old["device"].to_pylist())
    pieces = [
        one
        for one in lake.files[PIECE]
        if one.size < FILE_SIZE or any(one.device_min <= d <= one.device_max for d in doomed)
    ]
    foreign = lake.files[FOREIGN]
    if len(pieces) == 1 and not doomed and _small_packs(lake, pieces) <= 1:
        pieces = []
    if len(foreign) == 1 and since_ms is None:
        foreign = []
    if not pieces and not foreign and len(lake.files[KEY]) <= 1 and since_ms is None:
        return []
    shares = lake.shares() if pieces else []
    repacked = _repacked(lake, pieces, old)

    def pieces_now(rows: pa.Table) -> pa.Table:
        return repacked.moved(without_boots(rows, old))

    try:
        fresh = _pieces_anew(lake, pieces, shares, pieces_now)
    except OSError:
        repacked.remove(lake.root)
        raise
    fresh += _foreign_anew(lake, foreign, since_ms)
    change = Change(
        fresh,
        key_rows([]),
        removed=[*pieces, *foreign],
        all_keys=lambda state: _keys_anew(state, old, since_ms, repacked),
    )
    commit(lake, change)
    return repacked.damaged


def _repacked(lake: Lake, files: list[LakeFile], old: pa.Table) -> Repacked:
    """The packs that only these files name, anew."""
    paths = set(_paths(lake, files))
    elsewhere = packs_named(path for path in lake.paths(PIECE) if path not in paths)
    columns, in_pack = [*_BOOT, *PLACE, "taken_ms"], pc.field("pack").is_valid()
    places = without_boots(read_files(sorted(paths), FILES[PIECE], columns, in_pack), old)
    return repack(lake.root, places, elsewhere)


def _small_packs(lake: Lake, files: list[LakeFile]) -> int:
    sizes = pack_sizes(lake.root)
    named = packs_named(_paths(lake, files))
    return sum(sizes.get(name, PACK_SIZE) < PACK_SIZE for name in named)


def _pieces_anew(
    lake: Lake,
    files: list[LakeFile],
    shares: Iterable[Share],
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> list[LakeFile]:
    """The pieces of some files in order of device, each once, in files of a good size; none is
    left where they cannot be written."""
    paths = set(_paths(lake, files))
    out = _Rolling(lake.root)
    try:
        for share in shares:
            own = tuple(path for path in share.paths if path in paths)
            part = Share(own, share.device_min, share.device_max)
            out.write(_each_once(change(part.pieces(FILES[PIECE].names))))
        return out.close()
    except OSError:
        out.abandon()
        raise


def _each_once(rows: pa.Table) -> pa.Table:
    """In order, and without what two ingests at once both took in."""
    names = [*COPY_KEY, "block_from", "file", "offset"]
    keys = rows.select(names).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    keys = keys.sort_by([(name, "ascending") for name in names])
    keys = keys.append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    first = keys.group_by([*COPY_KEY, "block_from"]).aggregate([("place", "min")])["place_min"]
    return rows.take(keys["row"].take(first.take(pc.sort_indices(first))))


class _Rolling:
    """Files of pieces, a new one where one is large enough."""

    def __init__(self, root: Place) -> None:
        self._root = root
        self._files: list[LakeFile] = []
        self._writer: pq.ParquetWriter | None = None
        self._out: pa.NativeFile
        self._path = ""
        self._rows = 0
        self._ends = ("", "")

    def write(self, rows: pa.Table) -> None:
        """Rows that come behind those before."""
        if not rows.num_rows:
            return
        first, last = rows["device"][0].as_py(), rows["device"][-1].as_py()
        if self._writer is None:
            self._path = f"kind={PIECE}/{secrets.token_hex(8)}.parquet"
            self._out = create(self._root / TABLE / self._path)
            self._writer = pq.ParquetWriter(
                self._out, rows.schema, compression="zstd", store_schema=False
            )
            self._rows, self._ends = 0, (first, last)
        self._writer.write_table(rows, row_group_size=ROWS_WRITTEN)
        self._rows += rows.num_rows
        self._ends = (self._ends[0], last)
        if self._out.tell() >= FILE_SIZE:
            self._end()

    def _end(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        size = finish(self._out, self._root / TABLE / self._path)
        self._files.append(LakeFile(PIECE, self._path, size, self._rows, *self._ends))

    def close(self) -> list[LakeFile]:
        """The files."""
        self._end()
        return self._files

    def abandon(self) -> None:
        """Remove what was written."""
        for path in {self._path, *(file.path for file in self._files)} - {""}:
            (self._root / TABLE / path).unlink(missing_ok=True)


def without_boots(rows: pa.Table, old: pa.Table) -> pa.Table:
    """The rows whose device and boot are not in `old`."""
    if not old.num_rows or not rows.num_rows:
        return rows
    # The join carries row numbers only: it takes no lists.
    keys = rows.select(_BOOT).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = keys.join(old, _BOOT, join_type="left anti")["row"]
    return rows.take(kept.take(pc.sort_indices(kept)))


def _foreign_anew(lake: Lake, files: list[LakeFile], since_ms: int | None) -> list[LakeFile]:
    rows = read_files(_paths(lake, files), FILES[FOREIGN], FILES[FOREIGN].names)
    if since_ms is not None:
        rows = rows.filter(pc.greater_equal(rows["taken_ms"], since_ms))
    return write_file(lake.root, FOREIGN, secrets.token_hex(8), rows.sort_by("device"))


def _keys_anew(lake: Lake, old: pa.Table, since_ms: int | None, repacked: Repacked) -> pa.Table:
    """All keys of a lake, each once, without those of boots and places that are removed.

    What names files say of devices is kept.
    """
    names = FILES[KEY].names
    rows = without_boots(lake.key_columns(names), old)
    packs = repacked.renamed(rows["pack"])
    rows = rows.set_column(names.index("pack"), "pack", packs)
    rows = rows.group_by(names).aggregate([]).select(names)
    if since_ms is not None:
        is_of_device = pc.and_(pc.is_null(rows["number"]), pc.is_null(rows["table"]))
        rows = rows.filter(
            pc.or_(pc.invert(is_of_device), pc.greater_equal(rows["taken_ms"], since_ms))
        )
    return rows


# --- what nothing names ---


def packs_named(paths: Iterable[str]) -> set[str]:
    """The packs that the pieces of some files name."""
    in_pack = pc.field("pack").is_valid()
    names = [
        pc.unique(read_files([path], FILES[PIECE], ["pack"], in_pack)["pack"]) for path in paths
    ]
    return {name for some in names for name in some.to_pylist()}


def _vacuum(root: Place, packs: Collection[str]) -> int:
    """Remove old files that nothing names: of killed ingests, and superseded ones.

    `packs` are kept.
    """
    table = open_lake(root).table
    try:
        table.create_checkpoint()
        gone = table.vacuum(
            retention_hours=ORPHAN_HOURS,
            enforce_retention_duration=False,
            dry_run=False,
            full=True,
        )
    except (DeltaError, OSError) as refused:
        raise unwritable(root, refused) from None
    too_young_s = time.time() - ORPHAN_HOURS * 3600
    removed = len(gone)
    for path in _old(root / PACKS, too_young_s):
        if f"{PACKS}/{path.name}" not in packs and path.suffix == ".dbxpack":
            path.unlink(missing_ok=True)
            removed += 1
    for path in _old(root / PLANS, too_young_s):
        if isinstance(path, Remote):
            path.unlink(missing_ok=True)
            removed += 1
        elif path.is_dir() and not path.is_symlink():
            remove_folder(path)
            removed += 1
    return removed


def _old(folder: Place, too_young_s: float) -> list[Path] | list[Remote]:
    """What lies in a folder and is old; in a store elsewhere there are only files."""
    if isinstance(folder, Remote):
        return [one for one in sorted(folder.below()) if one.mtime_ns <= too_young_s * 1e9]
    return [path for path in sorted(folder.iterdir()) if path.stat().st_mtime <= too_young_s]


def keep_days(text: str) -> int:
    """The days of `--keep 90d`.

    Raises:
        TelemetryError: it does not say so.
    """
    number = text.removesuffix("d")
    is_number = text.endswith("d") and number.isascii() and number.isdigit() and len(number) <= 6
    if not (is_number and 0 < int(number) <= KEEP_DAYS_MAX):
        raise TelemetryError(
            f"--keep {text!r}: want a number of days from 1 to {KEEP_DAYS_MAX}, like 90d"
        )
    return int(number)
