"""When a device was in which power state: from its black box, or from a CSV of changes."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drupelet_tools.telemetry import codes
from drupelet_tools.telemetry.energy_figure import Draws
from drupelet_tools.telemetry.errors import TelemetryError

STATES_HEADER = ("time_ms", "state")
NO_LAKE = Path(os.devnull)  # `find_files` leaves out what is in a lake; here there is none


@dataclass(frozen=True, slots=True)
class Timeline:
    """Changes of state: from `time_ms[i]` on, until the next, the device was in `state[i]`.

    `end_ms` is the last moment that is known of.
    """

    device: str
    time_ms: Draws
    state: np.ndarray
    end_ms: float

    def within(self, edges_ms: Draws, states: Sequence[int]) -> Draws:
        """ms in each of the states (columns) between each two edges (rows)."""
        columns = []
        lengths = np.diff(np.append(self.time_ms, self.end_ms))
        for state in states:
            inside = np.where(self.state == state, lengths, 0.0)
            total = np.concatenate(([0.0], np.cumsum(inside)))
            places = np.append(self.time_ms, self.end_ms)
            columns.append(np.diff(np.interp(edges_ms, places, total)))
        return np.column_stack(columns)


def read_states(path: Path) -> Timeline:
    """Read a CSV with the header `time_ms,state`; a state is a number or a name.

    Raises:
        TelemetryError: it cannot be read, or a row is no change of state.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise TelemetryError(f"{path}: not a CSV text") from None
    header = ",".join(STATES_HEADER)
    if not rows or tuple(name.strip() for name in rows[0]) != STATES_HEADER:
        raise TelemetryError(f"{path}: want the header {header}")
    changes = []
    for line, row in enumerate(rows[1:], 2):
        try:
            changes.append((float(row[0]), _state(row[1].strip())))
        except (ValueError, IndexError):
            raise TelemetryError(
                f"{path}, line {line}: want a time and a state: {', '.join(codes.STATES)}, or end"
            ) from None
    return _timeline(str(path), path.stem, changes)


def _state(text: str) -> int:
    if text == "end":
        return codes.STATE_UNKNOWN
    found = codes.STATES.index(text) if text in codes.STATES else int(text)
    if not 0 <= found < len(codes.STATES):
        raise ValueError(text)
    return found


def read_segments(paths: Sequence[Path], device: str | None) -> Timeline:
    """The changes of state of one boot in black-box segments.

    Raises:
        TelemetryError: no segments, several devices or boots, or a log that is damaged.
    """
    from drupelet_tools.telemetry import inputs
    from drupelet_tools.telemetry.columns import event_columns
    from drupelet_tools.telemetry.decode import Header, read_header
    from drupelet_tools.telemetry.summary import read

    files = inputs.find_files(paths, NO_LAKE)
    copies = []
    for path in files:
        data = path.read_bytes()
        header = read_header(data)
        if isinstance(header, Header) and device in (None, header.device):
            copies.append(data)
    where = ", ".join(str(path) for path in paths)
    if not copies:
        named = f" of device {device}" if device else ""
        raise TelemetryError(f"{where}: no segments{named} that can be read")
    log = read(copies)
    if len(log.units) > 1:
        units = ", ".join(f"{name} boot {boot}" for name, boot in log.units[:4])
        raise TelemetryError(f"{where}: want one boot of one device, not {units}; give its files")
    numbers = sorted({header.number for header in log.headers})
    if log.chunk.damages or numbers[-1] - numbers[0] >= len(numbers):
        raise TelemetryError(f"{where}: the log has gaps, so its states are not known")
    events = event_columns(log.chunk)
    chosen = events["code"] == codes.STATE
    changes = list(zip(events["boot_ms"][chosen].tolist(), events["a"][chosen].tolist(),
                       strict=True))  # fmt: skip
    if len(events["boot_ms"]):
        changes.append((float(events["boot_ms"].max()), codes.STATE_UNKNOWN))
    return _timeline(where, log.units[0][0], changes)


def _timeline(where: str, device: str, changes: list[tuple[float, int]]) -> Timeline:
    if len(changes) < 2:
        raise TelemetryError(f"{where}: fewer than two changes of state")
    times = np.asarray([time for time, _ in changes], dtype=np.float64)
    if not np.isfinite(times).all() or (np.diff(times) < 0).any():
        raise TelemetryError(f"{where}: times of the states must rise")
    states = np.asarray([state for _, state in changes])
    return Timeline(device, times[:-1], states[:-1], float(times[-1]))
