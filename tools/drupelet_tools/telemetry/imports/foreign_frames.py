"""Other systems' frames as rows of the lake's own tables.

A frame is to its device what a segment is to a board: numbered, timed, possibly repeated or
missing. So the frame counter is the segment number, a counter that starts again is a new boot,
and the same analyses find outages, gaps and repeats in both. Charge is modelled only from what
the frames tell (time on air); where a device does not say what it did between them, that time
is left out.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet_host.base.local_path import local_path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place
from drupelet_tools.telemetry.energy.airtime import FRAME_BYTES_MAX, data_rate, time_on_air_ms
from drupelet_tools.telemetry.files.inputs import check_path
from drupelet_tools.telemetry.imports.lines import Unusable, read_frames
from drupelet_tools.telemetry.imports.mapping import Frame, FrameMapping, load_mapping
from drupelet_tools.telemetry.lake.commit import append
from drupelet_tools.telemetry.lake.delta import Lake

Row = dict[str, Any]
Rows = dict[str, list[Row]]
DEEP_SLEEP, SEND = 0, 4
SEEN_MAX = 65_536  # counters of one session that are remembered as seen


@dataclass(slots=True)
class Session:
    """Frames between two starts of a device's counter. `seen` is counter -> its sightings."""

    number: int
    start_ms: int
    lowest: int
    newest: int
    newest_ms: int
    seen: dict[int, list[Frame]] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        """Take in a frame of this session."""
        self.seen.setdefault(frame.counter, []).append(frame)
        if frame.counter >= self.newest:
            self.newest, self.newest_ms = frame.counter, frame.wall_ms

    def holds(self, frame: Frame, late_ms_max: int) -> bool:
        """Whether a frame goes on with this session: further on, a repeat, or one that came
        late. Else the counter has started again."""
        if frame.counter > self.newest or frame.counter in self.seen:
            return True
        late = frame.wall_ms - self.newest_ms
        return frame.counter > self.lowest and late <= late_ms_max

    @property
    def last_ms(self) -> int:
        """Time of the last sighting since the first."""
        return max(f[-1].wall_ms for f in self.seen.values()) - self.start_ms

    @property
    def missing(self) -> int:
        """Counters between the lowest and the newest that nobody saw."""
        return self.newest - self.lowest + 1 - len(self.seen)

    @property
    def repeats(self) -> int:
        """Sightings beyond the first of each frame."""
        return sum(len(frames) - 1 for frames in self.seen.values())


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: `new` is False where the lake had these files already."""

    frames: int
    devices: int
    unusable: int
    new: bool
    rows: dict[str, int]


def sessions(frames: Sequence[Frame], late_ms_max: int) -> list[Session]:
    """Sessions of one device's frames, which are taken in order of time."""
    every: list[Session] = []
    for frame in sorted(frames, key=lambda frame: frame.wall_ms):
        if not every or not every[-1].holds(frame, late_ms_max):
            at, counter = frame.wall_ms, frame.counter
            every.append(Session(len(every) + 1, at, counter, counter, at))
        every[-1].add(frame)
    return every


def tables(
    frames: Sequence[Frame], mapping: FrameMapping, unusable: Sequence[Unusable] = ()
) -> Rows:
    """Rows of the lake's tables. The same sighting twice (time and counter) counts once."""
    devices: dict[str, dict[tuple[int, int], Frame]] = {}
    for frame in frames:
        devices.setdefault(frame.device, {}).setdefault((frame.wall_ms, frame.counter), frame)
    rows: Rows = {
        name: [] for name in ("segments", "state_time", "traffic", "messages", "battery", "health")
    }
    for own in devices.values():
        for session in sessions(list(own.values()), mapping.late_ms_max):
            _session_rows(rows, session, mapping)
    rows["quarantine"] = [_quarantine_row(line) for line in unusable]
    return rows


def _session_rows(rows: Rows, session: Session, mapping: FrameMapping) -> None:
    device = next(iter(session.seen.values()))[0].device
    key = {"device": device, "boot": session.number}
    sightings = [frame for frames in session.seen.values() for frame in frames]
    rows["segments"] += [
        _segment_row(key, counter, frames, session, mapping)
        for counter, frames in sorted(session.seen.items())
    ]
    rows["messages"] += [
        _message_row(key, counter, frames, session, mapping)
        for counter, frames in sorted(session.seen.items())
    ]
    rows["traffic"] += _traffic_rows(key, sightings, mapping)
    rows["state_time"] += _state_rows(key, sightings, session, mapping)
    rows["battery"] += _battery_rows(key, sightings, session, mapping)
    rows["health"].append(_health_row(key, session))


def _segment_row(
    key: Row, counter: int, frames: list[Frame], session: Session, mapping: FrameMapping
) -> Row:
    return {
        **key,
        "number": counter,
        "first_ms": frames[0].wall_ms - session.start_ms,
        "last_ms": frames[-1].wall_ms - session.start_ms,
        "wall_offset_ms": session.start_ms,
        "wall_uncertainty_ms": mapping.time_uncertainty_ms,
        "blocks": 1,
        "blocks_bad": 0,
        "copies": len(frames),
        "events": 1,
        "wall_source": "anchor",
        "clock_jump": False,
    }


def _message_row(
    key: Row, counter: int, frames: list[Frame], session: Session, mapping: FrameMapping
) -> Row:
    text = f"{key['device']}/{session.number}/{counter}".encode()
    return {
        **key,
        "message": f"{zlib.crc32(text):08x}",
        "event": "sent",
        "boot_ms": frames[0].wall_ms - session.start_ms,
        "wall_ms": frames[0].wall_ms,
        "wall_uncertainty_ms": mapping.time_uncertainty_ms,
        "peer": 1,
        "count": len(frames),
        "sends_max": len(frames),
    }


def _traffic_rows(key: Row, sightings: list[Frame], mapping: FrameMapping) -> list[Row]:
    payload = sum(frame.payload_bytes for frame in sightings)
    whole = payload + mapping.overhead_bytes * len(sightings)
    told = (
        ("frames", "frames", len(sightings)),
        ("carrier", "bytes", whole),
        ("message", "bytes", payload),
        ("message", "records", len(sightings)),
    )
    return [
        {
            **key,
            "carrier": mapping.carrier or "radio",
            "direction": "sent",
            "kind": kind,
            "unit": unit,
            "value": value,
        }
        for kind, unit, value in told
        if value
    ]


def _state_rows(
    key: Row, sightings: list[Frame], session: Session, mapping: FrameMapping
) -> list[Row]:
    """Time on air, where the data rate is told; the rest asleep, where the mapping says so."""
    sent_ms = 0.0
    for frame in sightings:
        if not frame.data_rate:
            return []
        spreading, bandwidth_hz = data_rate(frame.data_rate)
        size = min(frame.payload_bytes + mapping.overhead_bytes, FRAME_BYTES_MAX)
        sent_ms += time_on_air_ms(size, spreading, bandwidth_hz)
    rows = [{**key, "state": SEND, "name": "send", "ms": round(sent_ms), "source": "time on air"}]
    asleep = session.last_ms - round(sent_ms)
    if mapping.sleeps and asleep > 0:
        rows.append(
            {**key, "state": DEEP_SLEEP, "name": "deep sleep", "ms": asleep, "source": "mapping"}
        )
    return rows


def _battery_rows(
    key: Row, sightings: list[Frame], session: Session, mapping: FrameMapping
) -> list[Row]:
    rows = []
    for frame in sorted(sightings, key=lambda frame: frame.wall_ms):
        readings = frame.readings
        if not set(readings) - {"temperature_c"}:
            continue
        rows.append(
            {
                **key,
                "boot_ms": frame.wall_ms - session.start_ms,
                "wall_ms": frame.wall_ms,
                "wall_uncertainty_ms": mapping.time_uncertainty_ms,
                "mv": round(readings["mv"]) if "mv" in readings else None,
                "soc_pct": readings.get("soc_pct"),
                "temperature_c": readings.get("temperature_c"),
                "charge_mah": readings.get("charge_mah"),
            }
        )
    return rows


def _health_row(key: Row, session: Session) -> Row:
    in_time = sorted(
        (frame for frames in session.seen.values() for frame in frames if "mv" in frame.readings),
        key=lambda frame: frame.wall_ms,
    )
    millivolts = [round(frame.readings["mv"]) for frame in in_time]
    zeros = ("errors", "blocks_lost", "flash_programs", "flash_erases", "refused",
             "damaged_frames", "malformed_records", "events_lost")  # fmt: skip
    return {
        **key,
        "last_ms": session.last_ms,
        "battery_first_mv": millivolts[0] if millivolts else None,
        "battery_last_mv": millivolts[-1] if millivolts else None,
        "battery_low_mv": min(millivolts, default=None),
        "segments_missing": session.missing,
        "messages_created": len(session.seen),
        "messages_delivered": len(session.seen),
        "duplicates": 0,
        "retransmits": session.repeats,
        **dict.fromkeys(zeros, 0),
    }


def _quarantine_row(line: Unusable) -> Row:
    return {
        "device": "",
        "file": line.file,
        "offset": line.offset,
        "reason": f"line {line.line}: {line.reason}",
    }


def import_files(
    paths: Sequence[Path],
    mapping_named: str,
    lake: Place,
    *,
    skip_unusable: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Imported:
    """Bring other systems' logs into a lake, all or nothing.

    All files of a device belong into one call: its sessions and repeats run across files.

    Raises:
        TelemetryError: a file, the mapping or the lake is not usable; a line is not and
            `skip_unusable` is not set; or a device of the files is in the lake already.
    """
    mapping, text = load_mapping(mapping_named)
    frames: list[Frame] = []
    unusable: list[Unusable] = []
    paths = [local_path(path) for path in paths]
    for path in paths:
        check_path(path)
        own, bad = read_frames(path, mapping, advance)
        if bad and not own:
            raise TelemetryError(f"{_first(bad)}: no line fits the mapping {mapping.name!r}")
        if not own:
            raise TelemetryError(f"{path}: no frames in it; want one record per line")
        frames += own
        unusable += bad
    if unusable and not skip_unusable:
        more = f" (and {len(unusable) - 1:,} more)" if len(unusable) > 1 else ""
        raise TelemetryError(
            f"{_first(unusable)}{more}: nothing imported; mend it, or leave such lines in"
            " quarantine with --skip-unusable"
        )
    rows = tables(frames, mapping, unusable)
    return _append(paths, frames, unusable, rows, mapping, text, lake)


def _first(unusable: Sequence[Unusable]) -> str:
    return f"{unusable[0].file}: line {unusable[0].line}: {unusable[0].reason}"


def _append(
    paths: Sequence[Path],
    frames: list[Frame],
    unusable: list[Unusable],
    rows: Rows,
    mapping: FrameMapping,
    text: str,
    lake: Place,
) -> Imported:
    devices = {frame.device: frame.name for frame in frames}
    origin = _origin(paths, text)
    names = {
        device: {"name": name, "carriers": mapping.carrier, "board": mapping.board}
        for device, name in devices.items()
    }
    new = append(lake, rows, origin, names=names, look=lambda state: _refuse_known(state, devices))
    return Imported(
        frames=len(frames),
        devices=len(devices),
        unusable=len(unusable),
        new=new,
        rows={table: len(own) for table, own in rows.items()},
    )


def _refuse_known(state: Lake, devices: Mapping[str, str]) -> None:
    """Sessions and repeats cannot be told across imports, so a device is imported once."""
    known = set(state.read("health", ["device"]).column("device").to_pylist()) & set(devices)
    if known:
        first = sorted(known)[0]
        how = "another import" if first in state.imported() else "its black boxes"
        raise TelemetryError(
            f"{state.root}: {first} is in the lake from {how}; give all files of"
            " a device in one call, into a new lake"
        )


def _origin(paths: Sequence[Path], mapping_text: str) -> str:
    """Names the content of the files and the mapping, whatever the files are called."""
    hashed = hashlib.sha256(mapping_text.encode())
    for digest in sorted(_digest(path) for path in paths):
        hashed.update(digest)
    return "import:" + hashed.hexdigest()


def _digest(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
