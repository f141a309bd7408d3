"""`drupelet bench corpus`: black boxes of a fleet that never was, with what is true of it.

Devices come in groups of four whose members send each other readings. Each wakes every five
minutes, listens, and every fourth time measures, writes, receives and sends; then it writes its
counters. A device reboots now and then. Everything follows from the seed. The events are made
with numpy, a boot at a time; what the counters and the totals must be is summed up here and not
read back from what was written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_BLOCKS_MAX,
    BOX_HEADER_SIZE,
    EVENT_SIZE,
    EVENTS_PER_BLOCK,
)
from drupelet_tools.telemetry.blackbox import codes

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_Index = TypeVar("_Index", int, Ints)

GROUP = 4  # devices that hear each other
CYCLE_MS = 1_200_000
POLLS = 3  # wakes of a cycle in which nothing is sent
START_MS = 1_795_000_000_000
PHASE_MS_MAX = 60_000
BOOT_GAP_MS = CYCLE_MS
CYCLES_PER_BOOT = (60, 300)
RETRANSMITS = 0.2
DUPLICATES = 0.1
CARRIER = 1
LENGTH_SIZE = 4

_SLEEP, _LIGHT, _IDLE, _RECEIVE, _SEND, _FLASH, _SENSOR = range(7)
_CREATED, _SENT, _ACKED, _DELIVERED, _RECEIVED, _DUPLICATE = 10, 13, 14, 15, 16, 17
_PROGRAMS, _CREATIONS, _DELIVERIES, _DUPLICATED, _RETRANSMITTED = 8, 10, 11, 12, 13
# (direction, kind, bytes or records of one cycle): what a cycle adds to the traffic counters.
_TRAFFIC = (
    *((0, 0, 9), (0, 1, 700), (0, 2, 66), (0, 3, 410), (0, 4, 44), (0, 7, 12), (0, 15, 90)),
    *((1, 0, 8), (1, 1, 640), (1, 2, 60), (1, 3, 390), (1, 4, 40), (1, 5, 8), (1, 7, 12)),
)

# Kinds of places in a cycle beside those with a code of their own.
_POWER, _COUNTED = codes.STATE, codes.COUNTER


@dataclass(frozen=True, slots=True)
class _Place:
    """An event of a cycle: its code, a, least and spread of the ms until the next event."""

    code: int
    a: int = 0
    ms: int = 0
    spread: int = 0


def _states(*steps: tuple[int, int, int]) -> list[_Place]:
    return [_Place(_POWER, state, ms, spread) for state, ms, spread in steps]


_POLL = _states(
    (_IDLE, 20, 10), (_RECEIVE, 70, 30), (_SEND, 20, 8), (_RECEIVE, 50, 30), (_IDLE, 10, 6),
    (_FLASH, 6, 5), (_IDLE, 3, 3), (_SLEEP, CYCLE_MS // 4 - 2_000, 1_000),
)  # fmt: skip
_WORK = [
    *_states((_IDLE, 30, 10), (_SENSOR, 90, 40), (_IDLE, 6, 3)),
    _Place(_CREATED), _Place(_DELIVERED, 0, 1, 2),
    *_states((_FLASH, 8, 5), (_IDLE, 4, 4), (_RECEIVE, 120, 80)),
    *(place for peer in (1, 2, 3) for place in (_Place(_RECEIVED, peer, 3, 4),
                                                 _Place(_DELIVERED, peer, 1, 3))),
    _Place(_DUPLICATE, 1, 2, 2),
    *_states((_SEND, 12, 6)),
    *(_Place(_SENT, peer, 9, 6) for peer in (1, 2, 3)),
    *_states((_RECEIVE, 200, 150)),
    *(_Place(_ACKED, peer, 5, 20) for peer in (1, 2, 3)),
    _Place(_SENT, 2, 30, 9),  # again, where there was no answer
    *_states((_IDLE, 5, 5)),
    _Place(codes.HEAP_LOW), _Place(codes.BATTERY, 0, 1, 1),
]  # fmt: skip
_COUNTERS = (
    *(_SLEEP, _IDLE, _RECEIVE, _SEND, _FLASH, _SENSOR),
    *(_PROGRAMS, _CREATIONS, _DELIVERIES, _DUPLICATED, _RETRANSMITTED),
    *(
        codes.TRAFFIC_BASE + CARRIER * 32 + direction * 16 + kind
        for direction, kind, _ in _TRAFFIC
    ),
)
_CYCLE = [
    *_POLL * POLLS,
    *_WORK,
    *(_Place(_COUNTED, index) for index in _COUNTERS),
    *_states((_SLEEP, 0, 0)),
]
_CODE = np.array([place.code for place in _CYCLE])
_A = np.array([place.a for place in _CYCLE])
_MS = np.array([place.ms for place in _CYCLE])
_SPREAD = np.array([place.spread for place in _CYCLE])
_IS_STATE = _CODE == _POWER
# Power state in which the time after each place is spent.
_STATE_AT = _A[np.maximum.accumulate(np.where(_IS_STATE, np.arange(len(_CYCLE)), 0))]
_FLUSH = len(_CYCLE) - 1 - len(_COUNTERS)  # the first counter's place
_AGAIN = next(at for at in range(_FLUSH - 1, 0, -1) if _CODE[at] == _SENT)
_TWICE = next(at for at in range(len(_CYCLE)) if _CODE[at] == _DUPLICATE)
EVENTS_PER_CYCLE = len(_CYCLE)
_FIRST = 4  # events before the first cycle of a boot


@dataclass(slots=True)
class Boot:
    """One boot's events with what is true of it. Times are ms since the boot.

    `wall_ms` is the true Unix time of the boot. `totals` are the counters at its end; `simulated`
    what a simulated world knows of it that no black box said.
    """

    device: bytes
    boot: int
    wall_ms: int
    time_ms: Ints
    code: Ints
    a: Ints
    b: Ints
    c: Ints
    totals: dict[int, int]
    simulated: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.code)


def device_id(index: int) -> bytes:
    """Id of the device of a number, 4 bytes."""
    return (0xC0DE_0000 + index).to_bytes(4, "big")


def fleet(events: int, devices: int, seed: int) -> Iterator[Boot]:
    """Boots of a fleet with about so many events, device by device, in order."""
    each = max(events // devices, EVENTS_PER_CYCLE + _FIRST)
    for index in range(devices):
        rng = np.random.default_rng([seed, index])
        phase = int(rng.integers(0, PHASE_MS_MAX))
        cycle = number = event_count = 0
        battery_mv = 4_100.0
        while event_count < each:
            number += 1
            cycles = int(rng.integers(*CYCLES_PER_BOOT))
            cycles = min(cycles, max(1, round((each - event_count) / EVENTS_PER_CYCLE)))
            boot = _boot(index, number, cycle, cycles, phase, battery_mv, rng)
            yield boot
            event_count += len(boot)
            cycle += cycles + BOOT_GAP_MS // CYCLE_MS
            battery_mv -= cycles * 0.02


def _boot(
    index: int, number: int, cycle: int, cycles: int, phase: int, mv: float,
    rng: np.random.Generator,
) -> Boot:  # fmt: skip
    """One boot: as many cycles as asked for, the first at global number `cycle`."""
    size = (cycles, EVENTS_PER_CYCLE)
    delta = _MS + rng.integers(0, _SPREAD + 1, size)
    kept = np.ones(size, dtype=np.bool_)
    kept[:, _AGAIN] = rng.random(cycles) < RETRANSMITS
    kept[:, _TWICE] = rng.random(cycles) < DUPLICATES
    a, b, c = (np.broadcast_to(column, size).copy() for column in (_A, 0, 0))
    numbers = cycle + np.arange(cycles)
    # The last place of a cycle sleeps until the next one begins.
    delta[:, -1] = CYCLE_MS - delta[:, :-1].sum(axis=1)
    time_ms = _FIRST + np.cumsum(delta, axis=1) - delta + np.arange(cycles)[:, None] * CYCLE_MS
    _name_messages(index, numbers, b, c)
    c[:, _CODE == codes.HEAP_LOW] = 40_000 - (numbers % 512)[:, None]
    at = _CODE == codes.BATTERY
    b[:, at] = np.round(mv - 0.02 * np.arange(cycles)[:, None] + rng.normal(0, 6, (cycles, 1)))
    totals = _count(delta, kept, b, c)
    flat = kept.reshape(-1)
    first = np.array([[32, number % 8, number, 0], [34, 1, 0, 131_072], [34, 2, 0, CYCLE_MS // 4],
                      [34, 3, 1, 0]])  # fmt: skip
    columns = [np.broadcast_to(_CODE, size), a, b, c]
    boot_columns = [
        np.concatenate((first[:, i], column.reshape(-1)[flat])) for i, column in enumerate(columns)
    ]
    times = np.concatenate((np.arange(_FIRST), time_ms.reshape(-1)[flat]))
    wall = START_MS + cycle * CYCLE_MS + phase
    # The flush is the last that this boot says: what follows it is not in the log.
    code, a, b, c = (column[:-1] for column in boot_columns)
    return Boot(device_id(index), number, wall, times[:-1], code, a, b, c, totals)


def _name_messages(index: int, numbers: Ints, b: Ints, c: Ints) -> None:
    """Own readings of this cycle, and of the cycle before from the three others."""
    base = index - index % GROUP
    others = [base + at for at in range(GROUP) if base + at != index]
    own = (_CODE == _CREATED) | (_CODE == _SENT) | (_CODE == _ACKED)
    own |= (_CODE == _DELIVERED) & (_A == 0)
    c[:, own] = message_id(index, numbers)[:, None]
    b[:, _CODE == _SENT] = 1
    b[:, _AGAIN] = 2
    b[:, (_CODE == _CREATED) | (_CODE == _DELIVERED)] = group_tag(index)
    for peer, other in enumerate(others, 1):
        theirs = np.isin(_CODE, (_RECEIVED, _DELIVERED, _DUPLICATE)) & (peer == _A)
        c[:, theirs] = message_id(other, numbers - 1)[:, None]


def group_tag(index: _Index) -> _Index:
    """First two bytes of the id of a device's group, as a number; never 0."""
    return index // GROUP * 40_503 % 0xFFFF + 1


def message_id(index: int | Ints, numbers: Ints) -> Ints:
    """First four bytes of the id of a device's readings, as a number."""
    mixed = (index * 2_654_435_761 + numbers * 2_246_822_519) & 0xFFFFFFFF
    return (mixed ^ mixed >> 15) * 2_654_435_761 & 0xFFFFFFFF


def _count(delta: Ints, kept: npt.NDArray[np.bool_], b: Ints, c: Ints) -> dict[int, int]:
    """Fill in the counter records of every cycle; the last values by counter."""
    cycles = len(delta)
    added = {state: delta[:, _STATE_AT == state] for state in range(7)}
    # Sleep after the flush counts for the next cycle.
    spent = {state: ms.sum(axis=1) for state, ms in added.items()}
    late = delta[:, -1]
    spent[_SLEEP] = spent[_SLEEP] - late
    spent[_SLEEP][1:] += late[:-1]
    spent[_PROGRAMS] = np.full(cycles, POLLS + 1)
    spent[_CREATIONS] = np.ones(cycles, dtype=np.int64)
    spent[_DELIVERIES] = np.full(cycles, GROUP)
    spent[_DUPLICATED] = kept[:, _TWICE].astype(np.int64)
    spent[_RETRANSMITTED] = kept[:, _AGAIN].astype(np.int64)
    for direction, kind, amount in _TRAFFIC:
        index = codes.TRAFFIC_BASE + CARRIER * 32 + direction * 16 + kind
        spent[index] = np.full(cycles, amount)
    totals = {}
    for at, index in enumerate(_COUNTERS):
        values = np.cumsum(spent[index])
        b[:, _FLUSH + at] = values >> 32
        c[:, _FLUSH + at] = values & 0xFFFFFFFF
        totals[index] = int(values[-1])
    return totals


# --- bytes ---


@dataclass(slots=True)
class Anchor:
    """What a device's clock says at the start of each segment: offset from boot time, or not."""

    offset_ms: Ints
    known: npt.NDArray[np.bool_]
    uncertainty_ms: int


def blocks_of(boot: Boot) -> Bytes:
    """A boot's blocks, (n, 512)."""
    count = -(-len(boot) // EVENTS_PER_BLOCK)
    events = np.zeros(count * EVENTS_PER_BLOCK, dtype=[("dt", "<u4"), ("m", "<u4"), ("c", "<u4")])
    begin = np.arange(count) * EVENTS_PER_BLOCK
    t0 = boot.time_ms[begin]
    owner = np.arange(len(boot)) // EVENTS_PER_BLOCK
    used = events[: len(boot)]
    used["dt"] = boot.time_ms - t0[owner]
    used["m"] = boot.code | boot.a << 8 | boot.b << 16
    used["c"] = boot.c
    blocks = np.zeros((count, BLOCK_SIZE), dtype=np.uint8)
    end = BLOCK_HEADER_SIZE + EVENTS_PER_BLOCK * EVENT_SIZE
    blocks[:, BLOCK_HEADER_SIZE:end] = events.view(np.uint8).reshape(count, -1)
    words = blocks.view("<u4")
    held = np.minimum(len(boot) - begin, EVENTS_PER_BLOCK)
    words[:, 0] = codes.BLOCK_MAGIC | held << 8 | (np.arange(count) % BOX_BLOCKS_MAX) << 16
    words[:, 1] = boot.boot | (t0 & 0xFFFF) << 16
    words[:, 2] = t0 >> 16
    view = blocks.reshape(-1).data
    words[:, 3] = [
        zlib.crc32(view[at : at + BLOCK_SIZE]) for at in range(0, count * BLOCK_SIZE, BLOCK_SIZE)
    ]
    return blocks


def segments_of(boot: Boot, anchor: Anchor | None = None) -> list[bytes]:
    """A boot's segments, numbered from 0; without an anchor the clock is right to 50 ms."""
    blocks = blocks_of(boot)
    segments = []
    for number, at in enumerate(range(0, len(blocks), BOX_BLOCKS_MAX)):
        part = blocks[at : at + BOX_BLOCKS_MAX]
        t0 = int(boot.time_ms[at * EVENTS_PER_BLOCK])
        if anchor is None:
            wall, spread = boot.wall_ms + t0, 50
        elif anchor.known[number]:
            wall, spread = int(anchor.offset_ms[number]) + t0, anchor.uncertainty_ms
        else:
            wall, spread = 0, codes.UNCERTAINTY_UNKNOWN * codes.UNCERTAINTY_UNIT_MS
        segments.append(header(boot.device, boot.boot, number, wall, spread) + part.tobytes())
    return segments


def header(device: bytes, boot: int, number: int, wall_ms: int, uncertainty_ms: int) -> bytes:
    """A segment's header; `wall_ms` 0 says that the clock is not known."""
    head = bytearray(BOX_HEADER_SIZE)
    head[0:4] = codes.MAGIC
    head[4] = codes.VERSION
    head[5] = codes.WALL_KNOWN if wall_ms else 0
    head[6:8] = boot.to_bytes(2, "little")
    head[8 : 8 + len(device)] = device
    head[16:20] = number.to_bytes(4, "little")
    head[20:26] = wall_ms.to_bytes(6, "little")
    head[26:28] = (uncertainty_ms // codes.UNCERTAINTY_UNIT_MS).to_bytes(2, "little")
    head[28:32] = zlib.crc32(head[:28]).to_bytes(4, "little")
    return bytes(head)
