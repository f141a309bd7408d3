"""The segments of a group, which one worker takes in, as columns of numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from drupelet_tools.telemetry.base.place import Place
from drupelet_tools.telemetry.blackbox.decode import Ints


class GroupColumns:
    """Entries of a group as numpy columns; `len()` is how many segments it has."""

    def __init__(self, entries: pa.Table, packs: Place | None = None) -> None:
        self.file = entries["file"].combine_chunks()
        self.files = self.file.dictionary.to_pylist()
        self.file_at = self.file.indices.to_numpy().astype(np.int64)
        self.device = entries["device"].combine_chunks()
        self.offset: Ints = entries["offset"].to_numpy()
        self.size: Ints = entries["size"].to_numpy()
        self.boot: Ints = entries["boot"].to_numpy()
        self.number: Ints = entries["number"].to_numpy()
        self.wall_ms: Ints = entries["wall_ms"].to_numpy()
        self.wall_uncertainty_ms: Ints = entries["wall_uncertainty_ms"].to_numpy()
        self.header_crc: Ints = entries["header_crc"].to_numpy()
        self.first_crc: Ints = entries["first_crc"].to_numpy()
        self.unit: Ints = entries["unit"].to_numpy()
        self.family: Ints = entries["family"].to_numpy()
        self.alternate = entries["alternate"].to_numpy()
        self.small = entries["small"].to_numpy()
        # Of each file whether it is one of the packs of the lake that is written.
        self.own_pack = np.array([name.rpartition("/")[0] == str(packs) for name in self.files])

    def __len__(self) -> int:
        return len(self.unit)
