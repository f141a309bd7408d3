"""When a device was in which power state: from its black box, or from a CSV of changes."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.energy.figure import Draws

STATES_HEADER = ("time_ms", "state")
NO_LAKE = Path(os.devnull)  # `find_files` leaves out what is in a lake; here there is none


@dataclass(frozen=True, slots=True)
class Timeline:
    """Changes of state: from `time_ms[i]` on, until the next, the device was in `state[i]`.

    `end_ms` is the last moment that is known of. `origin_ms` is the Unix time of 0, if a clock
    told it.
    """

    device: str
    time_ms: Draws
    state: np.ndarray
    end_ms: float
    origin_ms: float | None = None

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
    """The changes of state in black-box segments of one device.

    Several boots are put behind each other by the wall clock: between two, the device was in
    deep sleep if it woke from that, else in no state that is known. What a boot takes until its
    first change of state is in none either.

    Raises:
        TelemetryError: no segments, several devices, boots without a clock, a damaged log.
    """
    from drupelet_tools.telemetry.base.place import Opened
    from drupelet_tools.telemetry.blackbox.decode import Header, read_header
    from drupelet_tools.telemetry.files import inputs
    from drupelet_tools.telemetry.tables.columns import event_columns
    from drupelet_tools.telemetry.tables.summary import read, summarise

    files = inputs.find_files(paths, NO_LAKE)
    copies = []
    for path in files:
        with Opened(path) as opened:
            data = opened.pread(opened.size, 0)
        header = read_header(data)
        if isinstance(header, Header) and device in (None, header.device):
            copies.append(data)
    where = ", ".join(str(path) for path in paths)
    if not copies:
        named = f" of device {device}" if device else ""
        raise TelemetryError(f"{where}: no segments{named} that can be read")
    log = read(copies)
    devices = sorted({name for name, _ in log.units})
    if len(devices) > 1:
        raise TelemetryError(f"{where}: several devices: {', '.join(devices)}; give --device")
    for boot in sorted({header.boot for header in log.headers}):
        numbers = {header.number for header in log.headers if header.boot == boot}
        if log.chunk.damages or max(numbers) - min(numbers) >= len(numbers):
            raise TelemetryError(f"{where}: the log has gaps, so its states are not known")
    events = event_columns(log.chunk)
    boot_of = log.chunk.entries.boot[events["entry"]]
    tables = summarise(log)
    begins = {row["boot"]: row["wall_offset_ms"] for row in tables["segments"]}
    woke = {row["boot"] for row in tables["health"]
            if row["reset_cause"] == codes.RESET_DEEP_SLEEP}  # fmt: skip
    boots = sorted(begins)
    if len(boots) > 1 and any(begins[boot] is None for boot in boots):
        raise TelemetryError(f"{where}: several boots without a clock; give the files of one")
    origin = begins[boots[0]]
    changes: list[tuple[float, int]] = []
    for boot in boots:
        own = boot_of == boot
        begin = 0.0 if origin is None else float(begins[boot] - origin)
        if changes:
            slept = codes.DEEP_SLEEP if boot in woke else codes.STATE_UNKNOWN
            # Two clock readings may disagree by a few ms: the log goes on where it ended.
            begin = max(begin, changes[-1][0])
            changes[-1] = (changes[-1][0], slept)
            changes.append((begin, codes.STATE_UNKNOWN))
        chosen = own & (events["code"] == codes.STATE)
        times, states = events["boot_ms"][chosen], events["a"][chosen]
        changes += [(begin + time, state) for time, state in
                    zip(times.tolist(), states.tolist(), strict=True)]  # fmt: skip
        if own.any():
            changes.append((begin + float(events["boot_ms"][own].max()), codes.STATE_UNKNOWN))
    return _timeline(where, devices[0], changes, origin)


def _timeline(
    where: str, device: str, changes: list[tuple[float, int]], origin_ms: float | None = None
) -> Timeline:
    if len(changes) < 2:
        raise TelemetryError(f"{where}: fewer than two changes of state")
    times = np.asarray([time for time, _ in changes], dtype=np.float64)
    if not np.isfinite(times).all() or (np.diff(times) < 0).any():
        raise TelemetryError(f"{where}: times of the states must rise")
    states = np.asarray([state for _, state in changes])
    return Timeline(device, times[:-1], states[:-1], float(times[-1]), origin_ms)
