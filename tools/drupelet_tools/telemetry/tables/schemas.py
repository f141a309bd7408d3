"""Columns of the lake's tables (docs/SPEC.md 9). What is stored in another way than before raises
SCHEMA_VERSION; a column that is only added to a reader's table does not."""

from __future__ import annotations

import pyarrow as pa

from drupelet_tools.telemetry.blackbox import codes

SCHEMA_VERSION = 5

_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_REAL = pa.float64()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def _list(**columns: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(columns.items())))


_BOOT = {"device": _TEXT, "boot": _INT}
_WALL = {"boot_ms": _LONG, "wall_ms": _LONG, "wall_uncertainty_ms": _LONG}

TABLES: dict[str, pa.Schema] = {
    "segments": _schema(
        **_BOOT,
        number=_LONG,
        first_ms=_LONG,
        last_ms=_LONG,
        wall_offset_ms=_LONG,
        wall_uncertainty_ms=_LONG,
        wall_source=_TEXT,
        clock_jump=_FLAG,
        blocks=_INT,
        blocks_bad=_INT,
        copies=_INT,
        events=_LONG,
    ),
    "state_time": _schema(**_BOOT, state=_INT, name=_TEXT, ms=_LONG, source=_TEXT),
    "traffic": _schema(
        **_BOOT, carrier=_TEXT, direction=_TEXT, kind=_TEXT, unit=_TEXT, value=_LONG
    ),
    "messages": _schema(
        device=_TEXT,
        message=_TEXT,
        event=_TEXT,
        boot=_INT,
        **_WALL,
        peer=_INT,
        count=_LONG,
        sends_max=_LONG,
        first_sends=_LONG,
        group_tag=_INT,
        number=_LONG,
    ),
    "battery": _schema(
        **_BOOT,
        **_WALL,
        mv=_INT,
        soc_pct=_REAL,
        temperature_c=_REAL,
        charge_mah=_REAL,
        number=_LONG,
    ),
    "health": _schema(
        **_BOOT,
        last_ms=_LONG,
        reset_cause=_INT,
        heap_limit=_LONG,
        heap_low=_LONG,
        battery_first_mv=_INT,
        battery_last_mv=_INT,
        battery_low_mv=_INT,
        errors=_LONG,
        blocks_lost=_LONG,
        segments_missing=_LONG,
        epoch_ms=_LONG,
        board_kind=_INT,
        firmware=_TEXT,
        firmware_set=_TEXT,
        **dict.fromkeys(codes.HEALTH_COUNTERS.values(), _LONG),
    ),
    "quarantine": _schema(
        **_BOOT, number=_LONG, block=_INT, file=_TEXT, offset=_LONG, reason=_TEXT
    ),
    "clocks": _schema(
        **_BOOT, wall_offset_ms=_LONG, wall_uncertainty_ms=_LONG, source=_TEXT, jumps=_INT
    ),
    "events": _schema(
        **_BOOT,
        number=_LONG,
        block=_INT,
        boot_ms=_LONG,
        code=_INT,
        a=_INT,
        b=_INT,
        c=_LONG,
    ),
    "sources": _schema(
        **_BOOT,
        number=_LONG,
        size=_LONG,
        header_crc=_LONG,
        first_crc=_LONG,
        content_crc=_LONG,
        damaged=_FLAG,
        file=_TEXT,
        offset=_LONG,
        pack=_TEXT,
        pack_offset=_LONG,
    ),
}
# What is summed up by the hour of a boot, and in `days` by the day.
STATE_COLUMNS = tuple(f"{name.replace(' ', '_')}_ms" for name in codes.STATES)
HOUR_SUMS = (
    "boots",
    "resets",
    *STATE_COLUMNS,
    "bytes_sent",
    "bytes_received",
    *codes.HEALTH_COUNTERS.values(),
)
_BINNED: dict[str, pa.DataType] = {
    **dict.fromkeys(HOUR_SUMS, _LONG),
    **dict.fromkeys(("battery_first_mv", "battery_last_mv", "battery_low_mv"), _INT),
    "heap_low": _LONG,
    "traffic": _list(carrier=_TEXT, direction=_TEXT, kind=_TEXT, unit=_TEXT, value=_LONG),
}
TABLES["hours"] = _schema(**_BOOT, hour=_INT, **_WALL, **_BINNED)
TABLES["days"] = _schema(
    **_BOOT, boot_day=_INT, wall_ms=_LONG, wall_uncertainty_ms=_LONG, hours=_INT, **_BINNED
)
DEVICES = _schema(
    device=_TEXT, name=_TEXT, carriers=_TEXT, board=_TEXT, firmware=_TEXT, firmware_set=_TEXT
)

# Tables whose wall times come from `clocks` where a boot had no anchor of its own.
WALL_TABLES = frozenset(("segments", "messages", "battery", "hours"))
# Tables that say where rows came from; `query` shows them too.
INNER_TABLES = frozenset(("sources",))

# --- the rows of the Delta table, one set of columns for all kinds ---

PIECE, KEY, FOREIGN = "piece", "key", "foreign"
KINDS = (PIECE, KEY, FOREIGN)


# What tells two copies of a segment apart; `content_crc` is null unless the copy is damaged.
COPY_KEY = {
    **_BOOT,
    **dict.fromkeys(("number", "size", "header_crc", "first_crc", "content_crc"), _LONG),
}
_COPY = {
    **COPY_KEY,
    "damaged": _FLAG,
    "file": _TEXT,
    "offset": _LONG,
    "pack": _TEXT,
    "pack_offset": _LONG,
    "taken_ms": _LONG,
    "blocks": _LONG,
    "good": _LONG,
    "crcs": pa.list_(_LONG),
    "wall_ms": _LONG,
    "wall_uncertainty_ms": _LONG,
    "t0_ms": _LONG,
    "damages": _list(block=_INT, offset=_LONG, reason=_TEXT),
}
_SPAN = dict.fromkeys(
    ("block_from", "block_to", "events", "event_first_ms", "event_last_ms"), _LONG
)
STATE_LISTS = ("state_ms", "after_own", "after_any", "counted_ms")
SUMS = {
    **dict.fromkeys(("first_ms", "last_ms", "state_first_ms", "state_last"), _LONG),
    **dict.fromkeys(STATE_LISTS, pa.list_(_LONG)),
    "counted_any_ms": _LONG,
    **dict.fromkeys(
        ("heap_low", "battery_first_mv", "battery_last_mv", "battery_low_mv", "reset_cause",
         "errors"),
        _LONG,
    ),
    "descriptors": pa.list_(_LONG),
}  # fmt: skip
_LISTS = {
    "messages": _list(
        message=_LONG, event=_INT, peer=_INT, boot_ms=_LONG, count=_LONG, first_sends=_LONG,
        b_max=_LONG,
    ),
    "battery": _list(boot_ms=_LONG, mv=_INT),
    "samples": _list(hour=_INT, counter=_INT, first=_LONG, value=_LONG),
    "bins": _list(hour=_INT, counted_first_ms=_LONG, counted_last_ms=_LONG, heap_low=_LONG),
    "event_rows": _list(block=_INT, boot_ms=_LONG, code=_INT, a=_INT, b=_INT, c=_LONG),
}  # fmt: skip
# `row` is JSON: a row of the reader's table `table`, or what a names file says of a device.
_FOREIGN = {"origin": _TEXT, "table": _TEXT, "row": _TEXT}
FILES: dict[str, pa.Schema] = {
    PIECE: _schema(**_COPY, **_SPAN, **SUMS, **_LISTS),
    KEY: _schema(**COPY_KEY, damaged=_FLAG, pack=_TEXT, taken_ms=_LONG, **_FOREIGN),
    FOREIGN: _schema(**_BOOT, taken_ms=_LONG, **_FOREIGN),
}
DELTA = _schema(kind=_TEXT, **_COPY, **_SPAN, **SUMS, **_LISTS, **_FOREIGN)
# Columns of pieces that a table is made of, beside those that say which pieces count.
CHOICE = (*_COPY, *_SPAN)
MADE_OF: dict[str, tuple[str, ...]] = {
    "segments": (),
    "quarantine": (),
    "sources": (),
    **dict.fromkeys(("state_time", "traffic", "health"), (*SUMS, "samples")),
    "hours": (*SUMS, "samples", "bins", "battery"),
    "messages": ("messages",),
    "battery": ("battery",),
    "events": ("event_rows",),
}
