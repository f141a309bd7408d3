"""What an ingest has to do: segments that are new, in order of boot and dealt to groups.

Only heads have been read so far. A copy of a segment that the lake has whole is left out here,
before a row of it exists.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.base.errors import InputFileError
from drupelet_tools.telemetry.base.place import Opened, place, reason
from drupelet_tools.telemetry.blackbox.decode import Flags, Ints
from drupelet_tools.telemetry.files.inputs import UNNAMED, Listing, names_of
from drupelet_tools.telemetry.tables.choose import REASON_FAR, beyond_a_leap
from drupelet_tools.telemetry.tables.schemas import FILES, KEY

# A smaller group is not worth a task; a larger one is dealt out further, for what a worker holds
# grows a little with its group.
GROUP_BYTES_MIN = 1 << 20
GROUP_BYTES_MAX = 16 << 20
GROUPS_MAX = 4096
_PIECE_SIZE = 1 << 20
# What is known where there is no lake.
NOTHING = FILES[KEY].empty_table()
# Files below this go into a pack of the lake: an inbox of thousands is slow to read again.
SMALL_FILE_BYTES = 1 << 20

_KEY = ["device", "boot", "number", "size", "header_crc", "first_crc"]
ENTRY = pa.schema(
    [
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("device", pa.string()),
        ("boot", pa.int64()),
        ("number", pa.int64()),
        ("wall_ms", pa.int64()),
        ("wall_uncertainty_ms", pa.int64()),
        ("header_crc", pa.int64()),
        ("first_crc", pa.int64()),
        ("unit", pa.int64()),
        ("family", pa.int64()),
        ("alternate", pa.bool_()),  # the copy before it seems to be the same
        ("small", pa.bool_()),  # of a small file: it goes into a pack of the lake
    ]
)


@dataclass(slots=True)
class Unnamed:
    """Places that are no segment of a device: rows of `quarantine`, and what to know them by."""

    quarantine: list[dict[str, Any]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """Counts of what was found, tables of entries per group, and what no device can be given."""

    found: int
    repeated: int
    devices: set[str]
    groups: list[pa.Table]
    unnamed: Unnamed


def make_plan(listing: Listing, known: pa.Table, parallelism: int) -> Plan:
    """Work out what is new and deal it to groups of about equal size; a boot is never split.

    Args:
        listing: what was found.
        known: rows of keys, of all its devices and of places without one.
        parallelism: how many groups there should be at least.

    Raises:
        TelemetryError: a damaged place cannot be read.
    """
    entries = _entries(listing, np.flatnonzero(listing.ok))
    unnamed = _unnamed(listing, known)
    count = len(listing)
    # A large fleet's listing takes as much memory as what follows.
    del listing
    entries = _leave_known(entries, known)
    repeated = count - len(unnamed.keys) - entries.num_rows
    entries = _sorted(entries)
    devices = set(pc.unique(entries["device"]).to_pylist()) if entries.num_rows else set()
    return Plan(count, repeated, devices, _deal(entries, parallelism), unnamed)


def leave_far(plan: Plan) -> Plan:
    """Without segments whose number cannot be, which become rows of `quarantine`.

    For who reads segments without a lake; of a lake they are left out as it is read.
    """
    groups = []
    for dealt in plan.groups:
        group = dealt
        far = beyond_a_leap(group["unit"].to_numpy(), group["number"].to_numpy())
        if far.any():
            columns = ["device", "boot", "number", "file", "offset"]
            for row in group.filter(pa.array(far)).select(columns).to_pylist():
                plan.unnamed.quarantine.append({**row, "reason": REASON_FAR})
            group = dealt.filter(pa.array(~far))
        if group.num_rows:
            groups.append(group)
    plan.groups = groups
    return plan


def deal(listing: Listing, rows: Ints, parallelism: int) -> list[pa.Table]:
    """These segments of a listing, dealt to groups as `make_plan` does."""
    return _deal(_sorted(_entries(listing, rows)), parallelism)


def _entries(listing: Listing, rows: Ints) -> pa.Table:
    devices, index = np.unique(listing.device[rows], return_inverse=True)
    names = pa.array(names_of(devices), pa.string())
    ends = np.zeros(len(listing.files), dtype=np.int64)
    np.maximum.at(ends, listing.file, listing.offset + listing.size)
    file = listing.file[rows]
    columns = {
        "file": pa.DictionaryArray.from_arrays(file.astype(np.int32), pa.array(listing.files)),
        "offset": listing.offset[rows],
        "size": listing.size[rows],
        "device": pa.DictionaryArray.from_arrays(index.astype(np.int32), names).cast(pa.string()),
        "boot": listing.boot[rows],
        "number": listing.number[rows],
        "wall_ms": listing.wall_ms[rows],
        "wall_uncertainty_ms": listing.wall_uncertainty_ms[rows],
        "header_crc": listing.header_crc[rows],
        "first_crc": listing.first_crc[rows],
        "small": ends[file] < SMALL_FILE_BYTES,
    }
    return pa.table(columns)


def _leave_known(entries: pa.Table, known: pa.Table) -> pa.Table:
    """Without the copies that the lake has whole, or has just as damaged."""
    known = known.filter(pc.is_valid(known["number"]))
    if known.num_rows == 0 or entries.num_rows == 0:
        return entries
    known = known.set_column(1, "boot", pc.cast(known["boot"], pa.int64()))
    whole = known.filter(pc.invert(known["damaged"])).select(_KEY)
    entries = entries.join(whole, _KEY, join_type="left anti")
    damaged = known.filter(known["damaged"])
    if damaged.num_rows == 0 or entries.num_rows == 0:
        return entries
    entries = entries.append_column("row", pa.array(np.arange(entries.num_rows)))
    again = entries.join(damaged.select([*_KEY, "content_crc"]), _KEY, join_type="inner")
    same = set()
    contents: dict[int, int] = {}
    for row in again.select(["row", "file", "offset", "size", "content_crc"]).to_pylist():
        if row["row"] not in contents:
            contents[row["row"]] = _content_crc(row["file"], row["offset"], row["size"])
        if contents[row["row"]] == row["content_crc"]:
            same.add(row["row"])
    fresh = pc.invert(pc.is_in(entries["row"], value_set=pa.array(sorted(same), pa.int64())))
    return entries.filter(fresh).drop_columns("row")


def _content_crc(file: str, offset: int, size: int) -> int:
    """CRC-32 over a whole place of a file: tells damaged copies apart."""
    try:
        with Opened(place(file)) as opened:
            crc = 0
            while size > 0 and (piece := opened.pread(min(size, _PIECE_SIZE), offset)):
                crc = zlib.crc32(piece, crc)
                size -= len(piece)
                offset += len(piece)
            return crc
    except OSError as refused:
        text = f"{file}: cannot read it: {reason(refused)}"
        raise InputFileError(text, [file]) from None


def _sorted(entries: pa.Table) -> pa.Table:
    """In order of unit, number and rank, with `unit`, `family` and `alternate`.

    The longer copy ranks first; of equal ones the first by name of its file.
    """
    rows = entries.num_rows
    if rows == 0:
        return entries
    keys = [("device", "ascending"), ("boot", "ascending"), ("number", "ascending")]
    keys += [("size", "descending"), ("header_crc", "ascending"), ("first_crc", "ascending")]
    file = entries["file"].unify_dictionaries().combine_chunks()
    order = np.argsort(np.array(file.dictionary.to_pylist()))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    entries = entries.append_column("name", pa.array(rank[file.indices.to_numpy()]))
    entries = entries.sort_by([*keys, ("name", "ascending"), ("offset", "ascending")])
    entries = entries.drop_columns("name").combine_chunks()
    device = entries["device"].combine_chunks().dictionary_encode().indices.to_numpy()
    same_unit = _same(device) & _same(entries["boot"].to_numpy())
    same_family = same_unit & _same(entries["number"].to_numpy())
    alternate = same_family.copy()
    for name in ("size", "header_crc", "first_crc"):
        alternate &= _same(entries[name].to_numpy())
    entries = entries.append_column("unit", pa.array(np.cumsum(~same_unit) - 1))
    entries = entries.append_column("family", pa.array(np.cumsum(~same_family) - 1))
    return entries.append_column("alternate", pa.array(alternate))


def _same(values: Any) -> Flags:  # noqa: ANN401 - an array of any type
    """Which values equal the one before."""
    return np.concatenate(([False], values[1:] == values[:-1]))


def _deal(entries: pa.Table, parallelism: int) -> list[pa.Table]:
    if entries.num_rows == 0:
        return []
    size = entries["size"].to_numpy()
    total = int(size.sum())
    groups = max(parallelism, -(-total // GROUP_BYTES_MAX))
    groups = min(groups, max(1, total // GROUP_BYTES_MIN), GROUPS_MAX)
    before = np.cumsum(size) - size
    unit = entries["unit"].to_numpy()
    # A unit belongs to the group in which it begins.
    first = np.flatnonzero(~_same(unit))
    group_of_unit = before[first] * groups // total
    group = group_of_unit[unit]
    edges = [0, *(np.flatnonzero(group[1:] != group[:-1]) + 1).tolist(), entries.num_rows]
    ordered = entries.select(ENTRY.names)
    return [ordered.slice(low, high - low) for low, high in pairwise(edges)]


def _unnamed(listing: Listing, known: pa.Table) -> Unnamed:
    """Rows for the places that are no segment, or none to believe, and not noted yet."""
    unnamed = Unnamed()
    mine = known.filter(
        pc.and_(pc.equal(known["device"], UNNAMED), pc.is_valid(known["content_crc"]))
    )
    seen = set(zip(mine["content_crc"].to_pylist(), mine["size"].to_pylist(), strict=True))
    for row, wrong in sorted(listing.reason.items()):
        file = listing.files[int(listing.file[row])]
        offset, size = int(listing.offset[row]), int(listing.size[row])
        content = _content_crc(file, offset, size)
        if (content, size) in seen:
            continue
        seen.add((content, size))
        identity = {"content_crc": content, "size": size}
        place = {"device": UNNAMED, "file": file, "offset": offset, "reason": wrong}
        unnamed.quarantine.append({**place, **identity})
        unnamed.keys.append({"device": UNNAMED, **identity, "damaged": True})
    return unnamed
