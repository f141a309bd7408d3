"""What a lake shows a reader, in a form that two lakes can be compared in."""

from drupelet_tools.telemetry import lake, schemas

# Where the lake keeps what it needs to go on; how a log was cut shows there.
INNER = schemas.INNER_TABLES


def content(root):
    """All tables for the reader, as sorted rows."""
    state = lake.open_lake(root)
    return {
        table: sorted(map(repr, state.read(table).to_pylist()))
        for table in schemas.TABLES
        if table not in INNER
    }
