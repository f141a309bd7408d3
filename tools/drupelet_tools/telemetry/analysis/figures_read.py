"""The lake's tables in the shapes that the analyses take: rows by device, and columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.analysis.group_costs import EVENTS, Ints, Messages
from drupelet_tools.telemetry.analysis.statistics import Floats
from drupelet_tools.telemetry.blackbox.codes import WALL_MS_MAX
from drupelet_tools.telemetry.lake.delta import Lake
from drupelet_tools.telemetry.tables.schemas import TABLES

Row = dict[str, Any]


def by_device(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows sorted out by device."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["device"]].append(row)
    return found


def rows_of(lake: Lake, table: str) -> list[Row]:
    """A table's rows; none where this lake has no such table."""
    if table not in TABLES:
        return []
    rows: list[Row] = lake.read(table).to_pylist()
    return rows


def quarantined(lake: Lake) -> list[Row]:
    """Rows of `quarantine`, each with `wall_ms`: when its segment began, None if unknown."""
    rows = rows_of(lake, "quarantine")
    devices = sorted({row["device"] for row in rows if row["device"]})
    if not devices:
        return [{**row, "wall_ms": None} for row in rows]
    segments = lake.read("segments", where=pc.field("device").isin(devices)).to_pylist()
    starts = {
        (row["device"], row["boot"], row["number"]): row["wall_offset_ms"] + row["first_ms"]
        for row in segments
        if row["wall_offset_ms"] is not None and row["first_ms"] is not None
    }
    return [
        {**row, "wall_ms": starts.get((row["device"], row["boot"], row["number"]))} for row in rows
    ]


def messages(lake: Lake) -> Messages:
    """The messages table by columns."""
    table = lake.read("messages").sort_by("device")
    device, devices = _coded(table["device"])
    message, names = _coded(table["message"])
    return Messages(
        devices=devices,
        messages=len(names),
        device=device,
        message=message,
        event=pc.fill_null(pc.index_in(table["event"], pa.array(EVENTS)), -1)
        .to_numpy()
        .astype(np.int64),
        peer=_whole(table["peer"]),
        count=_whole(table["count"]),
        sends_max=_whole(table["sends_max"]),
        first_sends=_whole(table["first_sends"]),
        group_tag=_whole(table["group_tag"]),
        wall_ms=_floats(table["wall_ms"]),
        uncertainty_ms=_floats(table["wall_uncertainty_ms"]),
    )


def _coded(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    coded = pc.dictionary_encode(column.combine_chunks())
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    places: Ints = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return places, coded.dictionary.to_pylist()


def _whole(column: pa.ChunkedArray) -> Ints:
    told: Ints = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return told


def _floats(column: pa.ChunkedArray) -> Floats:
    told: Floats = pc.cast(column, pa.float64()).to_numpy()
    return told


def log_ends_ms(devices: list[str], segments: dict[str, list[Row]]) -> Floats:
    """Newest time in each device's log, not a number where its clock was never known."""
    ends = np.full(len(devices), np.nan)
    for at, device in enumerate(devices):
        told = [
            row["wall_offset_ms"] + row["last_ms"]
            for row in segments.get(device, [])
            if row["wall_offset_ms"] is not None
            and row["last_ms"] is not None
            and row["wall_offset_ms"] + row["last_ms"] <= WALL_MS_MAX
        ]
        if told:
            ends[at] = max(told)
    return ends
