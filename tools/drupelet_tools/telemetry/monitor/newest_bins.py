"""What the newest bins of a lake say of each device, brought up to date without reading all again.

A boot is the least that can be put together, because its counters count from its start. So of each
device the sums of its other boots are kept, and when something came only its newest boot is read:
from the files that are new, and from those in which this boot was before. All of a device is read
again when something came for an earlier boot, and all of the lake when files were merged or
compacted, because then boots may have been removed (`compact --keep`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import NONE, Flags, Ints
from drupelet_tools.telemetry.lake.delta import SHARE_PIECES, Lake, read_files
from drupelet_tools.telemetry.lake.piece_file import TABLE
from drupelet_tools.telemetry.tables.hour_bins import changes, latest, lowest
from drupelet_tools.telemetry.tables.schemas import (
    CHOICE,
    FILES,
    FOREIGN,
    HOUR_SUMS,
    MADE_OF,
    PIECE,
    STATE_COLUMNS,
)
from drupelet_tools.telemetry.tables.settle import settled, whole

Row = dict[str, Any]
Part = tuple[str, str]  # a carrier and a direction

_PARTS: tuple[Part, ...] = tuple((c, d) for c in codes.CARRIERS for d in codes.DIRECTIONS)
_WIDTH = len(HOUR_SUMS) + len(_PARTS)
_STATE_FIRST = HOUR_SUMS.index(STATE_COLUMNS[0])
_STATES = slice(_STATE_FIRST, _STATE_FIRST + len(STATE_COLUMNS))  # of a row of sums
# That are put together at a time: with their hours a piece takes some 20 kB.
_PIECES_AT_A_TIME = 1 << 12
_CARRIER_KIND = "carrier"  # of traffic: all bytes on the carrier, framing included
_FOREIGN_TABLES = ("health", "traffic", "segments", "battery")


@dataclass(slots=True)
class Bins:
    """What is known of one device.

    `sums` are of HOUR_SUMS over all boots in the lake, `carrier_bytes` of all their traffic.
    `last_ms` is when its log ends by its own clock, `state_ms` the time in each power state in
    its newest whole hour, which began at `hour_ms` by its own clock. None: not known.
    """

    boot: int
    sums: Mapping[str, int]
    carrier_bytes: Mapping[Part, int]
    last_ms: int | None = None
    hour_ms: int | None = None
    state_ms: Mapping[str, int] | None = None
    battery_mv: int | None = None
    heap_low: int | None = None


@dataclass(slots=True)
class _Kept:
    """A device of which pieces are in the lake.

    `before` and `own` are sums over the boots other than the newest and over that one, `files`
    those in which it is, by the number of its pieces there. NONE: not known.
    """

    boot: int
    boot_max: int
    before: Ints
    own: Ints
    files: dict[str, int]
    last_before_ms: int
    last_own_ms: int
    hour_ms: int
    state_ms: Ints | None
    battery_mv: int
    heap_low: int

    @property
    def goes_on(self) -> bool:
        """Whether what comes next is of the newest boot or of a later one.

        Not so where a device was erased and counts its boots from the start again.
        """
        return self.boot == self.boot_max

    def bins(self) -> Bins:
        """The figures for a reader."""
        sums = (self.before + self.own).tolist()
        parts = zip(_PARTS, sums[len(HOUR_SUMS) :], strict=True)
        states = None
        if self.state_ms is not None:
            states = dict(zip(codes.STATES, self.state_ms.tolist(), strict=True))
        return Bins(
            boot=self.boot,
            sums=dict(zip(HOUR_SUMS, sums, strict=False)),
            carrier_bytes={part: count for part, count in parts if count},
            last_ms=_known(max(self.last_before_ms, self.last_own_ms)),
            hour_ms=_known(self.hour_ms),
            state_ms=states,
            battery_mv=_known(self.battery_mv),
            heap_low=_known(self.heap_low),
        )


def _known(value: int) -> int | None:
    return None if value == NONE else int(value)


def _boots_of(lake: Lake, path: str) -> Iterator[tuple[str, int, int]]:
    """Device and boot of a file's pieces, and their number; only two columns are read."""
    rows = read_files([_full(lake, path)], FILES[PIECE], ["device", "boot"])
    counted = rows.group_by(["device", "boot"]).aggregate([([], "count_all")])
    columns = (counted[name].to_pylist() for name in ("device", "boot", "count_all"))
    return zip(*columns, strict=True)


class NewestBins:
    """The newest bins of a lake's devices; `update` brings them up to date."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._paths: frozenset[str] = frozenset()
        self._foreign: dict[str, Bins] = {}
        self._foreign_paths: frozenset[str] = frozenset()

    def devices(self) -> dict[str, Bins]:
        """The bins by device, in order of its id."""
        every = {**self._foreign, **{name: kept.bins() for name, kept in self._kept.items()}}
        return dict(sorted(every.items()))

    def update(self, lake: Lake) -> None:
        """Read what a lake has that an earlier state of it had not.

        After an error the bins are as little use as before the first call.

        Raises:
            TelemetryError: a file of the lake cannot be read.
        """
        paths = frozenset(one.path for one in lake.files[PIECE])
        if not self._paths <= paths:
            self._kept.clear()
            self._paths = frozenset()
        if self._paths:
            self._read_fresh(lake, paths - self._paths)
        else:
            self._read_all(lake, paths)
        self._paths = paths
        foreign_paths = frozenset(one.path for one in lake.files[FOREIGN])
        if foreign_paths != self._foreign_paths:
            self._foreign = _foreign_bins(lake)
            self._foreign_paths = foreign_paths

    def _read_all(self, lake: Lake, paths: Collection[str]) -> None:
        for share in lake.shares():
            self._take(share.pieces(_COLUMNS), {})
        self._locate(lake, paths, self._kept)

    def _locate(self, lake: Lake, paths: Iterable[str], devices: Collection[str]) -> None:
        """Note in which files the newest boots of some devices are."""
        for path in paths:
            for device, boot, count in _boots_of(lake, path):
                kept = self._kept.get(device)
                if kept is not None and device in devices and kept.boot == boot:
                    kept.files[path] = count

    def _read_fresh(self, lake: Lake, paths: Collection[str]) -> None:
        again: set[str] = set()
        newest: dict[str, dict[str, int]] = {}  # by device: files to read, and pieces there
        for path in paths:
            for device, boot, count in _boots_of(lake, path):
                kept = self._kept.get(device)
                if kept is not None and (not kept.goes_on or boot < kept.boot):
                    again.add(device)
                files = newest.setdefault(device, dict(kept.files) if kept is not None else {})
                files[path] = files.get(path, 0) + count
        for device in again:
            del newest[device]
        counts = {device: sum(files.values()) for device, files in newest.items()}
        for group in _groups(counts, SHARE_PIECES):
            known = {name: self._kept[name] for name in group if name in self._kept}
            named = sorted({path for name in group for path in newest[name]})
            full = [_full(lake, path) for path in named]
            rows = read_files(full, FILES[PIECE], _COLUMNS, pc.field("device").isin(group))
            self._take(_from_boot(rows, known), known)
            self._locate(lake, named, group)
        if again:
            self._read_again(lake, again)

    def _read_again(self, lake: Lake, devices: set[str]) -> None:
        """All of some devices: one of their earlier boots has changed."""
        for share in lake.shares():
            own = [name for name in devices if share.device_min <= name <= share.device_max]
            if own:
                rows = share.pieces(_COLUMNS)
                chosen = pc.is_in(rows["device"], pa.array(own, pa.string()))
                self._take(rows.filter(chosen), {})
        named = [
            one.path
            for one in lake.files[PIECE]
            if any(one.device_min <= name <= one.device_max for name in devices)
        ]
        self._locate(lake, named, devices)

    def _take(self, rows: pa.Table, known: Mapping[str, _Kept]) -> None:
        """Fold pieces of whole boots in; `known` is what stands for each device's other boots."""
        counted = rows.group_by("device").aggregate([([], "count_all")])
        counts = zip(counted["device"].to_pylist(), counted["count_all"].to_pylist(), strict=True)
        for group in _groups(dict(counts), _PIECES_AT_A_TIME):
            own = rows.filter(pc.is_in(rows["device"], pa.array(group, pa.string())))
            log_ends = _log_ends(settled(own, "segments"))
            for device, hours in _by_device(settled(own, "hours")):
                self._kept[device] = _fold(hours, log_ends.get(device, {}), known.get(device))


_COLUMNS = [
    one.name
    for one in FILES[PIECE]
    if one.name in {*CHOICE, *MADE_OF["hours"], *MADE_OF["segments"]}
]


def _full(lake: Lake, path: str) -> str:
    return str(lake.root / TABLE / path)


def _groups(pieces: Mapping[str, int], pieces_max: int) -> Iterator[list[str]]:
    """Devices together that have no more pieces than may be held at a time."""
    group: list[str] = []
    total = 0
    for device, count in sorted(pieces.items()):
        if group and total + count > pieces_max:
            yield group
            group, total = [], 0
        group.append(device)
        total += count
    if group:
        yield group


def _from_boot(rows: pa.Table, known: Mapping[str, _Kept]) -> pa.Table:
    """The rows of each device from its newest boot on."""
    if not known:
        return rows
    names = pa.array(list(known), pa.string())
    firsts = np.array([*(kept.boot for kept in known.values()), -1])
    at = pc.fill_null(pc.index_in(rows["device"], value_set=names), len(known)).to_numpy()
    return rows.filter(pa.array(rows["boot"].to_numpy() >= firsts[at]))


def _log_ends(segments: pa.Table) -> dict[str, dict[int, int]]:
    """By device and boot, when its log ends by its own clock."""
    ends = pc.add(segments["wall_offset_ms"], segments["last_ms"])
    rows = segments.select(["device", "boot"]).append_column("end", ends)
    rows = rows.filter(pc.less_equal(rows["end"], codes.WALL_MS_MAX))
    rows = rows.group_by(["device", "boot"]).aggregate([("end", "max")])
    ends_ms: dict[str, dict[int, int]] = defaultdict(dict)
    columns = (rows[name].to_pylist() for name in ("device", "boot", "end_max"))
    for device, boot, end in zip(*columns, strict=True):
        ends_ms[device][boot] = end
    return ends_ms


@dataclass(slots=True)
class _Hours:
    """Rows of `hours`; `sums` has a row for each: HOUR_SUMS, then the bytes of _PARTS."""

    boot: Ints
    wall_ms: Ints
    sums: npt.NDArray[np.int64]
    battery_mv: Ints
    heap_low: Ints

    def part(self, low: int, high: int) -> _Hours:
        """Some of the rows."""
        return _Hours(
            self.boot[low:high],
            self.wall_ms[low:high],
            self.sums[low:high],
            self.battery_mv[low:high],
            self.heap_low[low:high],
        )


def _by_device(hours: pa.Table) -> Iterator[tuple[str, _Hours]]:
    """Rows of `hours` in order of device, boot and hour, by device."""
    names = hours["device"].cast(pa.string()).combine_chunks().dictionary_encode()
    starts = changes(names.indices.to_numpy().astype(np.int64)).tolist()
    every = _Hours(
        whole(hours["boot"]),
        whole(hours["wall_ms"]),
        _sums(hours),
        whole(hours["battery_last_mv"]),
        whole(hours["heap_low"]),
    )
    for low, high in zip(starts, [*starts[1:], hours.num_rows], strict=True):
        yield names[low].as_py(), every.part(low, high)


def _fold(hours: _Hours, log_ends: Mapping[int, int], known: _Kept | None) -> _Kept:
    """One device's hours, and what is known of its boots before them."""
    starts = changes(hours.boot)
    boots = hours.boot[starts]
    newest = _newest(np.maximum.reduceat(hours.wall_ms, starts))
    sums = np.add.reduceat(hours.sums, starts)
    end = int(starts[newest + 1]) if newest + 1 < len(starts) else len(hours.boot)
    others = [ms for number, ms in log_ends.items() if number != boots[newest]]
    before = sums.sum(axis=0) - sums[newest]
    if known is not None:
        before = before + known.before
        others.append(known.last_before_ms)
    kept = _Kept(
        boot=int(boots[newest]),
        boot_max=int(boots[-1]),
        before=before,
        own=sums[newest].copy(),  # no view, which would hold all of the rows
        files={},
        last_before_ms=max(others, default=int(NONE)),
        last_own_ms=log_ends.get(int(boots[newest]), int(NONE)),
        hour_ms=int(NONE) if known is None else known.hour_ms,
        state_ms=None if known is None else known.state_ms,
        battery_mv=_last(hours.battery_mv[:end]),
        heap_low=_last(_lows(hours, starts)[: newest + 1]),
    )
    # An hour behind which the boot goes on is whole.
    whole_hours = np.flatnonzero(hours.boot[1:end] == hours.boot[: end - 1])
    if len(whole_hours):
        at = int(whole_hours[-1])
        kept.hour_ms = int(hours.wall_ms[at])
        kept.state_ms = hours.sums[at, _STATES].copy()
    if known is not None:
        if kept.battery_mv == NONE:
            kept.battery_mv = known.battery_mv
        if kept.heap_low == NONE:
            kept.heap_low = known.heap_low
    return kept


def _newest(ends_ms: Ints) -> int:
    """Which boot is the newest: the one with the latest clock, or one without a clock behind it.

    By number alone it would not be, where a device was erased or its number ran over.
    """
    is_unknown: Flags = ends_ms == NONE
    if is_unknown.all():
        return len(ends_ms) - 1
    timed = int(np.argmax(ends_ms))
    behind = np.flatnonzero(is_unknown[timed:])
    return timed + int(behind[-1]) if len(behind) else timed


def _last(values: Ints) -> int:
    """The last one that is known."""
    return int(latest(np.zeros(len(values), dtype=np.int64), values, 1)[0])


def _lows(hours: _Hours, starts: Ints) -> Ints:
    place = np.zeros(len(hours.boot), dtype=np.int64)
    place[starts[1:]] = 1
    return lowest(np.cumsum(place), hours.heap_low, len(starts))


def _sums(hours: pa.Table) -> npt.NDArray[np.int64]:
    table = np.zeros((hours.num_rows, _WIDTH), dtype=np.int64)
    for at, name in enumerate(HOUR_SUMS):
        table[:, at] = whole(hours[name])
    lists = hours["traffic"].combine_chunks()
    flat = lists.flatten()
    row = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
    kind, unit = flat.field("kind"), flat.field("unit")
    is_whole = pc.and_(pc.equal(kind, _CARRIER_KIND), pc.equal(unit, "bytes")).to_numpy(
        zero_copy_only=False
    )
    names = pc.binary_join_element_wise(flat.field("carrier"), flat.field("direction"), "/")
    known = pa.array(["/".join(part) for part in _PARTS])
    part = pc.fill_null(pc.index_in(names, value_set=known), -1).to_numpy()
    own = is_whole & (part >= 0)
    value = flat.field("value").to_numpy()
    np.add.at(table, (row[own], len(HOUR_SUMS) + part[own]), value[own])
    return table


def _foreign_bins(lake: Lake) -> dict[str, Bins]:
    """Devices of an import: their rows are of boots, and tell of no hour."""
    rows: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for table in _FOREIGN_TABLES:
        for row in lake.foreign(table).to_pylist():
            rows[row["device"]][table].append(row)
    return {device: _foreign_device(own) for device, own in rows.items()}


def _foreign_device(rows: Mapping[str, list[Row]]) -> Bins:
    sums = dict.fromkeys(HOUR_SUMS, 0)
    parts: dict[Part, int] = defaultdict(int)
    for row in rows["health"]:
        cause = row["reset_cause"]
        sums["boots"] += 1
        sums["resets"] += cause is not None and cause != codes.RESET_DEEP_SLEEP
        for name in codes.HEALTH_COUNTERS.values():
            sums[name] += row[name] or 0
    for row in rows["traffic"]:
        if row["kind"] == _CARRIER_KIND and row["unit"] == "bytes":
            parts[row["carrier"], row["direction"]] += row["value"]
            if row["direction"] in codes.DIRECTIONS:
                sums[f"bytes_{row['direction']}"] += row["value"]
    ends = (
        row["wall_offset_ms"] + row["last_ms"]
        for row in rows["segments"]
        if row["wall_offset_ms"] is not None and row["last_ms"] is not None
    )
    health = sorted(rows["health"], key=lambda row: row["boot"])
    lows = [row["heap_low"] for row in health if row["heap_low"] is not None]
    readings = [
        (row["boot"], row["boot_ms"], row["mv"])
        for row in rows["battery"]
        if row["mv"] is not None
    ]
    return Bins(
        boot=max((row["boot"] for row in health), default=0),
        sums=sums,
        carrier_bytes=dict(parts),
        last_ms=max((end for end in ends if end <= codes.WALL_MS_MAX), default=None),
        battery_mv=max(readings)[2] if readings else None,
        heap_low=lows[-1] if lows else None,
    )
