"""What a lake says of its fleet now, kept in memory for programs that ask again and again.

A look at the lake opens its Delta log, which takes some milliseconds. Tables are read only if the
version in it has changed: each commit makes a new one, and without a commit no file changes. Then

* the newest bins are brought up to date (`newest_bins`), and
* what needs the whole history is worked out anew, as `drupelet telemetry alerts` does: problems,
  batteries, undelivered messages. That costs more the longer the lake is, so after it has taken t
  it is left as it is for REST_TIMES x t, and the processor is never busy with it for long.

Who is silent follows from the time of each question, without the lake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from drupelet.base.errors import DrupeletError
from drupelet_tools.telemetry.analysis.attention import ALARM, FLEET_MIN, WARNING, severities
from drupelet_tools.telemetry.analysis.buckets import Task, whole_or_in_buckets
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.analysis.report_figures import never_heard
from drupelet_tools.telemetry.analysis.watch import is_silent
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.memory import give_back
from drupelet_tools.telemetry.base.place import Place
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake.delta import Lake, open_lake
from drupelet_tools.telemetry.monitor.newest_bins import Bins, NewestBins

Row = dict[str, Any]
Severities = Mapping[str, str]  # by the kind of a problem
Days = tuple[float, float, float]  # likely, low, high

_NOTHING = ("", -1)  # no lake has been read

# At most a twentieth of one core works at what needs the whole history.
REST_TIMES = 20.0
SILENT, ALL_SILENT, NEVER_HEARD = "silent", "fleet silent", "never heard"
# Problems that follow from the time of a question.
_BY_TIME = frozenset((SILENT, ALL_SILENT, NEVER_HEARD))


@dataclass(frozen=True, slots=True)
class DeviceOutlook:
    """What the whole history says of a device; `left` and `life` are days: likely, low, high.

    `left` is what its own readings show, `life` what a full battery gives by the energy tables.
    """

    severities: Severities
    last_ms: float | None
    silent_after_ms: float | None
    undelivered: int
    median_ms: float | None  # of the waits for messages of others
    p90_ms: float | None
    left: Days | None
    life: Days | None
    firmware: str  # empty: not known


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the whole history says, as of a version of the lake."""

    version: int
    devices: Mapping[str, DeviceOutlook]
    fleet: Severities


@dataclass(frozen=True, slots=True)
class Device:
    """A device at the time of a question. `outlook` is None until its history has been read."""

    device: str
    name: str
    bins: Bins
    outlook: DeviceOutlook | None
    last_ms: float | None
    silent: bool

    @property
    def severities(self) -> Severities:
        """Its problems now."""
        known = {} if self.outlook is None else self.outlook.severities
        return {**known, SILENT: ALARM} if self.silent else known


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A lake as it was at the last look, by which every question is answered."""

    version: int
    reads: int = 0  # of tables, by this process
    read_s: float = 0.0  # that they took, history included
    bins: Mapping[str, Bins] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # names of a fleet file that the lake lacks
    outlook: Outlook | None = None

    def devices(self, now_ms: float) -> list[Device]:
        """The devices, in order of their ids."""
        return [self._device(name, bins, now_ms) for name, bins in self.bins.items()]

    def _device(self, name: str, bins: Bins, now_ms: float) -> Device:
        outlook = None if self.outlook is None else self.outlook.devices.get(name)
        last_ms: float | None = bins.last_ms
        if self.outlook is not None and outlook is not None and outlook.last_ms is not None:
            # It knows what other devices say about a clock, but maybe not the newest log.
            is_current = last_ms is None or self.outlook.version == self.version
            last_ms = outlook.last_ms if is_current else max(outlook.last_ms, last_ms or 0)
        away_ms = None if last_ms is None else now_ms - last_ms
        after_ms = None if outlook is None else outlook.silent_after_ms
        return Device(name, self.names[name], bins, outlook, last_ms, is_silent(away_ms, after_ms))

    def fleet_severities(self, devices: Sequence[Device]) -> Severities:
        """Problems of no single device; `devices` as `devices` returned them."""
        problems = {} if self.outlook is None else dict(self.outlook.fleet)
        timed = [device for device in devices if device.last_ms is not None]
        if len(timed) >= FLEET_MIN and all(device.silent for device in timed):
            problems[ALL_SILENT] = ALARM
        if self.missing:
            problems[NEVER_HEARD] = WARNING
        return problems


class FleetWatch:
    """Looks at a lake for those who ask; one look at a time, in a thread of its own."""

    def __init__(self, root: Place, plan: FleetPlan) -> None:
        self._root = root
        self._plan = plan
        self._lock = threading.Lock()
        self._look: Future[None] | None = None
        self._snapshot: Snapshot | None = None
        self._bins = NewestBins()
        self._seen = _NOTHING
        self._outlook_due_s = 0.0

    def begin(self, *, whole: bool) -> None:
        """The first look, for which all questions wait; `whole`: with the whole history.

        Raises:
            TelemetryError: no lake, one of another version, one that cannot be read.
        """
        with self._lock:
            lake = open_lake(self._root)
            self._read_bins(lake)
            if whole:
                self._read_outlook(lake)

    def snapshot(self, wait_s: float | None) -> Snapshot:
        """The lake as it is now, or as it last was if a look takes longer than `wait_s`;
        None: however long it takes.

        Raises:
            TelemetryError: the lake is gone or cannot be read.
        """
        with self._lock:
            if self._look is None or self._look.done():
                self._look = Future()
                threading.Thread(target=self._run, args=(self._look,), daemon=True).start()
            look = self._look
        wait([look], wait_s)
        if look.done():
            look.result()
        assert self._snapshot is not None
        return self._snapshot

    def _run(self, look: Future[None]) -> None:
        try:
            self._refresh()
            look.set_result(None)
        except DrupeletError as error:
            look.set_exception(error)
        finally:
            if not look.done():  # a mistake of our own, of which the thread prints a traceback
                look.set_exception(TelemetryError(f"{self._root}: the look at the lake failed"))

    def _refresh(self) -> None:
        lake = open_lake(self._root)
        if self._seen != _identity(lake):
            self._read_bins(lake)
        assert self._snapshot is not None
        outlook = self._snapshot.outlook
        is_current = outlook is not None and outlook.version == lake.version
        if not is_current and time.monotonic() >= self._outlook_due_s:
            self._read_outlook(lake)

    def _read_bins(self, lake: Lake) -> None:
        begin_s = time.monotonic()
        before = self._snapshot
        if self._seen[0] != _identity(lake)[0]:  # the first look, or another lake in this place
            self._bins, before = NewestBins(), None
        bins, self._bins, self._seen = self._bins, NewestBins(), _NOTHING
        bins.update(lake)
        self._bins, self._seen = bins, _identity(lake)
        devices = bins.devices()
        names = {
            device: codes.as_text(lake.names.get(device, {}).get("name") or device)
            for device in devices
        }
        known = {*names, *names.values()}
        self._snapshot = Snapshot(
            version=lake.version,
            reads=1 if before is None else before.reads + 1,
            read_s=time.monotonic() - begin_s + (0.0 if before is None else before.read_s),
            bins=devices,
            names=names,
            missing=tuple(never_heard(self._plan, known)),
            outlook=None if before is None else before.outlook,
        )
        give_back()

    def _read_outlook(self, lake: Lake) -> None:
        assert self._snapshot is not None
        begin_s = time.monotonic()
        outlook = Outlook(lake.version, {}, {})
        try:
            if self._snapshot.bins:
                task = Task(self._root, None, self._plan, time.time() * 1000)
                figures = whole_or_in_buckets(task, len(self._snapshot.bins))
                outlook = _outlook(lake.version, figures)
        finally:  # what fails is not tried with each scrape, either
            took_s = time.monotonic() - begin_s
            self._outlook_due_s = time.monotonic() + REST_TIMES * took_s
        self._snapshot = replace(
            self._snapshot, outlook=outlook, read_s=self._snapshot.read_s + took_s
        )
        give_back()


def _identity(lake: Lake) -> tuple[str, int]:
    """Which lake it is, and in which state."""
    return str(lake.table.metadata().id), lake.version


def _outlook(version: int, all_figures: Row) -> Outlook:
    of_fleet = severities(row for row in all_figures["attention"] if not row["device"])
    return Outlook(
        version,
        {row["device"]: _device_outlook(row) for row in all_figures["devices"]},
        _lasting(of_fleet.get("", {})),
    )


def _lasting(problems: Severities) -> Severities:
    return {kind: severity for kind, severity in problems.items() if kind not in _BY_TIME}


def _device_outlook(row: Row) -> DeviceOutlook:
    battery, life, presence = row["battery"], row["life"], row["presence"]
    return DeviceOutlook(
        severities=_lasting(row["severities"]),
        last_ms=presence["last_wall_ms"],
        silent_after_ms=presence["silent_after_ms"],
        undelivered=row["latency"]["undelivered"],
        median_ms=row["latency"]["p50_ms"],
        p90_ms=row["latency"]["p90_ms"],
        left=_days(battery, "days_left"),
        life=None if life is None else _days(life, "days"),
        firmware=row["firmware"],
    )


def _days(row: Row, name: str) -> Days | None:
    """Likely, low and high."""
    if row[name] is None:
        return None
    ends = row[f"{name}_low"], row[f"{name}_high"]
    return row[name], min(ends), max(ends)
