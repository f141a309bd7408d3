"""Figures of a large fleet, a bucket of devices at a time, in a process per core.

The lake is sorted out by slices of devices once (`slices`). A process takes a slice and makes the
figures of its buckets one after the other, so its memory depends on the slice, not on the fleet.
What the fleet as a whole shows is put together from a short row per device.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drupelet_tools.telemetry.analysis import attention
from drupelet_tools.telemetry.analysis.comparison import periods_of
from drupelet_tools.telemetry.analysis.figures import Figures
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.analysis.lake_view import DevicesView
from drupelet_tools.telemetry.analysis.period import PeriodHours
from drupelet_tools.telemetry.analysis.report_figures import (
    Results,
    build,
    empty,
    never_heard,
    of_part,
)
from drupelet_tools.telemetry.analysis.slices import Slices, write_slices
from drupelet_tools.telemetry.analysis.upgrades import dearer
from drupelet_tools.telemetry.analysis.watch import MS_PER_DAY
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.memory import give_back
from drupelet_tools.telemetry.base.place import Place, reason, write_text
from drupelet_tools.telemetry.base.scratch import sweep
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.lake.delta import Lake, fill_wall, open_lake
from drupelet_tools.telemetry.tables.schemas import DEVICES, TABLES
from drupelet_tools.telemetry.text.natural import natural

Row = dict[str, Any]

ONE_PAGE_DEVICES = 120  # a larger fleet has pages and an index
BUCKET_DEVICES = 100  # on each of these pages
SLICE_DEVICES = 1_000  # that a process holds at a time
WORKERS_MAX = 8
FOLDER_PREFIX = "drupelet-report-"
# What the index and the alerts take from a device's figures.
KEPT = (
    "device", "name", "label", "firmware", "board", "carriers", "delivered", "created", "expected",
    "duplicates", "client_bytes", "mah_modelled", "mah_modelled_low", "mah_modelled_high",
    "mah_per_day", "bytes_per_message", "severities", "position", "hours",
)  # fmt: skip
KEPT_WITHIN = {
    "presence": ("last_wall_ms", "silent", "silent_ms", "silent_after_ms", "period_ms",
                 "period_source"),
    "battery": ("days_left", "days_left_low", "days_left_high", "soc_pct", "soc_drop_pct",
                "soc_drop_ms", "mv_last"),
    "latency": ("p50_ms", "p90_ms", "timed", "undelivered"),
    "sync": ("sent", "pairs"),
}  # fmt: skip
LIFE = ("days", "days_low", "days_high")
SUMS = ("delivered", "duplicates", "deliveries_away", "client_bytes_sent", "delivered_kb")


@dataclass(frozen=True, slots=True)
class Task:
    """What a process needs to know; `folder` is where it writes its pages, None for none."""

    lake: Place
    results: Results | None
    plan: FleetPlan
    now_ms: float | None
    days: float | None = None
    seed: int = 0
    folder: Place | None = None
    link: str = ""  # of the folder, as the index names it
    number: int = 0  # of the slice
    buckets: list[tuple[int, list[Row]]] = field(default_factory=list)  # number, devices


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket's part in the index."""

    number: int
    page: str
    devices: list[Row]
    rows: list[Row]  # of attention
    fleet: Row


Render = Callable[[Figures], str]


def whole_or_in_buckets(task: Task, devices: int) -> Figures:
    """The figures of a lake with so many devices, without pages: a large fleet's by buckets.

    Raises:
        TelemetryError: no lake, an empty lake, a process that was ended.
    """
    if devices > ONE_PAGE_DEVICES:
        return run(task, None, None)
    return build(task.lake, task.results, plan=task.plan, now_ms=task.now_ms)


def page_name(number: int) -> str:
    """The file of a bucket's page."""
    return f"{number:04}.html"


def run(task: Task, render: Render | None, advance: Callable[[int], None] | None) -> Figures:
    """All buckets; the figures of the fleet with short rows of devices.

    Raises:
        TelemetryError: no lake, an empty lake, a process that was ended.
    """
    lake = open_lake(task.lake)
    listed = lake.read_devices().to_pylist()
    if not listed:
        raise empty(task.lake)
    listed.sort(key=lambda row: (natural(row["name"]), row["device"]))
    now_ms = task.now_ms if task.now_ms is not None else _newest_ms(lake)
    compared = () if task.days is None or now_ms is None else periods_of(now_ms, task.days)
    slice_of = {row["device"]: at // SLICE_DEVICES for at, row in enumerate(listed)}
    tasks = [_slice(task, now_ms, listed, first) for first in range(0, len(listed), SLICE_DEVICES)]
    buckets: list[Bucket] = []
    sweep(FOLDER_PREFIX)
    with TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
        slices = write_slices(Path(folder), lake, slice_of, compared)
        give_back()
        for done in _each(tasks, slices, render):
            buckets += done
            if advance is not None:
                advance(sum(len(bucket.devices) for bucket in done))
    known = {word for row in listed for word in (row["device"], row["name"])}
    nobodys = lake.read("quarantine", where=pc.field("device").isin(["", None])).to_pylist()
    return _whole(buckets, now_ms, task, never_heard(task.plan, known), nobodys)


def _slice(task: Task, now_ms: float | None, listed: Sequence[Row], first: int) -> Task:
    last = min(first + SLICE_DEVICES, len(listed))
    buckets = [
        (start // BUCKET_DEVICES + 1, list(listed[start : min(start + BUCKET_DEVICES, last)]))
        for start in range(first, last, BUCKET_DEVICES)
    ]
    return Task(
        task.lake, task.results, task.plan, now_ms, task.days, task.seed, task.folder, task.link,
        first // SLICE_DEVICES, buckets,
    )  # fmt: skip


def _each(tasks: list[Task], slices: Slices, render: Render | None) -> Iterator[list[Bucket]]:
    workers = min(len(tasks), os.cpu_count() or 1, WORKERS_MAX)
    if workers == 1:
        for task in tasks:
            yield work(task, slices, render)
        return
    # Started anew: a fork would take the locks of Arrow's threads along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, max_tasks_per_child=1) as pool:
        futures = [pool.submit(work, task, slices, render) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            raise TelemetryError(
                "a process of the report was ended, perhaps because memory ran out; run it again"
            ) from None
        finally:
            for future in futures:
                future.cancel()


def work(task: Task, slices: Slices, render: Render | None) -> list[Bucket]:
    """The buckets of one slice."""
    rows = [row for _, devices in task.buckets for row in devices]
    view = DevicesView.of(slices, task.number, pa.Table.from_pylist(rows, schema=DEVICES))
    hours = slices.hours(task.number)
    return [
        _bucket(task, view.part([row["device"] for row in devices]), hours, number, render)
        for number, devices in task.buckets
    ]


def _bucket(
    task: Task, view: DevicesView, hours: PeriodHours, number: int, render: Render | None
) -> Bucket:
    all_figures = of_part(
        view.as_lake, lambda _: hours, task.results, task.plan, now_ms=task.now_ms, days=task.days,
        seed=task.seed,
    )  # fmt: skip
    all_figures["fleet"]["groups"] = []  # those of a part say nothing about a group
    page = f"{task.link}/{page_name(number)}" if task.folder else ""
    bucket = Bucket(
        number, page, [shortened(row, page) for row in all_figures["devices"]],
        all_figures["attention"], _sums(all_figures["fleet"]),
    )  # fmt: skip
    if task.folder is not None and render is not None:
        path = task.folder / page_name(number)
        try:
            write_text(path, render(all_figures))
        except OSError as refused:
            raise TelemetryError(f"{path}: cannot write the page: {reason(refused)}") from None
    return bucket


def shortened(row: Row, page: str) -> Row:
    """Of a device's figures what is kept of each, and the page that has all of them."""
    return {
        **{name: row[name] for name in KEPT},
        **{part: {name: row[part][name] for name in names} for part, names in KEPT_WITHIN.items()},
        "life": None if row["life"] is None else {name: row["life"][name] for name in LIFE},
        "health": _short_health(row["health"]),
        "firmware_runs": [
            {**run, "health": _short_health(run["health"])} for run in row["firmware_runs"]
        ],
        "page": page,
    }


def _short_health(health: Row) -> Row:
    """The boots, and only those causes of theirs that somebody asks for: others are many."""
    causes = health["reset_causes"]
    odd = [c for c in causes[1:] if c == codes.RESET_WATCHDOG or c not in codes.RESET_CAUSES]
    return {"reset_causes": [*causes[:1], *odd], "boots": health["boots"]}


def _sums(fleet: Row) -> Row:
    kb, per_kb = fleet["delivered_kb"], fleet["mah_per_kb"]
    return {
        **{name: fleet[name] for name in SUMS},
        "expected": fleet["expected"],
        "mah_modelled": fleet["mah_modelled"],
        "mah_shared": None if per_kb is None else per_kb * kb,
        "carriers": fleet["carriers"],
    }


def _whole(
    buckets: list[Bucket], now_ms: float | None, task: Task, missing: list[str], nobodys: list[Row]
) -> Figures:
    devices = [row for bucket in buckets for row in bucket.devices]
    _label(devices)
    single = [[r for r in bucket.rows if r["device"]] for bucket in buckets]
    pages = [*single, attention.of_the_fleet(devices, nobodys, missing, dearer(devices))]
    severities = [row["severity"] for page in pages for row in page]
    return {
        "devices": devices,
        "fleet": _fleet(buckets, devices),
        "attention": attention.merged(pages),
        "counts": {name: severities.count(name) for name in attention.SEVERITIES},
        "pages": [_page(bucket) for bucket in buckets],
        "now_ms": now_ms,
        "seed": task.seed,
        "comparison": None,
    }


def _label(devices: list[Row]) -> None:
    """The same names on two pages are told apart here."""
    seen: dict[str, int] = {}
    for row in devices:
        seen[row["name"]] = seen.get(row["name"], 0) + 1
    for row in devices:
        if seen[row["name"]] > 1:
            row["label"] = f"{row['name']} ({row['device']})"


def _page(bucket: Bucket) -> Row:
    severities = [row["severity"] for row in bucket.rows]
    names = [row["label"] for row in bucket.devices]
    return {
        "page": bucket.page,
        "first": names[0],
        "last": names[-1],
        "devices": len(names),
        "silent": sum(bool(row["presence"]["silent"]) for row in bucket.devices),
        **{severity: severities.count(severity) for severity in attention.SEVERITIES},
    }


def _fleet(buckets: list[Bucket], devices: list[Row]) -> Row:
    fleets = [bucket.fleet for bucket in buckets]
    total: Row = {name: sum(fleet[name] for fleet in fleets) for name in SUMS}
    away, kb = total["deliveries_away"], total["delivered_kb"]
    shared = _sum(fleet["mah_shared"] for fleet in fleets)
    dropped_ms = sum(row["battery"]["soc_drop_ms"] for row in devices)
    dropped = math.fsum(row["battery"]["soc_drop_pct"] or 0 for row in devices)
    expected = [fleet["expected"] for fleet in fleets]
    return {
        **total,
        "devices": len(devices),
        "expected": None if None in expected else sum(expected),
        "mah_modelled": _sum(fleet["mah_modelled"] for fleet in fleets),
        "bytes_per_message": total["client_bytes_sent"] / away if away > 0 else None,
        "mah_per_kb": shared / kb if shared is not None and kb else None,
        "shortest_life_days": min((r["life"]["days"] for r in devices if r["life"]), default=None),
        "soc_pct_per_day": dropped / (dropped_ms / MS_PER_DAY) if dropped_ms else None,
        "carriers": _carriers(fleets),
    }


def _sum(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _carriers(fleets: list[Row]) -> list[Row]:
    rows: dict[str, Row] = {}
    for row in (row for fleet in fleets for row in fleet["carriers"]):
        own = rows.setdefault(row["carrier"], {"carrier": row["carrier"]})
        for name in ("bytes", "content", "telemetry"):
            own[name] = own.get(name, 0) + row[name]
    return [
        {
            **row,
            "multiplier_bytes": (row["bytes"] - row["telemetry"]) / row["content"]
            if row["content"] > 0
            else None,
        }
        for _, row in sorted(rows.items())
    ]


def _newest_ms(lake: Lake) -> float | None:
    """The newest time in a log of a clock that is not ahead; of all clocks if all are."""
    ahead_ms = time.time() * 1000 + MS_PER_DAY
    newest: list[int] = []
    for rows in lake.each("segments", TABLES["segments"].names):
        timed = fill_wall(rows, lake.clocks)
        ends = timed.select(["device"]).append_column(
            "end", pc.add(timed["wall_offset_ms"], timed["last_ms"])
        )
        ends = ends.filter(pc.field("end") <= codes.WALL_MS_MAX)
        newest += ends.group_by("device").aggregate([("end", "max")])["end_max"].to_pylist()
    past = [end for end in newest if end <= ahead_ms]
    return max(past or newest, default=None)
