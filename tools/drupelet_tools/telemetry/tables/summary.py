"""Segments to rows of the tables in this process, without a lake: for tests and small tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from drupelet_tools.telemetry.blackbox import codes, decode
from drupelet_tools.telemetry.blackbox.decode import (
    NONE,
    Chunk,
    Damage,
    Entries,
    Header,
    read_header,
)
from drupelet_tools.telemetry.tables.choose import Choice, Spans, choose
from drupelet_tools.telemetry.tables.fold import fold
from drupelet_tools.telemetry.tables.partials import Boots, Sums, add_up, first_and_count

Row = dict[str, Any]
Tables = dict[str, list[Row]]

_TEXT_NONE = ("wall_source",)


@dataclass(slots=True)
class Log:
    """Copies of segments, sorted out: checked blocks, and what each unit is."""

    chunk: Chunk
    headers: list[Header]
    units: list[tuple[str, int]]


def read(copies: Sequence[bytes]) -> Log:
    """Check copies of segments whose headers are good, of any devices and in any order."""
    parsed = []
    for at, data in enumerate(copies):
        header = read_header(data)
        assert isinstance(header, Header), header
        parsed.append((header.device, header.boot, header.number, -len(data), at, header, data))
    parsed.sort(key=lambda row: row[:5])
    units = sorted({row[:2] for row in parsed})
    families = sorted({row[:3] for row in parsed})
    distinct: list[tuple[Any, ...]] = []
    for row in parsed:
        if not any(row[:3] == other[:3] and row[6] == other[6] for other in distinct[-8:]):
            distinct.append(row)
    headers = [row[5] for row in distinct]
    sizes = np.array([len(row[6]) for row in distinct], dtype=np.int64)
    entries = Entries(
        unit=np.array([units.index(row[:2]) for row in distinct], dtype=np.int64),
        number=np.array([row[2] for row in distinct], dtype=np.int64),
        family=np.array([families.index(row[:3]) for row in distinct], dtype=np.int64),
        boot=np.array([row[1] for row in distinct], dtype=np.int64),
        wall_ms=_known([one.wall_ms for one in headers]),
        wall_uncertainty_ms=_known([one.wall_uncertainty_ms for one in headers]),
        size=sizes,
        at=np.cumsum(sizes) - sizes,
        data=np.frombuffer(b"".join(row[6] for row in distinct), dtype=np.uint8),
    )
    return Log(decode.check(entries), headers, units)


def _known(values: Sequence[int | None]) -> decode.Ints:
    return np.array([NONE if one is None else one for one in values], dtype=np.int64)


def summarise(log: Log) -> Tables:
    """Rows of every table."""
    entries = log.chunk.entries
    chunk = decode.check(replace(entries, family=np.arange(len(entries))))
    sums = add_up(chunk)
    partials = sums.partials
    spans = Spans(
        partials.copy, partials.block_from, partials.events, partials.event_first_ms,
        partials.event_last_ms,
    )  # fmt: skip
    choice = choose(sums.copies, spans)
    tables: Tables = {}
    for table, columns in fold(_boots(sums, choice)).items():
        names = list(columns)
        values = [np.asarray(columns[name]).tolist() for name in names]
        tables[table] = [
            _row(log, dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)
        ]
    contradicting = [Damage(int(at), None, codes.REASON_CONFLICT) for at in choice.contradicting]
    tables["quarantine"] = [
        {
            "device": log.headers[damage.entry].device,
            "boot": log.headers[damage.entry].boot,
            "number": log.headers[damage.entry].number,
            "block": damage.block,
            "reason": damage.reason,
        }
        for damage in [*chunk.damages, *contradicting]
    ]
    return tables


def _boots(sums: Sums, choice: Choice) -> Boots:
    """What counts of some copies."""
    messages, battery = (
        rows.take(np.isin(rows.piece, choice.pieces)) for rows in (sums.messages, sums.battery)
    )
    messages = messages.take(np.lexsort((messages.number, messages.time_ms, messages.unit)))
    return Boots(
        np.unique(choice.families.unit),
        sums.partials.take(choice.pieces),
        choice.families,
        first_and_count(messages, messages.unit),
        battery.take(np.lexsort((battery.number, battery.time_ms, battery.unit))),
        sums.samples.of_pieces(choice.pieces),
        sums.bins.of_pieces(choice.pieces),
    )


def _row(log: Log, row: Row) -> Row:
    device, boot = log.units[row.pop("unit")]
    if "measure" in row:
        row["unit"] = row.pop("measure")
    if "message" in row:
        row["message"] = f"{row['message']:08x}"
        row["event"] = codes.MESSAGE_EVENTS[row["event"] + min(codes.MESSAGE_EVENTS)]
    for name, value in row.items():
        if value == NONE or (name in _TEXT_NONE and value == ""):
            row[name] = None
    return {"device": device, "boot": boot, **row}
