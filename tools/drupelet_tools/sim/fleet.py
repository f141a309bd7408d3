"""Fleets: many small groups whose members meet now and then; or a recorded contact trace.

A world is one thread, so a fleet is cut at groups that share no member, and the parts go to all
cores, or to a Spark cluster in few partitions. Nodes are those of `world`: the firmware's core and
flash log, judged by the oracle.
"""

import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.link.link import CARRIER_SERIAL
from drupelet.wire.profiles import PROFILE_COMPACT_1
from drupelet_host.member.mode_policy import AUTO
from drupelet_tools.sim.contacts import Trace, draw
from drupelet_tools.sim.device import Spec
from drupelet_tools.sim.growing_store import collect_seldom
from drupelet_tools.sim.world import End, Group, World

BODY_SIZE = 100
DAY_MS = 86_400_000
_SPEC = Spec(pool=64, offers=32, pending=64, filter_size=1024, segments=64, judges=False)
# Groups that one task of the pool simulates: its overhead is paid once.
_PER_TASK = 8
# One of so many groups has its frames read by the oracle, which takes a quarter of the time;
# deliveries are judged in all.
_READ_EVERY = 8


@dataclass(frozen=True)
class Workload:
    """What every node does."""

    group_size: int = 5
    epoch_ms: int = 900_000
    readings_per_day: int = 24
    days: int = 1
    mode: int = AUTO


@dataclass
class Sum:
    """What a fleet, or a part of it, came to."""

    nodes: int = 0
    published: int = 0
    deliveries: int = 0
    missing: int = 0
    bytes: int = 0
    frames: int = 0
    contacts: int = 0
    cpu_s: float = 0.0
    latencies_s: list[int] = field(default_factory=list)

    def add(self, other: "Sum") -> None:
        """Take another part in."""
        for name in ("nodes", "published", "deliveries", "missing", "bytes", "frames", "contacts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cpu_s += other.cpu_s
        self.latencies_s += other.latencies_s


class Carried:
    """Stands where a wake plan would: the carrier itself tells whether the peer is there."""

    def __init__(self, end: End) -> None:
        self._end = end

    def there(self, _peer: int, _now_ms: int) -> bool:
        """Whether the contact lasts."""
        return self._end.up

    def awake_ms(self, _now_ms: int) -> int:
        """The device itself never sleeps."""
        return WAIT_MS_MAX

    def wake_due_ms(self, _peer: int, _now_ms: int) -> int:
        """No WAKE frames are needed."""
        return WAIT_MS_MAX

    def wake_into(self, _frame: bytearray, _peer: int, _now_ms: int) -> int:
        """As above."""
        return 0


def _publish_all(world: World, names: Sequence[str], group: Group, work: Workload) -> int:
    """Plan the readings; how many."""
    every_ms = DAY_MS // work.readings_per_day
    count = 0
    for name in names:
        phase_ms = world.drawer(f"phase {name}")(every_ms)
        for at_ms in range(phase_ms, work.days * DAY_MS, every_ms):
            world.node_at(at_ms, name, lambda node: node.publish(group, BODY_SIZE))
            count += 1
    return count


def _finish(world: World, end_ms: int, total: Sum) -> Sum:
    started = time.process_time()
    world.oracle.latencies_ms = []
    world.start()
    for link in world.links:
        for end in link.ends:
            end.link.plan = Carried(end)  # type: ignore[assignment]  # what a link asks of one
    world.run_until(end_ms)
    total.deliveries = world.oracle.deliveries
    total.missing = world.oracle.missing
    total.bytes, total.frames = world.bytes_sent, world.frames
    total.latencies_s = [latency // 1000 for latency in world.oracle.latencies_ms]
    total.cpu_s += time.process_time() - started
    return total


def run_group(task: tuple[int, int, Workload]) -> Sum:
    """One group: everybody has a link to everybody, up while they meet."""
    seed, size, work = task
    started = time.process_time()
    rng = random.Random(f"{seed} contacts")
    world = World(seed)
    world.oracle.reads_frames = seed % _READ_EVERY == 0
    names = [f"n{number}" for number in range(size)]
    for name in names:
        world.add_node(name, _SPEC)
    group = world.add_group(b"fleet", names)
    total = Sum(nodes=size)
    end_ms = work.days * DAY_MS
    for row, here in enumerate(names):
        for there in names[row + 1 :]:
            link = world.add_link(
                here,
                there,
                CARRIER_SERIAL,
                profile=PROFILE_COMPACT_1,
                mode=work.mode,
                epoch_ms=work.epoch_ms,
            )
            times = list(draw(rng, end_ms))
            total.contacts += len(times)
            link.contacts(times)
    total.published = _publish_all(world, names, group, work)
    total.cpu_s = time.process_time() - started
    return _finish(world, end_ms, total)


def run_trace(trace: Trace, work: Workload, seed: int) -> Sum:
    """A recorded trace: all nodes are one group; only pairs that meet have a link."""
    world = World(seed)
    names = trace.nodes
    spec = Spec(
        pool=256, offers=64, pending=256, peers_max=max(len(names), 8), filter_size=2048,
        segments=255, judges=False,
    )  # fmt: skip
    for name in names:
        world.add_node(name, spec)
    group = world.add_group(b"trace", names)
    total = Sum(nodes=len(names), contacts=trace.contacts)
    for (here, there), times in sorted(trace.pairs.items()):
        link = world.add_link(
            here,
            there,
            CARRIER_SERIAL,
            profile=PROFILE_COMPACT_1,
            mode=work.mode,
            epoch_ms=work.epoch_ms,
        )
        link.contacts(times)
    days = -(-trace.end_ms // DAY_MS)
    total.published = _publish_all(world, names, group, replace(work, days=days))
    return _finish(world, trace.end_ms, total)


def _part(tasks: list[tuple[int, int, Workload]]) -> Sum:
    total = Sum()
    for task in tasks:
        total.add(run_group(task))
    return total


def run_fleet(
    nodes: int, work: Workload, seed: int, jobs: int, master: str, say: Callable[[int], None]
) -> Sum:
    """All groups of a fleet of `nodes`; `say` is told how many nodes are done."""
    groups = nodes // work.group_size
    tasks = [(seed * 1_000_003 + number, work.group_size, work) for number in range(groups)]
    parts = [tasks[at : at + _PER_TASK] for at in range(0, len(tasks), _PER_TASK)]
    total = Sum()
    if master:
        for part in _on_spark(parts, master, jobs):
            total.add(part)
        return total
    with multiprocessing.get_context("spawn").Pool(jobs, collect_seldom) as pool:
        for part in pool.imap_unordered(_part, parts):
            total.add(part)
            say(total.nodes)
    return total


def _on_spark(parts: list[list[tuple[int, int, Workload]]], master: str, jobs: int) -> list[Sum]:
    """The same on a cluster: few partitions, many groups each."""
    from pyspark.sql import SparkSession

    # Else the workers are whatever python3 is in the path, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master(master).appName("drupelet sim fleet").getOrCreate()
    try:
        context = session.sparkContext
        return context.parallelize(parts, max(jobs, 1)).map(_part).collect()
    finally:
        session.stop()


def peak_mb(jobs: int) -> int:
    """The most memory that this process had, and `jobs` times that of its largest child."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + jobs * child) // 1024
