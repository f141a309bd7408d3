"""Rows of the lake's pieces to the tables that a reader sees.

The same piece twice counts once, so what two ingests both took in is harmless. Every table is a
function of the set of pieces alone: which file a row is from, and when it came, play no part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drupelet.base.limits import BOX_BLOCKS_MAX
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.decode import NONE, REASON_CUT, Flags, Ints
from drupelet_tools.telemetry.tables.choose import REASON_FAR, Choice, Spans, choose
from drupelet_tools.telemetry.tables.columns import Units, reader_table
from drupelet_tools.telemetry.tables.fold import SUMMED, fold
from drupelet_tools.telemetry.tables.hour_bins import Bins, Samples
from drupelet_tools.telemetry.tables.hours import hour_table
from drupelet_tools.telemetry.tables.partials import (
    STATES,
    Boots,
    Copies,
    Happenings,
    Partials,
    first_and_count,
)
from drupelet_tools.telemetry.tables.schemas import STATE_LISTS, SUMS, TABLES

# Pieces that are put together at a time: what is by boot and counter takes 1.5 kB each.
PIECES_AT_A_TIME = 1 << 14
_SUMMED = SUMMED | {"hours"}
_DESCRIPTORS = max(codes.DESCRIPTORS) + 1


def settled(rows: pa.Table, table: str) -> pa.Table:
    """The rows of a table that pieces give.

    Args:
        rows: all pieces of some devices, with the columns that this table is made of.
        table: a name in `schemas.MADE_OF`.
    """
    tables = [group.table(table) for group in _groups(rows)]
    return pa.concat_tables([TABLES[table].empty_table(), *tables])


def _groups(rows: pa.Table) -> Iterator[_Group]:
    """Whole boots, some thousand pieces at a time; each piece once."""
    if rows.num_rows == 0:
        return
    keys = _Keys(rows)
    order = keys.order()
    ends = np.append(np.flatnonzero(keys.changed(order, ("device", "boot")))[1:], len(order))
    low = 0
    while low < len(order):
        at = int(np.searchsorted(ends, low + PIECES_AT_A_TIME, side="right"))
        high = int(ends[at - 1]) if at and ends[at - 1] > low else int(ends[at])
        yield _Group(rows, keys, order[low:high])
        low = high


class _Keys:
    """What tells pieces apart, as whole numbers."""

    def __init__(self, rows: pa.Table) -> None:
        names = ("boot", "number", "size", "header_crc", "first_crc", "content_crc",
                 "block_from", "offset")  # fmt: skip
        self.of: dict[str, Ints] = {name: whole(rows[name]) for name in names}
        self.of["device"] = _ranks(rows["device"])
        self.of["file"] = _ranks(rows["file"])

    def order(self) -> Ints:
        """Rows in order of unit, number, rank and block, the first of equal ones only.

        The longer copy ranks first; an undamaged one, whose content has no CRC of its own,
        before a damaged one with the same head. What a damaged one says with the same head as
        an undamaged one is left out.
        """
        of = self.of
        head = ("device", "boot", "number", "size", "header_crc", "first_crc")
        order = np.lexsort(
            (of["offset"], of["file"], of["block_from"], of["content_crc"], of["first_crc"],
             of["header_crc"], -of["size"], of["number"], of["boot"], of["device"])
        )  # fmt: skip
        order = order[self.changed(order, (*head, "content_crc", "block_from"))]
        begins = np.flatnonzero(self.changed(order, head))
        size = np.diff(np.append(begins, len(order)))
        is_whole = np.repeat(of["content_crc"][order[begins]] == NONE, size)
        kept: Ints = order[~is_whole | (of["content_crc"][order] == NONE)]
        return kept

    def changed(self, order: Ints, names: Collection[str]) -> Flags:
        """Which rows of an order differ in one of the columns from the row before."""
        is_changed = np.zeros(len(order), dtype=np.bool_)
        is_changed[:1] = True
        for name in names:
            values = self.of[name][order]
            is_changed[1:] |= values[1:] != values[:-1]
        return is_changed


class _Group:
    """Some whole boots on their way to the tables."""

    def __init__(self, rows: pa.Table, keys: _Keys, order: Ints) -> None:
        self.rows = rows.take(pa.array(order))
        new_unit = keys.changed(order, ("device", "boot"))
        head = ("device", "boot", "number", "size", "header_crc", "first_crc", "content_crc")
        new_copy = keys.changed(order, head)
        unit = np.cumsum(new_unit) - 1
        devices = self.rows["device"].take(pa.array(np.flatnonzero(new_unit))).combine_chunks()
        self.units = Units(
            devices.cast(pa.string()).dictionary_encode(), keys.of["boot"][order[new_unit]]
        )
        self.heads = np.flatnonzero(new_copy)  # the first row of each copy
        self.copies = _copies(self.rows.take(pa.array(self.heads)), unit[self.heads])
        block_from = keys.of["block_from"][order]
        self.piece_rows = np.flatnonzero(block_from != NONE)
        self.spans = Spans(
            (np.cumsum(new_copy) - 1)[self.piece_rows],
            block_from[self.piece_rows],
            *(
                whole(self.rows[name])[self.piece_rows]
                for name in ("events", "event_first_ms", "event_last_ms")
            ),
        )
        self.choice: Choice = choose(self.copies, self.spans)

    def table(self, name: str) -> pa.Table:
        """The rows of a table."""
        if name == "events":
            return self._events()
        if name == "quarantine":
            return self._quarantine()
        if name == "sources":
            heads = self.rows.take(pa.array(self.heads))
            return heads.select(TABLES[name].names).cast(TABLES[name])
        if name == "hours":
            return hour_table(self._boots(name), self.units)
        return reader_table(name, fold(self._boots(name), [name])[name], self.units)

    def _boots(self, table: str) -> Boots:
        families = self.choice.families
        chosen = self.rows.take(pa.array(self.piece_rows[self.choice.pieces]))
        copy = self.spans.copy[self.choice.pieces]
        unit, number = self.copies.unit[copy], self.copies.number[copy]
        nothing = _no_happenings()
        return Boots(
            np.unique(families.unit),
            _partials(chosen, unit, number, summed=table in _SUMMED),
            families,
            _messages(chosen, unit, number) if table == "messages" else nothing,
            _battery(chosen, unit, number) if table in ("battery", "hours") else nothing,
            _samples(chosen, named=table in _SUMMED),
            _bins(chosen, named=table == "hours"),
        )

    def _events(self) -> pa.Table:
        chosen = self.rows.take(pa.array(self.piece_rows[self.choice.pieces]))
        copy = self.spans.copy[self.choice.pieces]
        at, fields = _flat(chosen["event_rows"])
        columns = {name: fields[name] for name in ("block", "boot_ms", "code", "a", "b", "c")}
        columns["unit"] = self.copies.unit[copy][at]
        columns["number"] = self.copies.number[copy][at]
        return reader_table("events", columns, self.units)

    def _quarantine(self) -> pa.Table:
        """Damaged places, copies of another history, and numbers that cannot be."""
        far = np.zeros(len(self.copies), dtype=np.bool_)
        far[self.choice.far] = True
        heads = self.rows.take(pa.array(self.heads)).select(
            ["device", "boot", "number", "file", "offset", "damages"]
        )
        at, fields = _flat(heads["damages"])
        reason = pc.list_flatten(heads["damages"]).combine_chunks().field("reason")
        is_cut = pc.equal(reason, REASON_CUT).to_numpy(zero_copy_only=False)
        seen = ~far[at] & ~(is_cut & self._has_whole(at, fields["block"]))
        damaged = heads.take(pa.array(at[seen])).drop_columns(["offset", "damages"])
        damaged = damaged.append_column("block", _nullable(fields["block"][seen], pa.int32()))
        damaged = damaged.append_column("offset", pa.array(fields["offset"][seen]))
        damaged = damaged.append_column("reason", reason.filter(pa.array(seen)))
        whole_ones = [
            (self.choice.contradicting, codes.REASON_CONFLICT),
            (self.choice.far, REASON_FAR),
        ]
        pieces = [damaged]
        for copies, why in whole_ones:
            piece = heads.take(pa.array(copies)).drop_columns("damages")
            piece = piece.append_column("block", pa.nulls(len(copies), pa.int32()))
            reasons = pa.array([why] * len(copies), pa.string())
            pieces.append(piece.append_column("reason", reasons))
        schema = TABLES["quarantine"]
        return pa.concat_tables([piece.select(schema.names).cast(schema) for piece in pieces])

    def _has_whole(self, copy: Ints, block: Ints) -> Flags:
        """Of blocks of copies: whether an undamaged copy of the segment that counts has it. What
        ended in it was taken in before it had come whole."""
        copies = self.copies
        if not len(copies):
            return np.zeros(0, dtype=np.bool_)
        is_first = np.ones(len(copies), dtype=np.bool_)
        is_first[1:] = copies.unit[1:] != copies.unit[:-1]
        is_first[1:] |= copies.number[1:] != copies.number[:-1]
        good = np.where(copies.damaged, 0, copies.good)
        good[self.choice.contradicting] = 0
        good[self.choice.far] = 0
        have = np.bitwise_or.reduceat(good, np.flatnonzero(is_first))[np.cumsum(is_first) - 1]
        has: Flags = have[copy] >> np.maximum(block, 0) & 1 > 0
        return has


def _copies(rows: pa.Table, unit: Ints) -> Copies:
    return Copies(
        unit=unit,
        number=whole(rows["number"]),
        blocks=whole(rows["blocks"]),
        good=whole(rows["good"]),
        damaged=rows["damaged"].to_numpy(),
        crcs=_matrix(rows["crcs"], BOX_BLOCKS_MAX).astype(np.uint32),
        wall_ms=whole(rows["wall_ms"]),
        wall_uncertainty_ms=whole(rows["wall_uncertainty_ms"]),
        t0_ms=whole(rows["t0_ms"]),
    )


def _partials(rows: pa.Table, unit: Ints, number: Ints, *, summed: bool) -> Partials:
    fields = {
        name: whole(rows[name])
        for name in ("block_from", "block_to", "events", "event_first_ms", "event_last_ms")
    }
    if not summed:
        nothing = np.zeros(0, dtype=np.int64)
        fields |= dict.fromkeys(SUMS, nothing)
        return Partials(copy=nothing, unit=unit, number=number, **fields)
    for name in SUMS:
        if name in STATE_LISTS:
            fields[name] = _matrix(rows[name], STATES)
        elif name == "descriptors":
            fields[name] = _padded(rows[name], _DESCRIPTORS)
        else:
            fields[name] = whole(rows[name])
    return Partials(copy=np.zeros(0, dtype=np.int64), unit=unit, number=number, **fields)


def _samples(rows: pa.Table, *, named: bool) -> Samples:
    if not named:
        return Samples(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    piece, fields = _flat(rows["samples"])
    return Samples(piece, **fields)


def _bins(rows: pa.Table, *, named: bool) -> Bins:
    if not named:
        return Bins(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    piece, fields = _flat(rows["bins"])
    return Bins(piece, **fields)


def _messages(rows: pa.Table, unit: Ints, number: Ints) -> Happenings:
    at, fields = _flat(rows["messages"])
    happenings = Happenings(
        piece=at,
        unit=unit[at],
        what=fields["message"] << 11 | fields["event"] << 8 | fields["peer"],
        time_ms=fields["boot_ms"],
        number=number[at],
        count=fields["count"],
        first_sends=fields["first_sends"],
        b_max=fields["b_max"],
    )
    order = np.lexsort((happenings.number, happenings.time_ms, happenings.unit))
    happenings = happenings.take(order)
    return first_and_count(happenings, happenings.unit)


def _battery(rows: pa.Table, unit: Ints, number: Ints) -> Happenings:
    at, fields = _flat(rows["battery"])
    zeros = np.zeros(len(at), dtype=np.int64)
    happenings = Happenings(
        at, unit[at], fields["mv"], fields["boot_ms"], number[at], zeros, zeros, zeros
    )
    return happenings.take(
        np.lexsort((happenings.what, happenings.number, happenings.time_ms, happenings.unit))
    )


def _no_happenings() -> Happenings:
    return Happenings(*(np.zeros(0, dtype=np.int64) for _ in range(8)))


def _flat(column: pa.ChunkedArray) -> tuple[Ints, dict[str, Ints]]:
    """Of lists of structures the row of each element, and its whole numbers by field."""
    length = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    flat = pc.list_flatten(column).combine_chunks()
    fields = {
        field.name: whole(pa.chunked_array([flat.field(field.name)]))
        for field in flat.type
        if pa.types.is_integer(field.type)
    }
    return np.repeat(np.arange(len(column)), length), fields


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Text as its rank among the texts of the column; null is first."""
    coded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = np.array([name or "" for name in coded.dictionary.to_pylist()], dtype=object)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(names, kind="stable")] = np.arange(len(names))
    index = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return np.where(index >= 0, rank[index], -1) if len(names) else np.full(len(column), -1)


def whole(column: pa.ChunkedArray) -> Ints:
    """A column of whole numbers; null is NONE."""
    numbers = pc.fill_null(pc.cast(column, pa.int64()), NONE)
    values: Ints = numbers.combine_chunks().to_numpy(zero_copy_only=False)
    return values


def _matrix(column: pa.ChunkedArray, width: int) -> npt.NDArray[np.int64]:
    return whole(pa.chunked_array([pc.list_flatten(column).combine_chunks()])).reshape(-1, width)


def _padded(column: pa.ChunkedArray, width: int) -> npt.NDArray[np.int64]:
    """Lists as rows of one width: shorter ones, of who knew fewer fields, end with NONE."""
    sizes = pc.list_value_length(column).to_numpy()
    row = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    values = whole(pa.chunked_array([pc.list_flatten(column).combine_chunks()]))
    is_known = place < width
    rows = np.full((len(sizes), width), NONE)
    rows[row[is_known], place[is_known]] = values[is_known]
    return rows


def _nullable(values: Ints, kind: pa.DataType) -> pa.Array:
    missing = values == NONE
    return pa.array(np.where(missing, 0, values), mask=missing).cast(kind)
