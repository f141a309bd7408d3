"""Columns of the lake's tables (docs/SPEC.md 9); a change here raises SCHEMA_VERSION."""

from __future__ import annotations

import pyarrow as pa

from drupelet_tools.telemetry import codes

SCHEMA_VERSION = 3

_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_REAL = pa.float64()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


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
    # What the next ingest needs of a boot to go on with it (telemetry/partials.py).
    "partials": _schema(
        **_BOOT,
        **dict.fromkeys(
            ("number_from", "block_from", "number_to", "block_to", "first_ms", "last_ms"), _LONG
        ),
        state_first_ms=_LONG,
        state_last=_LONG,
        **dict.fromkeys(("state_ms", "after_own", "after_any", "counted_ms"), pa.list_(_LONG)),
        counted_any_ms=_LONG,
        counter=pa.list_(_INT),
        counter_value=pa.list_(_LONG),
        heap_low=_LONG,
        battery_first_mv=_LONG,
        battery_last_mv=_LONG,
        battery_low_mv=_LONG,
        reset_cause=_LONG,
        errors=_LONG,
        descriptors=pa.list_(_LONG),
    ),
    "families": _schema(
        **_BOOT,
        number=_LONG,
        blocks=_LONG,
        good=_LONG,
        crcs=pa.list_(_LONG),
        copies=_LONG,
        events=_LONG,
        first_ms=_LONG,
        last_ms=_LONG,
        offset_ms=_LONG,
        uncertainty_ms=_LONG,
    ),
    "renewed": _schema(**_BOOT),
}
DEVICES = _schema(device=_TEXT, name=_TEXT, carriers=_TEXT, board=_TEXT)

# Tables whose rows of a boot are written anew when the boot has news; the others only grow.
BOOT_TABLES = frozenset(
    ("segments", "state_time", "traffic", "messages", "battery", "health", "partials", "families")
)
# Tables whose wall times come from `clocks` where a boot had no anchor of its own.
WALL_TABLES = frozenset(("segments", "messages", "battery"))
# Tables that are for the ingest itself; `query` shows them too.
INNER_TABLES = frozenset(("sources", "partials", "families", "renewed"))
