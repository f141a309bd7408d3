"""Which devices stand out from the fleet, by their finished rows as `figures` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drupelet_tools.telemetry.analysis.statistics import OUTLIER_Z, modified_z

Row = dict[str, Any]

# What devices are compared by: (name, text, unit).
COMPARED = (
    ("mah_per_day", "charge per day, modelled", "mAh"),
    ("overhead_per_message", "overhead per message", "B"),
    ("retransmit_share", "share of repeated sends", ""),
    ("duplicate_share", "share of duplicates", ""),
    ("boots_per_day", "boots per day", ""),
)


def outliers(devices: Sequence[Row]) -> list[Row]:
    """Devices far from the fleet's median by the median deviation, the farthest first."""
    far = []
    for name, what, unit in COMPARED:
        known = [(row, row[name]) for row in devices if row.get(name) is not None]
        values = np.array([value for _, value in known], dtype=np.float64)
        for (row, value), score in zip(known, modified_z(values), strict=True):
            if abs(score) >= OUTLIER_Z:
                far.append(
                    {
                        "device": row["device"],
                        "label": row["label"],
                        "figure": name,
                        "what": what,
                        "unit": unit,
                        "value": value,
                        "median": float(np.median(values)),
                        "z": float(score),
                    }
                )
    return sorted(far, key=lambda row: (-abs(row["z"]), row["device"]))
