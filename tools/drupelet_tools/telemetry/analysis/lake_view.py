"""Some devices of a lake, read as if they were all of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.analysis.slices import READ, Slices
from drupelet_tools.telemetry.lake.delta import Lake


class DevicesView:
    """Some devices of a lake, their rows held in memory; `part` takes fewer of them.

    `messages` also has the creation of each message that these devices should have, whoever
    wrote it: those of their groups, and of the authors of which they have a message.
    """

    def __init__(self, tables: dict[str, pa.Table], devices: pa.Table) -> None:
        self.tables = tables
        self.devices = devices
        self.ids = pc.unique(devices["device"])

    @classmethod
    def of(cls, slices: Slices, number: int, devices: pa.Table) -> DevicesView:
        """Read the rows of a slice, which has these devices (rows of `read_devices`)."""
        ids = pc.unique(devices["device"])
        tables = {name: slices.read(name, number) for name in READ}
        mine = tables["messages"]
        foreign = ~pc.field("device").isin(ids)
        wanted = pc.field("message").isin(_delivered(mine))
        wanted |= pc.field("group_tag").isin(_tags(mine))
        others = slices.created(foreign & wanted)
        authors = pc.field("device").isin(pc.unique(others["device"]))
        rest = slices.created(foreign & authors & ~wanted)
        tables["messages"] = pa.concat_tables([mine, others, rest])
        return cls(tables, devices)

    def part(self, ids: Collection[str]) -> DevicesView:
        """The view of some of these devices."""
        chosen = pa.array(sorted(ids), pa.string())
        tables = {name: _of(rows, chosen) for name, rows in self.tables.items()}
        rows = self.tables["messages"]
        mine = tables["messages"]
        wanted = pc.or_(
            pc.is_in(rows["message"], _delivered(mine)), pc.is_in(rows["group_tag"], _tags(mine))
        )
        created = pc.and_(pc.equal(rows["event"], "created"), pc.invert(_is(rows, chosen)))
        authors = pc.unique(rows.filter(pc.and_(created, wanted))["device"])
        foreign = pc.and_(created, pc.or_(wanted, _is(rows, authors)))
        tables["messages"] = pa.concat_tables([mine, rows.filter(foreign)])
        return DevicesView(tables, _of(self.devices, chosen))

    def read(
        self, table: str, columns: list[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """Rows of a table, as a lake's `read`."""
        rows = self.tables[table]
        rows = rows if where is None else rows.filter(where)
        return rows if columns is None else rows.select(columns)

    def read_devices(self) -> pa.Table:
        """The devices."""
        return self.devices

    @property
    def as_lake(self) -> Lake:
        """For `figures`, which only calls these two."""
        return cast("Lake", self)


def _is(rows: pa.Table, ids: pa.Array) -> pa.ChunkedArray:
    return pc.is_in(rows["device"], ids)


def _of(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(_is(rows, ids))


def _delivered(messages: pa.Table) -> pa.Array:
    """The messages that came here."""
    return pc.unique(messages.filter(pc.equal(messages["event"], "delivered"))["message"])


def _tags(messages: pa.Table) -> pa.Array:
    return pc.unique(pc.drop_null(messages["group_tag"]))
