"""What a lake shows a reader, in a form that two lakes can be compared in."""

from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.tables import schemas

# Where the lake keeps what it needs to go on; how a log was cut shows there.
INNER = schemas.INNER_TABLES
# Its rows say where inputs were, which differs where they were moved: each is a text.
PLACED = "quarantine"


def content(root):
    """All tables for the reader: columns, and sorted rows."""
    state = delta.open_lake(root)
    shown = [table for table in schemas.TABLES if table not in INNER and table != PLACED]
    placed = sorted(map(repr, state.read(PLACED).to_pylist()))
    return {table: _rows(state.read(table)) for table in shown} | {PLACED: placed}


def _rows(table):
    # Column by column: to make a dictionary of each row takes three times as long.
    columns = [column.to_pylist() for column in table.columns]
    return table.column_names, sorted(map(repr, zip(*columns, strict=True)))
