"""What a lake shows its readers, in an order that does not depend on how it was made."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from drupelet_tools.telemetry.lake.delta import open_lake
from drupelet_tools.telemetry.tables.schemas import INNER_TABLES, TABLES


def content(root: Path, without: Collection[str] = ()) -> dict[str, pa.Table]:
    """Return each table for the readers of a lake, sorted; `without`: columns to leave out.

    Rows cannot be sorted by lists: the other columns tell one row from another.
    """
    lake = open_lake(root)
    tables = {}
    for table, schema in TABLES.items():
        if table in INNER_TABLES:
            continue
        names = [name for name in schema.names if name not in without]
        keys = [name for name in names if not pa.types.is_nested(schema.field(name).type)]
        rows = lake.read(table).select(names)
        tables[table] = rows.sort_by([(name, "ascending") for name in keys])
    return tables
