"""Wall clocks of boots that had none, from what they exchanged with boots that had one.

A message is received after it was created. Created at A at a, received at B at b (each in ms
since its own boot): wall(A) + a <= wall(B) + b. So every message gives a bound on the difference
of two offsets, and messages both ways give an interval: the middle is the estimate, half the
width its uncertainty. Bounds are carried on from boots whose clock was set, along any number of
exchanges; nothing is assumed about how long a message takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.blackbox.decode import Flags, Ints
from drupelet_tools.telemetry.tables.anchors import SLACK_MS
from drupelet_tools.telemetry.tables.schemas import TABLES

# Exchanges that a bound may be carried along; a longer chain is too wide to be of use.
HOPS_MAX = 16
# Wider than this, an interval says nothing about the time of day.
WIDTH_MS_MAX = 7 * 24 * 3_600_000
OPEN = 1 << 60  # no bound on this side

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Boots:
    """Boots in order of (device, boot) with the interval that their own clocks give.

    `device` indexes `names`; without a clock `low` is -OPEN and `high` is OPEN.
    """

    names: list[str]
    device: Ints
    boot: Ints
    low: Ints
    high: Ints
    known: Flags
    suspect: Flags

    def index(self, device: pa.ChunkedArray, boot: pa.ChunkedArray) -> Ints:
        """Index of boots named by device and number; -1 for others."""
        place = pc.index_in(device, value_set=pa.array(self.names, pa.string()))
        number = pc.fill_null(place, -1).to_numpy().astype(np.int64)
        wanted = number << 32 | boot.to_numpy().astype(np.int64)
        keys = self.device << 32 | self.boot
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where(keys[at] == wanted, at, -1) if len(keys) else np.full(len(wanted), -1)


@dataclass(slots=True)
class Bounds:
    """offset[later] >= offset[earlier] + least, for pairs of boots."""

    earlier: Ints
    later: Ints
    least: Ints


# Columns of a table of a lake, some devices at a time and as the devices' own clocks say.
Each = Callable[[str, list[str]], Iterator[pa.Table]]


def work_out(each: Each) -> pa.Table:
    """The table `clocks` of a lake.

    Raises:
        TelemetryError: the lake cannot be read.
    """
    boots = _boots(each)
    doubtful = ~boots.known | boots.suspect
    if not doubtful.any():
        return TABLES["clocks"].empty_table()
    devices = sorted({boots.names[at] for at in boots.device[doubtful]})
    bounds = _exchanges(each, boots, devices)
    return _table(boots, align(boots, bounds))


def _boots(each: Each) -> Boots:
    """All boots of the lake, with what their anchors say."""
    names = ["device", "boot", "first_ms", "last_ms", "wall_offset_ms", "wall_uncertainty_ms"]
    wanted = [("low", "min"), ("high", "max"), ("first_ms", "min"), ("last_ms", "max")]
    none = TABLES["segments"].empty_table().select(names)
    # Some devices at a time: of all segments only their boots are kept.
    by_boot = (
        _by_boot(piece).aggregate(wanted) for piece in chain([none], each("segments", names))
    )
    boots = pa.concat_tables(list(by_boot))
    boots = boots.sort_by([("device", "ascending"), ("boot", "ascending")])
    encoded = boots["device"].combine_chunks().dictionary_encode()
    known = pc.is_valid(boots["low_min"]).to_numpy()
    device = encoded.indices.to_numpy().astype(np.int64)
    low = pc.fill_null(boots["low_min"], -OPEN).to_numpy()
    high = pc.fill_null(boots["high_max"], OPEN).to_numpy()
    begin = np.where(known, high, 0) + pc.fill_null(boots["first_ms_min"], 0).to_numpy()
    end = np.where(known, low, 0) + pc.fill_null(boots["last_ms_max"], 0).to_numpy()
    return Boots(
        names=encoded.dictionary.to_pylist(),
        device=device,
        boot=boots["boot"].to_numpy().astype(np.int64),
        low=low,
        high=high,
        known=known,
        suspect=_going_back(device, begin, end, known),
    )


def _by_boot(rows: pa.Table) -> pa.TableGroupBy:
    """Segments with the interval of their offset, by boot."""
    spread = pc.add(pc.fill_null(rows["wall_uncertainty_ms"], 0), SLACK_MS)
    rows = rows.append_column("low", pc.subtract(rows["wall_offset_ms"], spread))
    rows = rows.append_column("high", pc.add(rows["wall_offset_ms"], spread))
    return rows.group_by(["device", "boot"])


def _going_back(device: Ints, begin: Ints, end: Ints, known: Flags) -> Flags:
    """All boots of devices of which a boot began, by its clock, before an earlier one ended."""
    at = np.flatnonzero(known)
    same = device[at][1:] == device[at][:-1]
    back = np.flatnonzero(same & (begin[at][1:] < end[at][:-1])) + 1
    is_suspect: Flags = np.isin(device, device[at][back]) & known
    return is_suspect


def _exchanges(each: Each, boots: Boots, devices: list[str]) -> Bounds:
    """The best bound of each pair of boots of which one belongs to these devices."""
    columns = ["device", "boot", "message", "event", "boot_ms"]
    event = pc.field("event")
    mine = pc.field("device").isin(devices)
    born, came = event == "created", event.isin(["received", "delivered"])
    # Of all messages only those that these devices wrote or got are held.
    own = [piece.filter(mine & (born | came)) for piece in each("messages", columns)]
    none = TABLES["messages"].empty_table().select(columns)
    wanted = pc.unique(pa.concat_tables([none, *own])["message"])
    among = pc.field("message").isin(wanted)
    halves = [piece.filter(among & (born | came)) for piece in each("messages", columns)]
    both = pa.concat_tables([none, *halves])
    births, arrivals = both.filter(born), both.filter(came)
    # Two creators of one number are two messages whose ids begin alike.
    once = births.group_by("message").aggregate([("boot_ms", "count"), ("boot_ms", "min")])
    once = once.filter(pc.equal(once["boot_ms_count"], 1)).select(["message"])
    births = births.join(once, "message", join_type="inner")
    pairs = []
    for left, right in (
        (births.filter(mine), arrivals),
        (births.filter(~mine), arrivals.filter(mine)),
    ):
        pairs.append(
            left.select(["message", "device", "boot", "boot_ms"]).join(
                right.select(["message", "device", "boot", "boot_ms"]),
                "message",
                join_type="inner",
                left_suffix="",
                right_suffix="_to",
            )
        )
    both = pa.concat_tables(pairs)
    both = both.filter(pc.not_equal(both["device"], both["device_to"]))
    earlier = boots.index(both["device"], both["boot"])
    later = boots.index(both["device_to"], both["boot_to"])
    least = both["boot_ms"].to_numpy() - both["boot_ms_to"].to_numpy()
    usable = (earlier >= 0) & (later >= 0)
    earlier, later, least = earlier[usable], later[usable], least[usable]
    order = np.lexsort((least, later, earlier))
    earlier, later, least = earlier[order], later[order], least[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (earlier[1:] != earlier[:-1]) | (later[1:] != later[:-1])
    return Bounds(earlier[last], later[last], least[last])


def align(boots: Boots, bounds: Bounds) -> tuple[Ints, Ints, Flags]:
    """Intervals of all offsets, and the boots whose own clock was set aside.

    Boots of a device whose clock went back count only if what they exchanged bears them out.
    """
    trusted = boots.known & ~boots.suspect
    low = np.where(trusted, boots.low, -OPEN)
    high = np.where(trusted, boots.high, OPEN)
    low, high = _carry(low, high, trusted, bounds)
    meets = (boots.low <= high) & (boots.high >= low)
    jumped = boots.suspect & ~meets
    kept = boots.known & ~jumped
    low = np.where(kept, boots.low, -OPEN)
    high = np.where(kept, boots.high, OPEN)
    low, high = _carry(low, high, kept, bounds)
    return low, high, jumped


def _carry(low: Ints, high: Ints, fixed: Flags, bounds: Bounds) -> tuple[Ints, Ints]:
    """Narrow the intervals of the boots that are not fixed, exchange by exchange."""
    for _ in range(HOPS_MAX):
        lows, highs = low.copy(), high.copy()
        from_low, to_high = low[bounds.earlier], high[bounds.later]
        has = from_low > -OPEN
        np.maximum.at(lows, bounds.later[has], from_low[has] + bounds.least[has])
        has = to_high < OPEN
        np.minimum.at(highs, bounds.earlier[has], to_high[has] - bounds.least[has])
        lows, highs = np.where(fixed, low, lows), np.where(fixed, high, highs)
        if np.array_equal(lows, low) and np.array_equal(highs, high):
            break
        low, high = lows, highs
    return low, high


def _table(boots: Boots, bounds: tuple[Ints, Ints, Flags]) -> pa.Table:
    low, high, jumped = bounds
    rows = np.flatnonzero(~boots.known | jumped)
    low, high = low[rows], high[rows]
    is_narrow = (low > -OPEN) & (high < OPEN) & (low <= high) & (high - low <= WIDTH_MS_MAX)
    offset_ms = np.where(is_narrow, (low + high) // 2, 0)
    chosen = is_narrow | jumped[rows]
    offset = pa.array(offset_ms, mask=~is_narrow)
    spread = pa.array(np.where(is_narrow, (high - low + 1) // 2, 0), mask=~is_narrow)
    names = pa.array([boots.names[at] for at in boots.device[rows]], pa.string())
    source = pa.array(["pairs" if one else None for one in is_narrow], pa.string())
    columns = [
        names,
        pa.array(boots.boot[rows].astype(np.int32)),
        offset,
        spread,
        source,
        pa.array(jumped[rows].astype(np.int32)),
    ]
    table = pa.Table.from_arrays(columns, schema=TABLES["clocks"])
    return table.filter(pa.array(chosen))
