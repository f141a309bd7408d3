"""A corpus from the simulator: the logs of its boards, repeated until there are enough.

A few simulated groups, a host and five boards that wake every quarter of an hour, are run for some
days. Their black boxes are what is written: as further groups under other device ids, and as
further boots of the same devices at later times. In each repetition messages have other ids. What
is true comes from the simulated world, which counts frames and hears its devices' clients, and not
from the black boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_HEADER_SIZE,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet_tools.bench.corpus import Boot, Ints
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.sim.device import Duty, SimNode
from drupelet_tools.sim.run import Run, attempt
from drupelet_tools.sim.world import End, World
from drupelet_tools.sim.yearly import yearly_plan
from drupelet_tools.telemetry.blackbox import codes

# Up to here a corpus is the simulator's: each of its boards' days comes some dozens of times.
EVENTS_MAX = 4_000_000
GROUP = 6  # devices of one simulated world
SEEDS_MAX = 4
DAYS = 2
READINGS_PER_DAY = 24
START_MS = 1_795_000_000_000
# Between two boots of a device, beyond what the world takes.
GAP_MS = 3_600_000
_IDLE, _LIGHT = 2, 1
# (code, a, b, c): rows of a boot's events.
_MESSAGE_CODES = np.array(sorted(codes.MESSAGE_EVENTS))
_GROUP_CODES = [code for code, name in codes.MESSAGE_EVENTS.items() if name in codes.GROUP_EVENTS]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the logs of a corpus come from, for its output."""

    seeds: list[int]
    worlds: int
    boots: int

    def text(self) -> str:
        """One line for people."""
        seeds = ", ".join(str(seed) for seed in self.seeds)
        return (
            f"simulator, seeds {seeds}: {self.worlds} groups of {GROUP} devices,"
            f" {self.boots} boots each"
        )


@dataclass(slots=True)
class _Log:
    """One device's log of one world, and what the world says of it."""

    columns: list[Ints]  # time_ms, code, a, b, c
    totals: dict[int, int]
    true: dict[str, int]
    span_ms: int


class _Witness:
    """Sees what a world's devices do, from outside of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: dict[str, list[int]] = {name: [0, 0] for name in world.nodes}
        self.since: dict[str, tuple[int, int]] = {}
        self.spent = {name: {_IDLE: 0, _LIGHT: 0} for name in world.nodes}
        transmit = world.transmit

        def watched(end: End, frame: bytes) -> None:
            tally = self.sent[end.node.name]
            tally[0] += 1
            tally[1] += len(frame)
            transmit(end, frame)

        world.transmit = watched  # type: ignore[method-assign]
        for node in world.nodes.values():
            self._watch(node)

    def _watch(self, node: SimNode) -> None:
        opened, slept = node.open_window, node.sleep

        def open_window(duty: Duty) -> None:
            self.enter(node.name, _IDLE)
            opened(duty)

        def sleep(duty: Duty) -> None:
            self.enter(node.name, _LIGHT)
            slept(duty)

        node.open_window = open_window  # type: ignore[method-assign]
        node.sleep = sleep  # type: ignore[method-assign]

    def enter(self, name: str, state: int) -> None:
        """A device is in another power state from now on."""
        now = self.world.now_ms
        if name in self.since:
            before, at = self.since[name]
            self.spent[name][before] += now - at
        self.since[name] = (state, now)

    def true(self, node: SimNode) -> dict[str, int]:
        """What is true of a device at the end."""
        if node.name in self.since:
            self.enter(node.name, self.since[node.name][0])
        frames, size = self.sent[node.name]
        return {
            "created": node.published - node.refused, "delivered": node.entered,
            "frames_sent": frames, "bytes_sent": size,
            "idle_ms": self.spent[node.name][_IDLE], "light_ms": self.spent[node.name][_LIGHT],
        }  # fmt: skip


def _simulate(seed: int) -> list[_Log]:
    """Run one world to its end; the logs of its devices."""
    plan = yearly_plan(seed, GROUP - 1, DAYS, READINGS_PER_DAY)
    # A boot that is cut off has lost what it counted last: nobody could say what is true of it.
    plan.steps = [step for step in plan.steps if step.kind != "cut"]
    plan.nodes = {name: replace(spec, box=True) for name, spec in plan.nodes.items()}
    run = Run(plan)
    witness = _Witness(run.world)
    result = attempt(run)
    if result.violation:
        raise BenchError(f"simulated world {seed}: {result.violation}")
    logs = []
    for node in run.world.nodes.values():
        node.close_box()
        columns = _events(node.segments)
        counters = columns[1] == codes.COUNTER
        values = columns[3][counters] << 32 | columns[4][counters]
        totals = dict(zip(columns[2][counters].tolist(), values.tolist(), strict=True))
        logs.append(_Log(columns, totals, witness.true(node), run.world.now_ms))
    return logs


def _events(segments: list[bytes]) -> list[Ints]:
    """Time, code, a, b and c of every event of whole segments."""
    content = np.frombuffer(b"".join(data[BOX_HEADER_SIZE:] for data in segments), np.uint8)
    blocks = content.reshape(-1, BLOCK_SIZE)
    end = BLOCK_HEADER_SIZE + EVENTS_PER_BLOCK * EVENT_SIZE
    kind = [("dt", "<u4"), ("code", "u1"), ("a", "u1"), ("b", "<u2"), ("c", "<u4")]
    events = np.ascontiguousarray(blocks[:, BLOCK_HEADER_SIZE:end]).view(kind)
    held = np.arange(EVENTS_PER_BLOCK) < blocks[:, 1:2]
    t0 = np.ascontiguousarray(np.pad(blocks[:, 6:12], ((0, 0), (0, 2)))).view("<i8")
    time_ms = (t0 + events["dt"].astype(np.int64))[held]
    return [time_ms, *(events[name][held].astype(np.int64) for name in ("code", "a", "b", "c"))]


def fleet(events: int, devices: int, seed: int) -> tuple[Source, Iterator[Boot]]:
    """Boots of so many devices with about so many events, device by device, in order."""
    worlds = -(-devices // GROUP)
    seeds = [seed + number for number in range(min(worlds, SEEDS_MAX))]
    bases = [_simulate(seed) for seed in seeds]
    base_events = sum(len(bases[index // GROUP % len(bases)][index % GROUP].columns[0])
               for index in range(devices))  # fmt: skip
    boots = max(1, round(events / base_events))
    return Source(seeds, worlds, boots), _boots(bases, devices, boots)


def _boots(bases: list[list[_Log]], devices: int, boots: int) -> Iterator[Boot]:
    for index in range(devices):
        world = index // GROUP
        log = bases[world % len(bases)][index % GROUP]
        # All of a group boot together, each time.
        span_ms = max(log.span_ms for log in bases[world % len(bases)]) + GAP_MS
        for number in range(boots):
            yield _repeat(log, index, number, START_MS + number * span_ms, world)


def _repeat(log: _Log, index: int, number: int, wall_ms: int, world: int) -> Boot:
    time_ms, code, a, b, c = log.columns
    salt = (world * 2_654_435_761 + number * 2_246_822_519) & 0xFFFFFFFF
    c = np.where(np.isin(code, _MESSAGE_CODES), c ^ salt, c)
    b = np.where(code == codes.BOOT, number + 1, b)
    # Worlds are groups of their own; a tag is never 0.
    tag = np.maximum((b + world * 40_503) & 0xFFFF, 1)
    b = np.where(np.isin(code, _GROUP_CODES), tag, b)
    device = (0x51A0_0000 + index).to_bytes(4, "big")
    return Boot(device, number + 1, wall_ms, time_ms, code, a, b, c, log.totals, log.true)
