"""A part of a lake, read as if it were one: some of its devices, or some of their boots."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.lake import Lake

Boot = tuple[str, int]

# Tables of which only the chosen boots are read. The others say when a device was heard and how
# its battery fares, which is the same whatever period is looked at.
BOOTS_OF = frozenset(("state_time", "traffic", "messages", "health"))


class BootsView:
    """A lake of which only some boots count; it has the two methods that `figures` calls."""

    def __init__(self, lake: Lake, boots: Collection[Boot]) -> None:
        self.lake = lake
        self.keys = pa.array([f"{device}/{boot}" for device, boot in boots], pa.string())
        self.devices = pa.array(sorted({device for device, _ in boots}), pa.string())

    def read(self, table: str) -> pa.Table:
        """Rows of a table; of messages also the creation of each that a chosen boot names."""
        rows = self.lake.read(table)
        if table not in BOOTS_OF:
            return rows.filter(pc.is_in(rows["device"], self.devices))
        keys = pc.binary_join_element_wise(rows["device"], pc.cast(rows["boot"], pa.string()), "/")
        chosen = pc.is_in(keys, self.keys)
        if table == "messages":
            named = pc.unique(rows.filter(chosen)["message"])
            created = pc.and_(pc.equal(rows["event"], "created"), pc.is_in(rows["message"], named))
            chosen = pc.or_(chosen, created)
        return rows.filter(chosen)

    def read_devices(self) -> pa.Table:
        """The devices of the boots."""
        rows = self.lake.read_devices()
        return rows.filter(pc.is_in(rows["device"], self.devices))

    @property
    def as_lake(self) -> Lake:
        """For `figures`, which only calls these two."""
        return cast("Lake", self)
